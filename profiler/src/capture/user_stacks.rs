//! User stacks: unwinds the copies that the kernel half sends, and tells it by what it will recognise
//! them.

use std::{
    io::PipeReader,
    iter,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError},
    },
    time::Duration,
};

use offwake_unwind::UnwoundStack;
use rustix::event::{PollFd, PollFlags, poll};

use super::messages::Lookup;
use crate::{
    decode::{self, CopyPurpose, UserStackCopy},
    kernel::{self, CallSites, PythonThreads, StackCopies, UserStackMaps},
    recognition::{Check, Lesson, Recognition, RunsPython},
    symbols::{Sleeper, Symbols},
    units::{Nanos, StackId, Timestamp},
    unwinder_process::UnwinderClient,
};

/// The shortest time between two times that the look-ups are told of copies.
const PACE: Duration = Duration::from_millis(1);
/// How long it takes for what was sent to be asked for, about: the pace of the drain, twice.
const ON_ITS_WAY: Nanos = Nanos(20_000_000);
/// How long is waited at most until the machine is known: some 1,000 processes.
const PATIENCE: Nanos = Nanos(500_000_000);
/// Copies that are unwound at a time: what is learnt of them is known behind them, and waits for no more.
const AT_A_TIME: usize = 16;
/// Such times in a row: other look-ups wait meanwhile.
const IN_A_ROW: usize = 16;

/// What the look-ups share with the other threads.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The look-ups were told of copies and have not looked yet.
    is_told: AtomicBool,
    /// When the look-ups had nothing to do last, in ns.
    idle_at: AtomicU64,
    /// Stacks that are kept no longer.
    gone: Mutex<Vec<StackId>>,
    disagreed: AtomicU64,
    given_up: AtomicU64,
    undecodable: AtomicU64,
}

/// What was counted here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Stacks that were others than they were taken for.
    pub disagreed: u64,
    /// Places where nothing tells stacks apart.
    pub given_up: u64,
    /// Copies that could not be read.
    pub undecodable: u64,
}

impl Shared {
    /// These are not kept any more.
    pub fn forget(&self, stacks: &[StackId]) {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.extend_from_slice(stacks);
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        Counted {
            disagreed: self.disagreed.load(Ordering::Relaxed),
            given_up: self.given_up.load(Ordering::Relaxed),
            undecodable: self.undecodable.load(Ordering::Relaxed),
        }
    }

    /// The look-ups have nothing to do.
    pub fn note_idle(&self) {
        self.idle_at.store(kernel::now().0, Ordering::Relaxed);
    }

    /// Waits until everything has been looked up that was asked for before now, for a while: programs
    /// are known then, and the stacks of those that wait, before anything is recorded.
    pub fn settle(&self) {
        let begin = kernel::now();
        let asked = begin + ON_ITS_WAY;
        while Timestamp(self.idle_at.load(Ordering::Relaxed)) < asked
            && kernel::now().since(begin) < PATIENCE
        {
            std::thread::sleep(PACE);
        }
    }

    fn take_gone(&self) -> Vec<StackId> {
        std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Unwinds copies.
pub(super) struct UserStacks {
    copies: StackCopies,
    call_sites: CallSites,
    python_threads: PythonThreads,
    unwinder: UnwinderClient,
    recognition: Recognition,
    shared: Arc<Shared>,
}

impl UserStacks {
    pub fn new(
        UserStackMaps { copies, call_sites, python_threads }: UserStackMaps,
        unwinder: UnwinderClient,
        max_places: usize,
        shared: Arc<Shared>,
    ) -> Self {
        let recognition = Recognition::new(max_places);
        Self { copies, call_sites, python_threads, unwinder, recognition, shared }
    }

    /// There is nothing to do.
    pub fn note_idle(&self) {
        self.shared.note_idle();
    }

    /// Tells the kernel half which threads run Python.
    pub fn tell_of_python(&mut self, symbols: &mut Symbols) {
        for thread in symbols.take_python_threads() {
            self.python_threads.set(thread.tid, thread.runs);
        }
    }

    /// Unwinds what has come, and gives back whether that was all.
    pub fn unwind(&mut self, symbols: &mut Symbols) -> bool {
        // Before looking: what comes after that is told of once more.
        self.shared.is_told.store(false, Ordering::Relaxed);
        let gone = self.shared.take_gone();
        if !gone.is_empty() {
            self.call_sites.remove(self.recognition.forget(&gone));
        }
        (0..IN_A_ROW).any(|_| self.unwind_some(symbols))
    }

    /// Unwinds a few, and gives back whether those were all.
    fn unwind_some(&mut self, symbols: &mut Symbols) -> bool {
        let mut records = Vec::with_capacity(AT_A_TIME);
        while records.len() < AT_A_TIME {
            let Some(record) = self.copies.take_oldest() else { break };
            records.push(record.to_vec());
        }
        let is_all = records.len() < AT_A_TIME;
        let decoded = records.iter().filter_map(|record| {
            let copy = decode::decode_stack_copy(record).ok();
            count(&self.shared.undecodable, copy.is_none());
            copy
        });
        let (copies, sleepers): (Vec<UserStackCopy>, Vec<Option<Sleeper>>) =
            decoded.filter_map(|copy| read_if_asleep(copy, symbols)).unzip();
        let (own, others): (Vec<UserStackCopy>, Vec<UserStackCopy>) = iter::zip(copies, &sleepers)
            .map(|(copy, sleeper)| with_sleeper(copy, sleeper.as_ref()))
            .partition(|copy| self.unwinder.is_own(copy.tgid));
        // To ask for these would make the next ones.
        for copy in &own {
            self.learn(symbols, copy, None);
        }
        let unwound = symbols.unwind(&mut self.unwinder, &others);
        for (copy, unwound) in iter::zip(&others, unwound) {
            self.learn(symbols, copy, unwound);
        }
        is_all
    }

    fn learn(
        &mut self,
        symbols: &mut Symbols,
        copy: &UserStackCopy,
        unwound: Option<UnwoundStack>,
    ) {
        if symbols.take_lost_code(copy) {
            self.call_sites.remove(self.recognition.forget_process(copy.tgid));
        }
        // Nothing is learnt from that: it is copied the next time too.
        let Some(unwound) = unwound.map(Rc::new) else {
            if copy.purpose != CopyPurpose::Check {
                symbols.observe_not_unwound(copy);
            }
            return;
        };
        let python = match symbols.runs_python(copy, &unwound) {
            true => RunsPython::Yes,
            false => RunsPython::No,
        };
        let (Lesson { know, forget, keeps, is_given_up }, check) =
            self.recognition.learn(copy, &unwound, python);
        if keeps || copy.purpose != CopyPurpose::Check {
            symbols.observe_unwound(copy, &unwound);
        }
        for (key, place) in know {
            self.call_sites.insert(key, &place);
        }
        self.call_sites.remove(forget);
        count(&self.shared.disagreed, check == Some(Check::Disagreed));
        count(&self.shared.given_up, is_given_up);
    }
}

fn count(counter: &AtomicU64, is_so: bool) {
    counter.fetch_add(u64::from(is_so), Ordering::Relaxed);
}

/// Reads the stack of a thread that has slept since before the window opened. None if it has woken.
fn read_if_asleep<'a>(
    copy: UserStackCopy<'a>,
    symbols: &mut Symbols,
) -> Option<(UserStackCopy<'a>, Option<Sleeper>)> {
    let CopyPurpose::BeforeWindow { voluntary_switches } = copy.purpose else {
        return Some((copy, None));
    };
    let sleeper = symbols.read_sleeper(&copy, voluntary_switches);
    if sleeper.is_none() {
        symbols.observe_woken(&copy);
    }
    sleeper.map(|sleeper| (copy, Some(sleeper)))
}

fn with_sleeper<'a>(copy: UserStackCopy<'a>, sleeper: Option<&'a Sleeper>) -> UserStackCopy<'a> {
    match sleeper {
        None => copy,
        Some(Sleeper { bytes, python }) => UserStackCopy { bytes, python: python.clone(), ..copy },
    }
}

/// Tells the look-ups when there are copies, until the other end of `over` is closed: a busy thread
/// makes one at each of its waits until it is answered.
pub(super) fn watch(
    copies: &OwnedFd,
    over: &PipeReader,
    lookups: &SyncSender<Lookup>,
    shared: &Shared,
) {
    loop {
        let mut descriptors =
            [PollFd::new(copies, PollFlags::IN), PollFd::new(over, PollFlags::empty())];
        // An interrupted call is only a wait that was too short.
        let _interrupted = poll(&mut descriptors, None);
        let [copies, over] = descriptors.map(|descriptor| descriptor.revents());
        if !over.is_empty() {
            return;
        }
        if copies.is_empty() {
            continue;
        }
        if !shared.is_told.swap(true, Ordering::Relaxed) {
            match lookups.try_send(Lookup::StackCopies) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => shared.is_told.store(false, Ordering::Relaxed),
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
        std::thread::sleep(PACE);
    }
}
