//! The files that are mapped as code: each is held open from first sight on, once.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags},
    process::{Resource, Rlimit},
};
use serde::{Deserialize, Serialize};

use super::{
    Shortfalls,
    description::Description,
    identify::{Identifier, Job},
    kernel,
    maps::{self, Line},
    own_root::{LastLink, OwnRoot},
};
use crate::{
    recording::{self, ModuleId, loss::add_all},
    units::Tgid,
};

/// Files held at most, whatever the limit of open files allows.
const MAX_HELD: usize = 16_384;
/// Distinct modules, held or not.
const MAX_MODULES: usize = 262_144;
/// Descriptors left to the rest of the program.
const RESERVED: u64 = 256;
/// Distinct vDSOs kept: one for each kind of program that the kernel runs, with room.
const MAX_VDSOS: usize = 16;

/// What makes a file the same file with the same content.
///
/// From `stat`, not from `maps`: there, Btrfs shows one device for all its subvolumes, so that
/// two files can share device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: (u32, u32),
    inode: u64,
    size: u64,
    modified: (i64, u32),
}

impl Identity {
    fn of(stat: &Statx) -> Self {
        Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        }
    }

    #[cfg(test)]
    pub(super) fn of_file(file: impl AsFd) -> rustix::io::Result<Self> {
        Ok(Self::of(&stat(file, "")?))
    }
}

/// Asks about a file, but not the server of a network filesystem: it may be what everybody waits for.
fn stat(directory: impl AsFd, path: &str) -> rustix::io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(directory, path, flags, StatxFlags::BASIC_STATS)
}

/// Whether a file can be changed under us by somebody who is not root of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Trust {
    /// Owned by root, writable by root alone, seen in our own mount namespace.
    System,
    /// Nobody but us changes it, but what it says may be anybody's: not where its links lead.
    Own,
    /// Anything else.
    Stranger,
}

/// How a module's bytes can be had.
#[derive(Clone)]
pub(super) enum Content {
    /// From a file, held by an `O_PATH` descriptor: it stays reachable when it is deleted.
    Held { file: Arc<OwnedFd>, identity: Identity, trust: Trust },
    /// These are the bytes.
    Image(Arc<[u8]>),
    /// Not at all.
    Missing,
}

/// A mapped file.
pub(super) struct Module {
    /// Its path, as `maps` showed it first, until the recording has it.
    path: Option<String>,
    /// Its bytes.
    pub content: Content,
}

/// Every mapped file that was seen.
pub(super) struct Modules {
    modules: Vec<Module>,
    by_identity: HashMap<Identity, ModuleId>,
    missing: HashMap<String, ModuleId>,
    vdsos: Vec<ModuleId>,
    held: usize,
    room: usize,
    limit_raised: bool,
    own_mounts: Option<u64>,
    kernel: Option<ModuleId>,
    identifier: Identifier,
    new: Vec<(ModuleId, recording::Module)>,
    shortfalls: Shortfalls,
}

impl Modules {
    pub(super) fn new() -> Self {
        let soft = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self {
            modules: Vec::new(),
            by_identity: HashMap::new(),
            missing: HashMap::new(),
            vdsos: Vec::new(),
            held: 0,
            room: room_within(soft),
            limit_raised: false,
            own_mounts: mount_namespace("self"),
            kernel: None,
            identifier: Identifier::new(),
            new: Vec::new(),
            shortfalls: Shortfalls::new(),
        }
    }

    pub(super) fn get(&self, id: ModuleId) -> Option<&Module> {
        self.modules.get(id.0 as usize)
    }

    /// A frame lies in it, so the recording needs it.
    pub(super) fn refer_to(&mut self, id: ModuleId) {
        let Some(module) = self.modules.get_mut(id.0 as usize) else { return };
        let Some(path) = module.path.take() else { return };
        let description = match &module.content {
            Content::Missing => Description::default(),
            Content::Image(image) => Description::of(&**image),
            Content::Held { file, identity, .. } => {
                let job = Job { file: Arc::clone(file), identity: *identity };
                return self.identifier.ask(id, path, job);
            }
        };
        self.new.push((id, description.into_module(path, &mut self.shortfalls)));
    }

    /// Those that frames came to refer to since this was called last. A file that is still being
    /// read comes later.
    pub(super) fn take_new(&mut self) -> Vec<(ModuleId, recording::Module)> {
        let mut new = std::mem::take(&mut self.new);
        new.append(&mut self.identifier.take());
        new
    }

    /// Those that were not taken yet, all of them.
    pub(super) fn take_rest(&mut self) -> Vec<(ModuleId, recording::Module)> {
        let mut rest = std::mem::take(&mut self.new);
        rest.append(&mut self.identifier.take_rest());
        rest
    }

    /// The kernel itself.
    pub(super) fn kernel(&mut self) -> Option<ModuleId> {
        if self.kernel.is_none() {
            let id = self.add(Module { path: None, content: Content::Missing })?;
            let (path, build_id) = (kernel::MODULE.to_owned(), kernel::build_id());
            self.new.push((id, recording::Module { path, build_id, segments: Vec::new() }));
            self.kernel = Some(id);
        }
        self.kernel
    }

    /// The module behind a mapping of a file; opens the file if it is new. None if there is no room
    /// for another module.
    pub(super) fn of_file(
        &mut self,
        tgid: Tgid,
        mounts: Option<u64>,
        line: &Line,
    ) -> Option<ModuleId> {
        let link = format!("/proc/{tgid}/map_files/{:x}-{:x}", line.start, line.end);
        // One call for a file that is held already.
        if let Ok(stat) = stat(CWD, &link)
            && let Some(&id) = self.by_identity.get(&Identity::of(&stat))
        {
            return Some(id);
        }
        if self.held >= self.room && !self.raise_limit() {
            self.count("symbols_files_over_limit");
            return self.missing(&line.name);
        }
        let Some(file) = open_mapped(&link, tgid, line) else {
            self.count("symbols_files_unopened");
            return self.missing(&line.name);
        };
        let Ok(stat) = stat(&file, "") else { return self.missing(&line.name) };
        // Opening a device's node can make it do things.
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
            return self.missing(&line.name);
        }
        let identity = Identity::of(&stat);
        if let Some(&id) = self.by_identity.get(&identity) {
            return Some(id);
        }
        let only_root_writes = stat.stx_uid == 0 && stat.stx_mode & 0o022 == 0;
        let trust = if only_root_writes && mounts.is_some() && mounts == self.own_mounts {
            Trust::System
        } else {
            Trust::Stranger
        };
        let content = Content::Held { file: Arc::new(file), identity, trust };
        let id = self.add(Module { path: Some(line.name.clone()), content })?;
        self.held += 1;
        self.by_identity.insert(identity, id);
        Some(id)
    }

    /// The module of a process's vDSO, by its bytes: a 32-bit program has another one.
    pub(super) fn of_vdso(&mut self, tgid: Tgid, line: &Line) -> Option<ModuleId> {
        let Some(image) = maps::read_vdso(tgid, line) else {
            return self.missing(&line.name);
        };
        let same = self.vdsos.iter().find(|&&id| {
            matches!(self.get(id), Some(Module { content: Content::Image(bytes), .. }) if **bytes == *image)
        });
        if let Some(&id) = same {
            return Some(id);
        }
        if self.vdsos.len() >= MAX_VDSOS {
            return self.missing(&line.name);
        }
        let id = self
            .add(Module { path: Some(line.name.clone()), content: Content::Image(image.into()) })?;
        self.vdsos.push(id);
        Some(id)
    }

    /// A module of which nothing but its name can be had, memory for one.
    pub(super) fn missing(&mut self, name: &str) -> Option<ModuleId> {
        if let Some(&id) = self.missing.get(name) {
            return Some(id);
        }
        let id = self.add(Module { path: Some(name.to_owned()), content: Content::Missing })?;
        self.missing.insert(name.to_owned(), id);
        Some(id)
    }

    fn add(&mut self, module: Module) -> Option<ModuleId> {
        if self.modules.len() >= MAX_MODULES {
            self.count("symbols_modules_over_limit");
            return None;
        }
        let id = ModuleId(u32::try_from(self.modules.len()).ok()?);
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
        self.room = room_within(hard.unwrap_or(u64::MAX));
        self.held < self.room
    }

    fn count(&mut self, name: &'static str) {
        super::count(&mut self.shortfalls, name);
    }

    pub(super) fn add_shortfalls(&self, all: &mut Shortfalls) {
        add_all(all, &self.shortfalls);
        add_all(all, self.identifier.shortfalls());
    }
}

/// Files that may be held under a limit of open files.
fn room_within(limit: u64) -> usize {
    usize::try_from(limit.saturating_sub(RESERVED)).map_or(MAX_HELD, |room| room.min(MAX_HELD))
}

/// The mount namespace of a process, as a number; none if it is gone.
pub(super) fn mount_namespace(process: impl std::fmt::Display) -> Option<u64> {
    Some(stat(CWD, &format!("/proc/{process}/ns/mnt")).ok()?.stx_ino)
}

/// Opens what is mapped, as a name alone (`O_PATH`), and makes sure that it is that file.
fn open_mapped(link: &str, tgid: Tgid, line: &Line) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open(link, flags, Mode::empty())
        .ok()
        // `map_files` wants CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE. The path will do, followed
        // inside of the process's own root.
        .or_else(|| OwnRoot::of(tgid).ok()?.open(&line.name, LastLink::Followed).ok())?;
    // Between reading `maps` and opening, the process can have become another program that has
    // something else at the same addresses. Both names are made by the kernel's d_path().
    (link_of(&file)? == undeleted(&line.name)).then_some(file)
}

fn link_of(file: impl AsFd) -> Option<String> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let name = rustix::fs::readlink(link, Vec::new()).ok()?;
    // `maps` writes a newline in a path as \012, and nothing else.
    let name = super::cut(&name.to_string_lossy().replace('\n', "\\012"));
    Some(undeleted(&name).to_owned())
}

/// A path without what `maps` puts behind that of a file that has no name any more.
pub(super) fn undeleted(name: &str) -> &str {
    name.strip_suffix(" (deleted)").unwrap_or(name)
}

/// Whether a held file still has the content that was mapped.
pub(super) fn is_unchanged(file: &OwnedFd, identity: Identity) -> bool {
    stat(file, "").is_ok_and(|stat| Identity::of(&stat) == identity)
}

#[cfg(test)]
impl Module {
    /// A stranger's file, held.
    pub(super) fn held(path: &std::path::Path) -> Self {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let identity = Identity::of(&stat(&file, "").unwrap());
        let file = Arc::new(file);
        let content = Content::Held { file, identity, trust: Trust::Stranger };
        Self { path: Some(path.display().to_string()), content }
    }
}
