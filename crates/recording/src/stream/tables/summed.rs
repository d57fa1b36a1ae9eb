//! `summed`: short waits that were summed up where they happened, one row for each stretch of a thread's.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, required_code};
use crate::{
    SummedWaits,
    stream::{
        TableError,
        code::Code as _,
        column::{Column, Flag, Time, U8, U16, U32, columns},
    },
    units::{Cpu, Nanos, Tgid, Tid, Timestamp},
};

columns! {
    SummedColumns of row: SummedWaits {
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        thread_kind: U8 = row.kind.code(),
        in_target: Flag = row.in_target,
        seq: U32 = row.seq,
        waits: U32 = row.waits,
        preemptions: U32 = row.preemptions,
        from_ns: Time = row.from.0,
        until_ns: Time = row.until.0,
        off_cpu: U16 = row.off_cpu.0,
        on_cpu: U16 = row.on_cpu.0,
        blocked_ns: Time = row.blocked.0,
        runnable_ns: Time = row.runnable.0,
        longest_ns: Time = row.longest.0,
    }
}

impl Table for SummedWaits {
    const NAME: &'static str = "summed";

    fn columns(rows: &[Self]) -> Vec<Column> {
        SummedColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = SummedColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                tid: Tid(columns.tid.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                kind: required_code(&columns.thread_kind, row)?,
                in_target: columns.in_target.at(row),
                seq: columns.seq.at(row),
                waits: columns.waits.at(row),
                preemptions: columns.preemptions.at(row),
                from: Timestamp(columns.from_ns.at(row)),
                until: Timestamp(columns.until_ns.at(row)),
                off_cpu: Cpu(columns.off_cpu.at(row)),
                on_cpu: Cpu(columns.on_cpu.at(row)),
                blocked: Nanos(columns.blocked_ns.at(row)),
                runnable: Nanos(columns.runnable_ns.at(row)),
                longest: Nanos(columns.longest_ns.at(row)),
            })
        }))
    }
}
