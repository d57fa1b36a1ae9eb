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
    /// What it takes to read objects of Java; none if something of that is missing.
    pub(super) heap: Option<HeapStructs>,
}

/// Where objects of Java have their class, and classes what they say of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeapStructs {
    pub(super) thread_object: ThreadObject,
    /// `oopDesc::_metadata._klass`
    pub(super) class: u64,
    /// `Klass::_name`
    pub(super) class_name: u64,
    /// `Klass::_super`
    pub(super) superclass: u64,
    /// `InstanceKlass::_constants`
    pub(super) constants: u64,
    /// Where a pool of constants has the first one: after the structure `ConstantPool`.
    pub(super) first_constant: u64,
    pub(super) fields: FieldTable,
    /// `Array<int>::_length`, the same for all arrays.
    pub(super) array_length: u64,
    /// `Symbol::_length`
    pub(super) name_length: u64,
    /// `Symbol::_body`
    pub(super) name_text: u64,
    pub(super) narrow_objects: NarrowPointers,
    pub(super) narrow_classes: NarrowPointers,
}

/// Where a `JavaThread` has its object of `java.lang.Thread` (`_threadObj`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadObject {
    /// There is its address: before JDK 16.
    Address(u64),
    /// There is the address of a place that has its address.
    Handle { handle: u64 },
}

/// How an `InstanceKlass` says what fields its class has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldTable {
    /// `_fields`, an array of `u2`, and `_java_fields_count`: before JDK 21.
    Array { fields: u64, count: u64, data: u64 },
    /// `_fieldinfo_stream`, packed numbers.
    Stream { stream: u64, data: u64 },
}

/// The addresses of the variables that say how a pointer of 32 bits becomes an address: shifted left, and
/// added to the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NarrowPointers {
    pub(super) base: u64,
    pub(super) shift: u64,
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
    (THREAD, "_threadObj"),
    (&["OopHandle"], "_obj"),
    (&["oopDesc"], "_metadata._klass"),
    (&["Klass"], "_name"),
    (&["Klass"], "_super"),
    (&["InstanceKlass"], "_constants"),
    (&["InstanceKlass"], "_fields"),
    (&["InstanceKlass"], "_java_fields_count"),
    (&["InstanceKlass"], "_fieldinfo_stream"),
    (&["Array<u2>"], "_data"),
    (&["Array<u1>"], "_data"),
    (&["Array<int>"], "_length"),
    (&["Symbol"], "_length"),
    (&["Symbol"], "_body[0]"),
    (&["Symbol"], "_body"),
    (NARROW_OBJECTS, "_narrow_oop._base"),
    (NARROW_OBJECTS, "_narrow_oop._shift"),
    (NARROW_CLASSES, "_narrow_klass._base"),
    (NARROW_CLASSES, "_narrow_klass._shift"),
    (&["CompressedOops"], "_base"),
    (&["CompressedOops"], "_shift"),
    (&["CompressedKlassPointers"], "_base"),
    (&["CompressedKlassPointers"], "_shift"),
];
/// Fields have moved from one to the other.
const THREAD: &[&str] = &["JavaThread", "Thread"];
/// `Universe` had both before JDK 13.
const NARROW_OBJECTS: &[&str] = &["CompressedOops", "Universe"];
const NARROW_CLASSES: &[&str] = &["CompressedKlassPointers", "Universe"];
/// What `_owner` is if it is a number.
const NUMBER: &str = "int64_t";
/// What `_threadObj` is if it leads to a place that has the object.
const HANDLE: &str = "OopHandle";

/// What an entry says of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Where the field is in its structure.
    Offset(u64),
    /// Where the variable is.
    Address(u64),
}

/// What a field is, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldType {
    Number,
    Handle,
    Other,
}

/// What was found of each of [`FIELDS`].
type Found = [Option<(Place, FieldType)>; FIELDS.len()];

impl JvmStructs {
    /// Reads the table; `find` finds the JVM's exported symbols.
    pub(super) fn read(memory: &impl Memory, find: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let number =
            |name: &str| read_number(memory, &find, &format!("gHotSpotVMStructEntry{name}"));
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
            let Some(begin) = memory.word(field) else { continue };
            let is_wanted = |(owners, name): &(&[&str], &str)| {
                begins_with(begin, name)
                    && has_text(memory, field, name)
                    && owners.iter().any(|wanted| has_text(memory, owner, wanted))
            };
            let Some(wanted) = FIELDS.iter().position(is_wanted) else { continue };
            let place = match memory.half(entry.checked_add(layout.is_static)?)? {
                0 => Place::Offset(at(layout.offset)?),
                _ => Place::Address(at(layout.address)?),
            };
            let text = at(layout.type_text)?;
            let field_type = match () {
                () if has_text(memory, text, NUMBER) => FieldType::Number,
                () if has_text(memory, text, HANDLE) => FieldType::Handle,
                () => FieldType::Other,
            };
            *found.get_mut(wanted)? = Some((place, field_type));
        }
        let pool = find_type_size(memory, &find, "ConstantPool");
        Self::from_found(&found, pool)
    }

    /// `constant_pool` is how long the structure of that name is.
    fn from_found(found: &Found, constant_pool: Option<u64>) -> Option<Self> {
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
        let owner_form = match get("_owner", "ObjectMonitor")?.1 {
            FieldType::Number => OwnerForm::Id(offset("JavaThread", "_monitor_owner_id")?),
            FieldType::Handle | FieldType::Other => OwnerForm::Address { stack: stack() },
        };
        let narrow = |owner: &str, base: &str, shift: &str| {
            Some(NarrowPointers { base: address(owner, base)?, shift: address(owner, shift)? })
        };
        let heap = || {
            let thread_object = offset("JavaThread", "_threadObj")?;
            let fields = match offset("InstanceKlass", "_fieldinfo_stream") {
                Some(stream) => FieldTable::Stream { stream, data: offset("Array<u1>", "_data")? },
                None => FieldTable::Array {
                    fields: offset("InstanceKlass", "_fields")?,
                    count: offset("InstanceKlass", "_java_fields_count")?,
                    data: offset("Array<u2>", "_data")?,
                },
            };
            Some(HeapStructs {
                thread_object: match get("_threadObj", "JavaThread")?.1 {
                    FieldType::Handle => ThreadObject::Handle {
                        handle: thread_object + offset("OopHandle", "_obj")?,
                    },
                    FieldType::Number | FieldType::Other => ThreadObject::Address(thread_object),
                },
                class: offset("oopDesc", "_metadata._klass")?,
                class_name: offset("Klass", "_name")?,
                superclass: offset("Klass", "_super")?,
                constants: offset("InstanceKlass", "_constants")?,
                first_constant: constant_pool.filter(|&size| size < MAX_OFFSET)?,
                fields,
                array_length: offset("Array<int>", "_length")?,
                name_length: offset("Symbol", "_length")?,
                name_text: offset("Symbol", "_body[0]").or_else(|| offset("Symbol", "_body"))?,
                narrow_objects: narrow("CompressedOops", "_narrow_oop._base", "_narrow_oop._shift")
                    .or_else(|| narrow("CompressedOops", "_base", "_shift"))?,
                narrow_classes: narrow(
                    "CompressedKlassPointers",
                    "_narrow_klass._base",
                    "_narrow_klass._shift",
                )
                .or_else(|| narrow("CompressedKlassPointers", "_base", "_shift"))?,
            })
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
            heap: heap(),
        })
    }
}

/// Reads a number that says how a table is laid out: within an entry, or how long one is.
fn read_number(
    memory: &impl Memory,
    find: impl Fn(&str) -> Option<u64>,
    symbol: &str,
) -> Option<u64> {
    let value = memory.word(find(symbol)?)?;
    (value <= MAX_ENTRY).then_some(value)
}

/// Returns whether a text of C that begins with these eight bytes may be `text`. To compare all entries with
/// all wanted fields as a whole would take longer than all else.
fn begins_with(begin: u64, text: &str) -> bool {
    let bytes = begin.to_le_bytes();
    bytes.iter().zip(text.bytes().chain([0])).all(|(&byte, wanted)| byte == wanted)
}

/// Finds how long a structure is, by the other table that the JVM exports: `gHotSpotVMTypes`.
fn find_type_size(
    memory: &impl Memory,
    find: impl Fn(&str) -> Option<u64>,
    name: &str,
) -> Option<u64> {
    let number = |name: &str| read_number(memory, &find, &format!("gHotSpotVMTypeEntry{name}"));
    let stride = number("ArrayStride").filter(|&stride| stride > 0)?;
    let (type_name, size) = (number("TypeNameOffset")?, number("SizeOffset")?);
    let table = memory.word(find("gHotSpotVMTypes")?)?;
    (0..MAX_ENTRIES)
        .map_while(|index| {
            let entry = table.checked_add(index.checked_mul(stride)?)?;
            let text = memory.word(entry.checked_add(type_name)?)?;
            (text != 0).then_some((entry, text))
        })
        .find(|&(_, text)| has_text(memory, text, name))
        .and_then(|(entry, _)| memory.word(entry.checked_add(size)?))
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
