//! Plain programs for the same tracepoints, which offwake's programs are measured against.
//!
//! They are no part of offwake: `cargo xtask bench overhead` compiles this object and loads it
//! through `tests/src/bin/offwake-yardsticks.rs`. It is empty on any target but BPF.

#![cfg_attr(target_arch = "bpf", no_std, no_main)]

/// Lets a host build of the whole workspace pass.
#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
mod entry {
    use core::ffi::c_void;

    use aya_ebpf::{
        EbpfContext as _,
        btf_maps::PerCpuArray,
        helpers::{bpf_get_current_pid_tgid, generated::bpf_get_stack},
        macros::{btf_map, btf_tracepoint},
        programs::BtfTracePointContext,
    };
    use profiler_ebpf::record::MAX_FRAMES;

    /// `BPF_F_USER_STACK`
    const USER_STACK: u64 = 1 << 8;

    /// Stacks are written here, and nobody reads them. A program on `sched_switch` has it for
    /// itself: interrupts are off there.
    #[btf_map]
    static FRAMES: PerCpuArray<[u64; MAX_FRAMES], 1> = PerCpuArray::new();

    /// What the dispatch alone costs at a switch.
    #[btf_tracepoint(function = "sched_switch")]
    fn nothing_at_switch(_ctx: BtfTracePointContext) -> i32 {
        0
    }

    /// What the dispatch alone costs at a wake.
    #[btf_tracepoint(function = "sched_waking")]
    fn nothing_at_waking(_ctx: BtfTracePointContext) -> i32 {
        0
    }

    /// Both stacks of every thread that leaves a CPU, and nothing else: no times, no maps of what
    /// was seen, no waker. The tools that add up off-CPU time in the kernel do this and more:
    /// <https://github.com/iovisor/bcc/blob/v0.31.0/libbpf-tools/offcputime.bpf.c>
    #[btf_tracepoint(function = "sched_switch")]
    fn both_stacks_walked(ctx: BtfTracePointContext) -> i32 {
        // The thread that leaves is still current. The idle task has no stack worth a walk.
        if bpf_get_current_pid_tgid() == 0 {
            return 0;
        }
        if let Some(frames) = FRAMES.get_ptr_mut(0) {
            walk(ctx.as_ptr(), frames, 0);
            walk(ctx.as_ptr(), frames, USER_STACK);
        }
        0
    }

    #[inline(always)]
    fn walk(ctx: *mut c_void, into: *mut [u64; MAX_FRAMES], flags: u64) {
        // SAFETY: the buffer is this CPU's own, and has the size that is named.
        unsafe { bpf_get_stack(ctx, into.cast(), (MAX_FRAMES * size_of::<u64>()) as u32, flags) };
    }
}

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// A panic that can be reached is an endless loop, and the verifier refuses that.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
