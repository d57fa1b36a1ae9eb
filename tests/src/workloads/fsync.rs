//! Writing to real files and waiting for the disk.

use std::{
    fs::{self, File},
    io::{self, Seek, Write},
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::Path,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{sleeps::hogs, stage::Stage};
use crate::throttled_disk::SIZE;

/// Beside a hog who has nothing to do with it. The argument names the directory that the file is made in; a
/// file without a name, gone with the process.
pub(super) fn beside_a_hog(stage: &Stage) -> Result<()> {
    let (writer, hog) = (stage.role("writer")?, stage.role("hog")?);
    let stopped = stage.stopped();
    let directory = stage.argument()?;
    let mut file = tempfile::tempfile_in(directory)
        .with_context(|| format!("cannot make a file in {directory}"))?;
    stage.thread(move || {
        writer.claim("ow-writer");
        let block = vec![0x5a; 1024 * 1024];
        while stopped.load(SeqCst) == 0 {
            let written = file.rewind().and_then(|()| file.write_all(&block));
            assert!(written.is_ok(), "cannot write: {written:?}");
            let synced = writer.waits(|| waits_for_the_disk(&file));
            assert!(synced.is_ok(), "cannot fsync: {synced:?}");
            // Some disks are so fast that the log would fill.
            writer.works(Duration::from_millis(1));
        }
    })?;
    stage.thread(move || {
        hog.claim("ow-hog");
        hogs(hog, || stopped.load(SeqCst) == 0);
    })?;
    stage.play(|| ())
}

/// A thread that writes all the time to the disk that the argument's directory has a link to
/// ([`crate::throttled_disk`]).
pub(super) fn throttled(stage: &Stage) -> Result<()> {
    let writer = stage.role("writer")?;
    let stopped = stage.stopped();
    let path = Path::new(stage.argument()?).join("disk");
    let disk = File::options().write(true).open(&path);
    let disk = disk.with_context(|| format!("cannot open {}", path.display()))?;
    stage.thread(move || {
        writer.claim("ow-writer");
        let block = vec![0x5a; 64 * 1024];
        let places = (0..SIZE).step_by(block.len()).cycle();
        for place in places.take_while(|_| stopped.load(SeqCst) == 0) {
            let written = writer.waits(|| waits_until_written(&disk, &block, place));
            assert!(written.is_ok(), "cannot write: {written:?}");
        }
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn waits_until_written(disk: &File, block: &[u8], place: u64) -> io::Result<()> {
    disk.write_all_at(block, place)
}

/// Three processes that write to two disks, which the argument's directory has links to: a waiter and
/// its neighbour to the first, a stranger to the second.
pub(super) fn three_processes(stage: &Stage) -> Result<()> {
    let writers = [("waiter", "first"), ("neighbour", "first"), ("stranger", "second")];
    writes_and_syncs(stage, writers, 256 * 1024, waits_for_the_disk)
}

/// Two processes that write to a disk each, which the argument's directory has links to, and have all of it
/// synced: a worker of the kernel's writes it, and wakes them when it has. Any such worker may do so for either.
pub(super) fn two_disks(stage: &Stage) -> Result<()> {
    let writers = [("one", "first"), ("other", "second")];
    writes_and_syncs(stage, writers, 1 << 20, waits_for_all_of_the_disk)
}

/// A process for each of these roles, which writes so many bytes to the disk beside its name, again and again,
/// and waits for it in `sync`.
fn writes_and_syncs<const WRITERS: usize>(
    stage: &Stage,
    writers: [(&'static str, &str); WRITERS],
    bytes: usize,
    sync: fn(&File) -> io::Result<()>,
) -> Result<()> {
    let directory = Path::new(stage.argument()?);
    for (name, disk) in writers {
        let (writer, stopped) = (stage.role(name)?, stage.stopped());
        let path = directory.join(disk).join(name);
        let mut file =
            File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        stage.process(move || {
            writer.claim(&format!("ow-{name}"));
            let block = vec![0x5a; bytes];
            while stopped.load(SeqCst) == 0 {
                let written = file.rewind().and_then(|()| file.write_all(&block));
                assert!(written.is_ok(), "cannot write: {written:?}");
                let synced = writer.waits(|| sync(&file));
                assert!(synced.is_ok(), "cannot sync: {synced:?}");
                // Some disks are so fast that the log would fill.
                writer.works(Duration::from_micros(200));
            }
        })?;
    }
    stage.play(|| ())
}

#[inline(never)]
fn waits_for_all_of_the_disk(file: &File) -> io::Result<()> {
    // SAFETY: takes a descriptor, which is open.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Several threads at once make files there, so each waits in many places of the filesystem, which
/// share their
/// innermost frames.
pub(super) fn many_files(stage: &Stage) -> Result<()> {
    for name in ["maker-1", "maker-2", "maker-3", "maker-4"] {
        let (maker, stopped) = (stage.role(name)?, stage.stopped());
        let directory = Path::new(stage.argument()?).join(name);
        fs::create_dir(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        stage.thread(move || {
            maker.claim(&format!("ow-{name}"));
            let block = vec![0x5a; 256 * 1024];
            while stopped.load(SeqCst) == 0 {
                let made = make_a_file(&directory, &block);
                assert!(made.is_ok(), "cannot make a file: {made:?}");
            }
        })?;
    }
    stage.play(|| ())
}

/// Writes a file and renames it to replace the one before.
fn make_a_file(directory: &Path, block: &[u8]) -> io::Result<()> {
    let new = directory.join("new");
    let mut file = File::create(&new)?;
    file.write_all(block)?;
    waits_for_the_disk(&file)?;
    fs::rename(&new, directory.join("file"))
}

#[inline(never)]
fn waits_for_the_disk(file: &File) -> io::Result<()> {
    file.sync_all()
}
