//! Who has the locks of `java.util.concurrent` that Java threads wait for: `ReentrantLock`, and the write
//! lock of `ReentrantReadWriteLock`.
//!
//! ```text
//! JavaThread ──_threadObj──▶ Thread.parkBlocker ──▶ the lock's synchronizer         the waiter
//!                                └── exclusiveOwnerThread ──▶ Thread ◀──_threadObj── the owner
//! ```
//!
//! A thread that parks in such a lock says at what (`LockSupport.park(blocker)`), and a synchronizer that
//! one thread alone has says which one, for the JVM's own search for deadlocks
//! ([`AbstractOwnableSynchronizer`](https://github.com/openjdk/jdk17u/blob/jdk-17.0.15%2B6/src/java.base/share/classes/java/util/concurrent/locks/AbstractOwnableSynchronizer.java)).
//! Conditions, semaphores and latches have other blockers, or name nobody.

use std::collections::HashMap;

use crate::symbols::python::memory::Memory;

use super::{
    add_name,
    objects::{Heap, PointerForm},
};

const THREAD: &str = "java/lang/Thread";
/// The second one is that of `ReentrantReadWriteLock` since JDK 25.
const QUEUED: [&str; 2] = [
    "java/util/concurrent/locks/AbstractQueuedSynchronizer",
    "java/util/concurrent/locks/AbstractQueuedLongSynchronizer",
];
const OWNABLE: &str = "java/util/concurrent/locks/AbstractOwnableSynchronizer";

/// A thread that waits for a lock, and the one that has it, by their addresses in the JVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParkedThread {
    pub(super) thread: u64,
    pub(super) owner: u64,
    pub(super) synchronizer: u64,
}

impl<M: Memory> Heap<'_, M> {
    /// Finds the threads that wait for a lock that another one of them has.
    pub(super) fn find_parked(&self, threads: &[u64]) -> Vec<ParkedThread> {
        let with_objects = threads.iter().map(|&thread| (thread, self.object_of_thread(thread)));
        let with_objects: Vec<(u64, Option<u64>)> = with_objects.collect();
        let mut by_object = HashMap::new();
        for &(thread, object) in &with_objects {
            add_name(&mut by_object, object, thread);
        }
        (with_objects.into_iter())
            .filter_map(|(thread, object)| {
                let (synchronizer, owner) = self.find_owner(object?)?;
                let owner = (*by_object.get(&owner)?)?;
                (owner != thread).then_some(ParkedThread { thread, owner, synchronizer })
            })
            .collect()
    }

    /// Finds the synchronizer that a thread is parked at, and the thread that has it: both as objects.
    fn find_owner(&self, thread: u64) -> Option<(u64, u64)> {
        let blocker = self.find_field(self.find_class(thread, THREAD)?, "parkBlocker")?;
        let blocker = thread.checked_add(blocker)?;
        [PointerForm::Narrow, PointerForm::Wide].into_iter().find_map(|form| {
            let synchronizer = self.pointer(blocker, form)?;
            let queued = QUEUED.iter().find_map(|name| self.find_class(synchronizer, name))?;
            let (head, tail) = (self.find_field(queued, "head")?, self.find_field(queued, "tail")?);
            // The two lie side by side.
            if head.abs_diff(tail) != form.size() {
                return None;
            }
            let ownable = self.find_class(synchronizer, OWNABLE)?;
            let field = self.find_field(ownable, "exclusiveOwnerThread")?;
            Some((synchronizer, self.pointer(synchronizer.checked_add(field)?, form)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            objects::{Heap, PointerForm},
            structs::{FieldTable, HeapStructs, NarrowPointers, ThreadObject},
            tests::FakeMemory,
        },
        OWNABLE, ParkedThread, QUEUED, THREAD,
    };

    const OBJECTS_BASE: u64 = 0x100;
    const CLASSES_BASE: u64 = 0x200;
    const STRUCTS: HeapStructs = HeapStructs {
        thread_object: ThreadObject::Handle { handle: 32 },
        class: 8,
        class_name: 24,
        superclass: 40,
        constants: 48,
        first_constant: 72,
        fields: FieldTable::Array { fields: 56, count: 64, data: 4 },
        array_length: 0,
        name_length: 4,
        name_text: 6,
        narrow_objects: NarrowPointers { base: OBJECTS_BASE, shift: OBJECTS_BASE + 8 },
        narrow_classes: NarrowPointers { base: CLASSES_BASE, shift: CLASSES_BASE + 8 },
    };
    const HEAP: u64 = 0x8_0000_0000;
    const CLASSES: u64 = 0x7000_0000;
    /// Three threads, and their objects.
    const THREADS: [u64; 3] = [0x10_000, 0x20_000, 0x30_000];

    fn object(thread: usize) -> u64 {
        HEAP + 0x1000 * (thread as u64 + 1)
    }

    fn lock(number: usize) -> u64 {
        HEAP + 0x9000 + 0x1000 * number as u64
    }

    /// A JVM by hand.
    struct FakeJvm {
        memory: FakeMemory,
        structs: HeapStructs,
        form: PointerForm,
        next: u64,
    }

    impl FakeJvm {
        fn new(form: PointerForm, structs: HeapStructs) -> Self {
            let mut jvm =
                Self { memory: FakeMemory::default(), structs, form, next: CLASSES + 0x10_0000 };
            for (place, base) in [(OBJECTS_BASE, HEAP), (CLASSES_BASE, CLASSES)] {
                jvm.memory.write_word(place, base);
                jvm.memory.write_word(place + 8, 3);
            }
            let size = form.size();
            let thread = jvm.add_class(THREAD, 0, &[("name", 12), ("parkBlocker", 40)]);
            let worker = jvm.add_class("app/Worker", thread, &[("parkBlocker", 48)]);
            for (number, &address) in THREADS.iter().enumerate() {
                jvm.memory.write_word(address + 32, address + 0x800);
                jvm.memory.write_word(address + 0x800, object(number));
                jvm.add_object(object(number), if number == 2 { worker } else { thread });
            }
            let ownable = jvm.add_class(OWNABLE, 0, &[("exclusiveOwnerThread", 16)]);
            let fields = [("state", 24), ("head", 32), ("tail", 32 + size)];
            for (number, name) in QUEUED.into_iter().enumerate() {
                let queued = jvm.add_class(name, ownable, &fields);
                let sync = jvm.add_class("app/Sync", queued, &[("exclusiveOwnerThread", 64)]);
                jvm.add_object(lock(number), sync);
            }
            jvm
        }

        fn allocate(&mut self, length: u64) -> u64 {
            self.next += length.next_multiple_of(0x100);
            self.next - length.next_multiple_of(0x100)
        }

        fn add_symbol(&mut self, name: &str) -> u64 {
            let symbol = self.allocate(name.len() as u64 + 8);
            self.memory.write(symbol + 4, &(name.len() as u16).to_le_bytes());
            self.memory.write(symbol + 6, name.as_bytes());
            symbol
        }

        fn add_class(&mut self, name: &str, superclass: u64, fields: &[(&str, u64)]) -> u64 {
            let class = self.allocate(128);
            let name = self.add_symbol(name);
            self.memory.write_word(class + 24, name);
            self.memory.write_word(class + 40, superclass);
            let (constants, array) = (self.allocate(1024), self.allocate(512));
            self.memory.write_word(class + 48, constants);
            self.memory.write_word(class + 56, array);
            self.memory.write(class + 64, &(fields.len() as u16).to_le_bytes());
            let mut stream = vec![fields.len() as u8 + 1, 1];
            for (n, &(field, offset)) in (0_u64..).zip(fields) {
                let symbol = self.add_symbol(field);
                self.memory.write_word(constants + 72 + 8 * (n + 5), symbol);
                let packed = offset as u16 * 4 + 1;
                for (place, number) in [0, n as u16 + 5, 0, 0, packed, 0].into_iter().enumerate() {
                    let at = array + 4 + 12 * n + 2 * place as u64;
                    self.memory.write(at, &number.to_le_bytes());
                }
                stream.extend([n as u8 + 6, 1, offset as u8 + 1, 1, 1]);
            }
            if let FieldTable::Stream { .. } = self.structs.fields {
                self.memory.write(array, &(stream.len() as u32).to_le_bytes());
                self.memory.write(array + 4, &stream);
            }
            class
        }

        fn add_object(&mut self, object: u64, class: u64) {
            self.memory.write(object, &[0; 96]);
            match self.form {
                PointerForm::Wide => self.memory.write_word(object + 8, class),
                PointerForm::Narrow => {
                    let narrow = ((class - CLASSES) >> 3) as u32;
                    self.memory.write(object + 8, &narrow.to_le_bytes());
                }
            }
        }

        fn point(&mut self, place: u64, to: u64) {
            match self.form {
                PointerForm::Wide => self.memory.write_word(place, to),
                PointerForm::Narrow => {
                    let narrow = ((to - HEAP) >> 3) as u32;
                    self.memory.write(place, &narrow.to_le_bytes());
                }
            }
        }

        fn park(&mut self, thread: usize, at: usize) {
            self.point(object(thread) + 40, lock(at));
        }

        fn give(&mut self, number: usize, thread: usize) {
            self.point(lock(number) + 16, object(thread));
        }

        fn find(&self) -> Vec<ParkedThread> {
            Heap { structs: &self.structs, memory: &self.memory }.find_parked(&THREADS)
        }
    }

    fn parked(thread: usize, owner: usize, at: usize) -> ParkedThread {
        ParkedThread { thread: THREADS[thread], owner: THREADS[owner], synchronizer: lock(at) }
    }

    /// JVMs with pointers of either form, and either description of fields.
    fn jvms() -> impl Iterator<Item = FakeJvm> {
        let stream = HeapStructs { fields: FieldTable::Stream { stream: 56, data: 4 }, ..STRUCTS };
        [PointerForm::Narrow, PointerForm::Wide]
            .into_iter()
            .flat_map(move |form| [STRUCTS, stream].map(|structs| FakeJvm::new(form, structs)))
    }

    #[test]
    fn threads_that_want_each_others_lock_are_found() {
        for mut jvm in jvms() {
            assert_eq!(jvm.find(), []);
            jvm.give(0, 2);
            jvm.give(1, 0);
            assert_eq!(jvm.find(), [], "nobody waits");
            jvm.park(0, 0);
            assert_eq!(jvm.find(), [parked(0, 2, 0)]);
            jvm.park(2, 1);
            assert_eq!(jvm.find(), [parked(0, 2, 0), parked(2, 0, 1)]);
        }
    }

    #[test]
    fn a_blocker_that_nobody_has_names_nobody() {
        for mut jvm in jvms() {
            jvm.park(0, 0);
            assert_eq!(jvm.find(), [], "a semaphore, say");
            jvm.point(lock(0) + 16, object(0));
            assert_eq!(jvm.find(), [], "it has it itself, and is about to be woken");
            jvm.point(lock(0) + 16, HEAP + 0x7000);
            assert_eq!(jvm.find(), [], "that is no thread");
            let other = jvm.add_class("java/lang/Object", 0, &[]);
            jvm.give(0, 1);
            jvm.add_object(HEAP + 0x6000, other);
            jvm.point(object(0) + 40, HEAP + 0x6000);
            assert_eq!(jvm.find(), [], "a condition, say");
        }
    }
}
