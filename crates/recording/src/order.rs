//! Records in the order of their beginnings: they come in the order of their ends, nearly.

use std::cmp::Ordering;

use rayon::prelude::*;

/// Sorted by themselves; what is left out of order behind that is little. They fit into a cache.
const STRETCH: usize = 65_536;

/// Sorts what is nearly sorted; equals stay as they are.
///
/// A thread's records don't overlap. So at most one of each thread begins before a given moment and
/// comes after it: few are far from their place, and those are taken out and put back at the end.
///
/// ```text
/// came          5 1 2 3 | 7 4 6 8 | 9 0 …      stretches
/// sorted        1 2 3 5 | 4 6 7 8 | 0 9 …      each by itself
/// taken out               4         0
/// put back      0 1 2 3 4 5 6 7 8 9 …
/// ```
pub(super) fn sort_nearly_sorted<T: Copy + Send + Sync>(
    records: &mut Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering + Sync,
) {
    records.par_chunks_mut(STRETCH).for_each(|stretch| stretch.sort_by(&compare));
    let mut late = Vec::new();
    let mut newest = None;
    records.retain(|&record| {
        let is_late = newest.is_some_and(|newest| compare(&record, &newest) == Ordering::Less);
        if is_late {
            late.push(record);
        } else {
            newest = Some(record);
        }
        !is_late
    });
    late.par_sort_by(&compare);
    put_back(records, &late, compare);
}

/// Merges `late` into `records`, behind its equals there.
fn put_back<T: Copy>(records: &mut Vec<T>, late: &[T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut left = records.len();
    records.extend_from_slice(late);
    // From the end on, so that nothing is overwritten that has not been moved.
    for (before, record) in late.iter().enumerate().rev() {
        let place = records[..left].partition_point(|other| compare(other, record).is_le());
        records.copy_within(place..left, place + before + 1);
        records[place + before] = *record;
        left = place;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{STRETCH, put_back, sort_nearly_sorted};

    /// Some far from their place, many a little, with equals among them.
    fn nearly_sorted() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let count = 2 * STRETCH + 100;
        let far = prop::collection::vec((0..count, 0..200_000_u32), 0..50);
        (any::<u32>(), far).prop_map(move |(seed, far)| {
            let near = |n: u32| n / 2 + n.wrapping_mul(seed | 1) % 64;
            let mut records: Vec<(u32, u32)> = (0..count as u32).map(|n| (near(n), n)).collect();
            for (place, key) in far {
                records[place].0 = key;
            }
            records
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn it_sorts_as_any_stable_sort_does(mut records in nearly_sorted()) {
            let mut expected = records.clone();
            expected.sort_by_key(|record| record.0);
            sort_nearly_sorted(&mut records, |a, b| a.0.cmp(&b.0));
            prop_assert!(records == expected);
        }

        #[test]
        fn whatever_was_taken_out_comes_back_behind_its_equals(
            mut records in prop::collection::vec(0..20_u32, 0..40),
            mut late in prop::collection::vec(0..20_u32, 0..40),
        ) {
            records.sort_unstable();
            late.sort_unstable();
            let tagged = |keys: &[u32], tag| keys.iter().map(|&key| (key, tag)).collect();
            let (mut records, late): (Vec<_>, Vec<_>) = (tagged(&records, 0), tagged(&late, 1));
            let mut expected = [records.clone(), late.clone()].concat();
            expected.sort_by_key(|record| record.0);
            put_back(&mut records, &late, |a, b| a.0.cmp(&b.0));
            prop_assert_eq!(records, expected);
        }
    }
}
