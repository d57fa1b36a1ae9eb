//! Where files lie that have names, and which of them are of a build.

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use object::ReadCache;
use offwake_unwind::elf::build_id;
use rustix::fs::{CWD, FileType, FsWord, Mode, OFlags, Stat};

use super::{
    Shortfalls, count,
    elf::Readable,
    handed::Handed,
    identify,
    maps::own_vdso,
    modules::{Trust, undeleted},
};
use crate::recording::{BuildId, Module};

/// Where the packages of a distribution put the names that they took out of its files.
const SYSTEM: &str = "/usr/lib/debug";

/// `SYSFS_MAGIC`.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/magic.h>
const SYSFS: FsWord = 0x6265_6572;

/// Folders in which files with names are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugPlaces {
    directories: Vec<PathBuf>,
}

impl Default for DebugPlaces {
    fn default() -> Self {
        Self::new([])
    }
}

impl DebugPlaces {
    /// These folders, then `/usr/lib/debug`.
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

impl DebugPlaces {
    /// The files that are kept apart by build id. Nobody has looked whether they are of that build.
    pub(super) fn kept(&self, build_id: &BuildId) -> Vec<(File, Trust)> {
        let paths = self.directories.iter().filter_map(|in_| by_build_id(in_, build_id)).flatten();
        opened(paths).map(|Opened { file, stat }| (file, trust(&stat))).collect()
    }
}

/// Where a folder has what belongs to a build id: debug information, and the file itself.
fn by_build_id(directory: &Path, build_id: &BuildId) -> Option<[PathBuf; 2]> {
    let hex = build_id.to_string();
    let (first, rest) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    let folder = directory.join(".build-id").join(first);
    Some([folder.join(format!("{rest}.debug")), folder.join(rest)])
}

/// What was found of one module.
pub(super) struct Found {
    /// Files of its build, those that know most first.
    pub files: Vec<Readable>,
    /// Whether there were files of other builds.
    pub others: bool,
}

/// Looks for the files of a module's build.
pub(super) fn find(
    module: &Module,
    build_id: &BuildId,
    places: &DebugPlaces,
    shortfalls: &mut Shortfalls,
) -> Found {
    let mut found = Found { files: Vec::new(), others: false };
    for Opened { file, stat } in opened(places.paths(undeleted(&module.path), build_id)) {
        if !is_of(&file, build_id) {
            found.others = true;
            continue;
        }
        match Handed::here(file, trust(&stat)).and_then(Readable::new) {
            // The copy of a stranger's file can be of something else by now.
            Ok(readable) if readable.is_of(build_id) => found.files.push(readable),
            Ok(_) => found.others = true,
            Err(shortfall) => count(shortfalls, shortfall),
        }
    }
    // The kernel's own, which is no file.
    if module.path == "[vdso]"
        && let Some(image) = own_vdso()
        && build_id::from_file(image.as_slice()).as_ref() == Some(build_id)
        && let Ok(readable) = Handed::image(&image).and_then(Readable::new)
    {
        found.files.push(readable);
    }
    found.files.sort_by_key(Readable::knowledge);
    found
}

/// What lies at these paths and may be an ELF file, each once.
fn opened(paths: impl IntoIterator<Item = PathBuf>) -> impl Iterator<Item = Opened> {
    let mut seen = Vec::new();
    paths.into_iter().filter_map(move |path| {
        let opened = open(&path)?;
        let identity = (opened.stat.st_dev, opened.stat.st_ino);
        let is_new = !seen.contains(&identity);
        seen.push(identity);
        is_new.then_some(opened)
    })
}

fn is_of(file: &File, build_id: &BuildId) -> bool {
    build_id::from_file(&ReadCache::new(file)).as_ref() == Some(build_id)
}

struct Opened {
    file: File,
    stat: Stat,
}

/// Opens what may be an ELF file. The path may come from a recording: it can lead to anything.
fn open(path: &Path) -> Option<Opened> {
    // A name alone first: opening a device's node can make it do things.
    let held: OwnedFd =
        rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&held).ok()?;
    // The kernel's own files can do things when they are read. All but those in sysfs are empty.
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_size <= 0 || rustix::fs::fstatfs(&held).ok()?.f_type == SYSFS {
        return None;
    }
    Some(Opened { file: identify::open(&held)?, stat })
}

fn trust(stat: &Stat) -> Trust {
    match (stat.st_uid, stat.st_mode & 0o022) {
        (0, 0) => Trust::System,
        (owner, 0) if owner == rustix::process::geteuid().as_raw() => Trust::Own,
        _ => Trust::Stranger,
    }
}
