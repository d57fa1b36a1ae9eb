//! The scheduler's events, as ftrace would have recorded them.
//!
//! Perfetto makes of them what each CPU ran, what each thread was doing, what it was blocked in and
//! who woke it.

use std::{collections::BTreeMap, io};

use offwake_recording::{
    Begin, Recording, StackRef, WakeContext,
    units::{Cpu, Tid, Timestamp},
};

use crate::{
    blame::{
        Blame, Reason, WakeSource,
        cause::{Cause, kernel_frame},
    },
    text,
    timeline::{State, Thread, ThreadIndex, Timeline, WaitIndex, WakeUse, wake_use},
};

use super::{
    cpus::{self, Switch, SwitchOutState},
    initially_blocked, largest_left_out,
    messages::{
        Data, Event, FtraceEvent, FtraceEventBundle, InternedData, InternedString,
        SchedBlockedReasonFtraceEvent, SchedProcessFreeFtraceEvent, SchedSwitchFtraceEvent,
        SchedWakingFtraceEvent,
    },
    packets::{Packets, Sequence},
};

/// The number of events in a packet.
const EVENTS_PER_PACKET: usize = 512;

/// Bits of `common_flags`
/// ([`trace_flag_type`](https://github.com/torvalds/linux/blob/v6.12/include/linux/trace_events.h#L186)).
mod flags {
    pub const HARDIRQ: u32 = 0x08;
    pub const SOFTIRQ: u32 = 0x10;
}

/// The waker of a thread, as ftrace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FtraceWaker {
    /// 0 if it was no task: the one that an interrupt stopped has nothing to do with it.
    tid: Tid,
    flags: u32,
}

/// An event on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchedEvent {
    /// The thread was blocked there before.
    Opening(ThreadIndex),
    Waking(WaitIndex),
    Switch(Switch),
}

/// Writes the last `most` events, and returns how many there were before. Of a shorter time they are all there, as a
/// thread whose events are not would seem to go on with what it did last.
pub(super) fn write(blame: &Blame<'_>, most: usize, packets: &mut Packets<'_>) -> io::Result<u64> {
    let (recording, timeline) = (blame.recording(), blame.timeline());
    let mut happened = wakings(blame);
    for (cpu, switches) in cpus::switches(recording, timeline) {
        let of_cpu = happened.entry(cpu).or_default();
        of_cpu.extend(switches.into_iter().map(|switch| (switch.at, SchedEvent::Switch(switch))));
    }
    let mut times: Vec<Timestamp> = happened.values().flatten().map(|&(at, _)| at).collect();
    let last_left_out = largest_left_out(&mut times, most);
    drop(times);
    let before: usize = happened.values().map(Vec::len).sum();
    if let Some(last) = last_left_out {
        happened.values_mut().for_each(|of_cpu| of_cpu.retain(|&(at, _)| at > last));
    }
    let left_out = before - happened.values().map(Vec::len).sum::<usize>();
    // Of what threads did until then nothing is said.
    if last_left_out.is_none() {
        for opening in initially_blocked::find_initially_blocked(recording, timeline) {
            opening.write(packets)?;
            let of_cpu = happened.entry(opening.cpu).or_default();
            of_cpu.push((opening.thread.from, SchedEvent::Opening(opening.index)));
        }
    }
    let mut writer = EventWriter { blame, recording, timeline, symbols: BTreeMap::new() };
    for (cpu, mut of_cpu) in happened {
        // Of what happened at one moment the wake came first: its thread can have come to this CPU.
        of_cpu.sort_by_key(|&(at, _)| at);
        for some in of_cpu.chunks(EVENTS_PER_PACKET) {
            writer.event_bundle(cpu, some, packets)?;
        }
    }
    Ok(left_out as u64)
}

/// Every wake that ended a wait or began a life, by the CPU that it was made on.
fn wakings(blame: &Blame<'_>) -> BTreeMap<Cpu, Vec<(Timestamp, SchedEvent)>> {
    let mut wakings: BTreeMap<Cpu, Vec<_>> = BTreeMap::new();
    let recording = blame.recording();
    for (row, n) in recording.waits.rows().iter().zip(0..) {
        let index = WaitIndex(n);
        let is_end =
            wake_use(row) == WakeUse::Ended && blame.timeline().blocked_interval(index).is_some();
        let is_birth = row.begin() == Begin::Newborn;
        if (is_end || is_birth)
            && let Some(at) = row.woken_at()
            && let (_, inside) = (recording.meta.window).clip(at, at)
            && inside == at
            && let Some(cpu) = row.wake_cpu()
        {
            wakings.entry(cpu).or_default().push((at, SchedEvent::Waking(index)));
        }
    }
    wakings
}

/// Returns the task that a wake is attributed to.
///
/// Perfetto takes the task that was current for the waker, in an interrupt too; of the flags, which
/// would tell, it makes nothing in events of this kind
/// ([`ParseSchedWaking`](https://github.com/google/perfetto/blob/v52.0/src/trace_processor/importers/ftrace/ftrace_parser.cc)).
/// So interrupts are given to the idle task, which accuses nobody.
fn ftrace_waker(source: WakeSource, context: WakeContext, current: Tid) -> FtraceWaker {
    let in_interrupt = |flags| FtraceWaker { tid: Tid(0), flags };
    match (source, context) {
        (WakeSource::Task(task), _) => FtraceWaker { tid: task.tid, flags: 0 },
        // It did wake the thread, though not for what that waited for.
        (WakeSource::Unknown(Reason::Signal), WakeContext::Task) => {
            FtraceWaker { tid: current, flags: 0 }
        }
        (_, WakeContext::Task) => in_interrupt(0),
        (_, WakeContext::Softirq(_)) => in_interrupt(flags::SOFTIRQ),
        (
            _,
            WakeContext::Hardirq(_)
            | WakeContext::Hrtimer
            | WakeContext::TimerSignal
            | WakeContext::System(_),
        ) => in_interrupt(flags::HARDIRQ),
    }
}

/// `prev_state` as `sched_switch` has it
/// ([`TRACE_EVENT(sched_switch)`](https://github.com/torvalds/linux/blob/v6.12/include/trace/events/sched.h#L220)).
fn prev_state(leaves: SwitchOutState) -> i64 {
    match leaves {
        SwitchOutState::Runnable => 0,
        SwitchOutState::Dead => 0x10,
        SwitchOutState::Unknown => UNKNOWN,
        SwitchOutState::Blocked(letter) => match letter {
            'R' => 0,
            'S' => 0x01,
            'D' => 0x02,
            'T' => 0x04,
            't' => 0x08,
            'X' => 0x10,
            'Z' => 0x20,
            'P' => 0x40,
            'I' => 0x80,
            _ => UNKNOWN,
        },
    }
}

/// A state that no kernel reports: Perfetto shows none.
const UNKNOWN: i64 = 0x4000;

struct EventWriter<'a> {
    blame: &'a Blame<'a>,
    recording: &'a Recording,
    timeline: &'a Timeline,
    /// The kernel functions that were named, with their ids.
    symbols: BTreeMap<String, u64>,
}

impl EventWriter<'_> {
    fn event_bundle(
        &mut self,
        cpu: Cpu,
        happened: &[(Timestamp, SchedEvent)],
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let Some(&(first, _)) = happened.first() else { return Ok(()) };
        let mut interned = InternedData::default();
        let mut events = Vec::with_capacity(happened.len());
        for &(at, happened) in happened {
            let mut event = |pid: Tid, flags: u32, event: Event| {
                events.push(FtraceEvent {
                    timestamp: Some(packets.boot_time(at)),
                    pid: Some(pid.0),
                    common_flags: Some(flags),
                    event: Some(event),
                });
            };
            match happened {
                SchedEvent::Opening(index) => {
                    if let Some(reason) = self.blocked_reason_event(index, at, &mut interned) {
                        event(Tid(0), 0, reason);
                    }
                }
                SchedEvent::Waking(wait) => {
                    if let Some((waker, waking)) = self.waking_event(wait) {
                        event(waker.tid, waker.flags, waking);
                    }
                }
                SchedEvent::Switch(switch) => {
                    let left = switch.from.and_then(|(index, _)| self.timeline.thread(index));
                    let tid = left.map_or(Tid(0), |thread| thread.tid);
                    event(tid, 0, self.switch_event(switch));
                    if let Some((index, SwitchOutState::Blocked(_))) = switch.from
                        && let Some(reason) = self.blocked_reason_event(index, at, &mut interned)
                    {
                        event(tid, 0, reason);
                    }
                    if let Some((_, SwitchOutState::Dead)) = switch.from {
                        event(tid, 0, free_event(tid));
                    }
                }
            }
        }
        let bundle = FtraceEventBundle { cpu: Some(u32::from(cpu.0)), event: events };
        let data = Data::FtraceEvents(bundle);
        packets.send_with(Sequence::Kernel, first, data, Some(interned))
    }

    fn switch_event(&self, switch: Switch) -> Event {
        let (prev_pid, prev_comm) =
            self.tid_and_comm(switch.from.map(|(index, _)| index), switch.at);
        let (next_pid, next_comm) = self.tid_and_comm(switch.to, switch.at);
        Event::SchedSwitch(SchedSwitchFtraceEvent {
            prev_comm: Some(prev_comm),
            prev_pid: Some(prev_pid),
            prev_state: Some(switch.from.map_or(0, |(_, leaves)| prev_state(leaves))),
            next_comm: Some(next_comm),
            next_pid: Some(next_pid),
        })
    }

    fn waking_event(&self, index: WaitIndex) -> Option<(FtraceWaker, Event)> {
        let wait = self.recording.waits.get(index.0 as usize)?;
        let wake = wait.wake?;
        let thread = self.timeline.find_thread(wait.tid, wake.at);
        let (pid, comm) = self.tid_and_comm(thread, wake.at);
        let waking = SchedWakingFtraceEvent {
            comm: Some(comm),
            pid: Some(if thread.is_some() { pid } else { wait.tid.0.cast_signed() }),
            success: Some(1),
            target_cpu: Some(i32::from(wait.on_cpu.0)),
        };
        let waker = ftrace_waker(self.blame.wake_source(index), wake.context, wake.current.tid);
        Some((waker, Event::SchedWaking(waking)))
    }

    /// Returns the event that tells in which kernel function the thread is blocked from `at` on.
    fn blocked_reason_event(
        &mut self,
        index: ThreadIndex,
        at: Timestamp,
        interned: &mut InternedData,
    ) -> Option<Event> {
        let thread = self.timeline.thread(index)?;
        let State::Blocked(wait) = thread.track.interval_at(at)?.state else { return None };
        let row = self.recording.waits.rows().get(wait.0 as usize)?;
        let stack = self.recording.waits.waiter(row).kernel_stack;
        let StackRef::Id(_) = stack else { return None };
        let stacks = &self.recording.stacks;
        let caller = kernel_frame(stacks, stack).map(|name| self.intern_symbol(name, interned));
        Some(Event::SchedBlockedReason(SchedBlockedReasonFtraceEvent {
            pid: Some(thread.tid.0.cast_signed()),
            caller,
            // What Perfetto calls so. The kernel's own mark is not in the recording.
            io_wait: Some(u32::from(self.blame.cause(wait) == Cause::Disk)),
        }))
    }

    fn intern_symbol(&mut self, name: &str, interned: &mut InternedData) -> u64 {
        if let Some(&known) = self.symbols.get(name) {
            return known;
        }
        let iid = self.symbols.len() as u64 + 1;
        self.symbols.insert(name.to_owned(), iid);
        interned
            .kernel_symbols
            .push(InternedString { iid: Some(iid), str: Some(text::plain(name)) });
        iid
    }

    /// Returns a thread's id and its name at a moment; those of the idle task if there is no
    /// thread.
    fn tid_and_comm(&self, index: Option<ThreadIndex>, at: Timestamp) -> (i32, String) {
        let thread: Option<&Thread> = index.and_then(|index| self.timeline.thread(index));
        thread.map_or((0, "swapper".to_owned()), |thread| {
            let comm = thread.comm_at(at).map(text::plain).unwrap_or_default();
            (thread.tid.0.cast_signed(), comm)
        })
    }
}

/// Returns the event after which another thread can have the tid.
fn free_event(tid: Tid) -> Event {
    Event::SchedProcessFree(SchedProcessFreeFtraceEvent { pid: Some(tid.0.cast_signed()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::External;
    use offwake_recording::{ThreadRef, units::Tgid};

    #[test]
    fn an_interrupt_names_no_task_as_waker() {
        let task = ThreadRef { tid: Tid(7), tgid: Tgid(7) };
        let named = FtraceWaker { tid: Tid(7), flags: 0 };
        assert_eq!(ftrace_waker(WakeSource::Task(task), WakeContext::Task, Tid(7)), named);
        // A packet that the sender itself delivered.
        assert_eq!(ftrace_waker(WakeSource::Task(task), WakeContext::Softirq(3), Tid(7)), named);
        for (context, flags) in [
            (WakeContext::Hrtimer, flags::HARDIRQ),
            (WakeContext::Hardirq(24), flags::HARDIRQ),
            (WakeContext::Softirq(3), flags::SOFTIRQ),
        ] {
            let source = WakeSource::External(External::Timer);
            assert_eq!(ftrace_waker(source, context, Tid(7)), FtraceWaker { tid: Tid(0), flags });
        }
    }
}
