//! `waits`: one row a wait.

use arrow_array::{
    Array as _, StructArray,
    types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type},
};

use super::{Rows, Table, file_id, from_stack, optional_code, required_code, to_stack, to_syscall};
use crate::{
    FileId, SyscallTable, TaskState, ThreadRef, Wait, Wake,
    stream::{
        TableError,
        code::{self, Code as _},
        column::{
            Column, Flags, Numbers, Sixes, Times, flags, if_there, numbers, optional,
            optional_times, sixes, times,
        },
    },
    units::{CgroupId, Cpu, Nanos, Tgid, Tid, Timestamp},
};

impl Table for Wait {
    const NAME: &'static str = "waits";

    fn columns(rows: &[Self]) -> Vec<Column> {
        let wakes = || rows.iter().map(|wait| wait.wake.as_ref());
        let calls = || rows.iter().map(|wait| wait.syscall.as_ref());
        let waker_calls = || wakes().map(|wake| wake.and_then(|wake| wake.syscall.as_ref()));
        let waker_files = || wakes().map(|wake| wake.and_then(|wake| wake.file));
        let is_compat = |table: SyscallTable| table == SyscallTable::Compat;
        vec![
            numbers::<UInt32Type>("tid", rows.iter().map(|wait| wait.tid.0)),
            numbers::<UInt32Type>("tgid", rows.iter().map(|wait| wait.tgid.0)),
            numbers::<UInt8Type>("thread_kind", rows.iter().map(|wait| wait.kind.code())),
            flags("in_target", rows.iter().map(|wait| wait.in_target)),
            numbers::<UInt32Type>("seq", rows.iter().map(|wait| wait.seq)),
            numbers::<UInt8Type>("begin", rows.iter().map(|wait| wait.begin.code())),
            numbers::<UInt8Type>("end", rows.iter().map(|wait| wait.end.code())),
            times("off_ns", rows.iter().map(|wait| wait.off.0)),
            optional_times("wake_ns", wakes().map(|wake| wake.map(|wake| wake.at.0))),
            times("on_ns", rows.iter().map(|wait| wait.on.0)),
            optional_times("migrated_ns", rows.iter().map(|w| w.migrated.map(|at| at.0))),
            numbers::<UInt16Type>("off_cpu", rows.iter().map(|wait| wait.off_cpu.0)),
            numbers::<UInt16Type>("on_cpu", rows.iter().map(|wait| wait.on_cpu.0)),
            numbers::<UInt32Type>("state", rows.iter().map(|wait| wait.state.0)),
            optional::<UInt32Type>("syscall", calls().map(|call| call.map(|call| call.number))),
            flags("syscall_compat", calls().map(|c| c.is_some_and(|c| is_compat(c.table)))),
            sixes("args", calls().map(|call| call.map_or([0; 6], |call| call.args))),
            optional_times("timeout_ns", rows.iter().map(|w| w.timeout.map(|t| t.0))),
            optional::<UInt32Type>("file_device", rows.iter().map(|w| w.file.map(|f| f.device))),
            optional::<UInt64Type>("file_inode", rows.iter().map(|w| w.file.map(|f| f.inode))),
            optional::<UInt8Type>("file_kind", rows.iter().map(|w| w.file.map(|f| f.kind.code()))),
            numbers::<UInt64Type>("cgroup", rows.iter().map(|wait| wait.cgroup.0)),
            optional::<UInt64Type>("user_stack", rows.iter().map(|w| from_stack(w.user_stack))),
            optional::<UInt64Type>("kernel_stack", rows.iter().map(|w| from_stack(w.kernel_stack))),
            optional::<UInt8Type>(
                "wake_context",
                wakes().map(|wake| wake.map(|wake| code::split(wake.context).0.code())),
            ),
            numbers::<UInt16Type>(
                "wake_vector",
                wakes().map(|wake| wake.map_or(0, |wake| code::split(wake.context).1)),
            ),
            numbers::<UInt16Type>("wake_cpu", wakes().map(|wake| wake.map_or(0, |w| w.cpu.0))),
            numbers::<UInt32Type>(
                "waker_tid",
                wakes().map(|wake| wake.map_or(0, |wake| wake.current.tid.0)),
            ),
            numbers::<UInt32Type>(
                "waker_tgid",
                wakes().map(|wake| wake.map_or(0, |wake| wake.current.tgid.0)),
            ),
            numbers::<UInt8Type>(
                "waker_kind",
                wakes().map(|wake| wake.map_or(0, |wake| wake.current_kind.code())),
            ),
            optional::<UInt32Type>(
                "waker_seq",
                wakes().map(|wake| wake.and_then(|wake| wake.current_seq)),
            ),
            optional::<UInt32Type>("waker_syscall", waker_calls().map(|c| c.map(|c| c.number))),
            flags(
                "waker_syscall_compat",
                waker_calls().map(|c| c.is_some_and(|c| is_compat(c.table))),
            ),
            sixes("waker_args", waker_calls().map(|call| call.map_or([0; 6], |call| call.args))),
            optional::<UInt32Type>("waker_file_device", waker_files().map(|f| f.map(|f| f.device))),
            optional::<UInt64Type>("waker_file_inode", waker_files().map(|f| f.map(|f| f.inode))),
            optional::<UInt8Type>(
                "waker_file_kind",
                waker_files().map(|f| f.map(|f| f.kind.code())),
            ),
            optional::<UInt64Type>(
                "waker_user_stack",
                wakes().map(|wake| wake.and_then(|wake| from_stack(wake.user_stack))),
            ),
            optional::<UInt64Type>(
                "waker_kernel_stack",
                wakes().map(|wake| wake.and_then(|wake| from_stack(wake.kernel_stack))),
            ),
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
        let state = Numbers::<UInt32Type>::find(table, "state")?;
        let syscall = Numbers::<UInt32Type>::find(table, "syscall")?;
        let compat = Flags::find(table, "syscall_compat")?;
        let args = Sixes::find(table, "args")?;
        let timeout = Times::find(table, "timeout_ns")?;
        let files = Files::find(table, ["file_device", "file_inode", "file_kind"])?;
        let cgroup = Numbers::<UInt64Type>::find(table, "cgroup")?;
        let user_stack = Numbers::<UInt64Type>::find(table, "user_stack")?;
        let kernel_stack = Numbers::<UInt64Type>::find(table, "kernel_stack")?;
        let wakes = Wakes::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Wait {
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
                state: TaskState(state.at(row)),
                syscall: to_syscall(syscall.get(row), compat.at(row), || args.at(row)),
                timeout: timeout.get(row).map(Nanos),
                file: files.at(row)?,
                cgroup: CgroupId(cgroup.at(row)),
                user_stack: to_stack(user_stack.get(row)),
                kernel_stack: to_stack(kernel_stack.get(row)),
                wake: wakes.at(row)?,
            })
        }))
    }
}

/// The columns of the files that syscalls were about.
struct Files<'a> {
    device: Numbers<'a, UInt32Type>,
    inode: Numbers<'a, UInt64Type>,
    kind: Numbers<'a, UInt8Type>,
}

impl<'a> Files<'a> {
    /// Finds them by the names of device, inode and kind.
    fn find(
        table: &'a StructArray,
        [device, inode, kind]: [&'static str; 3],
    ) -> Result<Self, TableError> {
        Ok(Self {
            device: Numbers::find(table, device)?,
            inode: Numbers::find(table, inode)?,
            kind: Numbers::find(table, kind)?,
        })
    }

    /// The file in a row; `None` outside if it can't be read.
    #[expect(clippy::option_option, reason = "absent and unreadable are two things")]
    fn at(&self, row: usize) -> Option<Option<FileId>> {
        let kind = optional_code(&self.kind, row)?;
        Some(kind.map(|kind| file_id(self.device.at(row), self.inode.at(row), kind)))
    }
}

/// The columns of the wakes.
struct Wakes<'a> {
    at: Times<'a>,
    context: Numbers<'a, UInt8Type>,
    vector: Numbers<'a, UInt16Type>,
    cpu: Numbers<'a, UInt16Type>,
    tid: Numbers<'a, UInt32Type>,
    tgid: Numbers<'a, UInt32Type>,
    kind: Numbers<'a, UInt8Type>,
    seq: Option<Numbers<'a, UInt32Type>>,
    syscall: Numbers<'a, UInt32Type>,
    compat: Flags<'a>,
    args: Sixes<'a>,
    files: Option<Files<'a>>,
    user_stack: Numbers<'a, UInt64Type>,
    kernel_stack: Numbers<'a, UInt64Type>,
}

impl<'a> Wakes<'a> {
    fn find(table: &'a StructArray) -> Result<Self, TableError> {
        Ok(Self {
            at: Times::find(table, "wake_ns")?,
            context: Numbers::find(table, "wake_context")?,
            vector: Numbers::find(table, "wake_vector")?,
            cpu: Numbers::find(table, "wake_cpu")?,
            tid: Numbers::find(table, "waker_tid")?,
            tgid: Numbers::find(table, "waker_tgid")?,
            kind: Numbers::find(table, "waker_kind")?,
            seq: if_there(Numbers::find(table, "waker_seq"))?,
            syscall: Numbers::find(table, "waker_syscall")?,
            compat: Flags::find(table, "waker_syscall_compat")?,
            args: Sixes::find(table, "waker_args")?,
            files: if_there(Files::find(
                table,
                ["waker_file_device", "waker_file_inode", "waker_file_kind"],
            ))?,
            user_stack: Numbers::find(table, "waker_user_stack")?,
            kernel_stack: Numbers::find(table, "waker_kernel_stack")?,
        })
    }

    /// The wake in a row; `None` outside if it can't be read.
    fn at(&self, row: usize) -> Option<Option<Wake>> {
        let Some(at) = self.at.get(row) else { return Some(None) };
        let kind = optional_code(&self.context, row)??;
        Some(Some(Wake {
            at: Timestamp(at),
            context: code::join(kind, self.vector.at(row))?,
            cpu: Cpu(self.cpu.at(row)),
            current: ThreadRef { tid: Tid(self.tid.at(row)), tgid: Tgid(self.tgid.at(row)) },
            current_kind: required_code(&self.kind, row)?,
            current_seq: self.seq.as_ref().and_then(|seq| seq.get(row)),
            syscall: to_syscall(self.syscall.get(row), self.compat.at(row), || self.args.at(row)),
            file: match &self.files {
                Some(files) => files.at(row)?,
                None => None,
            },
            user_stack: to_stack(self.user_stack.get(row)),
            kernel_stack: to_stack(self.kernel_stack.get(row)),
        }))
    }
}
