//! The files that are mapped as code: each is held open from first sight on, once.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use offwake_recording::{
    self, ModuleId,
    loss::{Diagnostics, add_all, count},
    units::Tgid,
};
use offwake_unwind::{FileContent, ModuleFiles};
use rustix::{
    fs::{CWD, FileType},
    process::{Resource, Rlimit},
};

use super::{
    description::ModuleDescription,
    description_reader::{DescriptionReader, FileToDescribe},
    held_file::{FileIdentity, Trust, is_unchanged, stat},
    kernel,
    process_root::LastLink,
};
use crate::{
    reader_process::{self, FileStat, MappedLine},
    symbols::name_limit::cut_name,
};

/// Files held at most, whatever the limit of open files allows.
const MAX_HELD: usize = 16_384;
/// Distinct modules, held or not.
const MAX_MODULES: usize = 262_144;
/// Bytes of the paths of modules that are not in the recording yet, and of those that have no file.
const MAX_PATH_BYTES: usize = 64 << 20;
/// Descriptors left to the rest of the program.
const RESERVED: u64 = 256;
/// Distinct vDSOs kept: more than the kernel has kinds of programs.
const MAX_VDSOS: usize = 16;

/// How a module's bytes can be had.
#[derive(Clone)]
pub(crate) enum ModuleContent {
    /// The bytes of a file, held by an `O_PATH` descriptor: it stays reachable when it is deleted.
    Held { file: Arc<OwnedFd>, identity: FileIdentity, trust: Trust },
    /// The bytes themselves.
    Image(Arc<[u8]>),
    /// There are none, or they could not be had.
    Missing,
}

/// A mapped file.
pub(crate) struct Module {
    /// The path of the file as `maps` showed it first, until the recording has it.
    path: Option<String>,
    /// How the bytes of the module can be had.
    pub content: ModuleContent,
}

/// Every mapped file that was seen.
pub(crate) struct Modules {
    modules: Vec<Module>,
    by_identity: HashMap<FileIdentity, ModuleId>,
    missing: HashMap<String, ModuleId>,
    path_bytes: usize,
    vdsos: Vec<ModuleId>,
    held: usize,
    held_limit: usize,
    limit_raised: bool,
    own_mounts: Option<u64>,
    kernel: Option<ModuleId>,
    descriptions: DescriptionReader,
    /// Files that are mapped for the first time.
    new_files: Vec<(ModuleId, FileToDescribe)>,
    new: Vec<(ModuleId, offwake_recording::Module)>,
    diagnostics: Diagnostics,
}

impl Modules {
    pub(crate) fn new() -> Self {
        let soft = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self {
            modules: Vec::new(),
            by_identity: HashMap::new(),
            missing: HashMap::new(),
            path_bytes: 0,
            vdsos: Vec::new(),
            held: 0,
            held_limit: held_limit(soft),
            limit_raised: false,
            own_mounts: mount_namespace("self"),
            kernel: None,
            descriptions: DescriptionReader::new(),
            new_files: Vec::new(),
            new: Vec::new(),
            diagnostics: Diagnostics::new(),
        }
    }

    pub(crate) fn get(&self, id: ModuleId) -> Option<&Module> {
        self.modules.get(id.0 as usize)
    }

    /// Makes a module that a frame lies in part of the recording.
    pub(crate) fn refer_to(&mut self, id: ModuleId) {
        let Some(module) = self.modules.get_mut(id.0 as usize) else { return };
        let Some(path) = module.path.take() else { return };
        self.path_bytes = self.path_bytes.saturating_sub(path.len());
        let description = match &module.content {
            ModuleContent::Missing => ModuleDescription::default(),
            ModuleContent::Image(image) => ModuleDescription::read(&**image),
            ModuleContent::Held { file, identity, .. } => {
                let job = FileToDescribe { file: Arc::clone(file), identity: *identity };
                return self.descriptions.request(id, path, job);
            }
        };
        self.new.push((id, description.into_module(path, &mut self.diagnostics)));
    }

    /// Drains the modules that frames came to refer to. A file that is still being read comes
    /// later.
    pub(crate) fn drain_new(&mut self) -> Vec<(ModuleId, offwake_recording::Module)> {
        let mut new = std::mem::take(&mut self.new);
        new.append(&mut self.descriptions.drain_ready());
        new
    }

    /// Drains the files that were mapped for the first time.
    pub(crate) fn drain_new_files(&mut self) -> Vec<(ModuleId, FileToDescribe)> {
        std::mem::take(&mut self.new_files)
    }

    /// Drains all modules that are left.
    pub(crate) fn drain_all(&mut self) -> Vec<(ModuleId, offwake_recording::Module)> {
        let mut rest = std::mem::take(&mut self.new);
        rest.append(&mut self.descriptions.drain_all());
        rest
    }

    /// The module of the kernel itself.
    pub(crate) fn kernel(&mut self) -> Option<ModuleId> {
        if self.kernel.is_none() {
            let id = self.add(Module { path: None, content: ModuleContent::Missing })?;
            let (path, build_id) = (kernel::MODULE.to_owned(), kernel::build_id());
            self.new.push((id, offwake_recording::Module { path, build_id, segments: Vec::new() }));
            self.kernel = Some(id);
        }
        self.kernel
    }

    /// The module behind a mapping of a file; opens the file if it is new. None if there is no room
    /// for another module.
    pub(crate) fn file_module(
        &mut self,
        tgid: Tgid,
        mounts: Option<u64>,
        line: &MappedLine,
    ) -> Option<ModuleId> {
        // The file may be held already.
        if let Some(&id) = line.file.as_ref().and_then(|file| self.by_identity.get(file)) {
            return Some(id);
        }
        if self.held >= self.held_limit && !self.raise_limit() {
            self.count("symbols_files_over_limit");
            return self.named_module(&line.name);
        }
        let Some((file, stat)) = open_mapped(tgid, line) else {
            self.count("symbols_files_unopened");
            return self.named_module(&line.name);
        };
        // Opening a device's node can make it do things.
        if FileType::from_raw_mode(stat.mode) != FileType::RegularFile {
            return self.named_module(&line.name);
        }
        let identity = stat.identity;
        if let Some(&id) = self.by_identity.get(&identity) {
            return Some(id);
        }
        let only_root_writes = stat.uid == 0 && stat.mode & 0o022 == 0;
        let trust = if only_root_writes && mounts.is_some() && mounts == self.own_mounts {
            Trust::System
        } else {
            Trust::Stranger
        };
        let file = Arc::new(file);
        let content = ModuleContent::Held { file: Arc::clone(&file), identity, trust };
        let id = self.add(Module { path: Some(line.name.clone()), content })?;
        self.held += 1;
        self.new_files.push((id, FileToDescribe { file, identity }));
        self.by_identity.insert(identity, id);
        Some(id)
    }

    /// The module of a process's vDSO, by its bytes: a 32-bit program has another one.
    pub(crate) fn vdso_module(&mut self, image: Option<&[u8]>, name: &str) -> Option<ModuleId> {
        let Some(image) = image else { return self.named_module(name) };
        let same = self.vdsos.iter().find(|&&id| {
            matches!(self.get(id), Some(Module { content: ModuleContent::Image(bytes), .. }) if **bytes == *image)
        });
        if let Some(&id) = same {
            return Some(id);
        }
        if self.vdsos.len() >= MAX_VDSOS {
            return self.named_module(name);
        }
        let id = self.add(Module {
            path: Some(name.to_owned()),
            content: ModuleContent::Image(image.into()),
        })?;
        self.vdsos.push(id);
        Some(id)
    }

    /// A module of which nothing but the name can be had, as of memory.
    pub(crate) fn named_module(&mut self, name: &str) -> Option<ModuleId> {
        if let Some(&id) = self.missing.get(name) {
            return Some(id);
        }
        // Twice: here it is kept for good.
        let module = Module { path: Some(name.to_owned()), content: ModuleContent::Missing };
        let id = self.add_with(module, 2 * name.len())?;
        self.missing.insert(name.to_owned(), id);
        Some(id)
    }

    fn add(&mut self, module: Module) -> Option<ModuleId> {
        let length = module.path.as_ref().map_or(0, String::len);
        self.add_with(module, length)
    }

    /// Adds a module whose paths have so many bytes.
    fn add_with(&mut self, module: Module, length: usize) -> Option<ModuleId> {
        if self.modules.len() >= MAX_MODULES || self.path_bytes + length > MAX_PATH_BYTES {
            self.count("symbols_modules_over_limit");
            return None;
        }
        let id = ModuleId(u32::try_from(self.modules.len()).ok()?);
        self.path_bytes += length;
        self.modules.push(module);
        Some(id)
    }

    /// Raises the soft limit of open files to the hard one, once. Whoever starts a child after that
    /// passes the higher limit on.
    fn raise_limit(&mut self) -> bool {
        if std::mem::replace(&mut self.limit_raised, true) {
            return false;
        }
        let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
        let raised = Rlimit { current: hard, maximum: hard };
        if rustix::process::setrlimit(Resource::Nofile, raised).is_err() {
            return false;
        }
        self.held_limit = held_limit(hard.unwrap_or(u64::MAX));
        self.held < self.held_limit
    }

    fn count(&mut self, name: &'static str) {
        count(&mut self.diagnostics, name);
    }

    pub(crate) fn add_diagnostics(&self, all: &mut Diagnostics) {
        add_all(all, &self.diagnostics);
        add_all(all, self.descriptions.diagnostics());
    }
}

/// How many files may be held under a limit of open files.
fn held_limit(limit: u64) -> usize {
    usize::try_from(limit.saturating_sub(RESERVED)).map_or(MAX_HELD, |room| room.min(MAX_HELD))
}

/// The mount namespace of a process, as a number; none if it is gone.
pub(crate) fn mount_namespace(process: impl std::fmt::Display) -> Option<u64> {
    Some(stat(CWD, &format!("/proc/{process}/ns/mnt")).ok()?.stx_ino)
}

/// Opens what is mapped, as a name alone (`O_PATH`), and makes sure that it is that file.
fn open_mapped(tgid: Tgid, line: &MappedLine) -> Option<(OwnedFd, FileStat)> {
    let (file, stat) = reader_process::open_mapped(tgid, line.start, line.end)
        .ok()
        // `map_files` wants CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. The path will do, followed
        // inside of the process's own root.
        .or_else(|| reader_process::open_below(tgid, &line.name, LastLink::Followed).ok())?;
    // Between reading `maps` and opening, the process can have become another program that has
    // something else at the same addresses. Both names are made by the kernel's d_path().
    (link_of(&file)? == undeleted(&line.name)).then_some((file, stat))
}

fn link_of(file: impl AsFd) -> Option<String> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let name = rustix::fs::readlink(link, Vec::new()).ok()?;
    // `maps` writes a newline in a path as \012, and nothing else.
    let name = cut_name(&name.to_string_lossy().replace('\n', "\\012"));
    Some(undeleted(&name).to_owned())
}

/// A path without what `maps` puts behind that of a file that has no name any more.
pub(crate) fn undeleted(name: &str) -> &str {
    name.strip_suffix(" (deleted)").unwrap_or(name)
}

impl ModuleFiles for Modules {
    fn content(&self, module: ModuleId) -> Option<FileContent> {
        match &self.get(module)?.content {
            ModuleContent::Missing => None,
            ModuleContent::Image(image) => Some(FileContent::Image(Arc::clone(image))),
            // What is in the file now must be what ran.
            ModuleContent::Held { file, identity, .. } => {
                let boxed = reader_process::open_held(file).ok()?;
                // The process that unwinds unpacks it, and nobody else reads it.
                is_unchanged(file, *identity).then(|| FileContent::File(boxed.into()))
            }
        }
    }
}

#[cfg(test)]
impl Module {
    /// A stranger's file, held.
    pub(crate) fn held(path: &std::path::Path) -> Self {
        let file = rustix::fs::open(
            path,
            rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let identity = FileIdentity::from_stat(&stat(&file, "").unwrap());
        let file = Arc::new(file);
        let content = ModuleContent::Held { file, identity, trust: Trust::Stranger };
        Self { path: Some(path.display().to_string()), content }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program can map 262,144 files of 4 KiB names, one after the other.
    #[test]
    fn names_of_modules_take_so_many_bytes_and_what_has_no_room_is_counted() {
        let mut modules = Modules::new();
        let name = |number: usize| format!("//anon/{number}{}", "x".repeat(4000));
        let mut added = 0;
        while modules.named_module(&name(added)).is_some() {
            added += 1;
        }
        assert!(modules.path_bytes <= MAX_PATH_BYTES, "{}", modules.path_bytes);
        assert!(added * 2 * 4000 > MAX_PATH_BYTES - (1 << 20), "{added}");
        let mut counted = Diagnostics::new();
        modules.add_diagnostics(&mut counted);
        assert_eq!(counted.get("symbols_modules_over_limit"), Some(&1));
        // What is known already is found, and what the recording has takes no room.
        assert!(modules.named_module(&name(0)).is_some());
        for id in 0..added {
            modules.refer_to(ModuleId(u32::try_from(id).unwrap()));
        }
        assert!(modules.named_module(&name(added)).is_some());
    }
    #[test]
    fn files_that_can_not_be_held_open_are_known_by_their_names_and_counted() {
        let mut modules = Modules::new();
        (modules.held_limit, modules.limit_raised) = (0, true);
        let name = "/usr/lib/x.so".to_owned();
        let (start, end) = (0x1000, 0x2000);
        let line = MappedLine { start, end, offset: 0, file: None, name, is_elf: false };
        let module = modules.file_module(Tgid(std::process::id()), None, &line).unwrap();
        assert_eq!(modules.held, 0);
        let module = modules.get(module).unwrap();
        assert!(matches!(module.content, ModuleContent::Missing));
        assert_eq!(module.path.as_deref(), Some("/usr/lib/x.so"));
        assert_eq!(modules.diagnostics.get("symbols_files_over_limit"), Some(&1));
    }
}
