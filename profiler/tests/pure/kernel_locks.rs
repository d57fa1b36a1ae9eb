//! Waits for locks of the kernel's that had not ended: whoever sleeps in the code that takes the lock has it.

use std::collections::BTreeMap;

use offwake_analysis::{
    blame::{Blame, BlameKind, ChainLimits},
    findings::Finding,
    timeline::{Timeline, WaitIndex},
};
use offwake_recording::{
    FileKind, Filesystem, Recording, TaskState, ThreadKind, ThreadRef,
    units::{Tgid, Tid},
};

use crate::{
    blames::parts,
    draw::{TICK, at, edit, live, recording},
    fixtures::{file, kernel, syscall, user},
    open_waits::{asleep, change, findings, in_process, sets},
};

const WRITE: u32 = 1;
const MMAP: u32 = 9;
const COPY_FILE_RANGE: u32 = 326;

const WANTS_FILE: &[&str] = &[
    "schedule",
    "rwsem_down_write_slowpath",
    "down_write",
    "ext4_buffered_write_iter",
    "vfs_write",
];
const HAS_FILE: &[&str] =
    &["schedule", "balance_dirty_pages", "generic_perform_write", "ext4_buffered_write_iter"];
const SYNCS_FILE: &[&str] = &[
    "schedule",
    "jbd2_log_wait_commit",
    "vfs_fsync_range",
    "generic_write_sync",
    "ext4_buffered_write_iter",
];
const WANTS_MEMORY: &[&str] = &[
    "schedule",
    "rwsem_down_write_slowpath",
    "down_write_killable",
    "vm_mmap_pgoff",
    "ksys_mmap_pgoff",
];
const HAS_MEMORY: &[&str] =
    &["schedule", "request_wait_answer", "fuse_simple_request", "mmap_region", "vm_mmap_pgoff"];

/// Has a thread sleep in this syscall and these functions.
fn sleeps_in_kernel(r: &mut Recording, tid: u32, (call, inode): (u32, u64), functions: &[&str]) {
    let stack = user(r, tid, &["libc.so.6 write", &format!("app job_{tid}"), "app main"]);
    let kernel = kernel(r, functions);
    change(r, tid, |wait| {
        sets(stack, syscall(call, [3, 0, 0, 0, 0, 0]))(wait);
        wait.kernel_stack = kernel;
        wait.state = TaskState(2);
        wait.file = (inode > 0).then(|| file(FileKind::Regular, inode));
    });
}

/// What the finding says of the thread's wait, and of whom it leads to.
fn told(r: &mut Recording, tid: u32) -> Vec<(u32, String)> {
    let findings = findings(r);
    let first =
        |found: &&Finding| found.chain.first().and_then(|hop| hop.tid?.0.into()) == Some(tid);
    let found = findings.iter().find(first).unwrap_or_else(|| panic!("{tid}: {findings:#?}"));
    found.chain.iter().map(|hop| (hop.tid.unwrap().0, hop.what.clone())).collect()
}

#[test]
fn who_sleeps_in_a_write_to_a_file_has_its_lock() {
    let mut r = asleep(&[7, 8, 9]);
    sleeps_in_kernel(&mut r, 7, (WRITE, 70), WANTS_FILE);
    sleeps_in_kernel(&mut r, 8, (WRITE, 70), HAS_FILE);
    // It does the same to another file.
    sleeps_in_kernel(&mut r, 9, (WRITE, 71), HAS_FILE);
    let chain = told(&mut r, 7);
    let tids: Vec<u32> = chain.iter().map(|(tid, _)| *tid).collect();
    assert_eq!(tids, [7, 8], "{chain:?}");
    assert_eq!(chain[0].1, "waits for the lock of a file (inode lock), held by thread8 8");
    assert!(chain[1].1.contains("disk"), "{chain:?}");
    // The other way round: the one that it is led to is the one that writes to its file.
    sleeps_in_kernel(&mut r, 8, (WRITE, 71), HAS_FILE);
    sleeps_in_kernel(&mut r, 9, (WRITE, 70), HAS_FILE);
    assert_eq!(told(&mut r, 7)[1].0, 9);
}

#[test]
fn nobody_is_named_for_the_lock_of_a_file_where_several_or_none_could_have_it() {
    for functions in [
        // It waits for the lock as well; it has let it go before it waits for the journal; it is elsewhere.
        WANTS_FILE, SYNCS_FILE, HAS_MEMORY,
    ] {
        let mut r = asleep(&[7, 8]);
        sleeps_in_kernel(&mut r, 7, (WRITE, 70), WANTS_FILE);
        sleeps_in_kernel(&mut r, 8, (WRITE, 70), functions);
        assert!(led_nowhere(&mut r, 7), "{functions:?}");
    }
    let mut r = asleep(&[7, 8, 9]);
    sleeps_in_kernel(&mut r, 7, (WRITE, 70), WANTS_FILE);
    sleeps_in_kernel(&mut r, 8, (WRITE, 70), HAS_FILE);
    sleeps_in_kernel(&mut r, 9, (WRITE, 70), HAS_FILE);
    assert!(led_nowhere(&mut r, 7), "two are in that code, so something is not as it seems");
}

/// Whether no finding has the thread wait for another one.
fn led_nowhere(r: &mut Recording, tid: u32) -> bool {
    findings(r).iter().all(|found| {
        let is_first = found.chain.first().is_some_and(|hop| hop.tid.is_some_and(|it| it.0 == tid));
        !is_first || found.chain.len() == 1
    })
}

#[test]
fn who_sleeps_in_a_change_of_its_address_space_has_its_lock() {
    let mut r = asleep(&[7, 8, 9]);
    sleeps_in_kernel(&mut r, 7, (MMAP, 0), WANTS_MEMORY);
    sleeps_in_kernel(&mut r, 8, (MMAP, 0), HAS_MEMORY);
    // Another process has an address space of its own.
    sleeps_in_kernel(&mut r, 9, (MMAP, 0), HAS_MEMORY);
    in_process(&mut r, 7, &[7, 8]);
    let chain = told(&mut r, 7);
    assert_eq!(
        chain[0].1,
        "waits for the lock of an address space (mmap_lock), held by thread thread8"
    );
    assert_eq!(chain[1].0, 8, "{chain:?}");
    // Alone in its process, it waits for nobody that is known.
    let mut r = asleep(&[7, 9]);
    sleeps_in_kernel(&mut r, 7, (MMAP, 0), WANTS_MEMORY);
    sleeps_in_kernel(&mut r, 9, (MMAP, 0), HAS_MEMORY);
    assert!(led_nowhere(&mut r, 7));
    // Who reads another process's memory asks for that one's lock.
    let mut r = asleep(&[7, 8]);
    let reads =
        ["schedule", "rwsem_down_read_slowpath", "down_read", "__access_remote_vm", "mem_rw"];
    sleeps_in_kernel(&mut r, 7, (WRITE, 0), &reads);
    sleeps_in_kernel(&mut r, 8, (MMAP, 0), HAS_MEMORY);
    in_process(&mut r, 7, &[7, 8]);
    assert!(led_nowhere(&mut r, 7));
}

#[test]
fn who_sleeps_in_a_call_with_a_descriptor_has_its_position() {
    let wants = ["schedule", "__mutex_lock", "fdget_pos", "ksys_write", "do_syscall_64"];
    let has =
        ["schedule", "balance_dirty_pages", "generic_perform_write", "vfs_write", "ksys_write"];
    let mut r = asleep(&[7, 8, 9]);
    sleeps_in_kernel(&mut r, 7, (WRITE, 70), &wants);
    sleeps_in_kernel(&mut r, 8, (WRITE, 70), &has);
    // The same file, and the same number of another process's.
    sleeps_in_kernel(&mut r, 9, (WRITE, 70), &has);
    in_process(&mut r, 7, &[7, 8]);
    let chain = told(&mut r, 7);
    let position = "the position in an open file that others use too (f_pos_lock)";
    assert_eq!(chain[0].1, format!("waits for {position}, held by thread thread8"));
    // The same file, opened a second time.
    change(&mut r, 8, |wait| wait.syscall = syscall(WRITE, [4, 0, 0, 0, 0, 0]));
    assert!(led_nowhere(&mut r, 7));
}

const SENDMSG: u32 = 46;
const WANTS_NETWORK: &[&str] = &["schedule", "__mutex_lock", "rtnl_lock", "rtnetlink_rcv_msg"];
const HAS_NETWORK: &[&str] = &[
    "schedule",
    "__wait_rcu_gp",
    "synchronize_rcu",
    "unregister_netdevice_many_notify",
    "rtnl_dellink",
];

/// Threads that wait for the lock of one file, or of several, and live like this.
fn wait_for_file(lives: &[(u32, &str, u32)], files: &[u64]) -> Recording {
    let mut r = recording(16);
    for &(tid, life, waker) in lives {
        live(&mut r, tid, life, waker);
    }
    let stack = kernel(&mut r, WANTS_FILE);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut() {
            let place = lives.iter().position(|&(tid, ..)| Tid(tid) == wait.tid).unwrap();
            (wait.kernel_stack, wait.state) = (stack, TaskState(2));
            wait.syscall = syscall(WRITE, [3, 0, 0, 0, 0, 0]);
            wait.file = Some(file(FileKind::Regular, files[place % files.len()]));
        }
    });
    r
}

/// Thread 7 waits from 1 to 12. Thread 9 has the lock until 6 or 9, and 8 from then on: it stood before 7 in line, or
/// the kernel let it in before 7 as it lets all readers in at once that are in line, and it was at something else
/// until 4.
#[test]
fn a_wait_for_a_lock_of_the_kernel_is_divided_among_those_that_had_it() {
    for (eight, parts_of_7) in [
        ("......##########", parts(&[("work 8", 6), ("work 9", 5)])),
        (".........#######", parts(&[("work 8", 3), ("work 9", 8)])),
        ("####..##########", parts(&[("work 8", 6), ("work 9", 5)])),
        ("####.....#######", parts(&[("work 8", 3), ("work 9", 8)])),
    ] {
        let lives = [(7, "#...........####", 8), (8, eight, 9), (9, "################", 0)];
        let mut r = wait_for_file(&lives, &[70]);
        assert_eq!(blames_of(&mut r, 7), parts_of_7, "{eight}");
    }
    // It waited for the lock of another file: what it did before it let go of this one is its own.
    let lives =
        [(7, "#...........####", 8), (8, "####..##########", 9), (9, "################", 0)];
    let mut r = wait_for_file(&lives, &[70, 71, 71]);
    assert_eq!(blames_of(&mut r, 7), parts(&[("work 8", 9), ("work 9", 2)]));
    // A copy waits for the lock of the file that it copies to, which is not the first one that it names.
    let mut r = wait_for_file(&lives, &[70]);
    change(&mut r, 8, |wait| wait.syscall = syscall(COPY_FILE_RANGE, [3, 0, 4, 0, 9, 0]));
    assert_eq!(blames_of(&mut r, 7), parts(&[("work 8", 9), ("work 9", 2)]));
}

/// 9 lets go at 6 and wakes 7, the first in line; 8 has the lock meanwhile, for which it never waited.
#[test]
fn who_takes_a_lock_of_the_kernel_out_of_turn_had_it_since() {
    let lives =
        [(7, "#.....#.....####", 9), (8, "################", 0), (9, "################", 0)];
    let mut r = wait_for_file(&lives, &[70]);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.off >= at(7)) {
            wait.wake.as_mut().unwrap().current = ThreadRef { tid: Tid(8), tgid: Tgid(8) };
        }
    });
    assert_eq!(blames_of(&mut r, 7), parts(&[("work 8", 5), ("work 9", 5)]));
}

/// What the time of all waits of a thread goes to, in ticks.
fn blames_of(r: &mut Recording, tid: u32) -> Vec<(String, u64)> {
    r.sort();
    let timeline = Timeline::build(r);
    let blame = Blame::new(r, &timeline, ChainLimits::default());
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (n, wait) in (0..).zip(r.waits.iter()) {
        if wait.tid == Tid(tid) {
            for part in blame.walker().parts(WaitIndex(n)) {
                let BlameKind::Work(thread) = part.kind else { panic!("{part:?}") };
                let tid = timeline.thread(thread).unwrap().tid;
                *sums.entry(format!("work {tid}")).or_default() += part.time.0 / TICK;
            }
        }
    }
    sums.into_iter().collect()
}

/// There is one lock for all: a thread of any process may have it, or one of the kernel's own.
#[test]
fn who_sleeps_in_code_that_demands_the_lock_of_the_networks_settings_has_it() {
    for is_kernel_thread in [false, true] {
        let mut r = asleep(&[7, 8, 9]);
        sleeps_in_kernel(&mut r, 7, (SENDMSG, 0), WANTS_NETWORK);
        sleeps_in_kernel(&mut r, 8, (SENDMSG, 0), HAS_NETWORK);
        sleeps_in_kernel(&mut r, 9, (SENDMSG, 0), HAS_FILE);
        if is_kernel_thread {
            change(&mut r, 8, |wait| {
                (wait.kind, wait.syscall) = (ThreadKind::Kernel, None);
            });
            for event in r.thread_events.iter_mut().filter(|event| event.tid == Tid(8)) {
                event.kind = ThreadKind::Kernel;
            }
        }
        let chain = told(&mut r, 7);
        let tids: Vec<u32> = chain.iter().map(|(tid, _)| *tid).collect();
        assert_eq!(tids, [7, 8], "{chain:?}");
        assert!(chain[0].1.contains("the lock of the network's settings (rtnl_lock), held by"));
    }
    for functions in [
        // It waits for the lock as well, which it had not; it has let it go; it has another mutex.
        WANTS_NETWORK,
        &["schedule", "__mutex_lock", "rtnl_lock", "register_netdevice_notifier"],
        &["schedule", "schedule_timeout", "netdev_run_todo", "rtnl_unlock", "rtnl_dellink"],
        HAS_FILE,
    ] {
        let mut r = asleep(&[7, 8]);
        sleeps_in_kernel(&mut r, 7, (SENDMSG, 0), WANTS_NETWORK);
        sleeps_in_kernel(&mut r, 8, (SENDMSG, 0), functions);
        assert!(led_nowhere(&mut r, 7), "{functions:?}");
    }
}

#[test]
fn who_moves_a_process_between_cgroups_has_their_lock_and_waits_for_another() {
    let wants = ["schedule", "__mutex_lock", "cgroup_kn_lock_live", "__cgroup_procs_write"];
    let waits_for_threads = ["schedule", "percpu_rwsem_wait", "__percpu_down_read", "exit_signals"];
    let moves = [
        "schedule",
        "__wait_rcu_gp",
        "rcu_sync_enter",
        "percpu_down_write",
        "cgroup_procs_write_start",
        "__cgroup_procs_write",
    ];
    let mut r = asleep(&[7, 8]);
    sleeps_in_kernel(&mut r, 7, (WRITE, 70), &wants);
    sleeps_in_kernel(&mut r, 8, (WRITE, 71), &moves);
    let chain = told(&mut r, 7);
    assert_eq!(chain[0].1, "waits for the lock of the cgroups (cgroup_mutex), held by thread8 8");
    // Who ends waits for another lock than that.
    sleeps_in_kernel(&mut r, 7, (WRITE, 70), &waits_for_threads);
    assert!(led_nowhere(&mut r, 7));
}

/// The stacks of threads that slept before anybody looked lack the scheduler's own functions, and those of locks.
#[test]
fn what_is_left_of_a_stack_tells_a_lock_from_a_disk() {
    let wants = ["shmem_file_write_iter", "vfs_write", "ksys_pwrite64"];
    let has = ["handle_userfault", "handle_mm_fault", "shmem_file_write_iter", "vfs_write"];
    let mut r = asleep(&[7, 8]);
    sleeps_in_kernel(&mut r, 7, (WRITE, 70), &wants);
    sleeps_in_kernel(&mut r, 8, (WRITE, 70), &has);
    assert_eq!(
        told(&mut r, 7)[0].1,
        "waits for the lock of a file (inode lock), held by thread8 8"
    );
    // Another function below the same one, which a disk keeps: nothing says that it is a lock.
    sleeps_in_kernel(&mut r, 7, (WRITE, 70), &["ext4_da_write_begin", "shmem_file_write_iter"]);
    assert!(led_nowhere(&mut r, 7));
}

/// Of two disks, the one is named that the file is on.
#[test]
fn the_filesystem_that_is_frozen_is_named_by_the_file() {
    for (device, name) in [(5, "left"), (6, "right")] {
        let mut r = asleep(&[7]);
        sleeps_in_kernel(&mut r, 7, (WRITE, 70), &["schedule", "percpu_rwsem_wait", "vfs_write"]);
        change(&mut r, 7, |wait| {
            wait.file = wait.file.map(|file| offwake_recording::FileId { device, ..file });
        });
        for (device, name) in [(5, "left"), (6, "right")] {
            let filesystem = Filesystem {
                device,
                kind: "ext4".to_owned(),
                mount_point: format!("/srv/{name}"),
                block_device: format!("loop{device}"),
                disks: String::new(),
                server: String::new(),
            };
            r.filesystems.insert(device, filesystem);
        }
        let found = findings(&mut r).remove(0);
        let frozen = format!("waits for the frozen filesystem /srv/{name} (ext4, loop{device})");
        assert_eq!(found.chain[0].what, frozen, "{found:#?}");
        let disk = found.disk.expect("it is known");
        assert_eq!(
            (disk.device, disk.mount_point),
            (format!("loop{device}"), format!("/srv/{name}"))
        );
        // A path says nothing of it.
        change(&mut r, 7, |wait| wait.file = None);
        let found = findings(&mut r).remove(0);
        assert_eq!(found.chain[0].what, "waits for a filesystem that is frozen", "{found:#?}");
        assert_eq!(found.disk, None);
    }
}
