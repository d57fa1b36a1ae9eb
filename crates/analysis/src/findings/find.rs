//! Finds the findings.

use std::collections::{BTreeSet, HashMap};

use indexmap::IndexMap;
use offwake_recording::units::{Nanos, Timestamp};

use crate::{
    blame::{BlameEntryKind, Ledger, Reason, cause::Cause},
    quotas::ThrottledTimes,
    timeline::ThreadIndex,
};

use super::{
    activity::Activity,
    chain_words::ChainTeller,
    connection_peer, deadlocks,
    describe::Words,
    disk_users,
    found::{self, Coverage, Found},
    fuse_servers::{self, FuseWait, NamedServer},
    hop_tree::{HopBox, HopTree},
    less_known::join_less_known_roots,
    limited_waits::LimitedWaits,
    model::{FindingKind, Findings, TargetActivity},
    open_chains::{Deadlock, OpenWaitGraph},
    open_waits::{self, StuckThreads},
    path_sums::WaitTrees,
    polled_locks,
    root::{RootKey, WaitRoot},
    running,
    same_cause::mark_same_causes,
    sleep_lengths::SleepLengths,
    tree::Node,
    wait_meanings::WaitMeanings,
    write::{FindingWriter, main_path},
};

/// The most findings; the rest is counted.
const MAX_FINDINGS: usize = 20;
/// What takes a smaller part of the active time is no finding.
pub(super) const MIN_SHARE: f64 = 0.005;
/// A target that did something in a larger part of the window is not stuck as a whole.
const MIN_ACTIVITY: f64 = 0.02;
/// A finding whose waits make up this part of another's chain is told by that one already.
const COVERED: f64 = 0.8;

/// What findings are made from.
pub(crate) struct FindingInput<'a> {
    pub(crate) meanings: WaitMeanings<'a>,
    pub(crate) trees: WaitTrees,
    /// The ledgers of all threads, by [`ThreadIndex`].
    pub(crate) ledgers: &'a [Ledger],
}

/// Finds what holds the target up.
pub(crate) fn find_findings(input: FindingInput<'_>) -> Findings {
    let FindingInput { meanings, trees, ledgers } = input;
    let sleep_lengths = SleepLengths::measure(&meanings);
    let WaitMeanings { blame, programs, mut meanings, stopped, .. } = meanings;
    let WaitTrees { roots, mut open } = trees;
    let (recording, timeline) = (blame.recording(), blame.timeline());
    let mut activity = Activity::new(blame, ledgers);
    let roots = join_less_known_roots(roots);
    let throttled = ThrottledTimes::new(recording, timeline);
    let limited_waits = LimitedWaits::find(blame, &mut meanings);
    let words = Words {
        recording,
        throttled: &throttled,
        programs: &programs,
        timeline,
        limited_waits: &limited_waits,
    };
    let window = recording.meta.window.length();
    // Whatever else the target does says that it is not stuck as a whole.
    let sleeps = |(_, meaning): &RootKey| {
        let is_on_purpose = meaning.lock().is_none() && meaning.blocked_loop.is_none();
        meaning.cause == Cause::Timer && is_on_purpose
    };
    let waited = |is_counted: &dyn Fn(&RootKey) -> bool| -> Nanos {
        roots.iter().filter(|(key, _)| is_counted(key)).map(|(_, root)| root.node.time).sum()
    };
    let busy = activity.on_cpu + activity.runnable;
    let is_anything_else =
        (busy + waited(&|key| !sleeps(key))).0 as f64 > window.0 as f64 * MIN_ACTIVITY;
    let graph = OpenWaitGraph::new(blame);
    let deadlocks = graph.find_deadlocks();
    let dead: BTreeSet<ThreadIndex> = deadlocks.iter().flat_map(Deadlock::threads).collect();
    open.remove_threads(&dead);
    let stuck = open_waits::find_stuck(&open, &roots, &graph, timeline, window, is_anything_else);
    let all_stuck = dead.iter().copied().chain(stuck.iter().flat_map(StuckThreads::threads));
    activity.subtract_stuck(timeline, all_stuck);
    let stuck_time: Nanos = dead.iter().map(|&thread| graph.open_time(thread)).sum::<Nanos>()
        + stuck.iter().map(StuckThreads::time).sum();
    let active = busy + waited(&|_| true) + stuck_time;
    let mut writer = FindingWriter { words, meanings, sleep_lengths, active };
    let teller = ChainTeller { blame, graph: &graph };
    let mut found = deadlocks::describe_deadlocks(&deadlocks, teller, &mut writer);
    let mut stuck_found = open_waits::describe_stuck(&stuck, teller, recording, &mut writer);
    let mut disk_users = None;
    for (found, stuck) in stuck_found.iter_mut().zip(&stuck) {
        if let Some(filesystem) = stuck.filesystem(recording) {
            let users = disk_users.get_or_insert_with(|| {
                disk_users::find(blame, recording, &programs, &mut writer.meanings)
            });
            let whole = (recording, &programs);
            disk_users::name_in_open(&mut found.finding, stuck, filesystem, users, whole);
        }
    }
    let is_unnamed = |(_, stuck): &(_, &StuckThreads)| !stuck.leads_to_filesystem();
    for (found, stuck) in stuck_found.iter_mut().zip(&stuck).filter(is_unnamed) {
        let of_filesystem = FuseWait {
            meaning: stuck.meaning(),
            waited_on: &stuck.wait().waited_on(),
            threads: stuck.threads().collect(),
            since: Timestamp(recording.meta.window.end.0 - stuck.wait().longest().0),
        };
        let named = fuse_servers::name_server(&found.finding, &of_filesystem, teller, &mut writer);
        if let Some(NamedServer { finding, class }) = named {
            *found = Found { coverage: found.coverage, ..Found::new(finding, class) };
        }
    }
    found.extend(stuck_found);
    let running = running::find(blame, &activity, &mut writer);
    found.extend(running.found);
    let covered = covered_roots(&roots);
    let mut smaller = running.others;
    for ((key, root), is_covered) in roots.iter().zip(covered) {
        if writer.share(root.node.time) < MIN_SHARE {
            let hops = HopBox { time: found::wait_time(key, root), ..HopBox::default() };
            smaller.push(hops);
            continue;
        }
        let mut finding = writer.wait_finding(key, root);
        stopped.name_in(&mut finding, &root.stopped_peers, &writer);
        if finding.cause.reason == Some(Reason::TcpTimer.name()) && finding.chain.len() == 1 {
            connection_peer::name_in(&mut finding, root, &writer);
        }
        if finding.cause.kind == BlameEntryKind::Network.name() && finding.chain.len() == 1 {
            connection_peer::name_address_in(&mut finding, root, &writer);
        }
        if key.1.polled_lock().is_some() && finding.chain.len() == 1 {
            polled_locks::name_holder(&mut finding, root, teller, &mut writer);
        }
        if finding.cause.kind == BlameEntryKind::Disk.name() {
            let users = disk_users.get_or_insert_with(|| {
                disk_users::find(blame, recording, &programs, &mut writer.meanings)
            });
            let path = main_path(&root.node);
            let limit = path.last().and_then(|(last, node)| {
                let slept = last.slept.as_deref().unwrap_or(&key.1);
                writer.words.io_limit(Some(slept), last.program, node)
            });
            let path: Vec<_> = path.into_iter().map(|(key, _)| key).collect();
            let (who, path) = ((key.0, &*key.1), (path.as_slice(), limit));
            disk_users::name_in(&mut finding, who, root, path, users, recording, &programs);
        }
        let hops = writer.wait_hops(&finding, key, root);
        let coverage = if is_covered { Coverage::ToldByOthers } else { Coverage::News };
        found.push(Found { finding, hops, coverage });
    }
    let target_program = programs.name_only_process();
    let leads_from = open_waits::shortest_leading(window);
    Findings { target_program, ..rank(found, smaller, leads_from, active, &activity) }
}

/// Returns for each root whether the chains of roots that matter more tell of its waits already.
/// A server's wait for its disk is told by the wait of the client who waits for that server.
fn covered_roots(roots: &IndexMap<RootKey, WaitRoot>) -> Vec<bool> {
    let mut order: Vec<usize> = (0..roots.len()).collect();
    order.sort_by_key(|&n| std::cmp::Reverse(roots[n].node.time));
    let mut inside: HashMap<RootKey, Nanos> = HashMap::new();
    let mut covered = vec![false; roots.len()];
    for n in order {
        let Some((key, root)) = roots.get_index(n) else { continue };
        let told = inside.get(key).copied().unwrap_or_default();
        covered[n] = told.0 as f64 >= root.node.time.0 as f64 * COVERED;
        if !covered[n] {
            add_inner_nodes(&root.node, &mut inside);
        }
    }
    covered
}

fn add_inner_nodes(node: &Node, inside: &mut HashMap<RootKey, Nanos>) {
    for (key, child) in &node.children {
        if let Some(slept) = &key.slept {
            *inside.entry((key.program, slept.clone())).or_default() += child.time;
        }
        add_inner_nodes(child, inside);
    }
}

/// Ranks what was found. `smaller` is what is no finding, and in pictures nevertheless; open waits that
/// are shorter than `leads_from` come by time.
fn rank(
    mut found: Vec<Found>,
    smaller: Vec<HopBox>,
    leads_from: Nanos,
    active: Nanos,
    activity: &Activity<'_>,
) -> Findings {
    found.sort_by_key(|Found { finding, coverage, .. }| {
        // What takes the time comes by time, on a CPU or off; the rest comes before or after it.
        let class = match finding.kind {
            FindingKind::Deadlock => 0,
            FindingKind::StillWaiting if finding.longest_ns >= leads_from => 1,
            FindingKind::Throttled => 2,
            FindingKind::CpuStarvation => 3,
            FindingKind::StillWaiting | FindingKind::Wait | FindingKind::OnCpu => 4,
            FindingKind::Sleep => 5,
        };
        // A cause that is known helps more than one that is not.
        let is_known = finding.cause.kind != BlameEntryKind::Unattributed.name()
            || finding.still_waiting && finding.chain.len() > 1;
        let weight = if is_known { finding.ns.0 } else { finding.ns.0 / 2 };
        // Sleeps share the last line of screens: all others have the same numbers there as here.
        let is_sleep = finding.kind == FindingKind::Sleep;
        (is_sleep, *coverage, class, std::cmp::Reverse(weight))
    });
    let (mut list, mut boxes) = (Vec::new(), Vec::new());
    let mut left_out = 0;
    for Found { finding, mut hops, .. } in found {
        // A deadlock never ends: how short it has been says nothing.
        if finding.share < MIN_SHARE && finding.kind != FindingKind::Deadlock {
            boxes.push(hops);
            continue;
        }
        if list.len() < MAX_FINDINGS {
            list.push(finding);
            hops.finding = Some(list.len());
        } else {
            left_out += 1;
        }
        boxes.push(hops);
    }
    mark_same_causes(&mut list);
    boxes.extend(smaller);
    let activity = TargetActivity {
        active_ns: active,
        on_cpu_ns: activity.on_cpu,
        idle_threads: activity.idle_threads,
        active_threads: activity.active_threads,
        idle_ns: activity.idle,
        open_ns: activity.open,
        findings_left_out: left_out,
        coroutines: activity.coroutines,
    };
    Findings { list, activity, target_program: None, hop_tree: HopTree::new(boxes) }
}
