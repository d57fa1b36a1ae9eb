//! What the waits have in common that go through one frame of a flame graph.

use std::{
    collections::{BTreeMap, HashMap},
    ops::AddAssign,
};

use offwake_recording::units::Nanos;

use super::{FrameKind, NodeId, Tree};
use crate::{
    blame::cause::Cause,
    report::{BlameEntry, WaitEntry, wake_context},
};

/// One of a report's wakers, by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WakerId(usize);

/// What the waits have in common that go through one frame.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct WaitSummary<'r> {
    /// How many waits have a part of their time here.
    pub(in crate::report) waits: u64,
    /// The entry that was counted last: its parts come one after another.
    newest: Option<&'r WaitEntry>,
    /// Their time by what they were on.
    pub(in crate::report) causes: BTreeMap<Cause, Nanos>,
    wakers: BTreeMap<WakerId, Nanos>,
    /// Their time by the function of the program's own that they were in.
    pub(in crate::report) functions: BTreeMap<&'r str, Nanos>,
    /// Whether some stack is best known by this frame.
    pub(in crate::report) is_label: bool,
}

/// The waits through some frames of a tree.
pub(in crate::report) struct Summaries<'r> {
    of_nodes: HashMap<NodeId, WaitSummary<'r>, foldhash::fast::RandomState>,
    waker_ids: HashMap<String, WakerId>,
    /// A wait for each waker, by which it is known.
    wakers: Vec<&'r WaitEntry>,
    /// The waker of the entry that was added last.
    newest: Option<(&'r WaitEntry, WakerId)>,
}

impl<'r> Summaries<'r> {
    /// Of the waits through these nodes, none of which is known yet.
    pub(in crate::report) fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self {
            of_nodes: nodes.into_iter().map(|node| (node, WaitSummary::default())).collect(),
            waker_ids: HashMap::new(),
            wakers: Vec::new(),
            newest: None,
        }
    }

    /// Adds a part of a wait, whose path ends at `end`. The parts of one wait come one after another.
    pub(in crate::report) fn add<T: AddAssign + Copy + Default>(
        &mut self,
        wait: &'r WaitEntry,
        part: &'r BlameEntry,
        tree: &Tree<T>,
        end: NodeId,
    ) {
        let waker = self.waker_id(wait);
        let labels = labels(wait, part);
        for (id, node) in tree.down_from(end) {
            let Some(summary) = self.of_nodes.get_mut(&id) else { continue };
            summary.add(wait, part.ns, waker);
            summary.is_label |= node.frame.as_ref().is_some_and(|frame| {
                frame.kind == FrameKind::User && labels.contains(&&*frame.name)
            });
        }
    }

    pub(in crate::report) fn get(&self, node: NodeId) -> Option<&WaitSummary<'r>> {
        self.of_nodes.get(&node)
    }

    /// For each waker that ended a summary's waits, one of these waits and the time of all of them.
    pub(in crate::report) fn wakers(
        &self,
        summary: &WaitSummary<'r>,
    ) -> impl Iterator<Item = (&'r WaitEntry, Nanos)> {
        summary.wakers.iter().filter_map(|(id, &ns)| Some((*self.wakers.get(id.0)?, ns)))
    }

    fn waker_id(&mut self, wait: &'r WaitEntry) -> WakerId {
        if let Some((newest, id)) = self.newest
            && std::ptr::eq(newest, wait)
        {
            return id;
        }
        let next = WakerId(self.wakers.len());
        let id = *self.waker_ids.entry(wake_context::describe_waker(wait)).or_insert(next);
        if id == next {
            self.wakers.push(wait);
        }
        self.newest = Some((wait, id));
        id
    }
}

impl<'r> WaitSummary<'r> {
    fn add(&mut self, wait: &'r WaitEntry, ns: Nanos, waker: WakerId) {
        if !self.newest.is_some_and(|newest| std::ptr::eq(newest, wait)) {
            self.newest = Some(wait);
            self.waits = self.waits.saturating_add(wait.count);
        }
        *self.causes.entry(wait.cause).or_default() += ns;
        *self.wakers.entry(waker).or_default() += ns;
        if let Some(label) = wait.label.as_ref().filter(|label| label.is_own_or_library()) {
            *self.functions.entry(&label.function).or_default() += ns;
        }
    }
}

/// The functions of the program's own that the stacks of a wait's part are best known by.
fn labels<'r>(wait: &'r WaitEntry, part: &'r BlameEntry) -> Vec<&'r str> {
    let hops = part.chain.iter().map(|hop| hop.label.as_ref());
    let labels = [wait.label.as_ref(), part.label.as_ref()].into_iter().chain(hops);
    labels
        .flatten()
        .filter(|label| label.is_own_or_library())
        .map(|label| &*label.function)
        .collect()
}
