//! The processes and threads, with their names.

use std::{collections::BTreeMap, io};

use offwake_recording::{
    ProcessInfo, Recording, ThreadKind,
    units::{Tgid, Timestamp},
};

use crate::{
    text,
    timeline::{Thread, Timeline},
};

use super::{
    messages::{Data, Process, ProcessTree, TreeThread},
    packets::{Packets, Sequence},
};

/// The number of threads in a packet.
const THREADS_PER_PACKET: usize = 256;

pub(super) fn write(
    recording: &Recording,
    timeline: &Timeline,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    // A tid can be used again: each life is told of when it begins.
    let mut lives: Vec<&Thread> = timeline.threads.iter().collect();
    lives.sort_by_key(|thread| (thread.from, thread.tgid, thread.tid));
    for born_together in lives.chunk_by(|a, b| a.from == b.from) {
        for threads in born_together.chunks(THREADS_PER_PACKET) {
            let Some(first) = threads.first() else { continue };
            let tree = ProcessTree {
                processes: process_entries(recording, threads),
                threads: threads.iter().map(|thread| thread_entry(thread)).collect(),
            };
            packets.send(Sequence::Kernel, first.from, Data::ProcessTree(tree))?;
        }
    }
    Ok(())
}

fn thread_entry(thread: &Thread) -> TreeThread {
    TreeThread {
        tid: Some(thread.tid.0.cast_signed()),
        tgid: Some(thread.tgid.0.cast_signed()),
        name: thread.comm_at(thread.until).map(text::plain),
    }
}

fn process_entries(recording: &Recording, threads: &[&Thread]) -> Vec<Process> {
    let mut of_tgids: BTreeMap<Tgid, &Thread> = BTreeMap::new();
    for &thread in threads {
        let known = of_tgids.entry(thread.tgid).or_insert(thread);
        // The first thread bears the process's name.
        if thread.tid.0 == thread.tgid.0 {
            *known = thread;
        }
    }
    let process = |(tgid, thread): (Tgid, &Thread)| {
        let info = find_process(recording, tgid, thread.until);
        let arguments = info.map_or([].as_slice(), |info| &info.arguments);
        let name = thread.comm_at(thread.until).map(text::plain);
        Process {
            pid: Some(tgid.0.cast_signed()),
            ppid: info.and_then(|info| info.parent).map(|parent| parent.0.cast_signed()),
            cmdline: if arguments.is_empty() {
                name.into_iter().collect()
            } else {
                arguments.iter().map(|argument| text::plain(argument)).collect()
            },
            cmdline_is_comm: Some(arguments.is_empty()),
            is_kthread: Some(thread.kind == ThreadKind::Kernel),
        }
    };
    of_tgids.into_iter().map(process).collect()
}

/// Returns what was read of a process last before `at`.
fn find_process(recording: &Recording, tgid: Tgid, at: Timestamp) -> Option<&ProcessInfo> {
    let infos = &recording.processes;
    let after = infos.partition_point(|info| (info.tgid, info.at) <= (tgid, at));
    after.checked_sub(1).and_then(|last| infos.get(last)).filter(|info| info.tgid == tgid)
}
