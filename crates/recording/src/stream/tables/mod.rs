//! One file a table, or a few small ones that belong together: its columns, and its rows back.

mod awaited_children;
mod detail;
mod disk_uses;
mod file_lock_events;
mod file_locks;
mod files;
mod filesystems;
mod fuse_servers;
mod interrupts;
mod io_limits;
mod lock_owners;
mod loss;
mod markers;
mod meta;
mod pipe_holders;
mod processes;
mod profiler_cost;
mod quotas;
mod records;
mod stacks;
mod stopped_threads;
mod summed;
mod tags;
mod unanswered;
mod waits;

use arrow_array::{ArrayRef, StructArray, types::UInt8Type};

pub(super) use loss::loss_totals;
pub use loss::{LossRow, loss_rows};
pub(super) use profiler_cost::{CostRow, cost_from_rows, cost_rows};
pub(super) use stacks::Named;

use super::{
    TableError,
    code::Code,
    column::{Column, Numbers, as_list, table},
};
use crate::{FileId, FileKind, StackRef, Syscall, SyscallTable, units::StackId};

/// Something that is stored as a row of a table.
pub(super) trait Table: Sized {
    /// The table's name: a column of every slice.
    const NAME: &'static str;

    /// Makes the table's columns from its rows.
    fn columns(rows: &[Self]) -> Vec<Column>;

    /// The rows back from a table.
    ///
    /// # Errors
    ///
    /// If a column is not there, or of another type.
    fn read(table: &StructArray) -> Result<Rows<Self>, TableError>;

    /// All rows as one cell.
    fn cell(rows: &[Self]) -> ArrayRef {
        as_list(table(Self::columns(rows)))
    }
}

/// The rows of a table, those aside that hold what can't be.
pub(super) struct Rows<T> {
    pub rows: Vec<T>,
    pub unreadable: u64,
}

impl<T> Rows<T> {
    /// Reads row by row; `None` for one that can't be read.
    pub(super) fn collect(count: usize, read: impl FnMut(usize) -> Option<T>) -> Self {
        let mut rows = Vec::with_capacity(count);
        rows.extend((0..count).filter_map(read));
        let unreadable = (count - rows.len()) as u64;
        Self { rows, unreadable }
    }
}

/// A stack as a number: none was taken (null), it could not be (0), its id.
fn from_stack(stack: StackRef) -> Option<u64> {
    match stack {
        StackRef::NotTaken => None,
        StackRef::Failed => Some(0),
        StackRef::Id(StackId(id)) => Some(id),
    }
}

fn to_stack(id: Option<u64>) -> StackRef {
    match id {
        None => StackRef::NotTaken,
        Some(0) => StackRef::Failed,
        Some(id) => StackRef::Id(StackId(id)),
    }
}

fn to_syscall(
    number: Option<u32>,
    compat: bool,
    args: impl FnOnce() -> [u64; 6],
) -> Option<Syscall> {
    let table = if compat { SyscallTable::Compat } else { SyscallTable::Native };
    number.map(|number| Syscall { table, number, args: args() })
}

fn file_id(device: u32, inode: u64, kind: FileKind) -> FileId {
    FileId { device, inode, kind }
}

fn required_code<T: Code>(column: &Numbers<'_, UInt8Type>, row: usize) -> Option<T> {
    T::from_code(column.at(row))
}

/// `None` outside: there is a code, and it stands for nothing.
#[expect(clippy::option_option, reason = "absent and unreadable are two things")]
fn optional_code<T: Code>(column: &Numbers<'_, UInt8Type>, row: usize) -> Option<Option<T>> {
    match column.get(row) {
        None => Some(None),
        Some(code) => T::from_code(code).map(Some),
    }
}
