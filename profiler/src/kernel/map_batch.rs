//! Setting all entries of an array at once, which aya does one by one.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
};

/// `BPF_MAP_UPDATE_BATCH`
/// ([`bpf.h`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h#L890)).
const MAP_UPDATE_BATCH: libc::c_int = 26;

/// The part of `union bpf_attr` that commands on many entries read
/// ([`bpf.h`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h#L1518)).
#[repr(C)]
struct Batch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    entry_flags: u64,
    flags: u64,
}

/// Puts maps into an array of maps, from its first entry on. After each entry that is put into such an array the
/// kernel waits until no program uses the one before any more, for some 13 ms: after all of them it waits once.
///
/// # Errors
///
/// When the kernel does not do that for arrays of maps, as before 5.19, or refuses one of them: some may be in
/// the array then.
pub fn set_maps(array: BorrowedFd<'_>, maps: &[RawFd]) -> io::Result<()> {
    let too_many = |_error| io::Error::from(io::ErrorKind::InvalidInput);
    let count = u32::try_from(maps.len()).map_err(too_many)?;
    let keys = Vec::from_iter(0..count);
    let mut batch = Batch {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: maps.as_ptr() as u64,
        count,
        map_fd: array.as_raw_fd().cast_unsigned(),
        entry_flags: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads `batch`, and as many keys and values, of four bytes each, as it says; all of them are
    // there until the call returns. It writes back the number of entries, which nobody reads.
    let status = unsafe {
        libc::syscall(libc::SYS_bpf, MAP_UPDATE_BATCH, &raw mut batch, size_of::<Batch>())
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
