//! The tables that all threads have in common: stacks, frames, functions, files and texts, each once.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use crate::{blame::BlameClass, formats::source_frame::SourceFrame, text};

use super::{
    category_index,
    file::{FrameTable, FuncTable, NativeSymbols, ResourceTable, Shared, Sources, StackTable},
};

/// The most bytes of a name: what it calls its functions is up to a program.
const MAX_TEXT_BYTES: usize = 500;

/// What stands for the frames of a stack that there is no room for.
const NO_ROOM: &str = "[no room for its frames]";

/// A stack in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedStack {
    pub(super) index: u32,
    /// There was no room for it: another stands for it.
    pub(super) is_frameless: bool,
}

/// The numbers of the rows of a table, by what they say.
struct Numbers<K>(HashMap<K, u32, foldhash::fast::RandomState>);

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

/// The bytes that are left.
struct Room(usize);

impl<K: Hash + Eq + Clone> Numbers<K> {
    /// Returns the number of a row, and whether it is new. None if it is new and there is no room for it.
    fn find_or_add(&mut self, key: &K, bytes: usize, room: &mut Room) -> Option<(u32, bool)> {
        if let Some(&known) = self.0.get(key) {
            return Some((known, false));
        }
        room.0 = room.0.checked_sub(bytes)?;
        let next = u32::try_from(self.0.len()).ok()?;
        self.0.insert(key.clone(), next);
        Some((next, true))
    }
}

/// The tables so far.
pub(super) struct Tables {
    room: Room,
    stacks: StackTable,
    stack_numbers: Numbers<(Option<u32>, u32)>,
    frames: FrameTable,
    frame_numbers: Numbers<(u32, Option<u32>, Option<u8>)>,
    functions: FuncTable,
    function_numbers: Numbers<(u32, Option<u32>)>,
    sources: Sources,
    source_numbers: Numbers<u32>,
    texts: Vec<String>,
    text_numbers: Numbers<String>,
}

impl Tables {
    /// Stacks take at most about `room` bytes, with their frames and names.
    pub(super) fn new(room: usize) -> Self {
        Self {
            room: Room(room),
            stacks: StackTable::default(),
            stack_numbers: Numbers::default(),
            frames: FrameTable::default(),
            frame_numbers: Numbers::default(),
            functions: FuncTable::default(),
            function_numbers: Numbers::default(),
            sources: Sources::default(),
            source_numbers: Numbers::default(),
            texts: Vec::new(),
            text_numbers: Numbers::default(),
        }
    }

    /// Returns the number of a text of a wait, for which there is always room.
    pub(super) fn text(&mut self, text: &str) -> u32 {
        self.text_in(text, &mut Room(usize::MAX)).unwrap_or_default()
    }

    /// Returns the stack of these frames, root first, whose time is of this class.
    pub(super) fn stack(&mut self, frames: &[Arc<SourceFrame>], class: BlameClass) -> PlacedStack {
        let category = category_index(class);
        if let Some(index) = self.stack_in_room(frames, category) {
            return PlacedStack { index, is_frameless: false };
        }
        let left = std::mem::replace(&mut self.room, Room(usize::MAX));
        let frame = SourceFrame { name: NO_ROOM.to_owned(), file: None, line: None };
        let index = self.stack_in_room(&[Arc::new(frame)], category).unwrap_or_default();
        self.room = left;
        PlacedStack { index, is_frameless: true }
    }

    fn stack_in_room(&mut self, frames: &[Arc<SourceFrame>], category: u8) -> Option<u32> {
        /// The most bytes of a row.
        const ROW: usize = 16;
        let mut at = None;
        for (n, frame) in frames.iter().enumerate() {
            let is_last = n + 1 == frames.len();
            let frame = self.frame(frame, is_last.then_some(category))?;
            let (index, is_new) =
                self.stack_numbers.find_or_add(&(at, frame), ROW, &mut self.room)?;
            if is_new {
                self.stacks.frame.push(frame);
                self.stacks.prefix.push(at);
            }
            at = Some(index);
        }
        at
    }

    fn frame(&mut self, frame: &SourceFrame, category: Option<u8>) -> Option<u32> {
        const ROW: usize = 60;
        let function = self.function(frame)?;
        let key = (function, frame.line, category);
        let (number, is_new) = self.frame_numbers.find_or_add(&key, ROW, &mut self.room)?;
        if is_new {
            let frames = &mut self.frames;
            frames.address.push(-1);
            frames.inline_depth.push(0);
            frames.category.push(category);
            frames.subcategory.push(category.map(|_| 0));
            frames.func.push(function);
            frames.native_symbol.push(None);
            frames.inner_window_id.push(None);
            frames.line.push(frame.line);
            frames.column.push(None);
        }
        Some(number)
    }

    fn function(&mut self, frame: &SourceFrame) -> Option<u32> {
        const ROW: usize = 50;
        let name = self.text_in_room(&frame.name)?;
        let source = match &frame.file {
            None => None,
            Some(file) => Some(self.source(file)?),
        };
        let (number, is_new) =
            self.function_numbers.find_or_add(&(name, source), ROW, &mut self.room)?;
        if is_new {
            let functions = &mut self.functions;
            functions.name.push(name);
            functions.is_js.push(false);
            functions.relevant_for_js.push(false);
            functions.resource.push(-1);
            functions.source.push(source);
            functions.line_number.push(None);
            functions.column_number.push(None);
        }
        Some(number)
    }

    fn source(&mut self, file: &str) -> Option<u32> {
        const ROW: usize = 12;
        let name = self.text_in_room(file)?;
        let (number, is_new) = self.source_numbers.find_or_add(&name, ROW, &mut self.room)?;
        if is_new {
            self.sources.id.push(None);
            self.sources.filename.push(name);
        }
        Some(number)
    }

    fn text_in_room(&mut self, text: &str) -> Option<u32> {
        let mut room = std::mem::replace(&mut self.room, Room(0));
        let number = self.text_in(text, &mut room);
        self.room = room;
        number
    }

    fn text_in(&mut self, text: &str, room: &mut Room) -> Option<u32> {
        let text = text::cut_bytes(&text::plain(text), MAX_TEXT_BYTES);
        let (number, is_new) = self.text_numbers.find_or_add(&text, text.len() + 4, room)?;
        if is_new {
            self.texts.push(text);
        }
        Some(number)
    }

    /// Returns the tables.
    pub(super) fn finish(self) -> Shared {
        let Self { mut stacks, mut frames, mut functions, mut sources, texts, .. } = self;
        stacks.length = stacks.frame.len();
        frames.length = frames.func.len();
        functions.length = functions.name.len();
        sources.length = sources.filename.len();
        Shared {
            stack_table: stacks,
            frame_table: frames,
            func_table: functions,
            resource_table: ResourceTable::default(),
            native_symbols: NativeSymbols::default(),
            sources,
            string_array: texts,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Tables;
    use crate::{blame::BlameClass, formats::source_frame::SourceFrame};

    fn frames(names: &[&str]) -> Vec<Arc<SourceFrame>> {
        let frame = |&name: &&str| SourceFrame { name: name.to_owned(), file: None, line: None };
        names.iter().map(|name| Arc::new(frame(name))).collect()
    }

    #[test]
    fn what_stacks_have_in_common_is_there_once() {
        let mut tables = Tables::new(usize::MAX);
        let short = tables.stack(&frames(&["main", "wait"]), BlameClass::Timer);
        let again = tables.stack(&frames(&["main", "wait"]), BlameClass::Timer);
        // The same frames, but the time is of another class.
        let other = tables.stack(&frames(&["main", "wait"]), BlameClass::Disk);
        assert!(short == again && short != other);
        let shared = tables.finish();
        assert_eq!(shared.stack_table.prefix, [None, Some(0), Some(0)]);
        assert_eq!(shared.string_array, ["main", "wait"]);
        assert_eq!(shared.frame_table.func, [0, 1, 1]);
        assert_eq!(shared.frame_table.category[0], None, "it has that of whom it calls");
    }

    #[test]
    fn a_stack_without_room_says_so_and_a_known_one_needs_none() {
        let mut tables = Tables::new(300);
        let known = tables.stack(&frames(&["main"]), BlameClass::Work);
        let long: Vec<String> = (0..20).map(|n| format!("function {n}")).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let cut = tables.stack(&frames(&long), BlameClass::Work);
        assert!(!known.is_frameless && cut.is_frameless);
        assert_eq!(tables.stack(&frames(&["main"]), BlameClass::Work), known);
        assert_eq!(tables.stack(&frames(&long), BlameClass::Work), cut);
    }
}
