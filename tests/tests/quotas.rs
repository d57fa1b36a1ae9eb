//! Who is under a CPU quota is throttled by it, for as long as the kernel itself counts; and nobody
//! else is.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{Case, at_least},
    cgroup::{Cgroup, CpuCount},
    report::{Blame, Quota, Thread},
    workload::Workload,
};

/// Of a CPU; the period is 100 ms. So little that it is used up in most periods whoever else wants
/// the machine's CPUs: how much of the time that leaves is not what is tested here.
const CPUS: f64 = 0.1;

/// Some forty periods: the kernel counts a throttle as it ends, so that its count may be off by one
/// at either edge.
const WINDOW: Duration = Duration::from_secs(4);

/// The length of a throttle at most.
const THROTTLE_NS: u64 = 100_000_000;

/// What the time of a few throttles may be off by, besides the one at each edge.
const TOLERANCE: f64 = 0.05;

/// How often a workload is profiled at most.
const ATTEMPTS: usize = 6;

/// A workload of which one role was under a quota, and what the kernel counted meanwhile.
struct QuotaCase {
    case: Case,
    counted: CpuCount,
    path: String,
}

impl QuotaCase {
    /// Profiles the workload, and again if the machine was so busy with other things that the role
    /// hardly used its quota up.
    fn profile(workload: &str, throttled: &str, targets: &[&str]) -> Result<Self> {
        for _attempt in 0..ATTEMPTS {
            let case = Self::profile_once(workload, throttled, targets)?;
            let counted = case.case.report.quotas.iter().filter_map(|quota| quota.counted);
            let counted: u64 = counted.map(|count| count.throttled_ns).sum();
            if at_least(counted, 0.2, case.case.report.window.duration_ns) {
                return Ok(case);
            }
        }
        anyhow::bail!("it was hardly ever throttled, this proves nothing");
    }

    fn profile_once(workload: &str, throttled: &str, targets: &[&str]) -> Result<Self> {
        let group = Cgroup::with_cpu(workload, CPUS)?;
        let workload = Workload::start(workload)?;
        group.adopt(workload.role(throttled)?.pid)?;
        let first = group.cpu_count()?;
        offwake_tests::wait_until::wait_until("it to be throttled", || {
            Ok((group.cpu_count()?.throttled_periods > first.throttled_periods + 1).then_some(()))
        })?;
        let before = group.cpu_count()?;
        let pids: Vec<String> = (targets.iter())
            .map(|role| Ok(workload.role(role)?.pid.to_string()))
            .collect::<Result<_>>()?;
        let mut after = None;
        let case = Case::profile_window(
            WINDOW,
            workload,
            |offwake, _| offwake.args(["--pid", &pids.join(",")]),
            || {
                after = Some(group.cpu_count()?);
                Ok(())
            },
        )?;
        let after = after.context("nothing was counted")?;
        let path = group.path().file_name().context("no name")?.to_string_lossy();
        Ok(Self { case, counted: after.since(before), path: format!("/{path}") })
    }

    fn quota(&self) -> Result<&Quota> {
        let [quota] = self.case.report.quotas.as_slice() else {
            let Case { report, .. } = &self.case;
            anyhow::bail!(
                "not one quota: {:?}, counted {:?}, {:?}",
                report.quotas,
                self.counted,
                report.threads
            );
        };
        Ok(quota)
    }

    /// Demands that the quota is named, and that it took as long as the kernel says.
    fn check_quota(&self, role: &str) -> Result<()> {
        let quota = self.quota()?;
        ensure!(quota.path.as_deref() == Some(&self.path), "{quota:?}");
        ensure!((quota.quota_ns, quota.period_ns) == (Some(10_000_000), Some(100_000_000)));
        let [thread] = quota.threads.as_slice() else { anyhow::bail!("{quota:?}") };
        ensure!(thread.tid == self.case.tid(role) && thread.ns == quota.throttled_ns, "{quota:?}");
        let own = quota.counted.as_ref().context("the kernel's count was not read")?;
        // The test's own readings lie outside of offwake's, and those outside of the window.
        ensure!(own.throttled_ns <= self.counted.throttled_ns, "{own:?}, {:?}", self.counted);
        let (recorded, counted) = (quota.throttled_ns, own.throttled_ns);
        // Counts are read when the look-up thread comes to it, which takes most of a second in an emulator:
        // as many throttles more or fewer were counted.
        let counted_for = own.throttled_periods * THROTTLE_NS;
        let late = counted_for.abs_diff(self.case.report.window.duration_ns);
        let bearable = 2 * THROTTLE_NS + (counted as f64 * TOLERANCE) as u64 + late;
        ensure!(
            recorded.abs_diff(counted) <= bearable && recorded > 0,
            "throttled {recorded}, counted {own:?}"
        );
        Ok(())
    }

    fn thread(&self, role: &str) -> Result<&Thread> {
        self.case.report.thread(self.case.tid(role))
    }

    fn first_finding(&self) -> Result<(&str, &str, &str)> {
        let first = self.case.report.findings.first().context("no finding")?;
        Ok((&first.kind, &first.cause.kind, &first.text))
    }
}

fn sum<'a>(blame: impl Iterator<Item = &'a Blame>, holds: impl Fn(&Blame) -> bool) -> u64 {
    blame.filter(|blame| holds(blame)).map(|blame| blame.ns).sum()
}

/// A target that only computes: it is a finding, and no failure.
#[test]
fn a_thread_under_a_quota_is_throttled_by_it() -> Result<()> {
    let quota = QuotaCase::profile("spinner", "spinner", &["spinner"])?;
    quota.check_quota("spinner")?;
    let thread = quota.thread("spinner")?;
    ensure!(at_least(thread.throttled_ns, 0.15, thread.wall_ns), "{thread:?}");
    ensure!(thread.throttled_ns <= thread.runnable_ns, "{thread:?}");
    let (kind, cause, text) = quota.first_finding()?;
    ensure!((kind, cause) == ("throttled", "throttled"), "{kind} {cause}: {text}");
    let expected = format!("is throttled by the CPU quota of {}: 10 ms in 100 ms", quota.path);
    ensure!(text.contains(&expected), "{text}");
    ensure!(quota.case.outcome.status.code() == Some(0), "{}", quota.case.outcome.stderr);
    Ok(())
}

/// Two threads of one process, on one CPU: the quota keeps each from running.
#[test]
fn all_threads_under_a_quota_are_throttled_by_it() -> Result<()> {
    let quota = QuotaCase::profile("two-spinners", "first", &["first"])?;
    let named = quota.quota()?;
    ensure!(named.path.as_deref() == Some(&quota.path), "{named:?}");
    let own = named.counted.as_ref().context("the kernel's count was not read")?;
    for role in ["first", "second"] {
        let thread = quota.thread(role)?;
        let listed = named.threads.iter().find(|it| it.tid == thread.tid);
        ensure!(listed.is_some_and(|it| it.ns == thread.throttled_ns), "{role}: {named:?}");
        // Neither for longer than their queue.
        let most = (own.throttled_ns as f64 * (1.0 + TOLERANCE)) as u64 + 2 * THROTTLE_NS;
        ensure!((1..=most).contains(&thread.throttled_ns), "{role}: {thread:?}, {own:?}");
        ensure!(at_least(thread.throttled_ns, 0.1, thread.wall_ns), "{role}: {thread:?}");
    }
    let sum: u64 = named.threads.iter().map(|thread| thread.ns).sum();
    ensure!(sum == named.throttled_ns, "{named:?}");
    Ok(())
}

/// Without a quota, it is the hog who holds the CPU.
#[test]
fn a_thread_without_a_quota_waits_for_whoever_holds_its_cpu() -> Result<()> {
    let workload = Workload::start("spinner-beside-a-hog")?;
    let pid = workload.role("spinner")?.pid.to_string();
    let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &pid]))?;
    let thread = case.report.thread(case.tid("spinner"))?;
    ensure!(thread.throttled_ns == 0 && case.report.quotas.is_empty(), "{thread:?}");
    ensure!(at_least(thread.runnable_ns, 0.3, thread.wall_ns), "{thread:?}");
    let first = case.report.findings.first().context("no finding")?;
    ensure!(first.cause.kind == "cpu_queue" || first.cause.kind == "work", "{}", first.text);
    ensure!(case.report.findings.iter().all(|finding| finding.kind != "throttled"));
    ensure!(
        case.report.findings.iter().any(|finding| finding.text.contains("for a CPU, held by")),
        "{:?}",
        case.report.findings
    );
    Ok(())
}

/// Under a quota and behind a hog: throttled for no longer than the kernel says, and for the rest it
/// waits for the hog.
#[test]
fn a_thread_under_a_quota_and_behind_a_hog_is_both() -> Result<()> {
    let quota = QuotaCase::profile("spinner-beside-a-hog", "spinner", &["spinner"])?;
    quota.check_quota("spinner")?;
    let thread = quota.thread("spinner")?;
    let queued = thread.runnable_ns - thread.throttled_ns;
    // After each refill, every 100 ms, the hog keeps the CPU until its slice is over: 3 ms on Linux 6.18.
    ensure!(at_least(queued, 0.01, thread.wall_ns), "{thread:?}");
    ensure!(at_least(thread.throttled_ns, 0.1, thread.wall_ns), "{thread:?}");
    let (kind, ..) = quota.first_finding()?;
    ensure!(kind == "throttled", "{:?}", quota.case.report.findings);
    Ok(())
}

/// Who waits for a server that is throttled waits for the quota, not for whoever runs meanwhile.
#[test]
fn a_client_of_a_throttled_server_waits_for_the_quota() -> Result<()> {
    let quota = QuotaCase::profile("server-beside-a-hog", "server", &["client"])?;
    quota.check_quota("server")?;
    let (server, hog) = (quota.case.tid("server"), quota.case.tid("hog"));
    let blame = || {
        let waits = quota.case.report.waits.iter();
        waits.filter(|waits| waits.tid == quota.case.tid("client")).flat_map(|waits| &waits.blame)
    };
    let all = sum(blame(), |_| true);
    let throttled = sum(blame(), |blame| blame.kind == "throttled");
    let described = || quota.case.describe("client");
    // It waits whenever the server has anything to do.
    let quota_ns = quota.quota()?.throttled_ns;
    ensure!(throttled <= quota_ns, "{throttled} of {quota_ns}: {}", described());
    ensure!(at_least(throttled, 0.9, quota_ns), "{throttled} of {quota_ns}: {}", described());
    for part in blame().filter(|blame| blame.kind == "throttled") {
        ensure!(part.holder.is_none() && part.tid.is_none(), "{part:?}");
        ensure!(part.chain.last().is_some_and(|hop| hop.tid == server), "{part:?}");
    }
    ensure!(sum(blame(), |blame| blame.tid == Some(hog)) == 0, "{}", described());
    // As far as nothing but the hog kept the server from running, it is named.
    let held = sum(blame(), |blame| blame.holder.as_ref().is_some_and(|held| held.tid == hog));
    ensure!(held > 0 && held < all - throttled, "{held}: {}", described());
    // Whatever it waited for most, the quota is on the way.
    let findings = &quota.case.report.findings;
    let named = findings.iter().flat_map(|finding| &finding.lines);
    let named = named.filter(|line| line.text.contains(&quota.path)).count();
    ensure!(named > 0, "{findings:?}");
    Ok(())
}
