//! Waits that had not ended when the window did.
//!
//! A thread that sleeps to the end is either stuck or has nothing to do. It is stuck if something
//! says so: it holds out for a lock, for the answer of a server, for a disk or inside the kernel;
//! or nothing else happened in its process at all.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use offwake_recording::{
    AwaitedFileLock, OpenFile, PeerProcess, Recording, SocketRole,
    units::{Nanos, Tgid, Tid},
};

use crate::{
    blame::{
        FrameEvidence,
        cause::{Cause, WaitedOn},
    },
    report::{BlameClass, text, wait_sums::WaitAttributes, waited_on},
    timeline::{ThreadIndex, Timeline},
};

use super::{
    find::RootKey,
    found::Found,
    meaning::SleepMeaning,
    model::{Finding, FindingCause, FindingKind, FindingLine},
    write::{FindingWriter, describe_hop, describe_hop_without_function, function_of_hop},
};

/// What had waited for less than this when the window ended is nothing unusual.
const MIN_OPEN: Nanos = Nanos(1_000_000_000);
/// The part of the window that does as well, where the window is short.
const MIN_OPEN_SHARE: f64 = 0.4;

/// The open waits that mean the same.
#[derive(Default)]
pub(super) struct OpenWait {
    time: Nanos,
    longest: Nanos,
    threads: BTreeSet<ThreadIndex>,
    waited_on: Vec<WaitedOn>,
    state: char,
}

/// All open waits of the target that are not idle.
#[derive(Default)]
pub(super) struct OpenWaits(IndexMap<RootKey, OpenWait>);

impl OpenWait {
    /// How long all threads have waited.
    pub(super) fn time(&self) -> Nanos {
        self.time
    }

    /// How long the thread has waited that has waited longest.
    pub(super) fn longest(&self) -> Nanos {
        self.longest
    }

    /// What they wait for, as far as their calls tell.
    pub(super) fn waited_on(&self) -> &[WaitedOn] {
        &self.waited_on
    }

    /// The threads that wait.
    pub(super) fn threads(&self) -> impl Iterator<Item = ThreadIndex> + '_ {
        self.threads.iter().copied()
    }
}

impl OpenWaits {
    pub(super) fn insert(
        &mut self,
        key: RootKey,
        thread: ThreadIndex,
        shown: &WaitAttributes,
        time: Nanos,
    ) {
        let open = self.0.entry(key).or_default();
        open.time += time;
        open.longest = open.longest.max(time);
        open.threads.insert(thread);
        open.state = shown.state;
        if let Some(on) = shown.waited_on
            && !open.waited_on.contains(&on)
        {
            open.waited_on.push(on);
        }
    }
}

/// Finds the open waits of threads that are stuck: their keys, and the threads with their times.
pub(super) fn find_stuck<'o>(
    open: &'o OpenWaits,
    timeline: &Timeline,
    window: Nanos,
    is_anything_else: bool,
) -> Vec<(&'o RootKey, &'o OpenWait)> {
    let least = MIN_OPEN.min(Nanos((window.0 as f64 * MIN_OPEN_SHARE) as u64));
    (open.0.iter())
        .filter(|(key, wait)| {
            wait.longest >= least
                && (is_stuck(key, wait)
                    || (!is_anything_else && is_of_first_thread(wait, timeline)))
        })
        .collect()
}

/// Returns whether something says that threads are stuck rather than idle.
fn is_stuck((_, meaning): &RootKey, wait: &OpenWait) -> bool {
    match meaning.cause {
        _ if is_lock(meaning) || wait.state == 'D' => true,
        _ if meaning.kernel.is_some() => true,
        Cause::Disk
        | Cause::PageFault
        | Cause::KernelLock
        | Cause::FileLock
        | Cause::Throttled
        | Cause::Stopped => true,
        Cause::Socket | Cause::Poll => {
            meaning.role == Some(SocketRole::Asking)
                || matches!(meaning.evidence, FrameEvidence::Request | FrameEvidence::NameLookup)
        }
        _ => false,
    }
}

fn is_lock(meaning: &SleepMeaning) -> bool {
    meaning.evidence.is_lock()
}

/// Returns whether one of the threads is the first of its process.
fn is_of_first_thread(wait: &OpenWait, timeline: &Timeline) -> bool {
    (wait.threads.iter())
        .filter_map(|&thread| timeline.thread(thread))
        .any(|thread| thread.tid == Tid(thread.tgid.0))
}

/// Describes the open waits of threads that are stuck.
pub(super) fn describe_stuck(
    stuck: &[(&RootKey, &OpenWait)],
    recording: &Recording,
    writer: &mut FindingWriter<'_>,
) -> Vec<Found> {
    (stuck.iter())
        .map(|(key, wait)| {
            Found::new(describe(key, wait, recording, writer), BlameClass::Unattributed)
        })
        .collect()
}

/// Finds the process that holds the lock on a file that threads wait for, if it is one for all that is
/// known. The kernel's list has no process where the lock is one of an open file; then it is enough
/// that somebody waits for that file.
fn find_lock_holder<'r>(
    wait: &OpenWait,
    recording: &'r Recording,
    timeline: &Timeline,
) -> Option<&'r PeerProcess> {
    let waiters: BTreeSet<Tgid> =
        wait.threads().filter_map(|thread| Some(timeline.thread(thread)?.tgid)).collect();
    let is_waited_for = |lock: &&AwaitedFileLock| {
        lock.waiter.is_none_or(|waiter| waiters.contains(&waiter))
            && wait.waited_on.iter().any(|on| match on {
                WaitedOn::File { file, .. } => {
                    (file.device, file.inode) == (lock.device, lock.inode)
                }
                WaitedOn::Futex { .. } => false,
            })
    };
    let mut holders = recording.file_locks.iter().filter(is_waited_for).map(|lock| &lock.holder);
    let holder = holders.next()?.as_ref()?;
    holders.all(|other| other.as_ref() == Some(holder)).then_some(holder)
}

fn describe(
    key: &RootKey,
    wait: &OpenWait,
    recording: &Recording,
    writer: &mut FindingWriter<'_>,
) -> Finding {
    let (program, meaning) = key;
    let peer = wait.waited_on.iter().find_map(|on| match on {
        WaitedOn::File { file, .. } => match recording.files.files.get(file)? {
            OpenFile::Socket(socket) => socket.peers.first(),
            OpenFile::Named(_) => None,
        },
        WaitedOn::Futex { .. } => None,
    });
    let lock_holder = (meaning.cause == Cause::FileLock)
        .then(|| find_lock_holder(wait, recording, writer.words.timeline))
        .flatten();
    let on = match wait.waited_on.as_slice() {
        [on @ WaitedOn::File { .. }] => {
            Some(waited_on::waited_on_entry(&recording.files, *on).text)
        }
        _ => None,
    };
    let what = match (meaning.cause, is_lock(meaning), wait.waited_on.len()) {
        (Cause::Futex, true, 2..) => "wait for different locks".to_owned(),
        (Cause::Futex, true, _) => "waits for a lock".to_owned(),
        (Cause::Futex, ..) => "waits for another thread".to_owned(),
        _ => writer.words.sleep(meaning, *program, None),
    };
    let function = meaning.label.as_ref().map(|label| label.function.to_string());
    let waiter = writer.words.hop(*program, &wait.threads, function, what, wait.time);
    let share = writer.share(wait.time).min(1.0);
    let mut lines = vec![FindingLine {
        depth: 0,
        text: describe_hop_without_function(&waiter),
        function: function_of_hop(&waiter),
        share,
        is_cause: peer.is_none() && lock_holder.is_none(),
        detail: format!("≥{}", wait.longest),
    }];
    if let Some(on) = &on {
        let text = format!("for {}", text::terminal(on));
        lines.push(FindingLine::note(text, share, false));
    }
    let culprit = peer
        .map(|peer| format!("{} {} has not answered", text::terminal(&peer.comm), peer.tgid))
        .or_else(|| {
            let holder = writer.words.process_name(lock_holder?);
            Some(format!("held by {holder} {}", lock_holder?.tgid))
        });
    let who = match culprit {
        Some(who) => {
            lines.push(FindingLine::note(who.clone(), share, true));
            who
        }
        None if is_lock(meaning) => {
            let text = match wait.waited_on.len() {
                2.. => "who holds the locks is not known: maybe each other, a deadlock",
                _ => "who holds the lock is not known",
            };
            lines.push(FindingLine::note(text.to_owned(), share, false));
            text.to_owned()
        }
        None => describe_hop(&waiter),
    };
    Finding {
        kind: FindingKind::StillWaiting,
        share,
        ns: wait.time,
        count: wait.threads.len() as u64,
        longest_ns: wait.longest,
        still_waiting: true,
        text: format!("still waiting, ≥{}: {}", wait.longest, describe_hop(&waiter)),
        cause: FindingCause {
            kind: "unattributed",
            reason: Some("still_blocked"),
            share,
            ns: wait.time,
            text: who,
        },
        chain: vec![waiter],
        lines,
    }
}
