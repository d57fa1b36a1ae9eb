//! What programs say of what their threads are doing, at any moment: which trace a wait is of.
//!
//! ```text
//!  looked at    |       |                |      |
//!  had          A       A                B      B
//!  known        A A A A A ? ? ? ? ? ? ? ?B B B B B …
//! ```
//!
//! A thread is looked at as it leaves its CPU and as it wakes another. Between two looks that differ
//! nobody knows when it changed; all waits and all wakes of tasks are at such a look.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use offwake_recording::{
    Recording, SpanId, TagSet, TagSetId, ThreadEventReason, TraceId,
    units::{Tgid, Tid, Timestamp},
};

/// A moment from which on a thread has other tags.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: Timestamp,
    /// Until when it is known to have had those before.
    since: Option<Timestamp>,
    set: Option<TagSetId>,
}

/// What the threads of a recording say that they are doing.
#[derive(Debug)]
pub struct ThreadTags<'a> {
    changes: HashMap<Tid, Vec<Change>>,
    sets: &'a BTreeMap<TagSetId, TagSet>,
    names: HashMap<(Tgid, u8), &'a str>,
}

impl<'a> ThreadTags<'a> {
    /// Those of a recording.
    #[must_use]
    pub fn new(recording: &'a Recording) -> Self {
        let mut changes: HashMap<Tid, Vec<Change>> = HashMap::new();
        for change in &recording.tag_changes {
            let (at, since, set) = (change.at, change.since, change.set);
            changes.entry(change.tid).or_default().push(Change { at, since, set });
        }
        // Another thread may have the number of one that has ended, and a program that is executed
        // says something else.
        let execs = recording.thread_events.iter();
        let execs = execs.filter(|event| event.reason == ThreadEventReason::Exec);
        let ends = execs.flat_map(|event| {
            [Some(event.tid), event.old_tid].into_iter().flatten().map(|tid| (tid, event.at))
        });
        for (tid, at) in ends.chain(recording.exits.iter().map(|exit| (exit.tid, exit.at))) {
            if let Some(changes) = changes.get_mut(&tid) {
                changes.push(Change { at, since: Some(at), set: None });
            }
        }
        for changes in changes.values_mut() {
            changes.sort_by_key(|change| change.at);
        }
        let names = recording.tag_names.iter();
        let names = names.map(|name| ((name.tgid, name.key), name.name.as_str())).collect();
        Self { changes, sets: &recording.tag_sets, names }
    }

    /// Whether no thread said anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// What a thread said that it was doing at a moment. None if it did not say, or if that is not
    /// known.
    #[must_use]
    pub fn find(&self, tid: Tid, at: Timestamp) -> Option<&'a TagSet> {
        let changes = self.changes.get(&tid)?;
        let later = changes.partition_point(|change| change.at <= at);
        let set = changes.get(later.checked_sub(1)?)?.set?;
        let is_known = match changes.get(later) {
            Some(next) => next.since.is_some_and(|since| since >= at),
            None => true,
        };
        self.sets.get(&set).filter(|_| is_known)
    }

    /// The only trace that a thread worked for in `from..=to`, and the first span of it. None if it
    /// worked for none, or for several.
    #[must_use]
    pub fn find_only_span(
        &self,
        tid: Tid,
        from: Timestamp,
        to: Timestamp,
    ) -> Option<(TraceId, SpanId)> {
        let changes = self.changes.get(&tid)?;
        let later = changes.partition_point(|change| change.at <= from);
        let inside = changes.get(later..)?.iter().take_while(|change| change.at <= to);
        let begun = inside.filter_map(|change| self.sets.get(&change.set?));
        let sets = self.find(tid, from).into_iter().chain(begun);
        let mut spans = sets.filter_map(|set| set.trace.zip(set.span));
        let first = spans.next()?;
        spans.all(|(trace, _)| trace == first.0).then_some(first)
    }

    /// The threads that had a trace at any moment.
    #[must_use]
    pub fn threads_of(&self, trace: TraceId) -> BTreeSet<Tid> {
        let has_it = |set: TagSetId| self.sets.get(&set).is_some_and(|it| it.trace == Some(trace));
        let had_it = |changes: &[Change]| changes.iter().filter_map(|it| it.set).any(has_it);
        let threads = self.changes.iter().filter(|(_, changes)| had_it(changes));
        threads.map(|(tid, _)| *tid).collect()
    }

    /// The labels of a set, as names and values, in the order of the names.
    #[must_use]
    pub fn labels(&self, set: &'a TagSet) -> BTreeMap<Cow<'a, str>, &'a str> {
        let numbered = set.attributes.iter();
        let numbered = numbered.map(|(key, value)| (self.name(set, *key), value.as_str()));
        let named = set.labels.iter();
        let named = named.map(|(name, value)| (Cow::Borrowed(name.as_str()), value.as_str()));
        numbered.chain(named).collect()
    }

    /// The value of the label of a name.
    #[must_use]
    pub fn label(&self, set: &'a TagSet, name: &str) -> Option<&'a str> {
        let numbered = || set.attributes.iter().find(|(key, _)| self.name(set, *key) == name);
        let numbered = || numbered().map(|(_, value)| value.as_str());
        let named = set.labels.iter().find(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str()).or_else(numbered)
    }

    /// The value of a label that a thread had for what it did in `from..=to`: the only one that it took
    /// on meanwhile, or of several the one that it had at the end. If it took on none, the one that it
    /// had all along.
    #[must_use]
    pub fn label_of_work(
        &self,
        tid: Tid,
        from: Timestamp,
        to: Timestamp,
        name: &str,
    ) -> Option<&'a str> {
        let changes = self.changes.get(&tid)?;
        let later = changes.partition_point(|change| change.at <= from);
        let inside = changes.get(later..)?.iter().take_while(|change| change.at <= to);
        let taken_on: BTreeSet<&str> =
            inside.filter_map(|change| self.label(self.sets.get(&change.set?)?, name)).collect();
        match taken_on.len() {
            1 => taken_on.first().copied(),
            _ => self.label(self.find(tid, to)?, name),
        }
    }

    /// What a process calls one of its labels: `key_3` if it has not told.
    fn name(&self, set: &TagSet, key: u8) -> Cow<'a, str> {
        match self.names.get(&(set.tgid, key)) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("key_{key}")),
        }
    }

    /// The names of all labels that any thread had.
    #[must_use]
    pub fn label_names(&self) -> BTreeSet<String> {
        let sets = || self.sets.values();
        let keys: BTreeSet<(Tgid, u8)> =
            sets().flat_map(|set| set.attributes.iter().map(|(key, _)| (set.tgid, *key))).collect();
        let named: BTreeSet<&str> =
            sets().flat_map(|set| set.labels.iter().map(|(name, _)| name.as_str())).collect();
        let name = |(tgid, key): (Tgid, u8)| match self.names.get(&(tgid, key)) {
            Some(name) => (*name).to_owned(),
            None => format!("key_{key}"),
        };
        keys.into_iter().map(name).chain(named.into_iter().map(str::to_owned)).collect()
    }
}
