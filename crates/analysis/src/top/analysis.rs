//! Analyses the bytes of a recorded stretch into the figures that are on screen.

use std::sync::Arc;

use offwake_recording::{
    Recording,
    stream::{self, ReadError},
    units::Nanos,
};
use thiserror::Error;

use crate::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    report::{LossNote, Report, first_screen, loss_line},
    requests::{RequestAnalysis, Requests},
    text,
    timeline::Timeline,
};

use super::{
    figures::Figures,
    findings::ScreenFindings,
    own_processes::own_processes,
    totals::{Completeness, Totals},
};

/// Everything that can be on screen at one moment.
#[derive(Clone, Debug)]
pub struct TopData {
    /// What is above the tables.
    pub header: Header,
    /// The figures of the last stretch.
    pub window: Figures,
    /// The figures since the start, as far as they were asked for.
    pub totals: Arc<Totals>,
    /// The requests of the last stretch, if they were asked for.
    pub requests: Option<Requests>,
    /// The recording that the window's figures are of.
    pub bytes: Arc<[u8]>,
}

/// What is above the tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The target in words, and what it runs if it is one process.
    pub target: String,
    /// What holds the target up in the window, as on every first screen.
    pub findings: ScreenFindings,
    /// CPU time of the profiler's own threads inside the window.
    pub own_cpu: Nanos,
    /// What was lost of the window.
    pub loss: WindowLoss,
    /// What else there is to be said of the recording.
    pub warnings: Vec<String>,
    /// Whether the target is still there.
    pub target_state: TargetState,
}

/// What was lost of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowLoss {
    /// No record, stack or time was lost.
    Nothing,
    /// Too little to change the answer; what, in words.
    Irrelevant(String),
    /// So much that the answer may be another one; what, in words.
    Relevant(String),
}

impl WindowLoss {
    fn new(report: &Report) -> Self {
        match (loss_line::describe_loss(report), first_screen::relevant_loss(report)) {
            (None, _) => Self::Nothing,
            (Some(loss), None) => Self::Irrelevant(loss),
            (Some(_), Some(loss)) => Self::Relevant(loss),
        }
    }
}

/// Whether the target still has threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// Some thread of the target lives.
    Alive,
    /// No thread of the target has lived to the window's end.
    Ended,
}

/// The beginning of the time that figures are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Figures of the last stretch alone.
    Window,
    /// Also figures since the start, up to this very moment.
    Start,
}

/// Whether requests are looked for. That walks the time of each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSearch {
    /// Nobody looks at them.
    Skip,
    /// They are on screen.
    Find,
}

/// What is wanted of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// For what time figures are wanted.
    pub since: Since,
    /// Whether requests are.
    pub requests: RequestSearch,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { since: Since::Window, requests: RequestSearch::Skip }
    }
}

/// Why a recording can't be analysed.
#[derive(Debug, Error)]
pub enum AnalysisError {
    /// The recording exceeds the limit of memory.
    #[error(
        "the last stretch takes more than {0} bytes of memory: use a shorter --window, or raise --max-memory"
    )]
    TooLarge(usize),
    /// Something else is wrong with what was recorded.
    #[error("what was recorded can't be read: {0}")]
    Unreadable(ReadError),
}

/// Analyses stretches that come one after another, and keeps the sums since the start.
#[derive(Clone, Debug)]
pub struct TopAnalysis {
    max_memory: usize,
    /// A stretch that is this long is summed.
    sum_after: Nanos,
    limits: ChainLimits,
    totals: Arc<Totals>,
}

impl TopAnalysis {
    /// Creates an analysis for windows of at least `window`, each of which may take `max_memory`
    /// bytes.
    #[must_use]
    pub fn new(window: Nanos, max_memory: usize) -> Self {
        let sum_after = Nanos(window.0 / 2);
        Self { max_memory, sum_after, limits: ChainLimits::default(), totals: Arc::default() }
    }

    /// Analyses the window of a recording.
    ///
    /// # Errors
    ///
    /// If it can't be read. The next one can all the same.
    pub fn analyse(&mut self, bytes: Vec<u8>, wanted: Wanted) -> Result<TopData, AnalysisError> {
        let mut recording =
            stream::read(&bytes[..], self.max_memory).map_err(|error| match error {
                ReadError::TooLarge { limit, .. } => AnalysisError::TooLarge(limit),
                error => AnalysisError::Unreadable(error),
            })?;
        let (header, window, requests) = self.analyse_window(&recording, wanted.requests);
        let totals = self.totals(&mut recording, wanted.since);
        Ok(TopData { header, window, totals, requests, bytes: bytes.into() })
    }

    fn analyse_window(
        &self,
        recording: &Recording,
        requests: RequestSearch,
    ) -> (Header, Figures, Option<Requests>) {
        let timeline = build_timeline(recording);
        let blame = Blame::new(recording, &timeline, self.limits);
        let report = Report::new(&blame, &Filter::default());
        let requests = match requests {
            RequestSearch::Skip => None,
            RequestSearch::Find => Some(RequestAnalysis::find(&blame).into_summary()),
        };
        let recorded = recording.meta.window;
        let mut target = timeline.threads.iter().filter(|thread| thread.in_target);
        let header = Header {
            target: match first_screen::target_program(&report) {
                Some(program) => format!("{} {program}", text::terminal(&report.meta.target)),
                None => text::terminal(&report.meta.target),
            },
            findings: ScreenFindings::new(&report),
            own_cpu: report.meta.own_cpu_ns,
            loss: WindowLoss::new(&report),
            warnings: report.warnings(),
            // Before anything is kept, nobody is known to have ended.
            target_state: if recorded.length() > Nanos(0)
                && target.all(|thread| thread.until < recorded.end)
            {
                TargetState::Ended
            } else {
                TargetState::Alive
            },
        };
        (header, Figures::from_report(&report), requests)
    }

    /// Narrows the recording to the stretch that has not been summed yet.
    fn totals(&mut self, recording: &mut Recording, since: Since) -> Arc<Totals> {
        let window = &mut recording.meta.window;
        Arc::make_mut(&mut self.totals).begin(window.start);
        let start = self.totals.next_start(window.start);
        let is_due = window.end.since(start) >= self.sum_after;
        if !is_due && since == Since::Window {
            return Arc::clone(&self.totals);
        }
        (window.start, window.end) = (start, window.end.max(start));
        let end = window.end;
        let timeline = build_timeline(recording);
        let blame = Blame::new(recording, &timeline, self.limits);
        let report = Report::new(&blame, &Filter::default());
        let mut totals = (*self.totals).clone();
        totals.append(start, end, Figures::from_report(&report), completeness(&report.loss));
        let totals = Arc::new(totals);
        if is_due {
            self.totals = Arc::clone(&totals);
        }
        totals
    }
}

/// Builds the timeline. The profiler's own processes are not among those that are ranked; what they
/// cost is in the header.
fn build_timeline(recording: &Recording) -> Timeline {
    let mut timeline = Timeline::build(recording);
    timeline.remove_from_target(&own_processes(recording));
    timeline
}

fn completeness(loss: &LossNote) -> Completeness {
    let lost = loss.records + loss.stacks + loss.undecodable + loss.over_memory + loss.gaps;
    if lost == 0 { Completeness::Complete } else { Completeness::Lossy }
}

#[cfg(test)]
mod tests {
    use offwake_recording::{Window, units::Timestamp};

    use super::*;

    #[test]
    fn a_target_has_not_ended_before_anything_was_kept_of_it() {
        let target_state = |window| {
            let mut recording = Recording::default();
            recording.meta.window = window;
            let analysis = TopAnalysis::new(Nanos(0), 1 << 20);
            analysis.analyse_window(&recording, RequestSearch::Skip).0.target_state
        };
        let start = Timestamp(1_000_000_000);
        assert_eq!(target_state(Window { start, end: start }), TargetState::Alive);
        let end = Timestamp(2_000_000_000);
        assert_eq!(target_state(Window { start, end }), TargetState::Ended);
    }
}
