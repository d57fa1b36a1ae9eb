//! Conditions on what a wait was: `function=LockAcquire`, `cause=futex`, `waited_on=*:5432*`.

use std::{collections::HashMap, fmt, str::FromStr};

use offwake_recording::{FrameId, Recording, StackRef, TraceId, Wait};
use strum::{EnumString, IntoStaticStr, VariantNames as _};
use thiserror::Error;

use super::tag_condition::TagField;
use crate::{
    blame::cause::{self, Cause, Classifier, syscalls},
    frames, text, waited_on_entry,
};

/// What a condition is about.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    EnumString,
    IntoStaticStr,
    strum::VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum WaitField {
    /// A function anywhere in the stack of the thread that waited, with or without its source.
    Function,
    /// The cause, as `cause` in the JSON has it.
    Cause,
    /// The syscall, by name.
    Syscall,
    /// What was waited on, as `waited_on` in the JSON has it: a file's path, a socket's addresses.
    WaitedOn,
}

/// A condition that waits meet or do not meet. Displays as `function=LockAcquire`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitCondition {
    field: ConditionField,
    pattern: Wildcard,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ConditionField {
    Wait(WaitField),
    Tag(TagField),
}

/// A condition, by what it is about.
pub(super) enum Condition<'a> {
    /// What the wait was: the same for all waits of a pattern.
    Wait(WaitField, &'a Wildcard),
    /// What the thread said that it was doing.
    Tag(&'a TagField, &'a Wildcard),
}

impl WaitCondition {
    /// The waits of a trace.
    #[must_use]
    pub fn on_trace(trace: TraceId) -> Self {
        let field = ConditionField::Tag(TagField::Trace);
        Self { field, pattern: Wildcard(trace.to_string()) }
    }

    /// What it is about.
    pub(super) fn condition(&self) -> Condition<'_> {
        match &self.field {
            ConditionField::Wait(field) => Condition::Wait(*field, &self.pattern),
            ConditionField::Tag(field) => Condition::Tag(field, &self.pattern),
        }
    }

    /// What it asks of what the wait was, if it is about that.
    pub(super) fn as_wait(&self) -> Option<(WaitField, &Wildcard)> {
        match self.condition() {
            Condition::Wait(field, pattern) => Some((field, pattern)),
            Condition::Tag(..) => None,
        }
    }
}

/// Why a text is no condition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotACondition {
    /// It has no `=`, or nothing behind it.
    #[error(
        "{:?} is not like function=NAME, cause=futex, syscall=read, waited_on=*:5432*, \
         label.NAME=VALUE or trace=ID",
        text::terminal(.0)
    )]
    NoValue(String),
    /// Waits have nothing of that name.
    #[error(
        "{:?} is not known of a wait: one of {}, label.NAME, trace, span",
        text::terminal(.0),
        WaitField::VARIANTS.join(", ")
    )]
    UnknownField(String),
    /// No wait can have that cause.
    #[error("no cause is called {:?}: one of {}", text::terminal(.0), Cause::VARIANTS.join(", "))]
    UnknownCause(String),
}

impl FromStr for WaitCondition {
    type Err = NotACondition;

    fn from_str(condition: &str) -> Result<Self, Self::Err> {
        let Some((field, pattern)) = condition.split_once('=').filter(|(_, p)| !p.is_empty())
        else {
            return Err(NotACondition::NoValue(condition.to_owned()));
        };
        let pattern = Wildcard(pattern.to_owned());
        if let Some(field) = TagField::parse(field) {
            return Ok(Self { field: ConditionField::Tag(field), pattern });
        }
        let Ok(field) = field.parse() else {
            return Err(NotACondition::UnknownField(field.to_owned()));
        };
        if field == WaitField::Cause && !Cause::VARIANTS.iter().any(|name| pattern.matches(name)) {
            return Err(NotACondition::UnknownCause(pattern.0));
        }
        Ok(Self { field: ConditionField::Wait(field), pattern })
    }
}

impl fmt::Display for WaitCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            ConditionField::Wait(field) => write!(f, "{}={}", <&str>::from(field), self.pattern.0),
            ConditionField::Tag(field) => write!(f, "{field}={}", self.pattern.0),
        }
    }
}

/// A text in which each `*` stands for any characters, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wildcard(String);

impl Wildcard {
    pub(super) fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut name) = name.strip_prefix(first) else { return false };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        // The earliest place for each piece leaves the most for those behind it.
        for piece in middle.split('*') {
            let Some((_, behind)) = name.split_once(piece) else { return false };
            name = behind;
        }
        name.ends_with(last)
    }
}

/// Finds out which patterns of waits meet conditions: each pattern and each frame once.
pub(super) struct ConditionChecker<'a> {
    recording: &'a Recording,
    conditions: Vec<(WaitField, &'a Wildcard)>,
    classifier: Classifier<'a>,
    /// For each condition, the frames that were compared with it so far.
    frames: Vec<HashMap<FrameId, bool>>,
}

impl<'a> ConditionChecker<'a> {
    pub(super) fn new(
        recording: &'a Recording,
        conditions: Vec<(WaitField, &'a Wildcard)>,
    ) -> Self {
        let frames = vec![HashMap::new(); conditions.len()];
        Self { recording, conditions, classifier: Classifier::new(recording), frames }
    }

    /// Returns whether a wait meets one of the conditions on each field that there are any on.
    pub(super) fn meets_all(&mut self, wait: &Wait) -> bool {
        let conditions = self.conditions.clone();
        let mut is_met = |field: WaitField| {
            let mut on_field =
                conditions.iter().enumerate().filter(|(_, (other, _))| *other == field);
            on_field.any(|(n, (field, pattern))| self.meets(n, *field, pattern, wait))
        };
        conditions.iter().all(|(field, _)| is_met(*field))
    }

    fn meets(&mut self, n: usize, field: WaitField, pattern: &Wildcard, wait: &Wait) -> bool {
        match field {
            WaitField::Function => {
                self.has_frame(n, pattern, wait.user_stack)
                    || self.has_frame(n, pattern, wait.kernel_stack)
            }
            WaitField::Cause => pattern.matches(self.classifier.cause(wait).name()),
            WaitField::Syscall => (wait.syscall.as_ref())
                .and_then(syscalls::name)
                .is_some_and(|name| pattern.matches(name)),
            WaitField::WaitedOn => {
                let on = cause::waited_on(wait, self.classifier.cause(wait));
                on.is_some_and(|on| {
                    pattern
                        .matches(&waited_on_entry::waited_on_entry(&self.recording.files, on).text)
                })
            }
        }
    }

    fn has_frame(&mut self, n: usize, pattern: &Wildcard, stack: StackRef) -> bool {
        let stacks = &self.recording.stacks;
        let StackRef::Id(stack) = stack else { return false };
        let Some(stack) = stacks.stacks.get(&stack) else { return false };
        stack.frames.iter().any(|id| {
            let compare = || {
                let Some(frame) = stacks.frames.get(id) else { return false };
                frame.names().any(|name| pattern.matches(name))
                    || frames::frame_texts(stacks, frame).iter().any(|text| pattern.matches(text))
            };
            *self.frames[n].entry(*id).or_insert_with(compare)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{NotACondition, WaitCondition, Wildcard};

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, matches) in [
            ("LockAcquire", "LockAcquire", true),
            ("LockAcquire", "LockAcquireExtended", false),
            ("LockAcquire*", "LockAcquireExtended", true),
            ("*", "", true),
            ("*", "anything", true),
            ("*Lock*", "LWLockAcquire", true),
            ("*Lock*", "Semaphore", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            // What begins a name is not what ends it.
            ("aba*ba", "aba", false),
            ("a*a", "a", false),
            ("a**a", "aa", true),
            ("operator()", "operator()", true),
            ("größe*", "größer", true),
        ] {
            assert_eq!(Wildcard(pattern.to_owned()).matches(name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn a_condition_names_something_that_is_known_of_waits() {
        let condition: WaitCondition = "function=operator==".parse().unwrap();
        assert_eq!(condition.to_string(), "function=operator==");
        let parse = |text: &str| text.parse::<WaitCondition>().unwrap_err();
        assert_eq!(parse("function"), NotACondition::NoValue("function".to_owned()));
        assert_eq!(parse("function="), NotACondition::NoValue("function=".to_owned()));
        assert_eq!(parse("comm=x"), NotACondition::UnknownField("comm".to_owned()));
        assert_eq!(parse("cause=futx"), NotACondition::UnknownCause("futx".to_owned()));
        assert!(parse("cause=futx").to_string().contains("futex, socket"));
        assert!("cause=*sock*".parse::<WaitCondition>().is_ok());
        for tag in ["label.http.route=/checkout", "label.a=*", "trace=0af7*", "span=b7ad"] {
            assert_eq!(tag.parse::<WaitCondition>().unwrap().to_string(), tag);
        }
        assert_eq!(parse("label.=x"), NotACondition::UnknownField("label.".to_owned()));
    }
}
