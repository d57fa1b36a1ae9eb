//! `effort`: what the kernel half did since the window opened, a row for each count.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    ProfilerCost,
    stream::{
        TableError,
        column::{Column, Text, U64, columns},
    },
};

/// One count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct CostRow {
    name: String,
    count: u64,
}

/// As rows.
pub(in super::super) fn cost_rows(profiler_cost: ProfilerCost) -> Vec<CostRow> {
    let row = |(name, count): (&str, u64)| CostRow { name: name.to_owned(), count };
    profiler_cost.named_counts().map(row).collect()
}

/// Back from rows.
pub(in super::super) fn cost_from_rows(rows: &[CostRow]) -> ProfilerCost {
    ProfilerCost::from_named_counts(rows.iter().map(|row| (row.name.as_str(), row.count)))
}

columns! {
    CostColumns of row: CostRow {
        name: Text = row.name.as_str(),
        count: U64 = row.count,
    }
}

impl Table for CostRow {
    const NAME: &'static str = "effort";

    fn columns(rows: &[Self]) -> Vec<Column> {
        CostColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = CostColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self { name: columns.name.at(row), count: columns.count.at(row) })
        }))
    }
}
