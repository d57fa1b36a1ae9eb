//! An event loop that serves several clients: one asks for what a server behind the loop has, or
//! for what the loop answers when a timer is over; the others ask for something trivial all the
//! time, and have nothing to do with the first.
//!
//! ```text
//! a        computes |-- reads ------------------------------------------+--
//! loop     .........+..poll..[b]..poll..[b]..poll..[b]..poll..+ answers a ..
//! server            + computes |-- sleeps -------| computes --+
//! b        sleeps, asks, sleeps, asks, sleeps …
//! ```

use std::{
    collections::VecDeque,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, opcode, types};

use super::{
    connection::Connection,
    polls, raw,
    stage::{Role, Stage},
};
use crate::clock::compute;

/// What `a` computes before each request.
const PAUSE: Duration = Duration::from_millis(2);
/// How long the server behind the loop, or the loop's timer, lets a request wait.
const DELAY: Duration = Duration::from_millis(15);
/// How long the server that the loop asks for the other clients lets each request wait.
const DELAY_OF_OTHERS: Duration = Duration::from_millis(5);
/// What the server behind the loop computes for each request.
const SERVER_WORK: Duration = Duration::from_millis(3);
/// What the loop computes for a request that it answers itself.
const TRIVIAL: Duration = Duration::from_micros(50);
/// How long the other clients sleep between two requests, for each of them: the loop has the same
/// number of requests, however many clients they come from, and time to sleep between two.
const OTHERS_PAUSE: Duration = Duration::from_millis(1);
/// How long nothing may come before the loop ends.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// What the loop computes for each of the others where it is the culprit.
const HEAVY: Duration = Duration::from_millis(8);

const SLOW: &[u8; 8] = b"slow....";
const FAST: &[u8; 8] = b"fast....";
const END: &[u8; 8] = b"theend!!";
const RESULT: &[u8; 8] = b"result.!";
const RESULT_FOR_OTHER: &[u8; 8] = b"other.!!";

/// The other clients' roles.
const OTHERS: [&str; 20] = [
    "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "b10", "b11", "b12", "b13", "b14",
    "b15", "b16", "b17", "b18", "b19",
];

/// How the loop waits for all of its descriptors.
#[derive(Clone, Copy)]
enum Api {
    Epoll,
    /// One epoll that several threads wait with: each event goes to one of them (`EPOLLONESHOT`).
    SharedEpoll,
    Poll,
    IoUring,
}

/// What a slow request is answered by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delay {
    /// A server behind the loop, which the loop asks.
    Server,
    /// A timer of the loop's own.
    Timer,
    /// Nothing: the loop answers at once, but computes for the other clients.
    Others,
}

/// How the play goes.
#[derive(Clone, Copy)]
struct Plan {
    api: Api,
    delay: Delay,
    /// How many other clients there are.
    others: usize,
    /// How many threads share the loop's epoll.
    workers: usize,
    /// How many requests `a` makes at once, through one connection.
    pipelined: usize,
    /// Who answers the other clients.
    others_are_served_by: OthersAreServedBy,
}

/// Who answers the other clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OthersAreServedBy {
    Loop,
    /// A server of their own behind the loop.
    Server,
}

/// The loop's ends of connections.
#[derive(Clone, Copy)]
struct Ends {
    /// To `a`.
    client: RawFd,
    /// To the server that is asked for `a`.
    server: RawFd,
    /// To the server that is asked for the others.
    others_server: Option<RawFd>,
}

/// One thread serves `a` and one other client.
const PLAIN: Plan = Plan {
    api: Api::Epoll,
    delay: Delay::Server,
    others: 1,
    workers: 1,
    pipelined: 1,
    others_are_served_by: OthersAreServedBy::Loop,
};

pub(super) fn over_epoll(stage: &Stage) -> Result<()> {
    run(stage, PLAIN)
}

pub(super) fn over_poll(stage: &Stage) -> Result<()> {
    run(stage, Plan { api: Api::Poll, ..PLAIN })
}

pub(super) fn over_io_uring(stage: &Stage) -> Result<()> {
    run(stage, Plan { api: Api::IoUring, ..PLAIN })
}

pub(super) fn in_a_crowd(stage: &Stage) -> Result<()> {
    run(stage, Plan { others: OTHERS.len(), ..PLAIN })
}

pub(super) fn in_a_crowd_over_io_uring(stage: &Stage) -> Result<()> {
    run(stage, Plan { api: Api::IoUring, others: OTHERS.len(), ..PLAIN })
}

pub(super) fn in_a_big_crowd(stage: &Stage) -> Result<()> {
    run(stage, Plan { others: 100, ..PLAIN })
}

pub(super) fn with_workers(stage: &Stage) -> Result<()> {
    run(stage, Plan { api: Api::SharedEpoll, workers: 3, others: OTHERS.len(), ..PLAIN })
}

pub(super) fn pipelined(stage: &Stage) -> Result<()> {
    run(stage, Plan { pipelined: 3, ..PLAIN })
}

pub(super) fn with_two_servers(stage: &Stage) -> Result<()> {
    run(stage, Plan { others: 4, others_are_served_by: OthersAreServedBy::Server, ..PLAIN })
}

pub(super) fn with_a_timer(stage: &Stage) -> Result<()> {
    run(stage, Plan { delay: Delay::Timer, ..PLAIN })
}

pub(super) fn busy_with_others(stage: &Stage) -> Result<()> {
    run(stage, Plan { delay: Delay::Others, others: 2, ..PLAIN })
}

fn run(stage: &Stage, plan: Plan) -> Result<()> {
    let Plan { api, delay, workers, pipelined, .. } = plan;
    let (a, in_loop) = (stage.role("a")?, stage.role("loop")?);
    let server = (delay == Delay::Server).then(|| stage.role("server")).transpose()?;
    // So many others that nobody asks for each of them have no roles.
    let others: Vec<Option<&Role>> = (0..plan.others)
        .map(|n| OTHERS.get(n).map(|name| stage.role(name)).transpose())
        .collect::<Result<_>>()?;
    let to_loop = Connection::tcp()?;
    let from_others: Vec<Connection> =
        others.iter().map(|_| Connection::tcp()).collect::<Result<_>>()?;
    let to_server = Connection::tcp()?;
    let others_server = match plan.others_are_served_by {
        OthersAreServedBy::Loop => None,
        OthersAreServedBy::Server => Some((stage.role("others-server")?, Connection::tcp()?)),
    };
    let ends = Ends {
        client: to_loop.serving.as_raw_fd(),
        server: to_server.asking.as_raw_fd(),
        others_server: others_server.as_ref().map(|(_, to_it)| to_it.asking.as_raw_fd()),
    };
    let mut all = vec![ends.client, ends.server];
    all.extend(ends.others_server);
    all.extend(from_others.iter().map(|connection| connection.serving.as_raw_fd()));
    let pollers: Vec<Poller> = match Poller::new(api, &all)? {
        Poller::SharedEpoll(epoll) => (0..workers)
            .map(|_| Ok(Poller::SharedEpoll(epoll.try_clone()?)))
            .collect::<Result<_>>()?,
        poller => vec![poller],
    };
    stage.process(|| {
        in_loop.claim("ow-loop");
        let is_ending = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut pollers = pollers.into_iter();
            let own = pollers.next();
            for poller in pollers {
                scope.spawn(|| serve(poller, ends, delay, &is_ending));
            }
            own.into_iter().for_each(|poller| serve(poller, ends, delay, &is_ending));
        });
    })?;
    if let Some(server) = server {
        stage.process(|| {
            server.claim("ow-server");
            answer_slowly(server, to_server.serving.as_raw_fd());
        })?;
    }
    if let Some((server, to_server)) = &others_server {
        stage.process(|| {
            server.claim("ow-others-srv");
            answer_others(to_server.serving.as_raw_fd());
        })?;
    }
    let stopped = stage.stopped();
    let pause = OTHERS_PAUSE * u32::try_from(others.len())?;
    for (other, connection) in others.iter().zip(&from_others) {
        stage.process(|| {
            if let Some(other) = other {
                other.claim("ow-other");
            }
            let socket = connection.asking.as_raw_fd();
            while stopped.load(SeqCst) == 0 {
                raw::nanosleep(pause);
                raw::write(socket, FAST);
                match other {
                    Some(other) => other.waits(|| waits_for_reply(socket)),
                    None => waits_for_reply(socket),
                }
            }
        })?;
    }
    stage.process(|| {
        a.claim("ow-a");
        let socket = to_loop.asking.as_raw_fd();
        while stopped.load(SeqCst) == 0 {
            a.computes(PAUSE);
            for _ in 0..pipelined {
                raw::write(socket, SLOW);
            }
            for _ in 0..pipelined {
                a.waits(|| waits_for_reply(socket));
            }
        }
        // The others may still ask: whoever is asked answers until everybody is gone.
        raw::write(socket, END);
    })?;
    stage.play(|| ())
}

/// The loop: it never waits but for whatever comes next. It keeps no log: with twenty clients that
/// would be too small.
fn serve(mut poller: Poller, ends: Ends, delay: Delay, is_ending: &AtomicBool) {
    let Ends { client, server, others_server } = ends;
    let mut due: Option<Instant> = None;
    // Their server answers in the order in which it is asked.
    let mut waiting_others = VecDeque::new();
    loop {
        let ending = is_ending.load(SeqCst);
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        // The others have a last answer coming. A thread of several has to be told of the end.
        let is_shared = matches!(poller, Poller::SharedEpoll(_));
        let timeout = if ending || is_shared { Some(LAST_LOOK) } else { left };
        let ready = poller.wait(timeout);
        if due.is_some_and(|due| due <= Instant::now()) {
            due = None;
            raw::write(client, b"reply..!");
        }
        let Some(ready) = ready else {
            if ending {
                break;
            }
            continue;
        };
        let mut message = [0; 8];
        if raw::read(ready, &mut message) != 8 {
            // Somebody is gone.
            poller.forget(ready);
            continue;
        }
        match &message {
            END => {
                raw::write(server, END);
                others_server.map(|server| raw::write(server, END));
                is_ending.store(true, SeqCst);
            }
            SLOW => match delay {
                Delay::Server => drop(raw::write(server, b"request!")),
                Delay::Timer => due = Some(Instant::now() + DELAY),
                Delay::Others => drop(raw::write(client, b"reply..!")),
            },
            // Their server has ended, or is about to: the loop answers by itself.
            FAST if others_server.is_some() && !ending => {
                others_server.map(|server| raw::write(server, b"request!"));
                waiting_others.push_back(ready);
            }
            RESULT_FOR_OTHER => {
                waiting_others.pop_front().map(|other| raw::write(other, b"reply..!"));
            }
            FAST => {
                compute(if delay == Delay::Others { HEAVY } else { TRIVIAL });
                raw::write(ready, b"reply..!");
            }
            _ => drop(raw::write(client, b"reply..!")),
        }
        poller.resume(ready);
    }
}

/// The server behind the loop.
fn answer_slowly(server: &Role, socket: RawFd) {
    let mut request = [0; 8];
    loop {
        server.waits(|| waits_for_request(socket, &mut request));
        if &request == END {
            break;
        }
        server.computes(SERVER_WORK);
        raw::nanosleep(DELAY);
        raw::write(socket, RESULT);
    }
}

/// The server behind the loop that the other clients wait for.
fn answer_others(socket: RawFd) {
    let mut request = [0; 8];
    loop {
        waits_for_request(socket, &mut request);
        if &request == END {
            break;
        }
        raw::nanosleep(DELAY_OF_OTHERS);
        raw::write(socket, RESULT_FOR_OTHER);
    }
}

/// What the loop waits with.
enum Poller {
    Epoll(OwnedFd),
    SharedEpoll(OwnedFd),
    Poll(Vec<libc::pollfd>),
    /// With the descriptors, and whether the ring still has to be told to poll each.
    IoUring(Box<IoUring>, Vec<(RawFd, bool)>),
}

impl Poller {
    fn new(api: Api, all: &[RawFd]) -> Result<Self> {
        Ok(match api {
            Api::Epoll => Self::Epoll(polls::epoll_on_all(all)?),
            Api::SharedEpoll => {
                let poller = Self::SharedEpoll(polls::epoll_on_all(all)?);
                all.iter().for_each(|&reads| poller.resume(reads));
                poller
            }
            Api::Poll => Self::Poll(
                all.iter()
                    .map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
                    .collect(),
            ),
            Api::IoUring => Self::IoUring(
                Box::new(IoUring::new(64).context("this kernel gives no io_uring")?),
                all.iter().map(|&fd| (fd, true)).collect(),
            ),
        })
    }

    /// Returns the descriptor that there is something to read from; none if the time is over.
    #[inline(never)]
    fn wait(&mut self, timeout: Option<Duration>) -> Option<RawFd> {
        let milliseconds = timeout
            .map_or(-1, |timeout| i32::try_from(timeout.as_millis() + 1).unwrap_or(i32::MAX));
        match self {
            Self::Epoll(epoll) | Self::SharedEpoll(epoll) => {
                let mut event = libc::epoll_event { events: 0, u64: 0 };
                // SAFETY: one event fits into the place given.
                let ready =
                    unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, milliseconds) };
                (ready == 1).then(|| RawFd::try_from(event.u64).ok()).flatten()
            }
            Self::Poll(all) => {
                // SAFETY: the list is as long as it says.
                unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, milliseconds) };
                all.iter().find(|polled| polled.revents != 0).map(|polled| polled.fd)
            }
            Self::IoUring(ring, all) => wait_in_ring(ring, all, timeout).unwrap_or(None),
        }
    }

    /// Has a descriptor's next event come to any of the threads, after this one is handled.
    fn resume(&self, descriptor: RawFd) {
        let Self::SharedEpoll(epoll) = self else { return };
        let events = (libc::EPOLLIN | libc::EPOLLONESHOT).cast_unsigned();
        let mut event = libc::epoll_event { events, u64: descriptor.unsigned_abs().into() };
        // SAFETY: both are open, the event is a valid place.
        unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_MOD, descriptor, &raw mut event)
        };
    }

    /// Waits for a descriptor no longer.
    fn forget(&mut self, gone: RawFd) {
        match self {
            Self::Epoll(epoll) | Self::SharedEpoll(epoll) => {
                // SAFETY: both are open, and a deletion takes no event.
                unsafe {
                    libc::epoll_ctl(
                        epoll.as_raw_fd(),
                        libc::EPOLL_CTL_DEL,
                        gone,
                        std::ptr::null_mut(),
                    )
                };
            }
            Self::Poll(all) => all.retain(|polled| polled.fd != gone),
            Self::IoUring(_, all) => all.retain(|(fd, _)| *fd != gone),
        }
    }
}

fn wait_in_ring(
    ring: &mut IoUring,
    all: &mut [(RawFd, bool)],
    timeout: Option<Duration>,
) -> Result<Option<RawFd>> {
    for (fd, is_new) in all.iter_mut().filter(|(_, is_new)| *is_new) {
        let poll = opcode::PollAdd::new(types::Fd(*fd), libc::POLLIN as u32).build();
        let poll = poll.user_data(fd.unsigned_abs().into());
        // SAFETY: a poll points to nothing.
        unsafe { ring.submission().push(&poll) }.context("no room in the ring")?;
        *is_new = false;
    }
    let until = types::Timespec::from(timeout.unwrap_or(Duration::from_secs(3_600)));
    let arguments = types::SubmitArgs::new().timespec(&until);
    let submitted = ring.submitter().submit_with_args(1, &arguments);
    let Some(done) = ring.completion().next() else {
        ensure!(
            submitted.is_err_and(|error| error.raw_os_error() == Some(libc::ETIME)),
            "nothing was completed"
        );
        return Ok(None);
    };
    let ready = RawFd::try_from(done.user_data())?;
    if let Some((_, is_new)) = all.iter_mut().find(|(fd, _)| *fd == ready) {
        *is_new = true;
    }
    Ok(Some(ready))
}

#[inline(never)]
fn waits_for_reply(socket: RawFd) {
    raw::read(socket, &mut [0; 8]);
}

#[inline(never)]
fn waits_for_request(socket: RawFd, request: &mut [u8; 8]) {
    raw::read(socket, request);
}
