//! Blame → requests: what do the slow ones have that the fast ones do not?
//!
//! ```text
//! asked, served ──▶ queues ──▶ classes ──▶ bands ──▶ profiles ──▶ excess, bounds
//! (spans, turns)               (server)    (rank)    (blame)
//! ```
//!
//! Values in, values out. `docs/requests.md` says what the words mean, for those who read the outputs.

mod analysis;
mod bands;
mod compare;
mod found;
mod less_known;
mod model;
mod not_told_apart;
mod profiles;
mod queue;
mod slowest;
mod spent_time;
mod table;
mod turns;
mod work_functions;
mod write;

pub use analysis::RequestAnalysis;
pub use bands::{BandRange, NotABand};
pub use model::{
    ChangedPercentile, CulpritShare, Excess, Latencies, LatencyBucket, Meanwhile,
    NotToldApartReason, RequestBand, RequestClass, RequestRole, RequestThread, Requests,
    RequestsNotToldApart, SlowRequests, SlowestRequest, StretchState, SummedUpClasses,
    ThreadStretch, UnansweredRequests,
};
pub(crate) use table::RequestRow;
