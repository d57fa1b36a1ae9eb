//! Derives which thread each CPU ran, and when it switched.
//!
//! A thread's life says where it ran. Put side by side, these stretches are what the scheduler did
//! on each CPU:
//!
//! ```text
//! thread A   ==== CPU 0 ====.................
//! thread B   ...............== CPU 0 ==......
//! switches   ^ - → A        ^ A → B    ^ B → -
//! ```
//!
//! Between two stretches nothing recorded ran: the CPU was idle, or had a thread that is not in the
//! recording.

use crate::timeline::{State, ThreadIndex, Timeline};
use offwake_recording::{
    Recording, WaitRow,
    units::{Cpu, Timestamp},
};

/// An interval of a thread's track in which it was on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OnCpuInterval {
    cpu: Cpu,
    from: Timestamp,
    to: Timestamp,
    thread: ThreadIndex,
    place: u32,
}

/// The state of a thread as it leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchOutState {
    /// The thread can run.
    Runnable,
    /// The thread is blocked, in a state with this letter.
    Blocked(char),
    /// The thread has exited.
    Dead,
    /// Unknown.
    Unknown,
}

/// A CPU goes from one thread to another. None is the idle task, or a thread that was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) at: Timestamp,
    pub(super) from: Option<(ThreadIndex, SwitchOutState)>,
    pub(super) to: Option<ThreadIndex>,
}

/// Every CPU's switches, in order of time.
pub(super) fn switches(recording: &Recording, timeline: &Timeline) -> Vec<(Cpu, Vec<Switch>)> {
    let mut stretches = on_cpu_intervals(timeline);
    stretches.sort_unstable();
    let by_cpu = stretches.chunk_by(|a, b| a.cpu == b.cpu);
    by_cpu
        .filter_map(|stretches| {
            Some((stretches.first()?.cpu, cpu_switches(recording, timeline, stretches)))
        })
        .collect()
}

fn on_cpu_intervals(timeline: &Timeline) -> Vec<OnCpuInterval> {
    let mut stretches = Vec::new();
    for (thread, index) in timeline.threads.iter().zip(0..) {
        for (interval, place) in thread.track.iter().zip(0..) {
            // Which CPU it was may not be known.
            if let Some(cpu) = thread.track.cpu(place as usize) {
                stretches.push(OnCpuInterval {
                    cpu,
                    from: interval.from,
                    to: interval.to,
                    thread: ThreadIndex(index),
                    place,
                });
            }
        }
    }
    stretches
}

/// Derives one CPU's switches from its intervals, which are in order of time.
fn cpu_switches(
    recording: &Recording,
    timeline: &Timeline,
    stretches: &[OnCpuInterval],
) -> Vec<Switch> {
    let mut switches = Vec::with_capacity(stretches.len());
    let mut running: Option<OnCpuInterval> = None;
    for &next in stretches {
        let leaves = running.map(|now| {
            // Both claim the CPU: somebody's records are wrong, and whose is not known.
            let overlaps = now.to > next.from;
            let leaves = if overlaps {
                SwitchOutState::Unknown
            } else {
                state_after(recording, timeline, now)
            };
            (now, leaves)
        });
        match leaves {
            Some((now, leaves)) if now.to < next.from => {
                switches.push(Switch { at: now.to, from: Some((now.thread, leaves)), to: None });
                switches.push(Switch { at: next.from, from: None, to: Some(next.thread) });
            }
            leaves => switches.push(Switch {
                at: next.from,
                from: leaves.map(|(now, leaves)| (now.thread, leaves)),
                to: Some(next.thread),
            }),
        }
        running = Some(next);
    }
    // Who is on its CPU as the window closes has not left it.
    if let Some(last) = running.filter(|last| last.to < recording.meta.window.end) {
        let leaves = state_after(recording, timeline, last);
        switches.push(Switch { at: last.to, from: Some((last.thread, leaves)), to: None });
    }
    switches
}

/// Returns the state of a thread after an interval on a CPU.
fn state_after(
    recording: &Recording,
    timeline: &Timeline,
    stretch: OnCpuInterval,
) -> SwitchOutState {
    let Some(thread) = timeline.thread(stretch.thread) else { return SwitchOutState::Unknown };
    let next = (stretch.place as usize).saturating_add(1);
    match thread.track.get(next).map(|interval| interval.state) {
        Some(State::Runnable(_) | State::Throttled(_)) => SwitchOutState::Runnable,
        Some(State::Blocked(wait)) => {
            let row: Option<&WaitRow> = recording.waits.rows().get(wait.0 as usize);
            row.map_or(SwitchOutState::Unknown, |row| {
                SwitchOutState::Blocked(recording.waits.waiter(row).state.letter())
            })
        }
        Some(State::OnCpu | State::Lost | State::Summed(_)) => SwitchOutState::Unknown,
        None => SwitchOutState::Dead,
    }
}
