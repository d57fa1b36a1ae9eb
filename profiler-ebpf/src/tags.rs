//! What a program says of what each of its threads is doing: the trace that it works for, and labels.
//!
//! ```text
//!  thread's own storage          OpenTelemetry's thread context (OTEP 4947)
//!  +--------------------+        +-------------+------------+-------+-------+--------+------------+
//!  | otel_thread_ctx_v1 |------->| trace id 16 | span id 8  | valid | flags | size 2 | attributes |
//!  +--------------------+        +-------------+------------+-------+-------+--------+------------+
//! ```
//!
//! The user half finds where the pointer is, and what it leads to ([`TagSource`]): the above, or
//! labels alone ([`form`]). The kernel half follows it in the thread's own context, sends what it
//! finds once ([`TagSetRecord`]), and says when a thread changes from one set to another
//! ([`TagChangeRecord`]). Only the user half looks into attributes.

use crate::record::RecordHeader;

/// Bytes of attributes that are read at most. The convention asks for 640 bytes in all.
pub const MAX_ATTRIBUTES: usize = 1024;

/// Words of eight bytes of the attributes, with one that ends them.
pub const USED_WORDS: usize = MAX_ATTRIBUTES / 8 + 1;

/// Words that there is room for: the verifier sees neither that a text which begins inside of the
/// attributes ends there, nor needs to.
pub const ATTRIBUTE_WORDS: usize = USED_WORDS + (MAX_VALUE + 1) / 8;

/// Labels of a set that are read at most.
pub const MAX_LABELS: usize = 16;
/// Bytes of a label's key that are read at most.
pub const MAX_KEY: usize = 63;
/// Bytes of a label's value that are read at most.
pub const MAX_VALUE: usize = 255;

/// What the pointer of a [`TagSource`] leads to.
pub mod form {
    /// A process of which nothing is known.
    pub const NONE: u64 = 0;
    /// OpenTelemetry's thread context: [`kind::TAG_SET`](crate::record::kind::TAG_SET).
    pub const CONTEXT: u64 = 1;
    /// A set of custom-labels: [`kind::LABEL_SET`](crate::record::kind::LABEL_SET), as all that
    /// follow.
    pub const CUSTOM_LABELS: u64 = 2;
    /// What the thread runs in Go, whose labels are a list: since Go 1.24.
    pub const GO_LIST: u64 = 3;
    /// The same, whose labels are a map.
    pub const GO_MAP: u64 = 4;
}

/// Bytes of a context before its attributes.
pub const CONTEXT_BYTES: usize = 28;

/// Where the threads of a process have the pointer to their context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TagSource {
    /// An address in the process that tells whether it still runs the program that this is of.
    pub mark_address: u64,
    /// What is there.
    pub mark: u64,
    /// How far the pointer is behind the thread pointer; with a `module`, behind its block.
    pub offset: i64,
    /// The index of the module in the thread's DTV; 0 if the offset is from the thread pointer.
    pub module: u64,
    /// One of [`form`].
    pub form: u64,
    /// Where Go has what leads to labels.
    pub go: GoOffsets,
}

/// Where Go's runtime has what leads from what a thread runs (`g`) to its labels: offsets of 16
/// bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct GoOffsets(pub u64);

impl GoOffsets {
    /// `g.m`, `m.curg` and `g.labels`.
    #[must_use]
    pub const fn new(thread: u16, goroutine: u16, labels: u16) -> Self {
        Self(thread as u64 | (goroutine as u64) << 16 | (labels as u64) << 32)
    }

    /// Where in what runs its thread is.
    #[inline(always)]
    #[must_use]
    pub const fn thread(self) -> u64 {
        self.0 & 0xffff
    }

    /// Where in a thread its goroutine is.
    #[inline(always)]
    #[must_use]
    pub const fn goroutine(self) -> u64 {
        self.0 >> 16 & 0xffff
    }

    /// Where in a goroutine its labels are.
    #[inline(always)]
    #[must_use]
    pub const fn labels(self) -> u64 {
        self.0 >> 32 & 0xffff
    }
}

/// A context that a thread has, as it is in memory, or its labels. The kernel half sends as many of
/// the attributes as there are. Of labels, each is
///
/// ```text
///  0            4              8                  …                    …
///  +------------+--------------+------------------+--------------------+
///  | key length | value length | key, to 8 bytes  | value, to 8 bytes  |
///  +------------+--------------+------------------+--------------------+
/// ```
///
/// with the lengths that both have in the program's memory; at most [`MAX_KEY`] and [`MAX_VALUE`]
/// bytes of them are here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TagSetRecord {
    /// [`crate::record::kind::TAG_SET`] or [`crate::record::kind::LABEL_SET`]
    pub header: RecordHeader,
    /// The id that [`TagChangeRecord::set`] refers to it by.
    pub id: u64,
    /// When it was read.
    pub ns: u64,
    /// The process.
    pub tgid: u32,
    /// Bytes of the attributes.
    pub attributes_len: u32,
    /// The context without its attributes: [`CONTEXT_BYTES`] bytes, and four zeroes. All zeroes
    /// where there are labels alone.
    pub context: [u64; 4],
    /// The attributes.
    pub attributes: [u64; ATTRIBUTE_WORDS],
}

impl TagSetRecord {
    /// Bytes before the attributes.
    pub const FIXED: usize = core::mem::offset_of!(Self, attributes);

    /// Bytes of a record with so many bytes of attributes.
    #[must_use]
    pub const fn len_for_attributes(bytes: usize) -> usize {
        Self::FIXED + bytes.next_multiple_of(8)
    }
}

/// A thread has another context than when it was looked at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TagChangeRecord {
    /// [`crate::record::kind::TAG_CHANGE`]
    pub header: RecordHeader,
    /// The thread.
    pub tid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// When it was found to have this one.
    pub ns: u64,
    /// When it was last found to have the one before. What it had in between is not known.
    pub since_ns: u64,
    /// The [`TagSetRecord::id`]; 0 if it has none now.
    pub set: u64,
}

const _: () = {
    assert!(size_of::<TagSource>() == 48);
    assert!(size_of::<TagSetRecord>() == TagSetRecord::FIXED + ATTRIBUTE_WORDS * 8);
    assert!(TagSetRecord::FIXED == 64);
    assert!(size_of::<TagChangeRecord>() == 40);
    assert!(MAX_KEY <= MAX_VALUE);
};
