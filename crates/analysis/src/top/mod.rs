//! The figures of the live view: what the reports of a run's last stretches say, and their sums since
//! the start. How they are laid out on a terminal is the profiler's.

mod analysis;
mod figures;
mod findings;
mod own_processes;
mod rows;
mod totals;

pub use analysis::{
    AnalysisError, Header, RequestSearch, Since, TargetState, TopAnalysis, TopData, Wanted,
    WindowLoss,
};
pub use figures::{
    Blocker, BlockingTime, ChainEnd, Figures, SummedTime, ThreadFigures, ThreadKey, WaitFigures,
    WaitKey,
};
pub use findings::{FindingPart, FindingScreenLine, ScreenFindings};
pub use own_processes::OWN_PROCESS_NAMES;
pub use rows::{BoundedSums, Summable};
pub use totals::Totals;
