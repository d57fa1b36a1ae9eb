//! The flame graph's tree: the whole chain of every shown wait, as in [`crate::report::folded`].

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::{
    blame::cause::Cause,
    report::{
        Report,
        flame::{Frame, FrameKind, Path, ThreadNames, View, paths},
    },
};
use offwake_recording::units::Tid;

use super::{
    class::PageClass,
    texts::{TextId, Texts},
};

/// Boxes kept: the widest.
const BOXES: usize = 24_000;
/// Boxes on top of each other. A real chain has a few hundred at most.
const LEVELS: usize = 1_024;

/// Threads that have a box of their own. Of more, none would be wide enough to be seen, and those of
/// one name stand as one.
const APART: usize = 100;

/// The whole chain, from the thread that waited on.
fn view(report: &Report) -> View {
    let threads: BTreeSet<Tid> = report.waits.iter().map(|wait| wait.tid).collect();
    let names = if threads.len() > APART { ThreadNames::WithoutIds } else { ThreadNames::WithIds };
    View { names, ..View::default() }
}

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
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

/// One box on the way from a waiting thread to what its time was spent on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Step {
    kind: Kind,
    text: TextId,
}

/// A value that is only shown where everything under a box agrees on it.
#[derive(Clone, Copy)]
enum Shared<T> {
    NoneYet,
    All(T),
    Differs,
}

impl<T: PartialEq + Copy> Shared<T> {
    fn add(&mut self, value: T) {
        *self = match *self {
            Self::NoneYet => Self::All(value),
            Self::All(known) if known == value => return,
            Self::All(_) | Self::Differs => Self::Differs,
        };
    }
}

struct Node {
    parent: u32,
    step: Step,
    by_class: [u64; PageClass::ALL.len()],
    ns: u64,
    waits: u64,
    /// Place of the newest entry that was counted in `waits`.
    counted: usize,
    cause: Shared<Cause>,
    ended_by: Shared<TextId>,
}

impl Node {
    fn new(parent: u32, step: Step) -> Self {
        Self {
            parent,
            step,
            by_class: [0; PageClass::ALL.len()],
            ns: 0,
            waits: 0,
            counted: usize::MAX,
            cause: Shared::NoneYet,
            ended_by: Shared::NoneYet,
        }
    }

    /// The class of most of its time.
    fn class(&self) -> PageClass {
        let most = PageClass::ALL.iter().zip(self.by_class).rev().max_by_key(|&(_, ns)| ns);
        most.map_or(PageClass::Unattributed, |(&class, _)| class)
    }

    fn quiet(&self) -> u64 {
        let quiet = PageClass::ALL.iter().zip(self.by_class).filter(|(class, _)| class.is_quiet());
        quiet.fold(0, |sum, (_, ns)| sum.saturating_add(ns))
    }
}

/// The tree, in columns: what is at one place belongs to one box. Boxes come after those below them.
#[derive(Serialize)]
pub(super) struct Flame {
    parent: Vec<u32>,
    text: Vec<TextId>,
    /// By the order of [`Kind`].
    kind: Vec<u8>,
    ns: Vec<u64>,
    class: Vec<PageClass>,
    /// Of `ns`, that of idle waits and of threads that never woke.
    quiet_ns: Vec<u64>,
    /// How many waits have some of their time here.
    waits: Vec<u64>,
    /// Their cause, if they have one and the same.
    cause: Vec<Option<TextId>>,
    /// Who ended them, if it was one and the same.
    ended_by: Vec<Option<TextId>>,
    /// Boxes that are left out, and the widest of them.
    left_out: u64,
    left_out_below_ns: u64,
}

/// Of the shown waits.
pub(super) fn tree(report: &Report, texts: &mut Texts<'_>) -> Flame {
    let root = Step { kind: Kind::Root, text: texts.id("all waits that are shown") };
    let mut nodes = vec![Node::new(0, root)];
    let mut places: HashMap<(u32, Step), u32> = HashMap::new();
    let mut entry = (0, None);
    for Path { frames, wait, blame } in paths(report, &view(report)) {
        if entry.1.is_none_or(|known| !std::ptr::eq(known, wait)) {
            entry = (entry.0 + 1, Some(wait));
        }
        if blame.ns.0 > 0 {
            let ended_by = texts.id(&super::waits::describe_waker(wait.waker.as_ref()));
            let class = PageClass::classify(wait, blame, report.window.duration_ns);
            let mut at = 0;
            let add = |node: &mut Node| {
                node.ns = node.ns.saturating_add(blame.ns.0);
                let of_class = &mut node.by_class[class as usize];
                *of_class = of_class.saturating_add(blame.ns.0);
                if node.counted != entry.0 {
                    node.counted = entry.0;
                    node.waits = node.waits.saturating_add(wait.count);
                }
                node.cause.add(wait.cause);
                node.ended_by.add(ended_by);
            };
            add(&mut nodes[0]);
            for step in steps(&frames, texts) {
                at = *places.entry((at, step)).or_insert_with(|| {
                    nodes.push(Node::new(at, step));
                    u32::try_from(nodes.len() - 1).unwrap_or(u32::MAX)
                });
                if let Some(node) = nodes.get_mut(at as usize) {
                    add(node);
                }
            }
        }
    }
    columns(&nodes, texts)
}

/// The boxes of a path. One that is too high loses its middle: what its time was spent on stays.
fn steps(frames: &[Frame], texts: &mut Texts<'_>) -> Vec<Step> {
    let kind = |kind| match kind {
        FrameKind::Waiter | FrameKind::Group => Kind::Waiter,
        FrameKind::User | FrameKind::Kernel => Kind::Frame,
        FrameKind::Separator => Kind::Hop,
        FrameKind::Waker => Kind::Waker,
        FrameKind::Holder => Kind::Holder,
        FrameKind::Leaf(_) => Kind::Leaf,
    };
    (frames.iter().enumerate())
        .map(|(level, frame)| (level, kind(frame.kind), frame))
        .filter(|&(level, kind, _)| level < LEVELS || kind == Kind::Leaf)
        .map(|(_, kind, frame)| Step { kind, text: texts.id(&frame.name) })
        .collect()
}

fn columns(nodes: &[Node], texts: &mut Texts<'_>) -> Flame {
    // A box is at least as wide as those on it, and before them: who keeps it keeps them.
    let mut widest: Vec<usize> = (0..nodes.len()).collect();
    widest.sort_by_key(|&n| (std::cmp::Reverse(nodes[n].ns), n));
    let left_out_below_ns = widest.get(BOXES).map_or(0, |&n| nodes[n].ns);
    let left_out = widest.len().saturating_sub(BOXES) as u64;
    widest.truncate(BOXES);
    widest.sort_unstable();
    let mut places = vec![0_u32; nodes.len()];
    for (&n, place) in widest.iter().zip(0..) {
        places[n] = place;
    }
    let kept = || widest.iter().map(|&n| &nodes[n]);
    let shared = |value| match value {
        Shared::All(text) => Some(text),
        Shared::NoneYet | Shared::Differs => None,
    };
    Flame {
        parent: kept().map(|node| places[node.parent as usize]).collect(),
        text: kept().map(|node| node.step.text).collect(),
        kind: kept().map(|node| node.step.kind as u8).collect(),
        ns: kept().map(|node| node.ns).collect(),
        class: kept().map(Node::class).collect(),
        quiet_ns: kept().map(Node::quiet).collect(),
        waits: kept().map(|node| node.waits).collect(),
        cause: kept()
            .map(|node| match node.cause {
                Shared::All(cause) => Some(texts.id(cause.name())),
                Shared::NoneYet | Shared::Differs => None,
            })
            .collect(),
        ended_by: kept().map(|node| shared(node.ended_by)).collect(),
        left_out,
        left_out_below_ns,
    }
}
