//! A writer that writes as fast as it may, over TCP on this machine, and whoever reads. Each end is held by
//! one process alone.
//!
//! ```text
//! reader  reads a MiB |--- sleeps, 200 ms ----| reads a MiB |--- sleeps ------
//! TCP                 └ takes in more, and acknowledges it after 40 ms
//! writer  ------- no room ----------^ writes |---------- no room --------
//! ```

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{raw, stage::Stage};

/// What is written at once.
const BLOCK: usize = 64 * 1024;

/// How a reader reads.
#[derive(Clone, Copy)]
struct Reading {
    at_once: usize,
    nap: Option<Duration>,
    /// What the writer's socket has room for, if not for what the kernel thinks fit.
    send_buffer: Option<libc::c_int>,
}

/// Reads much, and seldom: the kernel takes in what comes next for it.
pub(super) fn seldom(stage: &Stage) -> Result<()> {
    let nap = Some(Duration::from_millis(200));
    run(stage, Reading { at_once: 1 << 20, nap, send_buffer: None })
}

/// Reads whatever comes at once. The writer's buffer is so small that it waits for acknowledgements.
pub(super) fn quick(stage: &Stage) -> Result<()> {
    run(stage, Reading { at_once: BLOCK, nap: None, send_buffer: Some(4_096) })
}

fn run(stage: &Stage, reading: Reading) -> Result<()> {
    let (writer, reader) = (stage.role("writer")?, stage.role("reader")?);
    let (bystander, stopped) = (stage.role("bystander")?, stage.stopped());
    // First of all: it must hold no end of anything.
    stage.process(|| {
        bystander.claim("ow-bystander");
        naps(stopped, Duration::from_millis(200));
    })?;
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let address = listener.local_addr().context("cannot read the listener's address")?;
    stage.process(|| {
        reader.claim("ow-reader");
        let Ok((mut connection, _)) = listener.accept() else { return };
        let mut block = vec![0; reading.at_once];
        while connection.read(&mut block).is_ok_and(|got| got > 0) {
            if let Some(nap) = reading.nap.filter(|_| stopped.load(SeqCst) == 0) {
                raw::nanosleep(nap);
            }
        }
    })?;
    drop(listener);
    stage.process(|| {
        let Ok(mut connection) = TcpStream::connect(address) else { return };
        if let Some(size) = reading.send_buffer {
            set_send_buffer(&connection, size);
        }
        writer.claim("ow-writer");
        let block = vec![0x5a; BLOCK];
        while stopped.load(SeqCst) == 0 {
            if writer.waits(|| connection.write(&block)).is_err() {
                break;
            }
        }
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn naps(stopped: &AtomicU32, nap: Duration) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(nap);
    }
}

fn set_send_buffer(connection: &TcpStream, size: libc::c_int) {
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0);
    // SAFETY: the option is an `int` of this size.
    let set = unsafe {
        libc::setsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const size).cast(),
            length,
        )
    };
    assert_eq!(set, 0, "cannot set SO_SNDBUF");
}
