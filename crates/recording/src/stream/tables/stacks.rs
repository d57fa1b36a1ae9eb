//! `stacks`, `frames`, `modules` and `names`: a stack's frames are numbers of frames, a frame's module
//! is the number of a module, and its functions' names come at the end of a run.

use std::{collections::HashSet, ops::Range, sync::Arc};

use arrow_array::{
    Array as _, StringArray, StructArray, UInt32Array, UInt64Array,
    types::{UInt8Type, UInt32Type, UInt64Type},
};

use super::{Rows, Table, required_code};
use crate::{
    AddressSpace, BuildId, Frame, FrameId, Function, Module, ModuleId, Segment, Stack, StackEnd,
    stream::{
        TableError,
        code::Code as _,
        column::{
            Column, Lists, Numbers, Texts, if_there, lists, numbers, optional, optional_texts,
            texts,
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

impl Table for (StackId, Stack) {
    const NAME: &'static str = "stacks";

    fn columns(rows: &[Self]) -> Vec<Column> {
        let frames = rows.iter().flat_map(|(_, stack)| stack.frames.iter().map(|frame| frame.0));
        vec![
            numbers::<UInt64Type>("id", rows.iter().map(|(id, _)| id.0)),
            optional::<UInt32Type>(
                "tgid",
                rows.iter().map(|(_, stack)| match stack.space {
                    AddressSpace::Kernel => None,
                    AddressSpace::Process(tgid) => Some(tgid.0),
                }),
            ),
            lists(
                "frames",
                rows.iter().map(|(_, stack)| stack.frames.len()),
                Arc::new(UInt32Array::from_iter_values(frames)),
            ),
            numbers::<UInt8Type>("end", rows.iter().map(|(_, stack)| stack.end.code())),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let id = Numbers::<UInt64Type>::find(table, "id")?;
        let tgid = Numbers::<UInt32Type>::find(table, "tgid")?;
        let frames = Lists::<UInt32Array>::find(table, "frames")?;
        let end = if_there(Numbers::<UInt8Type>::find(table, "end"))?;
        Ok(Rows::collect(table.len(), |row| {
            let space = tgid
                .get(row)
                .map_or(AddressSpace::Kernel, |tgid| AddressSpace::Process(Tgid(tgid)));
            let (numbers, range) = frames.at(row);
            if range.len() > MAX_FRAMES {
                return None;
            }
            let frames = range.map(|index| FrameId(numbers.value(index))).collect();
            let end = match &end {
                Some(end) => required_code(end, row)?,
                None => StackEnd::Unknown,
            };
            Some((StackId(id.at(row)), Stack { space, frames, end }))
        }))
    }
}

impl Table for (FrameId, Frame) {
    const NAME: &'static str = "frames";

    fn columns(rows: &[Self]) -> Vec<Column> {
        vec![
            numbers::<UInt32Type>("id", rows.iter().map(|(id, _)| id.0)),
            numbers::<UInt64Type>("address", rows.iter().map(|(_, frame)| frame.address)),
            numbers::<UInt8Type>("address_kind", rows.iter().map(|(_, frame)| frame.kind.code())),
            optional::<UInt32Type>("module", rows.iter().map(|(_, f)| f.module.map(|id| id.0))),
            optional::<UInt64Type>("module_offset", rows.iter().map(|(_, f)| f.module_offset)),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let id = Numbers::<UInt32Type>::find(table, "id")?;
        let address = Numbers::<UInt64Type>::find(table, "address")?;
        let kind = Numbers::<UInt8Type>::find(table, "address_kind")?;
        let module = Numbers::<UInt32Type>::find(table, "module")?;
        let offset = Numbers::<UInt64Type>::find(table, "module_offset")?;
        Ok(Rows::collect(table.len(), |row| {
            let frame = Frame {
                address: address.at(row),
                kind: required_code(&kind, row)?,
                module: module.get(row).map(ModuleId),
                module_offset: offset.get(row),
                functions: Vec::new(),
            };
            Some((FrameId(id.at(row)), frame))
        }))
    }
}

impl Table for (ModuleId, Module) {
    const NAME: &'static str = "modules";

    fn columns(rows: &[Self]) -> Vec<Column> {
        let build_ids: Vec<Option<String>> =
            rows.iter().map(|(_, m)| m.build_id.as_ref().map(ToString::to_string)).collect();
        vec![
            numbers::<UInt32Type>("id", rows.iter().map(|(id, _)| id.0)),
            texts("path", rows.iter().map(|(_, module)| module.path.as_str())),
            optional_texts("build_id", build_ids.iter().map(Option::as_deref)),
            build_segment_lists("segment_offsets", rows, |segment| segment.offset),
            build_segment_lists("segment_addresses", rows, |segment| segment.address),
            build_segment_lists("segment_sizes", rows, |segment| segment.size),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let id = Numbers::<UInt32Type>::find(table, "id")?;
        let path = Texts::find(table, "path")?;
        let build_id = Texts::find(table, "build_id")?;
        let offsets = Lists::<UInt64Array>::find(table, "segment_offsets")?;
        let addresses = Lists::<UInt64Array>::find(table, "segment_addresses")?;
        let sizes = Lists::<UInt64Array>::find(table, "segment_sizes")?;
        Ok(Rows::collect(table.len(), |row| {
            let build_id = match build_id.get(row) {
                None => None,
                Some(text) => Some(text.parse::<BuildId>().ok()?),
            };
            let of_row = [offsets.at(row), addresses.at(row), sizes.at(row)];
            let segments = to_segments(of_row)?;
            Some((ModuleId(id.at(row)), Module { path: path.at(row), build_id, segments }))
        }))
    }
}

fn build_segment_lists(
    name: &'static str,
    rows: &[(ModuleId, Module)],
    number: impl Fn(&Segment) -> u64,
) -> Column {
    let numbers = rows.iter().flat_map(|(_, module)| &module.segments).map(number);
    lists(
        name,
        rows.iter().map(|(_, module)| module.segments.len()),
        Arc::new(UInt64Array::from_iter_values(numbers)),
    )
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

impl Table for Named {
    const NAME: &'static str = "names";

    fn columns(rows: &[Self]) -> Vec<Column> {
        let functions = || rows.iter().flat_map(|(_, functions)| functions.iter());
        let counts = || rows.iter().map(|(_, functions)| functions.len());
        let names = functions().map(|function| function.name.as_str());
        let files = functions().map(|function| function.file.as_deref().unwrap_or_default());
        let lines = functions().map(|function| function.line.unwrap_or(NO_LINE));
        vec![
            numbers::<UInt32Type>("frame", rows.iter().map(|(id, _)| id.0)),
            lists("functions", counts(), Arc::new(StringArray::from_iter_values(names))),
            lists("source_files", counts(), Arc::new(StringArray::from_iter_values(files))),
            lists("source_lines", counts(), Arc::new(UInt32Array::from_iter_values(lines))),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let frame = Numbers::<UInt32Type>::find(table, "frame")?;
        let functions = Lists::<StringArray>::find(table, "functions")?;
        let files = if_there(Lists::<StringArray>::find(table, "source_files"))?;
        let lines = if_there(Lists::<UInt32Array>::find(table, "source_lines"))?;
        let mut shared = HashSet::new();
        Ok(Rows::collect(table.len(), |row| {
            let mut functions: Vec<_> = texts_of(&functions, row)?.map(Function::named).collect();
            if let Some(files) = &files {
                let files = texts_of(files, row)?;
                if files.len() != functions.len() {
                    return None;
                }
                for (function, file) in functions.iter_mut().zip(files) {
                    function.file = (!file.is_empty()).then(|| share(&mut shared, file));
                }
            }
            if let Some(lines) = &lines {
                let (lines, range) = lines.at(row);
                if range.len() != functions.len() {
                    return None;
                }
                for (function, index) in functions.iter_mut().zip(range) {
                    function.line = Some(lines.value(index)).filter(|line| *line != NO_LINE);
                }
            }
            Some((FrameId(frame.at(row)), functions))
        }))
    }
}

/// The texts of a row; none if there are too many, or one is too long.
fn texts_of<'a>(
    lists: &Lists<'a, StringArray>,
    row: usize,
) -> Option<impl ExactSizeIterator<Item = &'a str>> {
    let (texts, range) = lists.at(row);
    let is_short = |index: usize| texts.value(index).len() <= MAX_NAME;
    let is_one = range.len() <= MAX_FUNCTIONS && range.clone().all(is_short);
    is_one.then(|| range.map(|index| texts.value(index)))
}

/// One text for all that are equal.
fn share(shared: &mut HashSet<Arc<str>>, text: &str) -> Arc<str> {
    if let Some(known) = shared.get(text) {
        return Arc::clone(known);
    }
    let new: Arc<str> = text.into();
    shared.insert(Arc::clone(&new));
    new
}
