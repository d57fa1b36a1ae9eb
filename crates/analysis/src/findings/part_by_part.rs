//! The waits of findings, added up part by part: slow, and simple enough to be seen to be right. Tests
//! compare what [`super::path_sums`] makes with it.

use offwake_recording::units::Tgid;

use crate::{
    blame::{Blame, BlameEntryKind, BlameKind, BlamePart, Chains, HopDetail, IdleState, SleepId},
    filter::Filter,
    timeline::{NamedThread, ThreadIndex, WaitIndex},
    wait_sums::{FilteredWait, filter_wait, is_of_target},
};

use super::{
    meaning::SharedMeaning,
    path_sums::{WaitTrees, is_open},
    programs::ProgramId,
    root::RootKey,
    tree::{Node, NodeKey, chain_end},
    wait_meanings::WaitMeanings,
};

/// Walks the target's waits one after another, telling all ways to sleep apart, and adds each part to the
/// trees.
pub(crate) fn add_up(blame: &Blame<'_>, filter: &Filter, meanings: &WaitMeanings<'_>) -> WaitTrees {
    let filter = filter.for_recording(blame.recording());
    let mut trees = WaitTrees::default();
    let every_sleep: Vec<SleepId> = blame.sleeps().ids().collect();
    let mut walker = blame.walker_with_detail(HopDetail::Sleeps(&every_sleep));
    let waits = u32::try_from(blame.recording().waits.len()).unwrap_or(u32::MAX);
    for wait in (0..waits).map(WaitIndex).filter(|&wait| is_of_target(blame, wait)) {
        let walked = walker.walk(wait);
        let (parts, chains) = (walked.parts, walked.chains);
        if let Some(FilteredWait::Kept(kept)) = filter_wait(blame, &filter, wait, walked.sums()) {
            let busy = parts.iter().filter(|part| part.idle_state == IdleState::Busy);
            let waiter = (wait, kept.waiter);
            let mut is_counted = false;
            for part in busy {
                let Some(key) = add_part(&mut trees, meanings, waiter, part, chains) else {
                    continue;
                };
                let root = trees.roots.entry(key).or_default();
                root.stopped_peers.extend(meanings.stopped_peers(wait));
                if !std::mem::replace(&mut is_counted, true) {
                    root.count += 1;
                    if let Some(file) = meanings.file_of_wait(wait) {
                        *root.files.entry(file).or_default() += kept.blocked;
                    }
                }
                root.longest = root.longest.max(kept.blocked);
            }
        }
    }
    trees
}

/// A thread on a chain, and how it slept.
struct ChainStep {
    thread: ThreadIndex,
    program: ProgramId,
    slept: Option<SharedMeaning>,
    /// Its process, if those of others are told apart from it.
    process: Option<Tgid>,
}

/// Adds a part to the trees; returns the root, unless the part is of an open wait or left out.
fn add_part(
    trees: &mut WaitTrees,
    meanings: &WaitMeanings<'_>,
    (wait, waiter): (WaitIndex, NamedThread),
    part: &BlamePart,
    chains: &Chains,
) -> Option<RootKey> {
    let program = meanings.programs.program_under_name(waiter);
    if meanings.is_left_out(program) {
        return None;
    }
    let own_sleep = meanings.get(meanings.meaning_of_wait(wait))?;
    let key = (program, own_sleep.clone());
    if is_open(meanings, wait, part) {
        let state_and_object = meanings.state_and_object(wait)?;
        trees.open.insert(key, waiter.thread, state_and_object, part.time);
        return None;
    }
    let root = trees.roots.entry(key.clone()).or_default();
    let steps = chain_steps(part, chains, meanings);
    add_to_tree(&mut root.node, (program, own_sleep), waiter.thread, part, steps, meanings);
    Some(key)
}

/// Returns the threads of the chain that a part is about, from the wait on.
fn chain_steps(part: &BlamePart, chains: &Chains, meanings: &WaitMeanings<'_>) -> Vec<ChainStep> {
    let hops = chains.hops(part.chain);
    // How a thread slept is told by the hop that woke it.
    let slept = hops.iter().skip(1).map(|next| next.slept).chain([part.slept]);
    (hops.iter().zip(slept))
        .map(|(hop, slept)| ChainStep {
            thread: hop.thread.thread,
            program: meanings.programs.program_under_name(hop.thread),
            slept: meanings.get(meanings.meaning_of_sleep(slept)).cloned(),
            process: meanings
                .find_process_apart(hop.thread.thread, meanings.meaning_of_sleep(slept)),
        })
        .collect()
}

fn add_to_tree(
    root: &mut Node,
    (own_program, own_sleep): (ProgramId, &SharedMeaning),
    waiter: ThreadIndex,
    part: &BlamePart,
    steps: Vec<ChainStep>,
    meanings: &WaitMeanings<'_>,
) {
    let end = chain_end(part);
    root.add(waiter, part.time);
    if steps.is_empty() {
        // What ended the wait is no thread: the waiter itself ends the chain.
        let key = NodeKey { program: own_program, slept: None, end: Some(end) };
        return root.children.entry(key).or_default().add(waiter, part.time);
    }
    let mut node = root;
    let mut group = (own_program, Some(own_sleep.clone()), None);
    let last = steps.len() - 1;
    for (n, ChainStep { thread, program, slept, process }) in steps.into_iter().enumerate() {
        let is_last = n == last;
        // Threads that wait for each other in the same function are one group.
        let is_of_group = slept.is_some() && group == (program, slept.clone(), process);
        if !is_last && (is_of_group || meanings.is_messenger(program)) {
            continue;
        }
        let key = NodeKey { program, slept: slept.clone(), end: is_last.then_some(end) };
        group = (program, slept, process);
        node = node.children.entry(key).or_default();
        node.add(thread, part.time);
        if is_last && end.kind == BlameEntryKind::Work {
            *node.work.entry(part.stack).or_default() += part.time;
        }
    }
    if let BlameKind::CpuQueue { holder, .. } = part.kind {
        let holder = holder.map(|thread| meanings.programs.program_of_thread(thread));
        *node.holders.entry(holder).or_default() += part.time;
    }
}
