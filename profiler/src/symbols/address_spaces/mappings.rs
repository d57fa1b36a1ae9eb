//! The executable mappings of a process, as they were read.

use std::rc::Rc;

use offwake_recording::{ModuleId, units::Tgid};
use offwake_unwind::{CodeBacking, CodeMapping};

use super::{
    byte_account::{ByteAccount, HeldBytes},
    modules::{Modules, mount_namespace},
    proc_maps::is_in_memory_file,
};
use crate::{decode::CodeEpoch, reader_process::Mappings};

/// What is behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// A file, or the vDSO.
    Module(ModuleId),
    /// Memory without a file that holds code. The module has its name.
    Memory(ModuleId),
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub backing: Backing,
}

/// A mapped file that may be, or hold, a CPython: its name says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PythonCandidate {
    pub module: ModuleId,
    /// Where the mapping begins.
    pub start: u64,
    /// Which offset in the file is there.
    pub offset: u64,
    pub path: String,
}

/// All that a process had mapped as code at one reading of its `maps`.
#[derive(Clone)]
pub(crate) struct MappingSnapshot {
    pub mappings: Rc<[Mapping]>,
    /// The mappings as the unwinder wants them.
    pub code: Rc<[CodeMapping]>,
    /// The epoch in which all of this was mapped. None if the kernel reports no epochs, or if the
    /// snapshot was a parent's.
    pub code_epoch: Option<CodeEpoch>,
    _bytes: Option<Rc<HeldBytes>>,
}

/// What all mappings of all processes may take, those of programs that they ran before included.
const MAX_BYTES: usize = 256 << 20;
static BYTES: ByteAccount = ByteAccount::new(MAX_BYTES);
/// What the paths of files may take that may be a CPython.
static PYTHON_BYTES: ByteAccount = ByteAccount::new(16 << 20);

/// Files that may be a CPython, of one process.
#[derive(Clone, Default)]
pub(crate) struct PythonCandidates {
    files: Rc<[PythonCandidate]>,
    _bytes: Option<Rc<HeldBytes>>,
}

impl PythonCandidates {
    /// Those of a process. None if there is no room for them.
    pub(crate) fn new(files: Vec<PythonCandidate>) -> Option<Self> {
        if files.is_empty() {
            return Some(Self::default());
        }
        let bytes = files.iter().map(|file| size_of::<PythonCandidate>() + file.path.len()).sum();
        Some(Self { files: files.into(), _bytes: Some(Rc::new(PYTHON_BYTES.reserve(bytes)?)) })
    }

    pub(crate) fn files(&self) -> &[PythonCandidate] {
        &self.files
    }
}

impl MappingSnapshot {
    /// None if there is no room for so many mappings.
    pub(crate) fn new(mappings: Vec<Mapping>, code_epoch: Option<CodeEpoch>) -> Option<Self> {
        let each = size_of::<Mapping>() + size_of::<CodeMapping>();
        let bytes = Rc::new(BYTES.reserve(mappings.len().saturating_mul(each))?);
        let code = mappings.iter().map(Mapping::as_code).collect();
        Some(Self { mappings: mappings.into(), code, code_epoch, _bytes: Some(bytes) })
    }

    pub(crate) fn empty() -> Self {
        Self { mappings: Rc::new([]), code: Rc::new([]), code_epoch: None, _bytes: None }
    }

    /// The same, mapped in this epoch.
    pub(crate) fn in_epoch(self, code_epoch: Option<CodeEpoch>) -> Self {
        Self { code_epoch, ..self }
    }

    /// The mapping at an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        self.mappings[..after].last().filter(|mapping| address < mapping.end)
    }

    /// Whether code of a file was mapped here that is not mapped there `now`. Code that was made at
    /// run time comes and goes, and no frame's name depends on its mapping.
    pub(crate) fn has_lost_code(&self, now: &Self) -> bool {
        let is_file = |mapping: &&Mapping| matches!(mapping.backing, Backing::Module(_));
        self.mappings.iter().filter(is_file).any(|mapping| !now.mappings.contains(mapping))
    }
}

/// Finds the modules of the lines. The second value are the files that may be a CPython.
pub(crate) fn resolve_lines(
    tgid: Tgid,
    Mappings { lines, vdso, .. }: Mappings,
    modules: &mut Modules,
) -> (Vec<Mapping>, Vec<PythonCandidate>) {
    let mounts = mount_namespace(tgid);
    let mut mappings = Vec::with_capacity(lines.len());
    let mut pythons = Vec::new();
    for line in lines {
        // The kernel's own mappings have brackets, files a leading slash; `//anon`,
        // `/dev/zero`, `/memfd:` and `/SYSV` are memory that has a file only inside the kernel.
        let memory = ["//anon", "/dev/zero", "/memfd:", "/SYSV", "/anon_hugepage"]
            .iter()
            .any(|prefix| line.name.starts_with(prefix));
        let backing = if line.name == "[vdso]" {
            modules.vdso_module(vdso.as_deref(), &line.name).map(Backing::Module)
        } else if line.name.starts_with('/') && !memory {
            modules.file_module(tgid, mounts, &line).map(Backing::Module)
        } else if line.name == "[vsyscall]" {
            modules.named_module(&line.name).map(Backing::Module)
        } else if is_in_memory_file(&line.name) && line.is_elf {
            modules.file_module(tgid, mounts, &line).map(Backing::Module)
        } else {
            let name = if line.name.is_empty() { "[anon]" } else { &line.name };
            modules.named_module(name).map(Backing::Memory)
        };
        if let Some(backing) = backing {
            let (start, end, offset) = (line.start, line.end, line.offset);
            if let Backing::Module(module) = backing
                && is_named_python(&line.name)
            {
                let path = line.name.clone();
                pythons.push(PythonCandidate { module, start, offset, path });
            }
            mappings.push(Mapping { start, end, offset, backing });
        }
    }
    (mappings, pythons)
}

impl Mapping {
    /// The mapping as the unwinder wants it.
    fn as_code(&self) -> CodeMapping {
        let &Self { start, end, offset, ref backing } = self;
        let backing = match backing {
            Backing::Module(module) => CodeBacking::File(*module),
            Backing::Memory(_) => CodeBacking::Memory,
        };
        CodeMapping { start, end, offset, backing }
    }
}

/// Whether a file's name is one of Python's.
fn is_named_python(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.contains("python"))
}
