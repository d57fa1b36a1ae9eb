//! Names of stacks' frames.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use offwake_recording::{Frame, FrameId, Function, StackEnd, StackRef, StackTable};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

/// The name of a frame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameName {
    /// The text that is shown: `name`, or `name (file.c:123)` if the source is known.
    pub text: Arc<str>,
    /// The function, where its source is known.
    pub function: Option<Arc<Function>>,
}

/// Names of frames, root first: the user half, then the kernel half.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frames {
    names: Arc<[FrameName]>,
    /// The number of names of the user half.
    user_len: usize,
}

impl Frames {
    /// One frame in place of a stack: a text that says why there is none.
    pub(super) fn placeholder(text: &str) -> Self {
        Self { names: [plain_name(text)].into(), user_len: 1 }
    }

    /// Returns all names, root first.
    #[must_use]
    pub fn names(&self) -> &[FrameName] {
        &self.names
    }

    /// Returns the names of the user half and those of the kernel half, each root first. The text
    /// that stands for a missing half is in that half.
    #[must_use]
    pub fn halves(&self) -> (&[FrameName], &[FrameName]) {
        self.names.split_at_checked(self.user_len).unwrap_or((&self.names, &[]))
    }
}

impl JsonSchema for Frames {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Frames".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<String>::json_schema(generator)
    }
}

impl Serialize for Frames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names.iter().map(|name| &*name.text))
    }
}

/// The name of a frame of which nothing is known.
pub(crate) const UNKNOWN: &str = "[unknown]";

/// Names each frame once, and each pair of stacks once.
pub(super) struct FrameNamer<'a> {
    stacks: &'a StackTable,
    names: HashMap<FrameId, Arc<[FrameName]>, foldhash::fast::RandomState>,
    pairs: HashMap<(StackRef, StackRef), Frames, foldhash::fast::RandomState>,
}

impl<'a> FrameNamer<'a> {
    pub(super) fn new(stacks: &'a StackTable) -> Self {
        Self { stacks, names: HashMap::default(), pairs: HashMap::default() }
    }

    /// Names both halves of a stack. A half that failed or was lost shows as such.
    pub(super) fn frames(&mut self, user: StackRef, kernel: StackRef) -> Frames {
        if let Some(known) = self.pairs.get(&(user, kernel)) {
            return known.clone();
        }
        let mut all = Vec::new();
        self.push_half(user, "user", &mut all);
        let of_user = all.len();
        self.push_half(kernel, "kernel", &mut all);
        let frames = Frames { names: all.into(), user_len: of_user };
        self.pairs.insert((user, kernel), frames.clone());
        frames
    }

    fn push_half(&mut self, stack: StackRef, half: &str, all: &mut Vec<FrameName>) {
        let id = match stack {
            StackRef::NotTaken => return,
            StackRef::Failed => return all.push(plain_name(&format!("[{half} stack failed]"))),
            StackRef::Id(id) => id,
        };
        let Some(stack) = self.stacks.stacks.get(&id) else {
            return all.push(plain_name(&format!("[{half} stack lost]")));
        };
        all.extend(missing_frames_text(stack.end).map(plain_name));
        for &frame in stack.frames.iter().rev() {
            let names = self.names.entry(frame).or_insert_with(|| {
                self.stacks.frames.get(&frame).map_or_else(
                    || Arc::from([plain_name(UNKNOWN)]),
                    |frame| frame_names(self.stacks, frame).into(),
                )
            });
            all.extend(names.iter().cloned());
        }
    }
}

/// Returns the text that stands for the frames that a stack lacks.
fn missing_frames_text(end: StackEnd) -> Option<&'static str> {
    match end {
        StackEnd::Unknown | StackEnd::EntryPoint => None,
        StackEnd::CopyTooShort => Some("[stack deeper than its copy]"),
        StackEnd::PageMissing => Some("[stack not in memory]"),
        StackEnd::NoUnwindInfo => Some("[no unwind information]"),
        StackEnd::NotCode => Some("[return address in no code]"),
        StackEnd::Broken => Some("[unwind information makes no sense]"),
        StackEnd::TooDeep => Some("[more frames than are kept]"),
        StackEnd::OtherStack => Some("[interrupted on another stack]"),
        StackEnd::LostRegister => Some("[a register is not known]"),
        StackEnd::WaitOver => Some("[over before its stack was read]"),
        StackEnd::OtherMachine => Some("[unwound on x86-64 only]"),
        StackEnd::NotUnwound => Some("[not unwound]"),
    }
}

fn plain_name(text: &str) -> FrameName {
    FrameName { text: text.into(), function: None }
}

/// Returns a frame's names: its functions, the outermost first; else the file and the offset in it.
fn frame_names(stacks: &StackTable, frame: &Frame) -> Vec<FrameName> {
    let named = frame.functions.iter().rev().map(|function| FrameName {
        text: with_source(function).into(),
        function: function.file.is_some().then(|| Arc::new(function.clone())),
    });
    match frame.functions.is_empty() {
        false => named.collect(),
        true => vec![plain_name(&module_and_offset(stacks, frame))],
    }
}

/// Returns a frame's names as texts.
pub(crate) fn frame_texts(stacks: &StackTable, frame: &Frame) -> Vec<String> {
    match frame.functions.is_empty() {
        false => frame.functions.iter().rev().map(with_source).collect(),
        true => vec![module_and_offset(stacks, frame)],
    }
}

/// Returns `name (file.c:123)`, as much of it as is known.
pub(super) fn with_source(function: &Function) -> String {
    let name = &function.name;
    match (function.file.as_deref().map(base_name), function.line) {
        (Some(file), Some(line)) => format!("{name} ({file}:{line})"),
        (Some(file), None) => format!("{name} ({file})"),
        (None, _) => name.clone(),
    }
}

fn module_and_offset(stacks: &StackTable, frame: &Frame) -> String {
    match (stacks.module_of(frame), frame.module_offset) {
        (Some(module), Some(offset)) => format!("{}+{offset:#x}", base_name(&module.path)),
        (Some(module), None) => base_name(&module.path).to_owned(),
        (None, _) => UNKNOWN.to_owned(),
    }
}

/// Returns a path without its folders.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use offwake_recording::{
        AddressKind, AddressSpace, Function, Module, ModuleId, Stack, units::StackId,
    };

    #[test]
    fn a_name_says_as_much_of_its_source_as_is_known() {
        let function = |file: Option<&str>, line| Function {
            name: "serve".to_owned(),
            file: file.map(Arc::from),
            line,
        };
        for (file, line, text) in [
            (Some("/src/http.c"), Some(7), "serve (http.c:7)"),
            (Some("/src/http.c"), None, "serve (http.c)"),
            (Some("node:events"), Some(471), "serve (node:events:471)"),
            (Some("<string>"), Some(1), "serve (<string>:1)"),
            (None, Some(7), "serve"),
            (None, None, "serve"),
        ] {
            assert_eq!(with_source(&function(file, line)), text);
        }
    }

    #[test]
    fn a_half_that_is_missing_stands_in_its_own_half() {
        let table = StackTable::default();
        let frames = FrameNamer::new(&table).frames(StackRef::Failed, StackRef::Id(StackId(1)));
        let texts = |names: &[FrameName]| {
            names.iter().map(|name| name.text.to_string()).collect::<Vec<_>>()
        };
        let (user, kernel) = frames.halves();
        assert_eq!(texts(user), ["[user stack failed]"]);
        assert_eq!(texts(kernel), ["[kernel stack lost]"]);
    }

    #[test]
    fn what_a_damaged_recording_lacks_shows_as_unknown() {
        let frame = |module, functions: &[&str]| Frame {
            address: 0x1000,
            kind: AddressKind::Return,
            module: Some(ModuleId(module)),
            module_offset: Some(0x10),
            functions: functions.iter().map(|&name| Function::named(name)).collect(),
        };
        let mut table = StackTable::default();
        let (path, segments) = ("/bin/a".to_owned(), Vec::new());
        let module = Module { path, build_id: None, segments };
        table.modules.insert(ModuleId(3), module);
        table.frames.insert(FrameId(0), frame(3, &["leaf"]));
        table.frames.insert(FrameId(2), frame(3, &[]));
        table.frames.insert(FrameId(4), frame(9, &[]));
        let frames = [0, 1, 2, 4, u32::MAX].map(FrameId).to_vec();
        table.stacks.insert(
            StackId(1),
            Stack { space: AddressSpace::Kernel, frames, end: StackEnd::Unknown },
        );
        let frames = FrameNamer::new(&table).frames(StackRef::Id(StackId(1)), StackRef::NotTaken);
        let names: Vec<_> = frames.names().iter().map(|name| &*name.text).collect();
        assert_eq!(names, [UNKNOWN, UNKNOWN, "a+0x10", UNKNOWN, "leaf"]);
        assert_eq!(table.frames_of(StackId(1)).count(), 3);
    }
}
