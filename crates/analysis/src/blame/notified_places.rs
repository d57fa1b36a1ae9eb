//! Places of a program's code in which a thread waits for others, where the code is compiled meanwhile, so that
//! one place comes with one stack after the other.

use std::collections::{HashMap, HashSet};

use offwake_recording::{
    Pattern, Recording, StackRef,
    units::{StackId, Tid},
};

use super::{broadcasts::FunctionReader, cause::Cause, pattern_analysis::PatternAnalysis};

/// Where a thread was notified, and by whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notifier {
    pub(super) stack: StackId,
    /// In which of several ways.
    pub(super) kind: usize,
    pub(super) tid: Tid,
}

/// Returns where the waits of a pattern are, and who ended them, if a thread of the same process did in one of
/// these ways: the functions in which threads wait, and in which they are woken from that.
pub(super) fn find_notifier(
    recording: &Recording,
    pattern: &Pattern,
    analysis: &PatternAnalysis,
    reader: &mut FunctionReader,
    ways: &[(&'static str, &'static str)],
) -> Option<Notifier> {
    if analysis.cause != Cause::Futex {
        return None;
    }
    let waiter = &recording.waits.waiters()[pattern.waiter];
    let notifier = analysis.waker().filter(|waker| waker.tgid == waiter.tgid)?;
    let by = recording.waits.wakers()[pattern.wake?.0].user_stack;
    let StackRef::Id(stack) = waiter.user_stack else { return None };
    let mut has = |stack, function| reader.has_function(&recording.stacks, stack, function);
    let kind =
        ways.iter().position(|&(waits, wakes)| has(waiter.user_stack, waits) && has(by, wakes))?;
    Some(Notifier { stack, kind, tid: notifier.tid })
}

/// A place in which a thread waits: the first of its stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(pub(super) StackId);

/// The time in which a thread waited with one stack after the other, and who notified it then.
struct Stay {
    place: Place,
    kind: usize,
    last: usize,
    notifiers: HashSet<Tid>,
}

/// Finds the places of a thread's waits, which come in the order of time, by their stacks.
///
/// ```text
/// interpreted    wait  wait  wait
/// compiled                         wait  wait
/// compiled anew                                wait  wait
/// ```
///
/// A stack continues the place of another if it is seen after the last wait with that one for the first time, and
/// somebody notifies in both. Where a thread waits in two places in turn, both stacks are seen all along. If it
/// may continue several, it continues none.
pub(super) fn find_places(waits: &[Notifier]) -> HashMap<StackId, Place> {
    let mut stays: Vec<(usize, Stay)> = Vec::new();
    let mut by_stack: HashMap<StackId, usize> = HashMap::new();
    for (n, wait) in waits.iter().enumerate() {
        let index = *by_stack.entry(wait.stack).or_insert(stays.len());
        if index == stays.len() {
            let place = Place(wait.stack);
            stays.push((n, Stay { place, kind: wait.kind, last: n, notifiers: HashSet::new() }));
        }
        if let Some((_, stay)) = stays.get_mut(index) {
            stay.last = n;
            stay.notifiers.insert(wait.tid);
        }
    }
    let mut places = HashMap::new();
    let mut open: Vec<Stay> = Vec::new();
    for (first, stay) in stays {
        let goes_on = |before: &&mut Stay| {
            before.kind == stay.kind
                && before.last < first
                && !before.notifiers.is_disjoint(&stay.notifiers)
        };
        let mut before = open.iter_mut().filter(goes_on);
        match (before.next(), before.next()) {
            (Some(before), None) => {
                places.insert(stay.place.0, before.place);
                before.last = stay.last;
                before.notifiers.extend(stay.notifiers);
            }
            _ => {
                places.insert(stay.place.0, stay.place);
                open.push(stay);
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::{StackId, Tid};

    use super::{Notifier, Place, find_places};

    /// Finds the places of the stacks 1 to 4, by the stack, kind and notifier of each wait.
    fn places(waits: &[(u64, usize, u32)]) -> [Option<u64>; 4] {
        let waits = waits.iter().map(|&(stack, kind, tid)| Notifier {
            stack: StackId(stack),
            kind,
            tid: Tid(tid),
        });
        let places = find_places(&waits.collect::<Vec<_>>());
        [1, 2, 3, 4].map(|stack| places.get(&StackId(stack)).map(|&Place(first)| first.0))
    }

    #[test]
    fn a_stack_that_begins_where_another_ends_is_in_the_same_place() {
        let one = places(&[(1, 0, 8), (1, 0, 9), (2, 0, 8), (3, 0, 9), (3, 0, 8), (3, 0, 8)]);
        assert_eq!(one, [Some(1), Some(1), Some(1), None]);
    }

    #[test]
    fn stacks_that_are_seen_in_turn_are_in_places_of_their_own() {
        let two = places(&[(1, 0, 8), (2, 0, 8), (1, 0, 8), (2, 0, 8)]);
        assert_eq!(two, [Some(1), Some(2), None, None]);
        // Both are compiled: the third may go on with either.
        let four =
            places(&[(1, 0, 8), (2, 0, 8), (1, 0, 8), (2, 0, 8), (3, 0, 8), (4, 0, 8), (3, 0, 8)]);
        assert_eq!(four, [Some(1), Some(2), Some(3), Some(4)]);
    }

    #[test]
    fn a_stack_in_which_others_notify_or_in_another_way_is_in_a_place_of_its_own() {
        assert_eq!(places(&[(1, 0, 8), (2, 0, 9)]), [Some(1), Some(2), None, None]);
        assert_eq!(places(&[(1, 0, 8), (2, 2, 8)]), [Some(1), Some(2), None, None]);
    }
}
