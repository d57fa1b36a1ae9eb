//! The integrity of the recording itself: what is wrong with its file, and what the clocks did
//! meanwhile.

use offwake_recording::{
    Recording,
    units::{Nanos, Timestamp},
};
use schemars::JsonSchema;
use serde::Serialize;

/// What is wrong with the file, and what the machine's clocks went through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Soundness")]
pub struct RecordingIntegrity {
    /// The file has no end.
    pub cut_off: bool,
    /// What was recorded and how is not in it.
    pub meta_missing: bool,
    /// Its schema was broken, and made up for.
    pub schema_missing: bool,
    /// Bytes in which nothing was found.
    pub bytes_skipped: u64,
    /// Slices that could not be read.
    pub slices_damaged: u64,
    /// Slices that are not there.
    pub slices_missing: u64,
    /// Tables of single slices that could not be read.
    pub tables_damaged: u64,
    /// Tables that are not there at all.
    pub tables_missing: Vec<&'static str>,
    /// Rows that could not be read.
    pub rows_unreadable: u64,
    /// Times at which the wall's clock was set.
    pub clock_steps: Vec<ClockStep>,
    /// Times at which the machine was suspended.
    pub suspensions: Vec<Suspension>,
}

/// The wall's clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClockStep {
    /// Not before this moment.
    pub after_ns: Timestamp,
    /// Not after this one.
    pub before_ns: Timestamp,
    /// By how much it was set forward; negative if backward.
    pub step_ns: i64,
}

/// The machine was suspended. `CLOCK_MONOTONIC` stands still meanwhile: the time is in no ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Suspension {
    /// Not before this moment.
    pub after_ns: Timestamp,
    /// Not after this one.
    pub before_ns: Timestamp,
    /// For how long.
    pub suspended_ns: Nanos,
}

impl RecordingIntegrity {
    pub(super) fn from_recording(recording: &Recording) -> Self {
        let damage = &recording.damage;
        let mut integrity = Self {
            cut_off: damage.cut_off,
            meta_missing: damage.meta_missing,
            schema_missing: damage.schema_missing,
            bytes_skipped: damage.bytes_skipped,
            slices_damaged: damage.slices_damaged,
            slices_missing: damage.slices_missing,
            tables_damaged: damage.tables_damaged,
            tables_missing: damage.tables_missing.iter().copied().collect(),
            rows_unreadable: damage.rows_unreadable,
            ..Self::default()
        };
        for (earlier, later) in recording.clocks.iter().zip(recording.clocks.iter().skip(1)) {
            let (after_ns, before_ns) = (earlier.monotonic, later.monotonic);
            let step_ns = later.stepped_since(earlier);
            if step_ns != 0 {
                integrity.clock_steps.push(ClockStep { after_ns, before_ns, step_ns });
            }
            let suspended_ns = later.suspended_since(earlier);
            if suspended_ns != Nanos(0) {
                integrity.suspensions.push(Suspension { after_ns, before_ns, suspended_ns });
            }
        }
        integrity
    }
}
