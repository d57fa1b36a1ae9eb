//! The thread that looks things up while they are there.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use crate::{
    files::Files,
    processes::{NewProcesses, Processes},
    recording::{
        CgroupInfo, FileId, FileTable, ProcessInfo, StackTable,
        decode::NewStack,
        loss::{Shortfalls, add_all},
    },
    symbols::Symbols,
    units::{CgroupId, Tgid, Timestamp},
};

/// How often sockets and their holders are looked at when nothing else is to do.
const PACE: Duration = Duration::from_millis(20);

/// Something to look up.
pub(super) enum Lookup {
    Process { tgid: Tgid },
    Fork { parent: Tgid, child: Tgid, at: Timestamp },
    Exec { tgid: Tgid, at: Timestamp },
    Exit { tgid: Tgid, at: Timestamp },
    Stack(NewStack),
    File { file: FileId, tgid: Tgid, descriptor: u32 },
    Cgroup { id: CgroupId, tgid: Tgid },
}

/// Everything that was found.
pub(super) struct Found {
    pub stacks: StackTable,
    pub files: FileTable,
    pub processes: Vec<ProcessInfo>,
    pub cgroups: BTreeMap<CgroupId, CgroupInfo>,
    pub shortfalls: Shortfalls,
}

/// Runs until nobody can ask any more, then names everything.
pub(super) fn run(wanted: &Receiver<Lookup>) -> Found {
    let mut symbols = Symbols::new();
    let mut files = Files::new();
    let mut processes = Processes::new();
    let mut table = FileTable::default();
    loop {
        match wanted.recv_timeout(PACE) {
            // Who it is comes first: that takes a fraction of the time that its mappings do.
            Ok(Lookup::Process { tgid }) => {
                processes.observe_process(tgid);
                symbols.observe_process(tgid);
            }
            Ok(Lookup::Fork { parent, child, at }) => {
                processes.observe_process(child);
                symbols.observe_fork(parent, child, at);
            }
            Ok(Lookup::Exec { tgid, at }) => {
                processes.observe_process(tgid);
                symbols.observe_exec(tgid, at);
            }
            Ok(Lookup::Exit { tgid, at }) => {
                processes.observe_exit(tgid);
                symbols.observe_exit(tgid, at);
            }
            Ok(Lookup::Stack(NewStack { id, taken, space, addresses })) => {
                symbols.observe_stack(id, space, taken, &addresses);
            }
            Ok(Lookup::File { file, tgid, descriptor }) => files.observe(file, tgid, descriptor),
            Ok(Lookup::Cgroup { id, tgid }) => processes.observe_cgroup(id, tgid),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        files.poll();
        table.files.extend(files.take_new());
    }
    let (files, mut shortfalls) = files.finish();
    table.files.extend(files);
    let (NewProcesses { processes, cgroups }, of_processes) = processes.finish();
    add_all(&mut shortfalls, &of_processes);
    let (stacks, of_symbols) = symbols.finish(&mut |_done, _all| {});
    add_all(&mut shortfalls, &of_symbols);
    let cgroups = cgroups.into_iter().map(|cgroup| (cgroup.id, cgroup)).collect();
    Found { stacks, files: table, processes, cgroups, shortfalls }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::{Lookup, run};
    use crate::units::{CgroupId, Tgid, Timestamp};

    #[test]
    fn each_lookup_of_a_process_reaches_who_looks() {
        let own = Tgid(std::process::id());
        let nobody = Tgid(u32::MAX);
        for (lookups, found, gone) in [
            (vec![Lookup::Process { tgid: own }], 1, None),
            (vec![Lookup::Exec { tgid: own, at: Timestamp(1) }], 1, None),
            (vec![Lookup::Fork { parent: nobody, child: own, at: Timestamp(1) }], 1, None),
            (
                vec![Lookup::Process { tgid: own }, Lookup::Exec { tgid: own, at: Timestamp(1) }],
                1,
                None,
            ),
            (
                vec![
                    Lookup::Process { tgid: own },
                    Lookup::Exit { tgid: own, at: Timestamp(1) },
                    Lookup::Process { tgid: own },
                ],
                2,
                None,
            ),
            (vec![Lookup::Process { tgid: nobody }], 0, Some(&1)),
        ] {
            let (sender, wanted) = mpsc::channel();
            lookups.into_iter().for_each(|lookup| sender.send(lookup).unwrap());
            sender.send(Lookup::Cgroup { id: CgroupId(u64::MAX), tgid: own }).unwrap();
            drop(sender);
            let all = run(&wanted);
            assert_eq!(all.processes.len(), found);
            assert_eq!(all.shortfalls.get("processes_gone"), gone);
            assert_eq!(all.shortfalls.get("cgroups_unresolved"), Some(&1));
        }
    }
}
