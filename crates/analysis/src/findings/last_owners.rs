//! Names who could end open waits of which no chain leads on.

use offwake_recording::Recording;

use crate::{
    blame::{
        FrameEvidence,
        cause::{Cause, WaitedOn},
    },
    text,
};

use super::{
    chain_words::{ChainTeller, UNKNOWN_HOLDER},
    meaning::SleepMeaning,
    open_chains::{Awaited, Link, LockCall},
    open_waits::{OpenWait, is_lock},
    write::FindingWriter,
};

/// Names who could end the waits, where that one's own waits are not known: a process of many threads,
/// or one that was not recorded.
pub(super) fn name_last_owner(
    wait: &OpenWait,
    link: Option<&Link>,
    teller: ChainTeller<'_>,
    recording: &Recording,
    writer: &FindingWriter<'_>,
) -> Option<String> {
    let peer = || {
        wait.waited_on().iter().find_map(|on| match on {
            WaitedOn::File { file, .. } => recording.files.socket(*file)?.peers.first().cloned(),
            WaitedOn::Futex { .. } => None,
        })
    };
    let silent_peer = || {
        let peer = peer()?;
        Some(format!("{} {} has not answered", text::terminal(&peer.comm), peer.tgid))
    };
    let Some(link) = link else { return silent_peer() };
    let owner = || Some(teller.owner(wait.threads().next()?, &link.owner, writer));
    match link.awaited {
        Awaited::Answer => silent_peer(),
        Awaited::Lock
        | Awaited::Monitor
        | Awaited::WriteLock
        | Awaited::FileLock
        | Awaited::KernelLock(_) => Some(format!("held by {}", owner()?)),
        Awaited::Accept | Awaited::Data | Awaited::Room | Awaited::Filesystem => {
            Some(format!("{} {}", owner()?, link.awaited.describe_missing()?))
        }
        Awaited::ThreadEnd | Awaited::Child => Some(format!("{} has not ended", owner()?)),
    }
}

/// Says that nobody knows who could end the waits, where one would ask.
pub(super) fn say_unknown_owner(
    wait: &OpenWait,
    meaning: &SleepMeaning,
    teller: ChainTeller<'_>,
) -> Option<&'static str> {
    let is_at_condition = meaning.cause == Cause::Futex
        && !is_lock(meaning)
        && meaning.evidence != FrameEvidence::Sleep
        && wait.threads().all(|thread| teller.graph.lock_call(thread) == Some(LockCall::Condition));
    match (is_lock(meaning), wait.waited_on().len()) {
        (_, _) if is_at_condition => {
            Some("a condition variable has no owner: who should signal it is not known")
        }
        (true, 2..) => Some("who holds the locks is not known: maybe each other, a deadlock"),
        (true, _) => Some(UNKNOWN_HOLDER),
        (false, _) => None,
    }
}
