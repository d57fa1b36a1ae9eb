//! Sending records, and counting those that can't be sent.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{
    bpf_get_smp_processor_id, bpf_ktime_get_ns, bpf_ringbuf_output,
};
use profiler_ebpf::{
    loss::{Loss, RingLoss},
    record::RecordHeader,
};

use super::maps::{LOSSES, RINGS};

/// No record wakes the consumer, which polls: a wake-up would be a switch of its own.
pub const BPF_RB_NO_WAKEUP: u64 = 1;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_ns() }
}

/// The CPU that this runs on.
#[inline(always)]
pub fn cpu() -> u32 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_get_smp_processor_id() as u32 }
}

/// Counts one loss.
#[inline(always)]
pub fn count_loss(loss: Loss) {
    if let Some(counters) = LOSSES.get_ptr_mut(0) {
        // SAFETY: this CPU's own entry; the index is a constant inside the array.
        unsafe { (*counters).counts[loss as usize] += 1 };
    }
}

/// Counts a record that found no room in the ring, and when.
#[inline(never)]
fn count_ring_full(loss: RingLoss) {
    count_full_ring(loss.index());
}

/// The same with the number of a [`Loss`] that the verifier can see to be one: a constant.
#[inline(always)]
pub fn count_full_ring(loss: usize) {
    if let Some(counters) = LOSSES.get_ptr_mut(0) {
        let now = now();
        // SAFETY: as above.
        unsafe {
            (*counters).counts[loss] += 1;
            if (*counters).ring_full_first_ns == 0 {
                (*counters).ring_full_first_ns = now;
            }
            (*counters).ring_full_last_ns = now;
        }
    }
}

/// A record's header on this CPU.
#[inline(always)]
pub fn header(kind: u16, len: usize) -> RecordHeader {
    RecordHeader { kind, cpu: cpu() as u16, len: len as u32 }
}

/// Sends `len` bytes that begin with a [`RecordHeader`]. On failure `loss` has been counted.
#[inline(always)]
pub fn send(record: *const c_void, len: usize, loss: RingLoss) -> Result<(), ()> {
    let sent = try_send(record, len);
    if sent.is_err() {
        count_ring_full(loss);
    }
    sent
}

/// Sends `len` bytes that begin with a [`RecordHeader`]. A failure is not counted yet.
#[inline(always)]
pub fn try_send(record: *const c_void, len: usize) -> Result<(), ()> {
    if let Some(ring) = RINGS.get(cpu()) {
        // SAFETY: the caller's record has `len` bytes; the verifier checks it.
        let sent = unsafe {
            bpf_ringbuf_output(
                core::ptr::from_ref(ring).cast_mut().cast(),
                record.cast_mut(),
                len as u64,
                BPF_RB_NO_WAKEUP,
            )
        };
        if sent == 0 {
            return Ok(());
        }
    }
    Err(())
}
