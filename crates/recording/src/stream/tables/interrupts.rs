//! `interrupts`: whose devices' interrupts ended waits, a row each.

use arrow_array::{
    Array as _, StructArray,
    types::{UInt8Type, UInt16Type},
};

use super::{Rows, Table, optional_code};
use crate::{
    InterruptInfo,
    stream::{
        TableError,
        code::Code,
        column::{Column, Numbers, Texts, numbers, optional, texts},
    },
};

impl Table for InterruptInfo {
    const NAME: &'static str = "interrupts";

    fn columns(rows: &[Self]) -> Vec<Column> {
        vec![
            numbers::<UInt16Type>("number", rows.iter().map(|row| row.number)),
            optional::<UInt8Type>("device", rows.iter().map(|row| row.device.map(Code::code))),
            texts("handlers", rows.iter().map(|row| row.handlers.as_str())),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let number = Numbers::<UInt16Type>::find(table, "number")?;
        let device = Numbers::<UInt8Type>::find(table, "device")?;
        let handlers = Texts::find(table, "handlers")?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                number: number.at(row),
                device: optional_code(&device, row)?,
                handlers: handlers.at(row),
            })
        }))
    }
}
