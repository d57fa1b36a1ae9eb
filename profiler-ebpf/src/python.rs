//! How the Python frames of a thread are walked: what the user half knows of a CPython, in terms
//! that serve every version of it.
//!
//! ```text
//!  PythonThreadState::state ──thread_frame──> frame 0 ──previous──> frame 1 ──previous──> … ──> 0
//!                      └ (cframe_frame) ┘     (leaf)
//! ```
//!
//! Each frame is one read of `frame_words` words from `frame_begin` on, of which four are used:
//! `previous` as it is, the others under their masks, as a [`PythonFrame`].

/// Python frames that are walked of one thread at most.
pub const MAX_FRAMES: usize = 64;

/// Words of eight bytes that are read of one frame at most; a power of two, for the verifier's
/// sake.
pub const MAX_FRAME_WORDS: usize = 16;

/// Stands in place of an offset where there is no such step.
pub const NO_STEP: u32 = u32::MAX;

/// Where one build of CPython keeps what a walk reads. Offsets are in bytes; words of a frame are
/// named by their indices, each below `frame_words`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PythonLayout {
    /// In the thread's state: the word that [`PythonThreadState::identity`] is compared with.
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
    /// The word that becomes [`PythonFrame::code`].
    pub code: u32,
    /// The word that becomes [`PythonFrame::instruction`].
    pub instruction: u32,
    /// The word that becomes [`PythonFrame::marks`].
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
pub struct PythonThreadState {
    /// The address of its `PyThreadState`.
    pub state: u64,
    /// What that holds at [`PythonLayout::thread_identity`] as long as it is this thread's. Memory
    /// that was freed holds something else sooner or later: then nothing is walked.
    pub identity: u64,
    /// Where its CPython keeps things.
    pub layout: PythonLayout,
}

/// A process that runs Python: how a thread that is not among the known ones finds its own state.
///
/// CPython keeps a pointer to it in each thread's own storage
/// ([`autoTSSkey`](https://github.com/python/cpython/blob/v3.11.2/Python/pystate.c#L1625)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PythonProcess {
    /// How far that pointer is behind where the thread's register for its storage points to.
    pub state_pointer: u32,
    /// In the state: the word that is what that register holds, `PyThreadState::thread_id`.
    pub thread_pointer: u32,
    /// Where its CPython keeps things.
    pub layout: PythonLayout,
}

/// What is read of one Python frame. Only the user half interprets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct PythonFrame {
    /// The address of the frame's code object.
    pub code: u64,
    /// Where in the code object the frame is: an address, or an index.
    pub instruction: u64,
    /// What tells the kind of frame: entry, generator or shim, by the bits that the version uses.
    pub marks: u64,
}

/// The Python frames of a thread, leaf first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PythonFrames {
    /// How many of `frames` are filled.
    pub depth: u32,
    /// 1 if the thread has more: frames that could not be read, or that exceed [`MAX_FRAMES`].
    pub is_cut: u32,
    /// The frames; those from `depth` on are left over from other walks.
    pub frames: [PythonFrame; MAX_FRAMES],
}

const _: () = {
    assert!(size_of::<PythonFrames>() == 8 + MAX_FRAMES * 24);
    assert!(size_of::<PythonLayout>() == 10 * 4 + 3 * 8);
    assert!(size_of::<PythonThreadState>() == 16 + size_of::<PythonLayout>());
    assert!(size_of::<PythonProcess>() == 8 + size_of::<PythonLayout>());
    assert!(size_of::<PythonFrame>() == 24);
    assert!(MAX_FRAME_WORDS.is_power_of_two());
};
