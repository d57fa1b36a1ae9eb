//! Stacks → text.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use crate::recording::{Frame, FrameId, StackRef, StackTable};

/// Names of frames, root first: the user half, then the kernel half.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frames {
    names: Arc<[Arc<str>]>,
    /// How many of the names are the user half's.
    of_user: usize,
}

impl Frames {
    /// All names, root first.
    #[must_use]
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The user half's names, and the kernel half's, each root first. What stands for a half that is
    /// missing is in the half that it stands for.
    #[must_use]
    pub fn halves(&self) -> (&[Arc<str>], &[Arc<str>]) {
        self.names.split_at_checked(self.of_user).unwrap_or((&self.names, &[]))
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
        serializer.collect_seq(self.names.iter().map(|name| &**name))
    }
}

/// What a frame is called when it has no name.
pub(crate) const UNKNOWN: &str = "[unknown]";

/// Names each frame once, and each pair of stacks once.
pub(super) struct Namer<'a> {
    stacks: &'a StackTable,
    names: HashMap<FrameId, Arc<[Arc<str>]>>,
    pairs: HashMap<(StackRef, StackRef), Frames>,
}

impl<'a> Namer<'a> {
    pub(super) fn new(stacks: &'a StackTable) -> Self {
        Self { stacks, names: HashMap::new(), pairs: HashMap::new() }
    }

    /// A stack's two halves as one. A half that failed, or that was lost, shows as such.
    pub(super) fn frames(&mut self, user: StackRef, kernel: StackRef) -> Frames {
        if let Some(known) = self.pairs.get(&(user, kernel)) {
            return known.clone();
        }
        let mut all = Vec::new();
        self.half(user, "user", &mut all);
        let of_user = all.len();
        self.half(kernel, "kernel", &mut all);
        let frames = Frames { names: all.into(), of_user };
        self.pairs.insert((user, kernel), frames.clone());
        frames
    }

    fn half(&mut self, stack: StackRef, half: &str, all: &mut Vec<Arc<str>>) {
        let id = match stack {
            StackRef::NotTaken => return,
            StackRef::Failed => return all.push(format!("[{half} stack failed]").into()),
            StackRef::Id(id) => id,
        };
        let Some(stack) = self.stacks.stacks.get(&id) else {
            return all.push(format!("[{half} stack lost]").into());
        };
        for &frame in stack.frames.iter().rev() {
            let names = self.names.entry(frame).or_insert_with(|| {
                self.stacks.frames.get(&frame).map_or_else(
                    || Arc::from([Arc::from(UNKNOWN)]),
                    |frame| names_of(self.stacks, frame).into_iter().map(Arc::from).collect(),
                )
            });
            all.extend(names.iter().cloned());
        }
    }
}

/// What a frame is called: its functions, the outermost first; else the file and the offset in it.
pub(crate) fn names_of(stacks: &StackTable, frame: &Frame) -> Vec<String> {
    if !frame.functions.is_empty() {
        return frame.names().rev().map(str::to_owned).collect();
    }
    vec![match (stacks.module_of(frame), frame.module_offset) {
        (Some(module), Some(offset)) => format!("{}+{offset:#x}", base_name(&module.path)),
        (Some(module), None) => base_name(&module.path).to_owned(),
        (None, _) => UNKNOWN.to_owned(),
    }]
}

/// A path without its folders.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        recording::{AddressKind, AddressSpace, Function, Module, ModuleId, Stack},
        units::StackId,
    };

    #[test]
    fn a_half_that_is_missing_stands_in_its_own_half() {
        let table = StackTable::default();
        let frames = Namer::new(&table).frames(StackRef::Failed, StackRef::Id(StackId(1)));
        let texts =
            |names: &[Arc<str>]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
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
        table.stacks.insert(StackId(1), Stack { space: AddressSpace::Kernel, frames });
        let frames = Namer::new(&table).frames(StackRef::Id(StackId(1)), StackRef::NotTaken);
        let names: Vec<_> = frames.names().iter().map(|name| &**name).collect();
        assert_eq!(names, [UNKNOWN, UNKNOWN, "a+0x10", UNKNOWN, "leaf"]);
        assert_eq!(table.frames_of(StackId(1)).count(), 3);
    }
}
