//! `preemptions`, `samples`, `threads` and `exits`: one row a record.

use arrow_array::{
    Array as _, StructArray,
    types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type},
};

use super::{Rows, Table, from_stack, required_code, to_stack};
use crate::{
    Preemption, Sample, ThreadEvent, ThreadExit,
    stream::{
        TableError,
        code::Code as _,
        column::{
            Column, Flags, Numbers, Texts, Times, flags, if_there, numbers, optional,
            optional_times, texts, times,
        },
    },
    units::{CgroupId, Cpu, Tgid, Tid, Timestamp},
};

impl Table for Preemption {
    const NAME: &'static str = "preemptions";

    fn columns(rows: &[Self]) -> Vec<Column> {
        vec![
            numbers::<UInt32Type>("tid", rows.iter().map(|row| row.tid.0)),
            numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
            numbers::<UInt8Type>("thread_kind", rows.iter().map(|row| row.kind.code())),
            flags("in_target", rows.iter().map(|row| row.in_target)),
            numbers::<UInt32Type>("seq", rows.iter().map(|row| row.seq)),
            numbers::<UInt8Type>("begin", rows.iter().map(|row| row.begin.code())),
            numbers::<UInt8Type>("end", rows.iter().map(|row| row.end.code())),
            times("off_ns", rows.iter().map(|row| row.off.0)),
            times("on_ns", rows.iter().map(|row| row.on.0)),
            optional_times("migrated_ns", rows.iter().map(|row| row.migrated.map(|at| at.0))),
            numbers::<UInt16Type>("off_cpu", rows.iter().map(|row| row.off_cpu.0)),
            numbers::<UInt16Type>("on_cpu", rows.iter().map(|row| row.on_cpu.0)),
            numbers::<UInt32Type>("next_tid", rows.iter().map(|row| row.next.0)),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let tid = Numbers::<UInt32Type>::find(table, "tid")?;
        let tgid = Numbers::<UInt32Type>::find(table, "tgid")?;
        let kind = Numbers::<UInt8Type>::find(table, "thread_kind")?;
        let in_target = Flags::find(table, "in_target")?;
        let seq = Numbers::<UInt32Type>::find(table, "seq")?;
        let begin = Numbers::<UInt8Type>::find(table, "begin")?;
        let end = Numbers::<UInt8Type>::find(table, "end")?;
        let off = Times::find(table, "off_ns")?;
        let on = Times::find(table, "on_ns")?;
        let migrated = if_there(Times::find(table, "migrated_ns"))?;
        let off_cpu = Numbers::<UInt16Type>::find(table, "off_cpu")?;
        let on_cpu = Numbers::<UInt16Type>::find(table, "on_cpu")?;
        let next = Numbers::<UInt32Type>::find(table, "next_tid")?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                tid: Tid(tid.at(row)),
                tgid: Tgid(tgid.at(row)),
                kind: required_code(&kind, row)?,
                in_target: in_target.at(row),
                seq: seq.at(row),
                begin: required_code(&begin, row)?,
                end: required_code(&end, row)?,
                off: Timestamp(off.at(row)),
                on: Timestamp(on.at(row)),
                migrated: migrated.as_ref().and_then(|at| at.get(row)).map(Timestamp),
                off_cpu: Cpu(off_cpu.at(row)),
                on_cpu: Cpu(on_cpu.at(row)),
                next: Tid(next.at(row)),
            })
        }))
    }
}

impl Table for Sample {
    const NAME: &'static str = "samples";

    fn columns(rows: &[Self]) -> Vec<Column> {
        vec![
            times("at_ns", rows.iter().map(|row| row.at.0)),
            numbers::<UInt16Type>("cpu", rows.iter().map(|row| row.cpu.0)),
            numbers::<UInt32Type>("tid", rows.iter().map(|row| row.tid.0)),
            numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
            optional::<UInt32Type>("seq", rows.iter().map(|row| row.seq)),
            optional::<UInt64Type>("user_stack", rows.iter().map(|s| from_stack(s.user_stack))),
            optional::<UInt64Type>("kernel_stack", rows.iter().map(|s| from_stack(s.kernel_stack))),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let at = Times::find(table, "at_ns")?;
        let cpu = Numbers::<UInt16Type>::find(table, "cpu")?;
        let tid = Numbers::<UInt32Type>::find(table, "tid")?;
        let tgid = Numbers::<UInt32Type>::find(table, "tgid")?;
        let seq = if_there(Numbers::<UInt32Type>::find(table, "seq"))?;
        let user_stack = Numbers::<UInt64Type>::find(table, "user_stack")?;
        let kernel_stack = Numbers::<UInt64Type>::find(table, "kernel_stack")?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                at: Timestamp(at.at(row)),
                cpu: Cpu(cpu.at(row)),
                tid: Tid(tid.at(row)),
                tgid: Tgid(tgid.at(row)),
                seq: seq.as_ref().and_then(|seq| seq.get(row)),
                user_stack: to_stack(user_stack.get(row)),
                kernel_stack: to_stack(kernel_stack.get(row)),
            })
        }))
    }
}

impl Table for ThreadEvent {
    const NAME: &'static str = "threads";

    fn columns(rows: &[Self]) -> Vec<Column> {
        vec![
            times("at_ns", rows.iter().map(|row| row.at.0)),
            numbers::<UInt8Type>("reason", rows.iter().map(|row| row.reason.code())),
            numbers::<UInt32Type>("tid", rows.iter().map(|row| row.tid.0)),
            numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
            numbers::<UInt32Type>("parent_tgid", rows.iter().map(|row| row.parent.0)),
            numbers::<UInt8Type>("thread_kind", rows.iter().map(|row| row.kind.code())),
            flags("in_target", rows.iter().map(|row| row.in_target)),
            numbers::<UInt8Type>("phase", rows.iter().map(|row| row.phase.code())),
            numbers::<UInt32Type>("seq", rows.iter().map(|row| row.seq)),
            times("created_ns", rows.iter().map(|row| row.created.0)),
            numbers::<UInt64Type>("cgroup", rows.iter().map(|row| row.cgroup.0)),
            texts("comm", rows.iter().map(|row| row.comm.as_str())),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let at = Times::find(table, "at_ns")?;
        let reason = Numbers::<UInt8Type>::find(table, "reason")?;
        let tid = Numbers::<UInt32Type>::find(table, "tid")?;
        let tgid = Numbers::<UInt32Type>::find(table, "tgid")?;
        let parent = Numbers::<UInt32Type>::find(table, "parent_tgid")?;
        let kind = Numbers::<UInt8Type>::find(table, "thread_kind")?;
        let in_target = Flags::find(table, "in_target")?;
        let phase = Numbers::<UInt8Type>::find(table, "phase")?;
        let seq = Numbers::<UInt32Type>::find(table, "seq")?;
        let created = Times::find(table, "created_ns")?;
        let cgroup = Numbers::<UInt64Type>::find(table, "cgroup")?;
        let comm = Texts::find(table, "comm")?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                at: Timestamp(at.at(row)),
                reason: required_code(&reason, row)?,
                tid: Tid(tid.at(row)),
                tgid: Tgid(tgid.at(row)),
                parent: Tgid(parent.at(row)),
                kind: required_code(&kind, row)?,
                in_target: in_target.at(row),
                phase: required_code(&phase, row)?,
                seq: seq.at(row),
                created: Timestamp(created.at(row)),
                cgroup: CgroupId(cgroup.at(row)),
                comm: comm.at(row),
            })
        }))
    }
}

impl Table for ThreadExit {
    const NAME: &'static str = "exits";

    fn columns(rows: &[Self]) -> Vec<Column> {
        vec![
            times("at_ns", rows.iter().map(|row| row.at.0)),
            numbers::<UInt32Type>("tid", rows.iter().map(|row| row.tid.0)),
            numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
            flags("in_target", rows.iter().map(|row| row.in_target)),
            numbers::<UInt32Type>("seq", rows.iter().map(|row| row.seq)),
            numbers::<UInt32Type>("status", rows.iter().map(|row| row.status)),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let at = Times::find(table, "at_ns")?;
        let tid = Numbers::<UInt32Type>::find(table, "tid")?;
        let tgid = Numbers::<UInt32Type>::find(table, "tgid")?;
        let in_target = Flags::find(table, "in_target")?;
        let seq = Numbers::<UInt32Type>::find(table, "seq")?;
        let status = Numbers::<UInt32Type>::find(table, "status")?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                at: Timestamp(at.at(row)),
                tid: Tid(tid.at(row)),
                tgid: Tgid(tgid.at(row)),
                in_target: in_target.at(row),
                seq: seq.at(row),
                status: status.at(row),
            })
        }))
    }
}
