//! Looks names up beside a live view, slowly.
//!
//! Each second, some new function of some large program runs, and to name it the whole file is read:
//! of a compiler that can be a second's work. A view is not worth that to the machine that is
//! looked at, so look-ups take a small part of one CPU, from the very beginning, and yield to
//! whatever else wants to run.

use std::{
    collections::HashSet,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use offwake_recording::{FrameId, StackRef, Wait, stream::Slice, units::StackId};
use rustix::{
    process::setpriority_process,
    time::{ClockId, clock_gettime},
};

use crate::{
    parser::{self, Parser, ParserRole},
    privileges::{self, Task},
    symbols::{NamingQueue, NamingRequest, ResolvedNames},
};

/// The pause after a look-up is this many times as long as the CPU time that it took: look-ups take
/// a tenth of one CPU at most.
const PAUSE_FACTOR: u32 = 9;
/// The nice value of the thread, and of the process that parses for it.
const NICE: i32 = 10;

/// Keeps the look-ups' part of a CPU small.
struct Pace {
    next: Instant,
}

impl Pace {
    /// Counts a look-up that has just taken so much CPU time.
    fn count(&mut self, used: Duration, now: Instant) {
        self.next = now + used * PAUSE_FACTOR;
    }

    /// Returns how long to wait for the next look-up.
    fn pause(&self, now: Instant) -> Duration {
        self.next.saturating_duration_since(now)
    }
}

/// Finds the frames whose names the target's waits need, which are looked up first.
#[derive(Default)]
pub(super) struct TargetFrames {
    /// The stacks of the target's waits in the newest slice. A stack may come one slice later.
    stacks: HashSet<StackId>,
    frames: HashSet<FrameId>,
}

impl TargetFrames {
    /// Adds the frames of the stacks that are new in a slice.
    pub(super) fn add(&mut self, slice: &Slice) {
        let waits = slice.waits.iter().filter(|wait| wait.in_target);
        let stacks: HashSet<StackId> = waits.flat_map(stacks_of).collect();
        for (id, stack) in &slice.stacks {
            if stacks.contains(id) || self.stacks.contains(id) {
                self.frames.extend(&stack.frames);
            }
        }
        self.stacks = stacks;
    }

    /// Hands out the frames that were found since the last time.
    pub(super) fn drain(&mut self) -> HashSet<FrameId> {
        std::mem::take(&mut self.frames)
    }
}

/// The stacks of a wait and of its wake.
fn stacks_of(wait: &Wait) -> impl Iterator<Item = StackId> + use<> {
    let wake = wait.wake.as_ref();
    let wake = wake.map_or_else(Default::default, |wake| [wake.user_stack, wake.kernel_stack]);
    [wait.user_stack, wait.kernel_stack].into_iter().chain(wake).filter_map(|stack| match stack {
        StackRef::Id(id) => Some(id),
        StackRef::NotTaken | StackRef::Failed => None,
    })
}

/// Frames whose names are to be looked up, and those of them that the target's waits need.
pub(super) type WantedNames = (NamingRequest, HashSet<FrameId>);

/// Looks names up until nobody asks any more, or `output` says that nobody wants them.
pub(super) fn look_up(
    pending: &Receiver<WantedNames>,
    output: &mut dyn FnMut(ResolvedNames) -> bool,
) {
    privileges::restrict_to(Task::Naming);
    // Everybody may yield more. If it fails, look-ups are as urgent as anything else, and as few.
    let _as_before = setpriority_process(None, NICE);
    let mut parser = Parser::new(ParserRole::Names);
    let mut queue = NamingQueue::default();
    let mut pace = Pace { next: Instant::now() };
    loop {
        let pause = pace.pause(Instant::now());
        let received = match queue.is_empty() {
            true => pending.recv().map_err(|_ended| RecvTimeoutError::Disconnected),
            false => pending.recv_timeout(pause),
        };
        match received {
            Ok((request, of_target)) => {
                queue.add(request, of_target);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(part) = queue.next_part() else { continue };
        let before = cpu_used();
        let mut names = ResolvedNames::default();
        names.resolve(part, &mut parser, &mut |_done, _all| {});
        pace.count(cpu_used().saturating_sub(before), Instant::now());
        if !output(names) {
            return;
        }
    }
}

/// The CPU time of this thread and of the processes that parse. What the unwinding of stacks takes
/// meanwhile counts too, and makes the pause a little longer.
fn cpu_used() -> Duration {
    let own = clock_gettime(ClockId::ThreadCPUTime);
    let own = Duration::try_from(own).unwrap_or_default();
    own + parser::cpu_used()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use offwake_recording::{
        AddressSpace, Begin, End, FrameId, Stack, StackEnd, StackRef, TaskState, ThreadKind, Wait,
        stream::Slice,
        units::{CgroupId, Cpu, StackId, Tgid, Tid, Timestamp},
    };

    use super::{Pace, TargetFrames};

    #[test]
    fn names_are_wanted_first_where_the_target_waits() {
        let wait = |stack, in_target| Wait {
            tid: Tid(7),
            tgid: Tgid(7),
            kind: ThreadKind::User,
            in_target,
            seq: 1,
            begin: Begin::Seen,
            end: End::Seen,
            off: Timestamp(1),
            on: Timestamp(2),
            migrated: None,
            off_cpu: Cpu(0),
            on_cpu: Cpu(0),
            state: TaskState(1),
            syscall: None,
            timeout: None,
            file: None,
            polled_fd: None,
            polled_events: None,
            cgroup: CgroupId(1),
            user_stack: StackRef::Id(StackId(stack)),
            kernel_stack: StackRef::NotTaken,
            wake: None,
        };
        let stack = |id, frame| {
            let frames = vec![FrameId(frame)];
            (StackId(id), Stack { space: AddressSpace::Kernel, frames, end: StackEnd::EntryPoint })
        };
        let waits = vec![wait(1, true), wait(2, false), wait(3, true)];
        let mut frames = TargetFrames::default();
        frames.add(&Slice { waits, stacks: vec![stack(1, 10), stack(2, 20)], ..Slice::default() });
        assert_eq!(frames.drain(), [FrameId(10)].into());
        frames.add(&Slice { stacks: vec![stack(3, 30)], ..Slice::default() });
        assert_eq!(frames.drain(), [FrameId(30)].into());
        assert!(frames.drain().is_empty());
    }

    #[test]
    fn look_ups_take_a_tenth_of_a_cpu_at_most() {
        let start = Instant::now();
        let (mut pace, mut now) = (Pace { next: start }, start);
        let mut used = Duration::ZERO;
        // Small files and large ones, on a machine that has a CPU to spare.
        for millis in [1, 3, 20, 400, 2, 50, 900, 10].into_iter().cycle().take(80) {
            now += pace.pause(now);
            let took = Duration::from_millis(millis);
            now += took;
            used += took;
            pace.count(took, now);
        }
        now += pace.pause(now);
        assert!(used * 10 <= now - start, "{used:?} of {:?}", now - start);
        assert_eq!(pace.pause(now), Duration::ZERO);
    }
}
