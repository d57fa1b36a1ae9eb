//! What a frame says when the mouse is on it.

use std::collections::{BTreeMap, HashMap};

use crate::report::{
    WaitEntry,
    flame::{FrameKind, NodeId, Path},
    summary::percent,
    wake_context,
};
use offwake_recording::units::Nanos;

/// Names of one kind that are told; the rest is counted.
const TOLD: usize = 3;

/// What the waits have in common that go through one frame.
#[derive(Default)]
pub(super) struct Note<'r> {
    waits: u64,
    /// The entry that was counted last: its parts come one after another.
    last: Option<&'r WaitEntry>,
    causes: BTreeMap<&'r str, Nanos>,
    wakers: BTreeMap<String, Nanos>,
    places: BTreeMap<&'r str, Nanos>,
    /// Whether some stack is best known by this frame.
    pub(super) is_label: bool,
}

/// Notes what goes through the frames that are drawn.
#[derive(Default)]
pub(super) struct Notes<'r>(pub(super) HashMap<NodeId, Note<'r>>);

impl<'r> Notes<'r> {
    pub(super) fn of_drawn(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self(nodes.into_iter().map(|node| (node, Note::default())).collect())
    }

    /// Adds a path; `nodes` are those that it goes through, the root first.
    pub(super) fn add(&mut self, path: &Path<'r>, nodes: impl Iterator<Item = NodeId>) {
        let waker = wake_context::describe_waker(path.wait);
        let labels = labels(path);
        let frames = [None].into_iter().chain(path.frames.iter().map(Some));
        for (node, frame) in nodes.zip(frames) {
            // Above what is too narrow to be drawn nothing is.
            let Some(note) = self.0.get_mut(&node) else { break };
            note.add(path, &waker);
            note.is_label |= frame.is_some_and(|frame| {
                frame.kind == FrameKind::User && labels.contains(&&*frame.name)
            });
        }
    }
}

impl<'r> Note<'r> {
    fn add(&mut self, path: &Path<'r>, waker: &str) {
        let (wait, ns) = (path.wait, path.blame.ns);
        if !self.last.is_some_and(|last| std::ptr::eq(last, wait)) {
            self.last = Some(wait);
            self.waits = self.waits.saturating_add(wait.count);
        }
        *self.causes.entry(wait.cause.name()).or_default() += ns;
        if let Some(time) = self.wakers.get_mut(waker) {
            *time += ns;
        } else {
            self.wakers.insert(waker.to_owned(), ns);
        }
        if let Some(label) = wait.label.as_ref().filter(|label| label.is_own_or_library()) {
            *self.places.entry(&label.function).or_default() += ns;
        }
    }

    /// `1.20 s, 12.0%, of 42 waits; on futex; ended by web 7; in take_lock`
    pub(super) fn details(&self, time: &str, share: &str) -> String {
        let waits = if self.waits == 1 { "wait" } else { "waits" };
        let wakers = self.wakers.iter().map(|(name, &ns)| (name.as_str(), ns));
        let told = [
            (" on", told(self.causes.iter().map(|(&name, &ns)| (name, ns)))),
            (" ended by", told(wakers)),
            (" in", told(self.places.iter().map(|(&name, &ns)| (name, ns)))),
        ];
        let told = told.into_iter().filter(|(_, names)| !names.is_empty());
        let told: String = told.map(|(word, names)| format!(";{word} {names}")).collect();
        format!("{time}, {share}, of {} {waits}{told}", self.waits)
    }
}

/// `futex`, `futex 60.0%, poll 40.0%`, `a 50.0%, b 20.0%, c 10.0%, 4 more`
fn told<'n>(names: impl Iterator<Item = (&'n str, Nanos)>) -> String {
    let mut names: Vec<_> = names.collect();
    names.sort_by_key(|&(name, ns)| (std::cmp::Reverse(ns), name));
    let all = names.iter().map(|&(_, ns)| ns).sum();
    if let [(only, _)] = names.as_slice() {
        return (*only).to_owned();
    }
    let told = names.iter().take(TOLD).map(|(name, ns)| format!("{name} {}", percent(*ns, all)));
    let mut told: Vec<_> = told.collect();
    if names.len() > TOLD {
        told.push(format!("{} more", names.len() - TOLD));
    }
    told.join(", ")
}

/// The frames of the program's own that the path's stacks are best known by.
fn labels<'r>(path: &Path<'r>) -> Vec<&'r str> {
    let hops = path.blame.chain.iter().map(|hop| hop.label.as_ref());
    let labels = [path.wait.label.as_ref(), path.blame.label.as_ref()].into_iter().chain(hops);
    labels
        .flatten()
        .filter(|label| label.is_own_or_library())
        .map(|label| &*label.function)
        .collect()
}
