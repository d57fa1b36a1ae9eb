//! The description of one wait: what its time was spent on, through which threads, with every
//! stack.

use std::cmp::Reverse;

use crate::{
    report::{Frames, text},
    units::Nanos,
};

use super::{
    paint::Role,
    words::{self, Blamed, share},
};
use offwake_analysis::top::{Time, WaitKey, Waited};

/// The most stacks and chain ends that are written out.
const SHOWN: usize = 32;
/// The most characters of a frame's name.
const FRAME: usize = 400;

/// A line of the description.
pub(super) struct Line {
    pub(super) role: Role,
    pub(super) text: String,
}

/// Returns the whole description of a wait, line by line.
pub(super) fn lines(key: &WaitKey, waited: &Waited) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut say = |role, text: String| lines.push(Line { role, text });
    let place = match words::label(key.label.as_ref()) {
        place if place.is_empty() => place,
        place => format!(", in {place}"),
    };
    let times = match waited.count {
        1 => "once".to_owned(),
        many => format!("{many} times, {} at the longest", waited.longest),
    };
    let idle = match waited.idle {
        Nanos(0) => String::new(),
        idle => format!(", idle {}", share(idle, waited.blocked)),
    };
    let (thread, on) = (words::thread(&key.waiter), words::on(key));
    say(Role::Title, format!("{thread} waited {}, {times}{idle}: {on}{place}", waited.blocked));

    let mut stacks: Vec<_> = waited.stacks.iter().collect();
    stacks.sort_by_key(|&(_, time)| Reverse(time.0));
    for (stack, time) in stacks.iter().take(SHOWN).filter(|(stack, _)| !stack.names().is_empty()) {
        let part = share(time.0, waited.blocked);
        say(Role::Faint, format!("{part} of it waited here (innermost first):"));
        frames(stack, 4, &mut say);
    }
    let (rest, count) = waited.stacks.rest();
    more(stacks.len(), count, *rest, "stacks", &mut say);

    let mut leaves: Vec<_> = waited.leaves.iter().collect();
    leaves.sort_by_key(|&(_, time)| Reverse(time.0));
    for (leaf, time) in leaves.iter().take(SHOWN) {
        let part = share(time.0, waited.blocked);
        let place = match words::label(leaf.label.as_ref()) {
            place if place.is_empty() => place,
            place => format!(" in {place}"),
        };
        let idle = if leaf.is_idle { ", idle" } else { "" };
        let blamed = Blamed::of(leaf).words();
        say(Role::Title, format!("{part} {}: {blamed}{place}{idle}", time.0));
        for hop in &leaf.chain {
            let place = match words::label(hop.label.as_ref()) {
                place if place.is_empty() => place,
                place => format!(", in {place}"),
            };
            say(Role::Text, format!("  <- {}{place}", words::thread(&hop.thread)));
            frames(&hop.stack, 6, &mut say);
        }
        if leaf.chain.last().is_some_and(|hop| hop.stack != leaf.stack) {
            say(Role::Faint, "  worked here:".to_owned());
            frames(&leaf.stack, 6, &mut say);
        }
    }
    let (rest, count) = waited.leaves.rest();
    more(leaves.len(), count, *rest, "parts", &mut say);
    lines
}

fn frames(stack: &Frames, indent: usize, say: &mut dyn FnMut(Role, String)) {
    for name in stack.names().iter().rev() {
        let text = text::cut(&text::terminal(&name.text), FRAME);
        say(Role::Faint, format!("{:indent$}{text}", ""));
    }
}

fn more(all: usize, left_out: u64, time: Time, what: &str, say: &mut dyn FnMut(Role, String)) {
    let hidden = all.saturating_sub(SHOWN) as u64 + left_out;
    if hidden > 0 {
        let time = match time.0 {
            Nanos(0) => String::new(),
            time => format!(", {time} of them no longer told apart"),
        };
        say(Role::Faint, format!("and {hidden} more {what}{time}"));
    }
}
