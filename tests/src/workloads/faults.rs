//! One thread that waits for the same page by turns in two places of the kernel, of one syscall: as the
//! kernel reads what is to be written, and as it reads where that is.
//!
//! ```text
//! leaf   handle_userfault … asm_exc_page_fault   the same in both, and as far as offwake looks
//!        _copy_from_iter   copy_iovec_from_user  further up
//! root   do_writev
//! ```
//!
//! Another thread hands out the page, a moment later each time: `ioctl_userfaultfd(2)`.

use std::{
    io::Error,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Result, ensure};

use super::{raw, stage::Stage};

const PAGE: usize = 4096;
/// How long the page is waited for.
const WAIT: Duration = Duration::from_millis(1);

/// `UFFD_API` and the requests of `linux/userfaultfd.h`: libc has none of them.
const API: u64 = 0xaa;
const REQUEST_API: libc::Ioctl = 0xc018_aa3f;
const REQUEST_REGISTER: libc::Ioctl = 0xc020_aa00;
const REQUEST_ZEROPAGE: libc::Ioctl = 0xc020_aa04;
/// `UFFDIO_REGISTER_MODE_MISSING`
const MISSING: u64 = 1;

/// Waits for its page in two ways.
pub(super) fn in_one_syscall(stage: &Stage) -> Result<()> {
    let (faulter, pager) = (stage.role("faulter")?, stage.role("pager")?);
    let stopped = stage.stopped();
    // Both of its waits end, also when it is told to stop between them.
    let has_all = Arc::new(AtomicBool::new(false));
    let (faults, page) = page_of_faults()?;
    let mut pipe = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    ensure!(unsafe { libc::pipe(pipe.as_mut_ptr()) } == 0, "pipe: {}", Error::last_os_error());
    let faulter_has_all = Arc::clone(&has_all);
    stage.thread(move || {
        pager.claim("ow-pager");
        let mut poll = libc::pollfd { fd: faults, events: libc::POLLIN, revents: 0 };
        while !has_all.load(SeqCst) {
            // SAFETY: one descriptor, which is the kernel's to write to.
            if unsafe { libc::poll(&raw mut poll, 1, 10) } == 1 {
                raw::nanosleep(WAIT);
                provide_page(faults, page);
            }
        }
    })?;
    stage.thread(move || {
        faulter.claim("ow-faulter");
        while stopped.load(SeqCst) == 0 {
            // A page of zeroes says that there is nothing to write.
            discard_page(page);
            faulter.waits(|| write(pipe[1], page));
            discard_page(page);
            let part = libc::iovec { iov_base: page as *mut libc::c_void, iov_len: 8 };
            faulter.waits(|| write(pipe[1], &raw const part as usize));
            raw::read(pipe[0], &mut [0; 8]);
        }
        faulter_has_all.store(true, SeqCst);
    })?;
    stage.play(|| ())
}

#[inline(never)]
fn write(to: i32, parts: usize) {
    raw::syscall(libc::SYS_writev, [to as usize, parts, 1, 0]);
}

/// A page that is missing until it is handed out, and what says that somebody waits for it.
pub(super) fn page_of_faults() -> Result<(i32, usize)> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, which is nobody else's.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0) } as usize;
    let mut api = [API, 0, 0];
    let mut register = [page as u64, PAGE as u64, MISSING, 0];
    // SAFETY: takes flags; the requests write to what they are given, which is as long as their numbers
    // say.
    let faults = unsafe {
        // Only one that never blocks can be polled.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        let faults = libc::syscall(libc::SYS_userfaultfd, flags) as i32;
        ensure!(faults >= 0, "userfaultfd: {}", Error::last_os_error());
        let is_ready = libc::ioctl(faults, REQUEST_API, api.as_mut_ptr()) == 0
            && libc::ioctl(faults, REQUEST_REGISTER, register.as_mut_ptr()) == 0;
        ensure!(is_ready, "userfaultfd: {}", Error::last_os_error());
        faults
    };
    Ok((faults, page))
}

/// Hands the page out.
pub(super) fn provide_page(faults: i32, page: usize) {
    let mut message = [0_u8; 32];
    let mut zero = [page as u64, PAGE as u64, 0, 0];
    // SAFETY: a message has 32 bytes; the request writes to what it is given, as above. It fails if the
    // page is there already.
    unsafe {
        libc::read(faults, message.as_mut_ptr().cast(), message.len());
        libc::ioctl(faults, REQUEST_ZEROPAGE, zero.as_mut_ptr());
    }
}

/// Has the page missing again.
pub(super) fn discard_page(page: usize) {
    // SAFETY: nothing is kept in it.
    unsafe { libc::madvise(page as *mut libc::c_void, PAGE, libc::MADV_DONTNEED) };
}
