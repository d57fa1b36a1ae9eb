//! What the threads of a machine do.

use super::{ProcessId, ThreadId};

/// Something outside of every thread that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    Timer,
    Disk,
    /// A packet from another machine.
    Network,
    Device,
    /// An interrupt that says nothing about who or what is behind it.
    Interrupt,
    /// A waker that the kernel half does not see.
    Unseen,
}

/// What a server has to do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// The loop answers at once.
    Alone,
    /// It asks one of its servers.
    Upstream(usize),
    /// It answers so much later.
    Timer(u64),
    /// A worker of a pool does it, without any loop.
    Pool,
}

/// One step of a program. Each takes a nanosecond of a CPU at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Works for so many nanoseconds.
    Compute(u64),
    /// Waits until something outside is done, so many nanoseconds later.
    Await(Outside, u64),
    /// Takes a lock of the own process, or waits for it.
    Lock(usize),
    /// Takes a lock that all processes share.
    LockShared(usize),
    Unlock(usize),
    UnlockShared(usize),
    /// Puts a message into a channel.
    Send(usize),
    /// Takes a message out of a channel, or waits for one.
    Receive(usize),
    /// Waits for the next broadcast.
    AwaitBroadcast(usize),
    /// Wakes everybody who waits for it.
    Broadcast(usize),
    /// Makes a thread that runs this program of [`Scenario::children`].
    Create(usize),
    /// Lets the thread run that was made last.
    Start,
    /// Waits for the end of a thread that it made.
    Join,
    /// Sends a request to the event loop.
    Ask(Errand),
    /// Puts a job into the pool's queue.
    Submit,
    /// Waits for the answer to the last request or job.
    AwaitAnswer,
    /// Serves one request of the event loop's, or polls for one.
    Serve,
    /// Takes what the event loop asked through this connection, or waits for it.
    TakeAsk(usize),
    Reply(usize),
    /// Takes a job out of the pool's queue, or waits for one.
    TakeJob,
    FinishJob,
}

/// A thread that is there from the beginning.
#[derive(Clone, Debug)]
pub struct ThreadPlan {
    pub process: ProcessId,
    pub cpu: usize,
    pub program: Vec<Op>,
    /// Whether it begins anew at the program's end; otherwise it exits.
    pub repeats: bool,
}

/// A stretch in which a process has used up its CPU quota.
#[derive(Clone, Copy, Debug)]
pub struct UsedUpQuota {
    pub process: ProcessId,
    pub used_up: u64,
    pub refilled_after: u64,
}

/// A machine, and what happens on it. All times count from the machine's start.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub cpus: usize,
    pub threads: Vec<ThreadPlan>,
    /// The programs of threads that others make.
    pub children: Vec<Vec<Op>>,
    /// How long a thread runs before another gets its turn.
    pub slice: u64,
    /// What differs from run to run: delays, races, which CPU takes an interrupt.
    pub chances: Vec<u8>,
    /// Whether threads move from one CPU to another.
    pub migration: Migration,
    /// When the kernel half begins to see anything; its window opens up to [`SURVEY`] later.
    pub attached: u64,
    pub window: (u64, u64),
    /// When the quotas of processes are used up.
    pub quotas: Vec<UsedUpQuota>,
    /// Whether each connection of the event loop's has one request at a time, and further ones queue.
    pub has_pool: bool,
}

/// The servers that a loop asks. Connection 0 leads to the first, 1 to the second, 2 to the first …
pub const UPSTREAMS: usize = 2;

impl Scenario {
    /// The connections to an upstream that have a thread behind them.
    pub fn connections(&self, upstream: usize) -> impl Iterator<Item = usize> + '_ {
        (upstream..).step_by(UPSTREAMS).take_while(|&it| self.thread_behind(it).is_some())
    }

    /// The thread of an upstream that a connection leads to.
    pub fn thread_behind(&self, connection: usize) -> Option<ThreadId> {
        let takes = |plan: &ThreadPlan| plan.program.contains(&Op::TakeAsk(connection));
        self.threads.iter().position(takes).map(ThreadId)
    }
}

/// Whether a woken thread may go to another CPU than the one it left, and an idle CPU take threads
/// that queue for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    Off,
    On,
}
