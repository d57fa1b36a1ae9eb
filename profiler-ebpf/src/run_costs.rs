//! What the programs cost, by their own clock.
//!
//! Of those that run often, one run in 64 or so is timed, and all are counted. Those that run seldom
//! and take long are timed each time.

/// Which programs' runs are summed up together; the index into [`RunCosts::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Group {
    /// `sched_switch`.
    Switch = 0,
    /// `sched_waking`.
    Waking = 1,
    /// The programs at the beginning of an interrupt. Those at the end are not timed: they do less.
    Interrupt = 2,
    /// The sampling clock.
    Clock = 3,
    /// `sched_wakeup_new`, which runs with interrupts off.
    NewThread = 4,
    /// `sched_process_fork`, `sched_process_exec`, `sched_process_exit`, `task_rename`.
    Life = 5,
    /// The programs that count what is read from disks, and written to them.
    Disk = 6,
    /// The program that records markers. Calls that are none are not counted.
    Marker = 7,
    /// The program at requests for locks on files.
    FileLock = 8,
}

/// How many groups there are.
pub const GROUPS: usize = 9;

/// After so many runs of a frequent program, on average, one is timed; a power of two.
pub const TIMED_ONE_IN: u32 = 64;

/// What a run costs besides the time that it can measure of itself: the way there and back. It is what
/// an empty program takes by the kernel's statistics, their own share left out.
pub const DISPATCH_NS: u64 = 20;

/// No run takes longer than this by itself: a virtual machine's CPU that was taken away meanwhile is
/// no cost of the program's.
pub const LONGEST_RUN_NS: u64 = 1 << 16;

/// The runs of one group on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RunCost {
    /// Runs.
    pub runs: u64,
    /// Those of them that were timed.
    pub timed: u64,
    /// How long these took.
    pub timed_ns: u64,
    /// When the run began that is being timed; 0 if none is.
    pub begun_ns: u64,
    /// So many runs from now, one is timed.
    pub until_timed: u64,
}

/// One CPU's costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RunCosts {
    /// By [`Group`].
    pub of: [RunCost; GROUPS],
}

const _: () = {
    assert!(size_of::<RunCosts>() == GROUPS * 40);
    assert!(Group::FileLock as usize + 1 == GROUPS);
    assert!(TIMED_ONE_IN.is_power_of_two());
};
