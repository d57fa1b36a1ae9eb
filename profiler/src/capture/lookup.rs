//! The thread that looks things up while they are there.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender},
    time::{Duration, Instant},
};

use super::{
    flight::NewNames,
    snapshot::Snapshot,
    store::{Found, Part},
    user_stacks::UserStacks,
};
use crate::{
    decode::NewStack,
    files::Files,
    interrupts,
    parser::{Parser, Role},
    privileges::{self, Task},
    processes::Processes,
    recording::{FileId, FrameId, Function, InterruptInfo, loss::add_all},
    symbols::Symbols,
    units::{CgroupId, Tgid, Timestamp},
};

/// How often sockets and their holders are looked at when nothing else is to do.
const PACE: Duration = Duration::from_millis(20);
/// How often what was found is handed on to be stored.
const HAND_ON: Duration = Duration::from_millis(500);

/// Something to look up.
pub(super) enum Lookup {
    Process {
        tgid: Tgid,
    },
    Fork {
        parent: Tgid,
        child: Tgid,
        at: Timestamp,
    },
    Exec {
        tgid: Tgid,
        at: Timestamp,
    },
    Exit {
        tgid: Tgid,
        at: Timestamp,
    },
    Cgroup {
        id: CgroupId,
        tgid: Tgid,
    },
    Stack(NewStack),
    /// There are copies of user stacks.
    Copies,
    File {
        file: FileId,
        tgid: Tgid,
        descriptor: u32,
    },
    Interrupt {
        number: u16,
    },
    /// Hands on what was found before this.
    Snapshot(Box<Snapshot>),
}

/// What comes last.
pub(super) struct LastFound {
    pub found: Found,
    pub names: Vec<(FrameId, Vec<Function>)>,
}

/// Runs until nobody can ask any more, then names everything.
pub(super) fn run(
    wanted: &Receiver<Lookup>,
    parts: &SyncSender<Part>,
    mut symbols: Symbols,
    mut user_stacks: UserStacks,
) -> LastFound {
    let mut processes = Processes::new();
    let mut files = Files::new();
    let mut interrupts = Vec::new();
    let mut handed_on = Instant::now();
    loop {
        // A process before its mappings: those take longer, and it may end meanwhile.
        match wanted.recv_timeout(PACE) {
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
                symbols.observe_exit(tgid, at);
                processes.observe_exit(tgid);
            }
            Ok(Lookup::Cgroup { id, tgid }) => processes.observe_cgroup(id, tgid),
            Ok(Lookup::Stack(NewStack { id, walked, space, addresses })) => {
                symbols.observe_stack(id, space, walked, &addresses);
            }
            Ok(Lookup::Copies) => {
                user_stacks.unwind(&mut symbols);
            }
            Ok(Lookup::File { file, tgid, descriptor }) => files.observe(file, tgid, descriptor),
            Ok(Lookup::Interrupt { number }) => interrupts.push(interrupts::look(number)),
            Ok(Lookup::Snapshot(snapshot)) => {
                // Those that the snapshot's records refer to.
                while !user_stacks.unwind(&mut symbols) {}
                hand_on(&mut symbols, &mut processes, &mut files, &mut interrupts, parts);
                handed_on = Instant::now();
                let names = NewNames::ToLookUp(symbols.take_nameless());
                let _died = parts.send(Part::Snapshot(snapshot, names));
            }
            Err(RecvTimeoutError::Timeout) => user_stacks.note_idle(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        user_stacks.tell_of_python(&mut symbols);
        files.poll();
        if handed_on.elapsed() >= HAND_ON {
            hand_on(&mut symbols, &mut processes, &mut files, &mut interrupts, parts);
            handed_on = Instant::now();
        }
    }
    while !user_stacks.unwind(&mut symbols) {}
    let (files, mut shortfalls) = files.finish();
    let (processes, of_processes) = processes.finish();
    let unnamed = symbols.finish();
    // Everything is open that has names.
    privileges::keep_for(Task::Naming);
    let (stacks, names, of_symbols) =
        unnamed.name(&mut Parser::new(Role::Names), &mut |_done, _all| {});
    add_all(&mut shortfalls, &of_processes);
    add_all(&mut shortfalls, &of_symbols);
    let found = Found { stacks, processes, files, interrupts, shortfalls };
    LastFound { found, names }
}

fn hand_on(
    symbols: &mut Symbols,
    processes: &mut Processes,
    files: &mut Files,
    interrupts: &mut Vec<InterruptInfo>,
    parts: &SyncSender<Part>,
) {
    let mut shortfalls = symbols.shortfalls();
    add_all(&mut shortfalls, processes.shortfalls());
    add_all(&mut shortfalls, &files.shortfalls());
    let found = Found {
        stacks: symbols.take_new(),
        processes: processes.take_new(),
        files: files.take_new(),
        interrupts: std::mem::take(interrupts),
        shortfalls,
    };
    // The other end is gone only if its thread has died; that is noticed when it is joined.
    let _died = parts.send(Part::Found(Box::new(found)));
}
