//! The selected row of a table, and the keys that move the selection.

use super::view_state::Key;

/// The number of rows that a page key moves.
const PAGE_ROWS: usize = 10;

/// The selected row of a table. It stays selected wherever sorting moves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection<K> {
    index: usize,
    /// None until a key has moved the selection: until then the first row is selected, whichever it
    /// is.
    key: Option<K>,
}

impl<K> Default for Selection<K> {
    fn default() -> Self {
        Self { index: 0, key: None }
    }
}

impl<K: PartialEq + Clone> Selection<K> {
    /// Returns the index of the selected row among these.
    pub(super) fn index_among<'k>(&self, mut keys: impl ExactSizeIterator<Item = &'k K>) -> usize
    where
        K: 'k,
    {
        let last = keys.len().saturating_sub(1);
        let found = self.key.as_ref().and_then(|key| keys.position(|other| other == key));
        found.unwrap_or(self.index.min(last))
    }

    /// Selects a row.
    pub(super) fn at_row(index: usize, key: K) -> Self {
        Self { index, key: Some(key) }
    }

    pub(super) fn move_by<'k>(&mut self, keys: &[&'k K], step: Step)
    where
        K: 'k,
    {
        let place = self.index_among(keys.iter().copied());
        self.index = step.apply_to(place, keys.len());
        self.key = keys.get(self.index).map(|key| (*key).clone());
    }
}

/// How far a key moves the selection.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Back(usize),
    Forward(usize),
    First,
    Last,
}

impl Step {
    pub(super) fn from_key(key: Key) -> Option<Self> {
        Some(match key {
            Key::Up | Key::Char('k') => Self::Back(1),
            Key::Down | Key::Char('j') => Self::Forward(1),
            Key::PageUp => Self::Back(PAGE_ROWS),
            Key::PageDown => Self::Forward(PAGE_ROWS),
            Key::Home | Key::Char('g') => Self::First,
            Key::End | Key::Char('G') => Self::Last,
            _ => return None,
        })
    }

    pub(super) fn apply_to(self, place: usize, length: usize) -> usize {
        let last = length.saturating_sub(1);
        match self {
            Self::Back(rows) => place.saturating_sub(rows),
            Self::Forward(rows) => place.saturating_add(rows).min(last),
            Self::First => 0,
            Self::Last => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Selection, Step};

    #[test]
    fn a_row_is_followed_and_one_that_goes_leaves_its_place() {
        let mut selection = Selection::default();
        // The first row, whichever that is, until somebody moves.
        assert_eq!(selection.index_among(["a", "b", "c"].iter()), 0);
        selection.move_by(&[&"a", &"b", &"c"], Step::Forward(1));
        assert_eq!(selection.index_among(["a", "b", "c"].iter()), 1);
        assert_eq!(selection.index_among(["b", "c", "a"].iter()), 0);
        assert_eq!(selection.index_among(["x", "y", "z"].iter()), 1);
        assert_eq!(selection.index_among(["x"].iter()), 0);
        assert_eq!(selection.index_among([].iter()), 0);
        selection.move_by(&[], Step::Last);
        assert_eq!(selection.index_among(["a", "b", "c"].iter()), 0);
    }
}
