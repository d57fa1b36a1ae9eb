//! The description of one wait: what its time was spent on, through which threads, with every
//! stack.

use std::cmp::Reverse;

use offwake_analysis::{
    frames::Frames,
    text,
    top::{SummedTime, WaitFigures, WaitKey},
};
use offwake_recording::units::Nanos;

use super::{
    describe::{self, BlameKey, percent},
    style::TextRole,
};

/// The most stacks and chain ends that are written out.
const MAX_ENTRIES: usize = 32;
/// The most characters of a frame's name.
const MAX_FRAME_CHARS: usize = 400;

/// A line of the description.
pub(super) struct ChainLine {
    pub(super) role: TextRole,
    pub(super) text: String,
}

/// Returns the whole description of a wait, line by line.
pub(super) fn chain_lines(key: &WaitKey, waited: &WaitFigures) -> Vec<ChainLine> {
    let mut lines = Vec::new();
    let mut say = |role, text: String| lines.push(ChainLine { role, text });
    let place = match describe::label(key.label.as_ref()) {
        place if place.is_empty() => place,
        place => format!(", in {place}"),
    };
    let times = match waited.count {
        1 => "once".to_owned(),
        many => format!("{many} times, {} at the longest", waited.longest),
    };
    let idle = match waited.idle {
        Nanos(0) => String::new(),
        idle => format!(", idle {}", percent(idle, waited.blocked)),
    };
    let (thread, on) = (describe::thread(&key.waiter), describe::waited_on(key));
    say(TextRole::Title, format!("{thread} waited {}, {times}{idle}: {on}{place}", waited.blocked));

    let mut stacks: Vec<_> = waited.stacks.iter().collect();
    stacks.sort_by_key(|&(_, time)| Reverse(time.0));
    for (stack, time) in
        stacks.iter().take(MAX_ENTRIES).filter(|(stack, _)| !stack.names().is_empty())
    {
        let part = percent(time.0, waited.blocked);
        say(TextRole::Faint, format!("{part} of it waited here (innermost first):"));
        push_frames(stack, 4, &mut say);
    }
    let (rest, count) = waited.stacks.rest();
    push_rest(stacks.len(), count, *rest, "stacks", &mut say);

    let mut leaves: Vec<_> = waited.chain_ends.iter().collect();
    leaves.sort_by_key(|&(_, time)| Reverse(time.0));
    for (leaf, time) in leaves.iter().take(MAX_ENTRIES) {
        let part = percent(time.0, waited.blocked);
        let place = match describe::label(leaf.label.as_ref()) {
            place if place.is_empty() => place,
            place => format!(" in {place}"),
        };
        let idle = if leaf.is_idle { ", idle" } else { "" };
        let blamed = BlameKey::new(leaf).describe();
        say(TextRole::Title, format!("{part} {}: {blamed}{place}{idle}", time.0));
        for hop in &leaf.chain {
            let place = match describe::label(hop.label.as_ref()) {
                place if place.is_empty() => place,
                place => format!(", in {place}"),
            };
            say(TextRole::Text, format!("  <- {}{place}", describe::thread(&hop.thread)));
            push_frames(&hop.stack, 6, &mut say);
        }
        if leaf.chain.last().is_some_and(|hop| hop.stack != leaf.stack) {
            say(TextRole::Faint, "  worked here:".to_owned());
            push_frames(&leaf.stack, 6, &mut say);
        }
    }
    let (rest, count) = waited.chain_ends.rest();
    push_rest(leaves.len(), count, *rest, "parts", &mut say);
    lines
}

fn push_frames(stack: &Frames, indent: usize, say: &mut dyn FnMut(TextRole, String)) {
    for name in stack.names().iter().rev() {
        let text = text::cut_chars(&text::terminal(&name.text), MAX_FRAME_CHARS);
        say(TextRole::Faint, format!("{:indent$}{text}", ""));
    }
}

fn push_rest(
    all: usize,
    left_out: u64,
    time: SummedTime,
    what: &str,
    say: &mut dyn FnMut(TextRole, String),
) {
    let hidden = all.saturating_sub(MAX_ENTRIES) as u64 + left_out;
    if hidden > 0 {
        let time = match time.0 {
            Nanos(0) => String::new(),
            time => format!(", {time} of them no longer told apart"),
        };
        say(TextRole::Faint, format!("and {hidden} more {what}{time}"));
    }
}
