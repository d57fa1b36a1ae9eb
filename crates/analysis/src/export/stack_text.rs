//! Stacks as text: `main;handle;futex_wait`, root to leaf.

use crate::{frames::frame_texts, text::folded};
use offwake_recording::{StackRef, StackTable};

/// Bytes after which no frame is added: [`super::dictionary`] cuts the text a little later.
const MAX_TEXT_BYTES: usize = 1 << 16;

/// Returns the number of a stack, as columns have it.
pub(super) fn stack_number(stack: StackRef) -> Option<u64> {
    match stack {
        StackRef::Id(id) => Some(id.0),
        StackRef::NotTaken | StackRef::Failed => None,
    }
}

/// Returns the frames of the user half, then of the kernel half, as text. None if neither was
/// taken; a half that failed or was lost shows as such.
pub(super) fn join_frames(
    stacks: &StackTable,
    (user, kernel): (StackRef, StackRef),
) -> Option<String> {
    let mut text = String::new();
    append_stack(stacks, user, "user", &mut text);
    append_stack(stacks, kernel, "kernel", &mut text);
    (!text.is_empty()).then_some(text)
}

fn append_stack(stacks: &StackTable, stack: StackRef, half: &str, text: &mut String) {
    let id = match stack {
        StackRef::NotTaken => return,
        StackRef::Failed => return append_frame(text, &format!("[{half} stack failed]")),
        StackRef::Id(id) => id,
    };
    let Some(stack) = stacks.stacks.get(&id) else {
        return append_frame(text, &format!("[{half} stack lost]"));
    };
    for frame in stack.frames.iter().rev() {
        if text.len() > MAX_TEXT_BYTES {
            return;
        }
        match stacks.frames.get(frame) {
            Some(frame) => {
                frame_texts(stacks, frame).iter().for_each(|name| append_frame(text, name))
            }
            None => append_frame(text, "[unknown]"),
        }
    }
}

fn append_frame(text: &mut String, frame: &str) {
    if !text.is_empty() {
        text.push(';');
    }
    text.push_str(&folded(frame));
}
