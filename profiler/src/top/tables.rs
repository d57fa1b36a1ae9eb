//! The rows that are on screen, filtered and sorted.

use std::cmp::{Ordering, Reverse};

use offwake_analysis::{
    report::{LedgerEntry, ThreadName, describe::container_suffix},
    text,
    top::{Blocker, BlockingTime, Figures, ThreadFigures, ThreadKey, WaitFigures, WaitKey},
};
use offwake_recording::units::{Nanos, Tgid};

use super::{
    describe,
    order::{AccountOrder, BlockingOrder, SortDirection, Sorting, WaitOrder},
    view_state::{Grouping, IdleRows, ViewState},
};

/// A process or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountId {
    Process(Tgid),
    Thread(ThreadKey),
}

/// A row of the ledger.
pub(super) struct AccountTableRow<'a> {
    pub(super) key: AccountId,
    pub(super) name: String,
    pub(super) ledger: &'a LedgerEntry,
}

/// A row of the worst waits.
pub(super) struct WaitTableRow<'a> {
    pub(super) key: &'a WaitKey,
    pub(super) waited: &'a WaitFigures,
    pub(super) thread: String,
    pub(super) on: String,
    pub(super) label: String,
    pub(super) blame: String,
}

/// A row of who waits for whom.
pub(super) struct BlockingTableRow<'a> {
    pub(super) key: &'a (ThreadName, Blocker),
    pub(super) blocking: BlockingTime,
    pub(super) waiter: String,
    pub(super) blocker: String,
}

/// Every table.
pub(super) struct Tables<'a> {
    pub(super) accounts: Vec<AccountTableRow<'a>>,
    pub(super) waits: Vec<WaitTableRow<'a>>,
    pub(super) blocking: Vec<BlockingTableRow<'a>>,
}

impl<'a> Tables<'a> {
    /// Selects the rows that a view shows of these figures.
    pub(super) fn new(figures: &'a Figures, view: &ViewState) -> Self {
        let words = FilterWords::new(view.filter());
        Self {
            accounts: account_rows(figures, view, &words),
            waits: wait_rows(figures, view, &words),
            blocking: blocking_rows(figures, view, &words),
        }
    }
}

/// A filter: each of its words is in what it keeps, in capitals or not.
struct FilterWords(Vec<String>);

impl FilterWords {
    fn new(filter: &str) -> Self {
        Self(filter.split_whitespace().map(str::to_lowercase).collect())
    }

    fn matches(&self, texts: &[&str]) -> bool {
        self.0.is_empty() || {
            let text = texts.join(" ").to_lowercase();
            self.0.iter().all(|word| text.contains(word))
        }
    }
}

fn account_rows<'a>(
    figures: &'a Figures,
    view: &ViewState,
    words: &FilterWords,
) -> Vec<AccountTableRow<'a>> {
    let row = |key, number: String, account: &'a ThreadFigures| {
        let comm = text::terminal(&account.comm);
        let threads = match (key, account.threads) {
            (AccountId::Process(_), many @ 2..) => format!(" ({many} threads)"),
            _ => String::new(),
        };
        let container = container_suffix(account.container.as_deref());
        let name = format!("{comm} {number}{container}{threads}");
        AccountTableRow { key, name, ledger: &account.ledger }
    };
    let mut rows: Vec<_> = match view.grouping() {
        Grouping::Processes => (figures.processes.iter())
            .map(|((tgid, _), account)| row(AccountId::Process(*tgid), tgid.to_string(), account))
            .collect(),
        Grouping::Threads => (figures.threads.iter())
            .map(|(key, account)| row(AccountId::Thread(*key), key.tid.to_string(), account))
            .collect(),
    };
    rows.retain(|row| words.matches(&[&row.name]));
    let Sorting { order, direction } = view.sorting.accounts;
    sort(&mut rows, direction, |a, b| match order {
        AccountOrder::Name => a.name.cmp(&b.name),
        _ => {
            let time = |row: &AccountTableRow<'_>| Reverse(account_time(row.ledger, order));
            time(a).cmp(&time(b))
        }
    });
    rows
}

fn account_time(ledger: &LedgerEntry, order: AccountOrder) -> Nanos {
    match order {
        AccountOrder::OnCpu => ledger.on_cpu_ns,
        AccountOrder::Runnable => ledger.runnable_ns,
        AccountOrder::Attributed => ledger.attributed_ns,
        AccountOrder::External => ledger.external_ns,
        AccountOrder::Unattributed => ledger.unattributed_ns,
        AccountOrder::Busy | AccountOrder::Name => {
            let known = ledger.attributed_ns + ledger.external_ns;
            ledger.on_cpu_ns + ledger.runnable_ns + (known - ledger.idle_ns)
        }
    }
}

fn wait_rows<'a>(
    figures: &'a Figures,
    view: &ViewState,
    words: &FilterWords,
) -> Vec<WaitTableRow<'a>> {
    let mut rows: Vec<_> = (figures.waits.iter())
        .filter(|(_, waited)| {
            view.idle_rows() == IdleRows::Shown || waited.busy_time(figures.length) > Nanos(0)
        })
        .map(|(key, waited)| WaitTableRow {
            key,
            waited,
            thread: describe::thread(&key.waiter),
            on: describe::waited_on(key),
            label: describe::label(key.label.as_ref()),
            blame: describe::blame(waited),
        })
        .filter(|row| words.matches(&[&row.thread, &row.on, &row.label, &row.blame]))
        .collect();
    let Sorting { order, direction } = view.sorting.waits;
    let pressing = |row: &WaitTableRow<'_>| {
        (Reverse(row.waited.busy_time(figures.length)), Reverse(row.waited.blocked))
    };
    sort(&mut rows, direction, |a, b| match order {
        WaitOrder::Busy => pressing(a).cmp(&pressing(b)),
        WaitOrder::Time => b.waited.blocked.cmp(&a.waited.blocked),
        WaitOrder::Longest => b.waited.longest.cmp(&a.waited.longest),
        WaitOrder::Count => b.waited.count.cmp(&a.waited.count),
        WaitOrder::Thread => a.thread.cmp(&b.thread),
        WaitOrder::WaitedOn => a.on.cmp(&b.on),
        WaitOrder::Blocker => a.blame.cmp(&b.blame),
    });
    rows
}

fn blocking_rows<'a>(
    figures: &'a Figures,
    view: &ViewState,
    words: &FilterWords,
) -> Vec<BlockingTableRow<'a>> {
    let mut rows: Vec<_> = (figures.blocking.iter())
        .filter(|(_, blocking)| {
            view.idle_rows() == IdleRows::Shown || blocking.time > blocking.idle
        })
        .map(|(key, &blocking)| BlockingTableRow {
            key,
            blocking,
            waiter: describe::thread(&key.0),
            blocker: describe::blocker(&key.1),
        })
        .filter(|row| words.matches(&[&row.waiter, &row.blocker]))
        .collect();
    let Sorting { order, direction } = view.sorting.blocking;
    let pressing = |row: &BlockingTableRow<'_>| {
        let BlockingTime { time, idle } = row.blocking;
        (Reverse(time - idle), Reverse(time))
    };
    sort(&mut rows, direction, |a, b| match order {
        BlockingOrder::Busy => pressing(a).cmp(&pressing(b)),
        BlockingOrder::Time => b.blocking.time.cmp(&a.blocking.time),
        BlockingOrder::Waiter => a.waiter.cmp(&b.waiter),
        BlockingOrder::Blocker => a.blocker.cmp(&b.blocker),
    });
    rows
}

/// Sorts rows; equal ones stay in the order of their keys.
fn sort<T>(rows: &mut [T], direction: SortDirection, compare: impl Fn(&T, &T) -> Ordering) {
    rows.sort_by(|a, b| match direction {
        SortDirection::Usual => compare(a, b),
        SortDirection::Reversed => compare(a, b).reverse(),
    });
}
