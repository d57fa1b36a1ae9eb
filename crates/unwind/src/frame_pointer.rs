//! The chain of frame pointers.
//!
//! ```text
//!        |                       |
//!        | return address        |
//! fp --> | fp of the caller -----|--> further up
//!        | what the function has |
//! sp --> |                       |
//! ```

use offwake_recording::AddressKind;

use crate::{
    stack::Stop,
    stack_copy::StackCopy,
    state::{FoundBy, FrameState, GENERAL, NextFrame, RBP, RSP},
};

/// Bytes from the stack pointer up to a frame pointer that is believed: threads have some 8 MiB of
/// stack in all.
const MAX_FRAME: u64 = 1 << 20;

/// The frame that `rbp` leads to, and where in the copy its address lies.
///
/// [`Stop::NoUnwindInfo`] if `rbp` can't be a frame pointer.
pub(crate) fn step(state: &FrameState, copy: &StackCopy) -> Result<NextFrame, Stop> {
    let fp = state.register(RBP).map_err(|_| Stop::NoUnwindInfo)?;
    if fp == 0 {
        // Any function may have 0 in a register; a chain ends with it.
        return Err(match state.found_by {
            FoundBy::FramePointer => Stop::EntryPoint,
            FoundBy::Data | FoundBy::TopOfGo => Stop::NoUnwindInfo,
        });
    }
    let size = fp.checked_sub(state.register(RSP)?);
    if fp % 8 != 0 || size.is_none_or(|size| size > MAX_FRAME) {
        return Err(Stop::NoUnwindInfo);
    }
    let above = fp.checked_add(8).ok_or(Stop::NoUnwindInfo)?;
    let (ip, at) = copy.return_address(above)?;
    let caller_fp = copy.word(fp)?;
    if ip == 0 {
        let is_end = caller_fp == 0 && state.found_by == FoundBy::FramePointer;
        return Err(if is_end { Stop::EntryPoint } else { Stop::NoUnwindInfo });
    }
    let mut general = [None; GENERAL];
    general[RBP] = Some(caller_fp);
    general[RSP] = Some(above.checked_add(8).ok_or(Stop::NoUnwindInfo)?);
    let found_by = FoundBy::FramePointer;
    Ok((FrameState { ip, kind: AddressKind::Return, general, found_by }, at))
}
