//! What a wait was on.
//!
//! A new cause is a variant of [`Cause`] and a rule in `rules.rs`. What follows from a cause is decided
//! elsewhere, and most of these places have a default: whether the wait can be idle (`blame/idle.rs`),
//! is for a thread's next piece of work (`blame/work_waits.rs`) or begins anew after a timeout
//! (`blame/timed_retries.rs`), whether a thread may be stuck in it (`findings/open_waits.rs`), and what
//! it is called (`findings/describe.rs`).

mod children;
pub(crate) mod kernel_locks;
mod rules;
pub mod syscalls;
mod waited_on;

use std::collections::HashMap;

use offwake_recording::{
    Frame, OpenFile, Recording, StackRef, StackTable, ThreadKind, Wait, units::StackId,
};
use schemars::JsonSchema;
use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};

pub use waited_on::{FutexOp, WaitedOn, WokenThrough, waited_on, woken_through};

use super::wake_source;
use children::Children;
use rules::{Condition, RULES, SCHEDULER_FRAMES, matches_pattern};

/// The kind of thing that a wait was on.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    JsonSchema,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Cause {
    /// A futex: a mutex, a condition variable, a thread's end.
    Futex,
    /// A socket.
    Socket,
    /// A pipe or FIFO.
    Pipe,
    /// An eventfd.
    Eventfd,
    /// Several files at once: poll, select, epoll.
    Poll,
    /// A timer: the thread slept on purpose.
    Timer,
    /// A child's end, or its `exec`.
    Child,
    /// A signal.
    Signal,
    /// A disk, or whatever else the filesystem is stored on.
    Disk,
    /// A page that was not in memory.
    PageFault,
    /// Free memory, of the machine or of the thread's cgroup: the kernel had it reclaim some first.
    Memory,
    /// A lock inside the kernel.
    KernelLock,
    /// Completions of an `io_uring`.
    IoUring,
    /// A terminal.
    Tty,
    /// The thread was stopped by a signal, a debugger or the freezer.
    Stopped,
    /// The thread's cgroup had used up its CPU time.
    Throttled,
    /// A lock on a file, or on a part of it: `flock`, `fcntl`, `lockf`.
    FileLock,
    /// A System V semaphore.
    SysvSem,
    /// A System V message queue: a message in it, or room for one.
    SysvMsg,
    /// A POSIX message queue: a message in it, or room for one.
    Mqueue,
    /// A change to files that are watched.
    Inotify,
    /// None of these causes: the frame that the thread was seen in says more.
    Other,
}

impl Cause {
    /// Returns the cause's name in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Applies the table of rules to the waits of one recording.
///
/// A recording has few stacks and many waits: each stack's frames are read once.
pub struct Classifier<'a> {
    recording: &'a Recording,
    by_stack: HashMap<StackId, u64>,
    children: Children<'a>,
}

impl<'a> Classifier<'a> {
    /// Creates a classifier for the waits of `recording`.
    #[must_use]
    pub fn new(recording: &'a Recording) -> Self {
        Self { recording, by_stack: HashMap::new(), children: Children::new(recording) }
    }

    /// Finds the cause of a wait.
    pub fn cause(&mut self, wait: &Wait) -> Cause {
        let frames = match wait.kernel_stack {
            StackRef::Id(id) => *(self.by_stack.entry(id))
                .or_insert_with(|| passed_frame_rules(&self.recording.stacks, id)),
            StackRef::NotTaken | StackRef::Failed => 0,
        };
        let subject = ClassifiedWait {
            wait,
            frames,
            letter: wait.state.letter(),
            syscall: wait.syscall.as_ref().and_then(syscalls::name),
            file_name: wait.file.and_then(|file| match self.recording.files.files.get(&file) {
                Some(OpenFile::Named(name)) => Some(name.as_str()),
                _ => None,
            }),
            ended_by_disk: wait
                .wake
                .is_some_and(|wake| wake_source::is_from_disk(self.recording, wake.context)),
            children: &self.children,
        };
        (RULES.iter().enumerate())
            .find(|(n, rule)| rule.when.iter().all(|test| subject.passes(*n, test)))
            .map_or(Cause::Other, |(_, rule)| rule.cause)
    }
}

/// Finds the rules whose frame conditions a stack meets, as one bit for each rule.
fn passed_frame_rules(stacks: &StackTable, id: StackId) -> u64 {
    const { assert!(RULES.len() <= 64, "one bit for each rule") };
    let innermost = kernel_frame(stacks, StackRef::Id(id));
    let mut passed = 0;
    for name in stacks.frames_of(id).flat_map(Frame::names) {
        for (n, rule) in RULES.iter().enumerate() {
            let passes = |test: &Condition| match test {
                Condition::Frame(patterns) => {
                    patterns.iter().any(|pattern| matches_pattern(pattern, name))
                }
                Condition::Innermost(patterns) => {
                    innermost == Some(name)
                        && patterns.iter().any(|pattern| matches_pattern(pattern, name))
                }
                Condition::InnermostSleepsForLock => {
                    innermost == Some(name) && kernel_locks::sleeps_for_a_lock(name)
                }
                _ => false,
            };
            if rule.when.iter().any(passes) {
                passed |= 1 << n;
            }
        }
    }
    passed
}

struct ClassifiedWait<'a> {
    wait: &'a Wait,
    frames: u64,
    letter: char,
    syscall: Option<&'static str>,
    file_name: Option<&'a str>,
    ended_by_disk: bool,
    children: &'a Children<'a>,
}

impl ClassifiedWait<'_> {
    fn passes(&self, rule: usize, test: &Condition) -> bool {
        match *test {
            Condition::State(letters) => letters.contains(&self.letter),
            Condition::Syscall(names) => self.syscall.is_some_and(|name| names.contains(&name)),
            Condition::Argument(n, values) => {
                let argument = self.wait.syscall.and_then(|syscall| syscall.args.get(n).copied());
                argument.is_some_and(|argument| values.contains(&(argument as u32)))
            }
            Condition::File(kind) => {
                self.syscall.is_some_and(syscalls::takes_fd)
                    && self.wait.file.is_some_and(|file| file.kind == kind)
            }
            Condition::FileName(prefixes) => (self.file_name)
                .is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))),
            Condition::Frame(_) | Condition::Innermost(_) | Condition::InnermostSleepsForLock => {
                self.frames & (1 << rule) != 0
            }
            Condition::EndedByDisk => self.ended_by_disk,
            Condition::EndedByChild => {
                waits_for_any(self.wait) && self.children.has_ended(self.wait)
            }
            Condition::UserThread => self.wait.kind != ThreadKind::Kernel,
        }
    }
}

/// Returns whether a thread is in a call that waits for any of several files.
pub(super) fn polls(wait: &Wait) -> bool {
    wait.syscall.as_ref().and_then(syscalls::name).is_some_and(|name| rules::POLLS.contains(&name))
}

/// Returns whether a thread that polls does not do so for one file alone, as far as its call tells.
pub(crate) fn waits_for_any(wait: &Wait) -> bool {
    match wait.syscall.as_ref().map(|call| (syscalls::name(call), call.args)) {
        Some((Some("poll" | "ppoll" | "ppoll_time64"), [_, files, ..])) => files > 1,
        _ => true,
    }
}

/// Returns whether a kernel function is one of `names`, whatever the compiler added to its name.
pub(super) fn matches_any(names: &[&str], function: &str) -> bool {
    names.contains(&function.split('.').next().unwrap_or(function))
}

/// The kernel function that a wait is best known by: the one nearest to the leaf that does more
/// than to call the scheduler.
#[must_use]
pub fn kernel_frame(stacks: &StackTable, stack: StackRef) -> Option<&str> {
    kernel_frames(stacks, stack).next()
}

/// The kernel functions of a stack that do more than to call the scheduler, leaf first.
pub(crate) fn kernel_frames(stacks: &StackTable, stack: StackRef) -> impl Iterator<Item = &str> {
    let id = match stack {
        StackRef::Id(id) => Some(id),
        StackRef::NotTaken | StackRef::Failed => None,
    };
    id.into_iter()
        .flat_map(|id| stacks.frames_of(id))
        .flat_map(Frame::names)
        .filter(|name| !SCHEDULER_FRAMES.iter().any(|pattern| matches_pattern(pattern, name)))
}
