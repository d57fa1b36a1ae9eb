//! Draws the screen.

use offwake_analysis::top::{Figures, TopData, WaitKey};
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
    view_state::{Grouping, InputMode, TopTable, ViewState},
};

/// From this size on a chain has a place of its own, and two tables stand side by side.
const LARGE: (u16, u16) = (120, 40);
/// From this width on tables have all their columns.
const WIDE: u16 = 110;
/// Where there is less room, the table that keys go to is there alone.
const HEIGHT_FOR_ALL_TABLES: u16 = 9;

const HELP: &[&str] = &[
    "up down j k PgUp PgDn Home End  select a row; it is followed where it goes",
    "Tab left right   next table",
    "Enter            into a wait: its time, hop by hop, with every stack;",
    "                 from another table: the waits of that row",
    "Esc              back; then the filter goes; then top ends",
    "o  r             sort by something else; the other way round",
    "/                filter all tables: names, numbers, causes",
    "i                waits that are idle by design: shown or not",
    "t                ledgers of threads, or of processes",
    "R                requests: how long they took, and what the slow ones have more",
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

/// Draws everything, or a notice if there is no data yet.
pub fn draw(frame: &mut Frame<'_>, view: &ViewState, data: Option<&TopData>, paint: ColourMode) {
    let screen = Screen { view, paint };
    let lines = match data {
        Some(data) => screen.head_lines(frame.area(), data),
        None => vec![Line::from("looking at everybody…")],
    };
    let height = Constraint::Length(u16::try_from(lines.len()).unwrap_or(u16::MAX));
    let [head, body, foot] =
        Layout::vertical([height, Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    screen.draw_foot(frame, foot);
    screen.draw_head(frame, head, lines);
    let Some(data) = data else { return };
    let figures = view.figures(data);
    match &view.input {
        InputMode::Help => screen.draw_help(frame, body),
        InputMode::Requests { scrolled } => screen.draw_requests(frame, body, data, *scrolled),
        InputMode::Chain { wait, scrolled } if !is_large(frame.area()) => {
            screen.draw_chain(frame, body, figures, wait, *scrolled);
        }
        _ => screen.draw_tables(frame, body, figures),
    }
}

fn is_large(area: Rect) -> bool {
    area.width >= LARGE.0 && area.height >= LARGE.1
}

pub(super) struct Screen<'a> {
    pub(super) view: &'a ViewState,
    paint: ColourMode,
}

impl Screen<'_> {
    pub(super) fn piece(&self, role: TextRole, text: impl Into<String>) -> Piece<'static> {
        Piece::styled(text.into(), self.paint.style(role))
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
            (InputMode::Requests { .. }, None) => self.piece(
                TextRole::Faint,
                "requests of the last stretch  Esc back  up/down scroll  p pause  s save  q quit",
            ),
            _ => self.piece(
                TextRole::Faint,
                "h help  Tab table  Enter chain  R requests  / filter  o sort  p pause  s save  q",
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
        if area.height < HEIGHT_FOR_ALL_TABLES {
            match self.view.focused {
                TopTable::Accounts => self.draw_accounts(frame, area, &tables.accounts),
                TopTable::Waits => self.draw_waits(frame, area, &tables.waits, figures.length),
                TopTable::Blocking => {
                    self.draw_blocking(frame, area, &tables.blocking, figures.length);
                }
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
            (Constraint::Fill(4), "cause"),
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
                Cell::from(row.blame.clone()),
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
            (Constraint::Fill(1), "waits for"),
        ];
        let place = self.view.selected.blocking.index_among(rows.iter().map(|row| row.key));
        let table = TableArea {
            table: TopTable::Blocking,
            title: "who waits for whom",
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
                Cell::from(row.blocker.clone()),
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
        let lines = lines.into_iter().map(|line| (line.role, line.text));
        self.draw_lines(frame, area, lines.skip(scrolled));
    }

    fn draw_requests(&self, frame: &mut Frame<'_>, area: Rect, data: &TopData, scrolled: usize) {
        let lines = match &data.requests {
            Some(requests) => requests.text_lines(usize::from(area.width)),
            None if self.view.is_live() => {
                vec!["the next picture has the requests of the last stretch".to_owned()]
            }
            None => vec!["paused: p goes on, and the next picture has its requests".to_owned()],
        };
        let first = scrolled.min(lines.len().saturating_sub(1));
        let lines = lines.into_iter().map(|line| match line.starts_with("requests of ") {
            true => (TextRole::Title, line),
            false => (TextRole::Text, line),
        });
        self.draw_lines(frame, area, lines.skip(first));
    }

    /// Draws as many lines as there is room for.
    fn draw_lines(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        lines: impl Iterator<Item = (TextRole, String)>,
    ) {
        let lines = lines.take(usize::from(area.height));
        let lines = lines.map(|(role, text)| Line::from(self.piece(role, text)));
        frame.render_widget(Paragraph::new(Vec::from_iter(lines)), area);
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
