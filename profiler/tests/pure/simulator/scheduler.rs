//! Who has which CPU, and who queues for it.

use super::{
    ThreadId,
    history::{Activity, Queue},
    machine::{Event, LONGEST_STEP, Machine, Stand},
    program::{Migration, Op},
};

impl Machine<'_> {
    /// Counts the CPU time that the current thread has used.
    pub(super) fn count(&mut self, cpu: usize) {
        let used = self.now - self.cpus[cpu].counted;
        self.cpus[cpu].counted = self.now;
        if let Some(thread) = self.cpus[cpu].current {
            let thread = &mut self.threads[thread.0];
            thread.remaining = thread.remaining.saturating_sub(used);
            thread.slice = thread.slice.saturating_sub(used);
        }
    }

    /// Plans when the current thread's step or slice is over.
    pub(super) fn replan(&mut self, cpu: usize) {
        let Some(thread) = self.cpus[cpu].current else { return };
        let thread = &self.threads[thread.0];
        let in_time = match thread.stand {
            // On its way to sleep or to its end, or with a half-made thread on its hands.
            Stand::Falling | Stand::Exiting => thread.remaining,
            _ if thread.program.get(thread.step) == Some(&Op::Start) => thread.remaining,
            _ => thread.remaining.min(thread.slice),
        };
        self.cpus[cpu].plan += 1;
        let plan = self.cpus[cpu].plan;
        self.plan(self.now + in_time, Event::Due { cpu, plan });
    }

    pub(super) fn preempt(&mut self, cpu: usize, thread: ThreadId) {
        let Some(&next) = self.cpus[cpu].queue.front() else { return };
        self.kernel_half.on_preempt(thread, self.now, cpu, next);
        self.history.record_activity(thread, self.now, Activity::Runnable(None));
        self.threads[thread.0].stand = Stand::Queued;
        self.threads[thread.0].moved = None;
        self.cpus[cpu].queue.push_back(thread);
        self.leave(cpu);
    }

    /// The current thread is gone from its CPU.
    pub(super) fn leave(&mut self, cpu: usize) {
        self.cpus[cpu].current = None;
        self.cpus[cpu].plan += 1;
        self.switch_in_next(cpu);
    }

    pub(super) fn switch_in_next(&mut self, cpu: usize) {
        if self.cpus[cpu].queue.is_empty() && self.scenario.migration == Migration::On {
            self.steal(cpu);
        }
        let Some(thread) = self.cpus[cpu].queue.pop_front() else { return };
        let slice = self.scenario.slice.max(1) + self.chance(4);
        let state = &mut self.threads[thread.0];
        let queue = Queue { cpu, moved: state.moved };
        if state.stand == Stand::Queued && state.wait.take().is_some() {
            state.resumed = true;
        }
        state.stand = Stand::OnCpu;
        state.slice = slice;
        if state.remaining == 0 {
            let cost = 1 + self.chance(LONGEST_STEP);
            self.threads[thread.0].remaining = cost;
        }
        let is_recorded = self.kernel_half.on_switch_in(thread, self.now, queue);
        self.history.record_switch_in(thread, self.now, queue, is_recorded);
        self.cpus[cpu].current = Some(thread);
        self.cpus[cpu].counted = self.now;
        self.replan(cpu);
    }

    /// Takes a thread that queues for another CPU.
    fn steal(&mut self, cpu: usize) {
        if self.chance(2) == 0 {
            return;
        }
        for other in 0..self.cpus.len() {
            // The first in the queue is being switched to already, perhaps.
            if self.cpus[other].queue.len() > 1
                && let Some(thread) = self.cpus[other].queue.pop_back()
            {
                self.threads[thread.0].cpu = cpu;
                self.threads[thread.0].moved = Some(self.now);
                self.cpus[cpu].queue.push_back(thread);
                return;
            }
        }
    }

    /// Puts a thread into its CPU's queue, which may take the CPU from whoever runs there.
    pub(super) fn enqueue(&mut self, thread: ThreadId) {
        self.threads[thread.0].stand = Stand::Queued;
        self.threads[thread.0].moved = None;
        if self.scenario.migration == Migration::On && self.chance(3) == 0 {
            self.threads[thread.0].cpu = self.chance(self.scenario.cpus as u64) as usize;
            self.threads[thread.0].moved = Some(self.now);
        }
        let cpu = self.threads[thread.0].cpu;
        self.cpus[cpu].queue.push_back(thread);
        if self.cpus[cpu].current.is_none() {
            if !self.cpus[cpu].is_waking {
                self.cpus[cpu].is_waking = true;
                let heard = self.now + 1 + self.chance(3);
                self.plan(heard, Event::Dispatch { cpu });
            }
        } else if self.chance(3) == 0 {
            self.count(cpu);
            let soon = 1 + self.chance(2);
            if let Some(current) = self.cpus[cpu].current {
                let current = &mut self.threads[current.0];
                current.slice = current.slice.min(soon);
            }
            self.replan(cpu);
        }
    }
}
