//! Waits + wakes → who or what each blocked nanosecond was spent on.
//!
//! `docs/blame.md` explains which time is blamed on what, and why.
//!
//! ```text
//! waiter   --+-- blocked ------------------------------+-- runnable --+--
//!                                                      ^ wake
//! waker    ----- on-CPU ---+-- blocked --+- runnable -+-- on-CPU -----------
//! blame      |   work      | one hop on  | cpu_queue  |W|               (W: work)
//! ```

mod asks;
mod broadcasts;
pub mod cause;
mod chains;
mod class;
mod condition_calls;
mod connection_sides;
mod connection_threads;
mod cpus;
mod frame_evidence;
mod gangs;
mod gaps;
mod idle;
mod interpreter_lock;
mod kernel_locks;
mod kinds;
mod ledger;
mod local_servers;
mod locks;
mod lone_notifies;
mod mailboxes;
mod notified_places;
mod only_filesystems;
mod open_asks;
mod parts;
mod passed_on;
mod pattern_analysis;
mod poll_ticks;
mod polled_file_locks;
mod process_wakes;
mod refused_locks;
mod retries;
mod room;
mod shared_locks;
mod signal;
mod sleep_length;
mod sleeps;
mod slices;
mod slow_readers;
mod softirq;
mod stops;
mod timed_locks;
mod timed_retries;
mod visit;
mod wake_source;
mod wakes_by_waker;
mod wakes_in_turn;
mod walk;
mod work_waits;

use std::{collections::HashMap, ops::Range, sync::OnceLock};

use offwake_recording::{
    Begin, End, LockKind, Recording, ThreadRef, WaitRow,
    units::{Nanos, Tgid, Tid, Timestamp},
};

use crate::markers::Markers;
use crate::timeline::{State, ThreadIndex, Timeline, WaitIndex, WakeUse, wake_use};

pub use chains::{ChainId, Chains, Hop, StackPairId, StackPairs};
pub use class::{BlameClass, BlameEntryKind, BlameGroup};
pub use connection_sides::{ConnectionSide, ConnectionSides, descriptor};
pub use frame_evidence::{FrameEvidence, LockName};
pub(crate) use frame_evidence::{libc_name, python_name};
pub use kinds::{BlameKind, BlamePart, ChainLimits, External, IdleHint, IdleState, Reason};
pub use ledger::Ledger;
pub use locks::is_lock_wait;
pub use parts::BlameParts;
pub use retries::{MAX_RETRY_CPU_TIME, is_woken_by_write_space};
pub use sleeps::{Sleep, SleepId, Sleeps};
pub use stops::Stop;
pub use wake_source::WakeSource;
pub use walk::{
    GroupId, HopDetail, HopGroups, KindSum, SharedWalk, SharedWalkId, WalkedWait, Walker,
};

use broadcasts::Broadcasts;
use cause::{Cause, syscalls};
use connection_threads::ConnectionThreads;
use cpus::CpuOccupancy;
use gaps::Gaps;
use interpreter_lock::InterpreterLockHolders;
use locks::{Locks, Releases};
use lone_notifies::LoneNotifies;
use mailboxes::Mailboxes;
use pattern_analysis::PatternAnalysis;
use poll_ticks::PollTicks;
use process_wakes::ProcessWakes;
use refused_locks::RefusedLocks;
use shared_locks::SharedLocks;
use timed_locks::TimedLocks;
use timed_retries::TimedRetries;
use wake_source::PatternWakeSource;

/// How the last piece of a wait in several pieces ended.
#[derive(Clone, Copy, Debug)]
enum EndOfLastPiece {
    /// By whoever ended this wait, which is the last piece.
    Woken(WaitIndex, IdleHint),
    /// Not before the recording did.
    StillBlocked(IdleHint),
}

/// Everything that is needed to find what a wait's time was spent on, gathered once.
pub struct Blame<'a> {
    recording: &'a Recording,
    timeline: &'a Timeline,
    limits: ChainLimits,
    stacks: StackPairs,
    sleeps: Sleeps,
    /// What waits of each pattern have in common, by the pattern's index.
    patterns: Vec<PatternAnalysis>,
    /// The range of [`Timeline::threads`] with the waker's tid, by the waker's index.
    threads_by_waker: Vec<Range<u32>>,
    /// The threads of each process; made when it is needed first.
    threads_by_process: OnceLock<HashMap<Tgid, Vec<ThreadIndex>>>,
    /// Made when it is needed first.
    connection_threads: OnceLock<ConnectionThreads>,
    /// Each thread's samples in order of time, by [`ThreadIndex`].
    samples: Vec<Vec<(Timestamp, StackPairId)>>,
    locks: Locks,
    /// The releases of the kernel's own locks.
    kernel_locks: Releases,
    shared_locks: SharedLocks,
    timed_retries: TimedRetries,
    poll_ticks: PollTicks,
    timed_locks: TimedLocks,
    broadcasts: Broadcasts,
    lone_notifies: LoneNotifies,
    interpreter_locks: InterpreterLockHolders,
    mailboxes: Mailboxes,
    process_wakes: ProcessWakes,
    refused_locks: RefusedLocks,
    gaps: Gaps,
    cpus: CpuOccupancy,
    markers: Markers,
}

impl<'a> Blame<'a> {
    /// Prepares the blame of a recording and the timeline that was built from it.
    #[must_use]
    pub fn new(recording: &'a Recording, timeline: &'a Timeline, limits: ChainLimits) -> Self {
        let of_records = || {
            let stacks = StackPairs::new(recording);
            let mut sleeps = Sleeps::default();
            let mut patterns = pattern_analysis::analyse_all(recording, &stacks, &mut sleeps);
            let gaps = Gaps::new(timeline);
            let locks = Locks::new(recording, &patterns, &gaps);
            locks.mark_waits_busy(&mut patterns);
            let kernel_locks = kernel_locks::find_releases(recording, &patterns);
            let shared_locks = SharedLocks::new(recording, &patterns);
            let mailboxes = Mailboxes::new(recording, &mut patterns);
            let (retries, process_wakes) = rayon::join(
                || {
                    let timed_retries = TimedRetries::new(recording, timeline, &patterns);
                    let poll_ticks = PollTicks::new(recording, timeline, &patterns);
                    let timed_locks =
                        TimedLocks::new(recording, timeline, &patterns, &timed_retries);
                    let broadcasts = Broadcasts::new(recording, timeline, &patterns);
                    let lone_notifies = LoneNotifies::new(recording, timeline, &patterns);
                    let holders = InterpreterLockHolders::new(recording, timeline, &patterns);
                    ((timed_retries, poll_ticks, timed_locks), broadcasts, lone_notifies, holders)
                },
                || ProcessWakes::new(recording, &patterns),
            );
            let of_locks = (locks, kernel_locks, shared_locks, retries);
            (stacks, sleeps, patterns, gaps, of_locks, (mailboxes, process_wakes))
        };
        let ((stacks, sleeps, patterns, gaps, of_locks, (mailboxes, process_wakes)), cpus) =
            rayon::join(of_records, || CpuOccupancy::new(timeline));
        let (locks, kernel_locks, shared_locks, retries) = of_locks;
        let (timed, broadcasts, lone_notifies, interpreter_locks) = retries;
        let (timed_retries, poll_ticks, timed_locks) = timed;
        let refused_locks = RefusedLocks::new(recording, timeline, &patterns);
        Self {
            recording,
            timeline,
            limits: ChainLimits { depth: limits.depth.min(ChainLimits::DEEPEST), ..limits },
            threads_by_waker: threads_by_waker(recording, timeline),
            threads_by_process: OnceLock::new(),
            connection_threads: OnceLock::new(),
            samples: samples(recording, timeline, &stacks),
            locks,
            kernel_locks,
            shared_locks,
            timed_retries,
            poll_ticks,
            timed_locks,
            broadcasts,
            lone_notifies,
            interpreter_locks,
            mailboxes,
            process_wakes,
            refused_locks,
            gaps,
            cpus,
            markers: Markers::new(recording, timeline),
            stacks,
            sleeps,
            patterns,
        }
    }

    /// The recording.
    #[must_use]
    pub fn recording(&self) -> &'a Recording {
        self.recording
    }

    /// The timeline.
    #[must_use]
    pub fn timeline(&self) -> &'a Timeline {
        self.timeline
    }

    /// What programs marked in their own code.
    #[must_use]
    pub fn markers(&self) -> &Markers {
        &self.markers
    }

    /// Creates a walker, which finds the blame of single waits. Several can work in parallel.
    #[must_use]
    pub fn walker(&self) -> Walker<'_> {
        self.walker_with_detail(HopDetail::WakerStacks)
    }

    /// Creates a walker whose hops and parts say what `detail` asks for.
    #[must_use]
    pub fn walker_with_detail<'b>(&'b self, detail: HopDetail<'b>) -> Walker<'b> {
        Walker::new(self, detail)
    }

    /// The stacks that parts and hops refer to.
    #[must_use]
    pub fn stacks(&self) -> &StackPairs {
        &self.stacks
    }

    /// The ways in which threads slept that parts and hops refer to.
    #[must_use]
    pub fn sleeps(&self) -> &Sleeps {
        &self.sleeps
    }

    /// Returns how the thread of a wait slept.
    #[must_use]
    pub fn sleep_of_wait(&self, wait: WaitIndex) -> SleepId {
        self.pattern(wait).map_or(SleepId::NONE, |(_, pattern)| pattern.sleep)
    }

    /// Returns a wait's own stacks, and the waker's stacks when it ended the wait.
    #[must_use]
    pub fn wait_and_waker_stacks(&self, wait: WaitIndex) -> (StackPairId, StackPairId) {
        self.pattern(wait).map_or((StackPairId::NONE, StackPairId::NONE), |(_, pattern)| {
            (pattern.own_stack, pattern.waker_stack)
        })
    }

    /// Returns the cause of a wait.
    #[must_use]
    pub fn cause(&self, wait: WaitIndex) -> Cause {
        self.pattern(wait).map_or(Cause::Other, |(_, pattern)| pattern.cause)
    }

    /// Returns what the functions of a wait's user stack tell about it.
    #[must_use]
    pub fn frame_evidence(&self, wait: WaitIndex) -> FrameEvidence {
        self.pattern(wait).map_or(FrameEvidence::None, |(_, pattern)| pattern.evidence)
    }

    /// Returns what stopped the thread of a wait, if it was stopped.
    #[must_use]
    pub fn stop_of_wait(&self, wait: WaitIndex) -> Option<Stop> {
        self.sleeps.get(self.sleep_of_wait(wait)).and_then(|sleep| sleep.stop)
    }

    /// Returns the device of the filesystem that a wait for a disk was on, if that is known.
    #[must_use]
    pub fn filesystem_of_wait(&self, wait: WaitIndex) -> Option<u32> {
        self.sleeps.get(self.sleep_of_wait(wait)).and_then(|sleep| sleep.filesystem)
    }

    /// Returns whether a wait was for the next request, as far as the wait itself tells.
    #[must_use]
    pub fn idle_hint(&self, wait: WaitIndex) -> IdleHint {
        self.pattern(wait).map_or(IdleHint::Busy, |(_, pattern)| pattern.idle_hint)
    }

    /// Returns whether a wait was idle, as far as the wait itself tells.
    #[must_use]
    pub fn own_idle_state(&self, wait: WaitIndex) -> IdleState {
        match self.idle_hint(wait) {
            IdleHint::Idle => IdleState::Idle,
            IdleHint::Busy | IdleHint::SameAsWaker => IdleState::Busy,
        }
    }

    /// Returns who or what ended a wait.
    #[must_use]
    pub fn wake_source(&self, wait: WaitIndex) -> WakeSource {
        let Some((row, pattern)) = self.pattern(wait) else {
            return WakeSource::Unknown(Reason::Lost);
        };
        match (pattern.source, wake_use(row)) {
            (Some(PatternWakeSource::Known(source)), WakeUse::Ended | WakeUse::Early) => source,
            (Some(PatternWakeSource::Softirqd(softirqd)), WakeUse::Ended | WakeUse::Early) => {
                self.find_packet_sender(wait, softirqd)
            }
            (Some(PatternWakeSource::OverTimer), WakeUse::Ended | WakeUse::Early) => {
                let is_tcp = self.has_sent_its_syn_again(wait)
                    || !self.may_have_sent_since(wait, row.woken_at());
                WakeSource::Interrupt(match is_tcp {
                    true => Reason::TcpTimer,
                    false => Reason::LocalSoftirq,
                })
            }
            (None, _) | (_, WakeUse::None | WakeUse::Stale) => {
                WakeSource::Unknown(match (row.begin(), row.end()) {
                    (_, End::StillOff) => Reason::StillBlocked,
                    (_, End::Missed) => Reason::Lost,
                    (Begin::BeforeWindow, End::Seen) => Reason::BeforeWindow,
                    (Begin::Seen | Begin::Newborn, End::Seen) if self.has_slept_its_time(wait) => {
                        return WakeSource::External(External::Timer);
                    }
                    (Begin::Seen | Begin::Newborn, End::Seen) => Reason::NoWakeup,
                })
            }
        }
    }

    fn has_slept_its_time(&self, wait: WaitIndex) -> bool {
        let whole = self.recording.waits.get(wait.0 as usize);
        self.cause(wait) == Cause::Timer
            && whole.is_some_and(|whole| sleep_length::has_slept_its_time(&whole))
    }

    /// Returns the thread that was current when a wait was ended, and when that was. None if
    /// nothing is known of that thread, such as one of the profiler's own.
    #[must_use]
    pub fn waker_thread(&self, wait: WaitIndex) -> Option<(ThreadIndex, Timestamp)> {
        let (row, _) = self.pattern(wait)?;
        let woken = row.woken_at()?;
        let (waker, _) = self.recording.waits.patterns()[row.pattern].wake?;
        let range = self.threads_by_waker.get(waker.index())?.clone();
        let of_tid = self.timeline.threads.get(range.start as usize..range.end as usize)?;
        // A wake between the window's end and the last look at everybody still counts.
        let inside = woken.min(self.recording.meta.window.end);
        let begun = of_tid.partition_point(|life| life.from <= inside).checked_sub(1)?;
        of_tid.get(begun).filter(|life| inside <= life.until)?;
        Some((ThreadIndex(range.start.checked_add(u32::try_from(begun).ok()?)?), woken))
    }

    /// Returns the same if that thread's own waits were recorded.
    fn recorded_waker_thread(&self, wait: WaitIndex) -> Option<(ThreadIndex, Timestamp)> {
        self.waker_thread(wait).filter(|&(index, _)| self.timeline.are_waits_recorded(index))
    }

    /// Finds the sender of a packet that `ksoftirqd` delivered. The sender may have left the packet
    /// over to `ksoftirqd`: it did if whoever had woken that thread holds the socket's other end.
    ///
    /// ```text
    /// sender     --- send, wakes ksoftirqd ----------------
    /// ksoftirqd  ........................|-- on-CPU --+----
    /// waiter     -------- blocked --------------------^ wake
    /// ```
    fn find_packet_sender(&self, wait: WaitIndex, softirqd: ThreadRef) -> WakeSource {
        let delivery = self.find_delivery(wait);
        let Some((row, pattern)) = delivery.and_then(|wait| self.pattern(wait)) else {
            return WakeSource::Interrupt(Reason::LocalSoftirq);
        };
        let whole = self.recording.waits.get(wait.0 as usize);
        let is_sender = |process| {
            whole.is_some_and(|whole| wake_source::holds_other_end(self.recording, &whole, process))
        };
        let is_tcp = || {
            whole
                .is_some_and(|whole| wake_source::find_tcp_socket(self.recording, &whole).is_some())
        };
        match pattern.source {
            Some(PatternWakeSource::Known(WakeSource::Task(sender))) if is_sender(sender.tgid) => {
                WakeSource::Task(softirqd)
            }
            _ if is_tcp() && !self.may_have_sent_since(wait, row.woken_at()) => {
                WakeSource::Interrupt(Reason::TcpTimer)
            }
            _ => WakeSource::Interrupt(Reason::LocalSoftirq),
        }
    }

    /// Finds the wait of `ksoftirqd` after which it delivered the packet that ended `wait`. Who ended that
    /// wait has left packets over to it.
    fn find_delivery(&self, wait: WaitIndex) -> Option<WaitIndex> {
        let (softirqd, woken) = self.recorded_waker_thread(wait)?;
        let track = &self.timeline.thread(softirqd)?.track;
        let begun = track.count_begun_before(woken, track.len());
        (0..begun).rev().find_map(|place| match track.get(place)?.state {
            State::Blocked(wait) => Some(wait),
            _ => None,
        })
    }

    /// Returns whether a timer ended a `connect` to this machine. No thread sends what ends such a call: the
    /// kernel accepts the connection itself, as soon as a SYN comes while the server's accept queue has
    /// room. One that waits for longer than the shortest retransmission had its SYN dropped
    /// ([`TCP_RTO_MIN`](https://github.com/torvalds/linux/blob/v6.12/include/net/tcp.h); the
    /// first SYN is sent again after a second).
    fn has_sent_its_syn_again(&self, wait: WaitIndex) -> bool {
        const SHORTEST_RETRANSMISSION: Nanos = Nanos(200_000_000);

        let whole = self.recording.waits.get(wait.0 as usize);
        let call = whole.and_then(|whole| whole.syscall.as_ref().and_then(syscalls::name));
        call == Some("connect")
            && (self.timeline.blocked_interval(wait))
                .is_some_and(|blocked| blocked.to.since(blocked.from) >= SHORTEST_RETRANSMISSION)
    }

    /// Returns whether anybody may have sent what ended a wait on a socket since a millisecond before its
    /// delivery began: whether those who hold the other end are not known, or one of their threads was on
    /// a CPU.
    ///
    /// ```text
    /// holder      ██ sends ██|------------- off its CPU -------------
    /// timer                                            ^ of TCP: it sends what it has held back
    /// waiter      ------------------- blocked ---------^ wake
    ///                                             |1 ms|
    /// ```
    fn may_have_sent_since(&self, wait: WaitIndex, delivery: Option<Timestamp>) -> bool {
        const RECENTLY: Nanos = Nanos(1_000_000);

        let (Some((row, _)), Some(whole)) =
            (self.pattern(wait), self.recording.waits.get(wait.0 as usize))
        else {
            return true;
        };
        let Some(woken) = row.woken_at() else { return true };
        let Some(delivery) = delivery else { return true };
        let since = Timestamp(delivery.0.saturating_sub(RECENTLY.0));
        let was_on_cpu = |index: ThreadIndex| {
            let Some(thread) = self.timeline.thread(index) else { return false };
            let track = &thread.track;
            !self.timeline.are_waits_recorded(index)
                || (track.index_at(since).unwrap_or(0)..track.len())
                    .map_while(|n| track.get(n))
                    .take_while(|interval| interval.from < woken)
                    .any(|interval| interval.to > since && interval.state == State::OnCpu)
        };
        let mut holders = wake_source::holders_of_other_end(self.recording, &whole).peekable();
        holders.peek().is_none()
            || holders.any(|process| {
                let threads = self.threads_of(process);
                threads.is_empty() || threads.iter().copied().any(was_on_cpu)
            })
    }

    /// Returns the threads of a process, those of an earlier one with the same id too.
    fn threads_of(&self, process: Tgid) -> &[ThreadIndex] {
        let by_process = self.threads_by_process.get_or_init(|| {
            let mut by_process: HashMap<Tgid, Vec<ThreadIndex>> = HashMap::new();
            for (thread, n) in self.timeline.threads.iter().zip(0..) {
                by_process.entry(thread.tgid).or_default().push(ThreadIndex(n));
            }
            by_process
        });
        by_process.get(&process).map_or(&[], Vec::as_slice)
    }

    fn pattern(&self, wait: WaitIndex) -> Option<(&WaitRow, &PatternAnalysis)> {
        let row = self.recording.waits.rows().get(wait.0 as usize)?;
        Some((row, self.patterns.get(row.pattern.index())?))
    }

    /// Returns what is known of the end of a wait that a timer or a broadcast ended and that was begun
    /// anew, or of one that was ended by a waiter that was notified before.
    fn end_of_last_piece(&self, wait: WaitIndex) -> Option<EndOfLastPiece> {
        let retried = self.timed_retries.last_piece(wait);
        let broadcast = self.broadcasts.last_piece(wait);
        let last = retried.or(broadcast).unwrap_or(wait);
        let last = Some(self.broadcasts.first_notified(last)).filter(|&last| last != wait)?;
        match self.wake_source(last) {
            WakeSource::Task(_) => Some(EndOfLastPiece::Woken(last, self.idle_hint(last))),
            WakeSource::Unknown(Reason::StillBlocked) if retried.is_none() => {
                Some(EndOfLastPiece::StillBlocked(self.idle_hint(wait)))
            }
            WakeSource::Unknown(Reason::StillBlocked) if self.is_for_monitor(last) => {
                Some(EndOfLastPiece::StillBlocked(IdleHint::Busy))
            }
            WakeSource::External(_) | WakeSource::Interrupt(_) | WakeSource::Unknown(_) => None,
        }
    }

    /// Returns what is known of the end of the last one of a row of polls, of a loop that polls again after each
    /// timeout.
    fn end_of_last_poll(&self, wait: WaitIndex) -> Option<EndOfLastPiece> {
        let last = self.poll_ticks.last_poll(wait)?;
        Some(EndOfLastPiece::Woken(last, self.idle_hint(last)))
    }

    /// Returns whether an open wait is known to be for a monitor of Java's. The JVM's own timeout ends its
    /// pieces: the program can't give such a wait up.
    fn is_for_monitor(&self, open: WaitIndex) -> bool {
        let wait = self.recording.waits.get(open.0 as usize);
        wait.is_some_and(|wait| {
            self.recording.lock_owners.iter().any(|lock| {
                lock.kind == LockKind::JavaMonitor
                    && lock.waiter == wait.tid
                    && wait.syscall.is_some_and(|call| call.args[0] == lock.futex)
            })
        })
    }

    /// Returns whether a timer or a signal ended a wait that the thread began anew, so that it is a piece
    /// of one longer wait, of which `last` is the last piece.
    pub(crate) fn is_piece_before(&self, wait: WaitIndex, last: WaitIndex) -> bool {
        self.timed_retries.last_piece(wait) == Some(last)
    }

    /// Returns the thread that held an interpreter's lock as the time to wait for it was up: in this
    /// piece of a wait, or in its last one.
    fn interpreter_lock_holder(&self, wait: WaitIndex) -> Option<ThreadIndex> {
        let last = self.timed_retries.last_piece(wait).unwrap_or(wait);
        self.interpreter_locks.holder(last)
    }

    pub(crate) fn is_birth(&self, wait: WaitIndex) -> bool {
        let row = self.recording.waits.rows().get(wait.0 as usize);
        row.is_some_and(|row| row.begin() == Begin::Newborn && row.woken_at().is_some())
    }

    /// Returns the stacks in which the sampling clock found a thread, and the time on a CPU that
    /// each sample stands for.
    pub(crate) fn sampled_work(
        &self,
        thread: ThreadIndex,
    ) -> impl Iterator<Item = (StackPairId, Nanos)> + '_ {
        let samples = self.samples.get(thread.0 as usize).map_or([].as_slice(), Vec::as_slice);
        let on_cpu = self.timeline.thread(thread).map(|life| life.track.total_times().on_cpu);
        let each = Nanos(on_cpu.unwrap_or_default().0 / samples.len().max(1) as u64);
        samples.iter().map(move |&(_, stack)| (stack, each))
    }

    /// Divides the time in which a thread waited for a CPU among the threads that ran there, and
    /// calls `visit` with each and its share. Time in which it would have waited for another thread on any CPU
    /// is left out.
    pub(crate) fn visit_cpu_holders(
        &self,
        thread: ThreadIndex,
        mut visit: impl FnMut(Option<ThreadIndex>, Nanos),
    ) {
        let Some(life) = self.timeline.thread(thread) else { return };
        let mut hints = cpus::CpuSearchHints::new(&self.cpus);
        for (place, interval) in life.track.iter().enumerate() {
            if let State::Runnable(queued) = interval.state {
                for times in self.find_queued_stretches(thread, place, interval) {
                    self.cpus.holders(self.recording, queued, times, &mut hints, &mut visit);
                }
            }
        }
    }

    /// Returns a thread's samples inside `from..to`.
    fn samples(
        &self,
        thread: ThreadIndex,
        from: Timestamp,
        to: Timestamp,
    ) -> &[(Timestamp, StackPairId)] {
        let all = self.samples.get(thread.0 as usize).map_or([].as_slice(), Vec::as_slice);
        let first = all.partition_point(|&(at, _)| at < from);
        let end = all.partition_point(|&(at, _)| at < to);
        all.get(first..end).unwrap_or_default()
    }
}

fn threads_by_waker(recording: &Recording, timeline: &Timeline) -> Vec<Range<u32>> {
    let mut of_tids: HashMap<Tid, Range<u32>> = HashMap::new();
    for (thread, n) in timeline.threads.iter().zip(0..) {
        of_tids.entry(thread.tid).or_insert(n..n).end = n + 1;
    }
    let of_waker = |tid| of_tids.get(&tid).cloned().unwrap_or(0..0);
    recording.waits.wakers().iter().map(|(_, waker)| of_waker(waker.current.tid)).collect()
}

fn samples(
    recording: &Recording,
    timeline: &Timeline,
    stacks: &StackPairs,
) -> Vec<Vec<(Timestamp, StackPairId)>> {
    let mut samples = vec![Vec::new(); timeline.threads.len()];
    for (n, sample) in recording.samples.iter().enumerate() {
        if let Some(thread) = timeline.find_thread(sample.tid, sample.at)
            && let Some(of_thread) = samples.get_mut(thread.0 as usize)
        {
            of_thread.push((sample.at, stacks.sample(n)));
        }
    }
    samples
}
