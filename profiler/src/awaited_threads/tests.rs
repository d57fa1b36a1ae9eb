use offwake_recording::{
    AwaitedFileLock, Begin, End, FileId, FileKind, FuseServer, LockKind, LockOwner, PeerProcess,
    Phase, PipeEnds, PipeHolder, StackRef, Syscall, SyscallTable, TaskState, ThreadEvent,
    ThreadEventReason, ThreadKind, ThreadRef, Wait,
    units::{CgroupId, Cpu, Tgid, Tid, Timestamp},
};

use super::{KnownFiles, OpenWaits};
use crate::capture::OpenRecords;

const READ: u32 = 0;
const OPENAT: u32 = 257;
const WAIT4: u32 = 61;
const FUTEX: u32 = 202;
const FLOCK: u32 = 73;

const SOCKET: FileId = FileId { device: 8, inode: 1, kind: FileKind::Socket };
const OTHER_SOCKET: FileId = FileId { device: 8, inode: 2, kind: FileKind::Socket };
const REGULAR: FileId = FileId { device: 45, inode: 3, kind: FileKind::Regular };

/// A thread that sleeps to the end.
fn wait(tid: u32, tgid: u32, syscall: u32, file: Option<FileId>) -> Wait {
    Wait {
        tid: Tid(tid),
        tgid: Tgid(tgid),
        kind: ThreadKind::User,
        in_target: tgid == 10,
        seq: 1,
        begin: Begin::BeforeWindow,
        end: End::StillOff,
        off: Timestamp(1),
        on: Timestamp(9),
        migrated: None,
        off_cpu: Cpu(0),
        on_cpu: Cpu(0),
        state: TaskState(1),
        syscall: Some(Syscall { table: SyscallTable::Native, number: syscall, args: [0; 6] }),
        timeout: None,
        file,
        polled_fd: None,
        polled_events: None,
        cgroup: CgroupId(0),
        user_stack: StackRef::NotTaken,
        kernel_stack: StackRef::NotTaken,
        wake: None,
    }
}

fn event(tid: u32, tgid: u32, parent: u32) -> ThreadEvent {
    ThreadEvent {
        at: Timestamp(9),
        reason: ThreadEventReason::Closing,
        tid: Tid(tid),
        old_tid: None,
        tgid: Tgid(tgid),
        parent: Tgid(parent),
        kind: ThreadKind::User,
        in_target: tgid == 10,
        phase: Phase::Blocked,
        seq: 1,
        created: Timestamp(0),
        cgroup: CgroupId(0),
        comm: "x".to_owned(),
    }
}

fn process(tgid: u32) -> PeerProcess {
    PeerProcess { tgid: Tgid(tgid), comm: "x".to_owned() }
}

fn find(open: &OpenRecords, peers: &[(FileId, u32)], fuse_servers: &[FuseServer]) -> Vec<u32> {
    let peers = |file| {
        let of_file = peers.iter().filter(|(known, _)| *known == file);
        of_file.map(|&(_, tgid)| Tgid(tgid)).collect()
    };
    let files = KnownFiles { peers, polled: &[], fuse_servers };
    OpenWaits::from_records(open).find_awaited(&files).into_iter().map(|tid| tid.0).collect()
}

#[test]
fn all_threads_of_who_holds_the_other_end_are_awaited_and_those_that_they_wait_for() {
    let waits = vec![
        wait(10, 10, READ, Some(SOCKET)),
        wait(21, 20, FUTEX, None),
        wait(20, 20, READ, Some(OTHER_SOCKET)),
        wait(30, 30, READ, None),
        // It has slept as long, and nobody of the target waits for it.
        wait(40, 40, READ, None),
    ];
    let open = OpenRecords { waits, ..OpenRecords::default() };
    let peers = [(SOCKET, 20), (OTHER_SOCKET, 30)];
    assert_eq!(find(&open, &peers, &[]), [20, 21, 30]);
    assert_eq!(find(&open, &[], &[]), [0_u32; 0]);
}

#[test]
fn who_is_not_awaited_by_the_target_leads_nowhere() {
    let waits =
        vec![wait(10, 10, READ, None), wait(20, 20, READ, Some(SOCKET)), wait(30, 30, READ, None)];
    let open = OpenRecords { waits, ..OpenRecords::default() };
    assert_eq!(find(&open, &[(SOCKET, 30)], &[]), [0_u32; 0]);
}

#[test]
fn a_circle_ends() {
    let waits = vec![wait(10, 10, READ, Some(SOCKET)), wait(20, 20, READ, Some(OTHER_SOCKET))];
    let open = OpenRecords { waits, ..OpenRecords::default() };
    assert_eq!(find(&open, &[(SOCKET, 20), (OTHER_SOCKET, 10)], &[]), [20, 10]);
}

#[test]
fn the_one_thread_that_has_a_lock_is_awaited() {
    let waits = vec![wait(10, 10, FUTEX, None), wait(21, 20, READ, None), wait(22, 20, READ, None)];
    let lock_owners = vec![LockOwner {
        waiter: Tid(10),
        futex: 0x7000,
        kind: LockKind::Mutex,
        owner: ThreadRef { tid: Tid(21), tgid: Tgid(20) },
        owner_comm: "x".to_owned(),
    }];
    let open = OpenRecords { waits, lock_owners, ..OpenRecords::default() };
    assert_eq!(find(&open, &[], &[]), [21]);
}

#[test]
fn who_has_a_lock_on_a_file_is_awaited() {
    for (waiter, file) in [(Some(Tgid(10)), None), (None, Some(REGULAR))] {
        let waits = vec![wait(10, 10, FLOCK, file), wait(20, 20, READ, None)];
        let (device, inode) = (REGULAR.device, REGULAR.inode);
        let file_locks = vec![AwaitedFileLock { device, inode, waiter, holder: Some(process(20)) }];
        let open = OpenRecords { waits, file_locks, ..OpenRecords::default() };
        assert_eq!(find(&open, &[], &[]), [20]);
    }
}

#[test]
fn whoever_else_has_the_pipe_open_is_awaited() {
    let pipe = FileId { device: 15, inode: 771, kind: FileKind::Pipe };
    let holder = |inode, tgid, ends| PipeHolder { device: 15, inode, holder: process(tgid), ends };
    let pipe_holders = vec![
        holder(771, 10, PipeEnds::Reading),
        holder(771, 20, PipeEnds::Writing),
        holder(772, 30, PipeEnds::Writing),
        // Nobody knows whether it has it, and it lets nobody see its stacks either.
        holder(771, 40, PipeEnds::NotSeen),
    ];
    let others = [20, 30, 40].map(|tgid| wait(tgid, tgid, READ, None));
    let waits = [&[wait(10, 10, READ, Some(pipe))][..], &others].concat();
    let open = OpenRecords { waits, pipe_holders, ..OpenRecords::default() };
    assert_eq!(find(&open, &[], &[]), [20]);
}

#[test]
fn children_are_awaited_where_their_parent_waits_for_any() {
    let thread_events = vec![event(10, 10, 1), event(20, 20, 10), event(30, 30, 1)];
    for (call, awaited) in [(WAIT4, vec![20]), (READ, vec![])] {
        let waits = vec![wait(10, 10, call, None), wait(20, 20, READ, None)];
        let thread_events = thread_events.clone();
        let open = OpenRecords { waits, thread_events, ..OpenRecords::default() };
        assert_eq!(find(&open, &[], &[]), awaited);
    }
}

#[test]
fn who_serves_the_filesystem_is_awaited() {
    let server =
        |device, unanswered, tgid| FuseServer { device, unanswered, server: process(tgid) };
    let servers = [
        server(Some(45), Some(1), 20),
        server(Some(46), Some(1), 30),
        server(Some(47), Some(0), 40),
    ];
    let others = [20, 30, 40].map(|tgid| wait(tgid, tgid, READ, None));
    let open =
        |first| OpenRecords { waits: [&[first][..], &others].concat(), ..OpenRecords::default() };
    assert_eq!(find(&open(wait(10, 10, READ, Some(REGULAR))), &[], &servers), [20]);
    // A path tells no filesystem: those that owe an answer.
    assert_eq!(find(&open(wait(10, 10, OPENAT, None)), &[], &servers), [20, 30]);
    assert_eq!(find(&open(wait(10, 10, READ, Some(SOCKET))), &[], &servers), [0_u32; 0]);
}

/// PostgreSQL has a process for each client, and those of one server may have what another one waits for.
#[test]
fn titles_are_wanted_of_the_chain_and_of_the_processes_of_the_same_server() {
    let named = |tgid: u32, parent: u32, name: &str| ThreadEvent {
        comm: name.to_owned(),
        ..event(tgid, tgid, parent)
    };
    let open = OpenRecords {
        waits: vec![wait(10, 10, READ, Some(SOCKET)), wait(20, 20, FUTEX, None)],
        thread_events: vec![
            named(10, 1, "psql"),
            // Nobody's server: all of them were started by the first process.
            named(11, 1, "psql"),
            named(20, 5, "postgres"),
            named(21, 5, "postgres"),
            named(22, 5, "logger"),
            named(23, 6, "postgres"),
        ],
        ..OpenRecords::default()
    };
    let waits = OpenWaits::from_records(&open);
    let titled: Vec<u32> = waits.find_titled(&[Tid(20)]).iter().map(|tgid| tgid.0).collect();
    assert_eq!(titled, [20, 10, 21]);
    let crowd = (100..1_000).map(|tgid| named(tgid, 5, "postgres"));
    let thread_events = open.thread_events.iter().cloned().chain(crowd).collect();
    let waits = OpenWaits::from_records(&OpenRecords { thread_events, ..open });
    assert_eq!(waits.find_titled(&[Tid(20)]).len(), super::MAX_TITLES);
}
