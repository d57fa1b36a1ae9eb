//! The flame graph's boxes: one for each hop, or all frames of the whole chain of every shown wait, as
//! in [`crate::report::folded`].

use std::{
    collections::{BTreeSet, VecDeque},
    iter,
};

use offwake_recording::units::Tid;
use serde::Serialize;

use crate::{
    findings::{TimeByClass, over_threads},
    report::{
        Report, first_screen,
        flame::{FrameKind, ThreadNames, shown_parts},
    },
};

use super::{
    box_sums::{BoxSums, ShownPart, Times, Widest},
    chain_tree::ChainTree,
    class::PageClass,
    texts::{TextId, Texts},
    waits::describe_waker,
};

/// Boxes kept: the widest.
const BOXES: usize = 24_000;
/// Boxes on top of each other. A real chain has a few hundred at most.
pub(super) const LEVELS: usize = 1_024;

/// Threads that have a box of their own. Of more, none would be wide enough to be seen, and those of
/// one name stand as one.
const THREADS: usize = 100;

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BoxKind {
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
    pub(super) fn from_frame_kind(kind: FrameKind) -> Self {
        match kind {
            FrameKind::Waiter | FrameKind::Group => Self::Waiter,
            FrameKind::User | FrameKind::Kernel | FrameKind::Marker => Self::Frame,
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
    /// What stands in a box where there is no room for all of that, if it is something else. Only hops have it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short: Vec<Option<TextId>>,
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

/// What the boxes of the shown waits are made of.
pub(super) struct ReportBoxes<'r> {
    tree: ChainTree<'r>,
    widest: Widest,
    sums: BoxSums<'r>,
}

impl<'r> ReportBoxes<'r> {
    /// Adds up the shown waits.
    pub(super) fn add_up(report: &'r Report) -> Self {
        let mut tree = ChainTree::new(report, thread_names(report));
        let parts: Vec<_> = shown_parts(report)
            .filter(|(_, part)| part.ns.0 > 0)
            .map(|(wait, part)| {
                let class = PageClass::classify(wait, part, report.window.duration_ns);
                ShownPart { wait, part, class, end: tree.add(wait, part) }
            })
            .collect();
        let widest = Widest::new(tree.nodes(), &parts, BOXES);
        let sums = BoxSums::new(tree.nodes(), &widest, &parts);
        Self { tree, widest, sums }
    }

    /// Makes the boxes.
    pub(super) fn into_flame(self, texts: &mut Texts<'_>) -> Flame {
        columns(&self.tree, &self.widest, &self.sums, texts)
    }
}

/// One box for each hop of what the findings are made of.
pub(super) fn hop_boxes(report: &Report, texts: &mut Texts<'_>) -> Flame {
    let tree = &report.findings.hop_tree;
    let listed = first_screen::split_findings(report).0.len();
    let mut flame = Flame::default();
    flame.push_hop(0, BoxKind::Root, "waiting and running", &tree.time(), texts);
    // Parents first, by a queue: who takes most comes first at each level.
    let mut queue: VecDeque<_> = tree.boxes.iter().map(|hop| (0, BoxKind::Waiter, hop)).collect();
    let window = report.window.duration_ns;
    while let Some((parent, kind, hop)) = queue.pop_front() {
        let number = first_screen::number_of_box(hop, listed);
        let place = hop.describe_place();
        let words = [Some(hop.who.as_str()), Some(&hop.what), place.as_deref()];
        let words: Vec<_> = words.into_iter().flatten().filter(|word| !word.is_empty()).collect();
        let over = over_threads(hop.time.sum(), hop.threads, window).filter(|_| parent == 0);
        let over = over.map(|over| format!(" ({over})")).unwrap_or_default();
        let text = format!("{number}{}{over}", words.join(" "));
        // What stands last is cut.
        let short = (!hop.short_who.is_empty()).then(|| {
            texts.id(&format!(
                "{number}{} {}",
                hop.short_who,
                words.get(1..).unwrap_or_default().join(" ")
            ))
        });
        let kind = if hop.children.is_empty() { BoxKind::Leaf } else { kind };
        let place = flame.push_hop(parent, kind, &text, &hop.time, texts);
        if let Some(of_box) = flame.short.get_mut(place) {
            *of_box = short;
        }
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
        self.short.push(None);
        self.kind.push(kind as u8);
        self.ns.push(time.sum().0);
        self.class.push(PageClass::most(time));
        self.quiet_ns.push(0);
        self.parent.len() - 1
    }
}

/// What threads are called: so that none of very many boxes is too narrow.
fn thread_names(report: &Report) -> ThreadNames {
    let threads: BTreeSet<Tid> = report.waits.iter().map(|wait| wait.tid).collect();
    if threads.len() > THREADS { ThreadNames::WithoutIds } else { ThreadNames::WithIds }
}

fn columns(
    tree: &ChainTree<'_>,
    widest: &Widest,
    sums: &BoxSums<'_>,
    texts: &mut Texts<'_>,
) -> Flame {
    let nodes = || widest.nodes.iter().filter_map(|id| tree.nodes().get(id.index()));
    let frames = || nodes().map(|node| tree.frame(node));
    Flame {
        parent: nodes().map(|node| widest.box_at(node.parent)).collect(),
        text: frames()
            .map(|frame| texts.id(frame.map_or("all waits that are shown", |frame| &frame.name)))
            .collect(),
        short: Vec::new(),
        kind: frames().map(|frame| frame.map_or(BoxKind::Root, |frame| frame.kind) as u8).collect(),
        ns: sums.sums.iter().map(|sum| narrow(sum.times.sum())).collect(),
        class: sums.sums.iter().map(|sum| largest_class(&sum.times)).collect(),
        quiet_ns: sums.sums.iter().map(|sum| quiet(&sum.times)).collect(),
        waits: sums.sums.iter().map(|sum| sum.waits).collect(),
        cause: (sums.sums.iter())
            .map(|sum| sums.cause(sum).map(|cause| texts.id(cause.name())))
            .collect(),
        ended_by: (sums.sums.iter())
            .map(|sum| sums.waker(sum).map(|wait| texts.id(&describe_waker(wait))))
            .collect(),
        left_out: widest.left_out as u64,
        left_out_below_ns: narrow(widest.left_out_below),
    }
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
