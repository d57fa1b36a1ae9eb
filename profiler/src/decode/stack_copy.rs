//! Decodes the copies of user stacks' tops, which come on a ring of their own.

use offwake_recording::units::{StackId, Tgid, Tid, Timestamp};
use offwake_unwind::MissingPages;
use profiler_ebpf::{
    python::{PythonFrame, PythonFrames},
    record::{NO_STACK, kind},
    user_stack::{PAGE, RED_ZONE, StackCopy, copy_size, purpose, with_python},
};

use super::{DecodeError, Plain, read_plain};

/// An epoch of a process's code, in which nothing took the place of code that was there
/// ([`profiler_ebpf::code_epoch`]): a number that its other epochs don't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeEpoch(pub u32);

const _: () = assert!(offwake_unwind::PAGE == PAGE as u64, "a bit is a page of the kernel half");

// SAFETY: profiler-ebpf asserts its size to be the sum of its integer fields.
unsafe impl Plain for StackCopy {}
// SAFETY: as above.
unsafe impl Plain for PythonFrames {}

/// How much of a stack is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopySize {
    /// Two pages, of which the first may begin anywhere: 4 to 8 KiB.
    Short,
    /// 16 to 20 KiB.
    Medium,
    /// 64 to 68 KiB.
    Long,
}

impl CopySize {
    /// The next larger size, if there is one.
    #[must_use]
    pub fn larger(self) -> Option<Self> {
        match self {
            Self::Short => Some(Self::Medium),
            Self::Medium => Some(Self::Long),
            Self::Long => None,
        }
    }

    /// The number of the size in the kernel half.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            Self::Short => copy_size::SHORT,
            Self::Medium => copy_size::MEDIUM,
            Self::Long => copy_size::LONG,
        }
    }

    fn from_code(code: u32) -> Option<Self> {
        [Self::Short, Self::Medium, Self::Long].into_iter().find(|size| size.code() == code)
    }
}

/// What a stack was copied for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyPurpose {
    /// A wait's record will refer to it, of the thread that waits or wakes; it may come much later.
    Wait,
    /// A sample's record refers to it.
    Sample,
    /// No record refers to it: the stack was found in the cache, and the copy is to verify that.
    Check(FoundBy),
    /// A wait that had begun before the window opened: nothing was copied.
    BeforeWindow {
        /// How often the thread had gone to sleep: its memory stays as it is while that number
        /// does.
        voluntary_switches: u64,
    },
    /// The same of a wait that has not ended as the window closes: it is to be read if somebody waits
    /// for the thread.
    StillAsleep {
        /// As above.
        voluntary_switches: u64,
    },
}

/// How the kernel half has found a cached stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// By its frame slots.
    FrameSlots,
    /// By registers alone.
    Registers,
}

/// A copy of the top of a user stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserStackCopy<'a> {
    /// The id that other records refer to it by.
    pub id: StackId,
    /// The call site, if the stack is to be cached.
    pub call_site: Option<CallSiteKey>,
    /// The cached stack that was found for it, if the copy is to verify that.
    pub cached_id: Option<StackId>,
    /// What it was copied for.
    pub purpose: CopyPurpose,
    /// When it was copied.
    pub copied: Timestamp,
    /// The process.
    pub tgid: Tgid,
    /// The thread.
    pub tid: Tid,
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, or whatever code without one keeps there.
    pub fp: u64,
    /// The thread's Python frames, if it is known to run Python.
    pub python: Option<PythonStack>,
    /// How much was asked for.
    pub size: CopySize,
    /// The bytes right below the stack pointer; empty if they are not known.
    pub red_zone: &'a [u8],
    /// The stack from the stack pointer on.
    pub bytes: &'a [u8],
    /// Pages of it that were not in memory.
    pub missing: MissingPages,
    /// The epoch of the process's code.
    pub code_epoch: CodeEpoch,
}

/// The Python frames of a thread, as they were captured with the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonStack {
    /// A hash of the frames.
    pub hash: u64,
    /// The frames, leaf first.
    pub frames: Vec<PythonFrame>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// A hash of a thread and its registers in user code: the place where it waits, or wakes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallSiteKey(pub u64);

impl CallSiteKey {
    /// The key of the same call site where Python frames with this hash run.
    #[must_use]
    pub fn with_python(self, hash: u64) -> Self {
        Self(with_python(self.0, hash))
    }
}

/// Decodes the copy of a user stack.
///
/// # Errors
///
/// If the bytes are not one whole copy.
pub fn decode_stack_copy(bytes: &[u8]) -> Result<UserStackCopy<'_>, DecodeError> {
    const KIND: u16 = kind::STACK_COPY;
    let head: StackCopy = read_plain(KIND, bytes)?;
    if head.header.kind != KIND {
        return Err(DecodeError::Kind(head.header.kind));
    }
    let value = |field, value| DecodeError::Value { kind: KIND, field, value };
    let size = CopySize::from_code(head.size).ok_or(value("size", head.size.into()))?;
    let purpose = match head.purpose {
        purpose::WAIT => CopyPurpose::Wait,
        purpose::SAMPLE => CopyPurpose::Sample,
        purpose::CHECK if head.by_registers != 0 => CopyPurpose::Check(FoundBy::Registers),
        purpose::CHECK => CopyPurpose::Check(FoundBy::FrameSlots),
        purpose::BEFORE_WINDOW => {
            CopyPurpose::BeforeWindow { voluntary_switches: head.voluntary_switches }
        }
        purpose::STILL_ASLEEP => {
            CopyPurpose::StillAsleep { voluntary_switches: head.voluntary_switches }
        }
        other => return Err(value("purpose", other.into())),
    };
    let mut rest = bytes.get(size_of::<StackCopy>()..).unwrap_or_default();
    let mut python = None;
    if head.python_hash != 0 {
        python = Some(decode_python(head.python_hash, rest)?);
        rest = rest.get(size_of::<PythonFrames>()..).unwrap_or_default();
    }
    let mut red_zone: &[u8] = &[];
    if head.bytes > 0 {
        let missing = value("red_zone_bytes", head.red_zone_bytes.into());
        (red_zone, rest) = rest.split_at_checked(RED_ZONE).ok_or(missing)?;
        red_zone = match head.red_zone_bytes as usize {
            RED_ZONE => red_zone,
            0 => &[],
            _ => return Err(value("red_zone_bytes", head.red_zone_bytes.into())),
        };
    }
    let stack = rest.get(..head.bytes as usize);
    Ok(UserStackCopy {
        id: StackId(head.id),
        call_site: (head.call_site != 0).then_some(CallSiteKey(head.call_site)),
        cached_id: (head.cached_id != NO_STACK).then_some(StackId(head.cached_id)),
        purpose,
        copied: Timestamp(head.ns),
        tgid: Tgid(head.tgid),
        tid: Tid(head.tid),
        ip: head.ip,
        sp: head.sp,
        fp: head.fp,
        python,
        size,
        red_zone,
        bytes: stack.ok_or(value("bytes", head.bytes.into()))?,
        missing: MissingPages(head.missing_pages),
        code_epoch: CodeEpoch(head.code_epoch),
    })
}

fn decode_python(hash: u64, bytes: &[u8]) -> Result<PythonStack, DecodeError> {
    let chain: PythonFrames = read_plain(kind::STACK_COPY, bytes)?;
    let frames = chain.frames.get(..chain.depth as usize).ok_or(DecodeError::Value {
        kind: kind::STACK_COPY,
        field: "depth",
        value: chain.depth.into(),
    })?;
    Ok(PythonStack { hash, frames: frames.to_vec(), is_cut: chain.is_cut != 0 })
}

#[cfg(test)]
mod tests {
    use profiler_ebpf::record::RecordHeader;

    use super::*;

    fn bytes_of(head: &StackCopy, stack: usize) -> Vec<u8> {
        // SAFETY: it is plain integers without padding.
        let head = unsafe {
            std::slice::from_raw_parts(
                std::ptr::from_ref(head).cast::<u8>(),
                size_of::<StackCopy>(),
            )
        };
        [head, &vec![7; stack]].concat()
    }

    fn head(bytes: u32, size: u32) -> StackCopy {
        let header = RecordHeader { kind: kind::STACK_COPY, cpu: 1, len: 0 };
        StackCopy { header, id: 5, call_site: 0, bytes, size, ..StackCopy::default() }
    }

    #[test]
    fn a_copy_has_the_bytes_that_were_copied_and_no_more() {
        let bytes = bytes_of(&head(5000, copy_size::SHORT), 8192 + RED_ZONE);
        let copy = decode_stack_copy(&bytes).unwrap();
        assert_eq!((copy.bytes.len(), copy.call_site, copy.cached_id), (5000, None, None));
    }

    #[test]
    fn the_red_zone_comes_before_the_bytes_if_it_was_in_memory() {
        let read = |red_zone_bytes| {
            let head = StackCopy { red_zone_bytes, ..head(8, copy_size::SHORT) };
            let mut bytes = bytes_of(&head, RED_ZONE + 8);
            bytes[size_of::<StackCopy>()..][..RED_ZONE].fill(1);
            let copy = decode_stack_copy(&bytes).unwrap();
            assert_eq!(copy.bytes, [7; 8]);
            copy.red_zone.to_vec()
        };
        assert_eq!((read(RED_ZONE as u32), read(0)), (vec![1; RED_ZONE], Vec::new()));
    }

    #[test]
    fn python_frames_come_before_the_bytes_where_there_are_any() {
        let head = StackCopy { python_hash: 3, ..head(6, copy_size::SHORT) };
        let mut bytes = bytes_of(&head, size_of::<PythonFrames>() + RED_ZONE + 8);
        let frames = size_of::<StackCopy>()..size_of::<StackCopy>() + size_of::<PythonFrames>();
        bytes[frames.clone()].fill(0);
        let copy = decode_stack_copy(&bytes).unwrap();
        assert_eq!(copy.bytes, [7; 6]);
        assert_eq!(copy.python, Some(PythonStack { hash: 3, frames: Vec::new(), is_cut: false }));
        assert!(decode_stack_copy(&bytes[..frames.end]).is_err());
    }

    #[test]
    fn what_claims_more_than_it_has_is_refused() {
        let refused = |head, stack| decode_stack_copy(&bytes_of(&head, stack)).is_err();
        assert!(refused(head(8193, copy_size::SHORT), 8192 + RED_ZONE));
        assert!(refused(head(1, 3), 8192));
        assert!(refused(head(1, copy_size::SHORT), RED_ZONE));
        let red_zone = |bytes| StackCopy { red_zone_bytes: bytes, ..head(8, copy_size::SHORT) };
        assert!(refused(red_zone(RED_ZONE as u32 + 1), 8192));
        assert!(refused(StackCopy::default(), 8192));
        assert!(decode_stack_copy(&[0; 40]).is_err());
    }
}
