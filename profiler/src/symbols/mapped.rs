//! What a process has mapped, as it was read.

use std::{fs::File, os::unix::fs::FileExt as _, rc::Rc};

use offwake_unwind::CodeMapping;

use super::{
    maps::{Backing, Line, Mapping},
    modules::{Modules, mount_namespace},
    python::MappedAt,
    pythons::Candidate,
};
use crate::{decode::CodeEpoch, units::Tgid};

/// What was mapped, as it was read.
#[derive(Clone)]
pub(super) struct Reading {
    pub mappings: Rc<[Mapping]>,
    /// The same for the unwinder.
    pub code: Rc<[CodeMapping]>,
    /// All of it was so in this epoch; none if the kernel tells of none, or if it was a parent's.
    pub code_epoch: Option<CodeEpoch>,
}

impl Reading {
    pub(super) fn nothing() -> Self {
        Self { mappings: Rc::new([]), code: Rc::new([]), code_epoch: None }
    }

    /// What is at an address.
    pub(super) fn find(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        self.mappings[..after].last().filter(|mapping| address < mapping.end)
    }

    /// Whether it had code that is not where it was. What was made at run time comes and goes, and no
    /// frame's name depends on its mapping.
    pub(super) fn lost_any(&self, now: &Self) -> bool {
        let is_file = |mapping: &&Mapping| matches!(mapping.backing, Backing::Module(_));
        self.mappings.iter().filter(is_file).any(|mapping| !now.mappings.contains(mapping))
    }
}

/// The lines as what is in them, and the files that may be a CPython.
pub(super) fn as_mappings(
    tgid: Tgid,
    lines: Vec<Line>,
    modules: &mut Modules,
) -> (Vec<Mapping>, Vec<Candidate>) {
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
            modules.of_vdso(tgid, &line).map(Backing::Module)
        } else if line.name.starts_with('/') && !memory {
            modules.of_file(tgid, mounts, &line).map(Backing::Module)
        } else if line.name == "[vsyscall]" {
            modules.missing(&line.name).map(Backing::Module)
        } else if line.name.starts_with("/memfd:") && starts_as_elf(tgid, &line) {
            modules.of_file(tgid, mounts, &line).map(Backing::Module)
        } else {
            let name = if line.name.is_empty() { "[anon]" } else { &line.name };
            modules.missing(name).map(Backing::Memory)
        };
        if let Some(backing) = backing {
            let (start, end, offset) = (line.start, line.end, line.offset);
            if let Backing::Module(module) = backing
                && Candidate::is_named(&line.name)
            {
                let mapped = MappedAt { start, offset };
                pythons.push(Candidate { module, mapped, path: line.name.clone() });
            }
            mappings.push(Mapping { start, end, offset, backing });
        }
    }
    (mappings, pythons)
}

/// Programs are run from a memfd, and JITs map one twice: only the former begin as ELF files do.
fn starts_as_elf(tgid: Tgid, line: &Line) -> bool {
    // The code segment begins behind the header: the file itself has it.
    let link = format!("/proc/{tgid}/map_files/{:x}-{:x}", line.start, line.end);
    let mut magic = [0; 4];
    File::open(link)
        .is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF")
}
