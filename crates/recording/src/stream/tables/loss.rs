//! `loss`: what was lost since the window opened, a row for each kind that is not 0.

use std::collections::BTreeMap;

use arrow_array::{Array as _, StructArray, types::UInt64Type};

use super::{Rows, Table};
use crate::{
    LossTotals,
    stream::{
        TableError,
        column::{Column, Flags, Numbers, Texts, Times, flags, numbers, optional_times, texts},
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
pub fn rows_of(totals: &LossTotals) -> Vec<LossRow> {
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
pub(in super::super) fn totals_of(rows: Vec<LossRow>) -> LossTotals {
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

impl Table for LossRow {
    const NAME: &'static str = "loss";

    fn columns(rows: &[Self]) -> Vec<Column> {
        vec![
            texts("name", rows.iter().map(|row| row.name.as_str())),
            flags("is_total", rows.iter().map(|row| row.is_total)),
            numbers::<UInt64Type>("count", rows.iter().map(|row| row.count)),
            optional_times("first_ns", rows.iter().map(|row| row.first.map(|at| at.0))),
            optional_times("last_ns", rows.iter().map(|row| row.last.map(|at| at.0))),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let name = Texts::find(table, "name")?;
        let is_total = Flags::find(table, "is_total")?;
        let count = Numbers::<UInt64Type>::find(table, "count")?;
        let first = Times::find(table, "first_ns")?;
        let last = Times::find(table, "last_ns")?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                name: name.at(row),
                is_total: is_total.at(row),
                count: count.at(row),
                first: first.get(row).map(Timestamp),
                last: last.get(row).map(Timestamp),
            })
        }))
    }
}
