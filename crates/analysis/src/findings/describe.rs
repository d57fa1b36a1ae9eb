//! What findings say, in words.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use offwake_recording::{
    CpuQuota, PeerProcess, Recording, SocketRole,
    units::{Nanos, Tgid},
};

use crate::{
    blame::{BlameEntryKind, FrameEvidence, Reason, Stop, cause::Cause},
    quotas::{ThrottledTimes, describe_quota},
    text,
    timeline::{Thread, ThreadIndex, Timeline},
    words,
};

use super::{
    disk_users::{describe_disk, filesystem_of_kernel_thread},
    meaning::{KernelWait, SleepMeaning},
    model::FindingHop,
    programs::{Program, ProgramId, ProgramKind, Programs},
    tree::{ChainEnd, Node, main_threads},
};

/// The most characters of a function's name.
const MAX_FUNCTION: usize = 48;
/// Who had a CPU for at least this part of the time is named alone.
const MAIN_HOLDER: f64 = 0.8;
/// Who had a CPU for less than this part of the time is not what threads waited for.
const MIN_HOLDER: f64 = 0.1;
/// The most names or patterns of threads that are shown.
const MAX_THREAD_NAMES: usize = 2;

/// Stands behind names of threads that are not those of all.
const AND_OTHERS: &str = ", …";

/// How the threads of two nodes belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    SameProcess,
    OtherProcess,
}

/// Describes threads and what they did.
pub(super) struct Words<'a> {
    pub(super) recording: &'a Recording,
    pub(super) throttled: &'a ThrottledTimes,
    pub(super) programs: &'a Programs<'a>,
    pub(super) timeline: &'a Timeline,
}

impl Words<'_> {
    /// Describes threads of one program; `what` says what they did.
    pub(super) fn hop(
        &self,
        program: ProgramId,
        threads: &BTreeSet<ThreadIndex>,
        function: Option<String>,
        what: String,
        ns: Nanos,
    ) -> FindingHop {
        let known = self.programs.program(program);
        let processes: BTreeSet<Tgid> = (threads.iter())
            .filter_map(|&thread| Some(self.timeline.thread(thread)?.tgid))
            .collect();
        let pid = processes.first().copied().filter(|_| processes.len() == 1);
        let only_thread = threads.first().copied().filter(|_| threads.len() == 1);
        FindingHop {
            program: known.map_or_else(String::new, |known| known.name.clone()),
            script: (known.and_then(|known| known.script.clone()))
                .or_else(|| self.programs.subject(pid?, program)),
            pid,
            title: pid.and_then(|pid| self.programs.title(pid, program)),
            thread_name: match only_thread {
                Some(thread) => self.programs.thread_in_words(thread),
                None => self.common_thread_names(threads),
            },
            container: known.and_then(|known| known.container.clone()),
            processes: processes.len() as u64,
            threads: threads.len() as u64,
            function,
            what,
            ns,
            tid: None,
        }
    }

    /// Describes threads of one program by how much of the time `ns` each of them took. Those are named that took
    /// most of it; where these are too many to be named, all of them are counted.
    pub(super) fn counted_hop(
        &self,
        program: ProgramId,
        times: &BTreeMap<ThreadIndex, Nanos>,
        function: Option<String>,
        what: String,
        ns: Nanos,
    ) -> FindingHop {
        let hop = self.hop(program, &main_threads(times), function, what, ns);
        if hop.threads < 2 {
            return hop;
        }
        let process_of = |thread| self.timeline.thread(thread).map(|life| life.tgid);
        let all: BTreeSet<ThreadIndex> = (times.iter())
            .filter(|&(_, &time)| time > Nanos(0))
            .map(|(&thread, _)| thread)
            .filter(|&thread| hop.pid.is_none() || process_of(thread) == hop.pid)
            .collect();
        if all.len() as u64 == hop.threads {
            return hop;
        }
        let processes: BTreeSet<Tgid> = all.iter().copied().filter_map(process_of).collect();
        FindingHop {
            processes: processes.len() as u64,
            threads: all.len() as u64,
            thread_name: match (self.common_thread_names(&all), &hop.thread_name) {
                (Some(names), _) => Some(names),
                (None, Some(most)) => Some(format!("{most}{AND_OTHERS}")),
                (None, None) => None,
            },
            ..hop
        }
    }

    /// Names a thread for others of its process: `thread ledger`, `the main thread`, `thread worker
    /// (TID 812)` where several have that name.
    pub(super) fn thread_of_process(&self, thread: ThreadIndex) -> String {
        let Some(life) = self.timeline.thread(thread) else { return "another thread".to_owned() };
        let name = self.programs.own_thread_name(thread);
        let is_namesake = |(other, n): (&Thread, u32)| {
            let other_index = ThreadIndex(n);
            other.tgid == life.tgid
                && other_index != thread
                && self.programs.own_thread_name(other_index) == name
        };
        match name {
            Some(name) if self.timeline.threads.iter().zip(0..).any(is_namesake) => {
                format!("thread {} (TID {})", text::terminal(name), life.tid)
            }
            Some(name) => format!("thread {}", text::terminal(name)),
            None if life.tid.0 == life.tgid.0 => "the main thread".to_owned(),
            None => format!("thread {}", life.tid),
        }
    }

    /// Names threads of a pool by what their names have in common: `order-*`.
    fn common_thread_names(&self, threads: &BTreeSet<ThreadIndex>) -> Option<String> {
        let names = (threads.iter())
            .map(|&thread| self.programs.own_thread_name(thread))
            .collect::<Option<BTreeSet<&str>>>()?;
        let names: BTreeSet<String> = match names.len() {
            0..=MAX_THREAD_NAMES => names.into_iter().map(str::to_owned).collect(),
            _ => names.into_iter().map(replace_numbers).collect(),
        };
        (!names.is_empty() && names.len() <= MAX_THREAD_NAMES)
            .then(|| names.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Names a process by its program, or by the name that was found with it.
    pub(super) fn process_name(&self, process: &PeerProcess) -> String {
        let thread = (self.timeline.threads.iter().zip(0..))
            .find(|(thread, _)| thread.tgid == process.tgid)
            .map(|(_, n)| ThreadIndex(n));
        thread
            .and_then(|thread| self.programs.program(self.programs.program_of_thread(thread)))
            .map_or_else(|| text::terminal(&process.comm), program_name)
    }

    /// Returns whether the threads of two nodes share a process.
    pub(super) fn relation(
        &self,
        one: &BTreeSet<ThreadIndex>,
        other: &BTreeSet<ThreadIndex>,
    ) -> Relation {
        let processes = |threads: &BTreeSet<ThreadIndex>| -> BTreeSet<Tgid> {
            threads.iter().filter_map(|&thread| Some(self.timeline.thread(thread)?.tgid)).collect()
        };
        let (one, other) = (processes(one), processes(other));
        match one.len() == 1 && one == other {
            true => Relation::SameProcess,
            false => Relation::OtherProcess,
        }
    }

    /// Returns what a thread that slept waited for; `next` is the program of whoever woke it.
    pub(super) fn sleep(
        &self,
        slept: &SleepMeaning,
        own: ProgramId,
        next: Option<(ProgramId, Relation)>,
    ) -> String {
        let child = next.and_then(|(next, _)| self.programs.program(next)).map(program_name);
        let next = next.and_then(|(next, relation)| {
            let known = self.programs.program(next)?;
            Some(match relation {
                Relation::SameProcess => "another thread".to_owned(),
                Relation::OtherProcess if next == own => {
                    format!("another {}", text::terminal(&known.name))
                }
                Relation::OtherProcess => program_name(known),
            })
        });
        if slept.coroutine.is_some() {
            let next = next.as_deref().unwrap_or("another thread");
            return format!("waits for {next}{}", name_goroutine(slept));
        }
        match slept.evidence {
            FrameEvidence::Lock(lock) => {
                return match next {
                    Some(next) => format!("waits for {} of {next}", lock.words()),
                    None => format!("waits for {}", lock.words()),
                };
            }
            FrameEvidence::Sleep => return "sleeps".to_owned(),
            FrameEvidence::Safepoint => {
                return "waits until the JVM's pause is over (safepoint)".to_owned();
            }
            FrameEvidence::NameLookup => {
                return "waits for a name server (DNS)".to_owned();
            }
            FrameEvidence::Request
            | FrameEvidence::WorkerLoop
            | FrameEvidence::OwnCoroutine
            | FrameEvidence::None => {}
        }
        match slept.kernel {
            Some(KernelWait::Fuse) => {
                return "waits for a FUSE server".to_owned();
            }
            Some(KernelWait::NetworkFilesystem) => {
                return "waits for a network filesystem".to_owned();
            }
            Some(KernelWait::Writeback) => {
                return format!("waits for {} to write back", self.disk(Some(slept), own));
            }
            Some(KernelWait::Memory(memory)) => return memory.describe().to_owned(),
            Some(KernelWait::Connect) => {
                return match next {
                    Some(next) => format!("waits for {next} to accept its connection"),
                    None => "waits to connect".to_owned(),
                };
            }
            Some(KernelWait::OpenFifo) => {
                let who = next.unwrap_or_else(|| "somebody".to_owned());
                return format!("waits until {who} opens the other end of a FIFO");
            }
            Some(KernelWait::Lock(lock)) if slept.cause == Cause::KernelLock => {
                return lock.describe_wait().to_owned();
            }
            Some(KernelWait::Lock(_)) | None => {}
        }
        match (slept.cause, slept.role) {
            (Cause::Socket | Cause::Poll, Some(SocketRole::Serving)) => {
                "waits for its client".to_owned()
            }
            (Cause::Timer, _) => "sleeps".to_owned(),
            (Cause::Disk, _) => format!("waits for {}", self.disk(Some(slept), own)),
            (Cause::PageFault, _) => "waits for a page of memory".to_owned(),
            (Cause::Memory, _) => "waits for free memory".to_owned(),
            (Cause::KernelLock, _) => "waits for a lock in the kernel".to_owned(),
            (Cause::Child, _) => match child {
                Some(child) => format!("waits for its child {child}"),
                None => "waits for a child".to_owned(),
            },
            (Cause::Throttled, _) => "is throttled".to_owned(),
            (Cause::Stopped, _) => slept.stop.map_or("is stopped", Stop::words).to_owned(),
            (Cause::Futex, _) => match next {
                Some(next) => format!("waits for {next}"),
                None => "waits for a lock or a signal of another thread".to_owned(),
            },
            (Cause::Pipe, _) => match next {
                Some(next) => format!("waits for {next} at a pipe"),
                None => "waits at a pipe".to_owned(),
            },
            (Cause::Socket | Cause::Poll | Cause::IoUring | Cause::Eventfd, _) => match next {
                Some(next) => format!("waits for {next}"),
                None => match slept.cause {
                    Cause::Socket => "waits at a socket".to_owned(),
                    _ => "waits for events".to_owned(),
                },
            },
            (Cause::FileLock, _) => match next {
                Some(next) => format!("waits for the file lock of {next}"),
                None => "waits for a file lock".to_owned(),
            },
            (Cause::SysvSem, _) => match next {
                Some(next) => format!("waits for {next} at a semaphore"),
                None => "waits at a semaphore".to_owned(),
            },
            (Cause::SysvMsg | Cause::Mqueue, _) => match next {
                Some(next) => format!("waits for {next} at a message queue"),
                None => "waits at a message queue".to_owned(),
            },
            (Cause::Inotify, _) => "waits for a file to change".to_owned(),
            (Cause::Tty, _) => "waits for its terminal".to_owned(),
            (Cause::Signal, _) => "waits for a signal".to_owned(),
            (Cause::Other, _) => match next {
                Some(next) => format!("waits for {next}"),
                None => "waits".to_owned(),
            },
        }
    }

    /// Returns what the last thread of a chain did. `slept` is how it slept, if it did.
    pub(super) fn end(
        &self,
        end: ChainEnd,
        slept: Option<&SleepMeaning>,
        own: ProgramId,
        node: &Node,
    ) -> String {
        match end.kind {
            BlameEntryKind::Work => "runs on a CPU".to_owned(),
            BlameEntryKind::CpuQueue => {
                let holder = self.holders(node);
                format!("waits {}", words::for_a_cpu(holder.as_deref()))
            }
            BlameEntryKind::Timer => describe_timer(slept),
            BlameEntryKind::Disk => match slept.and_then(|slept| slept.kernel) {
                Some(KernelWait::Writeback) => {
                    format!("waits for {} to write back", self.disk(slept, own))
                }
                Some(KernelWait::Memory(memory)) => memory.describe_at_disk().to_owned(),
                _ => format!("waits for {}", self.disk(slept, own)),
            },
            BlameEntryKind::Network => "waits for the network".to_owned(),
            BlameEntryKind::Device => "waits for a device".to_owned(),
            BlameEntryKind::Throttled => self.throttled_by(node.threads.keys()),
            BlameEntryKind::Unattributed => match end.reason {
                Some(Reason::StillBlocked) => format!("is {}", words::STILL_WAITING),
                Some(Reason::Lost) => "did what was not recorded (records were lost)".to_owned(),
                Some(Reason::NotRecorded) => "waits for a thread that was not recorded".to_owned(),
                Some(Reason::EventLoop) => {
                    "keeps it waiting among other requests (event loop or queue)".to_owned()
                }
                Some(Reason::HolderUnknown) => {
                    "waits for a lock, and nothing tells who had it then".to_owned()
                }
                Some(Reason::Stopped) => {
                    slept.and_then(|slept| slept.stop).map_or("is stopped", Stop::words).to_owned()
                }
                Some(Reason::TcpTimer) => match slept.and_then(|slept| slept.kernel) {
                    Some(KernelWait::Connect) => {
                        "waits to connect: its SYN was dropped and sent again (accept queue full?)"
                            .to_owned()
                    }
                    _ => format!("waits for data {}", words::TCP_TIMER),
                },
                Some(reason @ Reason::Signal) => format!("waits, {}", words::unknown(reason)),
                Some(reason) => format!("waits, {}", words::waker_unknown(reason)),
                None => format!("waits, {}", words::WAKER_UNKNOWN),
            },
        }
    }
}

impl Words<'_> {
    /// Names the disk that a thread of a program waited for: `the disk sda1 (ext4, /srv)`, or `the
    /// disk` if it is not known which one.
    fn disk(&self, slept: Option<&SleepMeaning>, own: ProgramId) -> String {
        let known = slept.and_then(|slept| self.recording.filesystems.get(&slept.filesystem?));
        let known = known
            .or_else(|| filesystem_of_kernel_thread(self.recording, self.programs.program(own)));
        match known {
            Some(known) => format!("the disk {}", describe_disk(known)),
            None => "the disk".to_owned(),
        }
    }

    /// Returns what kept threads from running: `is throttled by the CPU quota of /shop: 20 ms in 100
    /// ms`.
    pub(super) fn throttled_by<'t>(
        &self,
        threads: impl Iterator<Item = &'t ThreadIndex> + Clone,
    ) -> String {
        format!("is throttled by {}", describe_quota(self.main_quota(threads)))
    }

    /// Returns the quota that kept threads from running, if it is one and known.
    pub(super) fn main_quota<'t>(
        &self,
        threads: impl Iterator<Item = &'t ThreadIndex> + Clone,
    ) -> Option<&CpuQuota> {
        self.recording.quotas.get(&self.throttled.main_cgroup(threads)?)
    }

    /// Names who had the CPUs while the threads of a node waited for one; nobody if that is mostly unknown.
    fn holders(&self, node: &Node) -> Option<String> {
        let (most, _) = node.holders.iter().max_by_key(|&(_, &time)| time)?;
        most.as_ref()?;
        let names = (node.holders.iter())
            .filter_map(|(&id, &time)| Some((program_name(self.programs.program(id?)?), time)));
        name_holders(names, node.holders.values().copied().sum())
    }
}

/// Returns what a thread did that a timer woke.
fn describe_timer(slept: Option<&SleepMeaning>) -> String {
    let Some(slept) = slept.filter(|slept| is_timeout(slept)) else { return "sleeps".to_owned() };
    match (slept.cause, slept.evidence) {
        // It asks for the lock now and then.
        (Cause::Timer, FrameEvidence::Lock(lock)) => format!("waits for {}", lock.words()),
        // Who reclaims memory sleeps now and then until some is free.
        _ if let Some(KernelWait::Memory(memory)) = slept.kernel => memory.describe().to_owned(),
        (_, FrameEvidence::NameLookup) => "gets no answer from a name server (DNS)".to_owned(),
        (_, FrameEvidence::Lock(lock)) => format!("waits for {} until a timeout", lock.words()),
        _ => format!("waits until a timeout{}", name_goroutine(slept)),
    }
}

/// Returns whether a thread that a timer woke waited for something else, and its patience was at an end, or it
/// asks for that now and then. Otherwise it slept on purpose.
pub(super) fn is_timeout(slept: &SleepMeaning) -> bool {
    match (slept.cause, slept.evidence) {
        (Cause::Timer, FrameEvidence::Lock(_)) => true,
        (Cause::Timer, _) | (_, FrameEvidence::Sleep) => false,
        _ => true,
    }
}

/// Names the goroutine that has a thread of its own by the function that it is seen in when it does not
/// wait: ` (its goroutine: main.saveCache)`.
fn name_goroutine(slept: &SleepMeaning) -> String {
    match &slept.coroutine {
        Some(seen) => format!(" (its goroutine: {})", text::terminal(&seen.function)),
        None => String::new(),
    }
}

/// Returns whether a program had the CPUs for enough of the time `all` to be what threads waited for.
pub(super) fn is_holder(time: Nanos, all: Nanos) -> bool {
    time.0 as f64 >= all.0 as f64 * MIN_HOLDER
}

/// Names the programs that had the CPUs in the time `all` in which somebody waited for one: `cc1`,
/// `cc1 and make`, `cc1 and 3 others`. Where it is not known who had them for the rest of the time, `cc1
/// (60% of it)`.
pub(super) fn name_holders(
    holders: impl Iterator<Item = (String, Nanos)>,
    all: Nanos,
) -> Option<String> {
    let mut times = IndexMap::<String, Nanos>::new();
    for (name, time) in holders {
        *times.entry(name).or_default() += time;
    }
    times.sort_by(|one, time, other, other_time| other_time.cmp(time).then(one.cmp(other)));
    let (main, &most) = times.first()?;
    if !is_holder(most, all) {
        return None;
    }
    if most.0 as f64 >= all.0 as f64 * MAIN_HOLDER {
        return Some(main.clone());
    }
    Some(match times.len() - 1 {
        0 => format!("{main} ({:.0}% of it)", most.0 as f64 * 100.0 / all.0.max(1) as f64),
        1 => format!("{main} and {}", times.last()?.0),
        others => format!("{main} and {others} others"),
    })
}

/// Returns whether a list of names has one for each thread.
fn names_all(names: &str, threads: u64) -> bool {
    !names.contains('*')
        && !names.ends_with(AND_OTHERS)
        && names.split(", ").count() as u64 == threads
}

/// `order-12` → `order-*`
fn replace_numbers(name: &str) -> String {
    let mut pattern = String::new();
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if pattern.ends_with('*') => {}
            true => pattern.push('*'),
            false => pattern.push(c),
        }
    }
    pattern
}

/// `python3 web2.py`, `postgres in shop-db`
pub(super) fn program_name(program: &Program) -> String {
    let mut name = text::terminal(&program.name);
    if let Some(script) = &program.script {
        name = format!("{name} {}", text::terminal(script));
    }
    if let Some(container) = &program.container {
        name = format!("{name} in {}", text::terminal(container));
    }
    if program.kind == ProgramKind::Kernel {
        name = format!("{name} (kernel)");
    }
    name
}

/// `3.20 s`, `12.3 s over 8 threads`: a time that is longer than the window has to be explained where it stands.
pub(crate) fn time_of_threads(time: Nanos, threads: u64, window: Nanos) -> String {
    match over_threads(time, threads, window) {
        Some(over) => format!("{time} {over}"),
        None => time.to_string(),
    }
}

/// Says of a time that is longer than the window how many threads it is added up over: `over 8 threads`.
pub(crate) fn over_threads(time: Nanos, threads: u64, window: Nanos) -> Option<String> {
    (threads > 1 && time > window).then(|| format!("over {threads} threads"))
}

/// `postgres 21753 "UPDATE waiting"`, `python3 21745 cron_tx.py`, `postgres ×30`
pub(super) fn who(hop: &FindingHop) -> String {
    let mut words = vec![text::terminal(&hop.program)];
    match hop.pid {
        Some(pid) => words.push(pid.to_string()),
        None => words.push(format!("×{}", hop.processes)),
    }
    words.extend(hop.script.as_ref().map(|script| text::terminal(script)));
    words.extend(hop.title.as_ref().map(|title| format!("\"{}\"", text::terminal(title))));
    match (&hop.thread_name, hop.pid.is_some() && hop.threads > 1) {
        (Some(name), true) if names_all(name, hop.threads) => {
            words.push(format!("[{}]", text::terminal(name)));
        }
        (Some(name), true) => {
            words.push(format!("[{} threads: {}]", hop.threads, text::terminal(name)));
        }
        (Some(name), false) => words.push(format!("[{}]", text::terminal(name))),
        (None, true) => words.push(format!("[{} threads]", hop.threads)),
        (None, false) => {}
    }
    words.extend(hop.container.as_ref().map(|name| format!("in {}", text::terminal(name))));
    words.join(" ")
}

/// Names threads by what tells them best from others, for where there is no room for all of [`who`]: `checkout.py`,
/// `bank [to-savings]`, `postgres`.
pub(super) fn short_who(hop: &FindingHop) -> String {
    let program = text::terminal(hop.script.as_ref().unwrap_or(&hop.program));
    match &hop.thread_name {
        Some(name) if names_all(name, hop.threads) => {
            format!("{program} [{}]", text::terminal(name))
        }
        _ => program,
    }
}

/// Returns a function's name as lines have it.
pub(super) fn function_name(name: &str) -> String {
    text::cut_chars(&text::terminal(name), MAX_FUNCTION)
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Nanos;

    use super::name_holders;

    #[test]
    fn holders_of_cpus_are_named_or_counted() {
        let names = |holders: &[(&str, u64)]| {
            let holders = holders.iter().map(|&(name, time)| (name.to_owned(), Nanos(time)));
            name_holders(holders, Nanos(100)).unwrap_or_default()
        };
        assert_eq!(names(&[]), "");
        assert_eq!(names(&[("make", 10), ("cc1", 85)]), "cc1");
        // Two programs of one name.
        assert_eq!(names(&[("cc1", 45), ("make", 10), ("cc1", 45)]), "cc1");
        assert_eq!(names(&[("make", 30), ("cc1", 70)]), "cc1 and make");
        assert_eq!(names(&[("a", 30), ("b", 40), ("c", 20), ("d", 10)]), "b and 3 others");
        // Nobody is made up for the time of which it is not known who had the CPUs.
        assert_eq!(names(&[("cc1", 60)]), "cc1 (60% of it)");
        assert_eq!(names(&[("cc1", 9)]), "");
    }
}
