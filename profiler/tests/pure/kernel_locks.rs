//! Waits for locks of the kernel's that had not ended: whoever sleeps in the code that takes the lock has it.

use offwake_analysis::findings::Finding;
use offwake_recording::{FileKind, Recording, TaskState};

use crate::{
    fixtures::{file, kernel, syscall, user},
    open_waits::{asleep, change, findings, in_process, sets},
};

const WRITE: u32 = 1;
const MMAP: u32 = 9;

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
