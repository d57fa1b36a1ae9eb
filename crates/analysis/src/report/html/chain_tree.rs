//! The frames of all chains as a tree, built hop by hop.
//!
//! A machine's ten seconds have a hundred thousand paths of a hundred frames, but a few thousand stacks and
//! threads. So a path is not added frame by frame: where a hop leads to from a node is found once.
//!
//! ```text
//! paths   a b c -- d e    tree   a b c ┬ -- d e       hops   from c, `-- d e`: to e
//!         a b c -- f                   └ -- f                from c, `-- f`: to f
//! ```

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexSet;

use crate::{
    frames::Frames,
    report::{
        BlameEntry, HopEntry, Report, WaitEntry,
        flame::{Frame, NodeId, PathBuilder, ThreadNames, View},
    },
};

use super::flame::{BoxKind, LEVELS};

type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// What tells boxes beside each other apart.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct BoxFrame {
    pub(super) kind: BoxKind,
    pub(super) name: Arc<str>,
}

/// Identifies a frame within one [`ChainTree`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct FrameId(u32);

/// A place in memory: what stands there does not move while a tree is built.
type Address = (usize, usize);

/// A node of the tree.
pub(super) struct ChainNode {
    /// The root has none.
    frame: Option<FrameId>,
    /// The root is its own.
    pub(super) parent: NodeId,
    /// How many frames are below it.
    level: usize,
}

/// The frames of all chains as a tree. Each node comes after its parent, in the order in which paths first
/// led to them.
pub(super) struct ChainTree<'r> {
    pieces: PathBuilder<'r>,
    nodes: Vec<ChainNode>,
    frames: IndexSet<BoxFrame, foldhash::fast::RandomState>,
    children: FastMap<(NodeId, FrameId), NodeId>,
    /// The frames of hops, by the hop and its stack.
    hops: FastMap<(usize, Address), Arc<[FrameId]>>,
    /// Where hops lead to.
    behind_hops: FastMap<(NodeId, usize, Address), NodeId>,
    /// The wait that was added last, and where its own frames end: its parts come one after another.
    newest: Option<(&'r WaitEntry, NodeId)>,
}

impl<'r> ChainTree<'r> {
    /// Nothing is added yet. Threads are called `names`.
    pub(super) fn new(report: &'r Report, names: ThreadNames) -> Self {
        Self {
            pieces: PathBuilder::new(report, View { names, ..View::default() }),
            nodes: vec![ChainNode { frame: None, parent: NodeId::ROOT, level: 0 }],
            frames: IndexSet::default(),
            children: FastMap::default(),
            hops: FastMap::default(),
            behind_hops: FastMap::default(),
            newest: None,
        }
    }

    /// Adds the path of a part; returns the node at its end.
    pub(super) fn add(&mut self, wait: &'r WaitEntry, part: &'r BlameEntry) -> NodeId {
        let mut at = self.end_of_wait(wait);
        if let Some((last, before)) = part.chain.split_last() {
            for hop in before {
                at = self.behind_hop(at, hop, &hop.stack);
            }
            at = self.behind_hop(at, last, &part.stack);
        }
        for frame in self.pieces.end_frames(part) {
            let frame = self.frame_id(frame);
            at = self.child(at, frame);
        }
        at
    }

    /// All nodes, by [`NodeId::index`].
    pub(super) fn nodes(&self) -> &[ChainNode] {
        &self.nodes
    }

    /// Returns the frame of a node; none of the root.
    pub(super) fn frame(&self, node: &ChainNode) -> Option<&BoxFrame> {
        self.frames.get_index(node.frame?.0 as usize)
    }

    fn end_of_wait(&mut self, wait: &'r WaitEntry) -> NodeId {
        if let Some((newest, end)) = self.newest
            && std::ptr::eq(newest, wait)
        {
            return end;
        }
        let mut end = NodeId::ROOT;
        for frame in self.pieces.wait_frames(wait) {
            let frame = self.frame_id(frame);
            end = self.child(end, frame);
        }
        self.newest = Some((wait, end));
        end
    }

    fn behind_hop(&mut self, at: NodeId, hop: &'r HopEntry, stack: &'r Frames) -> NodeId {
        let names = stack.names();
        let hop_address = std::ptr::from_ref(hop).addr();
        let stack_address = (names.as_ptr().addr(), names.len());
        if let Some(&known) = self.behind_hops.get(&(at, hop_address, stack_address)) {
            return known;
        }
        let frames = match self.hops.get(&(hop_address, stack_address)) {
            Some(known) => Arc::clone(known),
            None => {
                let frames: Vec<_> = self.pieces.hop_frames(hop, stack).collect();
                let frames: Arc<[_]> = frames.into_iter().map(|f| self.frame_id(f)).collect();
                self.hops.insert((hop_address, stack_address), Arc::clone(&frames));
                frames
            }
        };
        let mut end = at;
        for &frame in &*frames {
            end = self.child(end, frame);
        }
        self.behind_hops.insert((at, hop_address, stack_address), end);
        end
    }

    fn frame_id(&mut self, frame: Frame) -> FrameId {
        let frame = BoxFrame { kind: BoxKind::from_frame_kind(frame.kind), name: frame.name };
        FrameId(u32::try_from(self.frames.insert_full(frame).0).unwrap_or(u32::MAX))
    }

    /// Returns the node of a frame on another. A path that is too high loses its middle: what its time was
    /// spent on stays.
    fn child(&mut self, at: NodeId, frame: FrameId) -> NodeId {
        let level = self.nodes.get(at.index()).map_or(0, |node| node.level);
        let kind = self.frames.get_index(frame.0 as usize).map(|frame| frame.kind);
        if level >= LEVELS && kind != Some(BoxKind::Leaf) {
            return at;
        }
        let Self { nodes, children, .. } = self;
        *children.entry((at, frame)).or_insert_with(|| {
            nodes.push(ChainNode { frame: Some(frame), parent: at, level: level + 1 });
            NodeId::new(nodes.len() - 1)
        })
    }
}
