//! How much of the blame for some waits is right, and how much is not.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::{Result, ensure};

use crate::{
    case::{Case, SHARE, at_least},
    report::{Blame, Named},
};

/// Less than so much blocked time proves nothing: a fiftieth of the shortest window.
const ENOUGH_NS: u64 = 20_000_000;

/// The reasons for which nobody can know what a wait was for.
const UNKNOWABLE: [&str; 2] = ["lost", "still_blocked"];

/// The blame for the waits of one role on one cause, judged.
#[derive(Clone, Debug, Default)]
pub struct BlameAccuracy {
    /// How long the role was blocked, in ns; the rest adds up to it.
    pub blocked_ns: u64,
    /// Blame on the thread or the external kind that the workload is built on.
    pub right_ns: u64,
    /// Blame whose chain leads to or through a thread that had nothing to do with the waits, be it for
    /// its work or its sleep.
    pub wrong_ns: u64,
    /// Blame on something else that had nothing to do with the waits.
    pub wrong_external_ns: u64,
    /// Blame on nobody, by reason.
    pub unattributed_ns: BTreeMap<String, u64>,
}

impl BlameAccuracy {
    /// Judges the blame for the waits of `role` on `cause`.
    pub fn for_role(
        case: &Case,
        role: &str,
        cause: &str,
        is_right: impl Fn(&Blame) -> bool,
    ) -> Self {
        let waits = case.report.waits_of(case.tid(role), Some(cause));
        Self::from_blame(waits.flat_map(|waits| &waits.blame), is_right)
    }

    /// Judges some blame. A thread that stands in the chain of no blame that is right has nothing to do
    /// with the waits.
    pub fn from_blame<'a>(
        blame: impl IntoIterator<Item = &'a Blame>,
        is_right: impl Fn(&Blame) -> bool,
    ) -> Self {
        let blame: Vec<_> = blame.into_iter().collect();
        let right = blame.iter().filter(|part| is_right(part));
        let parties: BTreeSet<_> = right.flat_map(|part| part.path()).collect();
        Self::from_blame_among(blame, is_right, |thread| parties.contains(&thread.tid))
    }

    /// Judges some blame, where it is known of each thread whether it has to do with the waits.
    pub fn from_blame_among<'a>(
        blame: impl IntoIterator<Item = &'a Blame>,
        is_right: impl Fn(&Blame) -> bool,
        is_party: impl Fn(&Named) -> bool,
    ) -> Self {
        let mut accuracy = Self::default();
        for blame in blame {
            accuracy.blocked_ns += blame.ns;
            if let Some(reason) = &blame.reason {
                *accuracy.unattributed_ns.entry(reason.clone()).or_default() += blame.ns;
            } else if is_right(blame) {
                accuracy.right_ns += blame.ns;
            } else if !blame.chain.iter().all(&is_party)
                // A chain that is not there tells of nobody.
                || blame.chain.is_empty() && blame.blamed_tid().is_some()
            {
                accuracy.wrong_ns += blame.ns;
            } else {
                accuracy.wrong_external_ns += blame.ns;
            }
        }
        accuracy
    }

    /// Demands that there was something to blame, that nearly all of it is right, and that no thread
    /// is wronged for a nanosecond. Where records were lost nobody can be right, nor about a wait
    /// that the window's end cuts off: that must not be most of it.
    ///
    /// # Errors
    ///
    /// When one of these does not hold.
    pub fn check(&self, case: &Case, role: &str) -> Result<()> {
        self.check_share(SHARE, case, role)
    }

    /// As [`BlameAccuracy::check`], with another share of the time that must be right.
    ///
    /// # Errors
    ///
    /// As [`BlameAccuracy::check`].
    pub fn check_share(&self, share: f64, case: &Case, role: &str) -> Result<()> {
        ensure!(self.is_enough(), "{role} hardly waited, this proves nothing: {self}");
        ensure!(self.wrong_ns == 0, "a bystander is blamed: {self}: {}", case.describe(role));
        ensure!(at_least(self.right_ns, share, self.known_ns()), "{self}: {}", case.describe(role));
        Ok(())
    }

    /// Demands that what is not right is on nobody, for one of these reasons, or because records were lost or the
    /// window's end cuts a wait off; but for a share of the time that can be judged.
    ///
    /// # Errors
    ///
    /// When more of it is for another reason, or on something that has nothing to do with the waits.
    pub fn check_rest(&self, reasons: &[&str], share: f64) -> Result<()> {
        let (mut other_ns, mut others) = (self.wrong_external_ns, Vec::new());
        for (reason, &ns) in &self.unattributed_ns {
            if !UNKNOWABLE.contains(&reason.as_str()) && !reasons.contains(&reason.as_str()) {
                other_ns += ns;
                others.push(reason);
            }
        }
        let most = share * self.known_ns() as f64;
        ensure!(other_ns as f64 <= most, "{other_ns} ns are astray or {others:?}: {self}");
        Ok(())
    }

    /// Whether there was so much to blame that shares of it prove something.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.known_ns() >= ENOUGH_NS && at_least(self.known_ns(), 0.5, self.blocked_ns)
    }

    /// The blocked time of which it can be known what ended it.
    #[must_use]
    pub fn known_ns(&self) -> u64 {
        let unknowable = UNKNOWABLE.map(|reason| self.unattributed_ns.get(reason));
        self.blocked_ns - unknowable.into_iter().flatten().sum::<u64>()
    }
}

/// Writes the figures as one line of a table.
impl fmt::Display for BlameAccuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: u64| part as f64 * 100.0 / self.blocked_ns.max(1) as f64;
        write!(
            f,
            "{:>6.1} ms blocked: right {:.2} %, wrong {:.2} %, astray {:.2} %",
            self.blocked_ns as f64 / 1e6,
            percent(self.right_ns),
            percent(self.wrong_ns),
            percent(self.wrong_external_ns)
        )?;
        for (reason, &ns) in &self.unattributed_ns {
            write!(f, ", {reason} {:.2} %", percent(ns))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blame(kind: &str, tid: Option<u32>, reason: Option<&str>) -> Blame {
        let reason = reason.map(str::to_owned);
        let (tgid, comm, depth, holder) = (tid, None, None, None);
        let (kind, ns, idle, chain) = (kind.to_owned(), 10, false, Vec::new());
        let (container, stack) = (None, Vec::new());
        Blame { kind, reason, tid, tgid, comm, container, depth, ns, idle, holder, chain, stack }
    }

    #[test]
    fn every_nanosecond_is_judged_once() {
        let all = [
            blame("work", Some(7), None),
            blame("cpu_queue", Some(8), None),
            blame("timer", None, None),
            blame("disk", None, None),
            blame("unattributed", None, Some("lost")),
        ];
        let accuracy =
            BlameAccuracy::from_blame(&all, |blame| blame.tid == Some(7) || blame.kind == "timer");
        assert_eq!((accuracy.blocked_ns, accuracy.right_ns), (50, 20));
        assert_eq!((accuracy.wrong_ns, accuracy.wrong_external_ns), (10, 10));
        assert_eq!(accuracy.unattributed_ns, BTreeMap::from([("lost".to_owned(), 10)]));
        let line = accuracy.to_string();
        assert!(line.contains("right 40.00 %") && line.contains("lost 20.00 %"), "{line}");
    }

    #[test]
    fn what_is_not_right_must_be_unknown_for_a_reason_that_is_allowed() {
        let known = [
            blame("work", Some(7), None),
            blame("unattributed", None, Some("lost")),
            blame("unattributed", None, Some("event_loop")),
        ];
        let check = |all: &[Blame], share| {
            let is_right = |blame: &Blame| blame.tid == Some(7);
            BlameAccuracy::from_blame(all, is_right).check_rest(&["event_loop"], share)
        };
        assert!(check(&known, 0.0).is_ok());
        for other in
            [blame("timer", None, None), blame("unattributed", None, Some("local_softirq"))]
        {
            let all: Vec<Blame> = known.iter().cloned().chain([other]).collect();
            // It is 10 of 30 ns: nobody can know about those that are lost.
            assert!(check(&all, 0.3).is_err() && check(&all, 0.34).is_ok());
        }
    }

    /// `b` is another client of the loop that `a` waits for.
    #[test]
    fn an_innocent_is_blamed_for_its_sleep_as_for_its_work() {
        let (in_loop, server, b) = (1, 2, 3);
        let chain = |kind: &str, ns, tids: &[u32]| {
            let named = |&tid: &u32| Named { tid, tgid: tid, comm: String::new() };
            Blame { ns, chain: tids.iter().map(named).collect(), ..blame(kind, None, None) }
        };
        let all = [
            chain("timer", 1, &[in_loop, server]),
            chain("timer", 2, &[in_loop, b]),
            chain("network", 4, &[in_loop, b, server]),
            // Not what is true, and on nobody who has nothing to do with it.
            chain("timer", 8, &[in_loop]),
            chain("timer", 16, &[]),
        ];
        let accuracy = BlameAccuracy::from_blame(&all, |blame| blame.path() == [in_loop, server]);
        assert_eq!((accuracy.right_ns, accuracy.wrong_ns), (1, 2 + 4));
        assert_eq!(accuracy.wrong_external_ns, 8 + 16);
        let accuracy = BlameAccuracy::from_blame_among(
            &all,
            |blame| blame.path() == [in_loop, server],
            |thread| thread.tid == server,
        );
        assert_eq!((accuracy.wrong_ns, accuracy.wrong_external_ns), (2 + 4 + 8, 16));
    }
}
