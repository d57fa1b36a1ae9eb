//! How the Python frames of a thread are walked: what the user half knows of a CPython, in words that
//! serve every version of it.
//!
//! ```text
//!  Thread::state ──thread_frame──> frame 0 ──previous──> frame 1 ──previous──> … ──> 0
//!           └ (cframe_frame) ┘     (leaf)
//! ```
//!
//! Each frame is one read of `frame_words` words from `frame_begin` on, of which four are used:
//! `previous` as it is, the others under their masks, as a [`Frame`].

/// Frames that are walked of one thread at most.
pub const MAX_FRAMES: usize = 64;

/// Words of eight bytes that are read of one frame at most; a power of two, for the verifier's sake.
pub const MAX_FRAME_WORDS: usize = 16;

/// In place of an offset: there is no such step.
pub const NO_STEP: u32 = u32::MAX;

/// Where one build of CPython keeps what a walk reads. Offsets are in bytes, places in a frame are
/// indices of words, each below `frame_words`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Layout {
    /// In the thread's state: the word that [`Thread::identity`] is compared with.
    pub thread_identity: u32,
    /// In the thread's state: the pointer to its frame, or to what has that.
    pub thread_frame: u32,
    /// In what that pointer leads to: the pointer to the frame; else [`NO_STEP`].
    pub cframe_frame: u32,
    /// In a frame: where reading begins.
    pub frame_begin: u32,
    /// How many words are read, at most [`MAX_FRAME_WORDS`].
    pub frame_words: u32,
    /// The word that points to the frame's caller; 0 ends the walk.
    pub previous: u32,
    /// The word that becomes [`Frame::code`].
    pub code: u32,
    /// The word that becomes [`Frame::instruction`].
    pub instruction: u32,
    /// The word that becomes [`Frame::marks`].
    pub marks: u32,
    /// Always 0.
    pub reserved: u32,
    /// The bits of `code` that are kept.
    pub code_mask: u64,
    /// The bits of `instruction` that are kept.
    pub instruction_mask: u64,
    /// The bits of `marks` that are kept.
    pub marks_mask: u64,
}

/// A thread that runs Python.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Thread {
    /// The address of its `PyThreadState`.
    pub state: u64,
    /// What stands in that at [`Layout::thread_identity`] as long as it is this thread's. Memory that
    /// was freed holds something else sooner or later: then nothing is walked.
    pub identity: u64,
    /// Where its CPython keeps things.
    pub layout: Layout,
}

/// What is captured of one frame. Only the user half knows how to read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Frame {
    /// The address of the frame's code object.
    pub code: u64,
    /// Where it is in that: an address, or an index.
    pub instruction: u64,
    /// What kind of frame it is.
    pub marks: u64,
}

/// The Python frames of a thread, leaf first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Chain {
    /// How many there are.
    pub depth: u32,
    /// 1 if there are more: that could not be read, or for which there was no room.
    pub is_cut: u32,
    /// The frames; what lies behind `depth` says nothing.
    pub frames: [Frame; MAX_FRAMES],
}

const _: () = {
    assert!(size_of::<Chain>() == 8 + MAX_FRAMES * 24);
    assert!(size_of::<Layout>() == 10 * 4 + 3 * 8);
    assert!(size_of::<Thread>() == 16 + size_of::<Layout>());
    assert!(size_of::<Frame>() == 24);
    assert!(MAX_FRAME_WORDS.is_power_of_two());
};
