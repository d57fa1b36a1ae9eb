//! A writer that writes as fast as it may, and a reader that computes before each read: the writer
//! waits for room.

use std::{io::Read, io::Write, sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::Result;

use super::{
    lines::{Lines, loopback_tcp, pipes, unix_sockets},
    stage::Stage,
};

/// What the reader computes before each read.
const WORK: Duration = Duration::from_millis(3);

/// What is written and read at once.
const BLOCK: usize = 64 * 1024;

pub(super) fn over_a_pipe(stage: &Stage) -> Result<()> {
    run(stage, pipes()?)
}

pub(super) fn over_a_unix_socket(stage: &Stage) -> Result<()> {
    run(stage, unix_sockets()?)
}

pub(super) fn over_loopback_tcp(stage: &Stage) -> Result<()> {
    run(stage, loopback_tcp()?)
}

fn run(stage: &Stage, lines: Lines) -> Result<()> {
    let (writer, reader) = (stage.role("writer")?, stage.role("reader")?);
    let stopped = stage.stopped();
    let mut writes = std::fs::File::from(lines.client.writes.try_clone()?);
    let mut reads = std::fs::File::from(lines.server.reads.try_clone()?);
    // The reader finds the end when the writer is gone.
    drop(lines);
    stage.process(|| {
        writer.claim("ow-writer");
        let block = vec![0x5a; BLOCK];
        while stopped.load(SeqCst) == 0 {
            if writer.waits(|| writes.write(&block)).is_err() {
                break;
            }
        }
    })?;
    drop(writes);
    stage.process(|| {
        reader.claim("ow-reader");
        let mut block = vec![0; BLOCK];
        while reads.read(&mut block).is_ok_and(|got| got > 0) {
            reader.computes(WORK);
        }
    })?;
    stage.play(|| ())
}
