//! Sums by key, in bounded memory.

use std::{cmp::Reverse, collections::BTreeMap};

use offwake_recording::units::Nanos;

/// Figures that can be added up.
pub trait Summable: Default {
    /// Adds other figures.
    fn add(&mut self, other: Self);

    /// Returns the weight by which rows are kept: the lightest go first if there are too many.
    fn weight(&self) -> Nanos;
}

/// Sums by key, up to a limit. Rows beyond it are added up in one sum, so that the total stays
/// complete.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundedSums<K, V> {
    rows: BTreeMap<K, V>,
    rest: V,
    rest_count: u64,
}

impl<K, V: Default> Default for BoundedSums<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), rest: V::default(), rest_count: 0 }
    }
}

impl<K: Ord + Clone, V: Summable> BoundedSums<K, V> {
    /// Adds to the row of this key.
    pub fn add(&mut self, key: K, figure: V) {
        self.rows.entry(key).or_default().add(figure);
    }

    /// Adds all rows of another, then keeps the `limit` largest.
    pub fn append(&mut self, other: Self, limit: usize) {
        for (key, figure) in other.rows {
            self.add(key, figure);
        }
        self.rest.add(other.rest);
        self.rest_count += other.rest_count;
        self.shrink(limit);
    }

    fn shrink(&mut self, limit: usize) {
        if self.rows.len() <= limit {
            return;
        }
        let mut by_weight: Vec<(Nanos, K)> =
            self.rows.iter().map(|(key, figure)| (figure.weight(), key.clone())).collect();
        by_weight.sort_by_key(|&(weight, _)| Reverse(weight));
        for (_, key) in by_weight.drain(limit..) {
            if let Some(figure) = self.rows.remove(&key) {
                self.rest.add(figure);
                self.rest_count += 1;
            }
        }
    }

    /// Returns the row of a key.
    #[must_use]
    pub fn get_key_value(&self, key: &K) -> Option<(&K, &V)> {
        self.rows.get_key_value(key)
    }

    /// Returns all rows in order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter()
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the sum of the rows beyond the limit, and their number (one that came again counts
    /// again).
    #[must_use]
    pub fn rest(&self) -> (&V, u64) {
        (&self.rest, self.rest_count)
    }
}

#[cfg(test)]
mod tests {
    use super::{BoundedSums, Summable};
    use offwake_recording::units::Nanos;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Time(Nanos);

    impl Summable for Time {
        fn add(&mut self, other: Self) {
            self.0 += other.0;
        }

        fn weight(&self) -> Nanos {
            self.0
        }
    }

    #[test]
    fn the_largest_stay_and_nothing_is_lost_of_the_others() {
        let mut all = BoundedSums::default();
        for round in 0..3 {
            let mut more = BoundedSums::default();
            for key in 0..10_u64 {
                more.add(key, Time(Nanos(key + round)));
            }
            all.append(more, 4);
            assert_eq!(all.len(), 4);
        }
        let kept: Vec<u64> = all.iter().map(|(key, _)| *key).collect();
        assert_eq!(kept, [6, 7, 8, 9]);
        let (rest, count) = all.rest();
        let shown: Nanos = all.iter().map(|(_, time)| time.0).sum();
        assert_eq!(shown + rest.0, Nanos((0..3).map(|round| 45 + 10 * round).sum()));
        assert_eq!(count, 18);
    }
}
