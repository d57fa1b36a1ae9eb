//! Markers that programs set in their own code ([`profiler_ebpf::marker`]).

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use profiler_ebpf::{
    loss::Loss,
    marker::{MAX_PER_SECOND, MODE, MarkerRecord, TEXT_LEN, marker_kind, split_cookie},
    record::{kind, phase},
    run_costs::Group,
};

use super::{
    maps::MARKER_PROBES,
    rate::{self, Rate},
    ring::{count_full_ring, count_loss, header, now, try_send},
    run_costs, target,
    task::{Registers, Task},
    task_local,
};

/// `faccessat2`: nothing but a marker has this mode, and nearly all calls go no further.
#[inline(always)]
pub fn on_faccessat2(registers: Registers) {
    if registers.argument(2) as i32 != MODE {
        return;
    }
    let kind = registers.argument(0) as u32;
    if kind <= marker_kind::INSTANT {
        run_costs::sample(Group::Marker, || {
            record_marker(kind, |record| read_text(record, registers.argument(1)));
        });
    }
}

/// A function or a probe that is a marker was reached; what was attached says which.
#[inline(always)]
pub fn on_probe(cookie: u64) {
    let (index, kind) = split_cookie(cookie);
    let Some(probe) = MARKER_PROBES.get_ptr(index) else { return };
    run_costs::sample(Group::Marker, || {
        record_marker(kind, |record| {
            // SAFETY: the entry of an array lives as long as the map.
            let probe = unsafe { &*probe };
            record.text = probe.text;
            record.text_len = probe.text_len;
            true
        });
    });
}

/// Reads the text from the program's memory. False if that can't be.
#[inline(always)]
fn read_text(record: &mut MarkerRecord, text: u64) -> bool {
    // SAFETY: the helper writes `TEXT_LEN` bytes at most, and reads what the program's address
    // leads to only if it may.
    let read = unsafe {
        bpf_probe_read_user_str(
            record.text.as_mut_ptr().cast(),
            TEXT_LEN as u32,
            text as *const c_void,
        )
    };
    record.text_len = read as u32;
    read >= 0
}

/// Sends a marker of the current thread, if the thread's waits are recorded.
#[inline(always)]
fn record_marker(marker_kind: u32, add_text: impl FnOnce(&mut MarkerRecord) -> bool) {
    let ns = now();
    let task = Task::current();
    if target::is_profiler(task) {
        return;
    }
    let Some(local) = task_local::find_or_create(task) else { return };
    if !target::is_in_scope(local.thread_flags) {
        return;
    }
    if !rate::is_below_limit(Rate::Marker, ns, MAX_PER_SECOND) {
        return count_loss(Loss::MarkerOverRate);
    }
    let mut record = MarkerRecord {
        header: header(kind::MARKER, size_of::<MarkerRecord>()),
        tid: task.tid(),
        tgid: task.tgid(),
        ns,
        kind: marker_kind,
        text_len: 0,
        text: [0; TEXT_LEN],
    };
    if !add_text(&mut record) {
        return count_loss(Loss::MarkerUnreadable);
    }
    task_local::send_thread_info_once(local, task, phase::ON_CPU);
    if try_send((&raw const record).cast(), size_of::<MarkerRecord>()).is_err() {
        count_full_ring(Loss::RingFullMarker as usize);
    }
}
