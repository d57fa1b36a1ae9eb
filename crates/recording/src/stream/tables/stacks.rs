//! `stacks`, `frames`, `modules` and `names`: a stack's frames are numbers of frames, a frame's module
//! is the number of a module, and its functions' names come at the end of a run.

use std::{collections::HashSet, ops::Range, sync::Arc};

use arrow_array::{
    Array as _, StringArray, StructArray, UInt64Array,
    types::{UInt32Type, UInt64Type},
};

use super::{Rows, Table, required_code};
use crate::{
    AddressSpace, BuildId, Frame, FrameId, Function, Module, ModuleId, Segment, Stack, StackEnd,
    stream::{
        TableError,
        code::Code as _,
        column::{
            Column, Later, Lists, NumberList, OptionalText, OptionalU32, OptionalU64, Text,
            TextList, U8, U32, U64, columns,
        },
    },
    units::{StackId, Tgid},
};

/// Frames of a stack at most. Kernels give 127, or what `kernel.perf_event_max_stack` says.
const MAX_FRAMES: usize = 1024;
/// Functions of a frame at most: those inlined into each other at one address.
const MAX_FUNCTIONS: usize = 256;
/// Bytes of a function's name, and of its file's, at most. Longer ones are cut when they are looked up.
const MAX_NAME: usize = 8192;

columns! {
    StackColumns of row: (StackId, Stack) {
        id: U64 = row.0.0,
        tgid: OptionalU32 = tgid(row.1.space),
        frames: NumberList<UInt32Type> = row.1.frames.iter().map(|frame| frame.0).collect(),
        end: Later<U8> = row.1.end.code(),
    }
}

fn tgid(space: AddressSpace) -> Option<u32> {
    match space {
        AddressSpace::Kernel => None,
        AddressSpace::Process(tgid) => Some(tgid.0),
    }
}

impl Table for (StackId, Stack) {
    const NAME: &'static str = "stacks";

    fn columns(rows: &[Self]) -> Vec<Column> {
        StackColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = StackColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let tgid = columns.tgid.get(row).map(Tgid);
            let space = tgid.map_or(AddressSpace::Kernel, AddressSpace::Process);
            let (numbers, range) = columns.frames.at(row);
            if range.len() > MAX_FRAMES {
                return None;
            }
            let frames = range.map(|index| FrameId(numbers.value(index))).collect();
            let end = match &columns.end {
                Some(end) => required_code(end, row)?,
                None => StackEnd::Unknown,
            };
            Some((StackId(columns.id.at(row)), Stack { space, frames, end }))
        }))
    }
}

columns! {
    FrameColumns of row: (FrameId, Frame) {
        id: U32 = row.0.0,
        address: U64 = row.1.address,
        address_kind: U8 = row.1.kind.code(),
        module: OptionalU32 = row.1.module.map(|module| module.0),
        module_offset: OptionalU64 = row.1.module_offset,
    }
}

impl Table for (FrameId, Frame) {
    const NAME: &'static str = "frames";

    fn columns(rows: &[Self]) -> Vec<Column> {
        FrameColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = FrameColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let frame = Frame {
                address: columns.address.at(row),
                kind: required_code(&columns.address_kind, row)?,
                module: columns.module.get(row).map(ModuleId),
                module_offset: columns.module_offset.get(row),
                functions: Vec::new(),
            };
            Some((FrameId(columns.id.at(row)), frame))
        }))
    }
}

columns! {
    ModuleColumns of row: (ModuleId, Module) {
        id: U32 = row.0.0,
        path: Text = row.1.path.as_str(),
        build_id: OptionalText = row.1.build_id.as_ref().map(|id| id.to_string().into()),
        segment_offsets: NumberList<UInt64Type> =
            row.1.segments.iter().map(|segment| segment.offset).collect(),
        segment_addresses: NumberList<UInt64Type> =
            row.1.segments.iter().map(|segment| segment.address).collect(),
        segment_sizes: NumberList<UInt64Type> =
            row.1.segments.iter().map(|segment| segment.size).collect(),
    }
}

impl Table for (ModuleId, Module) {
    const NAME: &'static str = "modules";

    fn columns(rows: &[Self]) -> Vec<Column> {
        ModuleColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = ModuleColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let build_id = match columns.build_id.get(row) {
                None => None,
                Some(text) => Some(text.parse::<BuildId>().ok()?),
            };
            let segments = to_segments([
                columns.segment_offsets.at(row),
                columns.segment_addresses.at(row),
                columns.segment_sizes.at(row),
            ])?;
            let module = Module { path: columns.path.at(row), build_id, segments };
            Some((ModuleId(columns.id.at(row)), module))
        }))
    }
}

/// Segments from their offsets, addresses and sizes; none if those are not equally many.
fn to_segments(
    [offsets, addresses, sizes]: [(&UInt64Array, Range<usize>); 3],
) -> Option<Vec<Segment>> {
    let count = offsets.1.len();
    if addresses.1.len() != count || sizes.1.len() != count {
        return None;
    }
    let number =
        |(numbers, range): &(&UInt64Array, Range<usize>), n| numbers.value(range.start + n);
    let segment = |n| Segment {
        offset: number(&offsets, n),
        address: number(&addresses, n),
        size: number(&sizes, n),
    };
    Some((0..count).map(segment).collect())
}

/// A frame's functions, as found out at the end of a run.
pub(in super::super) type Named = (FrameId, Vec<Function>);

/// Of a function whose line is not known; they are counted from 1.
const NO_LINE: u32 = 0;

columns! {
    NameColumns of row: Named {
        frame: U32 = row.0.0,
        functions: TextList = row.1.iter().map(|function| function.name.as_str()).collect(),
        source_files: Later<TextList> =
            row.1.iter().map(|function| function.file.as_deref().unwrap_or_default()).collect(),
        source_lines: Later<NumberList<UInt32Type>> =
            row.1.iter().map(|function| function.line.unwrap_or(NO_LINE)).collect(),
    }
}

impl Table for Named {
    const NAME: &'static str = "names";

    fn columns(rows: &[Self]) -> Vec<Column> {
        NameColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = NameColumns::find(table)?;
        let mut shared = HashSet::new();
        Ok(Rows::collect(table.len(), |row| {
            let mut functions: Vec<_> =
                short_texts(&columns.functions, row)?.map(Function::named).collect();
            if let Some(files) = &columns.source_files {
                let files = short_texts(files, row)?;
                if files.len() != functions.len() {
                    return None;
                }
                for (function, file) in functions.iter_mut().zip(files) {
                    function.file = (!file.is_empty()).then(|| intern(&mut shared, file));
                }
            }
            if let Some(lines) = &columns.source_lines {
                let (lines, range) = lines.at(row);
                if range.len() != functions.len() {
                    return None;
                }
                for (function, index) in functions.iter_mut().zip(range) {
                    function.line = Some(lines.value(index)).filter(|line| *line != NO_LINE);
                }
            }
            Some((FrameId(columns.frame.at(row)), functions))
        }))
    }
}

/// The texts of a row; none if there are too many, or one is too long.
fn short_texts<'a>(
    lists: &Lists<'a, StringArray>,
    row: usize,
) -> Option<impl ExactSizeIterator<Item = &'a str>> {
    let (texts, range) = lists.at(row);
    let is_short = |index: usize| texts.value(index).len() <= MAX_NAME;
    let is_one = range.len() <= MAX_FUNCTIONS && range.clone().all(is_short);
    is_one.then(|| range.map(|index| texts.value(index)))
}

/// One text for all that are equal.
fn intern(shared: &mut HashSet<Arc<str>>, text: &str) -> Arc<str> {
    if let Some(known) = shared.get(text) {
        return Arc::clone(known);
    }
    let new: Arc<str> = text.into();
    shared.insert(Arc::clone(&new));
    new
}
