//! Names who could end open waits of which no chain leads on.

use std::collections::BTreeSet;

use offwake_recording::{PeerProcess, Recording};

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
    model::FindingLine,
    open_chains::{Awaited, Link, LockCall, Owner},
    open_waits::{OpenWait, is_lock},
    write::FindingWriter,
};

/// The most processes that are named of those of which one has to answer.
const MAX_NAMED: usize = 3;

/// Names who could end the waits, where that one's own waits are not known: a process of many threads,
/// or one that was not recorded.
pub(super) fn name_last_owner(
    wait: &OpenWait,
    link: Option<&Link>,
    teller: ChainTeller<'_>,
    recording: &Recording,
    writer: &FindingWriter<'_>,
) -> Option<String> {
    let Some(link) = link else {
        let peer = find_only_peer(wait, recording)?;
        return Some(format!("{} {} has not answered", text::terminal(&peer.comm), peer.tgid));
    };
    let owner = || Some(teller.owner(wait.threads().next()?, &link.owner, writer));
    match link.awaited {
        Awaited::Lock
        | Awaited::Monitor
        | Awaited::WriteLock
        | Awaited::FileLock
        | Awaited::KernelLock(_) => Some(format!("held by {}", owner()?)),
        Awaited::Answer
        | Awaited::AnswerToLoop
        | Awaited::Accept
        | Awaited::Data
        | Awaited::Room
        | Awaited::Filesystem => Some(format!("{} {}", owner()?, link.awaited.describe_missing()?)),
        Awaited::ThreadEnd | Awaited::Child => Some(format!("{} has not ended", owner()?)),
    }
}

/// Returns the process at the other ends of all connections that the waits are on, if that is a single one.
fn find_only_peer<'r>(wait: &OpenWait, recording: &'r Recording) -> Option<&'r PeerProcess> {
    let waited_on = wait.waited_on();
    let sockets = waited_on.iter().filter_map(|on| match on {
        WaitedOn::File { file, .. } => recording.files.socket(*file),
        WaitedOn::Futex { .. } => None,
    });
    let mut peers = sockets.flat_map(|socket| &socket.peers);
    let first = peers.next()?;
    peers.all(|peer| peer.tgid == first.tgid).then_some(first)
}

/// Names the processes of which one has to end the waits, where nobody knows which: that as a sentence, and a line
/// about each of the first few. None of them is the cause.
pub(super) fn describe_possible_answerers(
    wait: &OpenWait,
    share: f64,
    teller: ChainTeller<'_>,
    writer: &mut FindingWriter<'_>,
) -> Option<(String, Vec<FindingLine>)> {
    let mut threads = wait.threads();
    let first = threads.next()?;
    let possible = teller.graph.possible_answerers(first)?;
    if threads.any(|thread| teller.graph.possible_answerers(thread) != Some(possible)) {
        return None;
    }
    let (awaited, holders) = possible;
    let names = holders.iter().take(MAX_NAMED).map(|holder| {
        let owner = Owner::Process(holder.clone());
        teller.owner(first, &owner, writer)
    });
    let mut names: Vec<String> = names.collect();
    if let more @ 1.. = holders.len().saturating_sub(MAX_NAMED) {
        names.push(format!("{more} more"));
    }
    let all = names.join(", ");
    let unknown = match awaited {
        Awaited::Accept => format!("who has to accept it is not known: {all} listen"),
        Awaited::Room => format!("who has to read is not known: {all} hold the other end"),
        _ => format!("who has to answer is not known: {all} hold the other end"),
    };
    let mut lines = vec![FindingLine::without_function(unknown.clone(), share, false)];
    for holder in holders.iter().take(MAX_NAMED) {
        // What one of several threads does says little.
        let threads = teller.graph.threads_of_process(holder.tgid);
        let [thread] = *threads.as_slice() else { continue };
        let (what, function) = teller.state(thread, writer);
        let program = writer.words.programs.program_of_thread(thread);
        let time = teller.graph.open_time(thread);
        let hop = writer.words.hop(program, &BTreeSet::from([thread]), function, what, time);
        lines.push(teller.line(&hop, 2, share));
    }
    Some((unknown, lines))
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
