//! Two threads of one CPU that write: one a lot at a time, the other a byte now and then.
//!
//! ```text
//! bulk-writer   ███ write ███┊           ┊███ still in the same write ███┊
//! byte-writer                ┊wants to write┊ waits for the inode's lock  ┊█
//! ```
//!
//! Or three that write by turns, each from a page of memory that takes its own time to come.
//!
//! Or two that each write from memory that is not there, and a third one that wants to write to the file of
//! one of them.
//!
//! The kernel writes to a file under the lock of its inode. Both threads share a CPU, so that the one
//! that wants the lock can't spin for it: who has it is off the CPU then.

use std::{
    fs::{File, OpenOptions},
    os::{
        fd::AsRawFd as _,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    faults, raw, sleeps,
    stage::{Role, Stage, allowed_cpus, bind},
};
use crate::{clock::now_ns, ground_truth::Activity, intervals::Interval};

/// What the bulk writer writes at a time: some ten milliseconds' worth, longer than a thread keeps a CPU
/// that another one wants.
const BULK: usize = 48 << 20;

/// What the byte writer sleeps in between.
const PAUSE: Duration = Duration::from_millis(2);

/// Both write to one file.
pub(super) fn write_to_one_file(stage: &Stage) -> Result<()> {
    let file = create_file_in_memory()?;
    let same = file.try_clone()?;
    write_side_by_side(stage, file, same)
}

/// Each writes to a file of its own.
pub(super) fn write_to_two_files(stage: &Stage) -> Result<()> {
    write_side_by_side(stage, create_file_in_memory()?, create_file_in_memory()?)
}

/// Creates a file without a name that no disk has a part in.
fn create_file_in_memory() -> Result<File> {
    const FOLDER: &str = "/dev/shm";
    (OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(FOLDER))
        .with_context(|| format!("cannot make a file in {FOLDER}"))
}

fn write_side_by_side(stage: &Stage, bulk: File, bytes: File) -> Result<()> {
    let (bulk_writer, byte_writer) = (stage.role("bulk-writer")?, stage.role("byte-writer")?);
    let cpu = *allowed_cpus()?.first().context("no CPU is allowed")?;
    let stopped = stage.stopped();
    stage.thread(move || {
        assert!(bind(0, cpu).is_ok(), "cannot be bound");
        bulk_writer.claim("ow-bulk-writer");
        let data = vec![1_u8; BULK];
        while stopped.load(SeqCst) == 0 {
            assert!(bulk.write_all_at(&data, 0).is_ok(), "cannot write");
        }
    })?;
    stage.thread(move || {
        assert!(bind(0, cpu).is_ok(), "cannot be bound");
        byte_writer.claim("ow-byte-writer");
        while stopped.load(SeqCst) == 0 {
            sleeps::sleeps(PAUSE);
            assert!(byte_writer.waits(|| bytes.write_all_at(b"1", 0)).is_ok(), "cannot write");
        }
    })?;
    stage.play(|| ())
}

/// The waiter wants to write to the left thread's file.
pub(super) fn held_by_left(stage: &Stage) -> Result<()> {
    wait_for_a_lock(stage, "left", libc::SYS_pwrite64)
}

/// The waiter wants to write to the right thread's file.
pub(super) fn held_by_right(stage: &Stage) -> Result<()> {
    wait_for_a_lock(stage, "right", libc::SYS_pwrite64)
}

/// The waiter wants to write where the left thread's file is at.
pub(super) fn position_held_by_left(stage: &Stage) -> Result<()> {
    wait_for_a_lock(stage, "left", libc::SYS_write)
}

/// The waiter wants to write where the right thread's file is at.
pub(super) fn position_held_by_right(stage: &Stage) -> Result<()> {
    wait_for_a_lock(stage, "right", libc::SYS_write)
}

/// Two threads sleep in a write, each with the lock of its file, until they are told to stop: what they write from
/// is a page that somebody else has to hand out.
fn wait_for_a_lock(stage: &Stage, holder: &str, call: libc::c_long) -> Result<()> {
    let mut pages = Vec::new();
    let mut wanted = None;
    for (name, comm) in [("left", "ow-left"), ("right", "ow-right")] {
        let role = stage.role(name)?;
        let file = Arc::new(create_file_in_memory()?);
        let (faults, page) = faults::page_of_faults()?;
        pages.push((faults, page));
        if name == holder {
            wanted = Some(Arc::clone(&file));
        }
        stage.thread(move || {
            role.claim(comm);
            writes_from(&file, call, page);
        })?;
    }
    let wanted = wanted.context("nobody has the lock")?;
    let waiter = stage.role("waiter")?;
    let missing: Vec<i32> = pages.iter().map(|&(faults, _)| faults).collect();
    stage.thread(move || {
        waiter.claim("ow-waiter");
        while !missing.iter().all(|&faults| has_fault(faults)) {
            raw::nanosleep(PAUSE);
        }
        writes_from(&wanted, call, (&raw const BYTE) as usize);
    })?;
    stage.play(|| pages.iter().for_each(|&(faults, page)| faults::provide_page(faults, page)))
}

/// Three threads have the lock of one file's inode by turns.
pub(super) fn by_turns(stage: &Stage) -> Result<()> {
    take_turns(stage, libc::SYS_pwrite64)
}

/// Three threads have the lock of one open file's position by turns.
pub(super) fn position_by_turns(stage: &Stage) -> Result<()> {
    take_turns(stage, libc::SYS_write)
}

/// Three threads that want a lock all the time. Each sleeps with it until its pager hands out the page that it
/// writes from: for a time of its own. The pager logs for it when it wanted the lock as a wait, and when it had it
/// as work: it has the lock as soon as the page is missed.
fn take_turns(stage: &Stage, call: libc::c_long) -> Result<()> {
    let file = Arc::new(create_file_in_memory()?);
    let stopped = stage.stopped();
    for (name, pager, comms, held_ms) in [
        ("x", "pager-x", ["ow-x", "ow-pager-x"], 4),
        ("y", "pager-y", ["ow-y", "ow-pager-y"], 8),
        ("z", "pager-z", ["ow-z", "ow-pager-z"], 12),
    ] {
        let (role, pager) = (stage.role(name)?, stage.role(pager)?);
        let (faults, page) = faults::page_of_faults()?;
        let file = Arc::clone(&file);
        let wanted_at = Arc::new(AtomicU64::new(0));
        let has_all = Arc::new(AtomicBool::new(false));
        let (since, is_over) = (Arc::clone(&wanted_at), Arc::clone(&has_all));
        stage.thread(move || {
            pager.claim(comms[1]);
            while !is_over.load(SeqCst) {
                if polls_fault(faults, 10) {
                    hold(role, since.load(SeqCst), Duration::from_millis(held_ms));
                    faults::provide_page(faults, page);
                }
            }
        })?;
        stage.thread(move || {
            role.claim(comms[0]);
            while stopped.load(SeqCst) == 0 {
                faults::discard_page(page);
                wanted_at.store(now_ns(), SeqCst);
                writes_from(&file, call, page);
                raw::nanosleep(Duration::from_millis(1));
            }
            has_all.store(true, SeqCst);
        })?;
    }
    stage.play(|| ())
}

/// Logs for a role that it has got a lock which it wanted since then, and has it for so long.
fn hold(role: &Role, wanted_at: u64, held: Duration) {
    role.log_past(Activity::Wait, Interval::new(wanted_at, now_ns()), 0);
    let holds = role.begin(Activity::Work, 0);
    raw::nanosleep(held);
    role.end(holds);
}

static BYTE: u8 = 1;

#[inline(never)]
fn writes_from(file: &File, call: libc::c_long, memory: usize) {
    raw::syscall(call, [file.as_raw_fd() as usize, memory, 1, 0]);
}

/// Returns whether somebody waits for a page.
fn has_fault(faults: i32) -> bool {
    polls_fault(faults, 0)
}

/// Waits until somebody waits for a page, for so many milliseconds at most.
fn polls_fault(faults: i32, milliseconds: i32) -> bool {
    let mut poll = libc::pollfd { fd: faults, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, which is the kernel's to write to.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 }
}
