//! `loss`: what was lost since the window opened, a row for each kind that is not 0.

use std::collections::BTreeMap;

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    LossTotals,
    stream::{
        TableError,
        column::{Column, Flag, OptionalTime, Text, U64, columns},
    },
    units::Timestamp,
};

/// One kind of loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossRow {
    /// What was lost.
    pub name: String,
    /// Whether it sums up other rows.
    pub is_total: bool,
    /// How much.
    pub count: u64,
    /// When for the first time, if that was noted.
    pub first: Option<Timestamp>,
    /// When for the last time.
    pub last: Option<Timestamp>,
}

const RECORDS: &str = "records";
const STACKS: &str = "stacks";
const UNDECODABLE: &str = "undecodable";
const OVER_MEMORY: &str = "over_memory";
const RING_FULL: &str = "ring_full";

/// As rows.
pub fn loss_rows(totals: &LossTotals) -> Vec<LossRow> {
    let row = |name: &str, count, is_total| LossRow {
        name: name.to_owned(),
        is_total,
        count,
        first: None,
        last: None,
    };
    let sums = [
        (RECORDS, totals.records),
        (STACKS, totals.stacks),
        (UNDECODABLE, totals.undecodable),
        (OVER_MEMORY, totals.over_memory),
    ];
    let mut rows: Vec<LossRow> = (sums.into_iter())
        .filter(|&(_, count)| count > 0)
        .map(|(name, count)| row(name, count, true))
        .collect();
    if let Some((first, last)) = totals.ring_full {
        let (first, last) = (Some(first), Some(last));
        rows.push(LossRow { first, last, ..row(RING_FULL, totals.records, true) });
    }
    rows.extend(totals.counters.iter().map(|(name, count)| row(name, *count, false)));
    rows
}

/// Back from rows.
pub(in super::super) fn loss_totals(rows: Vec<LossRow>) -> LossTotals {
    let mut totals = LossTotals::default();
    let mut counters = BTreeMap::new();
    for LossRow { name, is_total, count, first, last } in rows {
        match name.as_str() {
            RECORDS if is_total => totals.records = count,
            STACKS if is_total => totals.stacks = count,
            UNDECODABLE if is_total => totals.undecodable = count,
            OVER_MEMORY if is_total => totals.over_memory = count,
            RING_FULL if is_total => totals.ring_full = first.zip(last),
            _ => {
                counters.insert(name, count);
            }
        }
    }
    totals.counters = counters;
    totals
}

columns! {
    LossColumns of row: LossRow {
        name: Text = row.name.as_str(),
        is_total: Flag = row.is_total,
        count: U64 = row.count,
        first_ns: OptionalTime = row.first.map(|at| at.0),
        last_ns: OptionalTime = row.last.map(|at| at.0),
    }
}

impl Table for LossRow {
    const NAME: &'static str = "loss";

    fn columns(rows: &[Self]) -> Vec<Column> {
        LossColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = LossColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                name: columns.name.at(row),
                is_total: columns.is_total.at(row),
                count: columns.count.at(row),
                first: columns.first_ns.get(row).map(Timestamp),
                last: columns.last_ns.get(row).map(Timestamp),
            })
        }))
    }
}
