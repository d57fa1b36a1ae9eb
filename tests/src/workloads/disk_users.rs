//! Processes that use a disk and do not wait for it.

use std::{
    fs::{self, File},
    io::{self, Seek, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    raw,
    stage::{Stage, fork, reap},
};

/// How much a writer writes at a time.
pub const WRITTEN_AT_ONCE: u64 = 4 << 20;
/// How much a reader reads at a time, past the page cache.
pub const READ_AT_ONCE: u64 = 1 << 20;

/// A process that writes to a disk and waits for it, and two that do not wait: each writes to the page cache
/// and sleeps. The argument's directory has a link to each one's disk, by its role.
pub(super) fn beside_writers(stage: &Stage) -> Result<()> {
    let directory = Path::new(stage.argument()?);
    sync_again_and_again(stage, &directory.join("waiter"))?;
    for name in ["neighbour", "stranger"] {
        let (role, stopped) = (stage.role(name)?, stage.stopped());
        let path = directory.join(name).join(name);
        stage.process(move || {
            role.claim(&format!("ow-{name}"));
            let block = vec![0x5a; 64 << 10];
            while stopped.load(SeqCst) == 0 {
                // What it wrote before is given up: the same pages become dirty anew.
                let written = File::create(&path).and_then(|mut file| {
                    (0..WRITTEN_AT_ONCE)
                        .step_by(block.len())
                        .try_for_each(|_| file.write_all(&block))
                });
                assert!(written.is_ok(), "cannot write: {written:?}");
                role.waits(|| raw::nanosleep(Duration::from_millis(40)));
            }
        })?;
    }
    stage.play(|| ())
}

/// The same, beside a process that reads from one of the disks past the page cache.
pub(super) fn beside_a_reader(stage: &Stage) -> Result<()> {
    let directory = Path::new(stage.argument()?);
    sync_again_and_again(stage, &directory.join("waiter"))?;
    let (role, stopped) = (stage.role("reader")?, stage.stopped());
    let path = directory.join("reader").join("reader");
    fs::write(&path, vec![0x5a; READ_AT_ONCE as usize])?;
    File::open(&path)?.sync_all()?;
    stage.process(move || {
        role.claim("ow-reader");
        while stopped.load(SeqCst) == 0 {
            assert_eq!(read_past_the_cache(&path, READ_AT_ONCE as usize), READ_AT_ONCE as isize);
            role.waits(|| raw::nanosleep(Duration::from_millis(10)));
        }
    })?;
    stage.play(|| ())
}

/// The same, beside one child after the other that reads a little and ends.
pub(super) fn beside_many(stage: &Stage) -> Result<()> {
    let directory = Path::new(stage.argument()?);
    sync_again_and_again(stage, &directory.join("waiter"))?;
    let (role, stopped) = (stage.role("parent")?, stage.stopped());
    let path = directory.join("waiter").join("read");
    fs::write(&path, vec![0x5a; 4096])?;
    File::open(&path)?.sync_all()?;
    stage.process(move || {
        role.claim("ow-parent");
        while stopped.load(SeqCst) == 0 {
            let child = fork(|| assert_eq!(read_past_the_cache(&path, 4096), 4096));
            let Ok(child) = child else { panic!("no more processes") };
            assert!(reap(child).is_ok(), "the child is gone");
        }
    })?;
    stage.play(|| ())
}

fn sync_again_and_again(stage: &Stage, disk: &Path) -> Result<()> {
    let (waiter, stopped) = (stage.role("waiter")?, stage.stopped());
    let path = disk.join("waiter");
    let mut file =
        File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    stage.process(move || {
        waiter.claim("ow-waiter");
        while stopped.load(SeqCst) == 0 {
            let written = file.rewind().and_then(|()| file.write_all(&[0x5a; 4096]));
            assert!(written.is_ok(), "cannot write: {written:?}");
            let synced = waiter.waits(|| waits_for_the_disk(&file));
            assert!(synced.is_ok(), "cannot fsync: {synced:?}");
            // Some disks are so fast that the log would fill.
            waiter.works(Duration::from_micros(200));
        }
    })
}

#[inline(never)]
fn waits_for_the_disk(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Reads the beginning of a file from its disk.
fn read_past_the_cache(path: &Path, length: usize) -> isize {
    let Ok(file) = File::options().read(true).custom_flags(libc::O_DIRECT).open(path) else {
        return -1;
    };
    // A buffer for such reads begins where a page does.
    let size = length.next_multiple_of(4096);
    let Ok(layout) = std::alloc::Layout::from_size_align(size.max(4096), 4096) else { return -1 };
    // SAFETY: the size is not 0, the kernel writes at most `length` bytes, and what was allocated is freed
    // with the same layout.
    unsafe {
        let buffer = std::alloc::alloc(layout);
        let read = libc::pread(file.as_raw_fd(), buffer.cast(), length, 0);
        std::alloc::dealloc(buffer, layout);
        read
    }
}
