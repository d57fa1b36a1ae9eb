//! A tree → the frames that a picture shows, and where.
//!
//! ```text
//! depth 0  │ all                             │
//!       1     │ web              │ worker    │
//!       2        │ futex │ poll │
//!          ^  ^  ^ after what ends in the frame above, and what is too narrow below it
//!          │  └ siblings are in the order of their names
//!          x = 0
//! ```

use std::ops::AddAssign;

use super::{FrameKind, NodeId, Tree};

/// A frame is shown if it has so much of the whole: a tenth of a pixel at a thousand pixels. Less
/// can't be seen, and makes files of megabytes.
const NARROWEST: u128 = 10_000;
/// So much is shown however deep it is.
const WIDE: u128 = 100;
/// Frames that fit into a window one below the other. Chains go far deeper, and a few narrow ones
/// would move all that is wide out of sight.
const ROWS: usize = 56;

/// A frame that is shown. `x` and the widths are in the unit of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) struct PlacedFrame {
    pub(in crate::report) node: NodeId,
    /// How many frames are above it.
    pub(in crate::report) depth: usize,
    /// Where it begins.
    pub(in crate::report) x: u128,
    pub(in crate::report) width: u128,
    /// The part of `width` that ends here: whose paths go no further.
    pub(in crate::report) own_width: u128,
}

/// The frames of a tree that are shown, and where.
#[derive(Clone, Debug)]
pub(in crate::report) struct Layout {
    /// The root first, each before those below it, siblings from left to right. Empty if the tree has
    /// no width.
    pub(in crate::report) frames: Vec<PlacedFrame>,
    /// Frames of less than this part of the whole are not shown: one in so many.
    narrowest: u128,
}

impl Layout {
    /// All that can be seen, or less if it would not fit into a window.
    pub(in crate::report) fn new<T: AddAssign + Copy + Default>(
        tree: &Tree<T>,
        width: impl Fn(&T) -> u128,
    ) -> Self {
        let nodes = Nodes::new(tree, width);
        let mut narrowest = NARROWEST;
        while nodes.rows(nodes.limit(narrowest)) > ROWS && narrowest > WIDE {
            narrowest = (narrowest / 2).max(WIDE);
        }
        Self { frames: nodes.place(tree, nodes.limit(narrowest)), narrowest }
    }

    /// What is not shown, in words, if it could be seen.
    pub(in crate::report) fn describe_omitted(&self) -> Option<String> {
        let percent = 100.0 / self.narrowest as f64;
        (self.narrowest < NARROWEST)
            .then(|| format!("not drawn, for room: frames of less than {percent:.2}%"))
    }
}

/// What the layout has to know of each node of a tree, in the order of the tree.
struct Nodes {
    widths: Vec<u128>,
    own_widths: Vec<u128>,
    depths: Vec<usize>,
}

impl Nodes {
    fn new<T: AddAssign + Copy + Default>(tree: &Tree<T>, width: impl Fn(&T) -> u128) -> Self {
        let widths: Vec<u128> = tree.nodes().map(|(_, node)| width(&node.total)).collect();
        let mut own_widths = widths.clone();
        let mut depths = vec![0; tree.len()];
        // A parent comes before its children.
        for (id, node) in tree.nodes().skip(1) {
            let parent = node.parent.index();
            depths[id.index()] = depths[parent] + 1;
            own_widths[parent] = own_widths[parent].saturating_sub(widths[id.index()]);
        }
        Self { widths, own_widths, depths }
    }

    /// The width of the narrowest frame that is shown.
    fn limit(&self, narrowest: u128) -> u128 {
        (self.widths.first().copied().unwrap_or(0) / narrowest).max(1)
    }

    /// How many frames stand on each other, of those that are shown.
    fn rows(&self, limit: u128) -> usize {
        let shown = self.widths.iter().zip(&self.depths).filter(|&(&width, _)| width >= limit);
        shown.map(|(_, depth)| depth + 1).max().unwrap_or(0)
    }

    fn place<T: AddAssign + Copy + Default>(
        &self,
        tree: &Tree<T>,
        limit: u128,
    ) -> Vec<PlacedFrame> {
        if self.widths[NodeId::ROOT.index()] < limit {
            return Vec::new();
        }
        let mut children: Vec<Vec<NodeId>> = vec![Vec::new(); tree.len()];
        for (id, node) in tree.nodes().skip(1) {
            // A frame is as wide as those on it at least: what is shown stands on what is shown.
            if self.widths[id.index()] >= limit {
                children[node.parent.index()].push(id);
            }
        }
        let name = |id: NodeId| -> Option<(&str, FrameKind)> {
            let frame = tree.get(id)?.frame.as_ref()?;
            Some((&frame.name, frame.kind))
        };
        let mut frames = Vec::new();
        // By a stack of our own, as a path may be thousands of frames deep.
        let mut waiting = vec![(NodeId::ROOT, 0)];
        while let Some((node, x)) = waiting.pop() {
            let index = node.index();
            let (width, own_width, depth) =
                (self.widths[index], self.own_widths[index], self.depths[index]);
            frames.push(PlacedFrame { node, depth, x, width, own_width });
            let on_it = &mut children[index];
            on_it.sort_by(|&one, &other| name(one).cmp(&name(other)));
            let mut end = x + width;
            for &child in on_it.iter().rev() {
                end -= self.widths[child.index()];
                waiting.push((child, end));
            }
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, PlacedFrame, ROWS};
    use crate::report::flame::{Frame, FrameKind, Tree};

    fn tree(paths: &[(&[&str], u64)]) -> Tree<u64> {
        let mut tree = Tree::new();
        for (path, value) in paths {
            let frame =
                |name: &&str| Frame { kind: FrameKind::User, name: (*name).into(), function: None };
            tree.add(path.iter().map(frame), *value);
        }
        tree
    }

    fn layout(tree: &Tree<u64>) -> Layout {
        Layout::new(tree, |&value| u128::from(value))
    }

    /// Each frame's name, depth, beginning, width, and the part of it that ends there.
    fn drawn(tree: &Tree<u64>) -> Vec<(String, usize, u128, u128, u128)> {
        let frame = |frame: &PlacedFrame| {
            let node = tree.get(frame.node).unwrap();
            let name = node.frame.as_ref().map_or("all", |frame| &frame.name).to_owned();
            (name, frame.depth, frame.x, frame.width, frame.own_width)
        };
        layout(tree).frames.iter().map(frame).collect()
    }

    #[test]
    fn siblings_stand_in_the_order_of_their_names_after_what_ends_below_them() {
        let tree =
            tree(&[(&["web", "poll"], 3), (&["db"], 5), (&["web"], 2), (&["web", "futex"], 7)]);
        let expected = [
            ("all", 0, 0, 17, 0),
            ("db", 1, 0, 5, 5),
            ("web", 1, 5, 12, 2),
            ("futex", 2, 7, 7, 7),
            ("poll", 2, 14, 3, 3),
        ];
        let expected =
            expected.map(|(name, depth, x, width, own)| (name.to_owned(), depth, x, width, own));
        assert_eq!(drawn(&tree), expected);
    }

    #[test]
    fn what_is_too_narrow_to_be_seen_leaves_a_gap_on_its_parent() {
        let tree = tree(&[(&["a", "b"], 2), (&["c"], 1_000_000)]);
        let frames = drawn(&tree);
        assert_eq!(frames.len(), 2, "{frames:?}");
        assert_eq!(frames[1], ("c".to_owned(), 1, 2, 1_000_000, 1_000_000));
        assert_eq!(layout(&tree).describe_omitted(), None);
    }

    #[test]
    fn narrow_columns_that_are_too_high_are_left_out_and_that_is_said() {
        let high: Vec<String> = (0..ROWS + 1).map(|level| level.to_string()).collect();
        let high: Vec<&str> = high.iter().map(String::as_str).collect();
        let narrow = tree(&[(&high, 5), (&["wide"], 995)]);
        assert_eq!(drawn(&narrow).len(), 2);
        let said = layout(&narrow).describe_omitted().unwrap();
        assert_eq!(said, "not drawn, for room: frames of less than 0.64%");
        // What is wide is drawn however high it stands.
        let wide = tree(&[(&high, 5), (&["wide"], 95)]);
        assert_eq!(drawn(&wide).len(), high.len() + 2);
    }

    #[test]
    fn a_tree_without_width_has_no_frame() {
        assert!(layout(&tree(&[])).frames.is_empty());
        assert!(layout(&tree(&[(&["a"], 0)])).frames.is_empty());
    }
}
