//! Draws what stands above the tables: what holds the target up, then how its time divides, and what all this costs.

use offwake_analysis::{
    report::LedgerEntry,
    text::cut_chars,
    top::{FindingPart, TargetState, TopData, WindowLoss},
};
use offwake_recording::units::Nanos;
use ratatui::{
    Frame,
    layout::Rect,
    text::{Line, Span as Piece},
    widgets::Paragraph,
};

use super::{
    describe::percent,
    draw::Screen,
    style::TextRole,
    view_state::{IdleRows, InputMode, Period, UpdateMode},
};

/// From this height on the whole target's ledger is drawn as a bar, and not only in figures.
const HEIGHT_FOR_BAR: u16 = 16;
/// What is left of the target's name on the narrowest screen, in characters: `pid 12…`.
const SHORTEST_TARGET: usize = 7;

impl Screen<'_> {
    /// Returns the lines above the tables, for a screen of this size.
    pub(super) fn head_lines(&self, screen: Rect, data: &TopData) -> Vec<Line<'static>> {
        let ledger = self.view.figures(data).ledger();
        let mut lines = vec![self.title(data, screen.width)];
        if self.view.input == InputMode::Help {
            return lines;
        }
        // Into a wait one goes to see its chain.
        let part = if matches!(self.view.input, InputMode::Chain { .. }) { 6 } else { 3 };
        let most = usize::from(screen.height.div_ceil(part));
        for line in data.header.findings.lines(screen.width.into(), most) {
            let role = match line.part {
                FindingPart::Waiter | FindingPart::Idle => TextRole::Title,
                FindingPart::Hop => TextRole::Text,
                FindingPart::Cause => TextRole::Cause,
            };
            lines.push(Line::from(self.piece(role, line.text)));
        }
        if screen.height >= HEIGHT_FOR_BAR {
            lines.push(self.bar(&ledger, screen.width));
        }
        lines.push(self.legend(&ledger));
        lines.push(self.cost_and_loss(data));
        lines
    }

    pub(super) fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>) {
        frame.render_widget(Paragraph::new(lines), area);
    }

    /// Returns the first line. Where it is too long the target's name is cut, and not what the keys
    /// have set: who does not see a filter takes the rows for all that there are.
    fn title(&self, data: &TopData, width: u16) -> Line<'static> {
        let figures = self.view.figures(data);
        let header = &data.header;
        let period = match self.view.period() {
            Period::Window => format!(", the last {}", figures.length),
            Period::Totals => format!(", {} since the start", figures.length),
        };
        let settings = Line::from(self.settings(header.target_state));
        let program = "offwake top: ";
        let room = usize::from(width)
            .saturating_sub(program.len() + period.chars().count() + settings.width())
            .max(SHORTEST_TARGET);
        let target = cut_chars(&header.target, room);
        let mut title = vec![
            self.piece(TextRole::Title, format!("{program}{target}")),
            self.piece(TextRole::Text, period),
        ];
        title.extend(settings);
        Line::from(title)
    }

    /// Returns what the keys have set, and whether the target has ended.
    fn settings(&self, target_state: TargetState) -> Vec<Piece<'static>> {
        let mut settings = Vec::new();
        if target_state == TargetState::Ended {
            settings.push(self.piece(TextRole::Loud, "  NO THREAD OF THE TARGET LIVES"));
        }
        if self.view.updates == UpdateMode::Paused {
            settings.push(self.piece(TextRole::Loud, "  PAUSED"));
        }
        if self.view.idle_rows() == IdleRows::Hidden {
            settings.push(self.piece(TextRole::Text, "  idle hidden"));
        }
        if !self.view.filter().is_empty() {
            settings.push(self.piece(TextRole::Loud, format!("  filter: {}", self.view.filter())));
        }
        settings
    }

    fn cost_and_loss(&self, data: &TopData) -> Line<'static> {
        let own = percent(data.header.own_cpu, data.window.length);
        let mut pieces =
            vec![self.piece(TextRole::Text, format!("offwake itself: {own} of one CPU; "))];
        pieces.extend(self.loss(data));
        Line::from(pieces)
    }

    fn loss(&self, data: &TopData) -> Vec<Piece<'static>> {
        let mut pieces = Vec::new();
        match self.view.period() {
            Period::Window => pieces.push(match &data.header.loss {
                WindowLoss::Nothing => self.piece(TextRole::Text, "lost: nothing"),
                WindowLoss::Irrelevant(loss) => {
                    self.piece(TextRole::Text, format!("no relevant loss ({loss})"))
                }
                WindowLoss::Relevant(loss) => {
                    self.piece(TextRole::Loud, format!("INCOMPLETE: {loss}"))
                }
            }),
            Period::Totals => {
                let totals = &data.totals;
                pieces.push(match totals.lossy_stretches {
                    0 => self.piece(TextRole::Text, "lost: nothing"),
                    lossy => {
                        let all = totals.stretches;
                        self.piece(
                            TextRole::Loud,
                            format!("LOST: something in {lossy} of {all} stretches"),
                        )
                    }
                });
                if totals.missed > Nanos(0) {
                    let missed = format!("; {} are in no sum", totals.missed);
                    pieces.push(self.piece(TextRole::Loud, missed));
                }
            }
        }
        for warning in &data.header.warnings {
            pieces.push(self.piece(TextRole::Loud, format!("; {warning}")));
        }
        pieces
    }

    fn bar(&self, ledger: &LedgerEntry, width: u16) -> Line<'static> {
        let lengths = ledger_parts(ledger).map(|(.., time)| time);
        let pieces = ledger_parts(ledger).into_iter().zip(share_cells(lengths, usize::from(width)));
        let pieces = pieces.map(|((role, mark, ..), cells)| self.piece(role, mark.repeat(cells)));
        Line::from_iter(pieces)
    }

    fn legend(&self, ledger: &LedgerEntry) -> Line<'static> {
        let mut pieces = Vec::new();
        for (role, mark, name, time) in ledger_parts(ledger) {
            pieces.push(self.piece(role, mark));
            pieces.push(
                self.piece(TextRole::Text, format!(" {name} {} ", percent(time, ledger.wall_ns))),
            );
        }
        if ledger.idle_ns > Nanos(0) {
            pieces.push(self.piece(
                TextRole::Faint,
                format!("(idle {})", percent(ledger.idle_ns, ledger.wall_ns)),
            ));
        }
        Line::from(pieces)
    }
}

/// Returns the parts of a ledger, which add up to its wall time.
fn ledger_parts(ledger: &LedgerEntry) -> [(TextRole, &'static str, &'static str, Nanos); 5] {
    [
        (TextRole::OnCpu, "█", "on-CPU", ledger.on_cpu_ns),
        (TextRole::Runnable, "▓", "runnable", ledger.runnable_ns),
        (TextRole::Attributed, "▒", "attributed", ledger.attributed_ns),
        (TextRole::External, "░", "external", ledger.external_ns),
        (TextRole::Unattributed, "·", "unattributed", ledger.unattributed_ns),
    ]
}

/// Shares `width` cells out so that all of them are used: each part ends at its rounded place.
fn share_cells<const N: usize>(parts: [Nanos; N], width: usize) -> [usize; N] {
    let all: u128 = parts.iter().map(|part| u128::from(part.0)).sum();
    let (mut passed, mut drawn) = (0_u128, 0_usize);
    parts.map(|part| {
        passed += u128::from(part.0);
        let end = match (passed * width as u128 + all / 2).checked_div(all) {
            Some(end) => usize::try_from(end).unwrap_or(width),
            None => 0,
        };
        let cells = end.saturating_sub(drawn);
        drawn = end;
        cells
    })
}

#[cfg(test)]
mod tests {
    use super::share_cells;
    use offwake_recording::units::Nanos;

    #[test]
    fn the_bar_is_as_wide_as_the_screen() {
        assert_eq!(share_cells([1, 1, 1].map(Nanos), 80).iter().sum::<usize>(), 80);
        assert_eq!(share_cells([u64::MAX; 5].map(Nanos), 7).iter().sum::<usize>(), 7);
        assert_eq!(share_cells([0, 0].map(Nanos), 80), [0, 0]);
        assert_eq!(share_cells([0, 5].map(Nanos), 4), [0, 4]);
    }
}
