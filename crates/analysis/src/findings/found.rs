//! Findings with what a picture shows of them.

use offwake_recording::units::Nanos;

use crate::blame::BlameClass;

use super::{
    describe,
    hop_tree::{HopBox, TimeByClass},
    meaning::SleepMeaning,
    model::{Finding, FindingHop},
    root::{RootKey, WaitRoot},
    tree::{Node, NodeKey},
    who,
    write::{FindingWriter, function_of_hop, is_own},
};

/// A hop has a box of its own in pictures if it takes at least this part of the active time.
const MIN_HOP: f64 = 0.002;

/// A finding, and what a picture shows of it.
pub(super) struct Found {
    pub(super) finding: Finding,
    pub(super) hops: HopBox,
    pub(super) coverage: Coverage,
}

impl Found {
    /// A finding of a single hop. The lines below its first one are boxes as wide as their shares:
    /// beside each other, or below one that takes all of it. A remark takes none.
    pub(super) fn new(finding: Finding, class: BlameClass) -> Self {
        let mut notes: Vec<HopBox> = Vec::new();
        for line in finding.lines.iter().skip(1).rev().filter(|line| line.share > 0.0) {
            let part = (line.share / finding.share).min(1.0);
            let time = TimeByClass::new(class, Nanos((finding.ns.0 as f64 * part) as u64));
            let is_all = line.share >= finding.share;
            let children = if is_all { std::mem::take(&mut notes) } else { Vec::new() };
            let note = HopBox { what: line.whole_text(), time, children, ..HopBox::default() };
            notes.insert(0, note);
        }
        let first = finding.chain.first().map(hop_box).unwrap_or_default();
        Self::from_boxes(finding, class, HopBox { children: notes, ..first })
    }

    /// A finding of which a picture shows the chain alone: other lines tell of threads that are no cause.
    pub(super) fn chain_alone(finding: Finding, class: BlameClass) -> Self {
        let time = TimeByClass::new(class, finding.ns);
        let mut behind: Option<HopBox> = None;
        for hop in finding.chain.iter().rev() {
            let children = behind.into_iter().collect();
            behind = Some(HopBox { time, children, ..hop_box(hop) });
        }
        Self::from_boxes(finding, class, behind.unwrap_or_default())
    }

    /// A finding whose first box is this one, and takes all of its time.
    fn from_boxes(finding: Finding, class: BlameClass, first: HopBox) -> Self {
        let hops =
            HopBox { time: TimeByClass::new(class, finding.ns), ..first }.into_first_box(&finding);
        Self { finding, hops, coverage: Coverage::News }
    }
}

impl HopBox {
    /// Makes it the box that begins a finding.
    fn into_first_box(self, finding: &Finding) -> Self {
        let detail = finding.lines.first().map(|line| line.detail.clone()).unwrap_or_default();
        Self { detail, ..self }.of_threads(finding.threads)
    }
}

/// Whether others tell what a finding says already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Coverage {
    News,
    ToldByOthers,
}

impl FindingWriter<'_> {
    /// Returns what a picture shows of a finding's waits: all of their paths.
    pub(super) fn wait_hops(
        &mut self,
        finding: &Finding,
        (_, meaning): &RootKey,
        root: &WaitRoot,
    ) -> HopBox {
        let mut hops =
            finding.chain.first().map(hop_box).unwrap_or_default().into_first_box(finding);
        let least = Nanos((self.active.0 as f64 * MIN_HOP) as u64);
        let mut own_time = TimeByClass::default();
        for (key, node) in &root.node.children {
            if key.slept.is_none() && is_own(key, root) {
                let time = time_by_class(key, node, Some(meaning));
                own_time += time;
                let what = key
                    .end
                    .map(|end| self.words.end(end, Some((meaning, None)), key.program, node))
                    .unwrap_or_default();
                hops.children.push(HopBox { what, time, ..HopBox::default() });
            } else {
                let child = self.node_hops(key, node, &root.node, least);
                hops.children.push(child);
            }
        }
        hops.children.iter().for_each(|child| hops.time += child.time);
        if finding.chain.len() == 1 && own_time == hops.time {
            // The waiter's own words say it already.
            hops.children.clear();
        }
        hops.merge_narrow_children(least);
        hops.of_threads(finding.threads)
    }

    fn node_hops(&mut self, key: &NodeKey, node: &Node, root: &Node, least: Nanos) -> HopBox {
        if node.time < least {
            // It is drawn together with others, without words.
            return HopBox { time: time_by_class(key, node, None), ..HopBox::default() };
        }
        let mut hops = hop_box(&self.node_hop(key, node, None, root));
        for (key, child) in &node.children {
            let child = self.node_hops(key, child, root, least);
            hops.time += child.time;
            hops.children.push(child);
        }
        hops.time += end_time(key, node, None, hops.time);
        hops.merge_narrow_children(least);
        hops
    }
}

/// Returns a hop as pictures show it, without its time.
pub(super) fn hop_box(hop: &FindingHop) -> HopBox {
    HopBox {
        who: who::who(hop),
        short_who: who::short_who(hop),
        what: hop.what.clone(),
        function: function_of_hop(hop),
        addition: hop.addition.clone(),
        ..HopBox::default()
    }
}

/// Returns the time of waits by what it went to.
pub(super) fn wait_time((_, meaning): &RootKey, root: &WaitRoot) -> TimeByClass {
    let mut time = TimeByClass::default();
    for (key, child) in &root.node.children {
        let own = is_own(key, root).then_some(&**meaning);
        time += time_by_class(key, child, own);
    }
    time
}

/// Returns the time of chains through a node by what it went to at their ends. `own` is how the waiters slept, for
/// a node that is about them.
fn time_by_class(key: &NodeKey, node: &Node, own: Option<&SleepMeaning>) -> TimeByClass {
    let mut time = TimeByClass::default();
    node.children.iter().for_each(|(key, child)| time += time_by_class(key, child, None));
    time += end_time(key, node, own, time);
    time
}

/// Returns the time of chains that end at a node, of which `inner` went on.
fn end_time(
    key: &NodeKey,
    node: &Node,
    own: Option<&SleepMeaning>,
    inner: TimeByClass,
) -> TimeByClass {
    let class =
        key.end.map_or(BlameClass::Unattributed, |end| BlameClass::from_kind(end.kind, end.reason));
    let time = node.time - inner.sum();
    let slept = key.slept.as_deref().or(own);
    match class {
        BlameClass::Timer if slept.is_some_and(describe::is_timeout) => {
            TimeByClass::until_timeout(time)
        }
        _ => TimeByClass::new(class, time),
    }
}
