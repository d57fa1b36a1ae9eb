//! What all waits of one pattern have in common: cause, wake source, whether they are idle.
//! Computed once for each pattern, since a recording has far fewer patterns than waits.

use offwake_recording::{Pattern, PollEvents, Recording, ThreadRef, Wait};

use super::{
    ConnectionSide, ConnectionSides, IdleHint, SleepId, Sleeps, StackPairId, StackPairs,
    WakeSource,
    cause::{Cause, Classifier},
    frame_evidence::{FrameEvidence, FrameReader, LockName},
    idle,
    local_servers::LocalServers,
    locks::FutexWait,
    mailboxes::{MailboxId, MailboxKey},
    only_filesystems::OnlyFilesystems,
    polled_file_locks::PolledFileLocks,
    room::WokenFor,
    wake_source::{self, PatternWakeSource},
    work_waits::{Expects, WorkWait},
};

/// What all waits of one pattern have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatternAnalysis {
    pub(super) cause: Cause,
    /// None if no wake is known.
    pub(super) source: Option<PatternWakeSource>,
    pub(super) idle_hint: IdleHint,
    pub(super) lock: Option<FutexWait>,
    pub(super) own_stack: StackPairId,
    pub(super) waker_stack: StackPairId,
    pub(super) sleep: SleepId,
    pub(super) evidence: FrameEvidence,
    /// The end of a connection that the waits are on.
    pub(super) side: ConnectionSide,
    pub(super) expects: Expects,
    pub(super) work_wait: WorkWait,
    /// What the waits are on, if it may be a mailbox of several clients.
    pub(super) mailbox_key: Option<MailboxKey>,
    /// The mailbox that the waits are on, if it is known for one.
    pub(super) mailbox: Option<MailboxId>,
}

impl PatternAnalysis {
    /// Returns the task that ends the waits, if one does.
    pub(super) fn waker(&self) -> Option<ThreadRef> {
        match self.source? {
            PatternWakeSource::Known(WakeSource::Task(task)) => Some(task),
            PatternWakeSource::Known(_)
            | PatternWakeSource::Softirqd(_)
            | PatternWakeSource::OverTimer => None,
        }
    }

    /// Returns whether the waits end as a CPU's timer does: what comes then, TCP may have held back.
    pub(super) fn is_over_timer(&self) -> bool {
        self.source == Some(PatternWakeSource::OverTimer)
    }

    /// Returns whether the waits are for a lock, as far as one of them tells.
    pub(super) fn is_on_lock(&self) -> bool {
        self.evidence.is_lock() || self.lock.is_some_and(FutexWait::looks_like_lock)
    }
}

/// Analyses every pattern of a recording; the result has the order of the table of patterns.
pub(super) fn analyse_all(
    recording: &Recording,
    stacks: &StackPairs,
    sleeps: &mut Sleeps,
) -> Vec<PatternAnalysis> {
    let waits = &recording.waits;
    let mut classifier = Classifier::new(recording);
    let mut frames = FrameReader::default();
    let sides = ConnectionSides::new(recording);
    let servers = LocalServers::new(recording);
    let filesystems = OnlyFilesystems::new(recording);
    let polled_locks = PolledFileLocks::new(recording);
    let mut examples: Vec<Option<u32>> = vec![None; waits.patterns().len()];
    for (row, n) in waits.rows().iter().zip(0..) {
        if let Some(example) = examples.get_mut(row.pattern.index()) {
            example.get_or_insert(n);
        }
    }
    (waits.patterns().iter().zip(examples))
        .map(|((_, pattern), example)| {
            let wait = example.and_then(|n| waits.get(n as usize));
            analyse(
                recording,
                stacks,
                sleeps,
                (&mut classifier, &mut frames, &sides, &servers, &filesystems, &polled_locks),
                pattern,
                wait.as_ref(),
            )
        })
        .collect()
}

fn analyse(
    recording: &Recording,
    stacks: &StackPairs,
    sleeps: &mut Sleeps,
    (classifier, frames, sides, servers, filesystems, polled_locks): (
        &mut Classifier<'_>,
        &mut FrameReader,
        &ConnectionSides<'_>,
        &LocalServers<'_>,
        &OnlyFilesystems,
        &PolledFileLocks,
    ),
    pattern: &Pattern,
    wait: Option<&Wait>,
) -> PatternAnalysis {
    let own_stack = stacks.waiter(pattern.waiter.index());
    let waker_stack =
        pattern.wake.map_or(StackPairId::NONE, |(waker, _)| stacks.waker(waker.index()));
    // No wait of this pattern is left: they were duplicates, and dropped.
    let Some(wait) = wait else {
        let (cause, idle_hint) = (Cause::Other, IdleHint::Busy);
        return PatternAnalysis {
            cause,
            source: None,
            idle_hint,
            lock: None,
            own_stack,
            waker_stack,
            sleep: SleepId::NONE,
            evidence: FrameEvidence::None,
            side: ConnectionSide::Unknown,
            expects: Expects::Progress,
            work_wait: WorkWait::No,
            mailbox_key: None,
            mailbox: None,
        };
    };
    let cause = classifier.cause(wait);
    let source = wait
        .wake
        .as_ref()
        .map(|wake| wake_source::classify_source(recording, servers, wait, wake, cause));
    let side = sides.waiter_side(wait);
    let lock = FutexWait::from_wait(wait, cause);
    let woken_for = WokenFor::from_wait(recording, wait);
    let evidence = match frames.read(&recording.stacks, wait.user_stack, cause) {
        // The kernel itself knows it for a lock, whatever the functions are called.
        FrameEvidence::None if lock.is_some_and(FutexWait::is_owned) => {
            FrameEvidence::Lock(LockName::Plain)
        }
        FrameEvidence::None if cause == Cause::Timer && polled_locks.contains(wait.user_stack) => {
            FrameEvidence::Lock(LockName::PolledFile)
        }
        FrameEvidence::Sleep if polled_locks.contains(wait.user_stack) => {
            FrameEvidence::Lock(LockName::PolledFile)
        }
        FrameEvidence::None if waits_to_write(wait, cause) => FrameEvidence::Output,
        // Whoever polls the client's end of one connection, and nothing else, has asked something.
        FrameEvidence::None
            if cause == Cause::Poll
                && wait.polled_fd.is_some()
                && side == ConnectionSide::Asking =>
        {
            FrameEvidence::Request
        }
        evidence => evidence,
    };
    PatternAnalysis {
        cause,
        source,
        idle_hint: idle::idle_hint(recording, wait, cause, source, (side, woken_for), evidence),
        side,
        expects: Expects::from_wait(wait, cause, evidence, (lock, woken_for)),
        work_wait: WorkWait::from_wait(recording, wait, cause, source, side, evidence),
        mailbox_key: MailboxKey::from_wait(wait, cause, lock, evidence),
        mailbox: None,
        lock,
        own_stack,
        waker_stack,
        sleep: sleeps.insert(recording, wait, cause, own_stack, evidence, filesystems),
        evidence,
    }
}

/// Returns whether a thread polls one file until it can write.
fn waits_to_write(wait: &Wait, cause: Cause) -> bool {
    cause == Cause::Poll && wait.polled_events.is_some_and(PollEvents::is_to_write_alone)
}
