//! Markers: what programs say of themselves, without a library, by a syscall that does nothing.
//!
//! ```text
//! faccessat2(0, "Training:forward", -975, 0)    the range "forward" of the track "Training" begins
//! faccessat2(1, "Training:forward", -975, 0)    it ends
//! faccessat2(2, "Training:saved", -975, 0)      an instant
//! ```
//!
//! Besides, functions and probes of programs can be made markers; then the text is the user half's.
//!
//! The convention is systing's
//! ([`USAGE.adoc`](https://github.com/josefbacik/systing/blob/v1.13.10/docs/USAGE.adoc), "Userspace
//! Marker Events"): the kernel refuses such a mode before it reads the name.

use crate::record::RecordHeader;

/// The syscall's number, which is the same on every machine since 5.8
/// (<https://github.com/torvalds/linux/blob/v6.12/scripts/syscall.tbl>).
pub const FACCESSAT2: u64 = 439;

/// The mode that no call for files has. Only the lower half of the register counts: some languages
/// extend it by zeroes, others by its sign.
pub const MODE: i32 = -975;

/// Bytes of a marker's text that are kept, the closing NUL included.
pub const TEXT_LEN: usize = 128;

/// How many markers each CPU records in a second (2³⁰ ns). A program that sets more must not take
/// the room of everybody's waits.
pub const MAX_PER_SECOND: u64 = 100_000;

/// How many places can be markers by themselves: the entries of the map of their texts.
pub const MAX_PROBES: u32 = 256;

/// What a place says where a marker is to be set ([`MarkerProbe`]): which entry, and its kind in the
/// lowest bits.
#[must_use]
pub const fn probe_cookie(index: u32, kind: u32) -> u64 {
    (index as u64) << 2 | kind as u64
}

/// The entry, and the kind.
#[must_use]
pub const fn split_cookie(cookie: u64) -> (u32, u32) {
    ((cookie >> 2) as u32, cookie as u32 & 3)
}

/// The text of the markers that are set where a function or a probe of a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MarkerProbe {
    /// As [`MarkerRecord::text`], with a NUL behind it.
    pub text: [u8; TEXT_LEN],
    /// As [`MarkerRecord::text_len`].
    pub text_len: u32,
    /// Nothing, so that there is no padding.
    pub unused: u32,
}

/// What a marker says ([`MarkerRecord::kind`]): the call's first argument. Append-only.
pub mod marker_kind {
    /// A range begins.
    pub const BEGIN: u32 = 0;
    /// A range ends.
    pub const END: u32 = 1;
    /// Something happened.
    pub const INSTANT: u32 = 2;
}

/// One marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MarkerRecord {
    /// [`kind::MARKER`](crate::record::kind::MARKER).
    pub header: RecordHeader,
    /// The thread that set it.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// When.
    pub ns: u64,
    /// One of [`marker_kind`].
    pub kind: u32,
    /// Bytes of the text, the closing NUL included: [`TEXT_LEN`] if it was cut, or fits exactly.
    pub text_len: u32,
    /// Track and name with a colon between them, as they were in the program's memory.
    pub text: [u8; TEXT_LEN],
}

const _: () = {
    assert!(size_of::<MarkerRecord>() == 32 + TEXT_LEN);
    assert!(size_of::<MarkerProbe>() == TEXT_LEN + 8);
    assert!(marker_kind::INSTANT < 4);
};
