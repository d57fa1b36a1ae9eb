//! Finds the findings.

use std::collections::{BTreeSet, HashMap};

use indexmap::IndexMap;
use offwake_recording::{Recording, units::Nanos};

use crate::{
    blame::{
        Blame, BlameKind, BlamePart, Chains, External, FrameEvidence, IdleState, Ledger, Reason,
        SleepId, Sleeps,
        cause::{Cause, WaitedOn},
    },
    report::{
        BlameEntryKind, Label,
        label::LabelFinder,
        wait_sums::{WaitAttributes, WaitAttributesTable, WaitSums, WakerKey},
    },
    timeline::{ThreadIndex, Timeline},
};

use super::{
    describe::{self, Words},
    disk_users,
    meaning::Meanings,
    model::{
        Finding, FindingCause, FindingHop, FindingKind, FindingLine, Findings, TargetActivity,
    },
    open_waits::{self, OpenWaits},
    programs::{ProgramId, ProgramKind, Programs},
    running,
    tree::{self, ChainEnd, Describer, Node, NodeKey, SleepMeaning},
};

/// The most findings; the rest is counted.
const MAX_FINDINGS: usize = 20;
/// What takes a smaller part of the active time is no finding.
const MIN_SHARE: f64 = 0.005;
/// The most hops of a chain that are shown.
const MAX_HOPS: usize = 5;
/// A branch of a chain is shown if it takes at least this part of its finding.
const MIN_BRANCH: f64 = 0.15;
/// The most lines of one finding.
const MAX_LINES: usize = 8;
/// A thread that was idle for a larger part of its life had nothing to do: the rest of its life
/// alone counts as active.
const IDLE_THREAD: f64 = 0.9;
/// A target that did something in a larger part of the window is not stuck as a whole.
const MIN_ACTIVITY: f64 = 0.02;
/// A finding whose waits make up this part of another's chain is told by that one already.
const COVERED: f64 = 0.8;

/// What findings are made from.
pub(crate) struct FindingInput<'a> {
    pub(crate) blame: &'a Blame<'a>,
    pub(crate) sums: &'a WaitSums,
    pub(crate) attributes: &'a WaitAttributesTable,
    pub(crate) chains: &'a Chains,
}

/// The waits of threads of one program that mean the same.
#[derive(Default)]
pub(super) struct WaitRoot {
    pub(super) node: Node,
    pub(super) count: u64,
    pub(super) longest: Nanos,
}

/// What roots have to have in common to be one.
pub(super) type RootKey = (ProgramId, SleepMeaning);

/// Names what parts of chains refer to.
pub(super) struct MeaningDescriber<'a> {
    programs: &'a Programs<'a>,
    sleeps: &'a Sleeps,
    known: HashMap<SleepId, Option<SleepMeaning>>,
    pub(super) meanings: Meanings<'a>,
}

impl Describer for MeaningDescriber<'_> {
    fn program(&self, thread: ThreadIndex) -> ProgramId {
        self.programs.program_of_thread(thread)
    }

    fn sleep(&mut self, id: SleepId) -> Option<SleepMeaning> {
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        let meaning = self.sleeps.get(id).map(|sleep| {
            let label = self.meanings.sleep_label(sleep.cause, sleep.stack);
            tree::sleep_meaning(sleep, label, self.meanings.kernel_wait(sleep.stack))
        });
        self.known.insert(id, meaning.clone());
        meaning
    }
}

/// Finds what holds the target up.
pub(crate) fn find_findings(input: &FindingInput<'_>) -> Findings {
    let FindingInput { blame, sums, attributes, chains } = *input;
    let (recording, timeline) = (blame.recording(), blame.timeline());
    let programs = Programs::new(recording, timeline);
    let labels = LabelFinder::new(&recording.stacks);
    let mut describer = MeaningDescriber {
        programs: &programs,
        sleeps: blame.sleeps(),
        known: HashMap::new(),
        meanings: Meanings::new(blame.stacks(), blame.sleeps(), labels),
    };
    let mut activity = Activity::new(timeline, &sums.ledgers);
    let leads_with_kernel = !timeline.threads.iter().zip(0..).any(|(thread, n)| {
        let program = programs.program(programs.program_of_thread(ThreadIndex(n)));
        thread.in_target && program.is_some_and(|known| known.kind == ProgramKind::User)
    });
    let mut roots: IndexMap<RootKey, WaitRoot> = IndexMap::new();
    let mut open = OpenWaits::default();
    for (key, sum) in &sums.waits {
        let waiter = key.waiter.thread;
        let program = programs.program_of_thread(waiter);
        let is_kernel =
            programs.program(program).is_none_or(|known| known.kind == ProgramKind::Kernel);
        if is_kernel && !leads_with_kernel {
            continue;
        }
        let shown = attributes.get(key);
        let meaning = root_meaning(recording, shown, &mut describer.meanings);
        let root_key = (program, meaning);
        let mut is_first = true;
        for part in sum.parts.as_slice() {
            if part.idle_state == IdleState::Idle {
                continue;
            }
            // The profiler ends the command that it started when the window is over.
            let is_open = match part.kind {
                BlameKind::Unattributed(Reason::StillBlocked) => true,
                BlameKind::Unattributed(Reason::NotRecorded) => is_profiler(recording, key.waker),
                _ => false,
            };
            if is_open && part.depth == 0 {
                open.insert(root_key.clone(), waiter, shown, part.time);
                continue;
            }
            let root = roots.entry(root_key.clone()).or_default();
            if std::mem::take(&mut is_first) {
                root.count += sum.count;
                root.longest = root.longest.max(sum.longest);
            }
            let end = chain_end(&programs, part);
            let own = (program, &root_key.1);
            tree::add_part(&mut root.node, own, waiter, part, end, chains, &mut describer);
        }
    }
    let words = Words { programs: &programs, timeline };
    let window = recording.meta.window.length();
    // Whatever else the target does says that it is not stuck as a whole.
    let sleeps = |(_, meaning): &RootKey| meaning.cause == Cause::Timer;
    let waited: Nanos =
        roots.iter().filter(|(key, _)| !sleeps(key)).map(|(_, root)| root.node.time).sum();
    let is_anything_else =
        (activity.on_cpu + activity.runnable + waited).0 as f64 > window.0 as f64 * MIN_ACTIVITY;
    let stuck = open_waits::find_stuck(&open, timeline, window, is_anything_else);
    activity.add_stuck(timeline, stuck.iter().flat_map(|(_, wait)| wait.threads()));
    let mut writer = FindingWriter { words, describer, active: activity.active };
    let mut found = open_waits::describe_stuck(&stuck, recording, &mut writer);
    found.extend(running::find(blame, &activity, &mut writer));
    let covered = covered_roots(&roots);
    let mut disk_users = None;
    for ((key, root), is_covered) in roots.iter().zip(covered) {
        let mut finding = writer.wait_finding(key, root);
        if finding.cause.kind == BlameEntryKind::Disk.name() && finding.share >= MIN_SHARE {
            let users = disk_users.get_or_insert_with(|| {
                disk_users::find(blame, &programs, &mut writer.describer.meanings)
            });
            finding.lines.extend(disk_users::line(users, key.0, &programs));
        }
        found.push((finding, is_covered));
    }
    rank(found, &activity)
}

fn is_profiler(recording: &Recording, waker: WakerKey) -> bool {
    matches!(waker, WakerKey::Task { task, .. } if Some(task.tgid) == recording.meta.profiler)
}

/// Returns how the waiters of some waits slept.
fn root_meaning(
    recording: &Recording,
    shown: &WaitAttributes,
    meanings: &mut Meanings<'_>,
) -> SleepMeaning {
    let role = match shown.waited_on {
        Some(WaitedOn::File { file, .. }) => match recording.files.files.get(&file) {
            Some(offwake_recording::OpenFile::Socket(socket)) => socket.role,
            _ => None,
        },
        _ => None,
    };
    let label = meanings.sleep_label(shown.cause, shown.stack);
    let kernel = meanings.kernel_wait(shown.stack);
    SleepMeaning { cause: shown.cause, label, role, kernel, evidence: shown.evidence }
}

fn chain_end(programs: &Programs<'_>, part: &BlamePart) -> ChainEnd {
    let (kind, reason) = match part.kind {
        BlameKind::Work(_) => (BlameEntryKind::Work, None),
        BlameKind::CpuQueue { .. } => (BlameEntryKind::CpuQueue, None),
        BlameKind::External(External::Timer) => (BlameEntryKind::Timer, None),
        BlameKind::External(External::Disk) => (BlameEntryKind::Disk, None),
        BlameKind::External(External::Network) => (BlameEntryKind::Network, None),
        BlameKind::External(External::Device) => (BlameEntryKind::Device, None),
        BlameKind::Unattributed(reason) => (BlameEntryKind::Unattributed, Some(reason.name())),
    };
    let holder = match part.kind {
        BlameKind::CpuQueue { holder, .. } => holder.map(|it| programs.program_of_thread(it)),
        _ => None,
    };
    ChainEnd { kind, reason, holder }
}

/// What the target's threads did with their time.
pub(super) struct Activity<'a> {
    pub(super) ledgers: &'a [Ledger],
    /// The time of all threads, without that of threads that had nothing to do.
    pub(super) active: Nanos,
    pub(super) on_cpu: Nanos,
    pub(super) runnable: Nanos,
    idle: Nanos,
    idle_threads: u64,
}

impl<'a> Activity<'a> {
    fn new(timeline: &Timeline, ledgers: &'a [Ledger]) -> Self {
        let mut activity = Self {
            ledgers,
            active: Nanos(0),
            on_cpu: Nanos(0),
            runnable: Nanos(0),
            idle: Nanos(0),
            idle_threads: 0,
        };
        for (thread, ledger) in timeline.threads.iter().zip(ledgers) {
            if !thread.in_target {
                continue;
            }
            let idle = idle_time(ledger);
            activity.on_cpu += ledger.on_cpu;
            activity.runnable += ledger.runnable;
            activity.idle += idle;
            let is_idle = is_idle_thread(ledger);
            activity.idle_threads += u64::from(is_idle);
            activity.active += if is_idle { ledger.wall - idle } else { ledger.wall };
        }
        activity
    }

    /// Counts the time of threads that are stuck, which are no idle ones.
    fn add_stuck(&mut self, timeline: &Timeline, threads: impl Iterator<Item = ThreadIndex>) {
        let threads: BTreeSet<ThreadIndex> = threads.collect();
        for thread in threads {
            let place = thread.0 as usize;
            let Some((ledger, life)) = self.ledgers.get(place).zip(timeline.thread(thread)) else {
                continue;
            };
            let idle = idle_time(ledger);
            if life.in_target && is_idle_thread(ledger) {
                self.idle_threads -= 1;
                self.active += idle;
            }
            self.idle = self.idle - idle;
        }
    }
}

/// Returns the time of a thread that had nothing to do, or never woke.
fn idle_time(ledger: &Ledger) -> Nanos {
    let still = Reason::ALL.iter().position(|reason| *reason == Reason::StillBlocked);
    let asleep = still.and_then(|n| ledger.unattributed.get(n)).copied();
    // Who never woke up either has nothing to do, or is a finding of its own.
    ledger.idle.max(asleep.unwrap_or_default())
}

fn is_idle_thread(ledger: &Ledger) -> bool {
    idle_time(ledger).0 as f64 >= ledger.wall.0 as f64 * IDLE_THREAD
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

/// A finding, and whether others tell it already.
pub(super) type Found = (Finding, bool);

fn rank(mut found: Vec<Found>, activity: &Activity<'_>) -> Findings {
    found.retain(|(finding, _)| finding.share >= MIN_SHARE);
    found.sort_by_key(|(finding, is_covered)| {
        // What takes the time comes by time, on a CPU or off; the rest comes before or after it.
        let class = match finding.kind {
            FindingKind::StillWaiting => 0,
            FindingKind::Throttled => 1,
            FindingKind::CpuStarvation if finding.share >= 0.5 => 2,
            FindingKind::CpuStarvation | FindingKind::Wait | FindingKind::OnCpu => 3,
            FindingKind::Sleep => 4,
        };
        // A cause that is known helps more than one that is not.
        let is_known = finding.cause.kind != BlameEntryKind::Unattributed.name();
        let weight = if is_known { finding.ns.0 } else { finding.ns.0 / 2 };
        (*is_covered, class, std::cmp::Reverse(weight))
    });
    let left_out = found.len().saturating_sub(MAX_FINDINGS) as u64;
    found.truncate(MAX_FINDINGS);
    let activity = TargetActivity {
        active_ns: activity.active,
        on_cpu_ns: activity.on_cpu,
        idle_threads: activity.idle_threads,
        idle_ns: activity.idle,
        findings_left_out: left_out,
    };
    Findings { list: found.into_iter().map(|(finding, _)| finding).collect(), activity }
}

/// Writes findings in words.
pub(super) struct FindingWriter<'a> {
    pub(super) words: Words<'a>,
    pub(super) describer: MeaningDescriber<'a>,
    /// The time that shares are of.
    pub(super) active: Nanos,
}

impl FindingWriter<'_> {
    pub(super) fn share(&self, time: Nanos) -> f64 {
        if self.active == Nanos(0) { 0.0 } else { time.0 as f64 / self.active.0 as f64 }
    }

    fn wait_finding(&mut self, key: &RootKey, root: &WaitRoot) -> Finding {
        let (program, meaning) = key;
        let mut path = main_path(&root.node);
        // A wait that no thread ended has its end at the waiter itself.
        let own_end = path.first().is_some_and(|(key, _)| key.slept.is_none() && is_own(key, root))
            && path.len() == 1
            && path.first().and_then(|(key, _)| key.end).is_some_and(is_external_or_unknown);
        let function = meaning.label.as_ref().map(|label| label.function.to_string());
        let what = match (own_end, path.first()) {
            (true, Some((NodeKey { end: Some(end), .. }, _))) => {
                self.words.end(*end, Some(meaning))
            }
            (_, first) => {
                let next = first.map(|(key, next)| {
                    (
                        key.program,
                        self.words.relation(&root.node.main_threads(), &next.main_threads()),
                    )
                });
                self.words.sleep(meaning, *program, next)
            }
        };
        let waiter =
            self.words.hop(*program, &root.node.main_threads(), function, what, root.node.time);
        let mut chain = vec![waiter];
        let cause_node = path.last().map(|(_, node)| node.time).unwrap_or_default();
        let cause_key = path.last().map(|(key, _)| (*key).clone());
        if own_end {
            path.clear();
        }
        for (key, node) in &path {
            chain.push(self.node_hop(key, node));
        }
        let end = cause_key.and_then(|key| key.end);
        let last = chain.last().cloned();
        let cause = FindingCause {
            kind: end.map_or("unattributed", |end| end.kind.name()),
            reason: end.and_then(|end| end.reason),
            share: self.share(cause_node),
            ns: cause_node,
            text: last.as_ref().map(describe_hop).unwrap_or_default(),
        };
        let kind = match (meaning.cause, end.map(|end| end.kind)) {
            (Cause::Throttled, _) => FindingKind::Throttled,
            (Cause::Timer, Some(BlameEntryKind::Timer)) if own_end => FindingKind::Sleep,
            (_, Some(BlameEntryKind::Timer))
                if own_end && meaning.evidence == FrameEvidence::Sleep =>
            {
                FindingKind::Sleep
            }
            _ => FindingKind::Wait,
        };
        let mut lines = Vec::new();
        if let Some(waiter) = chain.first() {
            lines.push(FindingLine {
                depth: 0,
                text: describe_hop_without_function(waiter),
                function: function_of_hop(waiter),
                detail: match root.count {
                    0 | 1 => root.longest.to_string(),
                    many => format!("{many}×, max {}", root.longest),
                },
                share: self.share(root.node.time),
                is_cause: own_end,
            });
        }
        if !own_end {
            self.push_lines(&root.node, root.node.time, 1, true, &mut lines);
        }
        let text = match (&last, own_end) {
            (Some(last), false) => format!("{}: {}", describe_hop(&chain[0]), describe_hop(last)),
            _ => describe_hop(&chain[0]),
        };
        Finding {
            kind,
            share: self.share(root.node.time),
            ns: root.node.time,
            count: root.count,
            longest_ns: root.longest,
            still_waiting: false,
            chain,
            cause,
            text,
            lines,
        }
    }

    /// Describes a node of a tree.
    fn node_hop(&mut self, key: &NodeKey, node: &Node) -> FindingHop {
        let next = node.children_by_time().first().map(|(key, next)| {
            (key.program, self.words.relation(&node.main_threads(), &next.main_threads()))
        });
        let work = node.work.iter().map(|(&stack, &time)| (stack, time));
        let label: Option<Label> = match (&key.slept, key.end.map(|end| end.kind)) {
            (_, Some(BlameEntryKind::Work)) => self.describer.meanings.work_label(work),
            (Some(slept), _) => slept.label.clone(),
            (None, _) => None,
        };
        let what = match (key.end, &key.slept) {
            (Some(end), slept) => self.words.end(end, slept.as_ref()),
            (None, Some(slept)) => self.words.sleep(slept, key.program, next),
            (None, None) => "waits".to_owned(),
        };
        let function = label.map(|label| label.function.to_string());
        self.words.hop(key.program, &node.main_threads(), function, what, node.time)
    }

    /// Adds the lines of a node's children, those on the path with most of the time first.
    fn push_lines(
        &mut self,
        node: &Node,
        all: Nanos,
        depth: u16,
        is_main: bool,
        lines: &mut Vec<FindingLine>,
    ) {
        if usize::from(depth) > MAX_HOPS {
            return;
        }
        for (n, (key, child)) in node.children_by_time().into_iter().enumerate() {
            let is_first = is_main && n == 0;
            let is_shown = is_first || child.time.0 as f64 >= all.0 as f64 * MIN_BRANCH;
            if !is_shown || lines.len() >= MAX_LINES {
                break;
            }
            let hop = self.node_hop(key, child);
            let is_cause = is_first && child.children.is_empty();
            lines.push(FindingLine {
                depth,
                text: describe_hop_without_function(&hop),
                function: function_of_hop(&hop),
                detail: String::new(),
                share: self.share(child.time),
                is_cause,
            });
            self.push_lines(child, all, depth + 1, is_first, lines);
        }
    }
}

/// `postgres 21753 "UPDATE waiting" waits for its client in secure_read`
pub(super) fn describe_hop(hop: &FindingHop) -> String {
    let function = function_of_hop(hop).map(|name| format!(" in {name}")).unwrap_or_default();
    format!("{}{function}", describe_hop_without_function(hop))
}

/// `postgres 21753 "UPDATE waiting" waits for its client`
pub(super) fn describe_hop_without_function(hop: &FindingHop) -> String {
    format!("{} {}", describe::who(hop), hop.what)
}

/// Returns the function in which a hop's threads slept or worked, as lines have it.
pub(super) fn function_of_hop(hop: &FindingHop) -> Option<String> {
    hop.function.as_deref().map(describe::function_name)
}

/// Returns the path from a root on which most of the time was spent.
fn main_path(root: &Node) -> Vec<(&NodeKey, &Node)> {
    let mut path = Vec::new();
    let mut node = root;
    while let Some((key, child)) = node.children_by_time().into_iter().next() {
        path.push((key, child));
        node = child;
    }
    path
}

/// Returns whether a node of the first level stands for the waiter itself.
fn is_own(key: &NodeKey, root: &WaitRoot) -> bool {
    root.node.children.get(key).is_some_and(|node| {
        node.threads.keys().all(|thread| root.node.threads.contains_key(thread))
    })
}

fn is_external_or_unknown(end: ChainEnd) -> bool {
    !matches!(end.kind, BlameEntryKind::Work | BlameEntryKind::CpuQueue)
}
