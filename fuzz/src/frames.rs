//! What is true of the frames of any stack.

use offwake_unwind::{MAX_FRAMES, UnwoundFrame};

/// Checks that frames are in code and on the stack, further up with each.
///
/// # Panics
///
/// If they are not, or there are none, or too many.
pub fn check(frames: &[UnwoundFrame], stack: &[u8], is_code: impl Fn(u64) -> bool) {
    assert!((1..=MAX_FRAMES).contains(&frames.len()));
    let mut above = 0;
    for frame in &frames[1..] {
        assert!(is_code(frame.address.wrapping_sub(frame.kind.before())));
        let Some(at) = frame.stack_offset else { continue };
        assert!(at as usize >= above);
        above = at as usize + 8;
        assert_eq!(stack[at as usize..above], frame.address.to_le_bytes());
    }
}
