//! The survey: every thread is looked at once when the window opens and once when it closes, so
//! that those which are off the CPU all along are known too; and whenever a snapshot is taken of a
//! recording that goes on.

use core::{ffi::c_void, ptr};

use aya_ebpf::EbpfContext;
use aya_log_ebpf::debug;
use profiler_ebpf::{
    loss::Loss,
    record::{
        NO_STACK, PreemptionRecord, RecordHeader, WaitRecord, kind, phase, sighting, survey,
        thread_flags, wait_flags,
    },
};

use super::{
    maps::{SURVEY, WAIT_SCRATCH},
    ring::{cpu, lost, now, send},
    slot::{self, Slot},
    stack::{self, Scratch},
    switch::{self, Current},
    target,
    task::Task,
    user_stacks,
};

/// What an iterator's program is called with, for the logger's use.
pub struct Context(pub *mut c_void);

impl EbpfContext for Context {
    fn as_ptr(&self) -> *mut c_void {
        self.0
    }
}

/// Looks at one thread.
#[inline(always)]
pub fn looked_at(ctx: &Context, task: Task) {
    if task.tid() == 0 || target::is_profiler(task) || task.is_dead() {
        return;
    }
    let Some(which) = SURVEY.get(0) else { return };
    let Some(slot) = slot::find_or_make(task) else {
        debug!(ctx, "no room for thread {} of process {}", task.tid(), task.tgid());
        return;
    };
    if !target::is_in_scope(slot.thread_flags) {
        return;
    }
    match *which {
        survey::OPENING => opening(slot, task),
        survey::CLOSING => closing(slot, task),
        _ => snapshot(slot, task),
    }
}

#[inline(always)]
fn opening(slot: &mut Slot, task: Task) {
    // The programs run already: a thread that has switched since is known better than this can tell.
    if slot.phase == phase::UNKNOWN {
        begin(slot, task);
    }
    let now = slot.phase;
    slot::introduce(slot, task, sighting::OPENING, now);
}

#[inline(always)]
fn begin(slot: &mut Slot, task: Task) {
    if task.is_on_cpu() {
        slot.phase = phase::ON_CPU;
        return;
    }
    let record = &mut slot.record;
    record.tid = task.tid();
    record.tgid = task.tgid();
    record.wait_flags = wait_flags::BEFORE_WINDOW;
    record.off_ns = now();
    record.migrated_ns = 0;
    record.state = task.state();
    record.cpus = cpu();
    record.user_stack = NO_STACK;
    slot.next_tid = 0;
    if !task.is_blocked() {
        slot.phase = phase::RUNNABLE;
        return;
    }
    record.syscall.thread_flags = slot.thread_flags;
    let registers = task.registers();
    switch::note_what_for(record, task, registers, Current::No);
    let is_target = slot.thread_flags & thread_flags::TARGET != 0;
    if stack::wanted() && is_target && task.has_user_half() {
        let taken = user_stacks::of_sleeper(task, registers);
        let record = &mut slot.record;
        record.user_stack = taken.0;
    }
    slot.phase = phase::BLOCKED;
}

#[inline(always)]
fn closing(slot: &mut Slot, task: Task) {
    match slot.phase {
        phase::BLOCKED => {
            slot.seq += 1;
            if let Some(record) = open_wait(slot, task, slot.seq) {
                send_open_wait(record);
            }
        }
        phase::RUNNABLE => {
            slot.seq += 1;
            send_open_preemption(slot, slot.seq);
        }
        phase::ON_CPU if !task.is_on_cpu() => {
            // It left unseen.
            lost(Loss::SwitchOutMissed);
            slot.seq += 1;
            slot.phase = phase::UNKNOWN;
        }
        _ => {}
    }
    let now = slot.phase;
    slot::introduce(slot, task, sighting::CLOSING, now);
}

/// As [`closing`], and the slot stays as it is: what is sent bears the number that the record of the
/// same wait will have when it ends.
#[inline(always)]
fn snapshot(slot: &mut Slot, task: Task) {
    // In this order: the number changes before the phase does.
    let seq = slot_seq(slot);
    let mut phase = slot_phase(slot);
    let mut newest = seq;
    match phase {
        phase::BLOCKED => {
            newest = seq + 1;
            // A wait that ended meanwhile is sent whole, and what was copied may be half another.
            if let Some(record) = open_wait(slot, task, newest)
                && slot_seq(slot) == seq
            {
                send_open_wait(record);
            }
        }
        phase::RUNNABLE => {
            newest = seq + 1;
            send_open_preemption(slot, newest);
        }
        // It left unseen, unless it leaves just now. It is counted when it comes back.
        phase::ON_CPU if !task.is_on_cpu() && slot_phase(slot) == phase::ON_CPU => {
            newest = seq + 1;
            phase = phase::UNKNOWN;
        }
        _ => {}
    }
    let _counted = slot::send_sighting(slot, task, sighting::CLOSING, phase, newest);
}

/// The number as it is now: another CPU may change it at any moment.
#[inline(always)]
fn slot_seq(slot: &Slot) -> u32 {
    // SAFETY: a reference can be read from.
    unsafe { ptr::read_volatile(&raw const slot.seq) }
}

/// The phase, likewise.
#[inline(always)]
fn slot_phase(slot: &Slot) -> u32 {
    // SAFETY: a reference can be read from.
    unsafe { ptr::read_volatile(&raw const slot.phase) }
}

#[inline(always)]
fn send_open_preemption(slot: &Slot, seq: u32) {
    let mut record = switch::preemption(slot, seq, now(), 0);
    record.wait_flags |= wait_flags::STILL_OFF;
    let _counted =
        send((&raw const record).cast(), size_of::<PreemptionRecord>(), Loss::RingFullPreemption);
}

#[inline(always)]
fn send_open_wait(record: &WaitRecord) {
    let record = ptr::from_ref(record).cast();
    let _counted = send(record, size_of::<WaitRecord>(), Loss::RingFullWait);
}

/// The wait that a slot is in, as it stands.
#[inline(always)]
fn open_wait(slot: &Slot, task: Task, seq: u32) -> Option<&'static WaitRecord> {
    let scratch = WAIT_SCRATCH.get_ptr_mut(0)?;
    let len = size_of::<WaitRecord>();
    // SAFETY: only the survey uses the scratch, and one runs at a time. The slot may change while
    // it is copied: a wait that ends just now is sent whole as well, and user space drops this one.
    unsafe {
        ptr::copy_nonoverlapping(
            (&raw const slot.record).cast::<u64>(),
            scratch.cast::<u64>(),
            len / 8,
        );
    }
    // SAFETY: as above.
    let record = unsafe { &mut *scratch };
    record.header = RecordHeader { kind: kind::WAIT, cpu: cpu() as u16, len: len as u32 };
    record.seq = seq;
    record.wait_flags |= wait_flags::STILL_OFF;
    record.on_ns = now();
    record.cpus = (record.cpus & 0xffff) | (cpu() << 16);
    if record.wake.ns == 0 && record.kernel_stack == NO_STACK && stack::wanted() {
        record.kernel_stack = stack::of_blocked(task, Scratch::Survey)
            .or_flag(&mut record.wait_flags, wait_flags::KERNEL_STACK_FAILED);
    }
    Some(record)
}
