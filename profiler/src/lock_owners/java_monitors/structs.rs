//! Where a JVM keeps its threads and monitors, by the table that it exports for debuggers:
//! `gHotSpotVMStructs`
//! ([`vmStructs.hpp`](https://github.com/openjdk/jdk17u/blob/jdk-17.0.15%2B6/src/hotspot/share/runtime/vmStructs.hpp)).
//!
//! ```text
//! entry   "ObjectMonitor" "_owner" "void*" no 64 -           not static: an offset
//! entry   "ThreadsSMRSupport" "_java_thread_list" … yes - 0x7f…  static: an address
//! ```

use crate::symbols::python::memory::Memory;

use super::library::has_text;

/// Entries of the table that are read. JDK 17 has some 800.
const MAX_ENTRIES: u64 = 8_192;
/// Bytes of an entry at most.
const MAX_ENTRY: u64 = 256;
/// No structure that is read here is larger than this.
const MAX_OFFSET: u64 = 64 << 10;

/// Where a JVM keeps its threads and monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JvmStructs {
    pub(super) threads: ThreadList,
    /// `JavaThread::_osthread`
    pub(super) os_thread: u64,
    /// `OSThread::_thread_id`
    pub(super) thread_id: u64,
    /// `JavaThread::_current_pending_monitor`
    pub(super) pending_monitor: u64,
    /// `ObjectMonitor::_owner`
    pub(super) owner: u64,
    pub(super) owner_form: OwnerForm,
    /// `ObjectMonitor::_object`, the address of a place that has the object's.
    pub(super) object: Option<u64>,
    pub(super) lock_stack: Option<LockStackFields>,
}

/// The list of all Java threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadList {
    /// `ThreadsSMRSupport::_java_thread_list`, `ThreadsList::_length`, `ThreadsList::_threads`
    Array { list: u64, length: u64, threads: u64 },
    /// `Threads::_thread_list`, `JavaThread::_next`: before JDK 10.
    Linked { first: u64, next: u64 },
}

/// How a monitor names the thread that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerForm {
    /// By the address of the thread, or of a place on its stack.
    Address { stack: Option<StackFields> },
    /// By a number, which the thread has at this offset (`JavaThread::_monitor_owner_id`).
    Id(u64),
}

/// `JavaThread::_stack_base`, its highest address, and `_stack_size`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackFields {
    pub(super) base: u64,
    pub(super) size: u64,
}

/// The objects that a thread has locked: `LockStack::_top`, and the first of them, both from the
/// beginning of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockStackFields {
    pub(super) top: u64,
    pub(super) first: u64,
}

/// The fields that are wanted: a type, and a field of it.
const FIELDS: &[(&[&str], &str)] = &[
    (&["ThreadsSMRSupport"], "_java_thread_list"),
    (&["ThreadsList"], "_length"),
    (&["ThreadsList"], "_threads"),
    (&["Threads"], "_thread_list"),
    (THREAD, "_next"),
    (THREAD, "_osthread"),
    (&["OSThread"], "_thread_id"),
    (THREAD, "_current_pending_monitor"),
    (&["ObjectMonitor"], "_owner"),
    (&["ObjectMonitor"], "_object"),
    (THREAD, "_monitor_owner_id"),
    (THREAD, "_stack_base"),
    (THREAD, "_stack_size"),
    (THREAD, "_lock_stack"),
    (&["LockStack"], "_top"),
    (&["LockStack"], "_base[0]"),
];
/// Fields have moved from one to the other.
const THREAD: &[&str] = &["JavaThread", "Thread"];
/// What `_owner` is if it is a number.
const NUMBER: &str = "int64_t";

/// What an entry says of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Where the field is in its structure.
    Offset(u64),
    /// Where the variable is.
    Address(u64),
}

/// What was found of each of [`FIELDS`], and whether its type is a number.
type Found = [Option<(Place, bool)>; FIELDS.len()];

impl JvmStructs {
    /// Reads the table; `find` finds the JVM's exported symbols.
    pub(super) fn read(memory: &impl Memory, find: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let number = |name: &str| {
            let value = memory.word(find(&format!("gHotSpotVMStructEntry{name}"))?)?;
            (value <= MAX_ENTRY).then_some(value)
        };
        let layout = EntryLayout {
            stride: number("ArrayStride").filter(|&stride| stride > 0)?,
            type_name: number("TypeNameOffset")?,
            field_name: number("FieldNameOffset")?,
            type_text: number("TypeStringOffset")?,
            is_static: number("IsStaticOffset")?,
            offset: number("OffsetOffset")?,
            address: number("AddressOffset")?,
        };
        let table = memory.word(find("gHotSpotVMStructs")?)?;
        let mut found: Found = [None; FIELDS.len()];
        for index in 0..MAX_ENTRIES {
            let entry = table.checked_add(index.checked_mul(layout.stride)?)?;
            let at = |offset: u64| memory.word(entry.checked_add(offset)?);
            let (owner, field) = (at(layout.type_name)?, at(layout.field_name)?);
            if owner == 0 {
                break;
            }
            let is_wanted = |(owners, name): &(&[&str], &str)| {
                has_text(memory, field, name)
                    && owners.iter().any(|wanted| has_text(memory, owner, wanted))
            };
            let Some(wanted) = FIELDS.iter().position(is_wanted) else { continue };
            let place = match memory.half(entry.checked_add(layout.is_static)?)? {
                0 => Place::Offset(at(layout.offset)?),
                _ => Place::Address(at(layout.address)?),
            };
            let is_number = has_text(memory, at(layout.type_text)?, NUMBER);
            *found.get_mut(wanted)? = Some((place, is_number));
        }
        Self::from_found(&found)
    }

    fn from_found(found: &Found) -> Option<Self> {
        let get = |field: &str, of: &str| {
            let place =
                FIELDS.iter().position(|(owners, name)| *name == field && owners.contains(&of))?;
            *found.get(place)?
        };
        let offset = |of: &str, field: &str| match get(field, of)?.0 {
            Place::Offset(offset) => (offset < MAX_OFFSET).then_some(offset),
            Place::Address(_) => None,
        };
        let address = |of: &str, field: &str| match get(field, of)?.0 {
            Place::Address(address) => Some(address),
            Place::Offset(_) => None,
        };
        let array = || {
            Some(ThreadList::Array {
                list: address("ThreadsSMRSupport", "_java_thread_list")?,
                length: offset("ThreadsList", "_length")?,
                threads: offset("ThreadsList", "_threads")?,
            })
        };
        let linked = || {
            let (first, next) =
                (address("Threads", "_thread_list")?, offset("JavaThread", "_next")?);
            Some(ThreadList::Linked { first, next })
        };
        let stack = || {
            let (base, size) =
                (offset("JavaThread", "_stack_base")?, offset("JavaThread", "_stack_size")?);
            Some(StackFields { base, size })
        };
        let lock_stack = || {
            let begin = offset("JavaThread", "_lock_stack")?;
            Some(LockStackFields {
                top: begin + offset("LockStack", "_top")?,
                first: begin + offset("LockStack", "_base[0]")?,
            })
        };
        let (_, is_number) = get("_owner", "ObjectMonitor")?;
        let owner_form = match is_number {
            true => OwnerForm::Id(offset("JavaThread", "_monitor_owner_id")?),
            false => OwnerForm::Address { stack: stack() },
        };
        Some(Self {
            threads: array().or_else(linked)?,
            os_thread: offset("JavaThread", "_osthread")?,
            thread_id: offset("OSThread", "_thread_id")?,
            pending_monitor: offset("JavaThread", "_current_pending_monitor")?,
            owner: offset("ObjectMonitor", "_owner")?,
            owner_form,
            object: offset("ObjectMonitor", "_object"),
            lock_stack: lock_stack(),
        })
    }
}

/// Where an entry of the table has what it says.
struct EntryLayout {
    stride: u64,
    type_name: u64,
    field_name: u64,
    type_text: u64,
    is_static: u64,
    offset: u64,
    address: u64,
}
