//! Which disk was waited for, and who else used it meanwhile. The kernel does not say for whose request a
//! disk made others wait, but how much each process reads and writes is counted. Who keeps a disk busy
//! with small requests waits for it as well.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

use indexmap::IndexMap;
use offwake_recording::{
    DiskUse, FileId, Filesystem, OpenFile, Recording,
    units::{Nanos, Tgid},
};

use crate::{
    blame::{
        Blame,
        cause::{Cause, WaitedOn},
    },
    text,
    timeline::{ThreadIndex, WaitIndex},
};

use super::{
    disk_names::{cut_path, filesystem_of_kernel_thread},
    io_limits::FindingIoLimit,
    kernel_waits::KernelWait,
    meaning::{Meanings, SleepMeaning},
    model::{DiskUser, Finding, FindingDisk, FindingLine},
    open_waits::StuckThreads,
    programs::{ProgramId, ProgramKind, Programs},
    root::WaitRoot,
    tree::NodeKey,
    who::{program_name, time_of_threads},
};

/// The most programs named.
const MAX_NAMED: usize = 2;
/// Who waited for less than this is not named for it.
const MIN_TIME: Nanos = Nanos(100_000_000);
/// Who read and wrote less than this is not named for it.
const MIN_BYTES: u64 = 1_000_000;
/// Nor is who has less than this part of all that was read and written.
const MIN_PART_OF_BYTES: f64 = 0.1;
/// A file is named if it has at least this part of the time.
const MAIN_FILE: f64 = 0.9;

/// What each program did with each disk.
pub(super) struct DiskUsers<'r> {
    /// How long it waited for the disk, or for the kernel to write back what it wrote.
    waits: IndexMap<(ProgramId, InTarget, Option<u32>), Waited>,
    /// What its processes read and wrote.
    uses: Vec<(ProgramId, InTarget, &'r DiskUse)>,
}

/// Whether threads are of the target.
type InTarget = bool;

#[derive(Default)]
struct Waited {
    time: Nanos,
    processes: BTreeSet<Tgid>,
    threads: BTreeSet<ThreadIndex>,
}

/// What a program did with a disk.
#[derive(Default)]
struct Usage {
    waited: Waited,
    read_bytes: u64,
    written_bytes: u64,
}

impl Usage {
    fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }
}

impl<'r> DiskUsers<'r> {
    /// Returns what processes read from a disk and wrote to it, and on which device if that is another one.
    /// What goes through a device above others is counted on each of them: of each process, what it did with
    /// the filesystem's own device counts, or else what is most.
    fn find_uses(
        &self,
        filesystem: Option<&Filesystem>,
        recording: &Recording,
    ) -> Vec<(ProgramId, InTarget, Option<String>, &'r DiskUse)> {
        let mut counted = IndexMap::new();
        for &(program, in_target, used) in &self.uses {
            let Some(on) = locate_use(filesystem, used, recording) else { continue };
            let bytes = used.read_bytes.saturating_add(used.written_bytes());
            let rank = (on.is_none(), bytes);
            let found = (rank, (program, in_target, on, used));
            match counted.get(&used.tgid) {
                Some((known, _)) if *known >= rank => {}
                _ => _ = counted.insert(used.tgid, found),
            }
        }
        counted.into_values().map(|(_, found)| found).collect()
    }
}

/// Adds up what all programs, the target's and others, did with disks.
pub(super) fn find<'r>(
    blame: &Blame<'_>,
    recording: &'r Recording,
    programs: &Programs<'_>,
    meanings: &mut Meanings<'_>,
) -> DiskUsers<'r> {
    let timeline = blame.timeline();
    let mut waits: IndexMap<_, Waited> = IndexMap::new();
    for n in 0..u32::try_from(recording.waits.len()).unwrap_or(u32::MAX) {
        let wait = WaitIndex(n);
        let (stack, _) = blame.wait_and_waker_stacks(wait);
        let cause = blame.cause(wait);
        let is_disk = cause == Cause::Disk
            || meanings.kernel_wait(cause, stack) == Some(KernelWait::Writeback);
        let Some(place) = timeline.blocked_interval(wait).filter(|_| is_disk) else { continue };
        let program = programs.program_of_thread(place.thread);
        let filesystem = blame.filesystem_of_wait(wait);
        let in_target = timeline.thread(place.thread).is_some_and(|life| life.in_target);
        let waited = waits.entry((program, in_target, filesystem)).or_default();
        waited.time += place.to.since(place.from);
        waited.processes.extend(timeline.thread(place.thread).map(|life| life.tgid));
        waited.threads.insert(place.thread);
    }
    // Of a process, the thread that was there last.
    let threads: HashMap<Tgid, ThreadIndex> = (timeline.threads.iter().zip(0..))
        .map(|(thread, n)| (thread.tgid, ThreadIndex(n)))
        .collect();
    let uses = (recording.disk_uses.iter())
        .filter_map(|used| {
            let &thread = threads.get(&used.tgid)?;
            let in_target = timeline.thread(thread).is_some_and(|life| life.in_target);
            Some((programs.program_of_thread(thread), in_target, used))
        })
        .collect();
    DiskUsers { waits, uses }
}

/// Says in a finding which disk was waited for, in which file, and who else waited for that disk.
pub(super) fn name_in(
    finding: &mut Finding,
    (own, meaning): (ProgramId, &SleepMeaning),
    root: &WaitRoot,
    (path, limit): (&[&NodeKey], Option<FindingIoLimit>),
    users: &DiskUsers<'_>,
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
    let mut words: Vec<String> = Vec::new();
    words.extend(limit.as_ref().map(FindingIoLimit::describe_use));
    // Without them, it would have been held back all the same.
    if !limit.as_ref().is_some_and(|limit| limit.is_cause) {
        let window = recording.meta.window.length();
        words.extend(describe_others(&others, filesystem.is_some(), window));
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
        limit,
        others,
    });
}

/// Says in a finding about waits that have not ended which disk they are for, if that is one and known, and who else
/// used it. A wait of which nobody knows the disk says so itself.
pub(super) fn name_in_open(
    finding: &mut Finding,
    stuck: &StuckThreads,
    filesystem: &Filesystem,
    users: &DiskUsers<'_>,
    (recording, programs): (&Recording, &Programs<'_>),
) {
    if filesystem.is_remote() {
        return;
    }
    let file = match stuck.wait().waited_on().as_slice() {
        [WaitedOn::File { file, .. }] => path_of(recording, *file),
        _ => None,
    };
    let others = find_others(users, stuck.program(), Some(filesystem), recording, programs);
    let window = recording.meta.window.length();
    if let Some(text) = describe_others(&others, true, window) {
        finding.lines.push(FindingLine::without_function(text, 0.0, false));
    }
    finding.disk = Some(FindingDisk {
        device: filesystem.block_device.clone(),
        filesystem: filesystem.kind.clone(),
        mount_point: filesystem.mount_point.clone(),
        disks: filesystem.disks().map(str::to_owned).collect(),
        file,
        limit: None,
        others: others.into_iter().map(|(_, user)| user).collect(),
    });
}

/// Finds who else used a disk most; disks of which none is known, if that is not known.
fn find_others(
    users: &DiskUsers<'_>,
    own: ProgramId,
    filesystem: Option<&Filesystem>,
    recording: &Recording,
    programs: &Programs<'_>,
) -> Vec<(String, DiskUser)> {
    let is_other = |program: ProgramId, in_target: InTarget| {
        // Another process of the same program is a neighbour like any other.
        (program != own || !in_target)
            && programs.program(program).is_some_and(|known| known.kind == ProgramKind::User)
    };
    let mut others: IndexMap<(ProgramId, Option<String>), Usage> = IndexMap::new();
    for (&(program, in_target, device), waited) in &users.waits {
        let known = device.and_then(|device| recording.filesystems.get(&device));
        let Some(on) = locate_wait(filesystem, known).filter(|_| is_other(program, in_target))
        else {
            continue;
        };
        let sum = &mut others.entry((program, on)).or_default().waited;
        sum.time += waited.time;
        sum.processes.extend(&waited.processes);
        sum.threads.extend(&waited.threads);
    }
    let mut of_all: u64 = 0;
    for (program, in_target, on, used) in users.find_uses(filesystem, recording) {
        of_all = of_all.saturating_add(used.read_bytes).saturating_add(used.written_bytes());
        if is_other(program, in_target) {
            let sum = others.entry((program, on)).or_default();
            sum.read_bytes = sum.read_bytes.saturating_add(used.read_bytes);
            sum.written_bytes = sum.written_bytes.saturating_add(used.written_bytes());
            sum.waited.processes.insert(used.tgid);
        }
    }
    let is_heavy = |usage: &Usage| {
        usage.bytes() >= MIN_BYTES && usage.bytes() as f64 >= MIN_PART_OF_BYTES * of_all as f64
    };
    others.retain(|_, usage| usage.waited.time >= MIN_TIME || is_heavy(usage));
    others.sort_by_key(|(_, on), usage| {
        let bytes = if is_heavy(usage) { usage.bytes() } else { 0 };
        (Reverse(bytes), on.is_some(), Reverse(usage.waited.time))
    });
    let is_counted = !recording.disk_uses.is_empty();
    let named = others.into_iter().take(MAX_NAMED).filter_map(|((program, on), usage)| {
        let program = programs.program(program)?;
        let processes = &usage.waited.processes;
        let user = DiskUser {
            program: program.name.clone(),
            pid: processes.first().copied().filter(|_| processes.len() == 1),
            device: on,
            threads: usage.waited.threads.len() as u64,
            ns: usage.waited.time,
            read_bytes: is_counted.then_some(usage.read_bytes),
            written_bytes: is_counted.then_some(usage.written_bytes),
        };
        Some((program_name(program), user))
    });
    named.collect()
}

/// Returns on which block device of a disk something is: none if it is not on that disk, or nobody knows;
/// else that device, if it is another one than the filesystem's.
fn locate<'d>(
    wanted: &Filesystem,
    (device, block_device): (u32, &str),
    mut disks: impl Iterator<Item = &'d str>,
) -> Option<Option<String>> {
    let is_same_device = wanted.device == device
        || !wanted.block_device.is_empty() && wanted.block_device == block_device;
    if is_same_device {
        return Some(None);
    }
    let shares_disk = disks.any(|disk| wanted.disks().any(|its| its == disk));
    shares_disk.then(|| Some(block_device.to_owned()))
}

/// Returns the same of a wait; of whatever disk, if that is not known.
fn locate_wait(wanted: Option<&Filesystem>, known: Option<&Filesystem>) -> Option<Option<String>> {
    if known.is_some_and(Filesystem::is_remote) {
        return None;
    }
    match (wanted, known) {
        (Some(wanted), Some(known)) => {
            locate(wanted, (known.device, &known.block_device), known.disks())
        }
        (Some(_), None) => None,
        (None, _) => Some(None),
    }
}

/// Returns the same of what a process read and wrote.
fn locate_use(
    wanted: Option<&Filesystem>,
    used: &DiskUse,
    recording: &Recording,
) -> Option<Option<String>> {
    if recording.filesystems.get(&used.device).is_some_and(Filesystem::is_remote) {
        return None;
    }
    match wanted {
        Some(wanted) => locate(wanted, (used.device, &used.block_device), used.disks()),
        None => Some(Some(used.block_device.clone()).filter(|name| !name.is_empty())),
    }
}

/// Says what other programs did with a disk: `others used this disk too: dd 812 wrote 1.2 GB`.
fn describe_others(
    others: &[(String, DiskUser)],
    is_disk_known: bool,
    window: Nanos,
) -> Option<String> {
    let amounts: Vec<String> = others.iter().map(|(_, user)| describe_amounts(user)).collect();
    let verb = if amounts.iter().all(String::is_empty) { "waited for" } else { "used" };
    let start = match is_disk_known {
        true => format!("others {verb} this disk too"),
        false => format!("which disk is not known; others {verb} disks too"),
    };
    let named: Vec<String> = (others.iter().zip(&amounts))
        .map(|((name, user), amounts)| {
            let pid = user.pid.map(|pid| format!(" {pid}")).unwrap_or_default();
            let device = user.device.as_deref().filter(|name| !name.is_empty());
            let on = device.map(|name| format!(" on {}", text::terminal(name))).unwrap_or_default();
            let waited = time_of_threads(user.ns, user.threads, window);
            match (verb, user.ns >= MIN_TIME) {
                ("used", true) if amounts.is_empty() => {
                    format!("{name}{pid}{on} (waited {waited})")
                }
                ("used", true) => format!("{name}{pid}{on} {amounts} (waited {waited})"),
                ("used", false) => format!("{name}{pid}{on} {amounts}"),
                _ => format!("{name}{pid}{on} ({waited})"),
            }
        })
        .collect();
    (!named.is_empty()).then(|| format!("{start}: {}", named.join(", ")))
}

/// Says how much a program wrote and read, the larger amount first: `wrote 1.2 GB, read 340 MB`. Empty if it
/// was not counted, or is next to nothing.
fn describe_amounts(user: &DiskUser) -> String {
    let mut amounts = [(user.written_bytes, "wrote"), (user.read_bytes, "read")];
    amounts.sort_by_key(|(bytes, _)| Reverse(*bytes));
    let most = amounts[0].0.unwrap_or(0);
    let told = amounts.iter().filter_map(|(bytes, verb)| {
        // What is next to nothing beside the other says nothing.
        let bytes = bytes.filter(|&it| it >= MIN_BYTES && it >= most / 10)?;
        Some(format!("{verb} {}", text::data_size(bytes)))
    });
    told.collect::<Vec<_>>().join(", ")
}

fn path_of(recording: &Recording, file: FileId) -> Option<String> {
    match recording.files.files.get(&file)? {
        OpenFile::Named(path) => Some(path.clone()).filter(|path| path.starts_with('/')),
        OpenFile::Socket(_) => None,
    }
}
