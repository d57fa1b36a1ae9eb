//! Paths that begin alike, as one tree.

use std::{collections::HashMap, ops::AddAssign};

use super::{Frame, FrameKind};

/// A node of one tree. 0 is the root, of which all paths begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::report) struct NodeId(pub(in crate::report) u32);

impl NodeId {
    pub(in crate::report) const ROOT: Self = Self(0);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// One node.
#[derive(Clone, Debug)]
pub(in crate::report) struct Node<W> {
    /// None of the root alone.
    pub(in crate::report) frame: Option<Frame>,
    parent: NodeId,
    /// Of all paths through it.
    pub(in crate::report) all: W,
    /// Of the paths that end here.
    pub(in crate::report) own: W,
}

/// Paths that begin alike, as one tree with the weights of type `W`.
pub(in crate::report) struct Tree<W> {
    nodes: Vec<Node<W>>,
    children: HashMap<(NodeId, Frame), NodeId, foldhash::fast::RandomState>,
}

impl<W: AddAssign + Copy + Default> Tree<W> {
    pub(in crate::report) fn new() -> Self {
        let root = Node { frame: None, parent: NodeId::ROOT, all: W::default(), own: W::default() };
        Self { nodes: vec![root], children: HashMap::default() }
    }

    /// Adds a path, root first.
    pub(in crate::report) fn add(&mut self, path: &[Frame], weight: W) {
        let mut at = NodeId::ROOT;
        self.nodes[at.index()].all += weight;
        for frame in path {
            let key = (at, frame.clone());
            at = match self.children.get(&key) {
                Some(&child) => child,
                None => {
                    // 2^32 nodes take more memory than a report may.
                    let child = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
                    let frame = Some(frame.clone());
                    let (all, own) = (W::default(), W::default());
                    self.nodes.push(Node { frame, parent: at, all, own });
                    self.children.insert(key, child);
                    child
                }
            };
            self.nodes[at.index()].all += weight;
        }
        self.nodes[at.index()].own += weight;
    }

    /// The nodes on a path that was added, the root first.
    pub(in crate::report) fn along(&self, path: &[Frame]) -> impl Iterator<Item = NodeId> {
        let mut at = Some(NodeId::ROOT);
        let steps = path.iter().map_while(move |frame| {
            at = self.children.get(&(at?, frame.clone())).copied();
            at
        });
        [NodeId::ROOT].into_iter().chain(steps)
    }

    pub(in crate::report) fn root(&self) -> &Node<W> {
        &self.nodes[0]
    }

    pub(in crate::report) fn get(&self, id: NodeId) -> Option<&Node<W>> {
        self.nodes.get(id.index())
    }

    /// What to draw: the nodes whose `width` is at least `narrowest`, each as the path of ids that
    /// leads to it and the width of what ends there, that of narrower nodes above it included.
    /// Siblings are in the order of their names.
    pub(in crate::report) fn outline(
        &self,
        narrowest: u128,
        width: impl Fn(&W) -> u128,
    ) -> Vec<(Vec<NodeId>, u128)> {
        let mut children = vec![Vec::new(); self.nodes.len()];
        for (node, id) in self.nodes.iter().zip(0..).skip(1) {
            if width(&node.all) >= narrowest.max(1) {
                children[node.parent.index()].push(NodeId(id));
            }
        }
        let mut outline = Vec::new();
        let mut path = Vec::new();
        // With the depth that each is at; not by recursion, for a path may be thousands deep.
        let mut open = vec![(NodeId::ROOT, 0)];
        while let Some((id, depth)) = open.pop() {
            path.truncate(depth);
            path.push(id);
            let mut children = std::mem::take(&mut children[id.index()]);
            let wide: u128 =
                children.iter().map(|child| width(&self.nodes[child.index()].all)).sum();
            let rest = width(&self.nodes[id.index()].all).saturating_sub(wide);
            if rest > 0 {
                outline.push((path.clone(), rest));
            }
            children.sort_by(|a, b| self.order(*b).cmp(&self.order(*a)));
            open.extend(children.into_iter().map(|child| (child, depth + 1)));
        }
        outline
    }

    fn order(&self, id: NodeId) -> Option<(&str, FrameKind)> {
        let frame = self.nodes.get(id.index())?.frame.as_ref()?;
        Some((&frame.name, frame.kind))
    }
}
