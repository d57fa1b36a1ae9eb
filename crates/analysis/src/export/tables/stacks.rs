//! `stacks` and `frames`: a row each, and a row for each function of each.

use arrow_array::types::{UInt32Type, UInt64Type};
use offwake_recording::{
    AddressSpace, Frame, FrameId, Function, Module, ModuleId, Stack, StackRef,
    stream::{
        code::Code as _,
        column::{Column, Nulls, flags, numbers, optional},
    },
    units::StackId,
};

use crate::export::{
    Export,
    dictionary::{Dictionary, words},
    stack_text::join_frames,
};

/// Functions of one stack that are shown. The kernel walks 127 frames at most, into each of which a
/// few functions may be inlined; a recording that somebody made up may have any number.
const MAX_FUNCTIONS: usize = 4_096;

fn pick<'a>(export: &Export<'a>, items: &[u32]) -> Vec<(StackId, &'a Stack)> {
    let ids = items.iter().filter_map(|&item| export.stacks.get(item as usize));
    ids.filter_map(|id| Some((*id, export.recording.stacks.stacks.get(id)?))).collect()
}

fn space(stack: &Stack) -> (&'static str, Option<u32>) {
    match stack.space {
        AddressSpace::Kernel => ("kernel", None),
        AddressSpace::Process(tgid) => ("process", Some(tgid.0)),
    }
}

pub(super) fn stacks(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows = pick(export, items);
    let mut texts = Dictionary::new();
    for (id, _) in &rows {
        let pair = (StackRef::Id(*id), StackRef::NotTaken);
        texts.push(Some(id), || join_frames(&export.recording.stacks, pair));
    }
    let depths =
        rows.iter().map(|(_, stack)| u32::try_from(stack.frames.len()).unwrap_or(u32::MAX));
    vec![
        numbers::<UInt64Type>("id", rows.iter().map(|(id, _)| id.0)),
        words("space", rows.iter().map(|(_, stack)| space(stack).0)),
        optional::<UInt32Type>("tgid", rows.iter().map(|(_, stack)| space(stack).1)),
        numbers::<UInt32Type>("depth", depths),
        words("end", rows.iter().map(|(_, stack)| stack.end.text())),
        texts.column("stack", Nulls::Allowed),
    ]
}

/// One function of a stack.
struct Row<'a> {
    stack: StackId,
    position: u32,
    id: FrameId,
    /// None if its row was lost.
    frame: Option<&'a Frame>,
    /// The function's place among those that are inlined into one another, innermost first.
    nth: usize,
}

impl<'a> Row<'a> {
    /// All of a stack's, leaf first.
    fn from_stack(
        export: &Export<'a>,
        stack: StackId,
        frames: &'a Stack,
    ) -> impl Iterator<Item = Self> {
        let table = &export.recording.stacks.frames;
        (frames.frames.iter())
            .flat_map(move |id| {
                let frame = table.get(id);
                let functions = frame.map_or(0, |frame| frame.functions.len()).max(1);
                (0..functions).map(move |nth| (*id, frame, nth))
            })
            .zip(0..)
            .take(MAX_FUNCTIONS)
            .map(move |((id, frame, nth), position)| Self { stack, position, id, frame, nth })
    }

    fn function(&self) -> Option<&'a Function> {
        self.frame?.functions.get(self.nth)
    }

    fn is_inlined(&self) -> bool {
        self.frame.is_some_and(|frame| self.nth + 1 < frame.functions.len())
    }

    fn module(&self, export: &Export<'a>) -> Option<(ModuleId, &'a Module)> {
        let frame = self.frame?;
        Some((frame.module?, export.recording.stacks.module_of(frame)?))
    }
}

pub(super) fn frames(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows: Vec<Row<'_>> = (pick(export, items).into_iter())
        .flat_map(|(id, stack)| Row::from_stack(export, id, stack))
        .collect();
    let (mut functions, mut files) = (Dictionary::new(), Dictionary::new());
    let (mut modules, mut build_ids) = (Dictionary::new(), Dictionary::new());
    for row in &rows {
        let function = row.function();
        let key = Some((row.id, row.nth));
        functions.push(key, || Some(function?.name.clone()));
        files.push(key, || function?.file.as_deref().map(str::to_owned));
        let module = row.module(export);
        let id = module.map(|(id, _)| id);
        modules.push(id, || module.map(|(_, module)| module.path.clone()));
        build_ids.push(id, || module?.1.build_id.as_ref().map(ToString::to_string));
    }
    let offsets = rows.iter().map(|row| row.frame.and_then(|frame| frame.module_offset));
    let lines = rows.iter().map(|row| row.function().and_then(|function| function.line));
    vec![
        numbers::<UInt64Type>("stack_id", rows.iter().map(|row| row.stack.0)),
        numbers::<UInt32Type>("position", rows.iter().map(|row| row.position)),
        functions.column("function", Nulls::Allowed),
        flags("is_inlined", rows.iter().map(Row::is_inlined)),
        files.column("source_file", Nulls::Allowed),
        optional::<UInt32Type>("source_line", lines),
        modules.column("module", Nulls::Allowed),
        optional::<UInt64Type>("module_offset", offsets),
        build_ids.column("build_id", Nulls::Allowed),
    ]
}
