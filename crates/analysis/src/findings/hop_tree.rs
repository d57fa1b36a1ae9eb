//! What the target's threads waited for and ran, with one box for each hop: what pictures are
//! drawn of.
//!
//! ```text
//! ├──────────────────────────────────────────┬─────────────┬─────────┤
//! │ postgres ×9 waits for a lock of another  │ postgres    │ smaller │  one for each finding,
//! ├─────────────────────────────────┬────────┤ runs on a   │ ones    │  the first one first
//! │ postgres waits for its client   │ …      │ CPU         │         │
//! ├─────────────────────────────────┤        │             │         │
//! │ python3 cron_tx.py sleeps       │        │             │         │  whom it waited for
//! ```

use std::{cmp::Reverse, ops::AddAssign};

use offwake_recording::units::Nanos;

use crate::blame::BlameClass;

use super::find::MIN_SHARE;

/// A finding that would be narrower than this part of the whole has no box of its own. What is no finding has
/// one if it is as wide as a finding is at least.
const MIN_FINDING: f64 = 0.002;

/// Time by what it went to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeByClass {
    /// In the order of [`BlameClass::ALL`].
    by_class: [Nanos; BlameClass::ALL.len()],
    /// Of [`BlameClass::Timer`], the time that was no sleep on purpose.
    timeouts: Nanos,
}

impl TimeByClass {
    /// Time that all went to one class.
    #[must_use]
    pub fn new(class: BlameClass, time: Nanos) -> Self {
        let mut by_class = Self::default();
        by_class.by_class[class as usize] = time;
        by_class
    }

    /// Time of threads that waited for something until a timeout, or until they asked for it anew.
    pub(super) fn until_timeout(time: Nanos) -> Self {
        Self { timeouts: time, ..Self::new(BlameClass::Timer, time) }
    }

    /// Returns the time of threads that waited for something until a timeout, or until they asked for it anew. It is
    /// a part of [`BlameClass::Timer`].
    #[must_use]
    pub fn timeouts(&self) -> Nanos {
        self.timeouts
    }

    /// Returns the time that went to a class.
    #[must_use]
    pub fn get(&self, class: BlameClass) -> Nanos {
        self.by_class[class as usize]
    }

    /// Returns the time of all classes.
    #[must_use]
    pub fn sum(&self) -> Nanos {
        self.by_class.iter().copied().sum()
    }
}

impl AddAssign for TimeByClass {
    fn add_assign(&mut self, other: Self) {
        self.by_class.iter_mut().zip(other.by_class).for_each(|(sum, more)| *sum += more);
        self.timeouts += other.timeouts;
    }
}

/// Threads of one program that did the same at one place of their chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopBox {
    /// The number of the finding that it begins, counted from 1.
    pub finding: Option<usize>,
    /// The threads: `postgres ×9`. Empty where they are those of the box above.
    pub who: String,
    /// What tells them best from others, for where there is no room for all of that: `cron_tx.py`.
    pub short_who: String,
    /// What they did: `waits for its client`.
    pub what: String,
    /// The function in which they slept or worked.
    pub function: Option<String>,
    /// What else is said of them, behind the function: `380 ms at a time while 5 threads wait`.
    pub addition: Option<String>,
    /// How often and how long: `169×, max 394 ms`. May be empty.
    pub detail: String,
    /// How many threads waited, or ran, whose time is added up here: those of the finding. 0 in a box of what is no
    /// finding.
    pub threads: u64,
    /// The time, by what it went to in the end.
    pub time: TimeByClass,
    /// Whom they waited for, the one with the most time first.
    pub children: Vec<HopBox>,
}

/// What the target's threads waited for and ran, with one box for each hop. Idle time is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HopTree {
    /// One for each finding, in their order, and one for what has none.
    pub boxes: Vec<HopBox>,
}

impl HopBox {
    /// Returns where the threads slept or worked, with what stands behind it.
    pub(crate) fn describe_place(&self) -> Option<String> {
        let function = self.function.as_ref().map(|name| format!("in {name}"));
        let parts: Vec<String> = function.into_iter().chain(self.addition.clone()).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Returns the box and those below it as parts of the time of so many threads.
    pub(super) fn of_threads(mut self, threads: u64) -> Self {
        self.threads = threads;
        let children = std::mem::take(&mut self.children);
        self.children = children.into_iter().map(|child| child.of_threads(threads)).collect();
        self
    }

    /// Puts the widest child first, and makes one of those that take less than `least` each.
    pub(super) fn merge_narrow_children(&mut self, least: Nanos) {
        self.children.sort_by_key(|child| Reverse(child.time.sum()));
        let first_narrow = self.children.partition_point(|child| child.time.sum() >= least);
        if self.children.len() - first_narrow < 2 {
            return;
        }
        let narrow = self.children.split_off(first_narrow);
        let what = format!("{} smaller ones", narrow.len());
        self.children.push(merge(narrow, what));
    }
}

impl HopTree {
    /// Makes the tree of the findings' boxes in their order; narrow ones become one at the end.
    pub(super) fn new(ranked: Vec<HopBox>) -> Self {
        let all: Nanos = ranked.iter().map(|hop| hop.time.sum()).sum();
        let is_wide = |hop: &HopBox| {
            let least = if hop.finding.is_some() { MIN_FINDING } else { MIN_SHARE };
            hop.time.sum().0 as f64 >= all.0 as f64 * least
        };
        let (mut boxes, narrow): (Vec<_>, Vec<_>) = ranked.into_iter().partition(is_wide);
        let what = match narrow.len() {
            1 => "a smaller one, not in the list".to_owned(),
            many => format!("{many} smaller ones, not in the list"),
        };
        if !narrow.is_empty() {
            boxes.push(merge(narrow, what));
        }
        boxes.retain(|hop| hop.time.sum() > Nanos(0));
        Self { boxes }
    }

    /// Returns the time of all boxes of the first row.
    #[must_use]
    pub fn time(&self) -> TimeByClass {
        let mut all = TimeByClass::default();
        self.boxes.iter().for_each(|hop| all += hop.time);
        all
    }
}

/// Returns one box that stands for several.
fn merge(boxes: Vec<HopBox>, what: String) -> HopBox {
    let mut merged = HopBox { what, ..HopBox::default() };
    for hop in boxes {
        merged.time += hop.time;
    }
    merged
}
