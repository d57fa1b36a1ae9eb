//! Reading and syncing through io_uring: the thread waits for completions, not in the call itself.

use std::{
    fs::{File, OpenOptions},
    io::{Seek, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, opcode, squeue, types};

use super::stage::Stage;

/// What is read or written at once.
const BLOCK: usize = 1024 * 1024;

/// How large the file is.
const BLOCKS: usize = 16;

/// What is computed between two waits: some disks are so fast that the log would fill.
const PAUSE: Duration = Duration::from_millis(1);

/// A page of memory, aligned as direct reads want it.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// Reads past the page cache. The argument names the directory that the file is made in.
pub(super) fn reads(stage: &Stage) -> Result<()> {
    let (reader, stopped) = (stage.role("reader")?, stage.stopped());
    let path = Path::new(stage.argument()?).join("blocks");
    let mut file = File::create(&path).context("cannot make a file")?;
    for _ in 0..BLOCKS {
        file.write_all(&vec![0x5a; BLOCK]).context("cannot fill a file")?;
    }
    file.sync_all().context("cannot sync a file")?;
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
    let direct = direct.context("this filesystem has no direct reads")?;
    let mut ring = ring()?;
    stage.thread(move || {
        reader.claim("ow-reader");
        let mut block = vec![Page([0; 4096]); BLOCK / size_of::<Page>()];
        for offset in (0..BLOCKS).map(|number| (number * BLOCK) as u64).cycle() {
            if stopped.load(SeqCst) != 0 {
                break;
            }
            let place = block.as_mut_ptr().cast();
            let read = opcode::Read::new(types::Fd(direct.as_raw_fd()), place, BLOCK as u32);
            let read = read.offset(offset).build();
            let result = reader.waits(|| waits_for_completion(&mut ring, &read));
            assert!(result.is_ok_and(|read| read > 0), "cannot read by io_uring");
            reader.computes(PAUSE);
        }
    })?;
    stage.play(|| ())
}

/// Writes the ordinary way, and syncs by io_uring, which leaves that to a worker thread of its own.
/// The argument is as above.
pub(super) fn syncs(stage: &Stage) -> Result<()> {
    let (syncer, stopped) = (stage.role("syncer")?, stage.stopped());
    let mut file = tempfile::tempfile_in(stage.argument()?).context("cannot make a file")?;
    let mut ring = ring()?;
    stage.thread(move || {
        syncer.claim("ow-syncer");
        let block = vec![0x5a; BLOCK];
        while stopped.load(SeqCst) == 0 {
            let written = file.rewind().and_then(|()| file.write_all(&block));
            assert!(written.is_ok(), "cannot write: {written:?}");
            let sync = opcode::Fsync::new(types::Fd(file.as_raw_fd())).build();
            let result = syncer.waits(|| waits_for_completion(&mut ring, &sync));
            assert!(result.is_ok_and(|synced| synced == 0), "cannot sync by io_uring");
            syncer.computes(PAUSE);
        }
    })?;
    stage.play(|| ())
}

fn ring() -> Result<IoUring> {
    IoUring::new(4).context("this kernel gives no io_uring (see kernel.io_uring_disabled)")
}

/// Returns what the operation did: `-errno` if it failed.
#[inline(never)]
fn waits_for_completion(ring: &mut IoUring, entry: &squeue::Entry) -> Result<i32> {
    // SAFETY: what the entry points to belongs to the caller, who waits here until it is done.
    unsafe { ring.submission().push(entry) }.context("no room in the ring")?;
    let submitted = ring.submit_and_wait(1).context("cannot submit")?;
    ensure!(submitted == 1, "{submitted} were submitted");
    Ok(ring.completion().next().context("nothing was completed")?.result())
}
