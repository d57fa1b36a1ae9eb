//! This process's own stacks: the C library's own unwinder says what they are.

use std::{
    ptr,
    sync::{Mutex, PoisonError},
};

use offwake_recording::AddressKind;

use super::live_process::{OwnStack, capture_deep};
use crate::{MAX_FRAMES, Method, UnwindEnd, UnwoundFrame, UnwoundStack};

fn addresses(unwound: &UnwoundStack) -> Vec<u64> {
    unwound.frames.iter().map(|frame| frame.address).collect()
}

#[test]
fn a_thread_has_the_frames_that_the_c_library_finds() {
    let own = capture_deep(20);
    for method in [Method::Auto, Method::Dwarf] {
        let unwound = own.unwind(method);
        assert_eq!(addresses(&unwound)[1..], own.truth[1..]);
        assert_eq!(unwound.end, UnwindEnd::EntryPoint);
        assert!(unwound.frames.len() > 21);
    }
}

#[test]
fn a_copy_that_is_cut_short_gives_the_frames_that_are_in_it() {
    let own = capture_deep(20);
    let whole = own.unwind(Method::Auto);
    let at: Vec<_> = whole.frames.iter().map(|frame| frame.stack_offset).collect();
    for (count, &at) in at.iter().enumerate().skip(1) {
        let at = at.unwrap() as usize;
        let short = own.process.unwind(Method::Auto, own.registers, &own.bytes[..at + 7]);
        assert_eq!(short.frames, whole.frames[..count]);
        assert_eq!(short.end, UnwindEnd::CopyTooShort);
        let more = own.process.unwind(Method::Auto, own.registers, &own.bytes[..at + 8]);
        assert_eq!(more.frames, whole.frames[..=count]);
    }
}

#[test]
fn a_stack_that_is_too_deep_is_cut() {
    let thread = std::thread::Builder::new().stack_size(64 << 20);
    let unwound = thread.spawn(|| capture_deep(2000).unwind(Method::Auto)).unwrap().join().unwrap();
    assert_eq!(unwound.end, UnwindEnd::TooDeep);
    assert_eq!(unwound.frames.len(), MAX_FRAMES);
}

/// What the handler of a signal saw.
static SEEN: Mutex<Option<OwnStack>> = Mutex::new(None);
/// One signal at a time.
static SIGNAL: Mutex<()> = Mutex::new(());

extern "C" fn handler(_signal: libc::c_int) {
    *SEEN.lock().unwrap() = Some(capture_deep(3));
}

/// The stack of a signal's handler.
fn signalled(flags: libc::c_int) -> OwnStack {
    let _one = SIGNAL.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the handler is a function for that, and it is called by `raise` alone, so whatever it
    // does is done between two statements.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGURG, &action, ptr::null_mut()), 0);
        assert_eq!(libc::raise(libc::SIGURG), 0);
    }
    SEEN.lock().unwrap().take().unwrap()
}

#[test]
fn what_a_signal_interrupted_follows_its_handler() {
    let own = signalled(0);
    let unwound = own.unwind(Method::Auto);
    assert_eq!(addresses(&unwound)[1..], own.truth[1..]);
    assert_eq!(unwound.end, UnwindEnd::EntryPoint);
    let is_instruction = |frame: &&UnwoundFrame| frame.kind == AddressKind::Instruction;
    let interrupted: Vec<_> = unwound.frames.iter().filter(is_instruction).collect();
    assert_eq!(interrupted.len(), 2, "the leaf, and what was interrupted");
    // capture_deep(3) to capture_deep(0), their caller and the trampoline.
    assert_eq!(*interrupted[1], unwound.frames[7]);
}

#[test]
fn a_handler_with_a_stack_of_its_own_ends_at_what_it_interrupted() {
    std::thread::spawn(|| {
        // Above this thread's own stack, or below it: either is told.
        let mut room = vec![0_u8; 1 << 20];
        let stack =
            libc::stack_t { ss_sp: room.as_mut_ptr().cast(), ss_flags: 0, ss_size: room.len() };
        // SAFETY: the memory is there until the thread has gone back to its own stack and ended.
        assert_eq!(unsafe { libc::sigaltstack(&stack, ptr::null_mut()) }, 0);
        let own = signalled(libc::SA_ONSTACK);
        let none = libc::stack_t { ss_flags: libc::SS_DISABLE, ..stack };
        // SAFETY: no handler runs on it any more.
        assert_eq!(unsafe { libc::sigaltstack(&none, ptr::null_mut()) }, 0);
        let base = room.as_ptr() as u64;
        assert!((base..base + (1 << 20)).contains(&own.registers.sp));
        // No more of it than the other stack.
        let length = (base + (1 << 20) - own.registers.sp) as usize;
        let unwound = own.process.unwind(Method::Auto, own.registers, &own.bytes[..length]);
        let addresses = addresses(&unwound);
        assert_eq!(addresses[1..], own.truth[1..addresses.len()]);
        assert!(
            matches!(unwound.end, UnwindEnd::OtherStack | UnwindEnd::CopyTooShort),
            "{:?}",
            unwound.end
        );
        assert!(addresses.len() >= 7);
    })
    .join()
    .unwrap();
}
