//! What each box of the page adds up to.

use std::{cmp::Reverse, collections::HashMap};

use crate::{
    blame::cause::Cause,
    report::{
        BlameEntry, WaitEntry,
        flame::{ClassTimes, NodeId},
        wake_context,
    },
};

use super::{chain_tree::ChainNode, class::PageClass};

/// The time of each [`PageClass`].
pub(super) type Times = ClassTimes<{ PageClass::ALL.len() }>;

/// A part of a wait's blame that is shown.
pub(super) struct ShownPart<'r> {
    pub(super) wait: &'r WaitEntry,
    pub(super) part: &'r BlameEntry,
    pub(super) class: PageClass,
    /// Where its path ends.
    pub(super) end: NodeId,
}

/// The nodes of a tree that the page has as boxes: the widest.
pub(super) struct Widest {
    /// In the order of the tree. A box's place in it is its number.
    pub(super) nodes: Vec<NodeId>,
    pub(super) left_out: usize,
    /// The width of the widest that is left out.
    pub(super) left_out_below: u128,
    /// For each node, the number of its box, or of the nearest below that has one.
    boxes: Vec<u32>,
}

impl Widest {
    pub(super) fn new(nodes: &[ChainNode], parts: &[ShownPart<'_>], most: usize) -> Self {
        let mut widths = vec![0_u128; nodes.len()];
        for shown in parts {
            widths[shown.end.index()] += u128::from(shown.part.ns.0);
        }
        // A node comes after its parent.
        for (index, node) in nodes.iter().enumerate().skip(1).rev() {
            let width = widths[index];
            widths[node.parent.index()] += width;
        }
        // A box is at least as wide as those on it, and before them: who keeps it keeps them.
        let mut widest: Vec<_> =
            widths.iter().enumerate().map(|(n, &width)| (Reverse(width), NodeId::new(n))).collect();
        let left_out = widest.len().saturating_sub(most);
        let mut left_out_below = 0;
        if left_out > 0 {
            let (_, &mut (Reverse(width), _), _) = widest.select_nth_unstable(most);
            left_out_below = width;
            widest.truncate(most);
        }
        let mut kept: Vec<_> = widest.into_iter().map(|(_, node)| node).collect();
        kept.sort_unstable();
        let mut boxes = Vec::with_capacity(nodes.len());
        let mut next = 0_u32;
        for (index, node) in nodes.iter().enumerate() {
            let is_kept = kept.get(next as usize).is_some_and(|kept| kept.index() == index);
            let below = boxes.get(node.parent.index()).copied().unwrap_or(0);
            boxes.push(if is_kept { next } else { below });
            next += u32::from(is_kept);
        }
        Self { nodes: kept, left_out, left_out_below, boxes }
    }

    /// Returns the number of a node's box, or of the nearest below that has one.
    pub(super) fn box_at(&self, node: NodeId) -> usize {
        self.boxes[node.index()] as usize
    }
}

/// Whether all have the same.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Same<T> {
    #[default]
    NoneYet,
    All(T),
    Differs,
}

impl<T: Copy + PartialEq> Same<T> {
    fn add(&mut self, one: T) {
        *self = match *self {
            Self::NoneYet => Self::All(one),
            Self::All(all) if all == one => return,
            Self::All(_) | Self::Differs => Self::Differs,
        }
    }

    fn get(self) -> Option<T> {
        match self {
            Self::All(all) => Some(all),
            Self::NoneYet | Self::Differs => None,
        }
    }
}

/// What the waits have in common that go through one box.
#[derive(Clone, Default)]
pub(super) struct BoxSum {
    pub(super) times: Times,
    /// How many waits have a part of their time here.
    pub(super) waits: u64,
    cause: Same<Cause>,
    waker: Same<usize>,
    /// The entry that was counted last, by its number from 1 on.
    newest: u32,
}

/// The sums of all boxes.
pub(super) struct BoxSums<'r> {
    /// By the box's number.
    pub(super) sums: Vec<BoxSum>,
    /// A wait for each waker, by which it is known.
    wakers: Vec<&'r WaitEntry>,
}

impl<'r> BoxSums<'r> {
    /// Adds up parts. Those of one wait come one after another.
    pub(super) fn new(nodes: &[ChainNode], widest: &Widest, parts: &[ShownPart<'r>]) -> Self {
        let below: Vec<usize> =
            widest.nodes.iter().map(|node| widest.box_at(nodes[node.index()].parent)).collect();
        let mut sums = vec![BoxSum::default(); below.len()];
        let mut wakers = Vec::new();
        let mut waker_ids = HashMap::new();
        let alike = parts.chunk_by(|one, next| std::ptr::eq(one.wait, next.wait));
        for (number, parts) in (1..).zip(alike) {
            let Some(&ShownPart { wait, .. }) = parts.first() else { continue };
            let waker = *waker_ids.entry(wake_context::describe_waker(wait)).or_insert_with(|| {
                wakers.push(wait);
                wakers.len() - 1
            });
            for ShownPart { part, class, end, .. } in parts {
                let mut at = widest.box_at(*end);
                sums[at].times += Times::new(*class as usize, part.ns);
                // Who has met this wait has all boxes below it meet it.
                while sums[at].newest != number {
                    let sum = &mut sums[at];
                    sum.newest = number;
                    sum.waits = sum.waits.saturating_add(wait.count);
                    sum.cause.add(wait.cause);
                    sum.waker.add(waker);
                    at = below[at];
                }
            }
        }
        for at in (1..sums.len()).rev() {
            let times = sums[at].times;
            sums[below[at]].times += times;
        }
        Self { sums, wakers }
    }

    /// The cause of a box's waits, if they have one and the same.
    pub(super) fn cause(&self, sum: &BoxSum) -> Option<Cause> {
        sum.cause.get()
    }

    /// A wait whose waker ended all of a box's waits, if there is one.
    pub(super) fn waker(&self, sum: &BoxSum) -> Option<&'r WaitEntry> {
        self.wakers.get(sum.waker.get()?).copied()
    }
}
