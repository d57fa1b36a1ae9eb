//! Who had a part in an incident, and what an answer blames on those who had none.

use anyhow::Result;
use regex::Regex;

use crate::report::{Finding, FindingHop, Named, Report};

/// Who is innocent in every incident: threads of the kernel and of runtimes that only ever wait for
/// work, and the profiler.
const ALWAYS_INNOCENT: &str =
    r"^(migration/|ksoftirqd/|rcu_|kthreadd|cpuhp/|C[12] Compiler|VM |GC |G1 |offwake)";

/// Threads of the kernel that work for whoever asks: a disk's answer comes by them.
const KERNEL: &str =
    r"^(kworker/|jbd2/|loop\d|xfsaild/|kblockd|kswapd|ext4-|irq/|md\d|nvme|scsi_|kdamond)";

/// A thread or a process.
#[derive(Clone, Debug)]
pub enum Party {
    /// All threads of a process.
    Process(u32),
    /// A thread.
    Thread(u32),
    /// Threads whose names match.
    Named(Regex),
}

/// What is known of those who are no party.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Others {
    /// They have nothing to do with the waits that are looked at.
    #[default]
    Innocent,
    /// The whole machine is looked at, and they may have trouble of their own.
    Unknown,
}

/// Who had which part.
#[derive(Clone, Debug, Default)]
pub struct Parties {
    /// Whose fault it is.
    pub culprits: Vec<Party>,
    /// Who stands between the culprit and the one that waits, and has something to do meanwhile.
    pub involved: Vec<Party>,
    /// Who must not be blamed.
    pub innocents: Vec<Party>,
    /// All others.
    pub others: Others,
}

impl Party {
    fn is(&self, thread: &Named) -> bool {
        match self {
            Self::Process(pid) => thread.tgid == *pid,
            Self::Thread(tid) => thread.tid == *tid,
            Self::Named(regex) => regex.is_match(&thread.comm),
        }
    }

    /// Whether a hop of a finding is of it. Of a hop of many threads or processes nobody can tell.
    fn is_hop(&self, hop: &FindingHop) -> bool {
        match self {
            Self::Process(pid) => hop.pid == Some(*pid),
            Self::Thread(tid) => {
                let name = hop.thread_name.as_deref().unwrap_or_default();
                let is_main = hop.pid == Some(*tid) && name == "main thread";
                hop.tid == Some(*tid) || is_main || name == format!("thread {tid}")
            }
            Self::Named(regex) => {
                let name = hop.thread_name.as_ref().or(hop.program.as_ref());
                name.is_some_and(|name| regex.is_match(name))
            }
        }
    }
}

impl Parties {
    /// What part of all that is not idle is blamed on innocents, by the parts of the waits or by the
    /// findings, whichever is more.
    ///
    /// # Errors
    ///
    /// Never, as long as the lists of names are lists.
    pub fn share_of_innocents(&self, report: &Report) -> Result<f64> {
        let names = Names { always: Regex::new(ALWAYS_INNOCENT)?, kernel: Regex::new(KERNEL)? };
        Ok(self.share_in_waits(report, &names).max(self.share_in_findings(report, &names)))
    }

    /// Whoever a chain ends at is blamed for what that thread did then, be it work, a sleep, or a wait
    /// for a disk. Nobody is where the chain is not known to have ended there.
    fn share_in_waits(&self, report: &Report, names: &Names) -> f64 {
        let busy = || report.waits.iter().flat_map(|waits| &waits.blame).filter(|part| !part.idle);
        let all: u64 = busy().map(|part| part.ns).sum();
        let is_wrong =
            |thread: &Named| self.is_innocent(&thread.comm, names, |party| party.is(thread));
        let wrong = busy().filter(|part| part.accused().is_some_and(is_wrong));
        if all == 0 { 0.0 } else { wrong.map(|part| part.ns).sum::<u64>() as f64 / all as f64 }
    }

    fn share_in_findings(&self, report: &Report, names: &Names) -> f64 {
        let threads_of_culprit =
            self.culprits.iter().any(|party| matches!(party, Party::Thread(_)));
        let is_wrong = |hop: &FindingHop| {
            let name = hop.thread_name.as_ref().or(hop.program.as_ref());
            let name = name.map_or("", String::as_str);
            // Of many nobody can tell who it was.
            let is_one_thread = hop.thread_name.is_some() || hop.threads == 1;
            let is_one = hop.pid.is_some() && (is_one_thread || !threads_of_culprit);
            (is_one || hop.tid.is_some())
                && self.is_innocent(name, names, |party| party.is_hop(hop))
        };
        let wrong = |finding: &&Finding| finding.accused().is_some_and(is_wrong);
        report.findings.iter().filter(wrong).map(|finding| finding.cause.share).sum()
    }

    fn is_innocent(&self, name: &str, names: &Names, is: impl Fn(&Party) -> bool) -> bool {
        if self.innocents.iter().any(&is) {
            return true;
        }
        if self.culprits.iter().chain(&self.involved).any(is) {
            return false;
        }
        names.always.is_match(name)
            || self.others == Others::Innocent && !names.kernel.is_match(name)
    }
}

/// Threads that are known by their names.
struct Names {
    always: Regex,
    kernel: Regex,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A report with one wait, whose blame is this.
    fn report(findings: serde_json::Value, blame: serde_json::Value) -> Result<Report> {
        let json = json!({
            "schema": "offwake.report/1",
            "meta": { "target": "", "sample_hz": 0, "closed_by": "duration", "programs": null },
            "window": { "start_ns": 0, "end_ns": 100, "duration_ns": 100 },
            "loss": { "records": 0, "stacks": 0, "gaps": 0, "gap_ns": 0 },
            "recording": { "cut_off": false, "slices_damaged": 0, "slices_missing": 0 },
            "findings": findings, "threads": [], "wakes": [],
            "waits": [{
                "tid": 1, "tgid": 1, "comm": "shop", "cause": "other", "waited_on": null,
                "waker_call": null, "count": 1, "blocked_ns": 100, "stack": [], "blame": blame
            }]
        });
        Report::parse(&json.to_string())
    }

    fn part(kind: &str, ns: u64, reason: Option<&str>, chain: &[u32]) -> serde_json::Value {
        let chain: Vec<_> =
            chain.iter().map(|pid| json!({ "tid": pid, "tgid": pid, "comm": "some" })).collect();
        json!({ "kind": kind, "reason": reason, "ns": ns, "chain": chain,
            "tid": null, "tgid": null, "comm": null, "depth": null })
    }

    fn parties(innocents: &[u32], others: Others) -> Parties {
        Parties {
            culprits: vec![Party::Process(9)],
            involved: vec![Party::Process(5)],
            innocents: innocents.iter().copied().map(Party::Process).collect(),
            others,
        }
    }

    #[test]
    fn an_innocent_whose_sleep_ends_a_chain_is_blamed() -> Result<()> {
        let report = report(
            json!([]),
            json!([
                part("timer", 20, None, &[9]),
                part("timer", 40, None, &[5, 7]),
                part("disk", 10, None, &[7]),
                part("network", 10, None, &[5]),
                // The one that waits sleeps itself; and of these chains nobody knows the end.
                part("timer", 10, None, &[]),
                part("unattributed", 10, Some("lost"), &[7]),
            ]),
        )?;
        let share = |parties: &Parties| parties.share_of_innocents(&report);
        assert_eq!(share(&parties(&[7], Others::Unknown))?, 0.5);
        assert_eq!(share(&parties(&[], Others::Innocent))?, 0.5);
        assert_eq!(share(&parties(&[], Others::Unknown))?, 0.0);
        assert_eq!(share(&parties(&[5], Others::Unknown))?, 0.1);
        Ok(())
    }

    #[test]
    fn a_thread_is_told_from_others_of_its_process_by_its_name_in_findings() -> Result<()> {
        let share = |culprit: u32, name: &str| -> Result<f64> {
            let finding = json!([{ "kind": "wait", "text": "", "lines": [],
                "cause": { "kind": "timer", "text": "", "share": 0.8 },
                "chain": [
                    { "pid": 9, "what": "waits", "function": null },
                    { "pid": 9, "threads": 1, "thread_name": name, "what": "", "function": null }
                ] }]);
            let culprits = vec![Party::Thread(culprit)];
            let parties = Parties { culprits, ..Parties::default() };
            parties.share_of_innocents(&report(finding, json!([]))?)
        };
        assert_eq!((share(9, "main thread")?, share(12, "thread 12")?), (0.0, 0.0));
        assert_eq!((share(9, "thread 12")?, share(12, "main thread")?), (0.8, 0.8));
        Ok(())
    }

    #[test]
    fn an_innocent_that_a_finding_names_as_its_cause_is_blamed() -> Result<()> {
        let hop = |pid: u32| json!({ "pid": pid, "program": "some", "thread_name": null, "function": null, "what": "sleeps" });
        let finding = |kind: &str, chain: &[u32]| {
            json!({ "kind": "wait", "text": "", "lines": [], "share": 0.9,
                "cause": { "kind": kind, "text": "", "share": 0.8 },
                "chain": chain.iter().copied().map(hop).collect::<Vec<_>>() })
        };
        let share = |findings| -> Result<f64> {
            parties(&[], Others::Innocent).share_of_innocents(&report(findings, json!([]))?)
        };
        assert_eq!(share(json!([finding("timer", &[1, 7])]))?, 0.8);
        assert_eq!(share(json!([finding("timer", &[1, 7, 9])]))?, 0.0);
        // What the one that waits does itself, and what nobody knows.
        assert_eq!(share(json!([finding("timer", &[1])]))?, 0.0);
        assert_eq!(share(json!([finding("unattributed", &[1, 7])]))?, 0.0);
        Ok(())
    }
}
