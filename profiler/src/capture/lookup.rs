//! The thread that looks things up while they are there.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use crate::{
    files::Files,
    recording::{
        FileId, FileTable, StackTable,
        decode::NewStack,
        loss::{Shortfalls, add_all},
    },
    symbols::Symbols,
    units::{Tgid, Timestamp},
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
}

/// Everything that was found.
pub(super) struct Found {
    pub stacks: StackTable,
    pub files: FileTable,
    pub shortfalls: Shortfalls,
}

/// Runs until nobody can ask any more, then names everything.
pub(super) fn run(wanted: &Receiver<Lookup>) -> Found {
    let mut symbols = Symbols::new();
    let mut files = Files::new();
    loop {
        match wanted.recv_timeout(PACE) {
            Ok(Lookup::Process { tgid }) => symbols.observe_process(tgid),
            Ok(Lookup::Fork { parent, child, at }) => symbols.observe_fork(parent, child, at),
            Ok(Lookup::Exec { tgid, at }) => symbols.observe_exec(tgid, at),
            Ok(Lookup::Exit { tgid, at }) => symbols.observe_exit(tgid, at),
            Ok(Lookup::Stack(NewStack { id, taken, space, addresses })) => {
                symbols.observe_stack(id, space, taken, &addresses);
            }
            Ok(Lookup::File { file, tgid, descriptor }) => files.observe(file, tgid, descriptor),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        files.poll();
    }
    let (files, mut shortfalls) = files.finish();
    let (new, names, of_symbols) = symbols.finish(&mut |_done, _all| {});
    let mut stacks = StackTable::default();
    stacks.add(new);
    stacks.name(names);
    add_all(&mut shortfalls, &of_symbols);
    Found { stacks, files, shortfalls }
}
