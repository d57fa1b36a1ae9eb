//! Which disk was waited for, and who else waited for it meanwhile. The kernel does not say for whose
//! request a disk made others wait, but who kept it busy waits for it as well.

use std::{cmp::Reverse, collections::BTreeSet};

use indexmap::IndexMap;
use offwake_recording::{
    FileId, Filesystem, OpenFile, Recording,
    units::{Nanos, Tgid},
};

use crate::{
    blame::{Blame, cause::Cause},
    text,
    timeline::{ThreadIndex, WaitIndex},
};

use super::{
    kernel_waits::KernelWait,
    meaning::{Meanings, SleepMeaning},
    model::{DiskUser, Finding, FindingDisk, FindingLine},
    programs::{Program, ProgramId, ProgramKind, Programs},
    root::WaitRoot,
    tree::NodeKey,
    who::{program_name, time_of_threads},
};

/// The most programs named.
const MAX_NAMED: usize = 2;
/// Who waited for less than this is not named.
const MIN_TIME: Nanos = Nanos(100_000_000);
/// A file is named if it has at least this part of the time.
const MAIN_FILE: f64 = 0.9;
/// The most characters of a path.
const MAX_PATH: usize = 64;

/// Describes a disk, `the disk sda1 (ext4, /var/lib/postgresql)`, or a server:
/// `the file server files.example:/export (nfs4, /mnt)`.
pub(super) fn describe_disk(filesystem: &Filesystem) -> String {
    let Filesystem { kind, mount_point, block_device, server, .. } = filesystem;
    let (kind, path) = (text::terminal(kind), cut_path(mount_point));
    if filesystem.is_remote() {
        return format!("the file server {} ({kind}, {path})", cut_path(server));
    }
    match block_device.as_str() {
        "" => format!("the disk ({kind}, {path})"),
        name => format!("the disk {} ({kind}, {path})", text::terminal(name)),
    }
}

/// Finds the filesystem whose journal or log a kernel thread writes: the thread has the name of the
/// block device, `jbd2/sda1-8`. The kernel cuts the names of threads to 15 bytes.
pub(super) fn filesystem_of_kernel_thread<'r>(
    recording: &'r Recording,
    program: Option<&Program>,
) -> Option<&'r Filesystem> {
    let program = program.filter(|program| program.kind == ProgramKind::Kernel)?;
    let is_cut = program.name.len() >= 15;
    let name = ["jbd2/", "xfsaild/"].iter().find_map(|start| program.name.strip_prefix(start))?;
    let with_name = |wanted: &str| {
        let mut all = recording.filesystems.values().filter(|it| it.block_device == wanted);
        all.next().filter(|_| all.next().is_none())
    };
    // An ext4 journal has its inode's number behind the device's name.
    let without_number = (name.rsplit_once('-'))
        .filter(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    let whole = without_number.and_then(|(device, _)| with_name(device));
    if is_cut {
        let mut all = (recording.filesystems.values())
            .filter(|it| format!("{}-8", it.block_device).starts_with(name));
        return all.next().filter(|_| all.next().is_none());
    }
    whole.or_else(|| with_name(name))
}

/// The time that each program waited for each disk, or for the kernel to write back what it wrote.
#[derive(Default)]
pub(super) struct DiskUsers(IndexMap<(ProgramId, InTarget, Option<u32>), DiskUse>);

/// Whether threads are of the target.
type InTarget = bool;

#[derive(Default)]
struct DiskUse {
    time: Nanos,
    processes: BTreeSet<Tgid>,
    threads: BTreeSet<ThreadIndex>,
}

/// Adds up the disk waits of all programs, the target's and others.
pub(super) fn find(
    blame: &Blame<'_>,
    programs: &Programs<'_>,
    meanings: &mut Meanings<'_>,
) -> DiskUsers {
    let timeline = blame.timeline();
    let mut users = DiskUsers::default();
    for n in 0..u32::try_from(blame.recording().waits.len()).unwrap_or(u32::MAX) {
        let wait = WaitIndex(n);
        let (stack, _) = blame.wait_and_waker_stacks(wait);
        let cause = blame.cause(wait);
        let is_disk = cause == Cause::Disk
            || meanings.kernel_wait(cause, stack) == Some(KernelWait::Writeback);
        let Some(place) = timeline.blocked_interval(wait).filter(|_| is_disk) else { continue };
        let program = programs.program_of_thread(place.thread);
        let filesystem = blame.filesystem_of_wait(wait);
        let in_target = timeline.thread(place.thread).is_some_and(|life| life.in_target);
        let used = users.0.entry((program, in_target, filesystem)).or_default();
        used.time += place.to.since(place.from);
        used.processes.extend(timeline.thread(place.thread).map(|life| life.tgid));
        used.threads.insert(place.thread);
    }
    users
}

/// Says in a finding which disk was waited for, in which file, and who else waited for that disk.
pub(super) fn name_in(
    finding: &mut Finding,
    (own, meaning): (ProgramId, &SleepMeaning),
    root: &WaitRoot,
    path: &[&NodeKey],
    users: &DiskUsers,
    recording: &Recording,
    programs: &Programs<'_>,
) {
    let by_device = |device: u32| recording.filesystems.get(&device);
    // What the end of the chain waited for; the hops before it waited for that as well.
    let of_hop = |key: &&NodeKey| {
        (key.slept.as_ref().and_then(|slept| slept.filesystem).and_then(by_device))
            .or_else(|| filesystem_of_kernel_thread(recording, programs.program(key.program)))
    };
    let filesystem =
        path.iter().rev().find_map(of_hop).or_else(|| meaning.filesystem.and_then(by_device));
    // Who else asks a server, nobody here knows.
    let is_remote = filesystem.is_some_and(Filesystem::is_remote);
    let others = match is_remote {
        true => Vec::new(),
        false => find_others(users, own, filesystem, recording, programs),
    };
    let file = root.main_file(MAIN_FILE).filter(|_| meaning.filesystem.is_some());
    let file = file.and_then(|file| path_of(recording, file));
    let names: Vec<String> = (others.iter())
        .map(|(name, user)| describe_user(name, user, recording.meta.window.length()))
        .collect();
    let mut words: Vec<String> = Vec::new();
    if !names.is_empty() {
        let names = names.join(", ");
        words.push(match filesystem {
            Some(_) => format!("others waited for this disk too: {names}"),
            None => format!("which disk is not known; others waited for disks too: {names}"),
        });
    }
    words.extend(file.as_deref().map(|path| format!("file {}", cut_path(path))));
    if !words.is_empty() {
        finding.lines.push(FindingLine::without_function(words.join("; "), 0.0, false));
    }
    let others = others.into_iter().map(|(_, user)| user).collect();
    finding.disk = filesystem.filter(|_| !is_remote).map(|known| FindingDisk {
        device: known.block_device.clone(),
        filesystem: known.kind.clone(),
        mount_point: known.mount_point.clone(),
        disks: known.disks().map(str::to_owned).collect(),
        file,
        others,
    });
}

/// Finds who else waited most for a disk; for disks of which none is known, if that is not known.
fn find_others(
    users: &DiskUsers,
    own: ProgramId,
    filesystem: Option<&Filesystem>,
    recording: &Recording,
    programs: &Programs<'_>,
) -> Vec<(String, DiskUser)> {
    let mut others: IndexMap<(ProgramId, Option<String>), DiskUse> = IndexMap::new();
    for (&(program, in_target, device), used) in &users.0 {
        let known = device.and_then(|device| recording.filesystems.get(&device));
        if known.is_some_and(Filesystem::is_remote) {
            continue;
        }
        let other_device = match (filesystem, known) {
            (Some(wanted), Some(known)) => {
                let is_same_device = wanted.device == known.device
                    || !wanted.block_device.is_empty() && wanted.block_device == known.block_device;
                if !is_same_device && !wanted.shares_disk_with(known) {
                    continue;
                }
                (!is_same_device).then(|| known.block_device.clone())
            }
            // Nobody knows whether it is this disk.
            (Some(_), None) => continue,
            (None, _) => None,
        };
        let is_user =
            programs.program(program).is_some_and(|known| known.kind == ProgramKind::User);
        // Another process of the same program is a neighbour like any other.
        if program == own && in_target || !is_user {
            continue;
        }
        let sum = others.entry((program, other_device)).or_default();
        sum.time += used.time;
        sum.processes.extend(&used.processes);
        sum.threads.extend(&used.threads);
    }
    others.retain(|_, used| used.time >= MIN_TIME);
    others.sort_by_key(|(_, other_device), used| (other_device.is_some(), Reverse(used.time)));
    let named = others.into_iter().take(MAX_NAMED).filter_map(|((program, on), used)| {
        let program = programs.program(program)?;
        let pid = used.processes.first().copied().filter(|_| used.processes.len() == 1);
        let user = DiskUser {
            program: program.name.clone(),
            pid,
            device: on,
            threads: used.threads.len() as u64,
            ns: used.time,
        };
        Some((program_name(program), user))
    });
    named.collect()
}

fn describe_user(name: &str, user: &DiskUser, window: Nanos) -> String {
    let pid = user.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
    let device = user.device.as_deref().filter(|name| !name.is_empty());
    let on = device.map(|name| format!(" on {}", text::terminal(name))).unwrap_or_default();
    format!("{name}{pid}{on} ({})", time_of_threads(user.ns, user.threads, window))
}

fn path_of(recording: &Recording, file: FileId) -> Option<String> {
    match recording.files.files.get(&file)? {
        OpenFile::Named(path) => Some(path.clone()).filter(|path| path.starts_with('/')),
        OpenFile::Socket(_) => None,
    }
}

fn cut_path(path: &str) -> String {
    text::cut_path(&text::terminal(path), MAX_PATH)
}
