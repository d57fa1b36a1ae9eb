//! Writing to a real file and waiting for the disk, beside a hog who has nothing to do with it.

use std::{
    fs::File,
    io::{Seek, Write},
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result};

use super::{sleeps::hogs, stage::Stage};

/// The argument names the directory that the file is made in; a file without a name, gone with the
/// process.
pub(super) fn run(stage: &Stage) -> Result<()> {
    let (writer, hog) = (stage.role("writer")?, stage.role("hog")?);
    let stopped = stage.stopped();
    let directory = stage.argument()?;
    let mut file = tempfile::tempfile_in(directory)
        .with_context(|| format!("cannot make a file in {directory}"))?;
    stage.thread(move || {
        writer.take("ow-writer");
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
        hog.take("ow-hog");
        hogs(hog, || stopped.load(SeqCst) == 0);
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn waits_for_the_disk(file: &File) -> std::io::Result<()> {
    file.sync_all()
}
