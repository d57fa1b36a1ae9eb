//! The texts of a page, each of them once.
//!
//! They come from other programs: what a terminal or a browser would act on is written out, the
//! longest are cut, and there is a limit to all of them together.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::{frames::Frames, text};

/// The most characters of one text.
const MAX_TEXT_CHARS: usize = 300;
/// The most characters of a thread's name; the kernel allows 15.
const MAX_COMM_CHARS: usize = 64;
/// The most frames of one stack, counted from its leaf.
const MAX_STACK_FRAMES: usize = 256;

/// Index into [`Texts::list`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub(super) struct TextId(u32);

/// Index into [`Texts::stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct StackTextId(u32);

/// Gathers texts, and stacks of them.
pub(super) struct Texts<'a> {
    list: Vec<String>,
    ids: HashMap<String, TextId>,
    stacks: Vec<Vec<TextId>>,
    stack_ids: BTreeMap<&'a Frames, StackTextId>,
    bytes_left: usize,
    left_out: u64,
}

impl<'a> Texts<'a> {
    /// The text that stands for those beyond the limit: the first in the list.
    const OVER_LIMIT: &'static str = "[too much text: not in this file]";

    /// Creates an empty table whose texts may take up to `bytes` bytes in the file.
    pub(super) fn with_size_limit(bytes: usize) -> Self {
        Self {
            list: vec![Self::OVER_LIMIT.to_owned()],
            ids: HashMap::new(),
            stacks: Vec::new(),
            stack_ids: BTreeMap::new(),
            bytes_left: bytes,
            left_out: 0,
        }
    }

    /// Returns the id of a text from another program, which may contain anything.
    pub(super) fn id(&mut self, raw: &str) -> TextId {
        let raw = truncate(raw);
        if let Some(&known) = self.ids.get(raw) {
            return known;
        }
        let text = sanitise(raw);
        // Quotes and commas, and what is written as `\u003c`.
        let cost = text.len() + 6 * text.matches(['<', '"', '\\']).count() + 3;
        if cost > self.bytes_left {
            self.left_out += 1;
            return TextId(0);
        }
        self.bytes_left -= cost;
        let id = TextId(u32::try_from(self.list.len()).unwrap_or(0));
        self.list.push(text);
        self.ids.insert(raw.to_owned(), id);
        id
    }

    /// `web 42`
    pub(super) fn thread(
        &mut self,
        comm: &str,
        id: impl std::fmt::Display,
        container: Option<&str>,
    ) -> TextId {
        self.id(&describe_thread(comm, id, container))
    }

    /// Returns the id of a stack. If it is too deep, the frames next to its root are left out.
    pub(super) fn stack(&mut self, frames: &'a Frames) -> StackTextId {
        if let Some(&known) = self.stack_ids.get(frames) {
            return known;
        }
        let more = frames.names().len().saturating_sub(MAX_STACK_FRAMES);
        let mut stack = Vec::new();
        if more > 0 {
            stack.push(self.id(&format!("[{more} more frames]")));
        }
        stack.extend(frames.names().iter().skip(more).map(|frame| self.id(&frame.text)));
        let id = StackTextId(u32::try_from(self.stacks.len()).unwrap_or(u32::MAX));
        self.bytes_left = self.bytes_left.saturating_sub(6 * stack.len());
        self.stacks.push(stack);
        self.stack_ids.insert(frames, id);
        id
    }

    /// Returns the bytes that are left of the limit.
    pub(super) fn bytes_left(&self) -> usize {
        self.bytes_left
    }

    /// Returns all texts, all stacks, and how often a text exceeded the limit.
    pub(super) fn into_parts(self) -> (Vec<String>, Vec<Vec<TextId>>, u64) {
        (self.list, self.stacks, self.left_out)
    }
}

/// Sanitises a name from another program, and cuts it.
pub(super) fn sanitise(raw: &str) -> String {
    text::cut_chars(&text::terminal(truncate(raw)), MAX_TEXT_CHARS)
}

/// `web 42`, `web 42 in shop`: the number is there however long the name is.
pub(super) fn describe_thread(
    comm: &str,
    id: impl std::fmt::Display,
    container: Option<&str>,
) -> String {
    let comm: String = comm.chars().take(MAX_COMM_CHARS).collect();
    match container {
        None => format!("{comm} {id}"),
        Some(container) => format!("{comm} {id} in {container}"),
    }
}

/// Cuts a text to one character more than is shown, so that the cut shows later.
fn truncate(raw: &str) -> &str {
    raw.char_indices().nth(MAX_TEXT_CHARS + 1).and_then(|(end, _)| raw.get(..end)).unwrap_or(raw)
}

#[cfg(test)]
mod tests {
    use super::{TextId, Texts};

    #[test]
    fn a_text_is_there_once_and_harmless() {
        let mut texts = Texts::with_size_limit(1_000);
        let (first, second) = (texts.id("a\u{1b}[2J"), texts.id("b\u{202e}c"));
        assert_eq!(texts.id("a\u{1b}[2J"), first);
        assert_ne!(first, second);
        let (list, ..) = texts.into_parts();
        assert_eq!(list[1..], ["a\\x1b[2J", "b\\x202ec"]);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut texts = Texts::with_size_limit(20);
        assert_eq!(texts.id("0123456789"), TextId(1));
        assert_eq!(texts.id("another text"), TextId(0));
        assert_eq!(texts.id("0123456789"), TextId(1));
        assert_eq!(texts.into_parts().2, 1);
    }

    #[test]
    fn no_text_is_longer_than_a_few_hundred_characters() {
        let mut texts = Texts::with_size_limit(1 << 20);
        texts.id(&"\u{1b}".repeat(100_000));
        assert_eq!(texts.into_parts().0[1].chars().count(), super::MAX_TEXT_CHARS);
    }
}
