//! Waits at pipes that never end, and who has the other end open.

use offwake_analysis::findings::{Finding, FindingKind};
use offwake_recording::{
    FileId, FileKind, OpenFile, PeerProcess, PipeEnds, PipeHolder, Recording,
    units::{Tgid, Tid},
};

use crate::{
    draw::live,
    fixtures::{POLL, READ, WAIT4, file, kernel, syscall, tcp, user},
    open_waits::{LENGTH, asleep, change, findings, in_process, sets, sleeps_in},
};

const WRITE: u32 = 1;
const SENDTO: u32 = 44;

/// Has a thread wait at a pipe, in a call with this number.
fn waits_at_pipe(r: &mut Recording, tid: u32, call: u32, pipe: u64, function: &str) {
    let stack = user(r, tid, &["libc.so.6 call", &format!("app {function}"), "app main"]);
    let in_kernel = match call {
        POLL => kernel(r, &["schedule_hrtimeout_range", "do_sys_poll"]),
        _ => kernel(r, &["schedule", "anon_pipe_write"]),
    };
    let pipe = pipe_file(pipe);
    change(r, tid, |wait| {
        sets(stack, syscall(call, [3, 1, 0, 0, 0, 0]))(wait);
        (wait.kernel_stack, wait.file) = (in_kernel, Some(pipe));
        wait.polled_fd = (call == POLL).then_some(3);
    });
}

fn pipe_file(inode: u64) -> FileId {
    file(FileKind::Pipe, inode)
}

fn holds(r: &mut Recording, pipe: u64, process: u32, ends: PipeEnds) {
    let FileId { device, inode, .. } = pipe_file(pipe);
    let holder = PeerProcess { tgid: Tgid(process), comm: format!("thread{process}") };
    r.pipe_holders.push(PipeHolder { device, inode, holder, ends });
}

fn has_parent(r: &mut Recording, process: u32, parent: u32) {
    for event in r.thread_events.iter_mut().filter(|event| event.tgid == Tgid(process)) {
        event.parent = Tgid(parent);
    }
}

fn told(found: &Finding) -> Vec<(u32, &str)> {
    found.chain.iter().map(|hop| (hop.tid.unwrap().0, &*hop.what)).collect()
}

/// A writer without room, and who sleeps instead of reading: 60 or 61.
fn full_pipe(reader: u32, beside: u32) -> Recording {
    let mut r = asleep(&[7, 60, 61]);
    waits_at_pipe(&mut r, 7, WRITE, 5, "log_line");
    holds(&mut r, 5, 7, PipeEnds::Writing);
    holds(&mut r, 5, reader, PipeEnds::Reading);
    holds(&mut r, 6, beside, PipeEnds::Reading);
    sleeps_in(&mut r, reader, "rotate");
    sleeps_in(&mut r, beside, "rest");
    r
}

#[test]
fn a_writer_without_room_waits_for_whoever_can_read() {
    for (reader, beside) in [(60, 61), (61, 60)] {
        // Others of the target go on: it has something to say, and is stuck all the same.
        let mut r = full_pipe(reader, beside);
        live(&mut r, 8, &"#".repeat(LENGTH), 0);
        let list = findings(&mut r);
        let found = list.iter().find(|found| found.still_waiting).unwrap();
        assert_eq!(found.kind, FindingKind::StillWaiting);
        let first = format!("waits for thread{reader} {reader} to read");
        assert_eq!(told(found), [(7, &*first), (reader, "has not read: sleeps")]);
        let cause = format!("thread{reader} {reader} has not read: sleeps in rotate");
        assert_eq!(found.cause.text, cause);
    }
}

#[test]
fn a_reader_waits_for_whoever_can_write() {
    for (call, awaited) in [(READ, true), (POLL, true), (WRITE, false)] {
        let mut r = asleep(&[7, 60]);
        waits_at_pipe(&mut r, 7, call, 5, "next_job");
        holds(&mut r, 5, 7, PipeEnds::Reading);
        holds(&mut r, 5, 60, PipeEnds::Writing);
        sleeps_in(&mut r, 60, "prepare");
        let found = &findings(&mut r)[0];
        let first = "waits for thread60 60 to write to a pipe or close it";
        let chain = [(7, first), (60, "has not written: sleeps")];
        assert_eq!(found.chain.len() == 2 && told(found) == chain, awaited, "{call}: {found:#?}");
    }
}

/// A pool's thread that waits for its next job beside others that work is no finding.
#[test]
fn a_reader_beside_others_that_work_may_be_idle() {
    let mut r = asleep(&[7, 60]);
    live(&mut r, 8, &"#".repeat(LENGTH), 0);
    waits_at_pipe(&mut r, 7, READ, 5, "next_job");
    holds(&mut r, 5, 7, PipeEnds::Reading);
    holds(&mut r, 5, 60, PipeEnds::Writing);
    assert!(findings(&mut r).iter().all(|found| !found.still_waiting));
}

#[test]
fn two_that_have_no_room_for_each_other_are_a_deadlock_and_two_that_listen_are_none() {
    let two = |one: u32, other: u32| {
        let mut r = asleep(&[7, 8]);
        let end = |call| if call == WRITE { PipeEnds::Writing } else { PipeEnds::Reading };
        let opposite = |call| if call == WRITE { PipeEnds::Reading } else { PipeEnds::Writing };
        for (waiter, call, holder) in [(7, one, 8), (8, other, 7)] {
            waits_at_pipe(&mut r, waiter, call, waiter.into(), "exchange");
            holds(&mut r, waiter.into(), waiter, end(call));
            holds(&mut r, waiter.into(), holder, opposite(call));
        }
        findings(&mut r).remove(0)
    };
    let found = two(WRITE, WRITE);
    assert_eq!((found.kind, found.count), (FindingKind::Deadlock, 2), "{found:#?}");
    assert_eq!(
        told(&found),
        [(7, "waits for thread8 8 to read"), (8, "still waits for thread7 7 to read")]
    );
    // Who reads standard output to its end while the other one has no room for its errors.
    let found = two(READ, WRITE);
    assert_eq!((found.kind, found.count), (FindingKind::Deadlock, 2), "{found:#?}");
    let found = two(READ, READ);
    assert_eq!(found.kind, FindingKind::StillWaiting, "{found:#?}");
}

#[test]
fn a_parent_that_waits_for_a_child_whose_output_it_does_not_read_is_a_deadlock() {
    for (ends, kind) in [
        (PipeEnds::Reading, FindingKind::Deadlock),
        // It can't make room.
        (PipeEnds::Writing, FindingKind::StillWaiting),
    ] {
        let mut r = asleep(&[7, 60]);
        let stack = user(&mut r, 7, &["libc.so.6 wait4", "app run_report", "app main"]);
        change(&mut r, 7, sets(stack, syscall(WAIT4, [60, 0, 0, 0, 0, 0])));
        has_parent(&mut r, 60, 7);
        waits_at_pipe(&mut r, 60, WRITE, 5, "print_rows");
        holds(&mut r, 5, 60, PipeEnds::Writing);
        holds(&mut r, 5, 7, ends);
        let found = &findings(&mut r)[0];
        assert_eq!(found.kind, kind, "{found:#?}");
    }
}

/// Returns whom the reader 7 waits for, where these have the end to write to.
fn writer_of(holders: &[(u32, PipeEnds)], parents: &[(u32, u32)]) -> Option<u32> {
    let mut r = asleep(&[7, 60, 61, 62]);
    waits_at_pipe(&mut r, 7, READ, 5, "next_job");
    for &(process, ends) in holders {
        holds(&mut r, 5, process, ends);
    }
    for &(process, parent) in parents {
        has_parent(&mut r, process, parent);
    }
    findings(&mut r)[0].chain.get(1).map(|hop| hop.tid.unwrap().0)
}

#[test]
fn of_several_writers_it_is_the_one_that_gave_the_others_what_it_has() {
    let (reads, writes) = (PipeEnds::Reading, PipeEnds::Writing);
    let both = [(7, reads), (60, writes), (61, writes)];
    assert_eq!(writer_of(&both, &[(61, 60)]), Some(60));
    assert_eq!(writer_of(&both, &[(60, 61)]), Some(61));
    // Either could write.
    assert_eq!(writer_of(&both, &[]), None);
    assert_eq!(writer_of(&both, &[(60, 62), (61, 62)]), None);
    // 60 made both of them and the pipe, and may never write to it.
    assert_eq!(writer_of(&both, &[(7, 60), (61, 60)]), None);
    assert_eq!(writer_of(&both, &[(7, 62), (62, 60), (61, 60)]), None);
    // It alone is left.
    assert_eq!(writer_of(&both[..2], &[(7, 60)]), Some(60));
}

#[test]
fn nobody_is_named_who_may_not_be_the_only_one() {
    let (reads, writes) = (PipeEnds::Reading, PipeEnds::Writing);
    assert_eq!(writer_of(&[(7, reads), (60, writes)], &[]), Some(60));
    assert_eq!(writer_of(&[(7, reads), (60, PipeEnds::Both)], &[]), Some(60));
    // The reader can write as well: a signal may have it do that.
    assert_eq!(writer_of(&[(7, PipeEnds::Both), (60, writes)], &[]), None);
    // The reader itself was not found: others may be missing.
    assert_eq!(writer_of(&[(60, writes)], &[]), None);
    assert_eq!(writer_of(&[(7, reads), (60, reads)], &[]), None);
    assert_eq!(writer_of(&[(7, reads)], &[]), None);
}

/// Some machines' first process lets nobody see what it has open.
#[test]
fn a_first_process_that_nobody_can_look_into_may_be_a_holder_and_that_is_said() {
    let (reads, writes, unseen) = (PipeEnds::Reading, PipeEnds::Writing, PipeEnds::NotSeen);
    let unless = ", unless thread1 1 has that end too, whose files nobody can see";
    let mut r = full_pipe(60, 61);
    holds(&mut r, 5, 1, unseen);
    let found = &findings(&mut r)[0];
    let first = format!("waits for thread60 60 to read{unless}");
    assert_eq!(told(found), [(7, &*first), (60, "has not read: sleeps")]);
    // Of another pipe it is not said.
    let mut r = full_pipe(60, 61);
    holds(&mut r, 6, 1, unseen);
    assert_eq!(told(&findings(&mut r)[0])[0].1, "waits for thread60 60 to read");
    // It is nobody that was seen to have an end: neither the only one, nor the waiter.
    assert_eq!(writer_of(&[(7, reads), (60, writes), (1, unseen)], &[]), Some(60));
    assert_eq!(writer_of(&[(7, reads), (61, unseen)], &[]), None);
    assert_eq!(writer_of(&[(7, unseen), (60, writes)], &[]), None);
}

#[test]
fn a_writer_of_many_threads_is_named_as_a_process() {
    let mut r = full_pipe(60, 61);
    in_process(&mut r, 60, &[60, 61]);
    let found = &findings(&mut r)[0];
    assert_eq!((found.kind, found.chain.len()), (FindingKind::StillWaiting, 1), "{found:#?}");
    assert_eq!(found.cause.text, "thread60 60 has not read");
}

#[test]
fn two_that_have_no_room_for_each_other_at_sockets_are_a_deadlock() {
    let two = |one: u32, other: u32| {
        let mut r = asleep(&[7, 8]);
        for (waiter, call, peer) in [(7, one, 8), (8, other, 7)] {
            let socket = tcp(&mut r, waiter.into(), "127.0.0.1:4000", "127.0.0.1:5432");
            let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket) else {
                unreachable!()
            };
            end.peers = vec![PeerProcess { tgid: Tgid(peer), comm: format!("thread{peer}") }];
            change(&mut r, waiter, |wait| {
                wait.syscall = syscall(call, [3, 0, 0, 0, 0, 0]);
                wait.file = Some(socket);
            });
        }
        findings(&mut r).remove(0)
    };
    let found = two(SENDTO, SENDTO);
    assert_eq!(found.kind, FindingKind::Deadlock, "{found:#?}");
    assert_eq!(
        told(&found),
        [(7, "waits for thread8 8 to read"), (8, "still waits for thread7 7 to read")]
    );
    assert_eq!(found.chain.first().and_then(|hop| hop.tid), Some(Tid(7)));
    assert_eq!(two(SENDTO, READ).kind, FindingKind::Deadlock);
    assert_eq!(two(READ, READ).kind, FindingKind::StillWaiting);
}
