//! What a thread slept for or worked on, as the frame of the program's own code that says it best.
//!
//! ```text
//! leaf                                                                            root
//! epoll_wait  WaitEventSetWait  WaitLatch  ProcSleep  LockAcquire  heap_update  main
//! libc        `-- wrappers: all kinds --'  meaning
//!                 of waits end in them
//! ```

use std::{
    collections::{HashMap, HashSet},
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use offwake_recording::{
    SocketRole, StackEnd, StackRef, StackTable,
    units::{Nanos, StackId, Tid},
};

use crate::{
    blame::{
        Blame, FrameEvidence, LockName, Sleep, SleepId, Sleeps, StackPairId, StackPairs, Stop,
        cause::{
            self, Cause,
            kernel_locks::{KernelLock, find_kernel_lock},
        },
    },
    label::{CodeOwner, Label, LabelFinder},
    timeline::WaitIndex,
};

use super::{
    blocked_loops::{BlockedLoopFinder, EventLoop},
    condition_waits,
    memory_waits::{MemoryWait, find_memory_wait},
};

/// Words that the names of wrappers around waiting are made of.
const WAITING_WORDS: &[&str] = &[
    "wait",
    "waits",
    "waiting",
    "event",
    "events",
    "set",
    "latch",
    "or",
    "socket",
    "sleep",
    "poll",
    "epoll",
    "select",
    "block",
    "park",
    "semaphore",
    "sem",
    "cond",
    "futex",
    "for",
    "on",
    "until",
    "timeout",
    "timed",
    "internal",
    "impl",
    "do",
    "fd",
    "once",
];

/// Samples of at least this part of some work tell what all of it was.
const MIN_SAMPLED: f64 = 0.2;

/// What inside of the kernel was waited for, where the cause does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum KernelWait {
    /// The program that serves a FUSE filesystem.
    Fuse,
    /// The server of a network filesystem.
    NetworkFilesystem,
    /// The disk, as it can't write as fast as pages are changed.
    Writeback,
    /// The journal of the filesystem, until the changes that are on their way to it are written.
    Journal,
    /// Whoever listens, until it accepts the connection.
    Connect,
    /// Whoever opens a named pipe (FIFO) at its other end.
    OpenFifo,
    /// Memory: a page that is not there, or free memory.
    Memory(MemoryWait),
    /// A lock of the kernel's.
    Lock(KernelLock),
}

impl KernelWait {
    /// Returns whether who waits like that is in the middle of something. Who opens a FIFO to read from it
    /// may be a server that waits for its next command.
    pub(super) fn is_of_busy_thread(self) -> bool {
        self != Self::OpenFifo
    }
}

/// How threads slept, by its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SleepMeaning {
    pub(super) cause: Cause,
    pub(super) label: Option<Label>,
    pub(super) role: Option<SocketRole>,
    pub(super) kernel: Option<KernelWait>,
    pub(super) evidence: FrameEvidence,
    pub(super) stop: Option<Stop>,
    /// The device of the filesystem that the file was on, where a disk was waited for.
    pub(super) filesystem: Option<u32>,
    /// Where the coroutine was seen at other times that waited, of those with a thread of their own.
    pub(super) coroutine: Option<Label>,
    /// The event loop that has the thread, if these waits were in the middle of its tasks.
    pub(super) blocked_loop: Option<EventLoop>,
    /// Whether it was on a condition variable of the program's own.
    pub(super) is_on_condition: bool,
}

impl SleepMeaning {
    /// Returns what the lock is called that the threads waited for, as far as functions tell.
    pub(super) fn lock(&self) -> Option<LockName> {
        match self.evidence {
            FrameEvidence::Lock(lock) => Some(lock),
            _ => None,
        }
    }

    /// Returns what is left of it once the connection is gone: its ends can't be told apart any more.
    pub(super) fn without_role(&self) -> Self {
        Self { role: None, ..self.clone() }
    }
}

/// A meaning that one [`Meanings`] has once: two are the same if they are in the same place. Millions of
/// parts of blame are grouped by it.
#[derive(Clone, Debug)]
pub(super) struct SharedMeaning(Arc<SleepMeaning>);

impl Deref for SharedMeaning {
    type Target = SleepMeaning;

    fn deref(&self) -> &SleepMeaning {
        &self.0
    }
}

impl PartialEq for SharedMeaning {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedMeaning {}

impl Hash for SharedMeaning {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Finds the frames that say what sleeps and work were for.
pub(super) struct Meanings<'a> {
    stacks: &'a StackPairs,
    sleeps: &'a Sleeps,
    known_sleeps: HashMap<SleepId, Option<SharedMeaning>, foldhash::fast::RandomState>,
    shared: HashSet<Arc<SleepMeaning>>,
    labels: LabelFinder<'a>,
    /// The frames that tell most of each user stack, leaf first.
    frames: HashMap<StackId, Vec<Label>>,
    /// The stacks in which the sampling clock found threads.
    sampled: HashSet<StackPairId>,
    kernel_waits: HashMap<(StackId, Cause), Option<KernelWait>>,
    blocked_loops: BlockedLoopFinder,
    /// The functions that were seen to call each function whose name is one of a wrapper.
    callers: HashMap<Label, HashSet<Label>>,
    /// The functions of a language's library that those of a meaning were seen to wait in; none if they are several.
    library_functions: HashMap<SharedMeaning, Option<Arc<str>>>,
    /// What the threads that are one coroutine's own were seen in.
    pub(super) coroutines: HashMap<Tid, Option<Label>>,
}

impl<'a> Meanings<'a> {
    /// Looks through all the stacks that threads slept in.
    pub(super) fn new(stacks: &'a StackPairs, sleeps: &'a Sleeps, labels: LabelFinder<'a>) -> Self {
        let mut meanings = Self {
            stacks,
            sleeps,
            known_sleeps: HashMap::default(),
            shared: HashSet::new(),
            labels,
            frames: HashMap::new(),
            callers: HashMap::new(),
            library_functions: HashMap::new(),
            kernel_waits: HashMap::new(),
            blocked_loops: BlockedLoopFinder::default(),
            coroutines: HashMap::new(),
            sampled: stacks.sampled().collect(),
        };
        for sleep in sleeps.iter() {
            let (user, _) = stacks.get(sleep.stack);
            let frames = meanings.frames(user).to_vec();
            for pair in frames.windows(2) {
                let [callee, caller] = pair else { continue };
                if has_waiting_word(&callee.function) {
                    meanings.callers.entry(callee.clone()).or_default().insert(caller.clone());
                }
            }
        }
        meanings
    }

    /// Returns what a wait means; `role` is which end of a connection it was on, if that matters.
    pub(super) fn wait(
        &mut self,
        blame: &Blame<'_>,
        wait: WaitIndex,
        role: Option<SocketRole>,
    ) -> SharedMeaning {
        let (cause, evidence) = (blame.cause(wait), blame.frame_evidence(wait));
        let (stack, _) = blame.wait_and_waker_stacks(wait);
        let meaning = SleepMeaning {
            cause,
            label: self.sleep_label(cause, stack),
            role,
            kernel: self.kernel_wait(cause, stack),
            evidence,
            stop: blame.stop_of_wait(wait),
            filesystem: blame.filesystem_of_wait(wait),
            coroutine: None,
            blocked_loop: self.blocked_loop(cause, evidence, stack),
            is_on_condition: self.is_on_condition(cause, stack),
        };
        let meaning = self.share(meaning);
        self.note_library_function(&meaning, stack);
        meaning
    }

    /// Returns how a thread slept.
    pub(super) fn sleep(&mut self, id: SleepId) -> Option<SharedMeaning> {
        if let Some(known) = self.known_sleeps.get(&id) {
            return known.clone();
        }
        let meaning = self.sleeps.get(id).map(|&sleep| {
            let Sleep { cause, stack, role, evidence, stop, filesystem, own_coroutine } = sleep;
            let label = self.sleep_label(cause, stack);
            let kernel = self.kernel_wait(cause, stack);
            let coroutine = own_coroutine.and_then(|tid| self.coroutines.get(&tid)?.clone());
            let blocked_loop = self.blocked_loop(cause, evidence, stack);
            let is_on_condition = self.is_on_condition(cause, stack);
            let meaning = self.share(SleepMeaning {
                cause,
                label,
                role,
                kernel,
                evidence,
                stop,
                filesystem,
                coroutine,
                blocked_loop,
                is_on_condition,
            });
            self.note_library_function(&meaning, stack);
            meaning
        });
        self.known_sleeps.insert(id, meaning.clone());
        meaning
    }

    /// Returns the function of the language's library that those of a meaning waited in for another thread, if it was
    /// always the same: `Queue.get` says more than the futex below it.
    ///
    /// ```text
    /// leaf                                                            root
    /// futex_wait  sem_wait  Condition.wait  Queue.get  Pool.acquire  main
    ///                       `- the library's -'        the program's
    /// ```
    pub(super) fn library_function(&self, meaning: &SharedMeaning) -> Option<String> {
        self.library_functions.get(meaning)?.as_deref().map(str::to_owned)
    }

    fn note_library_function(&mut self, meaning: &SharedMeaning, stack: StackPairId) {
        let Some(own) = meaning.label.as_ref().filter(|_| meaning.cause == Cause::Futex) else {
            return;
        };
        let (StackRef::Id(user), _) = self.stacks.get(stack) else { return };
        let frames = self.labels.user_labels_of(user);
        let place = frames.iter().position(|label| label == own);
        let called = place.and_then(|place| frames.get(place.checked_sub(1)?));
        // Of a script, what its interpreter does inside is not the library's.
        let is_library = |label: &&Label| {
            label.whose == CodeOwner::Runtime
                && label.is_named()
                && label.has_source() == own.has_source()
                && (label.has_source() || label.function.contains("::"))
        };
        let name = called.filter(is_library).map(|label| {
            let name: &str = &label.function;
            Arc::from(name.split_once(" (").map_or(name, |(name, _)| name))
        });
        self.library_functions
            .entry(meaning.clone())
            .and_modify(|known| *known = known.take().filter(|known| name.as_ref() == Some(known)))
            .or_insert(name);
    }

    /// Returns the one place of a meaning. Wherever a thread waits for its interpreter's lock, it is
    /// the same lock.
    pub(super) fn share(&mut self, meaning: SleepMeaning) -> SharedMeaning {
        let is_one_lock = meaning.lock().is_some_and(LockName::is_of_interpreter);
        let label = meaning.label.clone().filter(|_| !is_one_lock);
        let meaning = SleepMeaning { label, ..meaning };
        if let Some(known) = self.shared.get(&meaning) {
            return SharedMeaning(Arc::clone(known));
        }
        let meaning = Arc::new(meaning);
        self.shared.insert(Arc::clone(&meaning));
        SharedMeaning(meaning)
    }

    /// Returns whether a thread waited on a condition variable of its program's own.
    fn is_on_condition(&self, cause: Cause, stack: StackPairId) -> bool {
        let (user, _) = self.stacks.get(stack);
        cause == Cause::Futex && condition_waits::is_on_condition(self.labels.stacks(), user)
    }

    /// Returns the frame that says best why a thread slept.
    pub(super) fn sleep_label(&mut self, cause: Cause, stack: StackPairId) -> Option<Label> {
        let (user, kernel) = self.stacks.get(stack);
        let frames = self.frames(user).to_vec();
        let is_wrapper = |label: &Label| {
            !label.has_source()
                && has_waiting_word(&label.function)
                && (is_made_of_waiting_words(&label.function)
                    || self.callers.get(label).is_some_and(|callers| callers.len() > 1))
        };
        let own = frames.iter().find(|label| !is_wrapper(label)).or_else(|| frames.first());
        match own {
            Some(own) if own.is_own_or_library() => Some(own.clone()),
            // An interpreter's own functions tell what waits, not why.
            _ => self.labels.wait_label(cause, user, kernel).filter(|label| {
                label.is_named()
                    && (label.whose != CodeOwner::Runtime || has_lock_word(&label.function))
            }),
        }
    }

    /// Returns whose event loop a wait blocked, if it was in the middle of a task.
    fn blocked_loop(
        &mut self,
        cause: Cause,
        evidence: FrameEvidence,
        stack: StackPairId,
    ) -> Option<EventLoop> {
        let (user, _) = self.stacks.get(stack);
        self.blocked_loops.find(self.labels.stacks(), user, cause, evidence)
    }

    /// Returns what inside of the kernel a thread waited for.
    pub(super) fn kernel_wait(&mut self, cause: Cause, stack: StackPairId) -> Option<KernelWait> {
        let (_, kernel) = self.stacks.get(stack);
        let StackRef::Id(id) = kernel else { return None };
        let stacks = self.labels.stacks();
        let known = self.kernel_waits.entry((id, cause));
        *known.or_insert_with(|| find_kernel_wait(stacks, kernel, cause))
    }

    /// Returns the deepest frame that covers most of some work, which was done in these stacks for
    /// so long each.
    ///
    /// ```text
    /// main ── serve ─┬─ evalCommand ─┬─ zmalloc      9 %
    ///   100 %        │      88 %     ├─ luaV_execute 41 %
    ///                └─ getCommand   └─ …            → evalCommand
    /// ```
    pub(super) fn work_label(
        &mut self,
        work: impl Iterator<Item = (StackPairId, Nanos)>,
    ) -> Option<Label> {
        let mut work: Vec<_> = work.collect();
        // Time without a sample is counted where the thread then left the CPU, which is often not
        // where it worked.
        let time_of = |work: &[(StackPairId, Nanos)]| work.iter().map(|&(_, time)| time).sum();
        let everything: Nanos = time_of(&work);
        let (sampled, rest): (Vec<_>, Vec<_>) =
            work.into_iter().partition(|(stack, _)| self.sampled.contains(stack));
        let in_samples: Nanos = time_of(&sampled);
        let is_enough = in_samples.0 as f64 >= everything.0 as f64 * MIN_SAMPLED;
        work = sampled;
        self.drop_cut_stacks(&mut work);
        if !is_enough {
            work.extend(rest);
        }
        let mut all = Nanos(0);
        let mut inclusive: HashMap<Label, (Nanos, u64)> = HashMap::new();
        let mut kernel_work: HashMap<Label, Nanos> = HashMap::new();
        for (stack, time) in work {
            let (user, kernel) = self.stacks.get(stack);
            all += time;
            let frames: Vec<Label> =
                self.work_frames(user).into_iter().map(Label::without_line).collect();
            let mut seen = HashSet::new();
            for (label, depth) in frames.iter().rev().zip(1..) {
                let (sum, depths) = inclusive.entry(label.clone()).or_default();
                if seen.insert(label) {
                    *sum += time;
                }
                *depths = depth.max(*depths);
            }
            if frames.is_empty()
                && let Some(label) = self.labels.activity_label(user, kernel)
            {
                *kernel_work.entry(label).or_default() += time;
            }
        }
        let most = |time: Nanos| time.0 * 2 >= all.0 && time > Nanos(0);
        let own = inclusive
            .into_iter()
            .filter(|&(_, (time, _))| most(time))
            // The deeper one of two that cover the same.
            .max_by(|(a, (_, one)), (b, (_, other))| one.cmp(other).then_with(|| b.cmp(a)))
            .map(|(label, _)| label);
        own.or_else(|| {
            let mut kernel_work: Vec<_> = kernel_work.into_iter().collect();
            kernel_work.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            kernel_work.into_iter().find(|&(_, time)| most(time)).map(|(label, _)| label)
        })
    }

    /// Drops stacks that end early in a function that other stacks have with all of its callers: they
    /// tell less than those, and nothing else. Hand-written code often says too little of its frames.
    fn drop_cut_stacks(&mut self, work: &mut Vec<(StackPairId, Nanos)>) {
        let mut whole: HashSet<Label> = HashSet::new();
        let mut cut: HashMap<StackPairId, Option<Label>> = HashMap::new();
        for &(stack, _) in work.iter() {
            let (user, _) = self.stacks.get(stack);
            let StackRef::Id(id) = user else { continue };
            let is_cut = self.labels.stacks().stacks.get(&id).is_some_and(|stack| {
                !matches!(
                    stack.end,
                    StackEnd::Unknown
                        | StackEnd::EntryPoint
                        | StackEnd::CopyTooShort
                        | StackEnd::TooDeep
                )
            });
            let mut frames = self.labels.user_labels_of(id);
            match is_cut {
                true => _ = cut.insert(stack, frames.pop().map(Label::without_line)),
                false => whole.extend(frames.into_iter().map(Label::without_line)),
            }
        }
        work.retain(|(stack, _)| match cut.get(stack) {
            Some(outermost) => outermost.as_ref().is_none_or(|label| !whole.contains(label)),
            None => true,
        });
    }

    /// Returns the frames that tell most; those of the runtime where it has no others. Of a script
    /// whose own functions have no names, what it called says more than what that did inside.
    ///
    /// ```text
    /// leaf                                                            root
    /// sha512_block  PKCS5_PBKDF2  node::CryptoJob::Run  v8::HandleApiCall  (script)  uv_run
    ///                             the script called it  `--- engine ----'
    /// ```
    fn work_frames(&mut self, user: StackRef) -> Vec<Label> {
        let StackRef::Id(id) = user else { return Vec::new() };
        let own = self.frames(user).to_vec();
        if own.first().is_some_and(|label| label.whose == CodeOwner::Program) {
            return own;
        }
        let mut all = self.labels.user_labels_of(id);
        all.retain(|label| label.whose <= CodeOwner::Runtime && label.is_named());
        let engine = all.iter().position(Label::is_of_engine);
        match engine.and_then(|engine| all.get(engine.checked_sub(1)?)) {
            Some(called) => vec![called.clone()],
            None if own.is_empty() => all,
            None => own,
        }
    }

    /// Returns a stack's frames with the owner that tells most, leaf first.
    fn frames(&mut self, user: StackRef) -> &[Label] {
        let StackRef::Id(id) = user else { return &[] };
        let labels = &mut self.labels;
        self.frames.entry(id).or_insert_with(|| {
            let all = labels.user_labels_of(id);
            let best = (all.iter().filter(|label| label.is_own_or_library()))
                .map(|label| label.whose)
                .min();
            all.into_iter()
                .filter(|label| Some(label.whose) == best && label.is_own_or_library())
                .collect()
        })
    }
}

fn find_kernel_wait(
    stacks: &StackTable,
    kernel: StackRef,
    wait_cause: Cause,
) -> Option<KernelWait> {
    let functions: Vec<&str> = cause::kernel_frames(stacks, kernel).collect();
    let filesystem = (functions.iter().enumerate())
        .find_map(|(place, name)| Some((place, find_filesystem_wait(name)?)));
    // What lies nearest to the leaf says it: a thread that asks a FUSE server may have to reclaim
    // memory for that first, and who reclaims memory may have to ask the server. A filesystem's own
    // function that asks for a lock has not asked its server yet.
    let (inner, _) = functions.split_at(filesystem.map_or(functions.len(), |(place, _)| place));
    (find_memory_wait(inner).map(KernelWait::Memory))
        .or_else(|| find_kernel_lock(wait_cause, functions.iter().copied()).map(KernelWait::Lock))
        .or_else(|| filesystem.map(|(_, wait)| wait))
}

/// How functions begin that wait before they change anything until a journal has room, or has written what
/// others changed. A sync is none of them: it wants its own changes on the disk.
const JOURNALS: &[&str] = &[
    "wait_transaction_locked",
    "wait_transaction_switching",
    "add_transaction_credits",
    "start_this_handle",
    "jbd2_journal_wait_updates",
    "xlog_grant_head_wait",
    "wait_current_trans",
];

/// How functions of filesystems begin whose files a server has.
const REMOTE_FILESYSTEMS: &[&str] = &[
    "nfs_",
    "nfs4_",
    "nfs3_",
    "rpc_",
    "__rpc_",
    "cifs_",
    "smb2_",
    "ceph_",
    "v9fs_",
    "p9_client_",
    "p9_virtio_",
];

/// Returns what a kernel function waits for that belongs to a filesystem or a connection.
fn find_filesystem_wait(name: &str) -> Option<KernelWait> {
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    // The other end: a server at work on its connection.
    if begins(&["fuse_dev_"]) {
        return None;
    }
    if begins(&["fuse_", "__fuse_", "request_wait_answer"]) {
        Some(KernelWait::Fuse)
    } else if begins(REMOTE_FILESYSTEMS) {
        Some(KernelWait::NetworkFilesystem)
    } else if begins(&["balance_dirty_pages"]) {
        Some(KernelWait::Writeback)
    } else if begins(JOURNALS) {
        Some(KernelWait::Journal)
    } else if begins(&["inet_stream_connect", "__inet_stream_connect", "unix_stream_connect"]) {
        Some(KernelWait::Connect)
    } else if begins(&["fifo_open"]) {
        Some(KernelWait::OpenFifo)
    } else {
        None
    }
}

/// Splits a function's name into lower-case words: `WaitEventSetWait`, `pg_sleep`.
fn words(name: &str) -> Vec<String> {
    let plain = name.split(['(', '<', '@', '.']).next().unwrap_or(name);
    let last = plain.rsplit("::").next().unwrap_or(plain);
    let mut words: Vec<String> = Vec::new();
    let mut previous = '_';
    for c in last.chars() {
        if !c.is_ascii_alphanumeric() {
            previous = '_';
            continue;
        }
        let begins = previous == '_' || (c.is_ascii_uppercase() && previous.is_ascii_lowercase());
        match words.last_mut() {
            Some(word) if !begins => word.push(c.to_ascii_lowercase()),
            _ => words.push(c.to_ascii_lowercase().to_string()),
        }
        previous = c;
    }
    words
}

/// Returns whether a name says that its function is about a lock or a queue.
fn has_lock_word(name: &str) -> bool {
    const WORDS: &[&str] = &["lock", "acquire", "gil", "join", "queue", "monitor", "enter"];
    words(name).iter().any(|word| WORDS.contains(&word.as_str()))
}

fn is_waiting_word(word: &str) -> bool {
    WAITING_WORDS.contains(&word)
}

/// Returns whether a name says that its function waits, and maybe for what.
fn has_waiting_word(name: &str) -> bool {
    let connecting =
        ["or", "for", "on", "set", "internal", "impl", "do", "fd", "once", "event", "events"];
    words(name).iter().any(|word| is_waiting_word(word) && !connecting.contains(&word.as_str()))
}

/// Returns whether a name says that its function waits, and not for what.
fn is_made_of_waiting_words(name: &str) -> bool {
    let words = words(name);
    !words.is_empty() && words.iter().all(|word| is_waiting_word(word))
}

#[cfg(test)]
mod tests {
    use super::{has_waiting_word, is_made_of_waiting_words, words};

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words("WaitEventSetWait"), ["wait", "event", "set", "wait"]);
        assert_eq!(words("pg_sleep"), ["pg", "sleep"]);
        assert_eq!(words("db::pool::wait_for(u8)"), ["wait", "for"]);
    }

    #[test]
    fn wrappers_say_that_they_wait_and_not_for_what() {
        for wrapper in ["WaitEventSetWait", "WaitLatch", "WaitLatchOrSocket", "do_poll"] {
            assert!(is_made_of_waiting_words(wrapper), "{wrapper}");
        }
        for named in ["ProcSleep", "pg_sleep", "LockAcquire", "wait_for_payment", "evalCommand"] {
            assert!(!is_made_of_waiting_words(named), "{named}");
        }
        assert!(has_waiting_word("ProcSleep") && !has_waiting_word("LockAcquire"));
        assert!(!has_waiting_word("setup_events_for"));
    }
}
