//! The profiler's own processes. The kernel half records none of them; in recordings of earlier builds there are some,
//! and any may be there for the moment in which it is started.

use std::collections::BTreeSet;

use offwake_recording::{Recording, units::Tgid};

/// The names of the processes that the profiler starts for itself. A profiled command, which is its
/// child as well, is called something else.
pub const OWN_PROCESS_NAMES: [&str; 4] =
    ["offwake-parser", "offwake-reader", "offwake-unwind", "offwake-writer"];

/// Returns the processes that the profiler of a recording had started for itself.
pub(super) fn own_processes(recording: &Recording) -> BTreeSet<Tgid> {
    let Some(profiler) = recording.meta.profiler else { return BTreeSet::new() };
    (recording.thread_events.iter())
        .filter(|event| {
            event.parent == profiler && OWN_PROCESS_NAMES.contains(&event.comm.as_str())
        })
        .map(|event| event.tgid)
        .collect()
}
