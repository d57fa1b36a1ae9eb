//! The state of the live view, and how keys change it.

use offwake_analysis::report::ThreadName;
use offwake_analysis::top::{Blocker, Figures, RequestSearch, Since, TopData, WaitKey, Wanted};

use super::{
    chain,
    order::{AccountOrder, BlockingOrder, Sorting, WaitOrder},
    selection::{Selection, Step},
    tables::{AccountId, Tables},
};

/// Characters that a filter can have.
const MAX_FILTER_CHARS: usize = 64;

/// On a screen of so many columns requests take the most lines. Wider ones scroll no further than to their last line.
const NARROWEST: usize = 40;

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
pub enum KeyAction {
    /// Do nothing more.
    Nothing,
    /// Write the recording that is on screen into a file.
    Save,
    /// Leave the view.
    Quit,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopTable {
    /// Threads or processes, and their ledgers.
    Accounts,
    /// The worst waits.
    Waits,
    /// Who waits for whom.
    Blocking,
}

/// The time that figures are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
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
pub(super) enum UpdateMode {
    Live,
    Paused,
}

/// What keys do at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InputMode {
    /// Keys move through the tables.
    Tables,
    /// Keys write a filter; Escape brings back the one before.
    Filtering { before: String },
    /// Keys scroll through the description of a wait.
    Chain { wait: Box<WaitKey>, scrolled: usize },
    /// Keys scroll through the requests.
    Requests { scrolled: usize },
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
    pub(super) account: Selection<AccountId>,
    pub(super) wait: Selection<WaitKey>,
    pub(super) blocking: Selection<(ThreadName, Blocker)>,
}

/// The state of the live view.
#[derive(Clone, Debug)]
pub struct ViewState {
    pub(super) focused: TopTable,
    pub(super) input: InputMode,
    pub(super) sorting: Sortings,
    pub(super) selected: Selected,
    pub(super) updates: UpdateMode,
    period: Period,
    grouping: Grouping,
    idle: IdleRows,
    filter: String,
    message: Option<String>,
}

impl Default for ViewState {
    fn default() -> Self {
        Self {
            focused: TopTable::Waits,
            input: InputMode::Tables,
            sorting: Sortings {
                accounts: Sorting::by(AccountOrder::Busy),
                waits: Sorting::by(WaitOrder::Busy),
                blocking: Sorting::by(BlockingOrder::Busy),
            },
            selected: Selected::default(),
            updates: UpdateMode::Live,
            period: Period::Window,
            grouping: Grouping::Threads,
            idle: IdleRows::Shown,
            filter: String::new(),
            message: None,
        }
    }
}

impl ViewState {
    /// Returns whether new data is to replace what is on screen.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.updates == UpdateMode::Live
    }

    /// Returns what is needed for the screen.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        Wanted {
            since: match self.period {
                Period::Window => Since::Window,
                Period::Totals => Since::Start,
            },
            requests: match self.input {
                InputMode::Requests { .. } => RequestSearch::Find,
                _ => RequestSearch::Skip,
            },
        }
    }

    /// Returns the time that the figures on screen are from.
    #[must_use]
    pub fn period(&self) -> Period {
        self.period
    }

    /// Shows a message until the next key.
    pub fn show_message(&mut self, message: String) {
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
    pub(super) fn figures<'d>(&self, data: &'d TopData) -> &'d Figures {
        match self.period {
            Period::Window => &data.window,
            Period::Totals => &data.totals.figures,
        }
    }

    /// Handles a key that was pressed while this data was on screen, if there was any yet.
    pub fn handle_key(&mut self, key: Key, data: Option<&TopData>) -> KeyAction {
        self.message = None;
        if key == Key::Interrupt {
            return KeyAction::Quit;
        }
        match &mut self.input {
            InputMode::Filtering { before } => {
                let before = std::mem::take(before);
                self.handle_key_in_filter(key, before);
                KeyAction::Nothing
            }
            InputMode::Help => {
                self.input = InputMode::Tables;
                if key == Key::Char('q') { KeyAction::Quit } else { KeyAction::Nothing }
            }
            InputMode::Chain { .. } => self.handle_key_in_chain(key, data),
            InputMode::Requests { .. } => self.handle_key_in_requests(key, data),
            InputMode::Tables => self.handle_key_in_tables(key, data),
        }
    }

    fn handle_key_in_filter(&mut self, key: Key, before: String) {
        match key {
            Key::Enter => return self.input = InputMode::Tables,
            Key::Escape => {
                self.filter = before;
                return self.input = InputMode::Tables;
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(c) if !c.is_control() && self.filter.chars().count() < MAX_FILTER_CHARS => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.input = InputMode::Filtering { before };
    }

    fn handle_key_in_chain(&mut self, key: Key, data: Option<&TopData>) -> KeyAction {
        if matches!(key, Key::Escape | Key::Backspace | Key::Left | Key::Enter) {
            self.input = InputMode::Tables;
            return KeyAction::Nothing;
        }
        let Some(step) = Step::from_key(key) else { return self.handle_common_key(key) };
        let figures = data.map(|data| self.figures(data));
        let length = match (&self.input, figures) {
            (InputMode::Chain { wait, .. }, Some(figures)) => {
                figures.wait(wait).map_or(0, |(key, waited)| chain::chain_lines(key, waited).len())
            }
            _ => 0,
        };
        if let InputMode::Chain { scrolled, .. } = &mut self.input {
            *scrolled = step.apply_to(*scrolled, length);
        }
        KeyAction::Nothing
    }

    fn handle_key_in_requests(&mut self, key: Key, data: Option<&TopData>) -> KeyAction {
        if matches!(key, Key::Escape | Key::Backspace | Key::Left | Key::Char('R')) {
            self.input = InputMode::Tables;
            return KeyAction::Nothing;
        }
        let Some(step) = Step::from_key(key) else {
            return match key {
                // These are of tables.
                Key::Char('/' | 'w' | 't' | 'i' | 'o' | 'r') => KeyAction::Nothing,
                key => self.handle_common_key(key),
            };
        };
        // A narrower screen has more lines: the last ones are in reach on any.
        let requests = data.and_then(|data| data.requests.as_ref());
        let length = requests.map_or(0, |requests| requests.text_lines(NARROWEST).len());
        if let InputMode::Requests { scrolled } = &mut self.input {
            *scrolled = step.apply_to(*scrolled, length);
        }
        KeyAction::Nothing
    }

    fn handle_key_in_tables(&mut self, key: Key, data: Option<&TopData>) -> KeyAction {
        match key {
            Key::Tab | Key::Right => self.focused = self.focused.next(),
            Key::BackTab | Key::Left => self.focused = self.focused.next().next(),
            Key::Enter => {
                if let Some(data) = data {
                    self.open_selected(data);
                }
            }
            Key::Escape if !self.filter.is_empty() => self.filter.clear(),
            Key::Escape => return KeyAction::Quit,
            key => match (Step::from_key(key), data) {
                (Some(step), Some(data)) => self.move_selection(step, data),
                (Some(_), None) => {}
                (None, _) => return self.handle_common_key(key),
            },
        }
        KeyAction::Nothing
    }

    /// Keys that mean the same in tables and in a chain.
    fn handle_common_key(&mut self, key: Key) -> KeyAction {
        match key {
            Key::Char('q') => return KeyAction::Quit,
            Key::Char('s') => return KeyAction::Save,
            Key::Char('h' | '?') => self.input = InputMode::Help,
            Key::Char('R') => self.input = InputMode::Requests { scrolled: 0 },
            Key::Char('/') => {
                let before = std::mem::take(&mut self.filter);
                self.input = InputMode::Filtering { before };
            }
            Key::Char('p' | ' ') => {
                self.updates = match self.updates {
                    UpdateMode::Live => UpdateMode::Paused,
                    UpdateMode::Paused => UpdateMode::Live,
                };
            }
            Key::Char('w') => {
                self.period = match self.period {
                    Period::Window => Period::Totals,
                    Period::Totals => Period::Window,
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
            Key::Char('o') => match self.focused {
                TopTable::Accounts => self.sorting.accounts = self.sorting.accounts.next_order(),
                TopTable::Waits => self.sorting.waits = self.sorting.waits.next_order(),
                TopTable::Blocking => self.sorting.blocking = self.sorting.blocking.next_order(),
            },
            Key::Char('r') => match self.focused {
                TopTable::Accounts => self.sorting.accounts = self.sorting.accounts.reversed(),
                TopTable::Waits => self.sorting.waits = self.sorting.waits.reversed(),
                TopTable::Blocking => self.sorting.blocking = self.sorting.blocking.reversed(),
            },
            _ => {}
        }
        KeyAction::Nothing
    }

    fn move_selection(&mut self, step: Step, data: &TopData) {
        let tables = Tables::new(self.figures(data), self);
        match self.focused {
            TopTable::Accounts => {
                let keys: Vec<_> = tables.accounts.iter().map(|row| &row.key).collect();
                self.selected.account.move_by(&keys, step);
            }
            TopTable::Waits => {
                let keys: Vec<_> = tables.waits.iter().map(|row| row.key).collect();
                self.selected.wait.move_by(&keys, step);
            }
            TopTable::Blocking => {
                let keys: Vec<_> = tables.blocking.iter().map(|row| row.key).collect();
                self.selected.blocking.move_by(&keys, step);
            }
        }
    }

    /// Opens the selected wait; from another table, shows the waits of the selected row.
    fn open_selected(&mut self, data: &TopData) {
        let tables = Tables::new(self.figures(data), self);
        let filter = match self.focused {
            TopTable::Waits => {
                let place = self.selected.wait.index_among(tables.waits.iter().map(|row| row.key));
                if let Some(row) = tables.waits.get(place) {
                    let wait = row.key.clone();
                    self.selected.wait = Selection::at_row(place, wait.clone());
                    self.input = InputMode::Chain { wait: Box::new(wait), scrolled: 0 };
                }
                return;
            }
            TopTable::Accounts => {
                let keys = tables.accounts.iter().map(|row| &row.key);
                let row = tables.accounts.get(self.selected.account.index_among(keys));
                row.map(|row| match row.key {
                    // Its threads bear other numbers, and may bear other names.
                    AccountId::Process(_) => None,
                    AccountId::Thread(_) => Some(row.name.clone()),
                })
            }
            TopTable::Blocking => {
                let keys = tables.blocking.iter().map(|row| row.key);
                let row = tables.blocking.get(self.selected.blocking.index_among(keys));
                row.map(|row| Some(format!("{} {}", row.waiter, row.blocker)))
            }
        };
        match filter {
            Some(Some(filter)) => {
                self.filter = filter.chars().take(MAX_FILTER_CHARS).collect();
                self.selected.wait = Selection::default();
                self.focused = TopTable::Waits;
            }
            Some(None) => self
                .show_message("a process has no waits of its own: t shows its threads".to_owned()),
            None => {}
        }
    }
}

impl TopTable {
    fn next(self) -> Self {
        match self {
            Self::Accounts => Self::Waits,
            Self::Waits => Self::Blocking,
            Self::Blocking => Self::Accounts,
        }
    }
}
