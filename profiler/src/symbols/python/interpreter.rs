//! The CPython that a process runs.

use std::ops::Range;

use offwake_recording::AddressKind;
use profiler_ebpf::python::{PythonFrame, PythonLayout};

use super::{
    debug_offsets,
    image::{Image, NotFound},
    memory::Memory,
    offsets::{self, Offsets, Run},
    version::Version,
};

/// A frame as the kernel half captured it.
pub(crate) type Captured = PythonFrame;

/// `FRAME_OWNED_BY_GENERATOR`
const BY_GENERATOR: u64 = 1;
/// `FRAME_OWNED_BY_CSTACK`, in 3.14 `FRAME_OWNED_BY_INTERPRETER`; what is above is no Python
/// either.
///
/// <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_interpframe_structs.h#L22-L28>
const BY_INTERPRETER: u64 = 3;

/// The bits of `PY_VERSION_HEX` that say how far a version is: those before a release candidate
/// change their layout as they go.
const LEVEL: u32 = 0xf0;
const CANDIDATE: u32 = 0xc0;

/// Where a process has the code of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedAt {
    /// Where the mapping begins.
    pub start: u64,
    /// Which offset into the file is there.
    pub offset: u64,
}

/// The CPython of one process.
#[derive(Clone, Debug)]
pub(crate) struct Interpreter {
    pub(super) runtime: u64,
    pub(super) code_type: Option<u64>,
    pub(super) offsets: Offsets,
    layout: PythonLayout,
    evaluate: Vec<Range<u64>>,
}

/// What a frame is to the run that one call of `_PyEval_EvalFrameDefault` evaluates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One frame of the run, not the last.
    Inner,
    /// The last frame of the run.
    Last,
    /// The entry behind the last frame, which is no frame itself.
    Shim,
}

impl Interpreter {
    /// The CPython of the file that a process has mapped, with what its memory says.
    ///
    /// # Errors
    ///
    /// When its frames can't be had.
    pub(crate) fn find(
        image: &Image,
        mapped: MappedAt,
        memory: &impl Memory,
    ) -> Result<Self, NotFound> {
        let bias = image.bias(mapped.start, mapped.offset).ok_or(NotFound::NoSymbols)?;
        let here = |address: u64| bias.wrapping_add(address);
        let version = match image.version {
            Some(address) => {
                let hex = memory.half(here(address)).ok_or(NotFound::Unreadable)?;
                let version = Version::from_hex(hex);
                match hex & LEVEL >= CANDIDATE {
                    true => version,
                    false => return Err(NotFound::UnknownVersion(version)),
                }
            }
            // From 3.11 on there is the symbol.
            None => match image.named {
                Some(named) if named < Version::python3(11) => named,
                _ => return Err(NotFound::NoVersion),
            },
        };
        let runtime = here(image.runtime);
        let offsets = match Offsets::for_version(version) {
            Some(offsets) => offsets,
            None => debug_offsets::read(memory, runtime, version)?,
        };
        let part = |range: &Range<u64>| here(range.start)..here(range.end);
        Ok(Self {
            runtime,
            code_type: image.code_type.map(here),
            layout: offsets.layout().ok_or(NotFound::BadLayout(version))?,
            offsets,
            evaluate: image.evaluate.iter().map(part).collect(),
        })
    }

    /// How the kernel half walks the frames of its threads.
    pub(crate) fn layout(&self) -> PythonLayout {
        self.layout
    }

    /// Whether code at `address` evaluates Python.
    pub(crate) fn evaluates_at(&self, address: u64, kind: AddressKind) -> bool {
        let address = address.saturating_sub(kind.before());
        self.evaluate.iter().any(|range| range.contains(&address))
    }

    /// What a captured frame is to its run.
    pub(crate) fn part(&self, frame: &Captured) -> Part {
        match self.offsets.frame.run {
            Run::Each => Part::Last,
            Run::Entry { entry, .. } => match self.byte_of_marks(frame, entry) {
                0 => Part::Inner,
                _ => Part::Last,
            },
            Run::Shim { owner } if self.byte_of_marks(frame, owner) >= BY_INTERPRETER => Part::Shim,
            Run::Shim { .. } => Part::Inner,
        }
    }

    /// Whether it is a generator's or a coroutine's: such a frame has begun when it was made.
    pub(super) fn is_generator(&self, frame: &Captured) -> bool {
        match self.offsets.frame.run {
            Run::Each => false,
            Run::Entry { owner, .. } | Run::Shim { owner } => {
                self.byte_of_marks(frame, owner) == BY_GENERATOR
            }
        }
    }

    fn byte_of_marks(&self, frame: &Captured, offset: u32) -> u64 {
        offsets::captured(frame.marks, offset) & 0xff
    }
}

impl Interpreter {
    /// One of which nothing is known but how it keeps its frames: for tests and the fuzzer.
    pub(super) fn with(runtime: u64, offsets: Offsets) -> Option<Self> {
        let layout = offsets.layout()?;
        Some(Self { runtime, code_type: None, offsets, layout, evaluate: Vec::new() })
    }
}
