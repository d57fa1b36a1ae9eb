//! Whom a thread of an ordinary program waits for, beside what the program itself says of who had what when.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, ensure};

use crate::{
    case::at_least,
    intervals::{Interval, overlap_ns},
    report::{Blame, Report},
};

/// What one thread's waits with one cause are blamed on.
pub struct ThreadWaits<'r> {
    report: &'r Report,
    blame: Vec<&'r Blame>,
    all_ns: u64,
}

/// Threads that have a lock by turns while the thread `wants` waits for it, and how exactly its blame has to be
/// divided over them.
#[derive(Clone, Copy, Debug)]
pub struct Holders<'a> {
    /// What the waits for the lock are called.
    pub cause: &'a str,
    /// The threads' names.
    pub names: &'a [&'a str],
    /// How far a holder's share of what is on any holder may be from the truth.
    pub points: f64,
    /// The part of the wait that may be on no holder.
    pub on_nobody: f64,
}

impl<'r> ThreadWaits<'r> {
    /// The waits of the thread with this name on `cause`.
    ///
    /// # Errors
    ///
    /// When there is no such thread, or it hardly waited.
    pub fn find(report: &'r Report, name: &str, cause: &str) -> Result<Self> {
        let tid = tid(report, name)?;
        let waits = report.waits.iter().filter(|waits| waits.tid == tid && waits.cause == cause);
        let blame: Vec<&Blame> = waits.flat_map(|waits| &waits.blame).collect();
        let all_ns = blame.iter().map(|blame| blame.ns).sum();
        ensure!(at_least(all_ns, 0.3, report.window.duration_ns), "it hardly waited: {all_ns} ns");
        Ok(Self { report, blame, all_ns })
    }

    fn sum(&self, holds: impl Fn(&Blame) -> bool) -> u64 {
        self.blame.iter().filter(|blame| holds(blame)).map(|blame| blame.ns).sum()
    }

    fn share(&self, holds: impl Fn(&Blame) -> bool) -> f64 {
        share(self.sum(holds), self.all_ns)
    }

    /// The share in which a thread is the last that was waited for, and known to be.
    ///
    /// # Errors
    ///
    /// When there is no such thread.
    pub fn share_of(&self, name: &str) -> Result<f64> {
        let tid = tid(self.report, name)?;
        let is_last = |blame: &Blame| blame.chain.last().is_some_and(|hop| hop.tid == tid);
        Ok(self.share(|blame| blame.reason.is_none() && is_last(blame)))
    }

    /// The share in which a thread is anywhere on the way.
    ///
    /// # Errors
    ///
    /// When there is no such thread.
    pub fn share_through(&self, name: &str) -> Result<f64> {
        let tid = tid(self.report, name)?;
        Ok(self.share(|blame| blame.chain.iter().any(|hop| hop.tid == tid)))
    }

    /// The share that is not known, with this reason.
    #[must_use]
    pub fn share_with_reason(&self, reason: &str) -> f64 {
        self.share(|blame| blame.reason.as_deref() == Some(reason))
    }

    /// The share of which this is the kind, whatever is on the way.
    #[must_use]
    pub fn share_of_kind(&self, kind: &str) -> f64 {
        self.share(|blame| blame.kind == kind)
    }
}

/// The share in which a holder may have waited for a CPU that `stands-by` had, as it wakes up now and then: 0.00003
/// once, on a machine of two CPUs. Had it been taken for a holder once, that would be more than 0.01.
const STANDS_BY_RUNS: f64 = 0.001;

/// Demands that the thread `wants` waits for each of these holders as long as each had what it wanted, by what
/// all of them wrote into a log, and not for `stands-by`. Prints both.
///
/// It waits for the last holder on the way: the others wait for that one themselves.
///
/// # Errors
///
/// When the report says anything else.
pub fn check_holders(about: &str, report: &Report, log: &Path, holders: Holders) -> Result<()> {
    let said = read_log(log)?;
    let clipped = |name: &str| -> Vec<Interval> {
        let all = said.get(name).into_iter().flatten();
        all.filter_map(|one| one.clipped(report.interval())).collect()
    };
    let wanted = clipped("wants");
    let waits = ThreadWaits::find(report, "wants", holders.cause)?;
    let tids: Vec<u32> = holders.names.iter().map(|it| tid(report, it)).collect::<Result<_>>()?;
    let truth: Vec<u64> =
        holders.names.iter().map(|holder| overlap_ns(&wanted, &clipped(holder))).collect();
    let last_holder =
        |blame: &Blame| blame.chain.iter().rev().map(|hop| hop.tid).find(|tid| tids.contains(tid));
    let is_on = |blame: &Blame, tid| blame.reason.is_none() && last_holder(blame) == Some(tid);
    let blamed: Vec<u64> = tids.iter().map(|&tid| waits.sum(|blame| is_on(blame, tid))).collect();
    let (of_truth, of_blamed) = (truth.iter().sum(), blamed.iter().sum());
    let parts = |all: &[u64], sum| -> Vec<f64> { all.iter().map(|&ns| share(ns, sum)).collect() };
    let (true_parts, blamed_parts) = (parts(&truth, of_truth), parts(&blamed, of_blamed));
    let on_nobody = 1.0 - share(of_blamed, waits.all_ns);
    println!(
        "| {about} | truth {true_parts:.3?} | blamed {blamed_parts:.3?} | on nobody {on_nobody:.3}, of it timer {:.3} |",
        waits.share_of_kind("timer"),
    );
    ensure!(at_least(of_truth, 0.3, report.window.duration_ns), "it hardly waited: {truth:?}");
    ensure!(on_nobody <= holders.on_nobody, "{of_blamed} of {} are on a holder", waits.all_ns);
    for (holder, (one, other)) in holders.names.iter().zip(true_parts.iter().zip(&blamed_parts)) {
        let off = (one - other).abs();
        ensure!(off <= holders.points, "{holder}: {blamed:?} instead of {truth:?}");
    }
    let wrong = waits.share_through("stands-by")?;
    ensure!(wrong <= STANDS_BY_RUNS, "{wrong} is on a thread that never wants the lock");
    Ok(())
}

/// Who had the lock when, and when it was wanted, by the program itself.
fn read_log(path: &Path) -> Result<BTreeMap<String, Vec<Interval>>> {
    let mut all = BTreeMap::<String, Vec<Interval>>::new();
    for line in fs::read_to_string(path)?.lines() {
        let [name, from, to] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        all.entry(name.to_owned()).or_default().push(Interval::new(from.parse()?, to.parse()?));
    }
    Ok(all)
}

fn tid(report: &Report, name: &str) -> Result<u32> {
    let thread = report.threads.iter().find(|thread| thread.comm == name);
    Ok(thread.with_context(|| format!("no thread {name}"))?.tid)
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
