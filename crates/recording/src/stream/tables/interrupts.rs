//! `interrupts`: whose devices' interrupts ended waits, a row each.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, optional_code};
use crate::{
    InterruptInfo,
    stream::{
        TableError,
        code::Code,
        column::{Column, OptionalU8, Text, U16, columns},
    },
};

columns! {
    InterruptColumns of row: InterruptInfo {
        number: U16 = row.number,
        device: OptionalU8 = row.device.map(Code::code),
        handlers: Text = row.handlers.as_str(),
    }
}

impl Table for InterruptInfo {
    const NAME: &'static str = "interrupts";

    fn columns(rows: &[Self]) -> Vec<Column> {
        InterruptColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = InterruptColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                number: columns.number.at(row),
                device: optional_code(&columns.device, row)?,
                handlers: columns.handlers.at(row),
            })
        }))
    }
}
