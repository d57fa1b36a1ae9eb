//! Tells which findings lead to the cause of one before them, and what all of one cause add up to.
//!
//! ```text
//! 1   82%  web ×4 waits for postgres in checkout
//!          └ postgres 38 waits for cron
//!            └ cron 34 sleeps in call_api          ← cause, 81% (90% with 2)
//! 2    9%  worker 51 waits for postgres in report
//!          └ cron 34 sleeps in call_api            ← same cause as 1, 9%
//! ```
//!
//! Who reads three findings looks for three causes. Two clients of one server, or two hops of one chain, have
//! one; and what the cause itself does may be a finding as well.

use offwake_recording::units::Nanos;

use crate::blame::BlameEntryKind;

use super::model::{Finding, FindingHop, FindingKind, SameCauseSum};

/// Writes into each finding which one before it has the same cause, and into the first of these what all of them
/// add up to. The findings come in their order.
pub(super) fn mark_same_causes(list: &mut [Finding]) {
    for place in 1..list.len() {
        let (before, rest) = list.split_at_mut(place);
        let Some(finding) = rest.first_mut() else { continue };
        // Screens put sleeps together at the end: what comes after one has another number there.
        finding.same_cause_as = (before.iter().zip(1..))
            .take_while(|(other, _)| other.kind != FindingKind::Sleep)
            .find(|(other, _)| other.same_cause_as.is_none() && have_same_cause(other, finding))
            .map(|(_, number)| number);
    }
    let sums: Vec<_> = (0..list.len()).map(|place| add_up(list, place)).collect();
    for (finding, sum) in list.iter_mut().zip(sums) {
        finding.with_same_cause = sum;
    }
}

/// Adds up a finding and those that have its cause. Sleeps on purpose are no time that anybody lost.
fn add_up(list: &[Finding], place: usize) -> Option<SameCauseSum> {
    let first = list.get(place)?;
    let others = || {
        (list.iter().zip(1..)).filter(|(other, _)| {
            other.same_cause_as == Some(place + 1) && other.kind != FindingKind::Sleep
        })
    };
    let all = || std::iter::once(first).chain(others().map(|(other, _)| other));
    let findings: Vec<usize> = others().map(|(_, number)| number).collect();
    (!findings.is_empty()).then(|| SameCauseSum {
        findings,
        share: all().map(|finding| finding.cause.share).sum(),
        ns: all().map(|finding| finding.cause.ns).sum::<Nanos>(),
    })
}

/// Returns whether the chain of `finding` leads to where that of `other` does, or `finding` is what the other one
/// leads to.
fn have_same_cause(other: &Finding, finding: &Finding) -> bool {
    let leads_on = |finding: &Finding| finding.chain.len() > 1;
    // Of who waited for a CPU, the cause is who had it.
    let waits_for_cpu = |finding: &Finding| {
        !leads_on(finding) && finding.cause.kind == BlameEntryKind::CpuQueue.name()
    };
    let is_known =
        |finding: &Finding| finding.is_cause_known() || finding.still_waiting && leads_on(finding);
    let ends = |finding: &Finding| {
        (finding.cause.kind, finding.cause.reason, finding.kind == FindingKind::Deadlock)
    };
    // Of two that lead nowhere, each did something itself.
    (leads_on(finding) || leads_on(other))
        && !waits_for_cpu(finding)
        && !waits_for_cpu(other)
        && is_known(finding)
        && is_known(other)
        && ends(finding) == ends(other)
        && other
            .chain
            .last()
            .zip(finding.chain.last())
            .is_some_and(|(one, other)| say_the_same(one, other) && does_say_enough(finding, other))
}

/// Returns whether two hops say the same. How many of a program's threads and processes were met on a chain
/// differs by chance, and is no matter where they did it in the same function.
fn say_the_same(one: &FindingHop, other: &FindingHop) -> bool {
    let FindingHop { program, script, pid, thread_name, container, function, what, tid, .. } = one;
    let are_same_threads = (thread_name, tid) == (&other.thread_name, &other.tid);
    (program, script, pid) == (&other.program, &other.script, &other.pid)
        && (container, function, what) == (&other.container, &other.function, &other.what)
        && (function.is_some() || are_same_threads)
}

/// Returns whether a cause says enough for two that say the same to be one: threads of a process that sleep,
/// and not known where, may have nothing to do with each other.
fn does_say_enough(finding: &Finding, last: &FindingHop) -> bool {
    last.function.is_some()
        || last.tid.is_some()
        || finding.cause.kind != BlameEntryKind::Timer.name()
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::{Nanos, Tgid};

    use super::{super::model::FindingCause, *};

    fn hop(program: &str, function: Option<&str>) -> FindingHop {
        FindingHop {
            program: program.to_owned(),
            script: None,
            pid: Some(Tgid(7)),
            title: None,
            thread_name: None,
            container: None,
            processes: 1,
            threads: 1,
            function: function.map(str::to_owned),
            what: "sleeps".to_owned(),
            ns: Nanos(9),
            tid: None,
            sleep: None,
            waited_on: None,
            library_function: None,
            blocked_loop: None,
            addition: None,
        }
    }

    fn finding(chain: &[FindingHop], kind: &'static str, reason: Option<&'static str>) -> Finding {
        let text = chain.last().map(|hop| hop.program.clone()).unwrap_or_default();
        Finding {
            kind: FindingKind::Wait,
            share: 0.5,
            ns: Nanos(9),
            threads: 1,
            count: 1,
            longest_ns: Nanos(9),
            still_waiting: false,
            chain: chain.to_vec(),
            cause: FindingCause { kind, reason, share: 0.5, ns: Nanos(9), text: text.clone() },
            same_cause_as: None,
            with_same_cause: None,
            text,
            lines: Vec::new(),
            disk: None,
        }
    }

    fn numbers(mut list: Vec<Finding>) -> Vec<Option<usize>> {
        mark_same_causes(&mut list);
        list.into_iter().map(|finding| finding.same_cause_as).collect()
    }

    #[test]
    fn chains_of_two_clients_to_one_culprit_have_one_cause() {
        let cron = || hop("cron", Some("call_api"));
        let of = |client: &str| finding(&[hop(client, None), cron()], "timer", None);
        assert_eq!(numbers(vec![of("web"), of("worker"), of("api")]), [None, Some(1), Some(1)]);
        let on_its_own = || finding(&[cron()], "timer", None);
        assert_eq!(numbers(vec![of("web"), on_its_own()]), [None, Some(1)]);
        assert_eq!(numbers(vec![on_its_own(), of("web")]), [None, Some(1)]);
        // Two that lead nowhere.
        assert_eq!(numbers(vec![on_its_own(), on_its_own()]), [None, None]);
    }

    #[test]
    fn findings_with_one_cause_add_up_in_the_first_of_them() {
        let cron = || hop("cron", Some("call_api"));
        let lost = |client: &str, last: FindingHop, share: f64, ns: u64| {
            let mut finding = finding(&[hop(client, None), last], "timer", None);
            (finding.cause.share, finding.cause.ns) = (share, Nanos(ns));
            finding
        };
        let mut sleep = Finding { kind: FindingKind::Sleep, ..finding(&[cron()], "timer", None) };
        sleep.cause.ns = Nanos(1000);
        let mut list = vec![
            lost("web", cron(), 0.5, 50),
            lost("mail", hop("smtp", Some("send")), 0.25, 25),
            lost("worker", cron(), 0.125, 12),
            lost("api", cron(), 0.0625, 6),
            // It is the cause itself, and nobody's loss.
            sleep,
        ];
        mark_same_causes(&mut list);
        let all = SameCauseSum { findings: vec![3, 4], share: 0.6875, ns: Nanos(68) };
        let sums: Vec<_> = list.iter().map(|finding| finding.with_same_cause.clone()).collect();
        assert_eq!(sums, [Some(all), None, None, None, None]);
        assert_eq!(list[4].same_cause_as, Some(1));
    }

    #[test]
    fn who_waits_for_a_cpu_is_not_the_cause() {
        let queue = |chain: &[FindingHop]| finding(chain, "cpu_queue", None);
        let server = || hop("server", None);
        let waits = || queue(&[hop("web", None), server()]);
        assert_eq!(numbers(vec![waits(), queue(&[server()])]), [None, None]);
        assert_eq!(numbers(vec![queue(&[server()]), waits()]), [None, None]);
        assert_eq!(numbers(vec![waits(), waits()]), [None, Some(1)]);
    }

    #[test]
    fn what_differs_or_is_not_known_is_no_common_cause() {
        let chain = |last: FindingHop| [hop("web", None), last];
        let sleeps = |last| finding(&chain(last), "timer", None);
        let cron = || hop("cron", Some("call_api"));
        let second = |other| numbers(vec![sleeps(cron()), other])[1];
        assert_eq!(second(sleeps(cron())), Some(1));
        assert_eq!(second(sleeps(hop("cron", Some("other")))), None);
        assert_eq!(second(sleeps(hop("web", Some("call_api")))), None);
        assert_eq!(second(sleeps(FindingHop { pid: Some(Tgid(8)), ..cron() })), None);
        let in_thread = |name: &str| FindingHop { thread_name: Some(name.to_owned()), ..cron() };
        assert_eq!(second(sleeps(in_thread("store-4"))), Some(1));
        assert_eq!(second(finding(&chain(cron()), "work", None)), None);
        let unknown = || finding(&chain(cron()), "unattributed", Some("no_wakeup"));
        assert_eq!(numbers(vec![unknown(), unknown()]), [None, None]);
        // Two threads of one process that sleep, nobody knows where.
        let nowhere = || sleeps(hop("java", None));
        assert_eq!(numbers(vec![nowhere(), nowhere()]), [None, None]);
        let stopped = || finding(&chain(hop("redis", None)), "unattributed", Some("stopped"));
        assert_eq!(numbers(vec![stopped(), stopped()]), [None, Some(1)]);
    }

    #[test]
    fn a_number_is_the_one_on_screens() {
        let cron = || hop("cron", Some("call_api"));
        let sleep = Finding { kind: FindingKind::Sleep, ..finding(&[cron()], "timer", None) };
        let of = |client: &str| finding(&[hop(client, None), cron()], "timer", None);
        assert_eq!(numbers(vec![sleep, of("web"), of("worker")]), [None, None, None]);
    }
}
