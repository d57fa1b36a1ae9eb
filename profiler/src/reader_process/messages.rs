//! The messages between offwake and the process that reads for it: one reply for each request.

use std::{borrow::Cow, fmt};

use offwake_recording::{BuildId, Segment, units::Tgid};
use offwake_unwind::elf::{
    goroutine_labels::GoroutineLabels,
    probe_points::{ProbePoint, ProbeQuery, ProbeRefusal},
    tls_symbol::{TlsQuery, TlsSymbol},
};
use rustix::fs::Statx;
use serde::{Deserialize, Serialize};

use crate::{
    parser,
    symbols::address_spaces::{
        description::ModuleDescription, held_file::FileIdentity, process_root::LastLink,
    },
};

/// Bytes of memory that are read at a time: a page of the smallest machine.
pub(crate) const PAGE: usize = 4096;
/// Bytes that go into a message. What is longer comes as a file in memory.
pub(super) const MAX_INLINE: usize = 1 << 20;
/// Pages of one request at most.
pub(super) const MAX_PAGES: usize = MAX_INLINE / PAGE;

/// What a question is about: if it has no answer, no other one about the same is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// The memory of a process.
    Memory(Tgid),
    /// What a process has mapped.
    Mappings(Tgid),
    /// The arguments of a process, which are in its memory.
    Arguments(Tgid),
    /// The files below a process's root directory.
    Root(Tgid),
    /// An open file of a process.
    Descriptor(Tgid),
    /// What lies in a directory of this machine.
    Directory(String),
    /// The content of a file, on a device.
    File { device: (u32, u32), inode: u64 },
}

impl Subject {
    /// The process that has to answer; none for a file.
    pub(super) fn process(&self) -> Option<Tgid> {
        match *self {
            Self::Memory(tgid)
            | Self::Mappings(tgid)
            | Self::Arguments(tgid)
            | Self::Root(tgid)
            | Self::Descriptor(tgid) => Some(tgid),
            Self::Directory(_) | Self::File { .. } => None,
        }
    }
}

impl From<FileIdentity> for Subject {
    fn from(identity: FileIdentity) -> Self {
        let (device, inode) = identity.device_and_inode();
        Self::File { device, inode }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(tgid) => write!(f, "the memory of process {tgid}"),
            Self::Mappings(tgid) => write!(f, "what process {tgid} has mapped"),
            Self::Arguments(tgid) => write!(f, "the arguments of process {tgid}"),
            Self::Root(tgid) => write!(f, "files below the root directory of process {tgid}"),
            Self::Descriptor(tgid) => write!(f, "an open file of process {tgid}"),
            Self::Directory(path) => write!(f, "files in {path}"),
            Self::File { device: (major, minor), inode } => {
                write!(f, "file {inode} of device {major}:{minor}")
            }
        }
    }
}

/// From offwake to the reader.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Opens `/proc/PID/mem`, or, as a name alone (`O_PATH`), a link of `/proc/PID` or a path of this machine.
    Open { path: String, how: How },
    /// Lists the directories in a directory of this machine, and so many at most, each after a zero byte.
    ListDirectories { path: String, limit: u32 },
    /// Opens a path inside of a process's root, as a name alone.
    OpenBelow { tgid: Tgid, path: String, last: LastLink },
    /// Opens for reading what comes as a name alone, if it is a regular file that answers. The reply
    /// has it in a [box](parser::box_file).
    OpenHeld,
    /// Reads the entry `name` of the directory that comes with this, which is in `/proc`.
    ReadEntry { name: String, limit: u32 },
    /// Reads so many bytes of the file that comes with this, up to the first page that can't be
    /// read.
    ReadMemory { address: u64, length: u32 },
    /// Reads so many bytes of the first file that comes with this, if all of their pages are in memory
    /// by the second, a `pagemap`.
    ReadResident { address: u64, length: u32 },
    /// Reads these pages of the file that comes with this.
    ReadPages { pages: Vec<u64> },
    /// Reads the executable mappings of a process.
    ReadMappings { tgid: Tgid },
    /// Describes the program or library that comes with this, as a name alone.
    Describe { identity: FileIdentity },
    /// Copies the file that comes with this, as a name alone, unless it is longer.
    Copy { limit: u64 },
    /// Finds variables of threads in the program or library that comes with this, as a name alone.
    FindTlsSymbols { identity: FileIdentity, queries: Vec<TlsQuery> },
    /// Finds where the program that comes with this, as a name alone, keeps the labels of
    /// goroutines.
    FindGoroutineLabels { identity: FileIdentity },
    /// Finds a function or a probe in the program or library that comes with this, as a name alone.
    FindProbePoints { query: ProbeQuery },
    /// Finds where a process has the first mapping whose name begins with one of these.
    FindNamedMapping { tgid: Tgid, beginnings: Vec<String> },
}

/// How a link is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum How {
    /// To be read.
    Read,
    /// As a name alone.
    Name,
    /// As a name alone, be it a link's own.
    OwnName,
}

/// From the reader to offwake.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply<'a> {
    /// The error's number.
    Failed(i32),
    /// The file comes with this, as a name alone or in a box, unless it is of `/proc`.
    File(FileStat),
    /// The bytes that were wanted.
    Bytes(#[serde(with = "parser::bytes")] Cow<'a, [u8]>),
    /// They come in a file in memory that has so many.
    LongBytes(u64),
    /// Which of the pages could be read, and their bytes.
    Pages {
        is_there: Vec<bool>,
        #[serde(with = "parser::bytes")]
        bytes: Cow<'a, [u8]>,
    },
    /// What the file is.
    Description(Option<Described>),
    /// Where the file has those variables that it has, with the numbers of the queries.
    TlsSymbols(Vec<(usize, TlsSymbol)>),
    /// Where the program keeps labels; none if it is not in Go, or labels nothing.
    GoroutineLabels(Option<GoroutineLabels>),
    /// Where the file has the function or the probe.
    ProbePoints(Result<Vec<ProbePoint>, ProbeRefusal>),
    /// The address of the mapping.
    NamedMapping(Option<u64>),
}

/// What is asked about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStat {
    pub identity: FileIdentity,
    /// The type and the permissions.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
}

impl FileStat {
    pub(crate) fn new(stat: &Statx) -> Self {
        let identity = FileIdentity::from_stat(stat);
        Self { identity, mode: stat.stx_mode.into(), uid: stat.stx_uid }
    }
}

/// The executable mappings of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mappings {
    pub lines: Vec<MappedLine>,
    /// There were more than the limit.
    pub more: bool,
    /// The bytes of the vDSO.
    pub vdso: Option<Vec<u8>>,
}

/// A line of `maps`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MappedLine {
    pub start: u64,
    pub end: u64,
    /// Offset into the file.
    pub offset: u64,
    /// Path or bracketed name as the kernel shows it, cut to a length; empty for anonymous memory.
    pub name: String,
    /// Which file it is, if that could be asked.
    pub file: Option<FileIdentity>,
    /// Whether a file that has no name but in memory begins as a program does.
    pub is_elf: bool,
}

/// [`ModuleDescription`], in a message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Described {
    build_id: Option<Vec<u8>>,
    /// Offset, address and size.
    segments: Vec<(u64, u64, u64)>,
    left_out: u64,
}

impl From<ModuleDescription> for Described {
    fn from(from: ModuleDescription) -> Self {
        let ModuleDescription { build_id, segments, left_out } = from;
        let of = |segment: Segment| (segment.offset, segment.address, segment.size);
        Self {
            build_id: build_id.map(|id| id.bytes().to_vec()),
            segments: segments.into_iter().map(of).collect(),
            left_out: left_out as u64,
        }
    }
}

impl From<Described> for ModuleDescription {
    fn from(from: Described) -> Self {
        let Described { build_id, segments, left_out } = from;
        let segment = |(offset, address, size)| Segment { offset, address, size };
        Self {
            build_id: build_id.and_then(|id| BuildId::new(&id)),
            segments: segments.into_iter().map(segment).collect(),
            left_out: usize::try_from(left_out).unwrap_or(usize::MAX),
        }
    }
}
