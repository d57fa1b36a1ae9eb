//! Programs that mark what they do, by the syscall that does nothing.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::Result;

use super::{sleeps::sleeps, stage::Stage};

/// What a marker says: the call's first argument.
#[derive(Clone, Copy)]
enum Kind {
    Begin = 0,
    End = 1,
    Instant = 2,
}

/// The mode of markers.
const MODE: libc::c_long = -975;

fn call(first: libc::c_long, text: *const libc::c_char, mode: libc::c_long) {
    // SAFETY: the kernel reads the text, if it reads anything, and fails where it may not.
    unsafe { libc::syscall(libc::SYS_faccessat2, first, text, mode, 0) };
}

fn mark(kind: Kind, text: &std::ffi::CStr) {
    // A literal that nothing but the kernel ever looks at may not be in memory.
    std::hint::black_box(text.count_bytes());
    call(kind as libc::c_long, text.as_ptr(), MODE);
}

fn within(text: &std::ffi::CStr, inside: impl FnOnce()) {
    mark(Kind::Begin, text);
    inside();
    mark(Kind::End, text);
}

/// Two threads. One sleeps in ranges of two tracks, nested, and outside of any; it makes calls that
/// are no markers as well. The other ends what it never began.
pub(super) fn ranges(stage: &Stage) -> Result<()> {
    let (worker, other) = (stage.role("worker")?, stage.role("other")?);
    let stopped = stage.stopped();
    stage.thread(move || {
        worker.claim("ow-worker");
        while stopped.load(SeqCst) == 0 {
            within(c"Work:step", || {
                within(c"Work:read", || worker.waits(|| sleeps(Duration::from_millis(4))));
                within(c"IO:write: all", || worker.waits(|| sleeps(Duration::from_millis(6))));
                mark(Kind::Instant, c"Work:done");
            });
            // A file is asked for; and a kind that there is not.
            call(libc::AT_FDCWD.into(), c"Work:no marker".as_ptr(), libc::F_OK.into());
            call(libc::AT_FDCWD.into(), c"Work:no kind".as_ptr(), MODE);
            call(3, c"Work:no kind".as_ptr(), MODE);
            worker.waits(|| sleeps(Duration::from_millis(2)));
        }
    })?;
    stage.thread(move || {
        other.claim("ow-other");
        while stopped.load(SeqCst) == 0 {
            within(c"alone", || other.waits(|| sleeps(Duration::from_millis(5))));
            mark(Kind::End, c"Work:never begun");
        }
    })?;
    stage.play(|| ())
}

/// More markers than are recorded, some of which can't be: at no address, and no text.
pub(super) fn flood(stage: &Stage) -> Result<()> {
    let flooder = stage.role("flooder")?;
    let stopped = stage.stopped();
    stage.thread(move || {
        flooder.claim("ow-flooder");
        while stopped.load(SeqCst) == 0 {
            (0..1_000).for_each(|_| mark(Kind::Instant, c"Flood:drop"));
            call(0, std::ptr::without_provenance(8), MODE);
            mark(Kind::Begin, c"Flood:\x1b[2J");
            flooder.waits(|| sleeps(Duration::from_millis(1)));
        }
    })?;
    stage.play(|| ())
}
