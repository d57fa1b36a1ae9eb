//! One id for each user stack: every copy that is unwound has one of its own at first.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{AddressSpace, Recording, Stack, StackRef};
use crate::units::StackId;

/// Leaves one stack of those that are the same, the one with the lowest id.
pub(super) fn merge(recording: &mut Recording) {
    let renamed = find(recording);
    if renamed.is_empty() {
        return;
    }
    let other = |stack: StackRef| match stack {
        StackRef::Id(id) => StackRef::Id(renamed.get(&id).copied().unwrap_or(id)),
        none => none,
    };
    recording.waits.replace_user_stacks(other);
    for sample in &mut recording.samples {
        sample.user_stack = other(sample.user_stack);
    }
    recording.stacks.stacks.retain(|id, _| !renamed.contains_key(id));
}

/// The ids that are too many, and which stand for the same.
fn find(recording: &Recording) -> HashMap<StackId, StackId, RandomState> {
    let mut first = HashMap::<&Stack, StackId, RandomState>::default();
    let mut renamed = HashMap::default();
    for (&id, stack) in &recording.stacks.stacks {
        if stack.space == AddressSpace::Kernel {
            continue;
        }
        let kept = *first.entry(stack).or_insert(id);
        if kept != id {
            renamed.insert(id, kept);
        }
    }
    renamed
}
