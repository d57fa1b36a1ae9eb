//! CPU quotas: whoever of a process would run in user code while its quota is used up may not, until it
//! is refilled. Each thread is taken off by itself, on its way back to user code, as since Linux 6.18.

use super::{
    ThreadId,
    history::Activity,
    machine::{Machine, Stand},
    program::Op,
};

impl Machine<'_> {
    pub(super) fn use_up(&mut self, quota: usize) {
        *self.used_up.entry(self.scenario.quotas[quota].process).or_default() += 1;
        for cpu in 0..self.cpus.len() {
            self.count(cpu);
            match self.cpus[cpu].current {
                Some(thread) if self.may_not_run(thread) => self.throttle(cpu, thread),
                _ => {}
            }
        }
    }

    pub(super) fn refill(&mut self, quota: usize) {
        let process = self.scenario.quotas[quota].process;
        let used_up = self.used_up.entry(process).or_default();
        *used_up = used_up.saturating_sub(1);
        if *used_up > 0 {
            return;
        }
        for n in 0..self.threads.len() {
            let state = &self.threads[n];
            if state.process == process && state.stand == Stand::Throttled {
                let thread = ThreadId(n);
                self.kernel_half.on_refill(thread, self.now);
                self.history.record_activity(thread, self.now, Activity::Runnable(None));
                self.enqueue(thread);
            }
        }
    }

    /// Whether the quota of a thread that is on a CPU is used up, and the thread is on its way to run in
    /// user code: not in a system call, as who goes to sleep, ends, or makes a thread.
    pub(super) fn may_not_run(&self, thread: ThreadId) -> bool {
        let state = &self.threads[thread.0];
        state.stand == Stand::OnCpu
            && state.program.get(state.step) != Some(&Op::Start)
            && self.used_up.get(&state.process).is_some_and(|&used_up| used_up > 0)
    }

    pub(super) fn throttle(&mut self, cpu: usize, thread: ThreadId) {
        let next = self.cpus[cpu].queue.front().copied();
        self.kernel_half.on_throttle(thread, self.now, cpu, next);
        self.history.record_activity(thread, self.now, Activity::Throttled);
        self.threads[thread.0].stand = Stand::Throttled;
        self.threads[thread.0].moved = None;
        self.leave(cpu);
    }
}
