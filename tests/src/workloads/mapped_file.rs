//! A process that reads a mapped file again and again, in a cgroup with memory of its own.
//!
//! ```text
//! limit above the file's size   │ first pass ███ reads from the disk │ then all pages are in memory
//! limit below it                │ first pass ███                     │ ███ reads what was reclaimed
//! ```

use std::{
    fs::{self, File},
    io,
    os::fd::AsRawFd,
    path::Path,
    sync::atomic::Ordering::SeqCst,
};

use anyhow::{Context, Result, ensure};

use super::stage::Stage;

/// How large the file is.
pub const SIZE: usize = 32 << 20;

const PAGE: usize = 4096;

/// The argument names a directory with the file, `data`, and a link to the cgroup, `cgroup`.
pub(super) fn read_in_a_cgroup(stage: &Stage) -> Result<()> {
    let reader = stage.role("reader")?;
    let stopped = stage.stopped();
    let directory = Path::new(stage.argument()?).to_owned();
    stage.process(|| {
        // Whoever is the first to read a page of a file pays for it.
        let own = std::process::id().to_string();
        let entered = fs::write(directory.join("cgroup/cgroup.procs"), own);
        assert!(entered.is_ok(), "cannot enter the cgroup: {entered:?}");
        let pages = map_file(&directory.join("data"));
        assert!(pages.is_ok(), "cannot map the file: {pages:?}");
        let Ok(pages) = pages else { return };
        let mut sum = read_all_pages(pages);
        reader.claim("ow-reader");
        while stopped.load(SeqCst) == 0 {
            sum = sum.wrapping_add(read_all_pages(pages));
        }
        std::hint::black_box(sum);
    })?;
    stage.play(|| ())
}

/// Maps the file for as long as the process lives. Pages are read one by one, as they are touched.
fn map_file(path: &Path) -> Result<&'static [u8]> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let length = usize::try_from(file.metadata()?.len())?;
    ensure!(length == SIZE, "the file has {length} bytes");
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    ensure!(place != libc::MAP_FAILED, "{}", io::Error::last_os_error());
    // SAFETY: the mapping has this place and length.
    let advised = unsafe { libc::madvise(place, length, libc::MADV_RANDOM) };
    ensure!(advised == 0, "{}", io::Error::last_os_error());
    // SAFETY: the mapping is never unmapped, and nobody writes to the file.
    Ok(unsafe { std::slice::from_raw_parts(place.cast::<u8>(), length) })
}

#[inline(never)]
fn read_all_pages(pages: &[u8]) -> u8 {
    pages.iter().step_by(PAGE).fold(0, |sum, &byte| sum.wrapping_add(byte))
}
