//! Recordings from drawings, and drawings of timelines.
//!
//! One character is one tick (1 ms) of a thread's life:
//!
//! ```text
//! #  on a CPU            r  runnable            ?  lost (in results only)
//! .  blocked, and woken  _  blocked, and nobody was seen to wake it
//! t  throttled (in results only)
//! (space) does not exist
//! ```

use offwake_analysis::timeline::{Interval, State, Timeline};
use offwake_recording::{
    Begin, ClosedBy, End, Meta, Phase, Preemption, Recording, StackRef, TaskState, ThreadEvent,
    ThreadEventReason, ThreadExit, ThreadKind, ThreadRef, Throttle, Wait, Wake, WakeContext,
    Window,
    units::{CgroupId, Cpu, Nanos, Tgid, Tid, Timestamp},
};

/// Nanoseconds in a tick.
pub const TICK: u64 = 1_000_000;
/// The tick at which a drawing begins.
const START: u64 = 1_000;

/// The moment at which a drawing's tick begins.
pub fn at(tick: usize) -> Timestamp {
    Timestamp((START + tick as u64) * TICK)
}

pub fn ticks(n: u64) -> Nanos {
    Nanos(n * TICK)
}

/// An empty recording of so many ticks.
pub fn recording(length: usize) -> Recording {
    Recording {
        meta: Meta {
            window: Window { start: at(0), end: at(length) },
            target: "pid 7".to_owned(),
            kernel: "6.18.0".to_owned(),
            host: "box".to_owned(),
            version: "0.1.0".to_owned(),
            closed_by: ClosedBy::Duration,
            profiler: None,
            own_cpu: Nanos(1_500_000),
            ..Meta::default()
        },
        ..Recording::default()
    }
}

/// A wake by a task's own doing.
pub fn wake_by(tid: u32, at: Timestamp) -> Wake {
    Wake {
        at,
        context: WakeContext::Task,
        cpu: Cpu(0),
        current: ThreadRef { tid: Tid(tid), tgid: Tgid(tid) },
        current_kind: ThreadKind::User,
        current_seq: None,
        syscall: None,
        file: None,
        ready: None,
        user_stack: StackRef::NotTaken,
        kernel_stack: StackRef::NotTaken,
    }
}

/// A wait with nothing particular about it.
pub fn wait(tid: u32, seq: u32, off: Timestamp, on: Timestamp) -> Wait {
    Wait {
        tid: Tid(tid),
        tgid: Tgid(tid),
        kind: ThreadKind::User,
        in_target: tid < 50,
        seq,
        begin: Begin::Seen,
        end: End::Seen,
        off,
        on,
        migrated: None,
        off_cpu: Cpu(0),
        on_cpu: Cpu(0),
        state: TaskState(1),
        syscall: None,
        timeout: None,
        polled_fd: None,
        polled_events: None,
        file: None,
        cgroup: CgroupId(1),
        user_stack: StackRef::NotTaken,
        kernel_stack: StackRef::NotTaken,
        wake: None,
    }
}

pub fn preemption(tid: u32, seq: u32, off: Timestamp, on: Timestamp) -> Preemption {
    Preemption {
        tid: Tid(tid),
        tgid: Tgid(tid),
        kind: ThreadKind::User,
        in_target: tid < 50,
        seq,
        begin: Begin::Seen,
        end: End::Seen,
        off,
        on,
        migrated: None,
        off_cpu: Cpu(0),
        on_cpu: Cpu(0),
        next: Tid(1),
    }
}

pub fn thread_event(
    tid: u32,
    reason: ThreadEventReason,
    at: Timestamp,
    created: Timestamp,
) -> ThreadEvent {
    ThreadEvent {
        at,
        reason,
        tid: Tid(tid),
        old_tid: None,
        tgid: Tgid(tid),
        parent: Tgid(1),
        kind: ThreadKind::User,
        in_target: tid < 50,
        phase: Phase::Unknown,
        seq: 0,
        created,
        cgroup: CgroupId(1),
        comm: format!("thread{tid}"),
    }
}

fn phase(state: char) -> Phase {
    match state {
        '#' => Phase::OnCpu,
        'r' => Phase::Runnable,
        _ => Phase::Blocked,
    }
}

/// Adds the records that a thread would have left that lived as it is drawn. Threads below 50 are
/// the target. All its waits are ended by `waker`.
pub fn live(recording: &mut Recording, tid: u32, life: &str, waker: u32) {
    let states: Vec<char> = life.chars().collect();
    let born = states.iter().take_while(|&&state| state == ' ').count();
    let dead = states.iter().rposition(|&state| state != ' ').map_or(0, |last| last + 1);
    let created = if born == 0 { Timestamp(u64::from(tid) * TICK) } else { at(born) };
    let mut seq = 0;
    let mut tick = born;
    let mut seen = |reason, tick: usize, seq, state| {
        let thread_event = thread_event(tid, reason, at(tick), created);
        recording.thread_events.push(ThreadEvent { phase: phase(state), seq, ..thread_event });
    };
    let first = states[born];
    seen(
        if born == 0 { ThreadEventReason::Opening } else { ThreadEventReason::Fork },
        born,
        0,
        first,
    );
    while tick < dead {
        let run = |of: &[char], from: usize| {
            (from..dead).find(|&n| !of.contains(&states[n])).unwrap_or(dead)
        };
        let off = run(&['#'], tick);
        if off == dead {
            break;
        }
        seq += 1;
        let woken = run(&['.', '_'], off);
        let on = run(&['r'], woken);
        let newborn = off == born && born > 0;
        let begin = match off == born {
            true if newborn => Begin::Newborn,
            true => Begin::BeforeWindow,
            false => Begin::Seen,
        };
        let end = if on == dead { End::StillOff } else { End::Seen };
        if woken == off && !newborn {
            let record = preemption(tid, seq, at(off), at(on));
            recording.preemptions.push(Preemption { begin, end, ..record });
        } else {
            // Blocked to the very end: the wake is yet to come.
            let wakes = newborn || (states[woken - 1] == '.' && woken < dead);
            let wake = wakes.then(|| wake_by(waker, at(woken)));
            let record = wait(tid, seq, at(off), at(on));
            recording.waits.push(&Wait { begin, end, wake, ..record });
        }
        tick = on;
    }
    if dead == states.len() {
        let mut seen = |reason, tick: usize, seq, state| {
            let thread_event = thread_event(tid, reason, at(tick), created);
            recording.thread_events.push(ThreadEvent { phase: phase(state), seq, ..thread_event });
        };
        seen(ThreadEventReason::Closing, dead, seq, states[dead - 1]);
    } else {
        recording.exits.push(ThreadExit {
            at: at(dead),
            tid: Tid(tid),
            tgid: Tgid(tid),
            in_target: tid < 50,
            seq,
            status: 0,
        });
    }
}

/// Draws what the timeline says of a tid, one line for all the threads that bore it.
pub fn drawn(recording: &Recording, timeline: &Timeline, tid: u32) -> String {
    let window = recording.meta.window;
    let length = (window.length().0 / TICK) as usize;
    let mut line = vec![' '; length];
    for thread in timeline.threads.iter().filter(|thread| thread.tid == Tid(tid)) {
        for Interval { from, to, state } in thread.track.iter() {
            let from = (from.since(window.start).0 / TICK) as usize;
            let to = (to.since(window.start).0 / TICK) as usize;
            line[from..to].fill(match state {
                State::OnCpu => '#',
                State::Runnable(_) => 'r',
                State::Throttled(_) => 't',
                State::Blocked(_) => '.',
                State::Lost => '?',
                State::Summed(_) => '~',
            });
        }
    }
    line.into_iter().collect()
}

/// Changes the waits of a recording.
pub fn edit(recording: &mut Recording, change: impl FnOnce(&mut Vec<Wait>)) {
    let mut waits: Vec<Wait> = recording.waits.iter().collect();
    change(&mut waits);
    recording.waits = waits.into_iter().collect();
}

/// Adds that the quota of a cgroup kept a thread from running in these ticks.
pub fn throttle(recording: &mut Recording, tid: u32, ticks: std::ops::Range<usize>, cgroup: u64) {
    recording.throttles.push(Throttle {
        tid: Tid(tid),
        tgid: Tgid(tid),
        from: at(ticks.start),
        until: at(ticks.end),
        cgroup: CgroupId(cgroup),
    });
}

/// Loses a thread's record of this number.
pub fn lose(recording: &mut Recording, tid: u32, seq: u32) {
    recording.waits.retain(|row, waiter| (waiter.tid, row.seq) != (Tid(tid), seq));
    recording.preemptions.retain(|p| (p.tid, p.seq) != (Tid(tid), seq));
}
