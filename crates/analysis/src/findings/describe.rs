//! Says what threads of findings did, in words.

use offwake_recording::{CpuQuota, Filesystem, Recording, SocketRole};

use crate::{
    blame::{
        BlameEntryKind, FrameEvidence, Reason, Stop,
        cause::{Cause, kernel_locks::KernelLock},
    },
    quotas::{ThrottledTimes, describe_quota},
    text,
    timeline::{ThreadIndex, Timeline},
    words,
};

use super::{
    awaited_things::{AwaitedThing, ThingKind},
    disk_names::{describe_disk, describe_frozen, filesystem_of_kernel_thread},
    io_limits::FindingIoLimit,
    kernel_waits::KernelWait,
    limited_waits::LimitedWaits,
    meaning::SleepMeaning,
    programs::{ProgramId, Programs},
    tree::{ChainEnd, Node},
    who::{Relation, program_name},
};

/// Describes threads and what they did.
pub(super) struct Words<'a> {
    pub(super) recording: &'a Recording,
    pub(super) throttled: &'a ThrottledTimes,
    pub(super) programs: &'a Programs<'a>,
    pub(super) timeline: &'a Timeline,
    pub(super) limited_waits: &'a LimitedWaits,
}

impl Words<'_> {
    /// Returns what a thread that slept waited for; `next` is the program of whoever woke it, `thing` what the wait was
    /// on.
    pub(super) fn sleep(
        &self,
        slept: &SleepMeaning,
        own: ProgramId,
        next: Option<(ProgramId, Relation)>,
        thing: Option<&AwaitedThing>,
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
                return format!("waits for {}", name_server(thing));
            }
            FrameEvidence::Output if next.is_none() => {
                return "waits to connect or to send".to_owned();
            }
            FrameEvidence::Output
            | FrameEvidence::Request
            | FrameEvidence::WorkerLoop
            | FrameEvidence::OwnCoroutine
            | FrameEvidence::None => {}
        }
        match slept.kernel {
            Some(KernelWait::Fuse) => {
                return "waits for a FUSE server".to_owned();
            }
            Some(KernelWait::NetworkFilesystem) => {
                let server = (slept.filesystem)
                    .and_then(|device| self.recording.filesystems.get(&device))
                    .filter(|known| known.is_remote());
                return match server {
                    Some(server) => format!("waits for {}", describe_disk(server)),
                    None => "waits for a network filesystem".to_owned(),
                };
            }
            Some(KernelWait::Writeback) => {
                return format!("waits for {} to write back", self.disk(Some(slept), own));
            }
            Some(KernelWait::Journal) => {
                return format!("waits for the journal of {}", self.disk(Some(slept), own));
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
                let frozen = (slept.filesystem.filter(|_| lock == KernelLock::FrozenFilesystem))
                    .and_then(|device| self.recording.filesystems.get(&device));
                return match frozen {
                    Some(frozen) => format!("waits for {}", describe_frozen(frozen)),
                    None => format!("waits for {}", lock.describe()),
                };
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
            (Cause::Pipe, _) => {
                let fifo = thing.filter(|thing| thing.kind == ThingKind::Fifo);
                let pipe =
                    fifo.map_or("a pipe".to_owned(), |it| format!("the FIFO {}", it.describe()));
                match next {
                    Some(next) => format!("waits for {next} at {pipe}"),
                    None => format!("waits at {pipe}"),
                }
            }
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

    /// Returns what the last thread of a chain did. `slept` is how it slept and on what, if it did.
    pub(super) fn end(
        &self,
        end: ChainEnd,
        slept: Option<(&SleepMeaning, Option<&AwaitedThing>)>,
        own: ProgramId,
        node: &Node,
    ) -> String {
        let (slept, thing) = (slept.map(|(slept, _)| slept), slept.and_then(|(_, thing)| thing));
        match end.kind {
            BlameEntryKind::Work => "runs on a CPU".to_owned(),
            BlameEntryKind::CpuQueue => self.find_cpu_holders(node).describe_wait(),
            BlameEntryKind::Timer => describe_timer(slept, thing),
            BlameEntryKind::Disk => match slept.and_then(|slept| slept.kernel) {
                kernel
                    if !matches!(kernel, Some(KernelWait::Writeback | KernelWait::Journal))
                        && let Some(limit) = self.io_limit(slept, own, node)
                        && limit.is_cause =>
                {
                    limit.describe_wait()
                }
                Some(KernelWait::Writeback) => {
                    format!("waits for {} to write back", self.disk(slept, own))
                }
                Some(KernelWait::Journal) => {
                    format!("waits for the journal of {}", self.disk(slept, own))
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
                Some(Reason::ShortWaits) => {
                    "worked and waited in turns (its short waits were summed up)".to_owned()
                }
                Some(Reason::NotRecorded) => "waits for a thread that was not recorded".to_owned(),
                Some(Reason::EventLoop) => {
                    "keeps it waiting among other requests (event loop or queue)".to_owned()
                }
                Some(Reason::HolderUnknown) => {
                    "waits for a lock, and nothing tells who had it then".to_owned()
                }
                Some(Reason::UnclearWake) => {
                    "was woken and slept again at once: for little, or for nothing".to_owned()
                }
                Some(Reason::Stopped) => {
                    slept.and_then(|slept| slept.stop).map_or("is stopped", Stop::words).to_owned()
                }
                Some(Reason::TcpTimer) => match slept.and_then(|slept| slept.kernel) {
                    Some(KernelWait::Connect) => {
                        "waits to connect: SYN dropped and resent (accept queue full?)".to_owned()
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
        match self.filesystem(slept, own) {
            Some(known) => describe_disk(known),
            None => "the disk".to_owned(),
        }
    }

    fn filesystem(&self, slept: Option<&SleepMeaning>, own: ProgramId) -> Option<&Filesystem> {
        let known = slept.and_then(|slept| self.recording.filesystems.get(&slept.filesystem?));
        known.or_else(|| filesystem_of_kernel_thread(self.recording, self.programs.program(own)))
    }

    /// Finds the I/O limit that threads are under that waited for a disk.
    pub(super) fn io_limit(
        &self,
        slept: Option<&SleepMeaning>,
        own: ProgramId,
        node: &Node,
    ) -> Option<FindingIoLimit> {
        let filesystem = self.filesystem(slept, own);
        let processes = node.processes(self.timeline);
        let waited = self.limited_waits.select(slept, node.threads.keys());
        FindingIoLimit::find(self.recording, filesystem, &processes, &waited)
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
}

/// Returns what a thread did that a timer woke.
fn describe_timer(slept: Option<&SleepMeaning>, thing: Option<&AwaitedThing>) -> String {
    let Some(slept) = slept.filter(|slept| is_timeout(slept)) else {
        return "sleeps".to_owned();
    };
    if let Some(lock) = slept.polled_lock() {
        return format!("waits for {}", lock.words());
    }
    match (slept.cause, slept.evidence) {
        // Who reclaims memory sleeps now and then until some is free.
        _ if let Some(KernelWait::Memory(memory)) = slept.kernel => memory.describe().to_owned(),
        (_, FrameEvidence::NameLookup) => {
            format!("gets no answer from {}", name_server(thing))
        }
        (_, FrameEvidence::Lock(lock)) => {
            format!("waits for {} until a timeout", lock.words())
        }
        (_, FrameEvidence::Request) => "gets no answer within its timeout".to_owned(),
        (_, FrameEvidence::Output) => "waits to connect or to send, until a timeout".to_owned(),
        (Cause::Futex, FrameEvidence::None) if slept.is_on_condition => {
            "sleeps in a timed wait (condition variable) that nobody signalled, until its timeout"
                .to_owned()
        }
        (Cause::Futex, FrameEvidence::None) if slept.coroutine.is_none() => {
            "waits for a lock or a condition until a timeout: nobody woke it".to_owned()
        }
        _ => format!("waits until a timeout{}", name_goroutine(slept)),
    }
}

/// Names a name server by its address: `the name server 10.0.0.53:53 (DNS)`.
fn name_server(thing: Option<&AwaitedThing>) -> String {
    match thing.filter(|thing| thing.kind == ThingKind::Connection) {
        Some(thing) => format!("the name server {} (DNS)", thing.describe_address()),
        None => "a name server (DNS)".to_owned(),
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
