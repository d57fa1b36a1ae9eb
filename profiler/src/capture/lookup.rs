//! The look-up thread: finds out what numbers stand for while that can still be found out.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender},
    time::{Duration, Instant},
};

use offwake_recording::{
    FuseServer, InterruptInfo,
    loss::{Diagnostics, add_all},
    units::Tid,
};

use super::{
    brief_processes::BriefProcesses,
    lookup_queue::LookupQueue,
    messages::{FrameNames, LastLookupResults, Lookup, LookupResults, SleeperStack, StoreMessage},
    user_stacks::UserStackExchange,
};
use crate::{
    awaited_children::find_awaited_children,
    awaited_threads::{KnownFiles, OpenWaits},
    decode::NewStack,
    file_locks,
    files::Files,
    filesystems, fuse_servers, interrupts,
    lock_owners::find_lock_owners,
    own_threads,
    parser::{Parser, ParserRole},
    pipe_holders,
    polled_files::{self, PolledFile},
    privileges::{self, Task},
    processes::{IoLimits, Processes, Quotas, find_stopped_threads},
    reader_process, scheduling,
    stacks::{LookupTime, StackProcessor},
};

/// How often results are sent to the store.
const SEND_INTERVAL: Duration = Duration::from_millis(500);

/// How long the stacks of sleeping threads are read that the target waits for.
const SLEEPERS_TIME: Duration = Duration::from_secs(1);

/// How long titles of processes are read once more as the recording ends.
const TITLES_TIME: Duration = Duration::from_millis(250);

/// Answers until nobody can ask any more, then has every frame named.
pub(super) fn run(
    lookups: &Receiver<Lookup>,
    store: &SyncSender<StoreMessage>,
    mut stacks: StackProcessor,
    mut user_stacks: UserStackExchange,
) -> LastLookupResults {
    let mut queue = LookupQueue::new(lookups);
    let mut processes = Processes::new();
    let mut brief = BriefProcesses::new(Instant::now());
    let mut files = Files::new();
    let mut quotas = Quotas::new();
    let mut io_limits = IoLimits::new();
    let mut interrupts = Vec::new();
    let mut sent = Instant::now();
    let mut fuse_servers = Vec::new();
    let mut pipe_holders = Vec::new();
    let mut polled_files = Vec::new();
    let mut disk_uses = Vec::new();
    let mut open_waits = None;
    let mut of_searches = Diagnostics::new();
    let mut are_quotas_read = false;
    loop {
        own_threads::pass();
        let mut is_idle = false;
        // A process before its mappings: those take longer, and it may end meanwhile.
        match queue.receive(user_stacks.pause()) {
            Ok(Lookup::Process { tgid }) => {
                processes.observe_process(tgid);
                io_limits.observe_process(tgid);
                quotas.observe_thread(Tid(tgid.0));
                stacks.observe_process(tgid);
            }
            Ok(Lookup::Fork { parent, child, at }) => {
                // Most children become another program at once.
                if !queue.is_over(child) && brief.begin(child, Instant::now()) == LookupTime::Now {
                    processes.observe_process(child);
                    io_limits.observe_process(child);
                }
                stacks.observe_fork(parent, child, at);
            }
            Ok(Lookup::Exec { tgid, at }) => {
                let time = match queue.is_over(tgid) {
                    true => LookupTime::Later,
                    false => brief.begin(tgid, Instant::now()),
                };
                if time == LookupTime::Now {
                    processes.observe_process(tgid);
                    io_limits.observe_process(tgid);
                }
                stacks.observe_exec(tgid, at, time);
            }
            Ok(Lookup::Exit { tgid, at }) => {
                brief.end(tgid, &mut of_searches);
                stacks.observe_exit(tgid, at);
                processes.observe_exit(tgid);
            }
            Ok(Lookup::Cgroup { id, tgid }) => processes.observe_cgroup(id, tgid),
            Ok(Lookup::Stack(NewStack { id, walked, space, addresses })) => {
                stacks.add_walked_stack(id, space, walked, &addresses);
            }
            Ok(Lookup::File { file, tgid, descriptor, waited: None }) => {
                files.observe(file, tgid, descriptor);
            }
            Ok(Lookup::File { file, tgid, descriptor, waited: Some(waited) }) => {
                files.observe_wait(file, tgid, descriptor, waited);
            }
            Ok(Lookup::Interrupt { number }) => {
                interrupts.push(interrupts::describe_interrupt(number))
            }
            Ok(Lookup::WindowOpened) => {
                quotas.count_from_now();
                io_limits.count_from_now();
            }
            Ok(Lookup::WindowClosed) => {
                quotas.read_again();
                io_limits.read_again();
                are_quotas_read = true;
            }
            Ok(Lookup::Quota { cgroup, tid }) => quotas.observe_throttle(cgroup, tid),
            Ok(Lookup::FuseServers) => fuse_servers = fuse_servers::find_servers(),
            Ok(Lookup::DiskUses(uses)) => {
                disk_uses = uses;
                filesystems::name_devices(&mut disk_uses);
            }
            Ok(Lookup::PolledFiles(polls)) => {
                polled_files = polled_files::find_polled_files(polls);
                for polled in &polled_files {
                    files.observe(polled.file, polled.tgid(), polled.fd);
                }
            }
            Ok(Lookup::OpenWaits(mut waits)) => {
                pipe_holders = pipe_holders::find_holders(waits.pipes(), &mut of_searches);
                waits.add_pipe_holders(&pipe_holders);
                open_waits = Some(waits);
            }
            Ok(Lookup::Snapshot(mut snapshot)) => {
                let polled_files = std::mem::take(&mut polled_files);
                polled_files::add_files(&mut snapshot.open.waits, &polled_files);
                snapshot.open.fuse_servers = std::mem::take(&mut fuse_servers);
                snapshot.open.filesystems = filesystems::find_filesystems();
                let owners = find_lock_owners(&snapshot.open.waits, snapshot.window);
                snapshot.open.lock_owners = owners;
                snapshot.open.stopped_threads = find_stopped_threads(&snapshot.open.waits);
                snapshot.open.awaited_children = find_awaited_children(&snapshot.open.waits);
                snapshot.open.file_locks =
                    file_locks::find_awaited(&snapshot.open.waits, &mut of_searches);
                snapshot.open.pipe_holders = pipe_holders::find_holders(
                    &pipe_holders::awaited_pipes(&snapshot.open.waits),
                    &mut of_searches,
                );
                quotas.read_again();
                // The snapshot's records refer to these stacks.
                user_stacks.process_all_copies(&mut stacks);
                send_results(
                    &mut stacks,
                    &mut processes,
                    &mut files,
                    &mut quotas,
                    &mut interrupts,
                    &of_searches,
                    store,
                );
                sent = Instant::now();
                let names = FrameNames::Pending(stacks.request_names());
                let _died = store.send(StoreMessage::Snapshot(snapshot, names));
            }
            Err(RecvTimeoutError::Timeout) => is_idle = true,
            Err(RecvTimeoutError::Disconnected) => break,
        }
        while let Some(tgid) = brief.pop_due(Instant::now()) {
            processes.observe_process(tgid);
            io_limits.observe_process(tgid);
            stacks.read_unread_mappings(tgid);
        }
        is_idle &= !user_stacks.process_due_copies(&mut stacks);
        if is_idle {
            user_stacks.record_idle();
        }
        user_stacks.send_python_threads(&mut stacks);
        user_stacks.send_tag_sources(&mut stacks);
        files.poll();
        io_limits.read_if_due();
        if sent.elapsed() >= SEND_INTERVAL {
            send_results(
                &mut stacks,
                &mut processes,
                &mut files,
                &mut quotas,
                &mut interrupts,
                &of_searches,
                store,
            );
            sent = Instant::now();
        }
    }
    if !are_quotas_read {
        quotas.read_again();
        io_limits.read_again();
    }
    let quotas = quotas.take_new();
    files.complete();
    let awaited = open_waits
        .as_ref()
        .map_or_else(Vec::new, |waits| find_awaited(waits, &files, &polled_files, &fuse_servers));
    // First of all: who wakes writes another title.
    if let Some(waits) = &open_waits {
        processes.observe_again(&waits.find_titled(&awaited), TITLES_TIME);
    }
    user_stacks.process_all_copies(&mut stacks);
    let sleepers = read_sleepers(&awaited, &mut stacks);
    let (files, mut diagnostics) = files.finish();
    let (processes, of_processes) = processes.finish();
    let filesystems = filesystems::find_filesystems();
    let (mut io_limits, io_limits_missed) = io_limits.finish();
    filesystems::name_limited_devices(&mut io_limits);
    stacks.read_tag_names_again();
    let tag_names = stacks.drain_tag_names();
    let unnamed = stacks.finish();
    // Every file that has names is open by now, and nothing is lost any more.
    privileges::restrict_to(Task::Naming);
    scheduling::restore_priority();
    let (stacks, names, of_stacks) =
        unnamed.resolve(&mut Parser::new(ParserRole::Names), &mut |_done, _all| {});
    add_all(&mut diagnostics, &of_processes);
    add_all(&mut diagnostics, &of_stacks);
    add_all(&mut diagnostics, &of_searches);
    if io_limits_missed > 0 {
        *diagnostics.entry("io_limits_missed").or_default() += io_limits_missed;
    }
    reader_process::add_diagnostics(&mut diagnostics);
    own_threads::add_diagnostics(&mut diagnostics);
    let unanswered = reader_process::list_unanswered();
    let results = LookupResults {
        stacks,
        processes,
        files,
        interrupts,
        quotas,
        tag_names,
        diagnostics,
        unanswered,
    };
    LastLookupResults {
        results,
        names,
        fuse_servers,
        filesystems,
        pipe_holders,
        polled_files,
        disk_uses,
        io_limits,
        sleepers,
    }
}

/// Finds the threads that the target waits for.
fn find_awaited(
    waits: &OpenWaits,
    files: &Files,
    polled: &[PolledFile],
    fuse_servers: &[FuseServer],
) -> Vec<Tid> {
    let peers = |file| files.peers(file).to_vec();
    waits.find_awaited(&KnownFiles { peers, polled, fuse_servers })
}

/// Reads the stacks of those of the threads that have slept since before the window.
fn read_sleepers(awaited: &[Tid], stacks: &mut StackProcessor) -> Vec<SleeperStack> {
    let read = stacks.read_sleepers(awaited, SLEEPERS_TIME);
    read.into_iter().map(|(tid, stack)| SleeperStack { tid, stack }).collect()
}

fn send_results(
    stacks: &mut StackProcessor,
    processes: &mut Processes,
    files: &mut Files,
    quotas: &mut Quotas,
    interrupts: &mut Vec<InterruptInfo>,
    of_searches: &Diagnostics,
    store: &SyncSender<StoreMessage>,
) {
    let mut diagnostics = stacks.diagnostics();
    reader_process::add_diagnostics(&mut diagnostics);
    add_all(&mut diagnostics, processes.diagnostics());
    add_all(&mut diagnostics, &files.diagnostics());
    add_all(&mut diagnostics, of_searches);
    let results = LookupResults {
        stacks: stacks.drain_new(),
        processes: processes.take_new(),
        files: files.take_new(),
        interrupts: std::mem::take(interrupts),
        quotas: quotas.take_new(),
        tag_names: stacks.drain_tag_names(),
        diagnostics,
        unanswered: reader_process::list_unanswered(),
    };
    // The other end is gone only if its thread has died; that is noticed when it is joined.
    let _died = store.send(StoreMessage::LookupResults(Box::new(results)));
}
