//! `waits`: one row a wait.
//!
//! A new column is a line in `columns!`, as `Later`, and a field of [`Wait`], which
//! [`Waits`](crate::Waits) packs. It comes from `profiler-ebpf/src/record.rs` through
//! `profiler/src/decode/`, and goes to Parquet by `crates/analysis/src/export/tables/waits.rs`.

use arrow_array::{
    Array as _, StructArray,
    types::{UInt8Type, UInt32Type, UInt64Type},
};

use super::{Rows, Table, file_id, from_stack, optional_code, required_code, to_stack, to_syscall};
use crate::{
    FileId, PollEvents, ReadyFile, Syscall, SyscallTable, TaskState, ThreadRef, Wait, Wake,
    stream::{
        TableError,
        code::{self, Code as _},
        column::{
            Column, Flag, Later, Numbers, OptionalTime, OptionalU8, OptionalU32, OptionalU64,
            SixNumbers, Time, U8, U16, U32, U64, columns,
        },
    },
    units::{CgroupId, Cpu, Nanos, Tgid, Tid, Timestamp},
};

columns! {
    WaitColumns of row: Wait {
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        thread_kind: U8 = row.kind.code(),
        in_target: Flag = row.in_target,
        seq: U32 = row.seq,
        begin: U8 = row.begin.code(),
        end: U8 = row.end.code(),
        off_ns: Time = row.off.0,
        wake_ns: OptionalTime = row.wake.as_ref().map(|wake| wake.at.0),
        on_ns: Time = row.on.0,
        migrated_ns: Later<OptionalTime> = row.migrated.map(|at| at.0),
        off_cpu: U16 = row.off_cpu.0,
        on_cpu: U16 = row.on_cpu.0,
        state: U32 = row.state.0,
        syscall: OptionalU32 = row.syscall.as_ref().map(|call| call.number),
        syscall_compat: Flag = is_compat(row.syscall.as_ref()),
        args: SixNumbers = row.syscall.as_ref().map_or([0; 6], |call| call.args),
        timeout_ns: OptionalTime = row.timeout.map(|timeout| timeout.0),
        file_device: OptionalU32 = row.file.map(|file| file.device),
        file_inode: OptionalU64 = row.file.map(|file| file.inode),
        file_kind: OptionalU8 = row.file.map(|file| file.kind.code()),
        polled_fd: Later<OptionalU32> = row.polled_fd,
        polled_events: Later<OptionalU32> = row.polled_events.map(|events| events.0.into()),
        cgroup: U64 = row.cgroup.0,
        user_stack: OptionalU64 = from_stack(row.user_stack),
        kernel_stack: OptionalU64 = from_stack(row.kernel_stack),
        wake_context: OptionalU8 =
            row.wake.as_ref().map(|wake| code::split(wake.context).0.code()),
        wake_vector: U16 = row.wake.as_ref().map_or(0, |wake| code::split(wake.context).1),
        wake_cpu: U16 = row.wake.as_ref().map_or(0, |wake| wake.cpu.0),
        waker_tid: U32 = row.wake.as_ref().map_or(0, |wake| wake.current.tid.0),
        waker_tgid: U32 = row.wake.as_ref().map_or(0, |wake| wake.current.tgid.0),
        waker_kind: U8 = row.wake.as_ref().map_or(0, |wake| wake.current_kind.code()),
        waker_seq: Later<OptionalU32> = row.wake.as_ref().and_then(|wake| wake.current_seq),
        waker_syscall: OptionalU32 = waker_syscall(row).map(|call| call.number),
        waker_syscall_compat: Flag = is_compat(waker_syscall(row)),
        waker_args: SixNumbers = waker_syscall(row).map_or([0; 6], |call| call.args),
        waker_file_device: Later<OptionalU32> = waker_file(row).map(|file| file.device),
        waker_file_inode: Later<OptionalU64> = waker_file(row).map(|file| file.inode),
        waker_file_kind: Later<OptionalU8> = waker_file(row).map(|file| file.kind.code()),
        ready_fd: Later<OptionalU32> = ready_file(row).map(|ready| ready.descriptor),
        ready_file_device: Later<OptionalU32> = ready_file(row).map(|ready| ready.file.device),
        ready_file_inode: Later<OptionalU64> = ready_file(row).map(|ready| ready.file.inode),
        ready_file_kind: Later<OptionalU8> = ready_file(row).map(|ready| ready.file.kind.code()),
        waker_user_stack: OptionalU64 =
            row.wake.as_ref().and_then(|wake| from_stack(wake.user_stack)),
        waker_kernel_stack: OptionalU64 =
            row.wake.as_ref().and_then(|wake| from_stack(wake.kernel_stack)),
    }
}

fn is_compat(call: Option<&Syscall>) -> bool {
    call.is_some_and(|call| call.table == SyscallTable::Compat)
}

fn waker_syscall(wait: &Wait) -> Option<&Syscall> {
    wait.wake.as_ref()?.syscall.as_ref()
}

fn waker_file(wait: &Wait) -> Option<FileId> {
    wait.wake.as_ref()?.file
}

fn ready_file(wait: &Wait) -> Option<ReadyFile> {
    wait.wake.as_ref()?.ready
}

impl Table for Wait {
    const NAME: &'static str = "waits";

    fn columns(rows: &[Self]) -> Vec<Column> {
        WaitColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = WaitColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let migrated = columns.migrated_ns.as_ref().and_then(|at| at.get(row));
            let syscall = columns.syscall.get(row);
            Some(Wait {
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
                state: TaskState(columns.state.at(row)),
                syscall: to_syscall(syscall, columns.syscall_compat.at(row), || {
                    columns.args.at(row)
                }),
                timeout: columns.timeout_ns.get(row).map(Nanos),
                file: read_file(
                    (&columns.file_device, &columns.file_inode, &columns.file_kind),
                    row,
                )?,
                polled_fd: columns.polled_fd.as_ref().and_then(|fd| fd.get(row)),
                polled_events: (columns.polled_events.as_ref())
                    .and_then(|events| u16::try_from(events.get(row)?).ok())
                    .map(PollEvents),
                cgroup: CgroupId(columns.cgroup.at(row)),
                user_stack: to_stack(columns.user_stack.get(row)),
                kernel_stack: to_stack(columns.kernel_stack.get(row)),
                wake: columns.wake(row)?,
            })
        }))
    }
}

impl WaitColumns<'_> {
    /// Reads the wake in a row; `None` outside if it can't be read.
    #[expect(clippy::option_option, reason = "absent and unreadable are two things")]
    fn wake(&self, row: usize) -> Option<Option<Wake>> {
        let Some(at) = self.wake_ns.get(row) else { return Some(None) };
        let kind = optional_code(&self.wake_context, row)??;
        let syscall = self.waker_syscall.get(row);
        let file_columns = (&self.waker_file_device, &self.waker_file_inode, &self.waker_file_kind);
        Some(Some(Wake {
            at: Timestamp(at),
            context: code::join(kind, self.wake_vector.at(row))?,
            cpu: Cpu(self.wake_cpu.at(row)),
            current: ThreadRef {
                tid: Tid(self.waker_tid.at(row)),
                tgid: Tgid(self.waker_tgid.at(row)),
            },
            current_kind: required_code(&self.waker_kind, row)?,
            current_seq: self.waker_seq.as_ref().and_then(|seq| seq.get(row)),
            syscall: to_syscall(syscall, self.waker_syscall_compat.at(row), || {
                self.waker_args.at(row)
            }),
            file: read_later_file(file_columns, row)?,
            ready: self.ready(row)?,
            user_stack: to_stack(self.waker_user_stack.get(row)),
            kernel_stack: to_stack(self.waker_kernel_stack.get(row)),
        }))
    }

    /// Reads what made an `epoll` ready; `None` outside if it can't be read.
    #[expect(clippy::option_option, reason = "absent and unreadable are two things")]
    fn ready(&self, row: usize) -> Option<Option<ReadyFile>> {
        let file_columns = (&self.ready_file_device, &self.ready_file_inode, &self.ready_file_kind);
        let file = read_later_file(file_columns, row)?;
        let descriptor = self.ready_fd.as_ref().map(|descriptor| descriptor.at(row));
        Some(file.zip(descriptor).map(|(file, descriptor)| ReadyFile { descriptor, file }))
    }
}

/// The columns of a file: its device, its inode and its kind.
type FileColumns<'c, 't> =
    (&'c Numbers<'t, UInt32Type>, &'c Numbers<'t, UInt64Type>, &'c Numbers<'t, UInt8Type>);

/// Reads the file in a row; `None` outside if it can't be read.
#[expect(clippy::option_option, reason = "absent and unreadable are two things")]
fn read_file((device, inode, kind): FileColumns<'_, '_>, row: usize) -> Option<Option<FileId>> {
    let kind = optional_code(kind, row)?;
    Some(kind.map(|kind| file_id(device.at(row), inode.at(row), kind)))
}

/// The same where earlier versions did not write them.
type LaterFileColumns<'c, 't> = (
    &'c Option<Numbers<'t, UInt32Type>>,
    &'c Option<Numbers<'t, UInt64Type>>,
    &'c Option<Numbers<'t, UInt8Type>>,
);

/// Reads the file in a row, if its columns are there; `None` outside if it can't be read.
#[expect(clippy::option_option, reason = "absent and unreadable are two things")]
fn read_later_file(columns: LaterFileColumns<'_, '_>, row: usize) -> Option<Option<FileId>> {
    match columns {
        (Some(device), Some(inode), Some(kind)) => read_file((device, inode, kind), row),
        _ => Some(None),
    }
}
