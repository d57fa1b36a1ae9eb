//! Locks of Python's `threading` module: which one a thread waits for, and which ones it is in a
//! `with` block of.
//!
//! ```text
//! def transfer(first, second):
//!     with first:          frame:  locals | first.__exit__ | second.__exit__ (not live yet)
//!         with second:                      `- live: a handler here would find one value
//!             ...
//! ```
//!
//! A plain lock does not say who has it. But a `with` block keeps the lock's bound `__exit__` on its
//! frame's stack of values until the block ends. How many values are live there, CPython itself has to
//! know, for exceptions: from its table of handlers since 3.11
//! (<https://github.com/python/cpython/blob/v3.11.2/Objects/exception_handling_notes.txt>), from the
//! frame's blocks before
//! (<https://github.com/python/cpython/blob/v3.10.13/Include/cpython/frameobject.h#L19>). What lies
//! behind them may be left from before, and is not looked at. An `RLock` says itself who has it.
//!
//! Locks lie the same in 3.9 to 3.13
//! (<https://github.com/python/cpython/blob/v3.13.0/Modules/_threadmodule.c>): their semaphore's address
//! comes right behind the head of the object. In 3.14 there is no semaphore, so no lock is found.

use std::cell::Cell;

use super::{
    interpreter::Interpreter,
    memory::Memory,
    objects,
    offsets::{Instruction, Instructions, SIZE, TYPE, Values},
    threads::ThreadState,
};

/// Frames of a thread that are looked at.
const MAX_FRAMES: usize = 64;
/// Values of a frame that are looked at.
const MAX_VALUES: u64 = 128;
/// Values of all frames of a process that are looked at.
const MAX_OBJECTS: u32 = 65_536;
/// Bytes of a table of handlers.
const MAX_TABLE: u64 = 32 << 10;
/// `CO_MAXBLOCKS`
const MAX_BLOCKS: u32 = 20;
/// `sizeof(PyTryBlock)`, and `PyTryBlock::b_level`.
const BLOCK: u64 = 12;
const BLOCK_LEVEL: u64 = 8;

/// `PyTypeObject::tp_name`
const TYPE_NAME: u64 = 24;
/// `PyCFunctionObject::m_ml` and `m_self`; `PyMethodDef::ml_name` comes first.
const METHOD: u64 = 16;
const METHOD_SELF: u64 = 24;
/// `lockobject::lock_lock` and `rlockobject::rlock_lock`, which are addresses of semaphores here.
const SEMAPHORE: u64 = 16;
/// `rlockobject::rlock_owner` and `rlock_count`.
const OWNER: u64 = 24;
const COUNT: u64 = 32;

const PLAIN_LOCK: &[u8] = b"_thread.lock";
const RECURSIVE_LOCK: &[u8] = b"_thread.RLock";
const BOUND_METHOD: &[u8] = b"builtin_function_or_method";
const EXIT: &[u8] = b"__exit__";

/// A lock of Python's, by the address of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PythonLock(u64);

/// The kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockType {
    Plain,
    Recursive,
}

/// Reads locks and frames of one process.
pub(crate) struct LockReader<'a, M> {
    interpreter: &'a Interpreter,
    memory: &'a M,
    /// How many more values are looked at.
    left: Cell<u32>,
}

/// A frame of a thread.
#[derive(Clone, Copy)]
struct Frame {
    address: u64,
    code: u64,
}

/// Values of a frame that lie behind each other.
#[derive(Clone, Copy)]
struct Slots {
    begin: u64,
    count: u64,
}

impl<'a, M: Memory> LockReader<'a, M> {
    pub(crate) fn new(interpreter: &'a Interpreter, memory: &'a M) -> Self {
        Self { interpreter, memory, left: Cell::new(MAX_OBJECTS) }
    }

    /// Finds the lock whose semaphore a thread waits on: an object that its innermost frame works
    /// with. Whichever place of the frame leads there, the object itself proves it.
    pub(crate) fn awaited_lock(&self, thread: &ThreadState, semaphore: u64) -> Option<PythonLock> {
        let frame = *self.frames(thread, 1).first()?;
        let addresses = self.all_values(frame)?.addresses();
        (addresses.filter_map(|address| self.memory.word(address)))
            .filter_map(|object| self.lock_at(object).or_else(|| self.bound_lock(object, None)))
            .find(|&lock| self.at(lock.0, SEMAPHORE) == Some(semaphore))
    }

    /// Finds the locks whose `with` blocks a thread is in. A thread that waits for a condition is said to be
    /// in none: it has released the condition's own lock, which may be any of them.
    pub(crate) fn held_locks(&self, thread: &ThreadState) -> Vec<PythonLock> {
        let frames = self.frames(thread, MAX_FRAMES);
        if frames.iter().any(|frame| self.may_wait_for_condition(frame.code)) {
            return Vec::new();
        }
        let live = frames.into_iter().filter_map(|frame| self.live_values(frame));
        let objects = live.flat_map(Slots::addresses).filter_map(|at| self.memory.word(at));
        objects.filter_map(|object| self.bound_lock(object, Some(EXIT))).collect()
    }

    /// Returns who has a lock that says so: what `pthread_self()` gives in that thread.
    pub(crate) fn owner(&self, lock: PythonLock) -> Option<u64> {
        let is_held = self.lock_type(lock.0)? == LockType::Recursive && self.at(lock.0, COUNT)? > 0;
        self.at(lock.0, OWNER).filter(|&owner| is_held && owner != 0)
    }

    /// Returns whether a lock says who has it.
    pub(crate) fn has_owner(&self, lock: PythonLock) -> bool {
        self.lock_type(lock.0) == Some(LockType::Recursive)
    }

    /// Returns what `pthread_self()` gives in a thread.
    pub(crate) fn pthread(&self, thread: &ThreadState) -> Option<u64> {
        let offset = self.interpreter.offsets.thread.pthread()?;
        self.at(thread.state, u64::from(offset))
    }

    /// Returns whether code is `Condition.wait`, or code of unknown name
    /// (<https://github.com/python/cpython/blob/v3.11.2/Lib/threading.py#L288>).
    fn may_wait_for_condition(&self, code: u64) -> bool {
        let offsets = &self.interpreter.offsets;
        let text = |at: u32| {
            let address = self.at(code, u64::from(at))?;
            objects::text(self.memory, address, &offsets.text)
        };
        match (text(offsets.code.name), text(offsets.code.file)) {
            _ if !self.is_code(code) => false,
            (Some(name), Some(file)) => {
                matches!(&*name, "Condition.wait" | "wait") && file.ends_with("threading.py")
            }
            _ => true,
        }
    }

    fn is_code(&self, code: u64) -> bool {
        let code_type = self.interpreter.code_type;
        code_type.is_some() && code_type == self.at(code, u64::from(TYPE))
    }

    fn at(&self, base: u64, offset: u64) -> Option<u64> {
        self.memory.word(base.checked_add(offset)?)
    }

    fn half_at(&self, base: u64, offset: u64) -> Option<u32> {
        self.memory.half(base.checked_add(offset)?)
    }

    /// Returns the frames of a thread, innermost first, as far as they can be read.
    fn frames(&self, thread: &ThreadState, limit: usize) -> Vec<Frame> {
        let offsets = &self.interpreter.offsets;
        let first = || {
            let identity = self.at(thread.state, u64::from(offsets.thread.identity.offset()))?;
            if identity != thread.identity {
                return None;
            }
            let frame = self.at(thread.state, u64::from(offsets.thread.frame))?;
            match offsets.thread.cframe {
                Some(cframe) => self.at(frame, u64::from(cframe)),
                None => Some(frame),
            }
        };
        let mut frames = Vec::new();
        let mut next = first().unwrap_or(0);
        while next != 0 && frames.len() < limit {
            let address = next;
            let Some(code) = self.at(address, u64::from(offsets.frame.code)) else { break };
            frames.push(Frame { address, code });
            next = self.at(address, u64::from(offsets.frame.previous)).unwrap_or(0);
        }
        frames
    }

    /// Returns all places for values of a frame, and its local variables before them.
    fn all_values(&self, frame: Frame) -> Option<Slots> {
        let (locals, stack) = self.stack_of(frame)?;
        let begin = frame.address.checked_add(locals)?;
        let places = stack.begin.checked_sub(begin)? / 8;
        let count = places.checked_add(stack.count).filter(|&count| count <= MAX_VALUES)?;
        Some(Slots { begin, count })
    }

    /// Returns the values on the stack of a frame that are live for certain.
    fn live_values(&self, frame: Frame) -> Option<Slots> {
        let (_, stack) = self.stack_of(frame)?;
        let live = match self.interpreter.offsets.values {
            Values::Blocks { count, blocks, .. } => {
                let count = self.half_at(frame.address, u64::from(count))?;
                let last = count.checked_sub(1).filter(|_| count <= MAX_BLOCKS)?;
                let block = u64::from(blocks) + u64::from(last) * BLOCK;
                self.half_at(frame.address, block + BLOCK_LEVEL)?
            }
            Values::Handlers { table, .. } => {
                let table = self.at(frame.code, u64::from(table))?;
                let table = objects::bytes(self.memory, table, MAX_TABLE)?;
                handler_depth(&table, self.code_unit(frame)?)?
            }
        };
        let count = u64::from(live);
        (count <= stack.count).then_some(Slots { count, ..stack })
    }

    /// Returns where the local variables of a frame begin, and all places of its stack.
    fn stack_of(&self, frame: Frame) -> Option<(u64, Slots)> {
        let offsets = &self.interpreter.offsets;
        if !self.is_code(frame.code) {
            return None;
        }
        let first_line = u64::from(offsets.code.first_line);
        let (locals, begin, size) = match offsets.values {
            // `co_stacksize`, `co_flags`, `co_firstlineno`
            Values::Blocks { locals, stack, .. } => {
                let begin = self.at(frame.address, u64::from(stack))?;
                (u64::from(locals), begin, self.half_at(frame.code, first_line.checked_sub(8)?)?)
            }
            // `co_stacksize`, `co_firstlineno`, `co_nlocalsplus`
            Values::Handlers { locals, .. } => {
                let locals = u64::from(locals);
                let before = u64::from(self.half_at(frame.code, first_line + 4)?) * 8;
                let begin = frame.address.checked_add(locals)?.checked_add(before)?;
                (locals, begin, self.half_at(frame.code, first_line.checked_sub(4)?)?)
            }
        };
        let count = u64::from(size);
        (count <= MAX_VALUES).then_some((locals, Slots { begin, count }))
    }

    /// Returns which code unit of its code a frame is at.
    fn code_unit(&self, frame: Frame) -> Option<u64> {
        let offsets = &self.interpreter.offsets;
        let (Instruction::Address(at), Instructions::Within { begin, .. }) =
            (offsets.frame.instruction, offsets.code.instructions)
        else {
            return None;
        };
        let first = frame.code.checked_add(u64::from(begin))?;
        let unit = self.at(frame.address, u64::from(at))?.checked_sub(first)? / 2;
        (unit < self.at(frame.code, u64::from(SIZE))?).then_some(unit)
    }

    fn lock_at(&self, object: u64) -> Option<PythonLock> {
        self.lock_type(object).map(|_| PythonLock(object))
    }

    fn lock_type(&self, object: u64) -> Option<LockType> {
        if self.has_type(object, PLAIN_LOCK) {
            Some(LockType::Plain)
        } else {
            self.has_type(object, RECURSIVE_LOCK).then_some(LockType::Recursive)
        }
    }

    /// Returns the lock that a bound method is of, if it is of one, and is called so.
    fn bound_lock(&self, object: u64, name: Option<&[u8]>) -> Option<PythonLock> {
        if !self.has_type(object, BOUND_METHOD) {
            return None;
        }
        let lock = self.lock_at(self.at(object, METHOD_SELF)?)?;
        let is_called = |wanted| {
            let text = self.memory.word(self.at(object, METHOD)?)?;
            self.is_text(text, wanted).then_some(())
        };
        match name {
            Some(wanted) => is_called(wanted).map(|()| lock),
            None => Some(lock),
        }
    }

    /// Returns whether there is an object in use whose type has this name.
    fn has_type(&self, object: u64, name: &[u8]) -> bool {
        let name_of_type = || {
            self.left.set(self.left.get().checked_sub(1)?);
            // One that was freed has no references.
            let is_in_use =
                object != 0 && object.is_multiple_of(8) && self.memory.half(object)? != 0;
            let of =
                self.at(object, u64::from(TYPE)).filter(|of| is_in_use && of.is_multiple_of(8))?;
            self.at(of, TYPE_NAME)
        };
        name_of_type().is_some_and(|text| self.is_text(text, name))
    }

    /// Returns whether a text of C is at an address.
    fn is_text(&self, address: u64, wanted: &[u8]) -> bool {
        let mut bytes = [0xff; 32];
        let Some(bytes) = bytes.get_mut(..=wanted.len()) else { return false };
        let is_read = self.memory.read(address, bytes).is_some();
        is_read && bytes.strip_suffix(&[0]) == Some(wanted)
    }
}

impl Slots {
    fn addresses(self) -> impl Iterator<Item = u64> {
        (0..self.count).filter_map(move |index| self.begin.checked_add(8 * index))
    }
}

/// Returns how many values the handler of an instruction would find on the stack; none are certain if
/// there is no handler. None if that is no table.
pub(super) fn handler_depth(table: &[u8], unit: u64) -> Option<u32> {
    let mut bytes = table.iter().copied().peekable();
    while bytes.peek().is_some() {
        let [start, size, _target] = [(); 3].map(|()| number(&mut bytes));
        let depth_and_flag = number(&mut bytes)?;
        let (start, size) = (u64::from(start?), u64::from(size?));
        if (start..start + size).contains(&unit) {
            return Some(depth_and_flag >> 1);
        }
    }
    Some(0)
}

/// Six bits a byte, the highest first; the seventh bit says that more follow.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut number = 0u32;
    loop {
        let byte = bytes.next()?;
        number = number.checked_mul(64)? | u32::from(byte & 0x3f);
        if byte & 0x40 == 0 {
            return Some(number);
        }
    }
}
