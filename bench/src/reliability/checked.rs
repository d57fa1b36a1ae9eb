//! What a report says, and what must be true of it whatever it is of.

use std::{collections::BTreeMap, fs::File, io::BufReader, path::Path};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// A report that is true to its contract.
#[derive(Debug, Deserialize)]
pub struct CheckedReport {
    window: Window,
    loss: Loss,
    recording: Soundness,
    threads: Vec<Thread>,
    waits: Vec<Waits>,
}

#[derive(Debug, Deserialize)]
struct Window {
    duration_ns: u64,
}

#[derive(Debug, Deserialize)]
struct Loss {
    records: u64,
    #[serde(default)]
    counters: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Soundness {
    cut_off: bool,
    slices_missing: u64,
}

#[derive(Debug, Deserialize)]
struct Thread {
    tid: u32,
    wall_ns: u64,
    on_cpu_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    attributed_ns: u64,
    external_ns: u64,
    unattributed_ns: u64,
}

#[derive(Debug, Deserialize)]
struct Waits {
    tid: u32,
    blocked_ns: u64,
    blame: Vec<Blame>,
}

#[derive(Debug, Deserialize)]
struct Blame {
    ns: u64,
}

impl CheckedReport {
    pub(super) fn read(json: &Path) -> anyhow::Result<Self> {
        let file = File::open(json).context("there is no report")?;
        let report: Self =
            serde_json::from_reader(BufReader::new(file)).context("cannot read a report")?;
        report.check()?;
        Ok(report)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.recording.cut_off, "the recording has no end");
        for thread in &self.threads {
            let Thread { tid, wall_ns, on_cpu_ns, runnable_ns, blocked_ns, .. } = thread;
            let closes = *wall_ns == on_cpu_ns + runnable_ns + blocked_ns
                && *blocked_ns
                    == thread.attributed_ns + thread.external_ns + thread.unattributed_ns
                && *wall_ns <= self.window.duration_ns;
            ensure!(closes, "the ledger of thread {tid} does not close: {thread:?}");
        }
        for waits in &self.waits {
            let blamed: u64 = waits.blame.iter().map(|blame| blame.ns).sum();
            ensure!(blamed == waits.blocked_ns, "blame of thread {} does not add up", waits.tid);
        }
        Ok(())
    }

    /// Records that were lost.
    pub fn lost(&self) -> u64 {
        self.loss.records
    }

    /// How often this was counted.
    pub fn counted(&self, name: &str) -> u64 {
        self.loss.counters.get(name).copied().unwrap_or(0)
    }

    /// The threads that have a ledger.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Slices of the recording that are not there.
    pub fn missing(&self) -> u64 {
        self.recording.slices_missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = r#"{ "window": { "duration_ns": 100 }, "loss": { "records": 3, "counters": { "targets_full": 2 } },
        "recording": { "cut_off": false, "slices_missing": 0 },
        "threads": [ { "tid": 7, "wall_ns": 100, "on_cpu_ns": 20, "runnable_ns": 10, "blocked_ns": 70,
            "attributed_ns": 40, "external_ns": 25, "unattributed_ns": 5 } ],
        "waits": [ { "tid": 7, "blocked_ns": 70, "blame": [ { "ns": 40 }, { "ns": 30 } ] } ] }"#;

    fn read(text: &str) -> anyhow::Result<CheckedReport> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("report.json");
        std::fs::write(&path, text)?;
        CheckedReport::read(&path)
    }

    #[test]
    fn a_sound_report_passes_and_says_what_was_lost() -> anyhow::Result<()> {
        let report = read(SOUND)?;
        assert_eq!((report.lost(), report.counted("targets_full"), report.threads()), (3, 2, 1));
        assert_eq!(report.counted("stand_in_full"), 0);
        Ok(())
    }

    #[test]
    fn a_ledger_that_does_not_close_is_an_error() {
        for (from, to) in [
            (r#""on_cpu_ns": 20"#, r#""on_cpu_ns": 21"#),
            (r#""external_ns": 25"#, r#""external_ns": 24"#),
            (r#""duration_ns": 100"#, r#""duration_ns": 99"#),
            (r#"{ "ns": 30 }"#, r#"{ "ns": 29 }"#),
            (r#""cut_off": false"#, r#""cut_off": true"#),
        ] {
            let broken = SOUND.replacen(from, to, 1);
            assert_ne!(broken, SOUND);
            assert!(read(&broken).is_err(), "{to} goes unseen");
        }
    }
}
