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
    SocketRole, StackEnd, StackRef,
    units::{Nanos, StackId, Tid},
};

use crate::{
    blame::{
        Blame, FrameEvidence, LockName, Sleep, SleepId, Sleeps, StackPairId, StackPairs, Stop,
        cause::{self, Cause},
    },
    label::{CodeOwner, Label, LabelFinder},
    timeline::WaitIndex,
};

use super::{
    blocked_loops::{BlockedLoopFinder, EventLoop},
    condition_waits,
    kernel_waits::{KernelWait, find_kernel_wait},
    waiting_words::{has_lock_word, has_waiting_word, is_made_of_waiting_words},
};

/// Samples of at least this part of some work tell what all of it was.
const MIN_SAMPLED: f64 = 0.2;

/// How threads slept, by its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SleepMeaning {
    pub(super) cause: Cause,
    pub(super) label: Option<Label>,
    pub(super) role: Option<SocketRole>,
    pub(super) kernel: Option<KernelWait>,
    pub(super) evidence: FrameEvidence,
    pub(super) stop: Option<Stop>,
    /// The device of the filesystem that the file was on, where a disk was waited for, or that it is frozen no
    /// more.
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

    /// Returns the lock, if the threads sleep and ask for it now and then.
    pub(super) fn polled_lock(&self) -> Option<LockName> {
        self.lock().filter(|lock| self.cause == Cause::Timer || lock.is_polled())
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
            // Time without a sample is counted where a thread tells its parent of its end. It did not work there.
            if frames.is_empty()
                && (self.sampled.contains(&stack) || !self.is_of_exit(kernel))
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

    fn is_of_exit(&self, kernel: StackRef) -> bool {
        cause::kernel_frames(self.labels.stacks(), kernel).any(|function| function == "do_exit")
    }

    /// Returns the functions of those stacks in which samples found threads at work, the innermost one first; those of
    /// the kernel where it is in none of the program's.
    pub(super) fn sampled_functions(
        &mut self,
        stacks: impl Iterator<Item = StackPairId>,
    ) -> HashMap<StackPairId, Vec<Label>> {
        let sampled = stacks.filter(|stack| self.sampled.contains(stack));
        let mut sampled: Vec<_> = sampled.map(|stack| (stack, Nanos(0))).collect();
        self.drop_cut_stacks(&mut sampled);
        let mut functions = HashMap::new();
        for (stack, _) in sampled {
            let (user, kernel) = self.stacks.get(stack);
            let mut frames: Vec<Label> =
                self.work_frames(user).into_iter().map(Label::without_line).collect();
            if frames.is_empty() {
                frames.extend(self.labels.activity_label(user, kernel));
            }
            functions.insert(stack, frames);
        }
        functions
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
