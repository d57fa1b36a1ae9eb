//! What all waits of one pattern have in common: cause, wake source, whether they are idle.
//! Computed once for each pattern, since a recording has far fewer patterns than waits.

use offwake_recording::{Pattern, Recording, Wait};

use super::{
    StackPairId, StackPairs, Stance,
    cause::{Cause, Classifier},
    ender::{self, Source},
    idle,
    locks::LockWord,
};

/// What all waits of one pattern have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub(super) cause: Cause,
    /// None if no wake is known.
    pub(super) source: Option<Source>,
    pub(super) stance: Stance,
    pub(super) lock: Option<LockWord>,
    pub(super) own_stack: StackPairId,
    pub(super) waker_stack: StackPairId,
}

/// Analyses every pattern of a recording; the result has the order of the table of patterns.
pub(super) fn all(recording: &Recording, stacks: &StackPairs) -> Vec<Verdict> {
    let waits = &recording.waits;
    let mut classifier = Classifier::new(recording);
    let mut examples: Vec<Option<u32>> = vec![None; waits.patterns().len()];
    for (row, n) in waits.rows().iter().zip(0..) {
        if let Some(example) = examples.get_mut(row.pattern.index()) {
            example.get_or_insert(n);
        }
    }
    (waits.patterns().iter().zip(examples))
        .map(|((_, pattern), example)| {
            let wait = example.and_then(|n| waits.get(n as usize));
            verdict(recording, stacks, &mut classifier, pattern, wait.as_ref())
        })
        .collect()
}

fn verdict(
    recording: &Recording,
    stacks: &StackPairs,
    classifier: &mut Classifier<'_>,
    pattern: &Pattern,
    wait: Option<&Wait>,
) -> Verdict {
    let own_stack = stacks.of_waiter(pattern.waiter.index());
    let waker_stack =
        pattern.wake.map_or(StackPairId::NONE, |(waker, _)| stacks.of_waker(waker.index()));
    // No wait of this pattern is left: they were duplicates, and dropped.
    let Some(wait) = wait else {
        let (cause, stance) = (Cause::Other, Stance::Busy);
        return Verdict { cause, source: None, stance, lock: None, own_stack, waker_stack };
    };
    let cause = classifier.cause(wait);
    let source = wait.wake.as_ref().map(|wake| ender::source(recording, wait, wake, cause));
    Verdict {
        cause,
        source,
        stance: idle::stance(recording, wait, cause, source),
        lock: LockWord::of(wait, cause),
        own_stack,
        waker_stack,
    }
}
