//! The flame graph's boxes: one for each hop, or all frames of the whole chain of every shown wait, as
//! in [`crate::report::folded`].

use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
    iter,
};

use offwake_recording::units::Tid;
use serde::Serialize;

use crate::{
    blame::BlameClass,
    findings::TimeByClass,
    report::{
        Report,
        flame::{ClassTimes, Frame, FrameKind, NodeId, Summaries, ThreadNames, Tree, View, paths},
    },
};

use super::{
    class::PageClass,
    texts::{TextId, Texts},
    waits::describe_waker,
};

/// Boxes kept: the widest.
const BOXES: usize = 24_000;
/// Boxes on top of each other. A real chain has a few hundred at most.
const LEVELS: usize = 1_024;

/// Threads that have a box of their own. Of more, none would be wide enough to be seen, and those of
/// one name stand as one.
const THREADS: usize = 100;

/// The time of each [`PageClass`].
type Times = ClassTimes<{ PageClass::ALL.len() }>;

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BoxKind {
    Root,
    /// The thread that waited.
    Waiter,
    Frame,
    /// From here on it is about whoever was waited for.
    Hop,
    /// The thread that was waited for.
    Waker,
    /// Who held the CPU meanwhile.
    Holder,
    /// What the time was spent on.
    Leaf,
}

impl BoxKind {
    fn from_frame_kind(kind: FrameKind) -> Self {
        match kind {
            FrameKind::Waiter | FrameKind::Group => Self::Waiter,
            FrameKind::User | FrameKind::Kernel => Self::Frame,
            FrameKind::Separator => Self::Hop,
            FrameKind::Waker => Self::Waker,
            FrameKind::Holder => Self::Holder,
            FrameKind::Leaf(_) => Self::Leaf,
        }
    }
}

/// The boxes, in columns: what is at one place belongs to one box. Boxes come after those below them.
#[derive(Default, Serialize)]
pub(super) struct Flame {
    parent: Vec<usize>,
    text: Vec<TextId>,
    /// By the order of [`BoxKind`].
    kind: Vec<u8>,
    ns: Vec<u64>,
    class: Vec<PageClass>,
    /// Of `ns`, that of idle waits and of threads that never woke.
    quiet_ns: Vec<u64>,
    /// How many waits have some of their time here. Hops have neither this nor what follows.
    waits: Vec<u64>,
    /// Their cause, if they have one and the same.
    cause: Vec<Option<TextId>>,
    /// Who ended them, if it was one and the same.
    ended_by: Vec<Option<TextId>>,
    /// Boxes that are left out, and the widest of them.
    left_out: u64,
    left_out_below_ns: u64,
}

/// The boxes of the shown waits.
pub(super) fn boxes(report: &Report, texts: &mut Texts<'_>) -> Flame {
    let mut tree = Tree::<Times>::new();
    let parts: Vec<_> = (paths(report, &view(report)))
        .filter(|path| path.blame.ns.0 > 0)
        .map(|path| {
            let class = PageClass::classify(path.wait, path.blame, report.window.duration_ns);
            let times = Times::new(class as usize, path.blame.ns);
            (path.wait, path.blame, tree.add(box_frames(path.frames), times))
        })
        .collect();
    let widest = Widest::new(&tree);
    let mut summaries = Summaries::new(widest.nodes.iter().copied());
    for (wait, part, end) in parts {
        summaries.add(wait, part, &tree, end);
    }
    columns(&tree, &widest, &summaries, texts)
}

/// One box for each hop of what the findings are made of.
pub(super) fn hop_boxes(report: &Report, texts: &mut Texts<'_>) -> Flame {
    let tree = &report.findings.hop_tree;
    let mut flame = Flame::default();
    flame.push_hop(0, BoxKind::Root, "waiting and running", &tree.time(), texts);
    // Parents first, by a queue: who takes most comes first at each level.
    let mut queue: VecDeque<_> = tree.boxes.iter().map(|hop| (0, BoxKind::Waiter, hop)).collect();
    while let Some((parent, kind, hop)) = queue.pop_front() {
        let number = hop.finding.map(|number| format!("{number}: ")).unwrap_or_default();
        let function = hop.function.as_ref().map(|name| format!("in {name}"));
        let words = [Some(hop.who.as_str()), Some(&hop.what), function.as_deref()];
        let words: Vec<_> = words.into_iter().flatten().filter(|word| !word.is_empty()).collect();
        let text = format!("{number}{}", words.join(" "));
        let kind = if hop.children.is_empty() { BoxKind::Leaf } else { kind };
        let place = flame.push_hop(parent, kind, &text, &hop.time, texts);
        queue.extend(hop.children.iter().map(|child| (place, BoxKind::Waker, child)));
    }
    flame
}

impl Flame {
    /// Adds a box of hops, and returns its place.
    fn push_hop(
        &mut self,
        parent: usize,
        kind: BoxKind,
        text: &str,
        time: &TimeByClass,
        texts: &mut Texts<'_>,
    ) -> usize {
        self.parent.push(parent);
        self.text.push(texts.id(text));
        self.kind.push(kind as u8);
        self.ns.push(time.sum().0);
        self.class.push(PageClass::most(time));
        self.quiet_ns.push(0);
        self.parent.len() - 1
    }
}

/// The whole chain, from the thread that waited on.
fn view(report: &Report) -> View {
    let threads: BTreeSet<Tid> = report.waits.iter().map(|wait| wait.tid).collect();
    let names =
        if threads.len() > THREADS { ThreadNames::WithoutIds } else { ThreadNames::WithIds };
    View { names, ..View::default() }
}

/// The frames of a path as boxes tell them apart: by what they stand for and by their names. A path
/// that is too high loses its middle: what its time was spent on stays.
fn box_frames(path: Vec<Frame>) -> impl Iterator<Item = Frame> {
    let is_leaf = |frame: &Frame| matches!(frame.kind, FrameKind::Leaf(_));
    (path.into_iter().enumerate())
        .filter(move |(level, frame)| *level < LEVELS || is_leaf(frame))
        .map(|(_, frame)| {
            let kind = match frame.kind {
                FrameKind::Kernel => FrameKind::User,
                FrameKind::Leaf(_) => FrameKind::Leaf(BlameClass::Work),
                kind => kind,
            };
            Frame { kind, function: None, ..frame }
        })
}

/// The nodes of a tree that the page has as boxes.
struct Widest {
    /// In the order of the tree.
    nodes: Vec<NodeId>,
    left_out: usize,
    /// The width of the widest that is left out.
    left_out_below: u128,
}

impl Widest {
    fn new(tree: &Tree<Times>) -> Self {
        // A box is at least as wide as those on it, and before them: who keeps it keeps them.
        let mut nodes: Vec<_> =
            tree.nodes().map(|(id, node)| (Reverse(node.total.sum()), id)).collect();
        nodes.sort_unstable();
        let left_out_below = nodes.get(BOXES).map_or(0, |(width, _)| width.0);
        let left_out = nodes.len().saturating_sub(BOXES);
        let mut nodes: Vec<_> = nodes.into_iter().take(BOXES).map(|(_, id)| id).collect();
        nodes.sort_unstable();
        Self { nodes, left_out, left_out_below }
    }
}

fn columns(
    tree: &Tree<Times>,
    widest: &Widest,
    summaries: &Summaries<'_>,
    texts: &mut Texts<'_>,
) -> Flame {
    let mut places = vec![0; tree.len()];
    for (place, node) in widest.nodes.iter().enumerate() {
        places[node.index()] = place;
    }
    let ids = || widest.nodes.iter().copied();
    let nodes = || ids().filter_map(|id| tree.get(id));
    let summaries_of = || ids().filter_map(|id| summaries.get(id));
    Flame {
        parent: nodes().map(|node| places[node.parent.index()]).collect(),
        text: nodes()
            .map(|node| {
                let name = node.frame.as_ref().map(|frame| &*frame.name);
                texts.id(name.unwrap_or("all waits that are shown"))
            })
            .collect(),
        kind: nodes()
            .map(|node| node.frame.as_ref().map(|frame| BoxKind::from_frame_kind(frame.kind)))
            .map(|kind| kind.unwrap_or(BoxKind::Root) as u8)
            .collect(),
        ns: nodes().map(|node| narrow(node.total.sum())).collect(),
        class: nodes().map(|node| largest_class(&node.total)).collect(),
        quiet_ns: nodes().map(|node| quiet(&node.total)).collect(),
        waits: summaries_of().map(|summary| summary.waits).collect(),
        cause: summaries_of()
            .map(|summary| Some(texts.id(only(summary.causes.keys())?.name())))
            .collect(),
        ended_by: summaries_of()
            .map(|summary| {
                let (wait, _) = only(summaries.wakers(summary))?;
                Some(texts.id(&describe_waker(wait)))
            })
            .collect(),
        left_out: widest.left_out as u64,
        left_out_below_ns: narrow(widest.left_out_below),
    }
}

/// The only item, if there is no second.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}

/// A time as a report has it: sums stop at their largest.
fn narrow(time: u128) -> u64 {
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// The class with the most of a box's time; the first of several.
fn largest_class(times: &Times) -> PageClass {
    let largest = iter::zip(PageClass::ALL, times.by_class()).rev().max_by_key(|&(_, time)| time);
    largest.map_or(PageClass::Unattributed, |(class, _)| class)
}

fn quiet(times: &Times) -> u64 {
    let quiet = iter::zip(PageClass::ALL, times.by_class()).filter(|(class, _)| class.is_quiet());
    narrow(quiet.map(|(_, time)| time).sum())
}
