//! `detail`: how much detail was recorded, one row for each stretch of time.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, required_code};
use crate::{
    DetailStretch,
    stream::{
        TableError,
        code::Code as _,
        column::{Column, OptionalTime, Time, U8, columns},
    },
    units::{Nanos, Timestamp},
};

columns! {
    DetailColumns of row: DetailStretch {
        from_ns: Time = row.from.0,
        until_ns: Time = row.until.0,
        step: U8 = row.step.code(),
        threshold_ns: OptionalTime = row.threshold.map(|threshold| threshold.0),
        kernel_cost_ns: Time = row.kernel_cost.0,
        own_cost_ns: Time = row.own_cost.0,
        cpu_time_ns: Time = row.cpu_time.0,
        limit_ns: OptionalTime = row.limit.map(|limit| limit.0),
    }
}

impl Table for DetailStretch {
    const NAME: &'static str = "detail";

    fn columns(rows: &[Self]) -> Vec<Column> {
        DetailColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = DetailColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                from: Timestamp(columns.from_ns.at(row)),
                until: Timestamp(columns.until_ns.at(row)),
                step: required_code(&columns.step, row)?,
                threshold: columns.threshold_ns.get(row).map(Nanos),
                kernel_cost: Nanos(columns.kernel_cost_ns.at(row)),
                own_cost: Nanos(columns.own_cost_ns.at(row)),
                cpu_time: Nanos(columns.cpu_time_ns.at(row)),
                limit: columns.limit_ns.get(row).map(Nanos),
            })
        }))
    }
}
