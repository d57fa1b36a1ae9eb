//! What holds the target up, as the first lines of a screen of any size.

use crate::{
    findings::Finding,
    report::{
        Report, first_screen,
        printed_lines::{self, DetailPlace, LineLayout, PrintedLine},
    },
    text,
};

/// The findings of the first screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScreenFindings {
    /// That the target had next to nothing to do, if so.
    idle: Option<String>,
    list: Vec<Finding>,
}

/// A line of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingScreenLine {
    /// What it says, in at most as many characters as were asked for.
    pub text: String,
    /// What it is of its finding.
    pub part: FindingPart,
}

/// What a line is of its finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingPart {
    /// Who waits, for how much of the time, and for what.
    Waiter,
    /// A hop between.
    Hop,
    /// The cause.
    Cause,
    /// It is of none: the target had next to nothing to do.
    Idle,
}

impl ScreenFindings {
    /// Takes the findings that every first screen has.
    pub(crate) fn new(report: &Report) -> Self {
        let (shown, _) = first_screen::split_findings(report);
        Self { idle: first_screen::mostly_idle(report), list: shown.into_iter().cloned().collect() }
    }

    /// Returns how many findings there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Lays them out in at most so many lines and columns. A finding that is there has its cause with it: hops are
    /// left out first, then findings from the last one on.
    #[must_use]
    pub fn lines(&self, width: usize, most: usize) -> Vec<FindingScreenLine> {
        let layout = LineLayout { width, detail: DetailPlace::RightEdge };
        let mut lines = Vec::new();
        for (n, finding) in self.list.iter().enumerate() {
            let left = most.saturating_sub(lines.len());
            // The first one leaves room for another.
            let wanted = match first_screen::most_lines(n, finding) {
                wanted if n == 0 => wanted.min(most.div_ceil(2)),
                wanted => wanted,
            };
            let printed = printed_lines::lines(n + 1, finding, layout);
            let mut printed = printed_lines::fit(printed, wanted.min(left));
            if printed.len() > wanted.min(left) {
                printed = printed_lines::brief_lines(n + 1, finding, layout, left);
            }
            if printed.len() > left {
                break;
            }
            lines.extend(printed.into_iter().map(|PrintedLine { line, text }| FindingScreenLine {
                text: text::cut_chars(&text, width),
                part: match (line.is_cause, line.depth) {
                    (true, 1..) => FindingPart::Cause,
                    (_, 0) => FindingPart::Waiter,
                    (false, _) => FindingPart::Hop,
                },
            }));
        }
        // That it was idle matters less than why it waited, where there is room for one of them.
        if let Some(idle) = self.idle.as_ref().filter(|_| lines.len() < most) {
            let text = text::cut_chars(idle, width);
            lines.insert(0, FindingScreenLine { text, part: FindingPart::Idle });
        }
        lines
    }
}
