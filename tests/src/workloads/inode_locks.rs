//! Two threads of one CPU that write: one a lot at a time, the other a byte now and then.
//!
//! ```text
//! bulk-writer   ███ write ███┊           ┊███ still in the same write ███┊
//! byte-writer                ┊wants to write┊ waits for the inode's lock  ┊█
//! ```
//!
//! The kernel writes to a file under the lock of its inode. Both threads share a CPU, so that the one
//! that wants the lock can't spin for it: who has it is off the CPU then.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    sleeps,
    stage::{Stage, allowed_cpus, bind},
};

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
