//! Walks the Python frames of a thread at the moment that it waits: later it would have others.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_ebpf::{
    python::{
        MAX_FRAME_WORDS, MAX_FRAMES, NO_STEP, PythonFrame, PythonFrames, PythonLayout,
        PythonProcess, PythonThreadState,
    },
    user_stack::FINGERPRINT_SEED,
};

use super::{
    maps::{PYTHON_FRAME_WORDS, PYTHON_FRAMES, PYTHON_PROCESSES, PYTHON_THREADS},
    stack::{Scratch, mix},
    task::{Task, peek_user},
};

/// The words that are read of one frame.
pub type FrameWords = [u64; MAX_FRAME_WORDS];

/// Walks the Python frames of the current thread into the [`PYTHON_FRAMES`] of this [`Scratch`],
/// and returns a hash of them; 0 if the thread is not known to have any.
///
/// The verifier proves a global function once, and not at each call.
#[unsafe(no_mangle)]
pub extern "C" fn walk_python(tid: u32, scratch: u32) -> u64 {
    let Some(frames) = PYTHON_FRAMES.get_ptr_mut(scratch) else { return 0 };
    // SAFETY: this CPU's own, and `Scratch` says why nothing else uses it now.
    let frames = unsafe { &mut *frames };
    frames.depth = 0;
    frames.is_cut = 0;
    let Some((state, layout)) = known_state(tid).or_else(own_state) else { return 0 };
    let mut frame: u64 = peek_user(state + u64::from(layout.thread_frame));
    if layout.cframe_frame != NO_STEP {
        frame = peek_user(frame + u64::from(layout.cframe_frame));
    }
    let mut hash = mix(FINGERPRINT_SEED, state);
    let mut number = 0;
    while number < MAX_FRAMES {
        if frame == 0 {
            return hash | 1;
        }
        let Some(captured) = read_frame(frame, layout, scratch) else { break };
        // SAFETY: below the length.
        unsafe { *frames.frames.get_unchecked_mut(number) = captured.frame };
        hash = mix(mix(hash, captured.frame.code), captured.frame.instruction);
        frame = captured.previous;
        number += 1;
        frames.depth = number as u32;
    }
    frames.is_cut = u32::from(frame != 0);
    hash | 1
}

/// The state of a thread that user space knows.
#[inline(always)]
fn known_state(tid: u32) -> Option<(u64, &'static PythonLayout)> {
    let thread = PYTHON_THREADS.get_ptr(tid)?;
    // SAFETY: an entry that user space removes stays readable while this runs.
    let PythonThreadState { state, identity, layout } = unsafe { &*thread };
    let is_its = peek_user::<u64>(*state + u64::from(layout.thread_identity)) == *identity;
    is_its.then_some((*state, layout))
}

/// The state that the current thread itself says it has: it may be younger than what user space
/// knows, and live no longer than one wait.
#[inline(always)]
fn own_state() -> Option<(u64, &'static PythonLayout)> {
    let task = Task::current();
    let process = PYTHON_PROCESSES.get_ptr(task.tgid())?;
    // SAFETY: as above.
    let PythonProcess { state_pointer, thread_pointer, layout } = unsafe { &*process };
    let own = task.thread_pointer();
    let state: u64 = peek_user(own + u64::from(*state_pointer));
    let is_its =
        own != 0 && state != 0 && peek_user::<u64>(state + u64::from(*thread_pointer)) == own;
    is_its.then_some((state, layout))
}

/// A frame, and the address of its caller's.
struct CapturedFrame {
    frame: PythonFrame,
    previous: u64,
}

#[inline(always)]
fn read_frame(frame: u64, layout: &PythonLayout, scratch: u32) -> Option<CapturedFrame> {
    let words = PYTHON_FRAME_WORDS.get_ptr_mut(scratch)?;
    let bytes = (layout.frame_words as u64 * 8).min((MAX_FRAME_WORDS * 8) as u64);
    let begin = frame + u64::from(layout.frame_begin);
    // SAFETY: the helper writes as many bytes as are named, which are no more than there are.
    if unsafe { bpf_probe_read_user(words.cast(), bytes as u32, begin as *const c_void) } != 0 {
        return None;
    }
    // SAFETY: this CPU's own; the index is masked to what is below the length.
    let word =
        |index: u32| unsafe { *(*words).get_unchecked(index as usize & (MAX_FRAME_WORDS - 1)) };
    Some(CapturedFrame {
        frame: PythonFrame {
            code: word(layout.code) & layout.code_mask,
            instruction: word(layout.instruction) & layout.instruction_mask,
            marks: word(layout.marks) & layout.marks_mask,
        },
        previous: word(layout.previous),
    })
}

/// The frames that were walked last.
#[inline(always)]
pub fn last_walked(scratch: Scratch) -> Option<*const PythonFrames> {
    PYTHON_FRAMES.get_ptr(scratch as u32)
}
