//! Conditions on what the waiting thread said that it was doing: `label.http.route=/checkout`,
//! `trace=0af7651916cd43dd8448eb211c80319c`.

use std::fmt;

use offwake_recording::{TagSet, WaitRow, Waits};

use super::condition::{Condition, WaitCondition, Wildcard};
use crate::tags::ThreadTags;

/// What such a condition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TagField {
    /// The label of this name.
    Label(String),
    /// The trace's id.
    Trace,
    /// The span's id.
    Span,
}

/// What a name of a label stands behind.
const LABEL: &str = "label.";

impl TagField {
    /// The field of this name, if it is one of these.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name.strip_prefix(LABEL) {
            Some(label) if !label.is_empty() => Some(Self::Label(label.to_owned())),
            Some(_) => None,
            None if name == "trace" => Some(Self::Trace),
            None if name == "span" => Some(Self::Span),
            None => None,
        }
    }

    fn meets(&self, pattern: &Wildcard, tags: &ThreadTags<'_>, set: &TagSet) -> bool {
        match self {
            Self::Label(name) => tags.label(set, name).is_some_and(|value| pattern.matches(value)),
            Self::Trace => set.trace.is_some_and(|trace| pattern.matches(&trace.to_string())),
            Self::Span => set.span.is_some_and(|span| pattern.matches(&span.to_string())),
        }
    }
}

impl fmt::Display for TagField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(name) => write!(f, "{LABEL}{name}"),
            Self::Trace => f.write_str("trace"),
            Self::Span => f.write_str("span"),
        }
    }
}

/// The conditions of that kind, and what they are about.
#[derive(Debug)]
pub(super) struct TagConditions<'a> {
    conditions: Vec<(&'a TagField, &'a Wildcard)>,
    tags: ThreadTags<'a>,
}

impl<'a> TagConditions<'a> {
    /// None if there is no such condition.
    pub(super) fn new(
        conditions: &'a [WaitCondition],
        tags: impl FnOnce() -> ThreadTags<'a>,
    ) -> Option<Self> {
        let conditions: Vec<_> = (conditions.iter())
            .filter_map(|condition| match condition.condition() {
                Condition::Tag(field, pattern) => Some((field, pattern)),
                Condition::Wait(..) => None,
            })
            .collect();
        (!conditions.is_empty()).then(|| Self { conditions, tags: tags() })
    }

    /// Returns whether a wait meets one of the conditions on each field that there are any on.
    pub(super) fn meets_all(&self, waits: &Waits, wait: &WaitRow) -> bool {
        let Some(set) = self.tags.find(waits.waiter(wait).tid, wait.off) else { return false };
        self.conditions.iter().all(|(field, _)| {
            let mut on_field = self.conditions.iter().filter(|(other, _)| other == field);
            on_field.any(|(field, pattern)| field.meets(pattern, &self.tags, set))
        })
    }
}
