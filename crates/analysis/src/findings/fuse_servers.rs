//! Who serves the FUSE filesystem that threads still wait for, and what its threads do instead of
//! answering.
//!
//! ```text
//! python3 reads /mnt/report    still waiting; its file is on device 45
//! └ bucketfs                   has connection 45 open; its thread sleeps in fetch_object
//! ```

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use offwake_recording::{
    FuseServer, Recording,
    units::{Nanos, Tgid, Timestamp},
};

use crate::{
    blame::{BlameClass, IdleHint, cause::WaitedOn},
    timeline::{State, ThreadIndex},
};

use super::{
    chain_words::ChainTeller,
    meaning::{SharedMeaning, SleepMeaning},
    model::{Finding, FindingHop, FindingLine},
    open_chains::find_servers,
    write::{FindingWriter, describe_hop, describe_hop_without_function, function_of_hop},
};

/// The most groups of a server's threads that are shown.
const MAX_GROUPS: usize = 2;

/// Threads that wait to the end, and what for.
pub(super) struct FuseWait<'w> {
    pub(super) meaning: &'w SleepMeaning,
    pub(super) waited_on: &'w [WaitedOn],
    pub(super) threads: BTreeSet<ThreadIndex>,
    /// When the first of these waits began, as far as it was seen.
    pub(super) since: Timestamp,
}

/// A finding that names who serves a filesystem.
pub(super) struct NamedServer {
    pub(super) finding: Finding,
    /// What its time goes to: what the server does instead of answering.
    pub(super) class: BlameClass,
}

/// Returns a finding with who serves the filesystem that its threads wait for, if they wait for one
/// and somebody is known to serve it.
pub(super) fn name_server(
    finding: &Finding,
    wait: &FuseWait<'_>,
    teller: ChainTeller<'_>,
    writer: &mut FindingWriter<'_>,
) -> Option<NamedServer> {
    let servers = find_servers_of_wait(wait, teller.blame.recording());
    let processes: BTreeSet<Tgid> = servers.iter().map(|server| server.server.tgid).collect();
    let first = servers.first()?;
    // Earlier kernels don't say who serves which filesystem.
    let is_one_filesystem =
        first.device.is_some() && servers.iter().all(|server| server.device == first.device);
    let mut finding = finding.clone();
    if processes.len() > 1 && !is_one_filesystem {
        let names: Vec<String> = (servers.iter())
            .map(|server| describe_process(server, writer))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let text = format!("which of these serves it is not known: {}", names.join(", "));
        finding.lines.push(FindingLine::without_function(text, finding.share, false));
        return Some(NamedServer { finding, class: BlameClass::Unattributed });
    }
    let hops = describe_threads(&processes, wait, teller, writer);
    finding.lines.iter_mut().for_each(|line| line.is_cause = false);
    let Some((cause, class)) = hops.first().cloned() else {
        let text = format!("served by {}", describe_process(first, writer));
        finding.lines.push(FindingLine::without_function(text.clone(), finding.share, true));
        finding.cause.text = text;
        return Some(NamedServer { finding, class: BlameClass::Unattributed });
    };
    finding.cause.text = describe_hop(&cause);
    finding.text = format!("{}: {}", finding.text, describe_hop(&cause));
    for ((hop, _), n) in hops.iter().zip(0..) {
        finding.lines.push(FindingLine {
            depth: 1,
            text: describe_hop_without_function(hop),
            function: function_of_hop(hop),
            addition: hop.addition.clone(),
            detail: String::new(),
            share: finding.share,
            is_cause: n == 0,
        });
    }
    finding.chain.push(cause);
    Some(NamedServer { finding, class })
}

/// Finds who may serve the filesystem that threads wait for.
fn find_servers_of_wait<'r>(wait: &FuseWait<'_>, recording: &'r Recording) -> Vec<&'r FuseServer> {
    let devices: BTreeSet<u32> = (wait.waited_on.iter())
        .filter_map(|on| match on {
            WaitedOn::File { file, .. } => Some(file.device),
            WaitedOn::Futex { .. } => None,
        })
        .collect();
    find_servers(recording, &devices, wait.meaning.kernel)
}

/// Describes what threads of a server do that are not idle, those first that can be at work on what
/// is waited for, with what the time goes to of whoever waits for them.
fn describe_threads(
    processes: &BTreeSet<Tgid>,
    wait: &FuseWait<'_>,
    teller: ChainTeller<'_>,
    writer: &mut FindingWriter<'_>,
) -> Vec<(FindingHop, BlameClass)> {
    let blame = teller.blame;
    let timeline = blame.timeline();
    let window = blame.recording().meta.window;
    let mut asleep: IndexMap<SharedMeaning, Group> = IndexMap::new();
    let mut running = Group::default();
    for (thread, n) in timeline.threads.iter().zip(0..) {
        let index = ThreadIndex(n);
        if !processes.contains(&thread.tgid) || thread.until < window.end {
            continue;
        }
        let last = thread.track.len().checked_sub(1).and_then(|last| thread.track.get(last));
        let Some(last) = last else { continue };
        let time = window.end.since(last.from);
        match last.state {
            State::Blocked(open) if blame.idle_hint(open) != IdleHint::Idle => {
                let slept = writer.meanings.wait(blame, open, None);
                let group = asleep.entry(slept).or_default();
                group.add(index, time, last.from);
            }
            State::Blocked(_) | State::Lost | State::Summed(_) => {}
            State::OnCpu | State::Runnable(_) | State::Throttled(_) => {
                running.add(index, time, wait.since.max(last.from));
            }
        }
    }
    let mut hops = Vec::new();
    // A thread that has slept since before the request was made works on an older one, or waits for
    // the end of the others.
    let mut groups: Vec<(Option<SharedMeaning>, Group)> =
        asleep.into_iter().map(|(meaning, group)| (Some(meaning), group)).collect();
    if !running.threads.is_empty() {
        groups.push((None, running));
    }
    groups.sort_by_key(|(_, group)| (group.since < wait.since, group.since));
    for (meaning, group) in groups.into_iter().take(MAX_GROUPS) {
        let threads: BTreeSet<ThreadIndex> = group.threads.keys().copied().collect();
        let Some(&first) = threads.first() else { continue };
        let program = writer.words.programs.program_of_thread(first);
        let is_itself = threads.is_subset(&wait.threads);
        let (function, what) = match &meaning {
            _ if is_itself => (None, "serves it itself: a deadlock".to_owned()),
            Some(slept) => (slept.label.clone(), writer.words.sleep(slept, program, None, None)),
            None => {
                let work = threads.iter().flat_map(|&thread| blame.sampled_work(thread));
                (writer.meanings.work_label(work), "runs on a CPU".to_owned())
            }
        };
        let function = function.map(|label| label.function.to_string());
        let class = match is_itself {
            true => BlameClass::HeldBack,
            false => teller.class_of_thread(first, writer),
        };
        hops.push((writer.words.hop_at_end(program, &threads, function, what, group.time), class));
    }
    hops
}

fn describe_process(server: &FuseServer, writer: &FindingWriter<'_>) -> String {
    format!("{} {}", writer.words.process_name(&server.server), server.server.tgid)
}

/// Threads of a server that do the same.
struct Group {
    threads: BTreeMap<ThreadIndex, Nanos>,
    time: Nanos,
    /// Since when the last of them has been at it.
    since: Timestamp,
}

impl Default for Group {
    fn default() -> Self {
        Self { threads: BTreeMap::new(), time: Nanos(0), since: Timestamp(0) }
    }
}

impl Group {
    fn add(&mut self, thread: ThreadIndex, time: Nanos, since: Timestamp) {
        self.threads.insert(thread, time);
        self.time += time;
        self.since = self.since.max(since);
    }
}
