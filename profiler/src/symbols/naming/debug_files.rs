//! Finds the files on this machine that have the names of a build.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use object::ReadCache;
use offwake_recording::{
    BuildId, Module,
    loss::{Diagnostics, count},
};
use offwake_unwind::elf::build_id;
use rustix::fs::FileType;

use super::{elf_names::NameFile, open_file::OpenFile};
use crate::{
    reader_process::{self, FileStat},
    symbols::address_spaces::{
        held_file::{Trust, open_directly},
        modules::undeleted,
        proc_maps::read_own_vdso,
    },
};

/// Where the packages of a distribution put the names that they took out of its files.
const SYSTEM: &str = "/usr/lib/debug";

/// Directories in which files with names are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugDirectories {
    directories: Vec<PathBuf>,
}

impl Default for DebugDirectories {
    fn default() -> Self {
        Self::new([])
    }
}

impl DebugDirectories {
    /// These directories, then `/usr/lib/debug`.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { directories: directories.into_iter().chain([PathBuf::from(SYSTEM)]).collect() }
    }

    /// Paths at which the file of a module may be, or another one of the same build.
    ///
    /// <https://sourceware.org/gdb/current/onlinedocs/gdb.html/Separate-Debug-Files.html>
    fn paths(&self, path: &str, build_id: &BuildId) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        let name = path.rsplit('/').next().unwrap_or_default();
        for directory in &self.directories {
            paths.extend(by_build_id(directory, build_id).into_iter().flatten());
            if !name.is_empty() {
                paths.push(directory.join(format!("{name}.debug")));
                paths.push(directory.join(name));
            }
        }
        // Not one that depends on where we were started.
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
        paths
    }
}

impl DebugDirectories {
    /// The files that are stored under a build id. Whether they are of that build is not checked
    /// here.
    pub(crate) fn stored(&self, build_id: &BuildId) -> Vec<(OwnedFd, Trust)> {
        let paths = self.directories.iter().filter_map(|in_| by_build_id(in_, build_id)).flatten();
        found(paths).map(|FoundFile { held, stat }| (held, trust_of(stat))).collect()
    }
}

/// Where a folder has what belongs to a build id: debug information, and the file itself.
fn by_build_id(directory: &Path, build_id: &BuildId) -> Option<[PathBuf; 2]> {
    let hex = build_id.to_string();
    let (first, rest) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    let folder = directory.join(".build-id").join(first);
    Some([folder.join(format!("{rest}.debug")), folder.join(rest)])
}

/// The files that were found of one module.
pub(crate) struct FoundFiles {
    /// Files of its build, those that know most first.
    pub files: Vec<NameFile>,
    /// Whether there were files of other builds.
    pub others: bool,
}

/// Looks for the files of a module's build.
pub(crate) fn find_files(
    module: &Module,
    build_id: &BuildId,
    directories: &DebugDirectories,
    diagnostics: &mut Diagnostics,
) -> FoundFiles {
    let mut found = FoundFiles { files: Vec::new(), others: false };
    for FoundFile { held, stat } in
        self::found(directories.paths(undeleted(&module.path), build_id))
    {
        let Ok(file) = open_directly(&held) else { continue };
        if !has_build_id(&file, build_id) {
            found.others = true;
            continue;
        }
        match OpenFile::for_own_reading(file, trust_of(stat)).and_then(NameFile::new) {
            // The copy of a stranger's file can be of something else by now.
            Ok(readable) if readable.has_build_id(build_id) => found.files.push(readable),
            Ok(_) => found.others = true,
            Err(diagnostic) => count(diagnostics, diagnostic),
        }
    }
    // The kernel's own, which is no file.
    if module.path == "[vdso]"
        && let Some(image) = read_own_vdso()
        && build_id::from_file(image.as_slice()).as_ref() == Some(build_id)
        && let Ok(readable) = OpenFile::from_image(&image).and_then(NameFile::new)
    {
        found.files.push(readable);
    }
    found.files.sort_by_key(NameFile::knowledge);
    found
}

/// What lies at these paths and may be an ELF file, each once.
fn found(paths: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = FoundFile> {
    let mut seen = Vec::new();
    paths.into_iter().filter_map(move |path| {
        let found = find(&path)?;
        let identity = found.stat.identity.device_and_inode();
        let is_new = !seen.contains(&identity);
        seen.push(identity);
        is_new.then_some(found)
    })
}

fn has_build_id(file: &File, build_id: &BuildId) -> bool {
    build_id::from_file(&ReadCache::new(file)).as_ref() == Some(build_id)
}

/// A file that is held by its name alone.
struct FoundFile {
    held: OwnedFd,
    stat: FileStat,
}

/// Finds what may be an ELF file. The path may come from a recording: it can lead to anything.
fn find(path: &Path) -> Option<FoundFile> {
    // A name alone first: opening a device's node can make it do things.
    let (held, stat) = reader_process::open_path(path).ok()?;
    // The kernel's own files can do things when they are read. All but those in sysfs are empty, and
    // those are not opened.
    let is_file = FileType::from_raw_mode(stat.mode) == FileType::RegularFile;
    (is_file && stat.identity.size() > 0).then_some(FoundFile { held, stat })
}

fn trust_of(stat: FileStat) -> Trust {
    match (stat.uid, stat.mode & 0o022) {
        (0, 0) => Trust::System,
        (owner, 0) if owner == rustix::process::geteuid().as_raw() => Trust::Own,
        _ => Trust::Stranger,
    }
}
