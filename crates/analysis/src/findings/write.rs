//! Writes findings in words.

use offwake_recording::units::Nanos;

use crate::{
    blame::{BlameEntryKind, FrameEvidence, Reason, cause::Cause},
    label::Label,
};

use super::{
    awaited_things::AwaitedThing,
    describe::{self, Words},
    meaning::{Meanings, SleepMeaning},
    model::{Finding, FindingCause, FindingHop, FindingKind, FindingLine, FindingSleep},
    root::{RootKey, WaitRoot},
    sleep_lengths::SleepLengths,
    tree::{ChainEnd, Node, NodeKey, count_threads},
    who,
};

/// The most hops of a chain that are shown.
const MAX_HOPS: usize = 5;
/// A branch of a chain is shown if it takes at least this part of its finding.
const MIN_BRANCH: f64 = 0.15;
/// The most lines of one finding.
const MAX_LINES: usize = 8;

/// Writes findings in words.
pub(super) struct FindingWriter<'a> {
    pub(super) words: Words<'a>,
    pub(super) meanings: Meanings<'a>,
    pub(super) sleep_lengths: SleepLengths,
    /// The time that shares are of.
    pub(super) active: Nanos,
}

impl FindingWriter<'_> {
    pub(super) fn share(&self, time: Nanos) -> f64 {
        if self.active == Nanos(0) { 0.0 } else { time.0 as f64 / self.active.0 as f64 }
    }

    pub(super) fn wait_finding(&mut self, key: &RootKey, root: &WaitRoot) -> Finding {
        let (program, meaning) = key;
        let mut path = main_path(&root.node);
        // A wait that no thread ended has its end at the waiter itself.
        let own_end = path.first().is_some_and(|(key, _)| key.slept.is_none() && is_own(key, root))
            && path.len() == 1
            && path.first().and_then(|(key, _)| key.end).is_some_and(is_external_or_unknown);
        let function = meaning.label.as_ref().map(|label| label.function.to_string());
        let thing = AwaitedThing::find(key, root, self.words.recording);
        let thing = thing.as_ref();
        let what = match (own_end, path.first()) {
            (true, Some((NodeKey { end: Some(end), .. }, node))) => {
                self.words.end(*end, Some((meaning, thing)), *program, node)
            }
            (_, first) => {
                let next = first.map(|(key, next)| {
                    (
                        key.program,
                        self.words.relation(&root.node.main_threads(), &next.main_threads()),
                    )
                });
                self.words.sleep(meaning, *program, next, thing)
            }
        };
        let waiter =
            self.words.counted_hop(*program, &root.node.threads, function, what, root.node.time);
        let library_function = self.meanings.library_function(meaning);
        let through = library_function.as_ref().map(|name| format!("through {name}"));
        let on = thing.filter(|thing| !thing.is_in_words_of(meaning));
        let on = on.map(|thing| format!("on {}", thing.describe()));
        // Whoever gave up at a timeout was woken by nobody whom the chain could name.
        let is_unanswered = own_end && meaning.evidence.is_request();
        let server = thing
            .filter(|_| is_unanswered || meaning.evidence == FrameEvidence::NameLookup)
            .and_then(|thing| thing.process.as_ref())
            .map(|server| format!("served by {} {}", self.words.process_name(server), server.tgid));
        let waiter = FindingHop {
            waited_on: thing.map(|thing| thing.name.clone()),
            library_function,
            addition: through.or_else(|| match (on, server) {
                (Some(on), Some(server)) => Some(format!("{on}, {server}")),
                (on, server) => on.or(server),
            }),
            ..waiter
        };
        let waiter = waiter.with_blocked_loop(meaning.blocked_loop);
        let mut chain = vec![waiter];
        let cause_node = path.last().map(|(_, node)| node.time).unwrap_or_default();
        let end = path.last().and_then(|(key, _)| key.end);
        if own_end {
            path.clear();
        }
        for (n, (key, node)) in path.iter().enumerate() {
            chain.push(self.node_hop(key, node, (n == 0).then_some(meaning), &root.node));
        }
        let last = chain.last().cloned();
        let cause = FindingCause {
            kind: end.map_or("unattributed", |end| end.kind.name()),
            reason: end.and_then(|end| end.reason).map(Reason::name),
            share: self.share(cause_node),
            ns: cause_node,
            text: last.as_ref().map(describe_hop).unwrap_or_default(),
        };
        let kind = match (meaning.cause, end.map(|end| end.kind)) {
            (Cause::Throttled, _) => FindingKind::Throttled,
            // Who sleeps there holds up all others of its event loop, on purpose or not.
            _ if meaning.blocked_loop.is_some() => FindingKind::Wait,
            (Cause::Timer, Some(BlameEntryKind::Timer)) if own_end && meaning.lock().is_none() => {
                FindingKind::Sleep
            }
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
                addition: waiter.addition.clone(),
                detail: match root.count {
                    0 | 1 => root.longest.to_string(),
                    many => format!("{many}×, max {}", root.longest),
                },
                share: self.share(root.node.time),
                is_cause: own_end,
            });
        }
        if !own_end {
            self.push_lines(&root.node, &root.node, Some(meaning), (1, true), &mut lines);
            if let Some(cause) = last.as_ref().filter(|_| path.len() > MAX_HOPS) {
                replace_last_hop(&mut lines, cause, self.share(cause_node));
            }
        }
        let text = match (&last, own_end) {
            (Some(last), false) => format!("{}: {}", describe_hop(&chain[0]), describe_hop(last)),
            _ => describe_hop(&chain[0]),
        };
        Finding {
            kind,
            share: self.share(root.node.time),
            ns: root.node.time,
            threads: count_threads(&root.node.threads),
            count: root.count,
            longest_ns: root.longest,
            still_waiting: false,
            chain,
            cause,
            text,
            lines,
            disk: None,
            same_cause_as: None,
            with_same_cause: None,
        }
    }

    /// Describes a node of the tree of a root; `own` is how the waiters slept, for a node that is about them.
    pub(super) fn node_hop(
        &mut self,
        key: &NodeKey,
        node: &Node,
        own: Option<&SleepMeaning>,
        root: &Node,
    ) -> FindingHop {
        let next = node.children_by_time().first().map(|(key, next)| {
            (key.program, self.words.relation(&node.main_threads(), &next.main_threads()))
        });
        let work = node.work.iter().map(|(&stack, &time)| (stack, time));
        let label: Option<Label> = match (&key.slept, key.end.map(|end| end.kind)) {
            (_, Some(BlameEntryKind::Work)) => self.meanings.work_label(work),
            (Some(slept), _) => slept.label.clone(),
            (None, _) => None,
        };
        let what = match (key.end, &key.slept) {
            (Some(end), slept) => {
                let slept = slept.as_deref().or(own).map(|slept| (slept, None));
                self.words.end(end, slept, key.program, node)
            }
            (None, Some(slept)) => self.words.sleep(slept, key.program, next, None),
            (None, None) => "waits".to_owned(),
        };
        let function = label.map(|label| label.function.to_string());
        let sleep = self.sleep_of_node(key, node, root);
        let waits = key.slept.as_ref().filter(|_| key.end.is_none());
        let library_function = waits.and_then(|slept| self.meanings.library_function(slept));
        let through = library_function.as_ref().map(|name| format!("through {name}"));
        let hop = FindingHop {
            addition: sleep.as_ref().map(FindingSleep::describe).or(through),
            sleep,
            library_function,
            ..self.words.counted_hop(key.program, &node.threads, function, what, node.time)
        };
        // Who works keeps its loop busy, which is no wait of its own.
        let is_work = key.end.is_some_and(|end| end.kind == BlameEntryKind::Work);
        let slept = key.slept.as_ref().filter(|_| !is_work);
        hop.with_blocked_loop(slept.and_then(|slept| slept.blocked_loop))
    }

    /// Tells of threads at the end of a chain that slept on purpose how long they did so at a time, and how many waited
    /// meanwhile.
    fn sleep_of_node(&self, key: &NodeKey, node: &Node, root: &Node) -> Option<FindingSleep> {
        let slept = key.slept.as_ref()?;
        let is_sleep = key.end.is_some_and(|end| end.kind == BlameEntryKind::Timer)
            && !describe::is_timeout(slept);
        let window = self.words.recording.meta.window.length();
        is_sleep.then(|| FindingSleep {
            waiting_threads: threads_that_waited_at_once(node, root, window),
            ..self.sleep_lengths.add_up(&node.threads, slept)
        })
    }

    /// Adds the lines of a node's children, those on the path with most of the time first.
    fn push_lines(
        &mut self,
        node: &Node,
        root: &Node,
        own: Option<&SleepMeaning>,
        (depth, is_main): (u16, bool),
        lines: &mut Vec<FindingLine>,
    ) {
        if usize::from(depth) > MAX_HOPS {
            return;
        }
        for (n, (key, child)) in node.children_by_time().into_iter().enumerate() {
            let is_first = is_main && n == 0;
            let is_shown = is_first || child.time.0 as f64 >= root.time.0 as f64 * MIN_BRANCH;
            if !is_shown || lines.len() >= MAX_LINES {
                break;
            }
            let hop = self.node_hop(key, child, own, root);
            let is_cause = is_first && child.children.is_empty();
            lines.push(FindingLine {
                depth,
                text: describe_hop_without_function(&hop),
                function: function_of_hop(&hop),
                addition: hop.addition.clone(),
                detail: String::new(),
                share: self.share(child.time),
                is_cause,
            });
            self.push_lines(child, root, None, (depth + 1, is_first), lines);
        }
    }
}

/// Puts the cause in place of the last hop that is shown of a longer chain.
fn replace_last_hop(lines: &mut [FindingLine], cause: &FindingHop, share: f64) {
    if let Some(line) = lines.iter_mut().find(|line| usize::from(line.depth) == MAX_HOPS) {
        line.text = format!("… {}", describe_hop_without_function(cause));
        line.function = function_of_hop(cause);
        line.addition = cause.addition.clone();
        line.share = share;
        line.is_cause = true;
    }
}

/// `postgres 21753 "UPDATE waiting" waits for its client in secure_read`
pub(super) fn describe_hop(hop: &FindingHop) -> String {
    let function = function_of_hop(hop).map(|name| format!(" in {name}")).unwrap_or_default();
    let addition = hop.addition.as_ref().map(|words| format!(", {words}")).unwrap_or_default();
    format!("{}{function}{addition}", describe_hop_without_function(hop))
}

/// `postgres 21753 "UPDATE waiting" waits for its client`
pub(super) fn describe_hop_without_function(hop: &FindingHop) -> String {
    format!("{} {}", who::who(hop), hop.what)
}

/// Returns the function in which a hop's threads slept or worked, as lines have it.
pub(super) fn function_of_hop(hop: &FindingHop) -> Option<String> {
    hop.function.as_deref().map(who::function_name)
}

/// Returns how many threads waited, if all of them are known to have waited for a node at once: its time is longer than
/// what all but one of them had.
///
/// ```text
/// window     |--------- 5 s ---------|
/// 3 threads  ---- 12 s of waiting ----     two have 10 s at most: there was a moment when all three waited
/// ```
fn threads_that_waited_at_once(node: &Node, root: &Node, window: Nanos) -> Option<u64> {
    let threads = count_threads(&root.threads);
    let most_of_others = u128::from(threads.saturating_sub(1)) * u128::from(window.0);
    (u128::from(node.time.0) > most_of_others).then_some(threads)
}

/// Returns the path from a root on which most of the time was spent.
pub(super) fn main_path(root: &Node) -> Vec<(&NodeKey, &Node)> {
    let mut path = Vec::new();
    let mut node = root;
    while let Some((key, child)) = node.children_by_time().into_iter().next() {
        path.push((key, child));
        node = child;
    }
    path
}

/// Returns whether a node of the first level stands for the waiter itself.
pub(super) fn is_own(key: &NodeKey, root: &WaitRoot) -> bool {
    root.node.children.get(key).is_some_and(|node| {
        node.threads.keys().all(|thread| root.node.threads.contains_key(thread))
    })
}

fn is_external_or_unknown(end: ChainEnd) -> bool {
    // These are about a thread that was waited for.
    !matches!(end.kind, BlameEntryKind::Work | BlameEntryKind::CpuQueue | BlameEntryKind::Throttled)
}
