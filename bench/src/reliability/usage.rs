//! What a process used while it was watched.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use crate::process::{self, Memory};

/// How it stood at a moment.
#[derive(Clone, Copy, Debug)]
pub struct UsageSample {
    /// Seconds after the first look.
    pub at: f64,
    /// Seconds of CPU time that it had had.
    pub cpu: f64,
    pub memory: Memory,
}

/// The first mark is from the beginning.
#[derive(Debug)]
pub struct Usage(Vec<UsageSample>);

impl Usage {
    /// Watches processes for so long, all at the same moments.
    ///
    /// # Errors
    ///
    /// When one ends meanwhile.
    pub fn watch_all(pids: &[u32], length: Duration, every: Duration) -> anyhow::Result<Vec<Self>> {
        let begin = Instant::now();
        let mut all: Vec<Vec<UsageSample>> = pids.iter().map(|_| Vec::new()).collect();
        let mut due = Duration::ZERO;
        loop {
            sleep(due.saturating_sub(begin.elapsed()));
            for (pid, marks) in pids.iter().zip(&mut all) {
                marks.push(UsageSample {
                    at: begin.elapsed().as_secs_f64(),
                    cpu: process::cpu_seconds(*pid)?,
                    memory: process::memory(*pid)?,
                });
            }
            if due >= length {
                return Ok(all.into_iter().map(Self).collect());
            }
            due = (due + every).min(length);
        }
    }

    /// Watches a process for so long.
    ///
    /// # Errors
    ///
    /// When it ends meanwhile.
    pub fn watch(pid: u32, length: Duration, every: Duration) -> anyhow::Result<Self> {
        Self::watch_all(&[pid], length, every)?.pop().context("nobody was watched")
    }

    /// All looks.
    pub fn samples(&self) -> &[UsageSample] {
        &self.0
    }

    /// CPUs that it kept busy on average.
    pub fn cores(&self) -> f64 {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else { return 0.0 };
        (last.cpu - first.cpu) / (last.at - first.at).max(f64::EPSILON)
    }

    /// The most that was resident at any time.
    pub fn peak(&self) -> u64 {
        self.0.iter().map(|mark| mark.memory.peak).max().unwrap_or(0)
    }

    /// What was resident at a quarter of the time, and at its end.
    pub fn early_and_late(&self) -> (u64, u64) {
        let resident = |mark: Option<&UsageSample>| mark.map_or(0, |mark| mark.memory.resident);
        (resident(self.0.get(self.0.len() / 4)), resident(self.0.last()))
    }

    /// How fast its memory grew after the first quarter, in bytes a second: the slope of the line
    /// that lies nearest to all marks from there on.
    pub fn growth(&self) -> f64 {
        let marks = self.0.get(self.0.len() / 4..).unwrap_or_default();
        let count = marks.len() as f64;
        let mean = |of: fn(&UsageSample) -> f64| marks.iter().map(of).sum::<f64>() / count;
        let resident = |mark: &UsageSample| mark.memory.resident as f64;
        let (at, level) = (mean(|mark| mark.at), mean(resident));
        let moved = marks.iter().map(|mark| (mark.at - at) * (resident(mark) - level)).sum::<f64>();
        let spread = marks.iter().map(|mark| (mark.at - at).powi(2)).sum::<f64>();
        if spread > 0.0 { moved / spread } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(resident: impl Iterator<Item = u64>) -> Usage {
        let mark = |(number, resident): (usize, u64)| UsageSample {
            at: number as f64,
            cpu: number as f64 / 4.0,
            memory: Memory { resident, anonymous: resident, peak: resident },
        };
        Usage(resident.enumerate().map(mark).collect())
    }

    #[test]
    fn memory_that_grows_is_told_from_memory_that_does_not() {
        let growing = usage((0..40).map(|second| 1000 + 10 * second));
        assert!((growing.growth() - 10.0).abs() < 1e-6);
        assert!((growing.cores() - 0.25).abs() < 1e-6);
        assert_eq!(growing.early_and_late(), (1100, 1390));
        // What is taken at first does not count.
        let flat = usage((0..40).map(|second| if second < 5 { 100 } else { 1000 }));
        assert!(flat.growth().abs() < 1e-6);
        assert_eq!(flat.peak(), 1000);
    }
}
