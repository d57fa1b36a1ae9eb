//! `unanswered`: what did not answer since recording began, one row for each place or process.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, required_code};
use crate::{
    Unanswered,
    stream::{
        TableError,
        code::Code as _,
        column::{Column, OptionalU32, Text, U8, U64, columns},
    },
    units::Tgid,
};

columns! {
    UnansweredColumns of row: Unanswered {
        kind: U8 = row.kind.code(),
        place: Text = row.place.as_str(),
        tgid: OptionalU32 = row.tgid.map(|tgid| tgid.0),
        count: U64 = row.count,
    }
}

impl Table for Unanswered {
    const NAME: &'static str = "unanswered";

    fn columns(rows: &[Self]) -> Vec<Column> {
        UnansweredColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = UnansweredColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                kind: required_code(&columns.kind, row)?,
                place: columns.place.at(row),
                tgid: columns.tgid.get(row).map(Tgid),
                count: columns.count.at(row),
            })
        }))
    }
}
