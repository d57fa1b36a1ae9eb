//! Paths that begin alike, as one tree.

use std::{collections::HashMap, ops::AddAssign};

use offwake_recording::units::Nanos;

use super::Frame;

/// A node of one tree. 0 is the root, of which all paths begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::report) struct NodeId(u32);

impl NodeId {
    pub(in crate::report) const ROOT: Self = Self(0);

    pub(in crate::report) fn new(index: usize) -> Self {
        // 2^32 nodes take more memory than a report may.
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The node's place in [`Tree::nodes`]. A parent's is before those of its children.
    pub(in crate::report) fn index(self) -> usize {
        self.0 as usize
    }
}

/// One node.
#[derive(Clone, Debug)]
pub(in crate::report) struct Node<T> {
    /// The root alone has none.
    pub(in crate::report) frame: Option<Frame>,
    /// The root is its own.
    pub(in crate::report) parent: NodeId,
    /// What all paths through it add up to.
    pub(in crate::report) total: T,
}

/// Paths that begin alike, as one tree that adds up values of type `T`.
pub(in crate::report) struct Tree<T> {
    nodes: Vec<Node<T>>,
    children: HashMap<(NodeId, Frame), NodeId, foldhash::fast::RandomState>,
}

impl<T: AddAssign + Copy + Default> Tree<T> {
    pub(in crate::report) fn new() -> Self {
        let root = Node { frame: None, parent: NodeId::ROOT, total: T::default() };
        Self { nodes: vec![root], children: HashMap::default() }
    }

    /// Adds a path, root first, and returns the node at its end.
    pub(in crate::report) fn add(
        &mut self,
        path: impl IntoIterator<Item = Frame>,
        value: T,
    ) -> NodeId {
        let mut at = NodeId::ROOT;
        self.nodes[at.index()].total += value;
        for frame in path {
            let next = NodeId::new(self.nodes.len());
            let child = *self.children.entry((at, frame)).or_insert_with_key(|(_, frame)| {
                let frame = Some(frame.clone());
                self.nodes.push(Node { frame, parent: at, total: T::default() });
                next
            });
            self.nodes[child.index()].total += value;
            at = child;
        }
        at
    }

    pub(in crate::report) fn root(&self) -> &Node<T> {
        &self.nodes[0]
    }

    pub(in crate::report) fn get(&self, id: NodeId) -> Option<&Node<T>> {
        self.nodes.get(id.index())
    }

    /// All nodes, in the order in which paths first led to them.
    pub(in crate::report) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node<T>)> {
        self.nodes.iter().enumerate().map(|(index, node)| (NodeId::new(index), node))
    }

    pub(in crate::report) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A node and all nodes below it, the root last.
    pub(in crate::report) fn down_from(
        &self,
        node: NodeId,
    ) -> impl Iterator<Item = (NodeId, &Node<T>)> {
        let mut next = Some(node);
        std::iter::from_fn(move || {
            let id = next?;
            let node = self.nodes.get(id.index())?;
            next = (id != NodeId::ROOT).then_some(node.parent);
            Some((id, node))
        })
    }
}

/// Time of each of `N` classes. Wider than a report's sums, which stop at their largest.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct ClassTimes<const N: usize>([u128; N]);

impl<const N: usize> Default for ClassTimes<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> AddAssign for ClassTimes<N> {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

impl<const N: usize> ClassTimes<N> {
    /// All of the time is of one class, which is known by its place among the classes.
    pub(in crate::report) fn new(class: usize, time: Nanos) -> Self {
        let mut times = Self::default();
        if let Some(slot) = times.0.get_mut(class) {
            *slot = u128::from(time.0);
        }
        times
    }

    pub(in crate::report) fn sum(&self) -> u128 {
        self.0.iter().sum()
    }

    /// Each class's time, in the order of the classes.
    pub(in crate::report) fn by_class(&self) -> [u128; N] {
        self.0
    }
}
