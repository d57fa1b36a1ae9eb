//! What threads said at any moment, according to a recording. It is found out anew here, as what it
//! is compared with has rules of its own.

use std::{collections::BTreeMap, fs};

use anyhow::Result;
use offwake_recording::{
    Recording, TagSet, Wait, stream,
    units::{Tid, Timestamp},
};

use crate::{
    offwake::{Offwake, Outcome},
    programs::Program,
};

const MEMORY: usize = 256 << 20;

/// Records a program for a second.
///
/// # Errors
///
/// If offwake fails.
pub fn record(program: &Program) -> Result<(Outcome, Recording)> {
    let pid = program.pid().to_string();
    let arguments = ["--pid", &pid, "-d", "1", "-o", "x.offwake"];
    let outcome = Offwake::record()?.args(arguments).run()?;
    let bytes = fs::read(outcome.path("x.offwake"))?;
    Ok((outcome, stream::read(&bytes[..], MEMORY)?))
}

/// What a thread was known to say at a moment.
#[must_use]
pub fn set_at(recording: &Recording, tid: Tid, at: Timestamp) -> Option<&TagSet> {
    let own = recording.tag_changes.iter().filter(|change| change.tid == tid);
    let before = own.clone().rfind(|change| change.at <= at)?;
    let after = own.clone().find(|change| change.at > at);
    let is_known = after.is_none_or(|after| after.since.is_some_and(|since| since >= at));
    recording.tag_sets.get(&before.set?).filter(|_| is_known)
}

/// The value of a label that has its name with it.
#[must_use]
pub fn label<'a>(set: &'a TagSet, name: &str) -> Option<&'a str> {
    let mut labels = set.labels.iter();
    labels.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The waits in a syscall of which this is true, each with the syscall: but for those that may have
/// begun before the program was known to say anything.
pub fn waits_of(recording: &Recording, is_meant: impl Fn(&Wait) -> bool) -> Vec<(u32, Wait)> {
    let waits = recording.waits.iter().filter(|wait| is_meant(wait));
    let waits = waits.filter(|wait| wait.off >= recording.meta.window.start);
    waits.filter_map(|wait| Some((wait.syscall.as_ref()?.number, wait))).collect()
}

/// How many of these waits there are of each syscall and value of the label.
#[must_use]
pub fn count_by_label(
    recording: &Recording,
    waits: &[(u32, Wait)],
    name: &str,
) -> BTreeMap<(u32, Option<String>), usize> {
    let mut counts = BTreeMap::new();
    for (number, wait) in waits {
        let set = set_at(recording, wait.tid, wait.off);
        let value = set.and_then(|set| label(set, name)).map(str::to_owned);
        *counts.entry((*number, value)).or_default() += 1;
    }
    counts
}
