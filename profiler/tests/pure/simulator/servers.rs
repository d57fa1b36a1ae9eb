//! Servers that many wait for: an event loop of one thread or of several that share its epoll, with the
//! servers that it asks in turn and timers of its own, and workers behind one queue of jobs.
//!
//! ```text
//! clients  ──requests──▶ loop ──asks──▶ upstreams       clients ──jobs──▶ queue ──▶ workers
//!          ◀──answers───      ◀──replies──                      ◀──────answers───────
//! ```
//!
//! A connection leads to one thread of an upstream. Either there is one to each upstream, and requests share
//! it; or there are some, each has one request at a time, and further ones queue in the loop. A client's
//! requests are answered in the order in which it sent them, and the next is begun when the one before is
//! answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    ProcessId, ThreadId,
    history::{Futex, WakeSource},
    machine::{After, Event, Machine},
    program::{Errand, Outside, UPSTREAMS},
    records::{Through, WaitFor, Waking},
};

/// The words of a pool: that of its queue, and one for each of its clients.
const JOBS: u64 = 0xb000;
const RESULTS: u64 = 0xc000;

/// The CPU time that the loop takes at most for whatever comes.
const LONGEST_TURN: u64 = 6;

/// What comes to a loop.
#[derive(Clone, Copy, Debug)]
enum Coming {
    Request(ThreadId, Errand),
    Reply { client: ThreadId, connection: usize },
    Expired(ThreadId),
}

/// A client's request, and who has anything to do with it.
#[derive(Clone, Debug)]
pub struct Request {
    pub client: ThreadId,
    pub errand: Errand,
    pub asked: u64,
    /// When a worker took it out of the queue.
    pub taken: Option<u64>,
    pub answered: Option<u64>,
    pub served_by: BTreeSet<ThreadId>,
    /// The threads that the loop asked in the slice that this request began, for whomever: it can't be told.
    pub asked_in_its_slice: BTreeSet<ThreadId>,
}

#[derive(Default)]
pub(super) struct Servers {
    ready: VecDeque<Coming>,
    /// What the threads of the loop are at work for.
    turns: BTreeMap<ThreadId, Coming>,
    /// Those that wait, the first of which is woken next.
    polling: VecDeque<ThreadId>,
    /// The client whose request woke a thread of the loop last, and when.
    slices: BTreeMap<ThreadId, (ThreadId, u64)>,
    timers: BTreeSet<(u64, ThreadId)>,
    /// What was asked through each connection and is not begun, by the client that it is for.
    asked: BTreeMap<usize, VecDeque<ThreadId>>,
    /// What the thread behind each works for.
    taken: BTreeMap<usize, ThreadId>,
    idle_upstreams: BTreeMap<usize, ThreadId>,
    /// The connections with a request, if each has one at a time.
    busy: BTreeSet<usize>,
    /// The requests that wait for a connection to each upstream.
    queued: BTreeMap<usize, VecDeque<ThreadId>>,
    /// The clients of whose requests one is begun and not answered, and what they asked after it.
    begun: BTreeMap<ThreadId, VecDeque<Errand>>,
    jobs: VecDeque<ThreadId>,
    idle_workers: VecDeque<ThreadId>,
    /// The client that a worker works for.
    job_of: BTreeMap<ThreadId, ThreadId>,
    submitted: u64,
    /// How many answers each client has not read.
    answers: BTreeMap<ThreadId, usize>,
    awaiting: BTreeSet<ThreadId>,
    pub requests: Vec<Request>,
}

impl Servers {
    /// The oldest request of a client that is not answered.
    fn open_request(&mut self, client: ThreadId) -> Option<&mut Request> {
        let is_open =
            |request: &&mut Request| request.client == client && request.answered.is_none();
        self.requests.iter_mut().find(is_open)
    }
}

impl Machine<'_> {
    /// A client sends a request to the loop.
    pub(super) fn ask(&mut self, client: ThreadId, errand: Errand) {
        self.note_request(client, errand);
        self.come(client, Through::FromClient(client), Coming::Request(client, errand));
    }

    fn note_request(&mut self, client: ThreadId, errand: Errand) {
        self.servers.requests.push(Request {
            client,
            errand,
            asked: self.now,
            taken: None,
            answered: None,
            served_by: BTreeSet::new(),
            asked_in_its_slice: BTreeSet::new(),
        });
    }

    fn come(&mut self, sender: ThreadId, through: Through, coming: Coming) {
        self.servers.ready.push_back(coming);
        if let Some(polling) = self.servers.polling.pop_front() {
            self.servers.slices.remove(&polling);
            if let Coming::Request(client, _) = coming {
                self.servers.slices.insert(polling, (client, self.now));
            }
            self.wake_through(polling, sender, through);
        }
    }

    pub(super) fn await_answer(&mut self, client: ThreadId) -> After {
        if let Some(unread @ 1..) = self.servers.answers.get_mut(&client) {
            *unread -= 1;
            return After::Goes;
        }
        self.servers.awaiting.insert(client);
        let is_job = self.servers.open_request(client).is_some_and(|it| it.errand == Errand::Pool);
        let futex = self.word(client, RESULTS, client.0 as u64);
        After::Sleeps(match is_job {
            true => WaitFor::Futex { futex, expected: 0 },
            false => WaitFor::Answer(client),
        })
    }

    fn word(&self, thread: ThreadId, base: u64, n: u64) -> Futex {
        let process: ProcessId = self.threads[thread.0].process;
        Futex { process: Some(process.tgid()), address: base + 64 * n }
    }

    fn answer(&mut self, client: ThreadId, server: ThreadId) {
        let now = self.now;
        if let Some(request) = self.servers.open_request(client) {
            request.answered = Some(now);
            request.served_by.insert(server);
        }
        *self.servers.answers.entry(client).or_default() += 1;
        if self.servers.awaiting.remove(&client) {
            self.wake_through(client, server, Through::ToClient(client));
        }
    }

    /// The loop takes what came, works for it, and does what is to be done; or polls.
    pub(super) fn serve(&mut self, looping: ThreadId) -> After {
        if let Some(coming) = self.servers.turns.remove(&looping) {
            self.end_turn(looping, coming);
            return After::Goes;
        }
        while let Some(&(due, client)) = self.servers.timers.first() {
            if due > self.now {
                break;
            }
            self.servers.timers.pop_first();
            self.servers.ready.push_back(Coming::Expired(client));
        }
        if let Some(coming) = self.servers.ready.pop_front() {
            self.servers.turns.insert(looping, coming);
            return After::Again(1 + self.chance(LONGEST_TURN));
        }
        self.servers.polling.push_back(looping);
        let timeout = self.servers.timers.first().map(|&(due, _)| due - self.now);
        After::Sleeps(WaitFor::Poll { timeout })
    }

    fn end_turn(&mut self, looping: ThreadId, coming: Coming) {
        match coming {
            Coming::Request(client, errand) => {
                if let Some(later) = self.servers.begun.get_mut(&client) {
                    later.push_back(errand);
                    return;
                }
                self.servers.begun.insert(client, VecDeque::new());
                self.begin(looping, client, errand);
            }
            Coming::Reply { client, connection } => {
                self.give_back(looping, connection);
                self.finish(looping, client);
            }
            Coming::Expired(client) => self.finish(looping, client),
        }
    }

    fn begin(&mut self, looping: ThreadId, client: ThreadId, errand: Errand) {
        match errand {
            Errand::Upstream(n) if self.scenario.has_pool => {
                let idle = self.scenario.connections(n).find(|it| !self.servers.busy.contains(it));
                match idle {
                    Some(connection) => self.send(looping, connection, client),
                    None => self.servers.queued.entry(n).or_default().push_back(client),
                }
            }
            Errand::Upstream(n) => self.send(looping, n, client),
            Errand::Timer(time) => {
                let due = self.now + time.max(1);
                self.servers.timers.insert((due, client));
                self.plan(due, Event::Expired);
            }
            Errand::Alone | Errand::Pool => self.finish(looping, client),
        }
    }

    /// The loop answers a client, and begins what that one asked next.
    fn finish(&mut self, looping: ThreadId, client: ThreadId) {
        self.answer(client, looping);
        if let Some(mut later) = self.servers.begun.remove(&client)
            && let Some(errand) = later.pop_front()
        {
            self.servers.begun.insert(client, later);
            self.begin(looping, client, errand);
        }
    }

    /// Asks through a connection.
    fn send(&mut self, looping: ThreadId, connection: usize, client: ThreadId) {
        self.servers.busy.insert(connection);
        self.servers.asked.entry(connection).or_default().push_back(client);
        let asked = self.scenario.thread_behind(connection);
        if let Some(&(begun_by, at)) = self.servers.slices.get(&looping)
            && let Some(request) = (self.servers.requests.iter_mut().rev())
                .find(|request| request.client == begun_by && request.asked == at)
        {
            request.asked_in_its_slice.extend(asked);
        }
        if let Some(upstream) = self.servers.idle_upstreams.remove(&connection) {
            self.wake_through(upstream, looping, Through::ToUpstream(connection));
        }
    }

    /// A timer of the loop's is due.
    pub(super) fn expire(&mut self) {
        let is_due = self.servers.timers.first().is_some_and(|&(due, _)| due <= self.now);
        if !is_due {
            return;
        }
        let Some(polling) = self.servers.polling.pop_front() else { return };
        self.servers.slices.remove(&polling);
        let cpu = self.chance(self.scenario.cpus as u64) as usize;
        let current = self.cpus[cpu].current.map(|current| self.name(current));
        let by = WakeSource::Outside(Outside::Timer);
        self.end_wait(polling, Waking { at: self.now, cpu, by, current, through: None });
    }

    pub(super) fn take_ask(&mut self, upstream: ThreadId, n: usize) -> After {
        match self.servers.asked.entry(n).or_default().pop_front() {
            Some(client) => {
                self.servers.taken.insert(n, client);
                After::Goes
            }
            None => {
                self.servers.idle_upstreams.insert(n, upstream);
                After::Sleeps(WaitFor::Asked(n))
            }
        }
    }

    pub(super) fn reply(&mut self, upstream: ThreadId, n: usize) {
        let Some(client) = self.servers.taken.remove(&n) else { return };
        if let Some(request) = self.servers.open_request(client) {
            request.served_by.insert(upstream);
        }
        self.come(upstream, Through::FromUpstream(n), Coming::Reply { client, connection: n });
    }

    /// A connection is free again, and whoever waits for one gets it.
    fn give_back(&mut self, looping: ThreadId, connection: usize) {
        self.servers.busy.remove(&connection);
        let queue = self.servers.queued.entry(connection % UPSTREAMS).or_default();
        if let Some(next) = queue.pop_front() {
            self.send(looping, connection, next);
        }
    }

    /// A client puts a job into the pool's queue.
    pub(super) fn submit(&mut self, client: ThreadId) {
        self.note_request(client, Errand::Pool);
        self.servers.jobs.push_back(client);
        self.servers.submitted += 1;
        if let Some(worker) = self.servers.idle_workers.pop_front() {
            self.wake(worker, client);
        }
    }

    pub(super) fn take_job(&mut self, worker: ThreadId) -> After {
        if let Some(client) = self.servers.jobs.pop_front() {
            self.servers.job_of.insert(worker, client);
            let now = self.now;
            if let Some(request) = self.servers.open_request(client) {
                request.taken = Some(now);
            }
            return After::Goes;
        }
        self.servers.idle_workers.push_back(worker);
        let futex = self.word(worker, JOBS, 0);
        // A counter, which is never that of a contended lock.
        let expected = 2 * self.servers.submitted + 1;
        After::Sleeps(WaitFor::Job { futex, expected })
    }

    pub(super) fn finish_job(&mut self, worker: ThreadId) {
        let Some(client) = self.servers.job_of.remove(&worker) else { return };
        self.answer(client, worker);
    }

    fn wake_through(&mut self, thread: ThreadId, waker: ThreadId, through: Through) {
        let waking = Waking { through: Some(through), ..self.waking_by(waker) };
        self.end_wait(thread, waking);
    }
}
