//! Waits that had not ended: whom they wait for, hop by hop, and deadlocks.

use offwake_analysis::{
    blame::BlameClass,
    filter::Filter,
    findings::{Finding, FindingKind},
    report::{Report, markdown, summary},
};
use offwake_recording::{
    AwaitedChild, AwaitedFileLock, FileKind, LockKind, LockOwner, OpenFile, PeerProcess,
    ProcessInfo, Recording, SocketRole, StackRef, Syscall, ThreadRef, Wait, WakeContext,
    units::{Nanos, Tgid, Tid, Timestamp},
};

use crate::{
    draw::{TICK, edit, live, recording},
    fixtures::{
        CLOCK_NANOSLEEP, CONNECT, EPOLL_WAIT, FUTEX, RECVFROM, WAIT4, file, kernel, syscall, tcp,
        user,
    },
    golden::{report as build_report, written},
};

pub const LENGTH: usize = 3_000;
const FLOCK: u32 = 73;
const OPENAT: u32 = 257;
const WAIT: u64 = 0x80;
const WAIT_BITSET: u64 = 0x89;

fn report(r: &mut Recording) -> Report {
    r.sort();
    build_report(r, &Filter::default())
}

pub fn findings(r: &mut Recording) -> Vec<Finding> {
    report(r).findings.list
}

fn screen(r: &mut Recording) -> String {
    let report = report(r);
    let text = written(&report, summary::write);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    text
}

/// Threads that wait from the first millisecond on. Those below 50 are the target.
pub fn asleep(tids: &[u32]) -> Recording {
    let mut r = recording(LENGTH);
    for &tid in tids {
        live(&mut r, tid, &format!("#{}", "_".repeat(LENGTH - 1)), 0);
    }
    r
}

/// Makes threads those of one process.
pub fn in_process(r: &mut Recording, tgid: u32, tids: &[u32]) {
    edit(r, |waits| {
        for wait in waits.iter_mut().filter(|wait| tids.contains(&wait.tid.0)) {
            wait.tgid = Tgid(tgid);
        }
    });
    for event in r.thread_events.iter_mut().filter(|event| tids.contains(&event.tid.0)) {
        event.tgid = Tgid(tgid);
    }
    for owner in &mut r.lock_owners {
        if tids.contains(&owner.owner.tid.0) {
            owner.owner.tgid = Tgid(tgid);
        }
    }
}

pub fn change(r: &mut Recording, tid: u32, change: impl Fn(&mut Wait)) {
    edit(r, |waits| waits.iter_mut().filter(|wait| wait.tid == Tid(tid)).for_each(change));
}

pub fn sets(stack: StackRef, call: Option<Syscall>) -> impl Fn(&mut Wait) {
    move |wait| (wait.user_stack, wait.syscall) = (stack, call)
}

/// Has a thread wait in `function` for what `libc` waits for.
pub fn waits_in(r: &mut Recording, tid: u32, libc: &str, function: &str, op: u64) {
    let leaf = format!("libc.so.6 {libc}");
    let stack = user(r, tid, &[&leaf, &format!("app {function}"), "app main"]);
    change(r, tid, sets(stack, syscall(FUTEX, [address(tid), op, 2, 0, 0, 0])));
}

fn address(tid: u32) -> u64 {
    0x7000 + u64::from(tid) * 0x100
}

pub fn sleeps_in(r: &mut Recording, tid: u32, function: &str) {
    let stack =
        user(r, tid, &["libc.so.6 clock_nanosleep", &format!("app {function}"), "app main"]);
    let nap = kernel(r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    change(r, tid, |wait| {
        sets(stack, syscall(CLOCK_NANOSLEEP, [0; 6]))(wait);
        wait.kernel_stack = nap;
    });
}

fn owned(r: &mut Recording, waiter: u32, kind: LockKind, owner: u32) {
    r.lock_owners.push(LockOwner {
        waiter: Tid(waiter),
        futex: address(waiter),
        kind,
        owner: ThreadRef { tid: Tid(owner), tgid: Tgid(owner) },
        owner_comm: format!("thread{owner}"),
    });
}

/// A mutex that one thread wants and another has.
pub fn mutex(r: &mut Recording, waiter: u32, owner: u32, function: &str) {
    waits_in(r, waiter, "pthread_mutex_lock", function, WAIT);
    owned(r, waiter, LockKind::Mutex, owner);
}

#[test]
fn two_threads_that_want_what_the_other_has_are_a_deadlock_told_first_and_in_full() {
    let mut r = asleep(&[7, 8, 9, 10]);
    mutex(&mut r, 8, 9, "transfer");
    mutex(&mut r, 9, 8, "transfer");
    // The main thread waits for one of them, and another one for something else.
    waits_in(&mut r, 7, "pthread_join", "run", 0x109);
    owned(&mut r, 7, LockKind::ThreadEnd, 8);
    waits_in(&mut r, 10, "pthread_mutex_lock", "report", WAIT);
    in_process(&mut r, 7, &[7, 8, 9, 10]);
    let list = findings(&mut r);
    let found = &list[0];
    assert_eq!((found.kind, found.still_waiting), (FindingKind::Deadlock, true), "{list:#?}");
    assert_eq!(found.count, 3, "{found:#?}");
    let told: Vec<_> = found.chain.iter().map(|hop| (hop.tid.unwrap().0, &*hop.what)).collect();
    assert_eq!(
        told,
        [
            (8, "waits for a lock held by thread thread9"),
            (9, "still waits for a lock held by thread thread8"),
        ]
    );
    assert!(found.chain.iter().all(|hop| hop.function.as_deref() == Some("transfer")));
    let behind = "stuck behind it: thread7 7 [main thread] waits for the end of thread thread8";
    assert!(found.lines.iter().any(|line| line.text.starts_with(behind)), "{found:#?}");
    assert_eq!(list.iter().filter(|found| found.kind == FindingKind::Deadlock).count(), 1);
    // A picture's last box is the cause: who is stuck behind the deadlock is none.
    let tree = report(&mut r).findings.hop_tree;
    let [first, ..] = &*tree.boxes else { panic!("{tree:#?}") };
    let [last] = &*first.children else { panic!("{first:#?}") };
    assert_eq!(last.what, "still waits for a lock held by thread thread8");
    assert!(last.children.is_empty(), "{last:#?}");
    // Nobody is told twice.
    let others: Vec<_> = list[1..].iter().flat_map(|found| &found.chain).collect();
    assert!(others.iter().all(|hop| hop.tid == Some(Tid(10))), "{others:#?}");
    let screen = screen(&mut r);
    let first = screen.lines().nth(1).unwrap();
    assert!(first.contains("DEADLOCK ≥3.00 s  thread7 7 [thread8] waits for a lock"), "{screen}");
    let mut text = Vec::new();
    markdown::write(&report(&mut r), &mut text).expect("a Vec takes everything");
    assert!(String::from_utf8_lossy(&text).contains("DEADLOCK"));
}

/// The stacks of runtimes tell nothing where distributions have taken their names away.
#[test]
fn locks_of_runtimes_are_a_deadlock_or_name_who_sleeps() {
    for kind in [LockKind::PythonLock, LockKind::JavaMonitor] {
        for (left, right) in [(8, 9), (9, 8)] {
            let mut r = asleep(&[7, 8, 9, 10]);
            for (waiter, owner) in [(left, right), (right, left)] {
                waits_in(
                    &mut r,
                    waiter,
                    "sem_clockwait",
                    &format!("transfer_{waiter}"),
                    WAIT_BITSET,
                );
                owned(&mut r, waiter, kind, owner);
            }
            waits_in(&mut r, 7, "sem_clockwait", "join", WAIT_BITSET);
            sleeps_in(&mut r, 10, "rest");
            in_process(&mut r, 7, &[7, 8, 9, 10]);
            let found = findings(&mut r).remove(0);
            assert_eq!(found.kind, FindingKind::Deadlock, "{found:#?}");
            for hop in &found.chain {
                let tid = hop.tid.unwrap().0;
                let wanted = format!("for a lock held by thread thread{}", 17 - tid);
                assert!(hop.what.ends_with(&wanted), "{found:#?}");
                assert_eq!(hop.function, Some(format!("transfer_{tid}")), "{found:#?}");
                // Threads that wait for one monitor wait on words of their own.
                let is_named = hop.addition.is_some();
                assert_eq!(is_named, kind == LockKind::PythonLock, "{found:#?}");
            }
            // One of them sleeps instead, with the lock.
            sleeps_in(&mut r, right, "export");
            let found = findings(&mut r).remove(0);
            assert_eq!(found.kind, FindingKind::StillWaiting, "{found:#?}");
            let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
            assert_eq!(tids, [Tid(left), Tid(right)], "{found:#?}");
            assert!(found.cause.text.ends_with("sleeps in export"), "{found:#?}");
        }
    }
}

/// The JVM asks for a monitor again after a second at most.
#[test]
fn a_wait_for_a_monitor_is_one_however_often_the_jvm_asks_again() {
    let pieces = || {
        let mut r = recording(LENGTH);
        let life = format!("#{0}#{0}#", ".".repeat(999));
        live(&mut r, 7, &format!("{life}{}", "_".repeat(LENGTH - life.len())), 0);
        live(&mut r, 8, &format!("#{}", "_".repeat(LENGTH - 1)), 0);
        waits_in(&mut r, 7, "pthread_cond_timedwait", "book", WAIT_BITSET);
        sleeps_in(&mut r, 8, "export");
        edit(&mut r, |waits| {
            let mut before = None;
            for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(7)) {
                wait.timeout = Some(Nanos(1_000_000_000));
                // It asks again at once.
                wait.off = before.map_or(wait.off, |before| before + Nanos(20_000));
                before = Some(wait.on);
                if let Some(wake) = &mut wait.wake {
                    wake.context = WakeContext::Hrtimer;
                }
            }
        });
        r
    };
    let mut r = pieces();
    owned(&mut r, 7, LockKind::JavaMonitor, 8);
    in_process(&mut r, 7, &[7, 8]);
    let list = findings(&mut r);
    let found = &list[0];
    assert!(found.still_waiting && found.longest_ns > Nanos(2_900_000_000), "{found:#?}");
    assert_eq!(found.chain[0].what, "waits for a lock held by thread thread8", "{found:#?}");
    assert_eq!(found.chain.len(), 2, "{found:#?}");
    assert!(list.iter().all(|found| !found.text.contains("timeout")), "{list:#?}");
    // Nobody knows what it waits for.
    let mut r = pieces();
    in_process(&mut r, 7, &[7, 8]);
    let all = format!("{:?}", findings(&mut r));
    assert!(!all.contains("held by"), "{all}");
}

/// Threads that wait for different locks, and nobody knows who has them.
#[test]
fn who_waits_for_another_lock_may_have_this_one_if_nobody_else_is_left() {
    let remark = |r: &mut Recording, tid: u32| {
        let list = findings(r);
        let is_its = |found: &&Finding| found.chain[0].tid == Some(Tid(tid));
        let found = list.iter().find(is_its).unwrap_or_else(|| panic!("{list:#?}"));
        let mut remarks = found.lines.iter().filter(|line| line.text.ends_with("a deadlock"));
        remarks.next().map(|line| line.text.clone())
    };
    let stuck = || {
        let mut r = asleep(&[7, 8, 9]);
        waits_in(&mut r, 7, "sem_clockwait", "join", WAIT_BITSET);
        waits_in(&mut r, 8, "pthread_mutex_lock", "left", WAIT);
        waits_in(&mut r, 9, "pthread_mutex_lock", "right", WAIT);
        r
    };
    let mut r = stuck();
    in_process(&mut r, 7, &[7, 8, 9]);
    for (tid, other, function) in [(8, 9, "right"), (9, 8, "left")] {
        let wanted = format!(
            "maybe thread thread{other}, which waits for another lock in {function}: a deadlock"
        );
        assert_eq!(remark(&mut r, tid), Some(wanted));
    }
    // Who waits in silence comes behind those that wait for locks.
    let first: Vec<_> = findings(&mut r).iter().take(2).map(|it| it.chain[0].tid).collect();
    assert_eq!(first, [Some(Tid(8)), Some(Tid(9))]);
    // The same lock.
    let mut r = stuck();
    change(&mut r, 9, |wait| wait.syscall = syscall(FUTEX, [address(8), WAIT, 2, 0, 0, 0]));
    in_process(&mut r, 7, &[7, 8, 9]);
    assert_eq!(remark(&mut r, 8), None);
    // Of another process.
    let mut r = stuck();
    in_process(&mut r, 7, &[7, 8]);
    assert_eq!(remark(&mut r, 8), None);
    // Any of these may have a lock.
    let mut r = stuck();
    sleeps_in(&mut r, 7, "export");
    in_process(&mut r, 7, &[7, 8, 9]);
    assert_eq!(remark(&mut r, 8), None);
    let mut r = stuck();
    live(&mut r, 10, &"#".repeat(LENGTH), 0);
    in_process(&mut r, 7, &[7, 8, 9, 10]);
    assert_eq!(remark(&mut r, 8), None);
}

#[test]
fn a_thread_that_wants_its_own_lock_is_a_deadlock_of_one() {
    let mut r = asleep(&[7]);
    mutex(&mut r, 7, 7, "reenter");
    let found = &findings(&mut r)[0];
    assert_eq!((found.kind, found.chain.len()), (FindingKind::Deadlock, 1), "{found:#?}");
    assert!(found.text.contains("waits for a lock that it holds itself in reenter"), "{found:#?}");
}

#[test]
fn a_deadlock_of_others_is_told_of_who_waits_for_them() {
    let mut r = asleep(&[7, 60, 61]);
    mutex(&mut r, 7, 60, "book");
    mutex(&mut r, 60, 61, "left");
    mutex(&mut r, 61, 60, "right");
    let found = &findings(&mut r)[0];
    assert_eq!((found.kind, found.count), (FindingKind::Deadlock, 1), "{found:#?}");
    let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
    assert_eq!(tids, [Tid(7), Tid(60), Tid(61)]);
}

#[test]
fn who_sleeps_with_the_lock_is_the_cause_and_not_who_sleeps_beside_it() {
    for (owner, beside) in [(60, 61), (61, 60)] {
        let mut r = asleep(&[7, 60, 61]);
        mutex(&mut r, 7, owner, "book");
        sleeps_in(&mut r, owner, "export");
        sleeps_in(&mut r, beside, "rest");
        let found = &findings(&mut r)[0];
        assert_eq!(found.kind, FindingKind::StillWaiting, "{found:#?}");
        assert!(found.text.contains(&format!("held by thread{owner} {owner}")), "{found:#?}");
        let cause = format!("thread{owner} {owner} sleeps in export");
        assert_eq!(found.cause.text, cause);
        let last = found.lines.last().unwrap();
        assert!(last.is_cause && last.text.contains("sleeps"), "{found:#?}");
    }
}

#[test]
fn a_chain_goes_on_over_file_locks_children_and_connections() {
    let mut r = asleep(&[7, 60, 61, 62]);
    // 7 wants a lock on a file that 60 has, 60 waits for its child 61, and that one for 62's answer.
    let lock = file(FileKind::Regular, 5);
    r.files.files.insert(lock, OpenFile::Named("/srv/stock.lock".to_owned()));
    let stack = user(&mut r, 7, &["libc.so.6 flock", "app take_from_stock", "app main"]);
    change(&mut r, 7, |wait| {
        sets(stack, syscall(FLOCK, [3, 2, 0, 0, 0, 0]))(wait);
        wait.file = Some(lock);
    });
    let holder = PeerProcess { tgid: Tgid(60), comm: "backup".to_owned() };
    r.file_locks.push(AwaitedFileLock {
        device: lock.device,
        inode: lock.inode,
        waiter: Some(Tgid(7)),
        holder: Some(holder),
    });
    let stack = user(&mut r, 60, &["libc.so.6 wait4", "backup run_tar", "backup main"]);
    change(&mut r, 60, sets(stack, syscall(WAIT4, [u64::from(u32::MAX), 0, 0, 0, 0, 0])));
    for event in r.thread_events.iter_mut().filter(|event| event.tid == Tid(61)) {
        event.parent = Tgid(60);
    }
    let socket = tcp(&mut r, 6, "127.0.0.1:4000", "127.0.0.1:5432");
    let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket) else { unreachable!() };
    end.peers = vec![PeerProcess { tgid: Tgid(62), comm: "store".to_owned() }];
    let stack = user(&mut r, 61, &["libc.so.6 recv", "tar upload", "tar main"]);
    change(&mut r, 61, |wait| {
        sets(stack, syscall(RECVFROM, [3, 0, 0, 0, 0, 0]))(wait);
        wait.file = Some(socket);
    });
    sleeps_in(&mut r, 62, "compact");
    let found = &findings(&mut r)[0];
    let told: Vec<_> = found.chain.iter().map(|hop| (hop.tid.unwrap().0, &*hop.what)).collect();
    assert_eq!(
        told,
        [
            (7, "waits for a file lock held by thread60 60"),
            (60, "still waits for its child thread61 61"),
            (61, "still waits for an answer of thread62 62"),
            (62, "has not answered: sleeps"),
        ]
    );
    assert_eq!(found.cause.text, "thread62 62 has not answered: sleeps in compact");
    assert!(
        found.lines.iter().any(|line| line.text == "it waits at /srv/stock.lock"),
        "{found:#?}"
    );
    // A second child: which of them is waited for is not known.
    live(&mut r, 63, &"#".repeat(LENGTH), 0);
    for event in r.thread_events.iter_mut().filter(|event| event.tid == Tid(63)) {
        event.parent = Tgid(60);
    }
    let found = &findings(&mut r)[0];
    assert_eq!(found.chain.len(), 2, "{found:#?}");
    assert!(found.cause.text.ends_with("waits for a child in run_tar"), "{found:#?}");
}

/// Has a thread wait for children in this call, and makes others its children.
fn waits_for_children(r: &mut Recording, parent: u32, children: &[u32], call: Option<Syscall>) {
    change(r, parent, |wait| wait.syscall = call);
    for event in r.thread_events.iter_mut().filter(|event| children.contains(&event.tid.0)) {
        event.parent = Tgid(parent);
    }
}

const WAITID: u32 = 247;
const ANY_CHILD: [u64; 6] = [u32::MAX as u64, 0, 0, 0, 0, 0];

/// Go and Rust name a child by a descriptor (`P_PIDFD`), which tells it from the others.
#[test]
fn the_child_behind_a_descriptor_is_the_one_that_is_waited_for() {
    for (named, other) in [(60, 61), (61, 60)] {
        let mut r = asleep(&[7, 60, 61]);
        waits_for_children(&mut r, 7, &[60, 61], syscall(WAITID, [3, 5, 0, 4, 0, 0]));
        sleeps_in(&mut r, named, "export");
        sleeps_in(&mut r, other, "compact");
        let tids = |r: &mut Recording| -> Vec<u32> {
            findings(r)[0].chain.iter().map(|hop| hop.tid.unwrap().0).collect()
        };
        assert_eq!(tids(&mut r), [7], "nothing tells which one it is");
        r.awaited_children.push(AwaitedChild { waiter: Tid(7), child: Tgid(named) });
        assert_eq!(tids(&mut r), [7, named]);
        // A number that is no child's any more.
        r.awaited_children[0].child = Tgid(99);
        assert_eq!(tids(&mut r), [7]);
    }
}

/// Of several children, the only one that is held up is the one to look at, unless another one works.
#[test]
fn of_several_children_the_only_one_that_is_held_up_is_named() {
    for (stuck, other) in [(60, 61), (61, 60)] {
        let mut r = asleep(&[7, 60, 61, 62]);
        waits_for_children(&mut r, 7, &[60, 61], syscall(WAIT4, ANY_CHILD));
        sleeps_in(&mut r, other, "rest");
        mutex(&mut r, stuck, 62, "book");
        sleeps_in(&mut r, 62, "export");
        let found = findings(&mut r).remove(0);
        let tids: Vec<_> = found.chain.iter().map(|hop| hop.tid.unwrap().0).collect();
        assert_eq!(tids, [7, stuck, 62], "{found:#?}");
        // Both are: none is the cause, and both are listed.
        mutex(&mut r, other, 62, "book");
        let found = findings(&mut r).remove(0);
        assert!(found.lines.iter().all(|line| !line.is_cause), "{found:#?}");
        let listed = "the end of any of these would end it: thread60 60, thread61 61";
        assert_eq!(found.cause.text, listed, "{found:#?}");
    }
}

/// A parent whose only child, or the one that it names, hangs is held up though other threads of the target go on. A
/// supervisor whose child serves is not.
#[test]
fn a_parent_of_a_child_that_hangs_is_stuck_and_an_idle_supervisor_is_not() {
    let parent = |children: &[u32], call: [u64; 6], child: &dyn Fn(&mut Recording)| {
        let mut r = asleep(&[7, 60, 61, 62]);
        live(&mut r, 8, &"#".repeat(LENGTH), 0);
        waits_for_children(&mut r, 7, children, syscall(WAIT4, call));
        sleeps_in(&mut r, 61, "rest");
        sleeps_in(&mut r, 62, "export");
        child(&mut r);
        let list = findings(&mut r);
        let of_parent = list.into_iter().find(|found| found.chain[0].tid == Some(Tid(7)));
        of_parent.filter(|found| found.still_waiting)
    };
    let wants_lock = |r: &mut Recording| mutex(r, 60, 62, "book");
    for (children, call) in [(&[60][..], ANY_CHILD), (&[60, 61], [60, 0, 0, 0, 0, 0])] {
        let found = parent(children, call, &wants_lock).expect("it is told");
        let tids: Vec<_> = found.chain.iter().map(|hop| hop.tid.unwrap().0).collect();
        assert_eq!(tids, [7, 60, 62], "{found:#?}");
        assert_eq!(found.cause.text, "thread62 62 sleeps in export");
        let serves = |r: &mut Recording| waits_at_socket(r, 60, RECVFROM, SocketRole::Serving, 62);
        assert_eq!(parent(children, call, &serves), None);
        let sleeps = |r: &mut Recording| sleeps_in(r, 60, "pause_between_jobs");
        assert_eq!(parent(children, call, &sleeps), None);
    }
    // A supervisor of two, of which one hangs: it waits for none of the two.
    assert_eq!(parent(&[60, 61], ANY_CHILD, &wants_lock), None);
}

/// `vfork` and `posix_spawn` return once the child has a program of its own. Here it never gets that far.
#[test]
fn who_spawns_a_child_waits_for_what_the_child_waits_for() {
    const VFORK: u32 = 58;
    let mut r = asleep(&[7, 60]);
    let spawns = kernel(&mut r, &["schedule", "wait_for_completion", "wait_for_vfork_done"]);
    change(&mut r, 7, |wait| {
        wait.syscall = syscall(VFORK, [0; 6]);
        wait.kernel_stack = spawns;
    });
    for event in r.thread_events.iter_mut().filter(|event| event.tid == Tid(60)) {
        event.parent = Tgid(7);
    }
    let opens = kernel(&mut r, &["schedule", "wait_for_partner", "fifo_open", "do_dentry_open"]);
    let stack = user(&mut r, 60, &["libc.so.6 open", "app redirect_output", "app main"]);
    change(&mut r, 60, |wait| {
        sets(stack, syscall(OPENAT, [0; 6]))(wait);
        wait.kernel_stack = opens;
    });
    let found = &findings(&mut r)[0];
    let told: Vec<_> = found.chain.iter().map(|hop| (hop.tid.unwrap().0, &*hop.what)).collect();
    let opens = "waits until a writer opens its FIFO";
    assert_eq!(told, [(7, "waits for its child thread60 60"), (60, opens)]);
    assert_eq!(found.cause.text, format!("thread60 60 {opens} in redirect_output"));
    // Of two children, one may have nothing to do with it.
    live(&mut r, 61, &"#".repeat(LENGTH), 0);
    for event in r.thread_events.iter_mut().filter(|event| event.tid == Tid(61)) {
        event.parent = Tgid(7);
    }
    assert_eq!(findings(&mut r)[0].chain.len(), 1);
}

/// A server that reads its commands from a FIFO opens it anew after each. The others go on.
#[test]
fn who_opens_a_fifo_beside_others_that_work_may_be_idle() {
    let mut r = asleep(&[7]);
    live(&mut r, 8, &"#".repeat(LENGTH), 0);
    let opens = kernel(&mut r, &["schedule", "wait_for_partner", "fifo_open", "do_dentry_open"]);
    let mut opens_for = |flags: u64| {
        change(&mut r, 7, |wait| {
            wait.kernel_stack = opens;
            wait.syscall = syscall(OPENAT, [0, 0, flags, 0, 0, 0]);
        });
        in_process(&mut r, 8, &[7, 8]);
        findings(&mut r)
    };
    let (read_only, write_only) = (0, 1);
    assert!(opens_for(read_only).iter().all(|found| !found.still_waiting));
    // Who writes has something to say.
    let found = &opens_for(write_only)[0];
    let waits = "waits until a reader opens its FIFO";
    assert!(found.still_waiting && found.text.contains(waits), "{found:#?}");
}

#[test]
fn a_holder_of_many_threads_is_named_as_a_process() {
    let mut r = asleep(&[7, 60, 61]);
    let lock = file(FileKind::Regular, 5);
    change(&mut r, 7, |wait| {
        wait.syscall = syscall(FLOCK, [3, 2, 0, 0, 0, 0]);
        wait.file = Some(lock);
    });
    r.file_locks.push(AwaitedFileLock {
        device: lock.device,
        inode: lock.inode,
        waiter: Some(Tgid(7)),
        holder: Some(PeerProcess { tgid: Tgid(60), comm: "backup".to_owned() }),
    });
    // One of its threads wants something of 7: any other could let go of the lock.
    mutex(&mut r, 61, 7, "other");
    in_process(&mut r, 60, &[60, 61]);
    let found = &findings(&mut r)[0];
    assert_eq!((found.kind, found.chain.len()), (FindingKind::StillWaiting, 1), "{found:#?}");
    assert_eq!(found.cause.text, "held by thread60 60");
}

/// Has a thread wait at a socket whose other end `peer` has, in a call with this number.
pub fn waits_at_socket(r: &mut Recording, tid: u32, call: u32, role: SocketRole, peer: u32) {
    let inode = u64::from(tid);
    let socket = tcp(r, inode, "127.0.0.1:4000", "127.0.0.1:5432");
    let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket) else { unreachable!() };
    end.role = Some(role);
    end.peers = vec![PeerProcess { tgid: Tgid(peer), comm: format!("thread{peer}") }];
    change(r, tid, |wait| {
        wait.syscall = syscall(call, [3, 0, 0, 0, 0, 0]);
        wait.file = Some(socket);
    });
}

#[test]
fn who_listens_is_whom_a_thread_waits_for_that_connects() {
    let mut r = asleep(&[7, 60]);
    waits_at_socket(&mut r, 7, CONNECT, SocketRole::Asking, 60);
    sleeps_in(&mut r, 60, "export");
    let found = findings(&mut r).remove(0);
    assert_eq!(found.chain[0].what, "waits for thread60 60 to accept its connection");
    assert_eq!(found.cause.text, "thread60 60 has not accepted it: sleeps in export");
}

#[test]
fn a_chain_that_ends_at_a_lock_says_that_nobody_knows_its_holder() {
    const UNKNOWN: &str = "who holds the lock is not known";
    let mut r = asleep(&[7, 60, 61]);
    waits_at_socket(&mut r, 7, RECVFROM, SocketRole::Asking, 60);
    waits_in(&mut r, 60, "pthread_mutex_lock", "update_row", WAIT);
    sleeps_in(&mut r, 61, "export");
    let found = findings(&mut r).remove(0);
    let waits = "thread60 60 has not answered: waits for a lock in update_row";
    assert_eq!(found.cause.text, format!("{waits}: {UNKNOWN}"), "{found:#?}");
    assert_eq!(found.lines.last().unwrap().text, UNKNOWN, "{found:#?}");
    // Where the holder is known, and where nobody waits for a lock, it is not said.
    owned(&mut r, 60, LockKind::Mutex, 61);
    let held = format!("{:?}", findings(&mut r).remove(0));
    sleeps_in(&mut r, 60, "export");
    let sleeps = format!("{:?}", findings(&mut r).remove(0));
    assert!(!held.contains(UNKNOWN) && !sleeps.contains(UNKNOWN), "{held}\n{sleeps}");
}

/// Makes a process a session of the server with this number, with a title that was read in a tick.
fn session(r: &mut Recording, tgid: u32, server: u32, title: &str, tick: u64) {
    r.processes.push(ProcessInfo {
        tgid: Tgid(tgid),
        at: Timestamp(r.meta.window.start.0 + tick * TICK),
        parent: Some(Tgid(server)),
        executable: Some("/usr/bin/postgres".to_owned()),
        arguments: vec![format!("postgres: shop shop [local] {title}")],
        cgroup: None,
        pid_in_container: None,
        uid: None,
    });
}

/// A SELECT waits behind an ALTER TABLE, and that for a session that is idle in its transaction: nobody
/// sees who has the lock, but these are all that can be named.
#[test]
fn sessions_with_an_open_transaction_may_have_the_lock_that_others_of_their_server_wait_for() {
    let mut r = asleep(&[7, 60, 61, 62, 63, 64, 65, 66, 67]);
    waits_at_socket(&mut r, 7, RECVFROM, SocketRole::Asking, 60);
    for tid in [60, 61] {
        waits_in(&mut r, tid, "pthread_mutex_lock", "LockAcquire", WAIT);
    }
    let open = "idle in transaction";
    session(&mut r, 60, 50, "SELECT waiting", 5);
    session(&mut r, 61, 50, "ALTER TABLE waiting", 5);
    session(&mut r, 62, 50, open, 5);
    session(&mut r, 63, 50, "idle", 5);
    // Another server's; one whose title was read before it fell asleep; one that woke meanwhile.
    session(&mut r, 64, 51, open, 5);
    session(&mut r, 65, 50, open, 0);
    session(&mut r, 68, 50, open, 5);
    live(&mut r, 68, &format!("#__#{}", "_".repeat(LENGTH - 4)), 0);
    // Servers that the first process has started are not one server.
    session(&mut r, 66, 1, open, 5);
    let lines = |r: &mut Recording| -> Vec<String> {
        findings(r).remove(0).lines.into_iter().map(|line| line.text).collect()
    };
    let told = lines(&mut r);
    let unknown = told.iter().position(|line| line.contains("not known")).expect("said");
    assert_eq!(
        told[unknown + 1..],
        [
            "maybe postgres 62 \"idle in transaction\": asleep as long",
            "for a lock wait too: postgres 61 \"ALTER TABLE waiting\"",
        ],
        "{told:#?}"
    );
    // A picture ends with what is known.
    let tree = report(&mut r).findings.hop_tree;
    assert!(!format!("{tree:?}").contains("maybe"));
    assert!(format!("{tree:?}").contains("who holds the lock is not known"));
    // Where the holder is known, nobody else is named.
    owned(&mut r, 60, LockKind::Mutex, 67);
    assert!(!lines(&mut r).iter().any(|line| line.contains("maybe")));
}

/// Gives a session the title that was read so many ticks after the window's end.
fn title_at_end(r: &mut Recording, tgid: u32, title: &str, ticks: u64) {
    session(r, tgid, 50, title, LENGTH as u64 + ticks);
}

/// One of two sessions begins a transaction within the window, and the other one ends its own. What they said
/// when they were first seen is true of neither.
#[test]
fn a_session_is_told_by_the_title_that_it_had_at_the_end() {
    let open = "idle in transaction";
    for (holder, beside) in [(62, 63), (63, 62)] {
        let mut r = recording(LENGTH);
        let mut sleeps_from = |tid: u32, tick: usize| {
            live(&mut r, tid, &format!("{}{}", "#".repeat(tick), "_".repeat(LENGTH - tick)), 0);
        };
        for (tid, tick) in [(7, 40), (60, 41), (62, 20), (63, 20)] {
            sleeps_from(tid, tick);
        }
        waits_at_socket(&mut r, 7, RECVFROM, SocketRole::Asking, 60);
        waits_in(&mut r, 60, "pthread_mutex_lock", "LockAcquire", WAIT);
        session(&mut r, 60, 50, "idle", 1);
        session(&mut r, holder, 50, "idle", 1);
        session(&mut r, beside, 50, open, 1);
        let told = |r: &mut Recording| -> Vec<String> {
            findings(r).remove(0).lines.into_iter().map(|line| line.text).collect()
        };
        assert!(!told(&mut r).iter().any(|line| line.contains("maybe")), "titles of another time");
        title_at_end(&mut r, 60, "UPDATE waiting", 30);
        title_at_end(&mut r, holder, open, 30);
        title_at_end(&mut r, beside, "idle", 30);
        let lines = told(&mut r);
        let maybe = format!("maybe postgres {holder} \"idle in transaction\": asleep as long");
        assert_eq!(lines.last(), Some(&maybe), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("postgres 60 \"UPDATE waiting\"")));
        // A title that was read too late may be of the next transaction, or of another program.
        r.processes.retain(|info| info.at < r.meta.window.end);
        title_at_end(&mut r, holder, open, 1_500);
        assert!(!told(&mut r).iter().any(|line| line.contains("maybe")));
        r.processes.retain(|info| info.at < r.meta.window.end);
        title_at_end(&mut r, holder, open, 30);
        let last = r.processes.last_mut().unwrap();
        last.executable = Some("/usr/bin/psql".to_owned());
        assert!(!told(&mut r).iter().any(|line| line.contains("maybe")));
    }
}

#[test]
fn what_most_threads_of_a_server_wait_for_that_does_not_answer_is_told() {
    let mut r = asleep(&[7, 60, 61, 62, 63, 64, 65]);
    waits_at_socket(&mut r, 7, RECVFROM, SocketRole::Asking, 60);
    for worker in [61, 62] {
        mutex(&mut r, worker, 63, "book");
    }
    sleeps_in(&mut r, 63, "export");
    // They have nothing to do, or nobody knows what.
    waits_at_socket(&mut r, 64, RECVFROM, SocketRole::Serving, 7);
    waits_in(&mut r, 65, "pthread_cond_wait", "next_job", WAIT_BITSET);
    in_process(&mut r, 60, &[60, 61, 62, 63, 64, 65]);
    let found = findings(&mut r).remove(0);
    assert_eq!(found.cause.text, "thread60 60 has not answered");
    let told: Vec<_> = found.lines.iter().map(|line| (line.depth, &*line.text)).collect();
    let [.., (2, waiting), (3, holder)] = told.as_slice() else { panic!("{told:#?}") };
    assert!(waiting.contains("[thread61, thread62] still waits for a lock"), "{told:#?}");
    assert!(holder.ends_with("sleeps"), "{told:#?}");
    // Those that began to wait a moment ago do not hold up who has waited for three seconds.
    let late = format!("{}{}", "#".repeat(LENGTH - 100), "_".repeat(100));
    let mut r = asleep(&[7, 60]);
    live(&mut r, 61, &late, 0);
    waits_at_socket(&mut r, 7, RECVFROM, SocketRole::Asking, 60);
    mutex(&mut r, 61, 60, "book");
    in_process(&mut r, 60, &[60, 61]);
    let found = findings(&mut r).remove(0);
    assert!(found.lines.iter().all(|line| line.depth < 2), "{found:#?}");
}

/// MariaDB asks for a metadata lock once a second, for as long as somebody else has it. The last piece
/// of that is never older than a second, however long the thread has waited.
#[test]
fn a_wait_for_a_lock_that_begins_anew_is_as_old_as_its_first_piece() {
    let told = |function: &str| {
        let mut r = asleep(&[7, 60]);
        let pieces = format!("#{}#{}", ".".repeat(LENGTH - 502), "_".repeat(500));
        live(&mut r, 61, &pieces, 0);
        waits_at_socket(&mut r, 7, RECVFROM, SocketRole::Asking, 60);
        waits_in(&mut r, 61, function, "alter_table", WAIT_BITSET);
        change(&mut r, 61, |wait| {
            wait.timeout = Some(Nanos(2_498 * TICK));
            if let Some(wake) = &mut wait.wake {
                wake.context = WakeContext::Hrtimer;
            } else {
                // It looked for 200 us, and slept again.
                wait.off = Timestamp(wait.off.0 - 800_000);
            }
        });
        in_process(&mut r, 60, &[60, 61]);
        let found = findings(&mut r).remove(0);
        assert_eq!(found.cause.text, "thread60 60 has not answered");
        found.lines.into_iter().filter(|line| line.depth == 2).map(|line| line.text).collect()
    };
    let waiting: Vec<String> = told("MDL_wait::timed_wait");
    assert_eq!(waiting, ["thread60 60 [thread61] waits for a metadata lock (MDL)"]);
    // A pool's thread that looks for work now and then has waited for none of it.
    assert_eq!(told("pthread_cond_timedwait"), [""; 0]);
}

#[test]
fn who_waits_for_a_process_that_is_dead_as_a_whole_waits_behind_the_deadlock() {
    for is_all_dead in [true, false] {
        let mut r = asleep(&[7, 60, 61]);
        if !is_all_dead {
            live(&mut r, 62, &"#".repeat(LENGTH), 0);
        }
        mutex(&mut r, 60, 61, "left");
        mutex(&mut r, 61, 60, "right");
        in_process(&mut r, 60, &[60, 61, 62]);
        change(&mut r, 7, |wait| wait.syscall = syscall(WAIT4, [60, 0, 0, 0, 0, 0]));
        for event in r.thread_events.iter_mut().filter(|event| event.tgid == Tgid(60)) {
            event.parent = Tgid(7);
        }
        // One of the two is of the target: a deadlock of others that nobody waits for is not told.
        for event in r.thread_events.iter_mut().filter(|event| event.tid == Tid(60)) {
            event.in_target = true;
        }
        let list = findings(&mut r);
        let dead: Vec<_> = list.iter().filter(|f| f.kind == FindingKind::Deadlock).collect();
        let [dead] = dead.as_slice() else { panic!("{list:#?}") };
        let is_behind = dead.lines.iter().any(|line| line.text.starts_with("stuck behind it"));
        assert_eq!(is_behind, is_all_dead, "{list:#?}");
    }
}

#[test]
fn a_lock_that_is_waited_for_with_a_timeout_says_so() {
    let mut r = asleep(&[7, 60]);
    mutex(&mut r, 7, 60, "book");
    change(&mut r, 7, |wait| wait.timeout = Some(Nanos(10_000_000_000)));
    let found = findings(&mut r).remove(0);
    assert!(found.text.contains("held by thread60 60, with a timeout in book"), "{found:#?}");
}

#[test]
fn a_wait_that_is_a_hop_of_another_comes_after_all_that_is_news() {
    let mut r = asleep(&[7, 8, 9, 60]);
    mutex(&mut r, 7, 8, "first");
    mutex(&mut r, 8, 60, "second");
    sleeps_in(&mut r, 60, "export");
    // Nobody knows who has this one.
    waits_in(&mut r, 9, "pthread_mutex_lock", "third", WAIT);
    let list = findings(&mut r);
    let firsts: Vec<_> = list.iter().map(|found| found.chain[0].tid.unwrap().0).collect();
    assert_eq!(firsts, [7, 9, 8], "{list:#?}");
}

#[test]
fn a_holder_that_runs_is_the_cause() {
    let mut r = asleep(&[7]);
    live(&mut r, 60, &"#".repeat(LENGTH), 0);
    mutex(&mut r, 7, 60, "book");
    let found = &findings(&mut r)[0];
    assert!(found.cause.text.ends_with("runs on a CPU"), "{found:#?}");
}

/// The class of all of the time of the target, but for its first millisecond.
fn class(r: &mut Recording) -> BlameClass {
    let time = report(r).findings.hop_tree.time();
    let with_time = |class: &BlameClass| time.get(*class) > Nanos(TICK * 2);
    let classes: Vec<_> = BlameClass::ALL.into_iter().filter(with_time).collect();
    let [class] = classes[..] else { panic!("{classes:?}") };
    class
}

#[test]
fn pictures_have_an_open_wait_in_the_colour_of_what_it_waits_for() {
    let behind = |life: &str| {
        let mut r = asleep(&[7]);
        live(&mut r, 60, life, 0);
        mutex(&mut r, 7, 60, "book");
        r
    };
    let asleep_all_along = format!("#{}", "_".repeat(LENGTH - 1));
    assert_eq!(class(&mut behind(&"#".repeat(LENGTH))), BlameClass::Work);
    let mut r = behind(&asleep_all_along);
    sleeps_in(&mut r, 60, "export");
    assert_eq!(class(&mut r), BlameClass::Timer);
    // It waits for a lock itself, of which nobody knows who has it.
    let mut r = behind(&asleep_all_along);
    waits_in(&mut r, 60, "pthread_mutex_lock", "export", WAIT);
    assert_eq!(class(&mut r), BlameClass::Unattributed);
    let mut r = behind(&asleep_all_along);
    mutex(&mut r, 60, 7, "export");
    assert_eq!(class(&mut r), BlameClass::HeldBack);
}

#[test]
fn an_owner_that_was_not_recorded_is_named_all_the_same() {
    let mut r = asleep(&[7]);
    mutex(&mut r, 7, 99, "book");
    let found = &findings(&mut r)[0];
    assert_eq!(found.cause.text, "held by thread99 99 (thread 99, not recorded)");
}

#[test]
fn words_that_look_like_an_owner_name_nobody_where_the_thread_waits_for_something_else() {
    for (libc, op, kind, why) in [
        ("pthread_cond_wait", WAIT_BITSET, LockKind::Mutex, "a condition variable has none"),
        ("sem_wait", WAIT_BITSET, LockKind::Mutex, "a semaphore has none"),
        ("__lll_lock_wait", WAIT, LockKind::Mutex, "a lock of another kind"),
        ("pthread_mutex_lock", WAIT, LockKind::Rwlock, "a mutex is no readers-writer lock"),
        ("pthread_mutex_lock", WAIT, LockKind::ThreadEnd, "a mutex is no thread"),
        ("pthread_rwlock_wrlock", WAIT_BITSET, LockKind::Mutex, "the other way round"),
    ] {
        let mut r = asleep(&[7, 60]);
        waits_in(&mut r, 7, libc, "book", op);
        owned(&mut r, 7, kind, 60);
        let list = findings(&mut r);
        let text = format!("{list:?}");
        assert!(!text.contains("thread60") && !text.contains("held by"), "{why}: {list:#?}");
        assert!(list.iter().all(|found| found.kind != FindingKind::Deadlock), "{why}");
    }
    // Two rows that contradict each other, and one about another futex.
    let mut r = asleep(&[7, 60, 61]);
    mutex(&mut r, 7, 60, "book");
    owned(&mut r, 7, LockKind::RobustMutex, 61);
    let found = findings(&mut r).remove(0);
    assert_eq!(found.cause.text, "who holds the lock is not known", "{found:#?}");
    let mut r = asleep(&[7, 60]);
    mutex(&mut r, 7, 60, "book");
    r.lock_owners[0].futex += 4;
    let found = findings(&mut r).remove(0);
    assert_eq!(found.cause.text, "who holds the lock is not known", "{found:#?}");
}

#[test]
fn a_mutex_behind_a_condition_variable_has_an_owner() {
    let mut r = asleep(&[7, 60]);
    waits_in(&mut r, 7, "pthread_cond_wait", "next_job", WAIT);
    owned(&mut r, 7, LockKind::Mutex, 60);
    sleeps_in(&mut r, 60, "export");
    let found = findings(&mut r).remove(0);
    assert_eq!(found.cause.text, "thread60 60 sleeps in export", "{found:#?}");
}

#[test]
fn two_that_only_listen_to_each_other_are_no_deadlock() {
    let mut r = asleep(&[7, 60]);
    for (tid, inode, peer) in [(7, 5, 60), (60, 6, 7)] {
        let socket = tcp(&mut r, inode, "127.0.0.1:4000", "127.0.0.1:5432");
        let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket) else { unreachable!() };
        end.peers = vec![PeerProcess { tgid: Tgid(peer), comm: format!("thread{peer}") }];
        change(&mut r, tid, |wait| {
            wait.syscall = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
            wait.file = Some(socket);
        });
    }
    let list = findings(&mut r);
    assert!(list.iter().all(|found| found.kind != FindingKind::Deadlock), "{list:#?}");
    // As soon as one of them wants a lock that the other has, it is one.
    mutex(&mut r, 7, 60, "book");
    assert_eq!(findings(&mut r)[0].kind, FindingKind::Deadlock);
}

/// Two services that ask each other, each over a connection of its own, are a deadlock: neither can answer before
/// it is answered itself. One that serves its connection may only have nothing to do.
#[test]
fn services_that_ask_each_other_are_a_deadlock_and_those_that_serve_are_none() {
    let (asks, serves) = (SocketRole::Asking, SocketRole::Serving);
    let kinds = |roles: [SocketRole; 2], calls: [u32; 2]| {
        let mut r = asleep(&[7, 60]);
        waits_at_socket(&mut r, 7, calls[0], roles[0], 60);
        waits_at_socket(&mut r, 60, calls[1], roles[1], 7);
        findings(&mut r)
    };
    let list = kinds([asks, asks], [RECVFROM, RECVFROM]);
    assert_eq!(list[0].kind, FindingKind::Deadlock, "{list:#?}");
    let told: Vec<_> = list[0].chain.iter().map(|hop| (hop.tid.unwrap().0, &*hop.what)).collect();
    assert_eq!(
        told,
        [(7, "waits for an answer of thread60 60"), (60, "still waits for an answer of thread7 7")]
    );
    for (roles, calls) in [
        ([asks, serves], [RECVFROM, RECVFROM]),
        ([serves, asks], [RECVFROM, RECVFROM]),
        ([serves, serves], [RECVFROM, RECVFROM]),
    ] {
        let list = kinds(roles, calls);
        let is_none = list.iter().all(|found| found.kind != FindingKind::Deadlock);
        assert!(is_none, "{roles:?}: {list:#?}");
    }
    // Three of them, and one that asks itself.
    let mut r = asleep(&[7, 60, 61]);
    for (tid, peer) in [(7, 60), (60, 61), (61, 7)] {
        waits_at_socket(&mut r, tid, RECVFROM, asks, peer);
    }
    assert_eq!(findings(&mut r)[0].kind, FindingKind::Deadlock);
    let mut r = asleep(&[7]);
    waits_at_socket(&mut r, 7, RECVFROM, asks, 7);
    let found = findings(&mut r).remove(0);
    assert_eq!((found.kind, found.chain.len()), (FindingKind::Deadlock, 1), "{found:#?}");
    // A service with another thread may answer with that one.
    let mut r = asleep(&[7, 60, 61]);
    waits_at_socket(&mut r, 7, RECVFROM, asks, 60);
    waits_at_socket(&mut r, 60, RECVFROM, asks, 7);
    in_process(&mut r, 60, &[60, 61]);
    assert!(findings(&mut r).iter().all(|found| found.kind != FindingKind::Deadlock));
}

#[test]
fn who_has_a_lock_no_more_is_waited_for_no_more() {
    // The waiter was woken, and waits for a CPU.
    let mut r = recording(LENGTH);
    live(&mut r, 7, &format!("#{}{}", ".".repeat(LENGTH - 2), "r"), 60);
    live(&mut r, 60, &format!("#{}", "_".repeat(LENGTH - 1)), 0);
    mutex(&mut r, 7, 60, "book");
    mutex(&mut r, 60, 7, "book");
    let list = findings(&mut r);
    assert!(list.iter().all(|found| found.kind != FindingKind::Deadlock), "{list:#?}");
}

/// Clients of a slow server: whichever request the window's end cuts off took no longer than the others.
#[test]
fn a_wait_that_is_no_longer_than_those_before_it_is_not_stuck() {
    let cut_off = |before: usize, open: usize| {
        let mut r = recording(LENGTH);
        let life = format!("#{}r{}", ".".repeat(before), "#".repeat(LENGTH - before - open - 2));
        live(&mut r, 7, &format!("{life}{}", "_".repeat(open)), 60);
        live(&mut r, 60, &"#".repeat(LENGTH), 0);
        waits_at_socket(&mut r, 7, RECVFROM, SocketRole::Asking, 60);
        screen(&mut r).contains("STILL WAITING")
    };
    assert!(!cut_off(1_600, 1_300));
    // One that is longer is no longer usual, nor are many short ones before it.
    assert!(cut_off(1_300, 1_600));
    assert!(cut_off(100, 1_600));
}

#[test]
fn who_works_is_said_to_work_though_another_has_its_cpu_at_the_end() {
    let said = |end: &str| {
        let mut r = asleep(&[7]);
        waits_at_socket(&mut r, 7, CONNECT, SocketRole::Asking, 60);
        live(&mut r, 60, &format!("{}{end}", "#".repeat(LENGTH - end.len())), 0);
        findings(&mut r).remove(0).cause.text
    };
    let works = "thread60 60 has not accepted it: runs on a CPU";
    let is_queued = "thread60 60 has not accepted it: waits for a CPU";
    assert_eq!(said("#"), works);
    assert_eq!(said("rrr"), works);
    assert_eq!(said(&"r".repeat(LENGTH - 10)), is_queued);
    // What it did before it last slept does not count.
    assert_eq!(said("..r#rrr"), is_queued);
}

#[test]
fn what_a_thread_waits_at_is_said_if_its_name_says_anything() {
    for (kind, is_said) in [(FileKind::Character, true), (FileKind::Anonymous, false)] {
        let mut r = asleep(&[7]);
        change(&mut r, 7, |wait| {
            wait.syscall = syscall(EPOLL_WAIT, [4, 0, 64, u64::MAX, 0, 0]);
            wait.file = Some(file(kind, 1_038));
        });
        let text = screen(&mut r);
        assert!(text.contains("STILL WAITING"), "{text}");
        assert_eq!(text.contains("it waits at"), is_said, "{text}");
    }
}
