//! When processes executed another program.

use std::collections::HashMap;

use offwake_recording::{
    Recording, ThreadEvent, ThreadEventReason,
    units::{Tgid, Timestamp},
};

/// Which of the programs of a process it is: the one that it ran first is 0.
pub(super) type ProgramNumber = usize;

/// The moments since when processes ran another program than before.
///
/// ```text
///                  rename  exec             program read from /proc
/// process    --------+-------+------------------+------------>
///            bash    | sort
/// ```
///
/// The kernel gives the thread its new name some microseconds before it reports the exec
/// ([`begin_new_exec`](https://github.com/torvalds/linux/blob/v6.12/fs/exec.c#L1254)), so the new
/// program begins with the new name.
#[derive(Debug, Default)]
pub(super) struct Executions(HashMap<Tgid, Vec<Timestamp>>);

impl Executions {
    /// Finds the executions. The recording's lists are sorted.
    pub(super) fn find(recording: &Recording) -> Self {
        let mut last_renames: HashMap<Tgid, &ThreadEvent> = HashMap::new();
        let mut executions = Self::default();
        for event in &recording.thread_events {
            match event.reason {
                ThreadEventReason::Rename => _ = last_renames.insert(event.tgid, event),
                ThreadEventReason::Exec => {
                    let rename = (last_renames.remove(&event.tgid))
                        .filter(|rename| (rename.tid, &rename.comm) == (event.tid, &event.comm));
                    let since = rename.map_or(event.at, |rename| rename.at);
                    executions.0.entry(event.tgid).or_default().push(since);
                }
                _ => {}
            }
        }
        executions
    }

    /// Returns which program a process ran at a moment.
    pub(super) fn program_number(&self, process: Tgid, at: Timestamp) -> ProgramNumber {
        let times = self.0.get(&process).map_or(&[][..], Vec::as_slice);
        times.partition_point(|&since| since <= at)
    }

    /// Returns the moment at which a process executed the program after this one.
    pub(super) fn end_of_program(
        &self,
        process: Tgid,
        program: ProgramNumber,
    ) -> Option<Timestamp> {
        self.0.get(&process)?.get(program).copied()
    }
}
