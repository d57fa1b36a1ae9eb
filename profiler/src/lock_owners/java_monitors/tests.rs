//! JVMs by hand: their threads and monitors, and the table that says where those are.

use std::collections::BTreeMap;

use offwake_recording::LockKind;

use super::{
    super::layouts::NamedTid,
    Jvm, Pair, find_pairs,
    library::MappedLibrary,
    structs::{JvmStructs, LockStackFields, OwnerForm, StackFields, ThreadList},
};
use crate::symbols::python::memory::Memory;

/// Bytes by their addresses. What was never written can't be read.
#[derive(Default)]
pub(super) struct FakeMemory(BTreeMap<u64, u8>);

impl FakeMemory {
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) {
        self.0.extend((address..).zip(bytes.iter().copied()));
    }

    pub(super) fn write_word(&mut self, address: u64, word: u64) {
        self.write(address, &word.to_le_bytes());
    }

    /// Writes a text of C, and returns where.
    fn text(&mut self, address: u64, text: &str) -> u64 {
        self.write(address, text.as_bytes());
        // Longer texts are read with it.
        self.write(address + text.len() as u64, &[0; 64]);
        address
    }
}

impl Memory for FakeMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        for (index, byte) in (0..).zip(into) {
            *byte = *self.0.get(&address.checked_add(index)?)?;
        }
        Some(())
    }
}

const LIST: u64 = 0x1000;
const THREADS: [u64; 3] = [0x10_000, 0x20_000, 0x30_000];
const TIDS: [u32; 3] = [71, 72, 73];
const MONITORS: [u64; 2] = [0x50_000, 0x60_000];
const OBJECTS: [u64; 2] = [0xa000, 0xb000];

const STRUCTS: JvmStructs = JvmStructs {
    threads: ThreadList::Array { list: LIST, length: 4, threads: 16 },
    os_thread: 64,
    thread_id: 16,
    pending_monitor: 128,
    owner: 64,
    owner_form: OwnerForm::Address { stack: Some(StackFields { base: 200, size: 208 }) },
    object: Some(8),
    lock_stack: Some(LockStackFields { top: 304, first: 320 }),
    heap: None,
};

/// Three threads. None waits, and none has anything.
fn jvm() -> FakeMemory {
    let mut memory = FakeMemory::default();
    let (list, array) = (0x2000, 0x3000);
    memory.write_word(LIST, list);
    memory.write_word(list, (THREADS.len() as u64) << 32);
    memory.write_word(list + 16, array);
    for (index, (thread, tid)) in (0..).zip(THREADS.into_iter().zip(TIDS)) {
        memory.write_word(array + 8 * index, thread);
        let os_thread = thread + 0x8000;
        memory.write_word(thread + 64, os_thread);
        memory.write_word(os_thread + 16, tid.into());
        memory.write_word(thread + 128, 0);
        memory.write_word(thread + 200, stack_of(thread));
        memory.write_word(thread + 208, 0x1000);
        memory.write_word(thread + 256, 10 + index);
        memory.write_word(thread + 304, 320);
    }
    for (monitor, object) in MONITORS.into_iter().zip(OBJECTS) {
        memory.write_word(monitor + 64, 0);
        memory.write_word(monitor + 8, monitor + 0x800);
        memory.write_word(monitor + 0x800, object);
    }
    memory
}

/// Where a thread's stack ends.
fn stack_of(thread: u64) -> u64 {
    0x7f00_0000 + thread
}

fn pair(waiter: usize, owner: usize, monitor: usize) -> Pair {
    let named = |thread: usize| NamedTid(TIDS[thread]);
    Pair {
        waiter: named(waiter),
        owner: named(owner),
        kind: LockKind::JavaMonitor,
        lock: MONITORS[monitor],
    }
}

#[test]
fn threads_that_want_each_others_monitor_are_found_in_either_order() {
    for [left, right] in [[0, 1], [1, 0]] {
        let mut memory = jvm();
        memory.write_word(THREADS[left] + 128, MONITORS[0]);
        memory.write_word(THREADS[right] + 128, MONITORS[1]);
        memory.write_word(MONITORS[0] + 64, THREADS[right]);
        memory.write_word(MONITORS[1] + 64, THREADS[left]);
        let mut found = find_pairs(&STRUCTS, &memory);
        found.sort_by_key(|pair| pair.lock);
        assert_eq!(found, [pair(left, right, 0), pair(right, left, 1)]);
    }
}

#[test]
fn a_monitor_names_its_owner_in_any_of_four_ways() {
    for owner in [1, 2] {
        let thread = THREADS[owner];
        let mut memory = jvm();
        memory.write_word(THREADS[0] + 128, MONITORS[0]);
        let mut find = |structs: &JvmStructs, word: u64| {
            memory.write_word(MONITORS[0] + 64, word);
            find_pairs(structs, &memory)
        };
        let expected = [pair(0, owner, 0)];
        assert_eq!(find(&STRUCTS, thread), expected, "by its address");
        let on_stack = stack_of(thread) - 0x20;
        assert_eq!(find(&STRUCTS, on_stack), expected, "by a place on its stack");
        let by_id = JvmStructs { owner_form: OwnerForm::Id(256), ..STRUCTS };
        assert_eq!(find(&by_id, 10 + owner as u64), expected, "by its number");
        // Behind the last object there is one that is locked no more.
        memory.write_word(thread + 320, OBJECTS[1]);
        memory.write_word(thread + 328, OBJECTS[0]);
        memory.write_word(THREADS[3 - owner] + 320, OBJECTS[0]);
        memory.write_word(thread + 304, 336);
        memory.write_word(MONITORS[0] + 64, 1);
        assert_eq!(find_pairs(&by_id, &memory), expected, "by what the thread has locked");
        assert_eq!(find_pairs(&STRUCTS, &memory), expected, "by what the thread has locked");
    }
}

#[test]
fn what_does_not_fit_names_nobody() {
    let by_id = JvmStructs { owner_form: OwnerForm::Id(256), ..STRUCTS };
    for (structs, owner, why) in [
        (STRUCTS, 0, "nobody has it"),
        (STRUCTS, 1, "no thread says that it has locked the object"),
        (STRUCTS, 2, "the JVM itself has it"),
        (STRUCTS, u64::MAX, "the same, of another version"),
        (STRUCTS, stack_of(THREADS[1]), "that is above the stack"),
        (STRUCTS, stack_of(THREADS[1]) - 0x1001, "that is below it"),
        (by_id, 13, "a virtual thread that no thread runs"),
        (by_id, THREADS[1], "that is no number of a thread's"),
    ] {
        let mut memory = jvm();
        memory.write_word(THREADS[0] + 128, MONITORS[0]);
        memory.write_word(MONITORS[0] + 64, owner);
        assert_eq!(find_pairs(&structs, &memory), [], "{why}");
    }
    let mut memory = jvm();
    memory.write_word(THREADS[0] + 128, 0x99_0000);
    assert_eq!(find_pairs(&STRUCTS, &memory), [], "that is no monitor");
    memory.write_word(THREADS[0] + 128, MONITORS[0]);
    memory.write_word(MONITORS[0] + 64, 1);
    for thread in [1, 2] {
        memory.write_word(THREADS[thread] + 320, OBJECTS[0]);
        memory.write_word(THREADS[thread] + 304, 328);
    }
    assert_eq!(find_pairs(&STRUCTS, &memory), [], "two say that they have it");
    memory.write_word(THREADS[1] + 304, 320);
    assert_eq!(find_pairs(&STRUCTS, &memory), [pair(0, 2, 0)]);
    memory.write_word(THREADS[2] + 304, 1 << 20);
    assert_eq!(find_pairs(&STRUCTS, &memory), [], "nobody can have locked so many");
}

#[test]
fn lists_of_threads_end() {
    let mut memory = jvm();
    // A list of as many threads as there can be.
    memory.write_word(0x2000, u64::MAX);
    let linked = ThreadList::Linked { first: LIST, next: 512 };
    let jvm_of = |threads| JvmStructs { threads, ..STRUCTS };
    let threads = |structs: &JvmStructs, memory: &FakeMemory| Jvm { structs, memory }.threads();
    assert_eq!(threads(&STRUCTS, &memory), THREADS);
    memory.write_word(LIST, THREADS[0]);
    memory.write_word(THREADS[0] + 512, THREADS[2]);
    memory.write_word(THREADS[2] + 512, 0);
    assert_eq!(threads(&jvm_of(linked), &memory), [THREADS[0], THREADS[2]]);
    memory.write_word(THREADS[2] + 512, THREADS[0]);
    assert_eq!(threads(&jvm_of(linked), &memory).len(), super::MAX_THREADS, "it goes round");
}

/// A table with these entries: a type, a field, what it is, and where, if that is an address.
fn table(entries: &[(&str, &str, &str, u64, Option<u64>)]) -> FakeMemory {
    let mut memory = FakeMemory::default();
    let symbols = ["TypeName", "FieldName", "TypeString", "IsStatic", "Offset", "Address"];
    for (n, name) in (0..).zip(symbols) {
        memory.write_word(symbol(&format!("{name}Offset")), 8 * n);
    }
    memory.write_word(symbol("ArrayStride"), 48);
    memory.write_word(TABLE_SYMBOL, 0x8000);
    let mut texts = 0x10_0000;
    let mut entry = 0x8000;
    for &(of, field, kind, offset, address) in entries {
        let words = [of, field, kind].map(|text| {
            texts += 0x100;
            memory.text(texts, text)
        });
        for (n, word) in (0..).zip(words) {
            memory.write_word(entry + 8 * n, word);
        }
        memory.write_word(entry + 24, address.is_some().into());
        memory.write_word(entry + 32, offset);
        memory.write_word(entry + 40, address.unwrap_or(0));
        entry += 48;
    }
    memory.write(entry, &[0; 48]);
    memory
}

const TABLE_SYMBOL: u64 = 0x7000;

fn symbol(end: &str) -> u64 {
    let names = ["TypeNameOffset", "FieldNameOffset", "TypeStringOffset", "IsStaticOffset"];
    let names = names.into_iter().chain(["OffsetOffset", "AddressOffset", "ArrayStride"]);
    0x7100 + 8 * names.into_iter().position(|name| name == end).unwrap() as u64
}

fn find(name: &str) -> Option<u64> {
    match name.strip_prefix("gHotSpotVMStruct")? {
        "s" => Some(TABLE_SYMBOL),
        rest => rest.strip_prefix("Entry").map(symbol),
    }
}

#[test]
fn the_table_of_a_jvm_tells_where_everything_is() {
    let jdk_17 = [
        ("Klass", "_next", "int", 8, None),
        ("ThreadsSMRSupport", "_java_thread_list", "ThreadsList*", 0, Some(LIST)),
        ("ThreadsList", "_length", "const uint", 4, None),
        ("ThreadsList", "_threads", "JavaThread *const *const", 16, None),
        ("JavaThread", "_osthread", "OSThread*", 560, None),
        ("JavaThread", "_stack_base", "address", 592, None),
        ("JavaThread", "_stack_size", "size_t", 600, None),
        ("OSThread", "_thread_id", "OSThread::thread_id_t", 208, None),
        ("JavaThread", "_current_pending_monitor", "ObjectMonitor*", 776, None),
        ("ObjectMonitor", "_object", "", 8, None),
        ("ObjectMonitor", "_owner", "", 64, None),
    ];
    let expected = JvmStructs {
        threads: ThreadList::Array { list: LIST, length: 4, threads: 16 },
        os_thread: 560,
        thread_id: 208,
        pending_monitor: 776,
        owner: 64,
        owner_form: OwnerForm::Address { stack: Some(StackFields { base: 592, size: 600 }) },
        object: Some(8),
        lock_stack: None,
        heap: None,
    };
    assert_eq!(JvmStructs::read(&table(&jdk_17), find), Some(expected));
    // What JDK 25 has besides, and in other places.
    let mut jdk_25 = jdk_17.to_vec();
    jdk_25[4].0 = "Thread";
    jdk_25[10].2 = "int64_t";
    jdk_25.extend([
        ("JavaThread", "_monitor_owner_id", "int64_t", 1312, None),
        ("JavaThread", "_lock_stack", "LockStack", 2000, None),
        ("LockStack", "_top", "uint32_t", 0, None),
        ("LockStack", "_base[0]", "oop", 16, None),
    ]);
    let lock_stack = Some(LockStackFields { top: 2000, first: 2016 });
    let expected = JvmStructs { owner_form: OwnerForm::Id(1312), lock_stack, ..expected };
    assert_eq!(JvmStructs::read(&table(&jdk_25), find), Some(expected));
    // Before JDK 10.
    let mut jdk_8 = jdk_17.to_vec();
    jdk_8.drain(1..4);
    assert_eq!(JvmStructs::read(&table(&jdk_8), find), None, "no threads");
    jdk_8.extend([
        ("Threads", "_thread_list", "JavaThread*", 0, Some(LIST)),
        ("JavaThread", "_next", "JavaThread*", 512, None),
    ]);
    let found = JvmStructs::read(&table(&jdk_8), find).map(|found| found.threads);
    assert_eq!(found, Some(ThreadList::Linked { first: LIST, next: 512 }));
    for absurd in 4..=8 {
        let mut table_of_nonsense = jdk_17;
        table_of_nonsense[absurd].3 = 1 << 40;
        let found = JvmStructs::read(&table(&table_of_nonsense), find);
        let of_stack = found.is_some_and(|it| it.owner_form == OwnerForm::Address { stack: None });
        assert!(found.is_none() || of_stack, "{absurd}: {found:?}");
    }
    assert_eq!(JvmStructs::read(&table(&[]), find), None);
    assert_eq!(JvmStructs::read(&table(&jdk_17), |_| None), None);
}

/// The symbols of this very test's C library.
#[test]
fn exported_symbols_are_found_in_memory() {
    struct OwnMemory;
    impl Memory for OwnMemory {
        fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
            let memory = std::fs::File::open("/proc/self/mem").ok()?;
            std::os::unix::fs::FileExt::read_exact_at(&memory, into, address).ok()
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().find(|line| line.contains("/libc.so.6")).unwrap();
    let begin = u64::from_str_radix(libc.split('-').next().unwrap(), 16).unwrap();
    let library = MappedLibrary::find(&OwnMemory, begin).unwrap();
    for name in [c"gnu_get_libc_version", c"confstr", c"getpagesize"] {
        // SAFETY: the name is a C string, and nothing is done with what is found.
        let there = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let found = library.find_symbol(name.to_str().unwrap());
        assert_eq!(found, Some(there as u64), "{name:?}");
    }
    assert_eq!(library.find_symbol("no_such_symbol"), None);
    assert!(MappedLibrary::find(&OwnMemory, begin + 4096).is_none());
    assert!(MappedLibrary::find(&OwnMemory, 0).is_none());
}

/// The same word, everywhere: wherever one leads, there is something.
struct Constant(u64);

impl Memory for Constant {
    fn read(&self, _address: u64, into: &mut [u8]) -> Option<()> {
        let bytes = self.0.to_le_bytes();
        into.iter_mut().zip(bytes.iter().cycle()).for_each(|(byte, other)| *byte = *other);
        Some(())
    }
}

#[test]
fn memory_that_holds_anything_is_read_to_an_end() {
    let by_id = JvmStructs { owner_form: OwnerForm::Id(256), ..STRUCTS };
    for word in [0, 1, 3, 48, 0x1000, 0x0002_464c_457f, u64::MAX - 7, u64::MAX] {
        let memory = Constant(word);
        for structs in [STRUCTS, by_id] {
            let _any = find_pairs(&structs, &memory);
        }
        assert_eq!(JvmStructs::read(&memory, |_| Some(0x1000)), None, "{word:#x}");
        let _any = MappedLibrary::find(&memory, 0x1000).map(|it| it.find_symbol("environ"));
    }
}

/// A library with three symbols, whose hashes are of the older kind alone.
#[test]
fn exported_symbols_are_found_by_the_older_hashes() {
    const BEGIN: u64 = 0x40_0000;
    let mut memory = FakeMemory::default();
    memory.write(BEGIN, &[0; 0x400]);
    memory.write(BEGIN, b"\x7fELF\x02");
    memory.write_word(BEGIN + 32, 64);
    memory.write(BEGIN + 56, &2_u16.to_le_bytes());
    for (header, (kind, address)) in (64..).step_by(56).zip([(1_u32, 0_u64), (2, 0x100)]) {
        memory.write(BEGIN + header, &kind.to_le_bytes());
        memory.write_word(BEGIN + header + 8, address);
        memory.write_word(BEGIN + header + 16, address);
    }
    // DT_HASH, DT_STRTAB, DT_SYMTAB.
    for (place, (kind, at)) in (0x100..).step_by(16).zip([(4, 0x180), (5, 0x200), (6, 0x300)]) {
        memory.write_word(BEGIN + place, kind);
        memory.write_word(BEGIN + place + 8, at);
    }
    let mut text = 1;
    for (symbol, name) in (1..).zip(["printf", "exit", "gHotSpotVMStructs"]) {
        memory.write(BEGIN + 0x200 + text, name.as_bytes());
        memory.write(BEGIN + 0x300 + 24 * symbol, &(text as u32).to_le_bytes());
        memory.write_word(BEGIN + 0x300 + 24 * symbol + 8, 0x1000 * symbol);
        text += name.len() as u64 + 1;
    }
    // Two buckets. The hashes are 0x77905a6, 0x6cf04 and 0xa4d703.
    let hashes: [u32; 8] = [2, 4, 1, 3, 0, 2, 0, 0];
    for (place, number) in (0x180..).step_by(4).zip(hashes) {
        memory.write(BEGIN + place, &number.to_le_bytes());
    }
    let library = MappedLibrary::find(&memory, BEGIN).unwrap();
    let found = |name| library.find_symbol(name).map(|address| address - BEGIN);
    assert_eq!(found("printf"), Some(0x1000));
    assert_eq!(found("exit"), Some(0x2000));
    assert_eq!(found("puts"), None);
    assert_eq!(found("gHotSpotVMStructs"), Some(0x3000));
}
