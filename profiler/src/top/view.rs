//! The state of the live view, and how keys change it.

use crate::report::ThreadName;

use super::{
    chain,
    order::{AccountOrder, BlockingOrder, Sorting, WaitOrder},
    selection::{Selection, Step},
    tables::{Tables, Whose},
};
use offwake_analysis::top::{Culprit, Figures, Picture, Since, WaitKey};

/// Characters that a filter can have.
const LONGEST_FILTER: usize = 64;

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Key {
    Char(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Tab,
    BackTab,
    Backspace,
    Escape,
    /// Ctrl-C.
    Interrupt,
}

/// What the caller has to do after a key, apart from drawing again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Do nothing more.
    Nothing,
    /// Write the recording that is on screen into a file.
    Save,
    /// Leave the view.
    Quit,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    /// Threads or processes, and their ledgers.
    Accounts,
    /// The worst waits.
    Waits,
    /// Who blocks whom.
    Blocking,
}

/// The time that figures are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The last stretch alone.
    Window,
    /// All time since the start.
    Totals,
}

/// Whether ledgers are those of threads or of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    Threads,
    Processes,
}

/// Whether waits that are idle by design are in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleRows {
    Shown,
    Hidden,
}

/// Whether the screen follows new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Live,
    Paused,
}

/// What keys do at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Keys move through the tables.
    Tables,
    /// Keys write a filter; Escape brings back the one before.
    Filtering { before: String },
    /// Keys scroll through the description of a wait.
    Chain { wait: Box<WaitKey>, scrolled: usize },
    /// The help is on screen.
    Help,
}

/// How each table is sorted.
#[derive(Clone, Debug)]
pub(super) struct Sortings {
    pub(super) accounts: Sorting<AccountOrder>,
    pub(super) waits: Sorting<WaitOrder>,
    pub(super) blocking: Sorting<BlockingOrder>,
}

/// What is selected in each table.
#[derive(Clone, Debug, Default)]
pub(super) struct Selected {
    pub(super) account: Selection<Whose>,
    pub(super) wait: Selection<WaitKey>,
    pub(super) blocking: Selection<(ThreadName, Culprit)>,
}

/// The state of the live view.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) pane: Pane,
    pub(super) mode: Mode,
    pub(super) sorting: Sortings,
    pub(super) selected: Selected,
    pub(super) flow: Flow,
    span: Span,
    grouping: Grouping,
    idle: IdleRows,
    filter: String,
    message: Option<String>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            pane: Pane::Waits,
            mode: Mode::Tables,
            sorting: Sortings {
                accounts: Sorting::by(AccountOrder::Busy),
                waits: Sorting::by(WaitOrder::Pressing),
                blocking: Sorting::by(BlockingOrder::Pressing),
            },
            selected: Selected::default(),
            flow: Flow::Live,
            span: Span::Window,
            grouping: Grouping::Threads,
            idle: IdleRows::Shown,
            filter: String::new(),
            message: None,
        }
    }
}

impl View {
    /// Returns whether new data is to replace what is on screen.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.flow == Flow::Live
    }

    /// Returns the beginning of the time that figures are needed for.
    #[must_use]
    pub fn since(&self) -> Since {
        match self.span {
            Span::Window => Since::Window,
            Span::Totals => Since::Start,
        }
    }

    /// Returns the time that the figures on screen are from.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }

    /// Shows a message until the next key.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    pub(super) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn grouping(&self) -> Grouping {
        self.grouping
    }

    pub(super) fn idle_rows(&self) -> IdleRows {
        self.idle
    }

    /// Returns the figures that are shown of the data.
    pub(super) fn figures<'p>(&self, picture: &'p Picture) -> &'p Figures {
        match self.span {
            Span::Window => &picture.window,
            Span::Totals => &picture.totals.figures,
        }
    }

    /// Handles a key that was pressed while this data was on screen, if there was any yet.
    pub fn press(&mut self, key: Key, picture: Option<&Picture>) -> Deed {
        self.message = None;
        if key == Key::Interrupt {
            return Deed::Quit;
        }
        match &mut self.mode {
            Mode::Filtering { before } => {
                let before = std::mem::take(before);
                self.write_filter(key, before);
                Deed::Nothing
            }
            Mode::Help => {
                self.mode = Mode::Tables;
                if key == Key::Char('q') { Deed::Quit } else { Deed::Nothing }
            }
            Mode::Chain { .. } => self.press_in_chain(key, picture),
            Mode::Tables => self.press_in_tables(key, picture),
        }
    }

    fn write_filter(&mut self, key: Key, before: String) {
        match key {
            Key::Enter => return self.mode = Mode::Tables,
            Key::Escape => {
                self.filter = before;
                return self.mode = Mode::Tables;
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(c) if !c.is_control() && self.filter.chars().count() < LONGEST_FILTER => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.mode = Mode::Filtering { before };
    }

    fn press_in_chain(&mut self, key: Key, picture: Option<&Picture>) -> Deed {
        if matches!(key, Key::Escape | Key::Backspace | Key::Left | Key::Enter) {
            self.mode = Mode::Tables;
            return Deed::Nothing;
        }
        let Some(step) = Step::of(key) else { return self.press_anywhere(key) };
        let figures = picture.map(|picture| self.figures(picture));
        let length = match (&self.mode, figures) {
            (Mode::Chain { wait, .. }, Some(figures)) => {
                figures.wait(wait).map_or(0, |(key, waited)| chain::lines(key, waited).len())
            }
            _ => 0,
        };
        if let Mode::Chain { scrolled, .. } = &mut self.mode {
            *scrolled = step.from(*scrolled, length);
        }
        Deed::Nothing
    }

    fn press_in_tables(&mut self, key: Key, picture: Option<&Picture>) -> Deed {
        match key {
            Key::Tab | Key::Right => self.pane = self.pane.next(),
            Key::BackTab | Key::Left => self.pane = self.pane.next().next(),
            Key::Enter => {
                if let Some(picture) = picture {
                    self.descend(picture);
                }
            }
            Key::Escape if !self.filter.is_empty() => self.filter.clear(),
            Key::Escape => return Deed::Quit,
            key => match (Step::of(key), picture) {
                (Some(step), Some(picture)) => self.go(step, picture),
                (Some(_), None) => {}
                (None, _) => return self.press_anywhere(key),
            },
        }
        Deed::Nothing
    }

    /// Keys that mean the same in tables and in a chain.
    fn press_anywhere(&mut self, key: Key) -> Deed {
        match key {
            Key::Char('q') => return Deed::Quit,
            Key::Char('s') => return Deed::Save,
            Key::Char('h' | '?') => self.mode = Mode::Help,
            Key::Char('/') => {
                let before = std::mem::take(&mut self.filter);
                self.mode = Mode::Filtering { before };
            }
            Key::Char('p' | ' ') => {
                self.flow = match self.flow {
                    Flow::Live => Flow::Paused,
                    Flow::Paused => Flow::Live,
                };
            }
            Key::Char('w') => {
                self.span = match self.span {
                    Span::Window => Span::Totals,
                    Span::Totals => Span::Window,
                };
            }
            Key::Char('t') => {
                self.grouping = match self.grouping {
                    Grouping::Threads => Grouping::Processes,
                    Grouping::Processes => Grouping::Threads,
                };
            }
            Key::Char('i') => {
                self.idle = match self.idle {
                    IdleRows::Shown => IdleRows::Hidden,
                    IdleRows::Hidden => IdleRows::Shown,
                };
            }
            Key::Char('o') => match self.pane {
                Pane::Accounts => self.sorting.accounts = self.sorting.accounts.next(),
                Pane::Waits => self.sorting.waits = self.sorting.waits.next(),
                Pane::Blocking => self.sorting.blocking = self.sorting.blocking.next(),
            },
            Key::Char('r') => match self.pane {
                Pane::Accounts => self.sorting.accounts = self.sorting.accounts.reversed(),
                Pane::Waits => self.sorting.waits = self.sorting.waits.reversed(),
                Pane::Blocking => self.sorting.blocking = self.sorting.blocking.reversed(),
            },
            _ => {}
        }
        Deed::Nothing
    }

    fn go(&mut self, step: Step, picture: &Picture) {
        let tables = Tables::new(self.figures(picture), self);
        match self.pane {
            Pane::Accounts => {
                let keys: Vec<_> = tables.accounts.iter().map(|row| &row.key).collect();
                self.selected.account.go(&keys, step);
            }
            Pane::Waits => {
                let keys: Vec<_> = tables.waits.iter().map(|row| row.key).collect();
                self.selected.wait.go(&keys, step);
            }
            Pane::Blocking => {
                let keys: Vec<_> = tables.blocking.iter().map(|row| row.key).collect();
                self.selected.blocking.go(&keys, step);
            }
        }
    }

    /// Opens the selected wait; from another table, shows the waits of the selected row.
    fn descend(&mut self, picture: &Picture) {
        let tables = Tables::new(self.figures(picture), self);
        let filter = match self.pane {
            Pane::Waits => {
                let place = self.selected.wait.place(tables.waits.iter().map(|row| row.key));
                if let Some(row) = tables.waits.get(place) {
                    let wait = row.key.clone();
                    self.selected.wait = Selection::of(place, wait.clone());
                    self.mode = Mode::Chain { wait: Box::new(wait), scrolled: 0 };
                }
                return;
            }
            Pane::Accounts => {
                let keys = tables.accounts.iter().map(|row| &row.key);
                let row = tables.accounts.get(self.selected.account.place(keys));
                row.map(|row| match row.key {
                    // Its threads bear other numbers, and may bear other names.
                    Whose::Process(_) => None,
                    Whose::Thread(_) => Some(row.name.clone()),
                })
            }
            Pane::Blocking => {
                let keys = tables.blocking.iter().map(|row| row.key);
                let row = tables.blocking.get(self.selected.blocking.place(keys));
                row.map(|row| Some(format!("{} {}", row.waiter, row.culprit)))
            }
        };
        match filter {
            Some(Some(filter)) => {
                self.filter = filter.chars().take(LONGEST_FILTER).collect();
                self.selected.wait = Selection::default();
                self.pane = Pane::Waits;
            }
            Some(None) => {
                self.say("a process has no waits of its own: t shows its threads".to_owned())
            }
            None => {}
        }
    }
}

impl Pane {
    fn next(self) -> Self {
        match self {
            Self::Accounts => Self::Waits,
            Self::Waits => Self::Blocking,
            Self::Blocking => Self::Accounts,
        }
    }
}
