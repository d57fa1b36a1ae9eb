//! `preemptions`, `samples`, `threads` and `exits`: one row a record.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, from_stack, required_code, to_stack};
use crate::{
    Preemption, Sample, ThreadEvent, ThreadExit,
    stream::{
        TableError,
        code::Code as _,
        column::{
            Column, Flag, Later, OptionalTime, OptionalU32, OptionalU64, Text, Time, U8, U16, U32,
            U64, columns,
        },
    },
    units::{CgroupId, Cpu, Tgid, Tid, Timestamp},
};

columns! {
    PreemptionColumns of row: Preemption {
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        thread_kind: U8 = row.kind.code(),
        in_target: Flag = row.in_target,
        seq: U32 = row.seq,
        begin: U8 = row.begin.code(),
        end: U8 = row.end.code(),
        off_ns: Time = row.off.0,
        on_ns: Time = row.on.0,
        migrated_ns: Later<OptionalTime> = row.migrated.map(|at| at.0),
        off_cpu: U16 = row.off_cpu.0,
        on_cpu: U16 = row.on_cpu.0,
        next_tid: U32 = row.next.0,
    }
}

impl Table for Preemption {
    const NAME: &'static str = "preemptions";

    fn columns(rows: &[Self]) -> Vec<Column> {
        PreemptionColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = PreemptionColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let migrated = columns.migrated_ns.as_ref().and_then(|at| at.get(row));
            Some(Self {
                tid: Tid(columns.tid.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                kind: required_code(&columns.thread_kind, row)?,
                in_target: columns.in_target.at(row),
                seq: columns.seq.at(row),
                begin: required_code(&columns.begin, row)?,
                end: required_code(&columns.end, row)?,
                off: Timestamp(columns.off_ns.at(row)),
                on: Timestamp(columns.on_ns.at(row)),
                migrated: migrated.map(Timestamp),
                off_cpu: Cpu(columns.off_cpu.at(row)),
                on_cpu: Cpu(columns.on_cpu.at(row)),
                next: Tid(columns.next_tid.at(row)),
            })
        }))
    }
}

columns! {
    SampleColumns of row: Sample {
        at_ns: Time = row.at.0,
        cpu: U16 = row.cpu.0,
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        seq: Later<OptionalU32> = row.seq,
        user_stack: OptionalU64 = from_stack(row.user_stack),
        kernel_stack: OptionalU64 = from_stack(row.kernel_stack),
    }
}

impl Table for Sample {
    const NAME: &'static str = "samples";

    fn columns(rows: &[Self]) -> Vec<Column> {
        SampleColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = SampleColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                at: Timestamp(columns.at_ns.at(row)),
                cpu: Cpu(columns.cpu.at(row)),
                tid: Tid(columns.tid.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                seq: columns.seq.as_ref().and_then(|seq| seq.get(row)),
                user_stack: to_stack(columns.user_stack.get(row)),
                kernel_stack: to_stack(columns.kernel_stack.get(row)),
            })
        }))
    }
}

columns! {
    ThreadEventColumns of row: ThreadEvent {
        at_ns: Time = row.at.0,
        reason: U8 = row.reason.code(),
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        parent_tgid: U32 = row.parent.0,
        thread_kind: U8 = row.kind.code(),
        in_target: Flag = row.in_target,
        phase: U8 = row.phase.code(),
        seq: U32 = row.seq,
        created_ns: Time = row.created.0,
        cgroup: U64 = row.cgroup.0,
        comm: Text = row.comm.as_str(),
        old_tid: Later<OptionalU32> = row.old_tid.map(|tid| tid.0),
    }
}

impl Table for ThreadEvent {
    const NAME: &'static str = "threads";

    fn columns(rows: &[Self]) -> Vec<Column> {
        ThreadEventColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = ThreadEventColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                at: Timestamp(columns.at_ns.at(row)),
                reason: required_code(&columns.reason, row)?,
                tid: Tid(columns.tid.at(row)),
                old_tid: columns.old_tid.as_ref().and_then(|tid| tid.get(row)).map(Tid),
                tgid: Tgid(columns.tgid.at(row)),
                parent: Tgid(columns.parent_tgid.at(row)),
                kind: required_code(&columns.thread_kind, row)?,
                in_target: columns.in_target.at(row),
                phase: required_code(&columns.phase, row)?,
                seq: columns.seq.at(row),
                created: Timestamp(columns.created_ns.at(row)),
                cgroup: CgroupId(columns.cgroup.at(row)),
                comm: columns.comm.at(row),
            })
        }))
    }
}

columns! {
    ExitColumns of row: ThreadExit {
        at_ns: Time = row.at.0,
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        in_target: Flag = row.in_target,
        seq: U32 = row.seq,
        status: U32 = row.status,
    }
}

impl Table for ThreadExit {
    const NAME: &'static str = "exits";

    fn columns(rows: &[Self]) -> Vec<Column> {
        ExitColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = ExitColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                at: Timestamp(columns.at_ns.at(row)),
                tid: Tid(columns.tid.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                in_target: columns.in_target.at(row),
                seq: columns.seq.at(row),
                status: columns.status.at(row),
            })
        }))
    }
}
