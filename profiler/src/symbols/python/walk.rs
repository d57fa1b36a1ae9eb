//! The Python frames of a thread that sleeps, walked as the kernel half walks them.

use profiler_ebpf::python::{MAX_FRAME_WORDS, MAX_FRAMES, NO_STEP, PythonLayout};

use super::{interpreter::Captured, memory::Memory, merge::ChainEnd, threads::ThreadState};

/// The frames, leaf first. None if it is not this thread's state any more. They are of one moment
/// only if the thread sleeps all the while.
pub(crate) fn walk(
    memory: &impl Memory,
    thread: &ThreadState,
    layout: &PythonLayout,
) -> Option<(Vec<Captured>, ChainEnd)> {
    let at = |base: u64, offset: u32| memory.word(base.wrapping_add(u64::from(offset)));
    if at(thread.state, layout.thread_identity)? != thread.identity {
        return None;
    }
    let mut frame = at(thread.state, layout.thread_frame)?;
    if layout.cframe_frame != NO_STEP {
        frame = at(frame, layout.cframe_frame)?;
    }
    let mut captured = Vec::new();
    while frame != 0 {
        let mut bytes = [0; MAX_FRAME_WORDS * 8];
        let bytes = &mut bytes[..layout.frame_words as usize * 8];
        let begin = frame.wrapping_add(u64::from(layout.frame_begin));
        if captured.len() == MAX_FRAMES || memory.read(begin, bytes).is_none() {
            return Some((captured, ChainEnd::CutShort));
        }
        let word = |index: u32| u64::from_le_bytes(bytes.as_chunks().0[index as usize]);
        captured.push(Captured {
            code: word(layout.code) & layout.code_mask,
            instruction: word(layout.instruction) & layout.instruction_mask,
            marks: word(layout.marks) & layout.marks_mask,
        });
        frame = word(layout.previous);
    }
    Some((captured, ChainEnd::First))
}
