//! How blamed time is looked at.

/// How far a path goes beyond the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlameGraphKind {
    /// Hop by hop to what the time is blamed on.
    #[default]
    Chain,
    /// To who woke the thread, and no deeper.
    OffWake,
    /// Not at all.
    OffCpu,
}

/// What a path begins with: the waiting thread, or what it is one of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// The thread.
    #[default]
    Thread,
    /// Its process; the threads are not told apart.
    Process,
    /// The cgroup that it was in last, then its process.
    Cgroup,
    /// What it waited on, then the thread.
    Cause,
    /// The value of the label by which waits are told apart, then the thread.
    Label,
}

/// Which end of a path is its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Who waited: what does it wait for?
    #[default]
    FromWaiter,
    /// What the time is blamed on: whom does it keep waiting?
    FromCulprit,
}

/// What threads and processes are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadNames {
    /// `web-1042`
    #[default]
    WithIds,
    /// `web`: ids differ from run to run.
    WithoutIds,
}

/// How much a picture shows of each hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameDetail {
    /// One box: who, in which function, for what. It has one view: chains from who waited.
    #[default]
    Hops,
    /// All frames of its stack.
    All,
}

/// How blamed time is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// How far paths go.
    pub graph: FlameGraphKind,
    /// What they begin with.
    pub by: GroupBy,
    /// At which end.
    pub direction: Direction,
    /// What threads are called.
    pub names: ThreadNames,
    /// How much a picture shows of each hop. Folded stacks have all frames.
    pub frames: FrameDetail,
}
