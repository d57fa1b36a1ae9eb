//! Lines of text for a terminal, at most 100 columns wide, with the styles of the summary.

use std::io;

use anstyle::{AnsiColor, Style};
use offwake_recording::units::Nanos;

use crate::text;

/// The most columns of a line.
pub(super) const WIDTH: usize = 100;

/// The styles that emphasise what matters most.
#[derive(Clone, Copy, Default)]
pub(super) struct SummaryStyles {
    /// Titles, and the waits.
    pub(super) strong: Style,
    /// The lines that tell who woke the threads.
    pub(super) waker: Style,
    /// The lines about what is missing.
    pub(super) warning: Style,
}

impl SummaryStyles {
    /// Returns the styles of a terminal with colours.
    pub(super) fn terminal() -> Self {
        Self {
            strong: Style::new().bold(),
            waker: AnsiColor::Cyan.on_default().bold(),
            warning: AnsiColor::Yellow.on_default().bold(),
        }
    }
}

/// Writes a line without style.
pub(super) fn write_line(out: &mut dyn io::Write, text: &str) -> io::Result<()> {
    write_styled(out, Style::new(), text)
}

/// Writes a line, cut to what a terminal has room for.
pub(super) fn write_styled(out: &mut dyn io::Write, style: Style, text: &str) -> io::Result<()> {
    writeln!(out, "{style}{}{style:#}", text::cut_chars(text, WIDTH))
}

/// Returns a percentage such as `12.3%`, or `-` if the whole is 0.
pub(crate) fn percent(part: Nanos, of: Nanos) -> String {
    if of == Nanos(0) {
        return "-".to_owned();
    }
    format!("{:.1}%", part.0 as f64 * 100.0 / of.0 as f64)
}
