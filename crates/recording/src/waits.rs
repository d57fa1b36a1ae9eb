//! Many waits in little memory.

use std::{fmt, hint::black_box};

use super::{
    Begin, End, FileId, PollEvents, ReadyFile, StackRef, Syscall, TaskState, ThreadKind, ThreadRef,
    Wait, Wake, WakeContext,
    interned::{Id, Interned},
    order::sort_nearly_sorted,
};
use crate::units::{CgroupId, Cpu, Nanos, Tgid, Tid, Timestamp};

/// What stays the same from wait to wait: who waits, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub tgid: Tgid,
    /// What kind of thread it is.
    pub kind: ThreadKind,
    /// Whether it belongs to the target.
    pub in_target: bool,
    /// Its state at switch-out.
    pub state: TaskState,
    /// As [`Wait::file`].
    pub file: Option<FileId>,
    /// Its cgroup.
    pub cgroup: CgroupId,
    /// Its user half at switch-out.
    pub user_stack: StackRef,
    /// Its kernel half while it was blocked.
    pub kernel_stack: StackRef,
}

/// What a thread asked the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The syscall.
    pub syscall: Option<Syscall>,
    /// The timeout that it asked for, relative or absolute as the syscall has it.
    pub timeout: Option<Nanos>,
    /// As [`Wait::polled_fd`].
    pub polled_fd: Option<u32>,
    /// As [`Wait::polled_events`].
    pub polled_events: Option<PollEvents>,
}

/// What stays the same from wake to wake: who wakes, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waker {
    /// In what context.
    pub context: WakeContext,
    /// The task that was current.
    pub current: ThreadRef,
    /// What kind of thread that is.
    pub current_kind: ThreadKind,
    /// Its user half.
    pub user_stack: StackRef,
    /// Its kernel half.
    pub kernel_stack: StackRef,
    /// The file that its syscall's first argument stood for.
    pub file: Option<FileId>,
    /// As [`Wake::ready`].
    pub ready: Option<ReadyFile>,
}

/// What waits can have in common: who waits where, and who ends it from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The thread that waits, and where.
    pub waiter: Id<Waiter>,
    /// In which syscall.
    pub call: Id<Call>,
    /// Who ends it, if anything was seen to, and in which syscall.
    pub wake: Option<(Id<Waker>, Id<Call>)>,
}

/// A wait's times, and what the rest of it is.
///
/// 48 bytes, where a [`Wait`] has 400: ten million of them are 480 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// As [`Wait::off`].
    pub off: Timestamp,
    /// As [`Wait::on`].
    pub on: Timestamp,
    woken_at: Timestamp,
    /// As [`Wait::seq`].
    pub seq: u32,
    /// What it has in common with others.
    pub pattern: Id<Pattern>,
    /// As [`Wait::off_cpu`].
    pub off_cpu: Cpu,
    /// As [`Wait::on_cpu`].
    pub on_cpu: Cpu,
    wake_cpu: Cpu,
    /// As [`Wake::current_seq`], if `knows` says so.
    waker_seq: u32,
    /// Index into the moments of migration, if `knows` says so.
    migration: u32,
    knows: Knows,
}

/// Which of a row's numbers mean something, and how its beginning and its end are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Knows(u8);

impl Knows {
    const WAKE: u8 = 1;
    const WAKER_SEQ: u8 = 1 << 1;
    const MIGRATION: u8 = 1 << 2;
    const BEFORE_WINDOW: u8 = 1 << 3;
    const NEWBORN: u8 = 1 << 4;
    const STILL_OFF: u8 = 1 << 5;
    const MISSED: u8 = 1 << 6;

    fn when(self, what: u8, is_known: bool) -> Self {
        Self(self.0 | if is_known { what } else { 0 })
    }

    fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }
}

impl WaitRow {
    /// As [`Wait::begin`].
    #[must_use]
    pub fn begin(&self) -> Begin {
        match self.knows {
            knows if knows.has(Knows::BEFORE_WINDOW) => Begin::BeforeWindow,
            knows if knows.has(Knows::NEWBORN) => Begin::Newborn,
            _ => Begin::Seen,
        }
    }

    /// As [`Wait::end`].
    #[must_use]
    pub fn end(&self) -> End {
        match self.knows {
            knows if knows.has(Knows::STILL_OFF) => End::StillOff,
            knows if knows.has(Knows::MISSED) => End::Missed,
            _ => End::Seen,
        }
    }

    /// As [`Wake::at`].
    #[must_use]
    pub fn woken_at(&self) -> Option<Timestamp> {
        self.knows.has(Knows::WAKE).then_some(self.woken_at)
    }

    /// As [`Wake::cpu`].
    #[must_use]
    pub fn wake_cpu(&self) -> Option<Cpu> {
        self.knows.has(Knows::WAKE).then_some(self.wake_cpu)
    }

    /// As [`Wake::current_seq`].
    #[must_use]
    pub fn waker_seq(&self) -> Option<u32> {
        self.knows.has(Knows::WAKER_SEQ).then_some(self.waker_seq)
    }
}

/// Waits, by switch-out once they are sorted. What many of them share is stored once.
#[derive(Clone, Default)]
pub struct Waits {
    rows: Vec<WaitRow>,
    patterns: Interned<Pattern>,
    waiters: Interned<Waiter>,
    calls: Interned<Call>,
    wakers: Interned<Waker>,
    /// When threads were moved: few are, in the middle of a wait.
    migrations: Vec<Timestamp>,
}

impl Waits {
    /// So many rows are worth a [`Waits::fetch`] of their own.
    pub const FETCHED: usize = 96;

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Their times.
    #[must_use]
    pub fn rows(&self) -> &[WaitRow] {
        &self.rows
    }

    /// What the rows refer to. Every row's pattern is among them.
    #[must_use]
    pub fn patterns(&self) -> &Interned<Pattern> {
        &self.patterns
    }

    /// The thread that waits, and where.
    #[must_use]
    pub fn waiter(&self, row: &WaitRow) -> &Waiter {
        &self.waiters[self.patterns[row.pattern].waiter]
    }

    /// Who ended a wait, if that was seen.
    #[must_use]
    pub fn waker(&self, row: &WaitRow) -> Option<&Waker> {
        self.patterns[row.pattern].wake.map(|(waker, _)| &self.wakers[waker])
    }

    /// As [`Wait::migrated`].
    #[must_use]
    pub fn migrated(&self, row: &WaitRow) -> Option<Timestamp> {
        let knows = row.knows.has(Knows::MIGRATION);
        self.migrations.get(row.migration as usize).copied().filter(|_| knows)
    }

    /// What the patterns refer to.
    #[must_use]
    pub fn waiters(&self) -> &Interned<Waiter> {
        &self.waiters
    }

    /// The calls of waiters and wakers.
    #[must_use]
    pub fn calls(&self) -> &Interned<Call> {
        &self.calls
    }

    /// The same for wakers.
    #[must_use]
    pub fn wakers(&self) -> &Interned<Waker> {
        &self.wakers
    }

    /// Bytes that they take, about.
    pub(super) fn memory(&self) -> usize {
        let Self { rows, patterns, waiters, calls, wakers, migrations } = self;
        let tables = patterns.memory() + waiters.memory() + calls.memory() + wakers.memory();
        let moments = migrations.capacity() * size_of::<Timestamp>();
        rows.capacity() * size_of::<WaitRow>() + moments + tables
    }

    /// Adds one at the end.
    pub fn push(&mut self, wait: &Wait) {
        let waiter = self.waiters.id(Waiter {
            tid: wait.tid,
            tgid: wait.tgid,
            kind: wait.kind,
            in_target: wait.in_target,
            state: wait.state,
            file: wait.file,
            cgroup: wait.cgroup,
            user_stack: wait.user_stack,
            kernel_stack: wait.kernel_stack,
        });
        let Wait { syscall, timeout, polled_fd, polled_events, .. } = *wait;
        let call = self.calls.id(Call { syscall, timeout, polled_fd, polled_events });
        let wake = wait.wake.as_ref().map(|wake| {
            let waker = self.wakers.id(Waker {
                context: wake.context,
                current: wake.current,
                current_kind: wake.current_kind,
                user_stack: wake.user_stack,
                kernel_stack: wake.kernel_stack,
                file: wake.file,
                ready: wake.ready,
            });
            let call =
                Call { syscall: wake.syscall, timeout: None, polled_fd: None, polled_events: None };
            (waker, self.calls.id(call))
        });
        let waker_seq = wait.wake.and_then(|wake| wake.current_seq);
        // A moment for each wait at most, and these are counted in 32 bits everywhere.
        let migration = u32::try_from(self.migrations.len()).unwrap_or(u32::MAX);
        self.migrations.extend(wait.migrated);
        let Wait { off, on, seq, off_cpu, on_cpu, begin, end, .. } = *wait;
        self.rows.push(WaitRow {
            off,
            on,
            woken_at: wait.wake.map_or(Timestamp(0), |wake| wake.at),
            seq,
            pattern: self.patterns.id(Pattern { waiter, call, wake }),
            off_cpu,
            on_cpu,
            wake_cpu: wait.wake.map_or(Cpu(0), |wake| wake.cpu),
            waker_seq: waker_seq.unwrap_or(0),
            migration,
            knows: Knows::default()
                .when(Knows::WAKE, wait.wake.is_some())
                .when(Knows::WAKER_SEQ, waker_seq.is_some())
                .when(Knows::MIGRATION, wait.migrated.is_some())
                .when(Knows::BEFORE_WINDOW, begin == Begin::BeforeWindow)
                .when(Knows::NEWBORN, begin == Begin::Newborn)
                .when(Knows::STILL_OFF, end == End::StillOff)
                .when(Knows::MISSED, end == End::Missed),
        });
    }

    /// One of them, whole.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Wait> {
        self.rows.get(index).map(|row| self.whole(row))
    }

    /// All of them, whole.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Wait> + '_ {
        self.rows.iter().map(|row| self.whole(row))
    }

    fn whole(&self, row: &WaitRow) -> Wait {
        let pattern = &self.patterns[row.pattern];
        let waiter = &self.waiters[pattern.waiter];
        let call = &self.calls[pattern.call];
        Wait {
            tid: waiter.tid,
            tgid: waiter.tgid,
            kind: waiter.kind,
            in_target: waiter.in_target,
            seq: row.seq,
            begin: row.begin(),
            end: row.end(),
            off: row.off,
            on: row.on,
            migrated: self.migrated(row),
            off_cpu: row.off_cpu,
            on_cpu: row.on_cpu,
            state: waiter.state,
            syscall: call.syscall,
            timeout: call.timeout,
            file: waiter.file,
            polled_fd: call.polled_fd,
            polled_events: call.polled_events,
            cgroup: waiter.cgroup,
            user_stack: waiter.user_stack,
            kernel_stack: waiter.kernel_stack,
            wake: pattern.wake.map(|(waker, call)| {
                let waker = &self.wakers[waker];
                Wake {
                    at: row.woken_at,
                    context: waker.context,
                    cpu: row.wake_cpu,
                    current: waker.current,
                    current_kind: waker.current_kind,
                    current_seq: row.waker_seq(),
                    file: waker.file,
                    ready: waker.ready,
                    syscall: self.calls[call].syscall,
                    user_stack: waker.user_stack,
                    kernel_stack: waker.kernel_stack,
                }
            }),
        }
    }

    /// Keeps those that `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&WaitRow, &Waiter) -> bool) {
        let Self { rows, patterns, waiters, .. } = self;
        rows.retain(|row| keep(row, &waiters[patterns[row.pattern].waiter]));
    }

    /// Asks the memory for rows that lie far apart, before they are needed.
    ///
    /// A thread's waits are scattered over all of them. Read one after another, where each decides what
    /// comes next, each costs a memory access's latency (100 ns, about); a processor has ten and more
    /// such reads on their way at once.
    pub fn fetch(&self, rows: impl Iterator<Item = u32>) {
        let rows = rows.filter_map(|row| self.rows.get(row as usize));
        // Its first bytes and its last: a row can lie in two lines of the cache.
        black_box(rows.fold(0, |read, row| read ^ row.off.0 ^ u64::from(row.knows.0)));
    }

    /// Puts other stacks in the place of user stacks.
    pub(super) fn replace_user_stacks(&mut self, other: impl Fn(StackRef) -> StackRef) {
        let Self { rows, patterns, waiters, wakers, .. } = self;
        let waiters =
            waiters.replace(|waiter| Waiter { user_stack: other(waiter.user_stack), ..waiter });
        let wakers = wakers.replace(|waker| Waker { user_stack: other(waker.user_stack), ..waker });
        let patterns = patterns.replace(|Pattern { waiter, call, wake }| Pattern {
            waiter: waiters[waiter.index()],
            call,
            wake: wake.map(|(waker, call)| (wakers[waker.index()], call)),
        });
        for row in rows {
            row.pattern = patterns[row.pattern.index()];
        }
    }

    /// Puts them into the order of their switch-outs, then of threads and numbers.
    pub(super) fn sort(&mut self) {
        let Self { rows, patterns, waiters, .. } = self;
        let rest = |row: &WaitRow| (waiters[patterns[row.pattern].waiter].tid, row.seq);
        // Two of them seldom begin at one moment: who waits is seldom looked up.
        sort_nearly_sorted(rows, |a, b| a.off.cmp(&b.off).then_with(|| rest(a).cmp(&rest(b))));
    }

    /// Every moment that they know of.
    pub(super) fn moments(&mut self) -> impl Iterator<Item = &mut Timestamp> {
        let rows = self.rows.iter_mut().flat_map(|row| {
            let woken = row.knows.has(Knows::WAKE).then_some(&mut row.woken_at);
            [&mut row.off, &mut row.on].into_iter().chain(woken)
        });
        rows.chain(&mut self.migrations)
    }
}

impl fmt::Debug for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for Waits {
    /// Whether they say the same, whatever ids they say it with.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Waits {}

impl<'a> Extend<&'a Wait> for Waits {
    fn extend<T: IntoIterator<Item = &'a Wait>>(&mut self, waits: T) {
        waits.into_iter().for_each(|wait| self.push(wait));
    }
}

impl FromIterator<Wait> for Waits {
    fn from_iter<T: IntoIterator<Item = Wait>>(waits: T) -> Self {
        let mut collected = Self::default();
        waits.into_iter().for_each(|wait| collected.push(&wait));
        collected
    }
}

const _: () = assert!(size_of::<WaitRow>() == 48);
