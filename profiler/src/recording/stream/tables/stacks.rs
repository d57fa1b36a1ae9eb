//! `stacks`, `frames`, `modules` and `names`: a stack's frames are numbers of frames, a frame's module
//! is the number of a module, and its functions' names come at the end of a run.

use std::sync::Arc;

use arrow_array::{
    Array as _, StringArray, StructArray, UInt32Array,
    types::{UInt8Type, UInt32Type, UInt64Type},
};

use super::{Rows, Table, required_code};
use crate::{
    recording::{
        AddressSpace, BuildId, Frame, FrameId, Module, ModuleId, Stack,
        stream::{
            TableError,
            code::Code as _,
            column::{
                Column, Lists, Numbers, Texts, lists, numbers, optional, optional_texts, texts,
            },
        },
    },
    units::{StackId, Tgid},
};

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
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let id = Numbers::<UInt64Type>::find(table, "id")?;
        let tgid = Numbers::<UInt32Type>::find(table, "tgid")?;
        let frames = Lists::<UInt32Array>::find(table, "frames")?;
        Ok(Rows::collect(table.len(), |row| {
            let space = tgid
                .get(row)
                .map_or(AddressSpace::Kernel, |tgid| AddressSpace::Process(Tgid(tgid)));
            let (numbers, range) = frames.at(row);
            let frames = range.map(|index| FrameId(numbers.value(index))).collect();
            Some((StackId(id.at(row)), Stack { space, frames }))
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
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let id = Numbers::<UInt32Type>::find(table, "id")?;
        let path = Texts::find(table, "path")?;
        let build_id = Texts::find(table, "build_id")?;
        Ok(Rows::collect(table.len(), |row| {
            let build_id = match build_id.get(row) {
                None => None,
                Some(text) => Some(text.parse::<BuildId>().ok()?),
            };
            Some((ModuleId(id.at(row)), Module { path: path.at(row), build_id }))
        }))
    }
}

/// A frame's functions, as found out at the end of a run.
pub(in super::super) type Named = (FrameId, Vec<String>);

impl Table for Named {
    const NAME: &'static str = "names";

    fn columns(rows: &[Self]) -> Vec<Column> {
        let functions = rows.iter().flat_map(|(_, functions)| functions.iter());
        vec![
            numbers::<UInt32Type>("frame", rows.iter().map(|(id, _)| id.0)),
            lists(
                "functions",
                rows.iter().map(|(_, functions)| functions.len()),
                Arc::new(StringArray::from_iter_values(functions)),
            ),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let frame = Numbers::<UInt32Type>::find(table, "frame")?;
        let functions = Lists::<StringArray>::find(table, "functions")?;
        Ok(Rows::collect(table.len(), |row| {
            let (texts, range) = functions.at(row);
            let functions = range.map(|index| texts.value(index).to_owned()).collect();
            Some((FrameId(frame.at(row)), functions))
        }))
    }
}
