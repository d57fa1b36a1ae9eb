//! Joins what is one thing of which more was seen at one time than at another.
//!
//! Frames can be missing for a while: of an interpreter whose frames could not be read, of a process that had only
//! begun, of a stack whose copy was too short. What is left of such a stack names a wrapper or the kernel, and one
//! cause would have two findings:
//!
//! ```text
//! 82%  checkout.py waits for postgres in checkout        7%  checkout.py waits for postgres in PQgetResult
//!      └ postgres waits for cron_tx.py in secure_read        └ postgres waits for cron_tx.py in do_epoll_wait
//!        └ cron_tx.py sleeps in call_payment_api               └ cron_tx.py sleeps in hrtimer_nanosleep
//! ```

use std::collections::BTreeMap;

use indexmap::IndexMap;
use offwake_recording::units::Nanos;

use crate::{
    blame::{FrameEvidence, StackPairId, cause::Cause},
    label::CodeOwner,
    timeline::ThreadIndex,
};

use super::{
    meaning::SleepMeaning,
    root::{RootKey, WaitRoot},
    tree::{Node, NodeKey},
    write::main_path,
};

/// Joins waits of which less is known with those that are the same otherwise, if these are of one
/// kind. The function may not be known where stacks say what the waits are for, as frames can be
/// missing for a while; and the end of a connection, where that was gone before anybody looked.
pub(super) fn join_less_known_roots(
    roots: IndexMap<RootKey, WaitRoot>,
) -> IndexMap<RootKey, WaitRoot> {
    let (less, mut known): (IndexMap<_, _>, IndexMap<_, _>) =
        (roots.into_iter()).partition(|((_, meaning), _)| lacks_what_tells_enough(meaning));
    for ((program, meaning), root) in less {
        let is_same = |(other, more): &RootKey| *other == program && are_same_wait(&meaning, more);
        let key = find_only(known.keys().filter(|key| is_same(key)));
        known.entry(key.unwrap_or((program, meaning))).or_default().merge(root);
    }
    let mut joined = join_same_chains(known);
    joined.values_mut().for_each(|root| join_less_known_children(&mut root.node));
    joined
}

/// Returns whether a wait lacks its function or its end of a connection, and has what tells enough without.
fn lacks_what_tells_enough(meaning: &SleepMeaning) -> bool {
    let says_enough = matches!(
        meaning.evidence,
        FrameEvidence::NameLookup | FrameEvidence::Request | FrameEvidence::Sleep
    );
    !has_function(meaning) && says_enough || lacks_role(meaning)
}

/// Returns whether a wait is the same as another of which more is known.
fn are_same_wait(meaning: &SleepMeaning, more: &SleepMeaning) -> bool {
    let as_known = match lacks_role(meaning) {
        true => more.without_role(),
        false => SleepMeaning {
            label: meaning.label.clone(),
            blocked_loop: meaning.blocked_loop,
            is_on_condition: meaning.is_on_condition,
            ..more.clone()
        },
    };
    as_known == *meaning
}

fn lacks_role(meaning: &SleepMeaning) -> bool {
    let is_at_socket = matches!(meaning.cause, Cause::Socket | Cause::Poll);
    is_at_socket && meaning.role.is_none() && has_function(meaning)
}

fn has_function(meaning: &SleepMeaning) -> bool {
    meaning.label.as_ref().is_some_and(|label| label.whose != CodeOwner::Kernel)
}

/// Joins waits whose function is less known with others of the same threads, if there is one function only in which
/// these wait for the same kind of thing, and the chains lead over the same programs to one cause. Without that sign of
/// what they are for, they are anything.
fn join_same_chains(mut roots: IndexMap<RootKey, WaitRoot>) -> IndexMap<RootKey, WaitRoot> {
    let mut order: Vec<RootKey> = roots.keys().cloned().collect();
    order.sort_by_key(|key| roots.get(key).map(|root| root.node.time));
    for key in order {
        let Some(root) = roots.get(&key) else { continue };
        let is_more_known = |(other, more): &(&RootKey, &WaitRoot)| {
            key.0 == other.0
                && is_less_known(&key.1, &other.1)
                && is_part_of(&root.node, &more.node)
                && have_one_cause(&root.node, &more.node)
        };
        let Some(into) = find_only(roots.iter().filter(is_more_known).map(|(key, _)| key)) else {
            continue;
        };
        if let Some(root) = roots.shift_remove(&key) {
            roots.entry(into).or_default().merge(root);
        }
    }
    roots
}

/// Joins hops behind a node whose function is less known with others that are the same otherwise, and end a chain or lead
/// to one cause.
fn join_less_known_children(node: &mut Node) {
    let mut order: Vec<NodeKey> = node.children.keys().cloned().collect();
    order.sort_by_key(|key| node.children.get(key).map(|child| child.time));
    for key in order {
        let Some((child, slept)) = node.children.get(&key).zip(key.slept.as_ref()) else {
            continue;
        };
        let is_more_known = |(other, more): &(&NodeKey, &Node)| {
            (key.program, key.end) == (other.program, other.end)
                && other.slept.as_ref().is_some_and(|more| is_less_known(slept, more))
                && is_part_of(child, more)
                && (key.end.is_some() || have_one_cause(child, more))
        };
        let into = find_only(node.children.iter().filter(is_more_known).map(|(key, _)| key));
        let Some(into) = into else { continue };
        if let Some(child) = node.children.shift_remove(&key) {
            node.children.entry(into).or_default().merge(child);
        }
    }
    node.children.values_mut().for_each(join_less_known_children);
}

/// Returns whether two sleeps are the same but for the function, and that of `meaning` tells less: it is the kernel's
/// or none at all, or what an interpreter called where the other one is a function of the script.
pub(super) fn is_less_known(meaning: &SleepMeaning, more: &SleepMeaning) -> bool {
    // Most pairs of a program's waits differ in that already, and a comparison of the rest makes copies.
    let Some(function) = more.label.as_ref().filter(|_| meaning.cause == more.cause) else {
        return false;
    };
    let tells_less = match &meaning.label {
        None => true,
        Some(own) => {
            own.whose == CodeOwner::Kernel && function.whose != CodeOwner::Kernel
                || !own.has_source() && function.has_source()
        }
    };
    // Without its frames, nothing tells what a wait is for.
    let evidence = match meaning.evidence {
        FrameEvidence::None => more.evidence,
        known => known,
    };
    let known = SleepMeaning {
        label: more.label.clone(),
        evidence,
        is_on_condition: more.is_on_condition,
        blocked_loop: meaning.blocked_loop.or(more.blocked_loop),
        ..meaning.clone()
    };
    tells_less && known == *more
}

/// Returns whether a node is the smaller one, and about threads that the other one is about as well.
fn is_part_of(node: &Node, more: &Node) -> bool {
    let is_in = |(thread, &time): (&ThreadIndex, &Nanos)| {
        time == Nanos(0) || more.threads.contains_key(thread)
    };
    let threads: &BTreeMap<ThreadIndex, Nanos> = &node.threads;
    node.time < more.time && threads.iter().all(is_in)
}

/// Returns whether most of the time of two roots leads over the same programs to threads that did the same at the end, in
/// the same function or in one that is less known.
fn have_one_cause(less: &Node, more: &Node) -> bool {
    let (path, other_path) = (main_path(less), main_path(more));
    let programs = |path: &[(&NodeKey, &Node)]| -> Vec<_> {
        path.iter().map(|(key, _)| (key.program, key.end)).collect()
    };
    let Some(((key, end), (other_key, other_end))) = path.last().zip(other_path.last()) else {
        return false;
    };
    let is_same_sleep = match (&key.slept, &other_key.slept) {
        (Some(slept), Some(other)) => {
            other.label.is_some() && (slept == other || is_less_known(slept, other))
        }
        _ => false,
    };
    let works_alike = || {
        let in_both = |stack: &StackPairId| other_end.work.contains_key(stack);
        end.work.keys().any(|stack| *stack != StackPairId::NONE && in_both(stack))
    };
    programs(&path) == programs(&other_path)
        && end.threads.keys().all(|thread| other_end.threads.contains_key(thread))
        && (is_same_sleep || works_alike())
}

/// Returns what is the only one of its kind.
fn find_only<'k, K: Clone + 'k>(mut keys: impl Iterator<Item = &'k K>) -> Option<K> {
    let first = keys.next()?;
    keys.next().is_none().then(|| first.clone())
}
