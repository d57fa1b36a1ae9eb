//! The code that a signal handler returns to, where no unwind data describes it: musl's, Go's.
//!
//! ```text
//! mov $15, %rax      rt_sigreturn
//! syscall
//! ```
//!
//! Debuggers and libgcc recognise the trampoline by these bytes, so nobody changes them.
//!
//! <https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/libgcc/config/i386/linux-unwind.h>

use std::os::unix::fs::FileExt;

use offwake_recording::AddressKind;

use crate::{
    mapping::FileContent,
    stack::Stop,
    stack_copy::StackCopy,
    state::{FoundBy, FrameState, GENERAL, NextFrame, RSP},
    step::check_growth,
};

const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Where the kernel stored each general register, in the order of their DWARF numbers, in bytes
/// from the stack pointer that the handler returned with: `uc_mcontext` of a `ucontext_t`.
///
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/uapi/asm/sigcontext.h>
const GENERAL_AT: [u64; GENERAL] =
    [144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96];
/// Where the kernel stored `rip`, in bytes from the same stack pointer.
const IP_AT: u64 = 168;

/// Whether the code at an offset into a module is a trampoline.
pub(crate) fn is_at(content: Option<FileContent>, offset: u64) -> bool {
    match content {
        None => false,
        Some(FileContent::File(file)) => {
            let mut bytes = [0; CODE.len()];
            file.read_exact_at(&mut bytes, offset).is_ok() && bytes == CODE
        }
        Some(FileContent::Image(bytes)) => usize::try_from(offset)
            .ok()
            .and_then(|offset| bytes.get(offset..)?.first_chunk())
            .is_some_and(|bytes| *bytes == CODE),
    }
}

/// The frame that the signal interrupted.
pub(crate) fn step(state: &FrameState, copy: &StackCopy) -> Result<NextFrame, Stop> {
    let context = state.register(RSP)?;
    let at = |offset: u64| context.checked_add(offset).ok_or(Stop::Broken);
    let (ip, ip_at) = copy.return_address(at(IP_AT)?)?;
    let mut general = [None; GENERAL];
    for (general, offset) in general.iter_mut().zip(GENERAL_AT) {
        *general = Some(copy.word(at(offset)?)?);
    }
    let kind = AddressKind::Instruction;
    let next = FrameState { ip, kind, general, found_by: FoundBy::Data };
    check_growth(state, &next)?;
    Ok((next, ip_at))
}
