//! The rows that are on screen, filtered and sorted.

use std::cmp::{Ordering, Reverse};

use crate::{
    report::{Ledger, ThreadName, in_words, text},
    units::{Nanos, Tgid},
};

use super::{
    order::{AccountOrder, BlockingOrder, Direction, Sorting, WaitOrder},
    view::{Grouping, IdleRows, View},
    words,
};
use offwake_analysis::top::{Account, Blocking, Culprit, Figures, ThreadKey, WaitKey, Waited};

/// A process or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Process(Tgid),
    Thread(ThreadKey),
}

/// A row of the ledger.
pub(super) struct AccountRow<'a> {
    pub(super) key: Whose,
    pub(super) name: String,
    pub(super) ledger: &'a Ledger,
}

/// A row of the worst waits.
pub(super) struct WaitRow<'a> {
    pub(super) key: &'a WaitKey,
    pub(super) waited: &'a Waited,
    pub(super) thread: String,
    pub(super) on: String,
    pub(super) label: String,
    pub(super) blame: String,
}

/// A row of who blocks whom.
pub(super) struct BlockingRow<'a> {
    pub(super) key: &'a (ThreadName, Culprit),
    pub(super) blocking: Blocking,
    pub(super) waiter: String,
    pub(super) culprit: String,
}

/// Every table.
pub(super) struct Tables<'a> {
    pub(super) accounts: Vec<AccountRow<'a>>,
    pub(super) waits: Vec<WaitRow<'a>>,
    pub(super) blocking: Vec<BlockingRow<'a>>,
}

impl<'a> Tables<'a> {
    /// Selects the rows that a view shows of these figures.
    pub(super) fn new(figures: &'a Figures, view: &View) -> Self {
        let words = Words::new(view.filter());
        Self {
            accounts: accounts(figures, view, &words),
            waits: waits(figures, view, &words),
            blocking: blocking(figures, view, &words),
        }
    }
}

/// A filter: each of its words is in what it keeps, in capitals or not.
struct Words(Vec<String>);

impl Words {
    fn new(filter: &str) -> Self {
        Self(filter.split_whitespace().map(str::to_lowercase).collect())
    }

    fn keep(&self, texts: &[&str]) -> bool {
        self.0.is_empty() || {
            let text = texts.join(" ").to_lowercase();
            self.0.iter().all(|word| text.contains(word))
        }
    }
}

fn accounts<'a>(figures: &'a Figures, view: &View, words: &Words) -> Vec<AccountRow<'a>> {
    let row = |key, number: String, account: &'a Account| {
        let comm = text::terminal(&account.comm);
        let threads = match (key, account.threads) {
            (Whose::Process(_), many @ 2..) => format!(" ({many} threads)"),
            _ => String::new(),
        };
        let container = in_words::in_container(account.container.as_deref());
        let name = format!("{comm} {number}{container}{threads}");
        AccountRow { key, name, ledger: &account.ledger }
    };
    let mut rows: Vec<_> = match view.grouping() {
        Grouping::Processes => (figures.processes.iter())
            .map(|((tgid, _), account)| row(Whose::Process(*tgid), tgid.to_string(), account))
            .collect(),
        Grouping::Threads => (figures.threads.iter())
            .map(|(key, account)| row(Whose::Thread(*key), key.tid.to_string(), account))
            .collect(),
    };
    rows.retain(|row| words.keep(&[&row.name]));
    let Sorting { order, direction } = view.sorting.accounts;
    sort(&mut rows, direction, |a, b| match order {
        AccountOrder::Name => a.name.cmp(&b.name),
        _ => {
            let time = |row: &AccountRow<'_>| Reverse(account_time(row.ledger, order));
            time(a).cmp(&time(b))
        }
    });
    rows
}

fn account_time(ledger: &Ledger, order: AccountOrder) -> Nanos {
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

fn waits<'a>(figures: &'a Figures, view: &View, words: &Words) -> Vec<WaitRow<'a>> {
    let mut rows: Vec<_> = (figures.waits.iter())
        .filter(|(_, waited)| {
            view.idle_rows() == IdleRows::Shown || waited.pressing(figures.length) > Nanos(0)
        })
        .map(|(key, waited)| WaitRow {
            key,
            waited,
            thread: words::thread(&key.waiter),
            on: words::on(key),
            label: words::label(key.label.as_ref()),
            blame: words::blame(waited),
        })
        .filter(|row| words.keep(&[&row.thread, &row.on, &row.label, &row.blame]))
        .collect();
    let Sorting { order, direction } = view.sorting.waits;
    let pressing = |row: &WaitRow<'_>| {
        (Reverse(row.waited.pressing(figures.length)), Reverse(row.waited.blocked))
    };
    sort(&mut rows, direction, |a, b| match order {
        WaitOrder::Pressing => pressing(a).cmp(&pressing(b)),
        WaitOrder::Time => b.waited.blocked.cmp(&a.waited.blocked),
        WaitOrder::Longest => b.waited.longest.cmp(&a.waited.longest),
        WaitOrder::Count => b.waited.count.cmp(&a.waited.count),
        WaitOrder::Thread => a.thread.cmp(&b.thread),
        WaitOrder::Cause => a.on.cmp(&b.on),
        WaitOrder::Culprit => a.blame.cmp(&b.blame),
    });
    rows
}

fn blocking<'a>(figures: &'a Figures, view: &View, words: &Words) -> Vec<BlockingRow<'a>> {
    let mut rows: Vec<_> = (figures.blocking.iter())
        .filter(|(_, blocking)| {
            view.idle_rows() == IdleRows::Shown || blocking.time > blocking.idle
        })
        .map(|(key, &blocking)| BlockingRow {
            key,
            blocking,
            waiter: words::thread(&key.0),
            culprit: words::culprit(&key.1),
        })
        .filter(|row| words.keep(&[&row.waiter, &row.culprit]))
        .collect();
    let Sorting { order, direction } = view.sorting.blocking;
    let pressing = |row: &BlockingRow<'_>| {
        let Blocking { time, idle } = row.blocking;
        (Reverse(time - idle), Reverse(time))
    };
    sort(&mut rows, direction, |a, b| match order {
        BlockingOrder::Pressing => pressing(a).cmp(&pressing(b)),
        BlockingOrder::Time => b.blocking.time.cmp(&a.blocking.time),
        BlockingOrder::Waiter => a.waiter.cmp(&b.waiter),
        BlockingOrder::Culprit => a.culprit.cmp(&b.culprit),
    });
    rows
}

/// Sorts rows; equal ones stay in the order of their keys.
fn sort<T>(rows: &mut [T], direction: Direction, compare: impl Fn(&T, &T) -> Ordering) {
    rows.sort_by(|a, b| match direction {
        Direction::Usual => compare(a, b),
        Direction::Reversed => compare(a, b).reverse(),
    });
}
