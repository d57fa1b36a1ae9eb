//! Threads that were already blocked when their lives in the trace begin.
//!
//! ftrace tells of them first when they wake. Perfetto has a message for kernels without ftrace that
//! says what a thread is doing from a moment on, and takes both together.

use std::io;

use offwake_recording::{Recording, units::Cpu};

use crate::{
    text,
    timeline::{State, Thread, ThreadIndex, Timeline},
};

use super::{
    messages::{Data, GenericKernelTaskStateEvent, TaskState},
    packets::{Packets, Sequence},
};

/// A thread whose life begins with a wait.
pub(super) struct InitiallyBlocked<'a> {
    pub(super) index: ThreadIndex,
    pub(super) thread: &'a Thread,
    /// The CPU that it had left.
    pub(super) cpu: Cpu,
    state: TaskState,
}

/// Finds the threads whose lives begin blocked.
pub(super) fn find_initially_blocked<'a>(
    recording: &'a Recording,
    timeline: &'a Timeline,
) -> impl Iterator<Item = InitiallyBlocked<'a>> {
    timeline.threads.iter().zip(0..).filter_map(|(thread, index)| {
        let State::Blocked(wait) = thread.track.get(0)?.state else { return None };
        let row = recording.waits.rows().get(wait.0 as usize)?;
        let state = match recording.waits.waiter(row).state.letter() {
            'S' => TaskState::InterruptibleSleep,
            'D' | 'I' => TaskState::UninterruptibleSleep,
            'T' | 't' => TaskState::Stopped,
            _ => return None,
        };
        Some(InitiallyBlocked { index: ThreadIndex(index), thread, cpu: row.off_cpu, state })
    })
}

impl InitiallyBlocked<'_> {
    pub(super) fn write(&self, packets: &mut Packets<'_>) -> io::Result<()> {
        let event = GenericKernelTaskStateEvent {
            cpu: Some(i32::from(self.cpu.0)),
            comm: self.thread.comm_at(self.thread.from).map(text::plain),
            tid: Some(i64::from(self.thread.tid.0)),
            state: Some(self.state as i32),
        };
        let data = Data::GenericKernelTaskStateEvent(event);
        packets.send(Sequence::Kernel, self.thread.from, data)
    }
}
