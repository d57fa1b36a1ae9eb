//! The copy of a user stack's top.

use offwake_unwind::MissingPages;
use profiler_ebpf::{
    python::{PythonFrame, PythonFrames},
    record::{NO_STACK, kind},
    user_stack::{PAGE, StackCopy, copy_size, purpose, with_python},
};

use super::{DecodeError, Plain, read_plain};
use crate::units::{StackId, Tgid, Tid, Timestamp};

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
    /// 4 to 8 KiB.
    Short,
    /// 16 to 20 KiB.
    Medium,
    /// 64 to 68 KiB.
    Long,
}

impl CopySize {
    /// The next larger one, if there is one.
    #[must_use]
    pub fn larger(self) -> Option<Self> {
        match self {
            Self::Short => Some(Self::Medium),
            Self::Medium => Some(Self::Long),
            Self::Long => None,
        }
    }

    /// The number that the kernel half has for it.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            Self::Short => copy_size::SHORT,
            Self::Medium => copy_size::MEDIUM,
            Self::Long => copy_size::LONG,
        }
    }

    fn of_code(code: u32) -> Option<Self> {
        [Self::Short, Self::Medium, Self::Long].into_iter().find(|size| size.code() == code)
    }
}

/// What refers to a copied stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A wait, by whoever waits or wakes: its record may come much later.
    Wait,
    /// A sample.
    Sample,
    /// Nothing: it was recognised as another one, and is to be compared with that.
    Check,
    /// A wait that had begun before anybody looked: nothing was copied.
    BegunBefore {
        /// How often the thread had gone to sleep: its memory stays as it is until it wakes.
        switches: u64,
    },
}

/// A copy of the top of a user stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedStack<'a> {
    /// The id that other records refer to it by.
    pub id: StackId,
    /// The place where the thread is, if it is to be learnt.
    pub place: Option<PlaceKey>,
    /// The stack that it was taken for, if it was recognised and is to be compared.
    pub taken_for: Option<StackId>,
    /// What refers to it.
    pub purpose: Purpose,
    /// When it was taken.
    pub taken: Timestamp,
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
    /// What Python ran in it, if the thread is known to run any.
    pub python: Option<PythonChain>,
    /// How much was asked for.
    pub size: CopySize,
    /// The stack from the stack pointer on.
    pub bytes: &'a [u8],
    /// What of it was not in memory.
    pub missing: MissingPages,
    /// The epoch of the process's code.
    pub code_epoch: CodeEpoch,
}

/// The Python frames of a thread, as they were captured with the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonChain {
    /// A hash of them.
    pub hash: u64,
    /// The frames, leaf first.
    pub frames: Vec<PythonFrame>,
    /// Whether there are more.
    pub is_cut: bool,
}

/// A thread's registers in user code, as a number: where it waits, or wakes others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaceKey(pub u64);

impl PlaceKey {
    /// The same place where Python with this hash runs.
    #[must_use]
    pub fn with_python(self, hash: u64) -> Self {
        Self(with_python(self.0, hash))
    }
}

/// Decodes the copy of a user stack.
///
/// # Errors
///
/// If the bytes are no whole one.
pub fn stack_copy(bytes: &[u8]) -> Result<CopiedStack<'_>, DecodeError> {
    const KIND: u16 = kind::STACK_COPY;
    let head: StackCopy = read_plain(KIND, bytes)?;
    if head.header.kind != KIND {
        return Err(DecodeError::Kind(head.header.kind));
    }
    let value = |field, value| DecodeError::Value { kind: KIND, field, value };
    let size = CopySize::of_code(head.size).ok_or(value("size", head.size.into()))?;
    let purpose = match head.purpose {
        purpose::WAIT => Purpose::Wait,
        purpose::SAMPLE => Purpose::Sample,
        purpose::CHECK => Purpose::Check,
        purpose::BEFORE_WINDOW => Purpose::BegunBefore { switches: head.voluntary_switches },
        other => return Err(value("purpose", other.into())),
    };
    let rest = bytes.get(size_of::<StackCopy>()..).unwrap_or_default();
    let python = (head.python_hash != 0).then(|| python(head.python_hash, rest)).transpose()?;
    let stack = match head.bytes {
        0 => Some(&[][..]),
        bytes => rest.get(size_of::<PythonFrames>()..).and_then(|rest| rest.get(..bytes as usize)),
    };
    Ok(CopiedStack {
        id: StackId(head.id),
        place: (head.call_site != 0).then_some(PlaceKey(head.call_site)),
        taken_for: (head.cached_id != NO_STACK).then_some(StackId(head.cached_id)),
        purpose,
        taken: Timestamp(head.ns),
        tgid: Tgid(head.tgid),
        tid: Tid(head.tid),
        ip: head.ip,
        sp: head.sp,
        fp: head.fp,
        python,
        size,
        bytes: stack.ok_or(value("bytes", head.bytes.into()))?,
        missing: MissingPages(head.missing_pages),
        code_epoch: CodeEpoch(head.code_epoch),
    })
}

fn python(hash: u64, bytes: &[u8]) -> Result<PythonChain, DecodeError> {
    let chain: PythonFrames = read_plain(kind::STACK_COPY, bytes)?;
    let frames = chain.frames.get(..chain.depth as usize).ok_or(DecodeError::Value {
        kind: kind::STACK_COPY,
        field: "depth",
        value: chain.depth.into(),
    })?;
    Ok(PythonChain { hash, frames: frames.to_vec(), is_cut: chain.is_cut != 0 })
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
        [head, &[0; size_of::<PythonFrames>()], &vec![7; stack]].concat()
    }

    fn head(bytes: u32, size: u32) -> StackCopy {
        let header = RecordHeader { kind: kind::STACK_COPY, cpu: 1, len: 0 };
        StackCopy { header, id: 5, call_site: 0, bytes, size, ..StackCopy::default() }
    }

    #[test]
    fn a_copy_has_the_bytes_that_were_copied_and_no_more() {
        let bytes = bytes_of(&head(5000, copy_size::SHORT), 8192);
        let copy = stack_copy(&bytes).unwrap();
        assert_eq!((copy.bytes.len(), copy.place, copy.taken_for), (5000, None, None));
    }

    #[test]
    fn what_claims_more_than_it_has_is_refused() {
        let refused = |head, stack| stack_copy(&bytes_of(&head, stack)).is_err();
        assert!(refused(head(8193, copy_size::SHORT), 8192));
        assert!(refused(head(1, 3), 8192));
        assert!(refused(StackCopy::default(), 8192));
        assert!(stack_copy(&[0; 40]).is_err());
    }
}
