//! Stacks as text: `main;handle;futex_wait`, root to leaf.

use crate::report::{frames::names_of, text::folded};
use offwake_recording::{StackRef, StackTable};

/// Bytes after which no frame is added: [`super::dictionary`] cuts the text a little later.
const ENOUGH: usize = 1 << 16;

/// Returns the number of a stack, as columns have it.
pub(super) fn id(stack: StackRef) -> Option<u64> {
    match stack {
        StackRef::Id(id) => Some(id.0),
        StackRef::NotTaken | StackRef::Failed => None,
    }
}

/// Returns the frames of the user half, then of the kernel half, as text. None if neither was
/// taken; a half that failed or was lost shows as such.
pub(super) fn joined(stacks: &StackTable, (user, kernel): (StackRef, StackRef)) -> Option<String> {
    let mut text = String::new();
    add(stacks, user, "user", &mut text);
    add(stacks, kernel, "kernel", &mut text);
    (!text.is_empty()).then_some(text)
}

fn add(stacks: &StackTable, stack: StackRef, half: &str, text: &mut String) {
    let id = match stack {
        StackRef::NotTaken => return,
        StackRef::Failed => return push(text, &format!("[{half} stack failed]")),
        StackRef::Id(id) => id,
    };
    let Some(stack) = stacks.stacks.get(&id) else {
        return push(text, &format!("[{half} stack lost]"));
    };
    for frame in stack.frames.iter().rev() {
        if text.len() > ENOUGH {
            return;
        }
        match stacks.frames.get(frame) {
            Some(frame) => names_of(stacks, frame).iter().for_each(|name| push(text, name)),
            None => push(text, "[unknown]"),
        }
    }
}

fn push(text: &mut String, frame: &str) {
    if !text.is_empty() {
        text.push(';');
    }
    text.push_str(&folded(frame));
}
