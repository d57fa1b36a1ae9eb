//! What each step of a program does.

use offwake_recording::units::Tgid;

use super::{
    ProcessId, ThreadId,
    history::Futex,
    kernel_half::IsRecorded,
    machine::{After, Machine, Stand, Word},
    program::Op,
    records::WaitFor,
};

/// What a waiter of a lock expects to find in its word.
const CONTENDED: u64 = 2;

const LOCKS: u64 = 0x7000;
const SHARED_LOCKS: u64 = 0x8000;
const CONDITIONS: u64 = 0x9000;
const ENDS: u64 = 0xa000;

impl Machine<'_> {
    /// The step that a thread is at takes effect now.
    pub(super) fn perform_step(&mut self, thread: ThreadId) -> After {
        let state = &self.threads[thread.0];
        let resumed = state.resumed;
        let private = |base: u64, n: usize| futex(Some(state.process), base, n);
        let Some(&op) = state.program.get(state.step) else {
            self.end(thread);
            return After::Exits;
        };
        match op {
            Op::Compute(_) => After::Goes,
            Op::Await(..) if resumed => After::Goes,
            Op::Await(outside, _) => After::Sleeps(WaitFor::Outside(outside)),
            Op::Lock(n) => self.lock(thread, private(LOCKS, n)),
            Op::LockShared(n) => self.lock(thread, futex(None, SHARED_LOCKS, n)),
            Op::Unlock(n) => self.unlock(thread, private(LOCKS, n)),
            Op::UnlockShared(n) => self.unlock(thread, futex(None, SHARED_LOCKS, n)),
            Op::Send(n) => {
                let channel = self.channels.entry(n).or_default();
                channel.messages += 1;
                if let Some(receiver) = channel.receivers.pop_front() {
                    self.wake(receiver, thread);
                }
                After::Goes
            }
            Op::Receive(n) => {
                let channel = self.channels.entry(n).or_default();
                if channel.messages > 0 {
                    channel.messages -= 1;
                    return After::Goes;
                }
                channel.receivers.push_back(thread);
                After::Sleeps(WaitFor::Channel(n))
            }
            Op::AwaitBroadcast(_) if resumed => After::Goes,
            Op::AwaitBroadcast(n) => {
                let futex = private(CONDITIONS, n);
                let condition = self.conditions.entry(futex).or_default();
                condition.waiters.push_back(thread);
                After::Sleeps(WaitFor::Futex { futex, expected: condition.broadcasts })
            }
            Op::Broadcast(n) => {
                let condition = self.conditions.entry(private(CONDITIONS, n)).or_default();
                condition.broadcasts += 1;
                for waiter in std::mem::take(&mut condition.waiters) {
                    self.wake(waiter, thread);
                }
                After::Goes
            }
            Op::Create(program) => {
                self.create(thread, program);
                After::Goes
            }
            Op::Start => {
                self.start(thread);
                After::Goes
            }
            Op::Join => self.join(thread),
            Op::AwaitAnswer => self.await_answer(thread),
            Op::Serve => self.serve(thread),
            Op::TakeAsk(n) => self.take_ask(thread, n),
            Op::TakeJob => self.take_job(thread),
            Op::Ask(errand) => {
                self.ask(thread, errand);
                After::Goes
            }
            Op::Submit => {
                self.submit(thread);
                After::Goes
            }
            Op::Reply(n) => {
                self.reply(thread, n);
                After::Goes
            }
            Op::FinishJob => {
                self.finish_job(thread);
                After::Goes
            }
        }
    }

    /// As the mutexes of glibc and of Rust do it: only who found it taken says that it is contended, and
    /// whoever comes while it is free takes it, with others on their way or not.
    fn lock(&mut self, thread: ThreadId, futex: Futex) -> After {
        let resumed = self.threads[thread.0].resumed;
        let now = self.now;
        let lock = self.locks.entry(futex).or_default();
        if lock.touched == Some(now) {
            // Two CPUs can't change one word at once.
            return After::Again(1);
        }
        lock.touched = Some(now);
        if lock.word != Word::Free {
            lock.word = Word::Contended;
            lock.waiters.push_back(thread);
            return After::Sleeps(WaitFor::Futex { futex, expected: CONTENDED });
        }
        lock.word = if resumed { Word::Contended } else { Word::Taken };
        lock.held_since = Some((now, thread));
        After::Goes
    }

    fn unlock(&mut self, thread: ThreadId, futex: Futex) -> After {
        let now = self.now;
        let lock = self.locks.entry(futex).or_default();
        if lock.touched == Some(now) {
            return After::Again(1);
        }
        lock.touched = Some(now);
        if let Some((since, holder)) = lock.held_since.take() {
            self.history.held.entry(futex).or_default().push((since, now, holder));
        }
        if std::mem::take(&mut lock.word) == Word::Contended
            && let Some(waiter) = lock.waiters.pop_front()
            && self.wake(waiter, thread) == IsRecorded::Yes
        {
            self.history.releases.entry(futex).or_default().push((now, thread));
        }
        After::Goes
    }

    fn join(&mut self, thread: ThreadId) -> After {
        let Some(&child) = self.threads[thread.0].children.last() else { return After::Goes };
        let state = &mut self.threads[child.0];
        if matches!(state.stand, Stand::Exiting | Stand::Dead) {
            self.threads[thread.0].children.pop();
            return After::Goes;
        }
        state.waits_for_end.push_back(thread);
        let futex = futex(Some(state.process), ENDS, child.0);
        After::Sleeps(WaitFor::ThreadEnd { futex, expected: u64::from(child.tid().0) })
    }

    /// A thread ends, and says so to those who wait for that.
    fn end(&mut self, thread: ThreadId) {
        for waiter in std::mem::take(&mut self.threads[thread.0].waits_for_end) {
            self.wake(waiter, thread);
        }
    }
}

fn futex(process: Option<ProcessId>, base: u64, n: usize) -> Futex {
    let process: Option<Tgid> = process.map(ProcessId::tgid);
    Futex { process, address: base + 64 * n as u64 }
}
