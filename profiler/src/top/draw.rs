//! Draws the screen.

use offwake_analysis::{
    report::LedgerEntry,
    text,
    top::{Figures, TargetState, TopData, WaitKey},
};
use offwake_recording::units::Nanos;
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span as Piece},
    widgets::{Cell, Paragraph, Row, Table},
};

use super::{
    chain,
    describe::percent,
    style::{ColourMode, TextRole},
    tables::{AccountTableRow, BlockingTableRow, Tables, WaitTableRow},
    view_state::{Grouping, IdleRows, InputMode, Period, TopTable, UpdateMode, ViewState},
};

/// From this size on a chain has a place of its own, and two tables stand side by side.
const LARGE: (u16, u16) = (120, 40);
/// From this width on tables have all their columns.
const WIDE: u16 = 110;

const HELP: &[&str] = &[
    "up down j k PgUp PgDn Home End  select a row; it is followed where it goes",
    "Tab left right   next table",
    "Enter            into a wait: its time, hop by hop, with every stack;",
    "                 from another table: the waits of that row",
    "Esc              back; then the filter goes; then top ends",
    "o  r             sort by something else; the other way round",
    "/                filter all tables: names, numbers, causes, culprits",
    "i                waits that are idle by design: shown or not",
    "t                ledgers of threads, or of processes",
    "w                the last stretch, or sums since the start",
    "p space          pause; recording goes on",
    "s                save the stretch that is on screen as a recording",
    "q Ctrl-C         leave",
    "",
    "█ on-CPU         it ran",
    "▓ runnable       it waited for a CPU",
    "▒ attributed     another thread worked, or waited for a CPU",
    "░ external       a timer, a disk, the network or a device",
    "· unattributed   nothing tells; the wait's chain has the reason",
];

/// The most findings above the tables.
const MAX_FINDINGS: usize = 2;
/// Smaller screens have no room for findings: their tables would be empty.
const MIN_HEIGHT_FOR_FINDINGS: u16 = 20;

/// Draws everything, or a notice if there is no data yet.
pub fn draw(frame: &mut Frame<'_>, view: &ViewState, data: Option<&TopData>, paint: ColourMode) {
    let screen = Screen { view, paint };
    let findings = match data {
        Some(data) if frame.area().height >= MIN_HEIGHT_FOR_FINDINGS => {
            data.header.findings.len().min(MAX_FINDINGS)
        }
        _ => 0,
    };
    let head = Constraint::Length(4 + u16::try_from(findings).unwrap_or(0));
    let [head, body, foot] =
        Layout::vertical([head, Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    screen.draw_foot(frame, foot);
    let Some(data) = data else {
        frame.render_widget(Paragraph::new("looking at everybody…"), head);
        return;
    };
    screen.draw_head(frame, head, data);
    let figures = view.figures(data);
    match &view.input {
        InputMode::Help => screen.draw_help(frame, body),
        InputMode::Chain { wait, scrolled } if !is_large(frame.area()) => {
            screen.draw_chain(frame, body, figures, wait, *scrolled);
        }
        _ => screen.draw_tables(frame, body, figures),
    }
}

fn is_large(area: Rect) -> bool {
    area.width >= LARGE.0 && area.height >= LARGE.1
}

struct Screen<'a> {
    view: &'a ViewState,
    paint: ColourMode,
}

impl Screen<'_> {
    fn piece(&self, role: TextRole, text: impl Into<String>) -> Piece<'static> {
        Piece::styled(text.into(), self.paint.style(role))
    }

    fn draw_head(&self, frame: &mut Frame<'_>, area: Rect, data: &TopData) {
        let figures = self.view.figures(data);
        let header = &data.header;
        let span = match self.view.period() {
            Period::Window => format!("the last {}", figures.length),
            Period::Totals => format!("{} since the start", figures.length),
        };
        let mut first = vec![
            self.piece(TextRole::Title, format!("offwake top: {}", text::terminal(&header.target))),
            self.piece(TextRole::Text, format!(", {span}")),
        ];
        if header.target_state == TargetState::Ended {
            first.push(self.piece(TextRole::Loud, "  NO THREAD OF THE TARGET LIVES"));
        }
        if self.view.updates == UpdateMode::Paused {
            first.push(self.piece(TextRole::Loud, "  PAUSED"));
        }
        if self.view.idle_rows() == IdleRows::Hidden {
            first.push(self.piece(TextRole::Text, "  idle hidden"));
        }
        if !self.view.filter().is_empty() {
            first.push(self.piece(TextRole::Loud, format!("  filter: {}", self.view.filter())));
        }
        let own = percent(header.own_cpu, data.window.length);
        let mut second =
            vec![self.piece(TextRole::Text, format!("offwake itself: {own} of one CPU; "))];
        second.extend(self.loss(data));
        let ledger = figures.ledger();
        let mut lines = vec![
            Line::from(first),
            Line::from(second),
            self.bar(&ledger, area.width),
            self.legend(&ledger),
        ];
        for (n, finding) in header.findings.iter().take(MAX_FINDINGS).enumerate() {
            let role = if n == 0 { TextRole::Title } else { TextRole::Text };
            lines.push(Line::from(self.piece(role, finding.clone())));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn loss(&self, data: &TopData) -> Vec<Piece<'static>> {
        let mut pieces = Vec::new();
        match self.view.period() {
            Period::Window => pieces.push(match &data.header.loss {
                None => self.piece(TextRole::Text, "lost: nothing"),
                Some(loss) => self.piece(TextRole::Loud, loss.clone()),
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

    fn draw_foot(&self, frame: &mut Frame<'_>, area: Rect) {
        let line = match (&self.view.input, self.view.message()) {
            (_, Some(message)) => self.piece(TextRole::Loud, message),
            (InputMode::Filtering { .. }, None) => self.piece(
                TextRole::Loud,
                format!("filter: {}_  (Enter keeps it, Esc does not)", self.view.filter()),
            ),
            (InputMode::Help, None) => self.piece(TextRole::Faint, "any key goes back"),
            (InputMode::Chain { .. }, None) => self.piece(
                TextRole::Faint,
                "Esc back  up/down scroll  p pause  s save  h help  q quit",
            ),
            _ => self.piece(
                TextRole::Faint,
                "h help  Tab table  Enter descend  / filter  o sort  w span  p pause  s save  q",
            ),
        };
        frame.render_widget(Paragraph::new(line), area);
    }

    fn draw_help(&self, frame: &mut Frame<'_>, area: Rect) {
        let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn draw_tables(&self, frame: &mut Frame<'_>, area: Rect, figures: &Figures) {
        let tables = Tables::new(figures, self.view);
        if is_large(frame.area()) {
            let [upper, middle, lower] = Layout::vertical([
                Constraint::Percentage(30),
                Constraint::Percentage(30),
                Constraint::Percentage(40),
            ])
            .areas(area);
            let [left, _, right] = Layout::horizontal([
                Constraint::Fill(1),
                Constraint::Length(2),
                Constraint::Fill(1),
            ])
            .areas(upper);
            self.draw_accounts(frame, left, &tables.accounts);
            self.draw_blocking(frame, right, &tables.blocking, figures.length);
            self.draw_waits(frame, middle, &tables.waits, figures.length);
            let place = self.view.selected.wait.index_among(tables.waits.iter().map(|row| row.key));
            match (&self.view.input, tables.waits.get(place)) {
                (InputMode::Chain { wait, scrolled }, _) => {
                    self.draw_chain(frame, lower, figures, wait, *scrolled);
                }
                (_, Some(row)) => self.draw_chain(frame, lower, figures, row.key, 0),
                (_, None) => {}
            }
            return;
        }
        let weight = |table, base| {
            Constraint::Fill(if self.view.focused == table { base + 3 } else { base })
        };
        let [upper, middle, lower] = Layout::vertical([
            weight(TopTable::Accounts, 3),
            weight(TopTable::Waits, 4),
            weight(TopTable::Blocking, 3),
        ])
        .areas(area);
        self.draw_accounts(frame, upper, &tables.accounts);
        self.draw_waits(frame, middle, &tables.waits, figures.length);
        self.draw_blocking(frame, lower, &tables.blocking, figures.length);
    }

    fn draw_accounts(&self, frame: &mut Frame<'_>, area: Rect, rows: &[AccountTableRow<'_>]) {
        let what = match self.view.grouping() {
            Grouping::Threads => "threads",
            Grouping::Processes => "processes",
        };
        let columns: &[Column] = &[
            (Constraint::Fill(1), "name"),
            (Constraint::Length(8), "wall"),
            (Constraint::Length(6), "on-CPU"),
            (Constraint::Length(8), "runnable"),
            (Constraint::Length(10), "attributed"),
            (Constraint::Length(8), "external"),
            (Constraint::Length(12), "unattributed"),
        ];
        let place = self.view.selected.account.index_among(rows.iter().map(|row| &row.key));
        let table = TableArea {
            table: TopTable::Accounts,
            title: what,
            sorted: self.view.sorting.accounts.describe(),
            place,
        };
        self.draw_table(frame, area, &table, columns, rows, |row| {
            let ledger = row.ledger;
            let share =
                |part| Cell::from(Line::from(percent(part, ledger.wall_ns)).right_aligned());
            vec![
                Cell::from(row.name.clone()),
                Cell::from(Line::from(ledger.wall_ns.to_string()).right_aligned()),
                share(ledger.on_cpu_ns),
                share(ledger.runnable_ns),
                share(ledger.attributed_ns),
                share(ledger.external_ns),
                share(ledger.unattributed_ns),
            ]
        });
    }

    fn draw_waits(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        rows: &[WaitTableRow<'_>],
        length: Nanos,
    ) {
        let is_wide = area.width >= WIDE;
        let mut columns: Vec<Column> = vec![
            (Constraint::Length(8), "time"),
            (Constraint::Length(5), "share"),
            (Constraint::Length(5), "idle"),
            (Constraint::Length(20), "thread"),
            (Constraint::Fill(3), "waited on"),
            (Constraint::Fill(4), "<- culprit"),
        ];
        if is_wide {
            columns.insert(3, (Constraint::Length(7), "count"));
            columns.insert(4, (Constraint::Length(8), "longest"));
            columns.insert(7, (Constraint::Fill(3), "in"));
        }
        let place = self.view.selected.wait.index_among(rows.iter().map(|row| row.key));
        let table = TableArea {
            table: TopTable::Waits,
            title: "worst waits",
            sorted: self.view.sorting.waits.describe(),
            place,
        };
        self.draw_table(frame, area, &table, &columns, rows, |row| {
            let waited = row.waited;
            let idle = match waited.idle {
                Nanos(0) => String::new(),
                idle => percent(idle, waited.blocked),
            };
            let mut cells = vec![
                right_aligned(waited.blocked.to_string()),
                right_aligned(percent(waited.blocked, length)),
                right_aligned(idle),
                Cell::from(row.thread.clone()),
                Cell::from(row.on.clone()),
                Cell::from(format!("<- {}", row.blame)),
            ];
            if is_wide {
                cells.insert(3, right_aligned(waited.count.to_string()));
                cells.insert(4, right_aligned(waited.longest.to_string()));
                cells.insert(7, Cell::from(row.label.clone()));
            }
            cells
        });
    }

    fn draw_blocking(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        rows: &[BlockingTableRow<'_>],
        length: Nanos,
    ) {
        let columns: &[Column] = &[
            (Constraint::Length(8), "time"),
            (Constraint::Length(5), "share"),
            (Constraint::Length(5), "idle"),
            (Constraint::Fill(1), "waiter"),
            (Constraint::Fill(1), "<- culprit"),
        ];
        let place = self.view.selected.blocking.index_among(rows.iter().map(|row| row.key));
        let table = TableArea {
            table: TopTable::Blocking,
            title: "who blocks whom",
            sorted: self.view.sorting.blocking.describe(),
            place,
        };
        self.draw_table(frame, area, &table, columns, rows, |row| {
            let idle = match row.blocking.idle {
                Nanos(0) => String::new(),
                idle => percent(idle, row.blocking.time),
            };
            vec![
                right_aligned(row.blocking.time.to_string()),
                right_aligned(percent(row.blocking.time, length)),
                right_aligned(idle),
                Cell::from(row.waiter.clone()),
                Cell::from(format!("<- {}", row.culprit)),
            ]
        });
    }

    fn draw_table<R>(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        part: &TableArea<'_>,
        columns: &[Column],
        rows: &[R],
        cells: impl Fn(&R) -> Vec<Cell<'static>>,
    ) {
        let [top, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        let is_focused = self.view.focused == part.table && self.view.input == InputMode::Tables;
        let role = if is_focused { TextRole::FocusedTitle } else { TextRole::Title };
        let title = format!(" {} ({}) {} ", part.title, rows.len(), part.sorted);
        frame.render_widget(Paragraph::new(self.piece(role, title)), top);
        let shown = usize::from(body.height.saturating_sub(1));
        let first = part.place.saturating_add(1).saturating_sub(shown);
        let lines = rows.iter().enumerate().skip(first).take(shown).map(|(n, row)| {
            let line = Row::new(cells(row));
            if is_focused && n == part.place {
                line.style(self.paint.style(TextRole::Selected))
            } else {
                line
            }
        });
        let heads = columns.iter().map(|(width, name)| match width {
            Constraint::Length(_) if *name != "thread" => right_aligned((*name).to_owned()),
            _ => Cell::from(*name),
        });
        let table = Table::new(lines, columns.iter().map(|(width, _)| *width))
            .header(Row::new(heads).style(self.paint.style(TextRole::Columns)))
            .column_spacing(1);
        frame.render_widget(table, body);
    }

    fn draw_chain(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        figures: &Figures,
        wait: &WaitKey,
        scrolled: usize,
    ) {
        let lines = match figures.wait(wait) {
            Some((key, waited)) => chain::chain_lines(key, waited),
            None => vec![chain::ChainLine {
                role: TextRole::Text,
                text: "no such wait in this time; Esc goes back".to_owned(),
            }],
        };
        let shown = lines.into_iter().skip(scrolled).take(usize::from(area.height));
        let shown = shown.map(|line| Line::from(self.piece(line.role, line.text)));
        frame.render_widget(Paragraph::new(Vec::from_iter(shown)), area);
    }
}

/// A column's width and name.
type Column = (Constraint, &'static str);

/// What a table shows around its rows.
struct TableArea<'a> {
    table: TopTable,
    title: &'a str,
    sorted: String,
    place: usize,
}

fn right_aligned(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
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
