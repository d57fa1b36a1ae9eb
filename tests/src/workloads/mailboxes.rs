//! A loop without `epoll`: it takes whatever comes next out of one mailbox. One client asks for what a
//! server behind the loop has, or for what the loop computes itself; the other asks for something
//! trivial all the time, and has nothing to do with the first.
//!
//! ```text
//! a        computes, asks |-- waits ---------------------------------------+--
//! loop     ...............+..waits..[b]..waits..[b]..waits..[b]..+ answers a ..
//! server                  + computes |-- sleeps ---------| puts +
//! b        sleeps, asks, sleeps, asks, sleeps …
//! ```

use std::{
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{Arc, atomic::AtomicU32, atomic::Ordering::SeqCst, mpsc},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    polls, raw, signals,
    stage::{Role, Stage},
};
use crate::{clock::compute, wait_until::wait_until};

/// What `a` computes before each request.
const PAUSE: Duration = Duration::from_millis(2);
/// How long the server behind the loop sleeps for each request.
const DELAY: Duration = Duration::from_millis(15);
/// What the server behind the loop computes for each request.
const SERVER_WORK: Duration = Duration::from_millis(3);
/// What the loop computes for `a` where it is the culprit.
const LOOP_WORK: Duration = Duration::from_millis(8);
/// What the loop computes for `b`.
const TRIVIAL: Duration = Duration::from_micros(50);
/// How long `b` sleeps between two requests.
const OTHERS_PAUSE: Duration = Duration::from_millis(2);

pub(super) type Message = [u8; 8];

const SLOW: Message = *b"slow....";
const FAST: Message = *b"fast....";
const RESULT: Message = *b"result.!";
const REPLY: Message = *b"reply..!";
const END: Message = *b"theend!!";

/// What a slow request is answered by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Culprit {
    Server,
    Loop,
}

/// Puts messages into a mailbox.
pub(super) type Put = Arc<dyn Fn(Message) + Send + Sync>;
/// Takes the next message out of a mailbox, and waits until there is one.
pub(super) type Take = Box<dyn FnMut() -> Message + Send>;

/// One mailbox for each role.
struct Mailboxes {
    in_loop: (Put, Take),
    server: (Put, Take),
    a: (Put, Take),
    b: (Put, Take),
}

impl Mailboxes {
    fn new(make: impl Fn() -> Result<(Put, Take)>) -> Result<Self> {
        Ok(Self { in_loop: make()?, server: make()?, a: make()?, b: make()? })
    }
}

/// A channel of Rust's, for threads.
fn channel() -> Result<(Put, Take)> {
    let (sender, receiver) = mpsc::channel();
    // Whoever is gone at the end needs no message any more.
    let put = move |message| {
        let _is_gone = sender.send(message);
    };
    Ok((Arc::new(put), Box::new(move || receiver.recv().unwrap_or(END))))
}

/// A pipe, for processes.
pub(super) fn pipe() -> Result<(Put, Take)> {
    let (out, into) = std::io::pipe().context("cannot make a pipe")?;
    let put = move |message: Message| {
        raw::write(into.as_raw_fd(), &message);
    };
    let take = move || {
        let mut message = END;
        waits_for_message(out.as_raw_fd(), &mut message);
        message
    };
    Ok((Arc::new(put), Box::new(take)))
}

#[inline(never)]
fn waits_for_message(pipe: RawFd, message: &mut Message) {
    raw::read(pipe, message);
}

/// What a loop waits in for what others send it, beside a mailbox of its own for each of the others.
#[derive(Clone, Copy)]
enum LoopWait {
    /// An epoll, for a pipe.
    Pipe,
    /// An epoll, for a signalfd.
    Signalfd,
    /// `sigwait`.
    Sigwait,
}

/// The messages, in an order: a signal brings a number along.
const MESSAGES: [Message; 4] = [SLOW, FAST, RESULT, END];

fn loops_mailbox(in_loop: &'static Role, wait: LoopWait) -> Result<(Put, Take)> {
    match wait {
        LoopWait::Pipe => {
            let (out, into) = std::io::pipe().context("cannot make a pipe")?;
            let other = polls::eventfd()?;
            let epoll = polls::epoll_on_all(&[out.as_raw_fd(), other.0.as_raw_fd()])?;
            let put = move |message: Message| {
                raw::write(into.as_raw_fd(), &message);
            };
            let take = move || {
                let _stays_open = &other;
                polls::waits_in_epoll(epoll.as_raw_fd());
                let mut message = END;
                waits_for_message(out.as_raw_fd(), &mut message);
                message
            };
            Ok((Arc::new(put), Box::new(take)))
        }
        LoopWait::Signalfd | LoopWait::Sigwait => {
            signals::block(signals::queued());
            let put = move |message: Message| {
                let number = MESSAGES.iter().position(|known| *known == message);
                signals::queue(in_loop.tid(), signals::queued(), number.unwrap_or(0));
            };
            let is_alone = matches!(wait, LoopWait::Sigwait);
            let mut epoll = None;
            let take = move || {
                if is_alone {
                    return MESSAGES[signals::wait_for_number(signals::queued())];
                }
                // An epoll waits for the signals of the process that tells it of the signalfd, which is
                // this one and not the one that forked it.
                if epoll.is_none() {
                    epoll = open_signal_epoll().ok();
                }
                // The loop ends, and with it the workload.
                let Some((epoll, signals)) = &epoll else { return END };
                polls::waits_in_epoll(epoll.as_raw_fd());
                MESSAGES[signals::read_number(signals.as_raw_fd())]
            };
            Ok((Arc::new(put), Box::new(take)))
        }
    }
}

/// Opens an epoll on a signalfd.
fn open_signal_epoll() -> Result<(OwnedFd, OwnedFd)> {
    let signals = signals::signalfd(signals::queued())?;
    Ok((polls::epoll_on(&signals)?, signals))
}

pub(super) fn server_behind_epoll(stage: &Stage) -> Result<()> {
    among_waiting_processes(stage, Culprit::Server, LoopWait::Pipe)
}

pub(super) fn server_behind_signals(stage: &Stage) -> Result<()> {
    among_waiting_processes(stage, Culprit::Server, LoopWait::Signalfd)
}

pub(super) fn loop_behind_signals(stage: &Stage) -> Result<()> {
    among_waiting_processes(stage, Culprit::Loop, LoopWait::Signalfd)
}

pub(super) fn server_behind_signals_alone(stage: &Stage) -> Result<()> {
    among_waiting_processes(stage, Culprit::Server, LoopWait::Sigwait)
}

pub(super) fn server_behind_channels(stage: &Stage) -> Result<()> {
    among_threads(stage, Culprit::Server)
}

pub(super) fn loop_behind_channels(stage: &Stage) -> Result<()> {
    among_threads(stage, Culprit::Loop)
}

pub(super) fn server_behind_pipes(stage: &Stage) -> Result<()> {
    among_processes(stage, Culprit::Server)
}

pub(super) fn loop_behind_pipes(stage: &Stage) -> Result<()> {
    among_processes(stage, Culprit::Loop)
}

fn among_threads(stage: &Stage, culprit: Culprit) -> Result<()> {
    let Mailboxes { in_loop, server, a, b } = Mailboxes::new(channel)?;
    let [role_of_a, role_of_b] = [stage.role("a")?, stage.role("b")?];
    let [role_of_loop, role_of_server] = [stage.role("loop")?, stage.role("server")?];
    let stopped = stage.stopped();
    let ends = (Arc::clone(&server.0), Arc::clone(&a.0), Arc::clone(&b.0));
    let to_loop = in_loop.0;
    let [from_server, from_a] = [Arc::clone(&to_loop), Arc::clone(&to_loop)];
    stage.thread(move || serve(role_of_loop, in_loop.1, ends, culprit))?;
    stage.thread(move || answer_slowly(role_of_server, server.1, &from_server))?;
    stage.thread(move || ask_slow(role_of_a, a.1, &from_a, stopped))?;
    stage.thread(move || ask_fast(role_of_b, b.1, &to_loop, stopped))?;
    stage.play(|| ())
}

fn among_processes(stage: &Stage, culprit: Culprit) -> Result<()> {
    play_among_processes(stage, culprit, stage.role("loop")?, pipe()?)
}

fn among_waiting_processes(stage: &Stage, culprit: Culprit, wait: LoopWait) -> Result<()> {
    let in_loop = stage.role("loop")?;
    play_among_processes(stage, culprit, in_loop, loops_mailbox(in_loop, wait)?)
}

fn play_among_processes(
    stage: &Stage,
    culprit: Culprit,
    role_of_loop: &'static Role,
    in_loop: (Put, Take),
) -> Result<()> {
    let (server, a, b) = (pipe()?, pipe()?, pipe()?);
    let [role_of_a, role_of_b] = [stage.role("a")?, stage.role("b")?];
    let role_of_server = stage.role("server")?;
    let stopped = stage.stopped();
    let to_loop = in_loop.0;
    let ends = (server.0, a.0, b.0);
    stage.process(|| serve(role_of_loop, in_loop.1, ends, culprit))?;
    wait_until("the loop to be there", || Ok((role_of_loop.tid() != 0).then_some(())))?;
    stage.process(|| answer_slowly(role_of_server, server.1, &to_loop))?;
    stage.process(|| ask_slow(role_of_a, a.1, &to_loop, stopped))?;
    stage.process(|| ask_fast(role_of_b, b.1, &to_loop, stopped))?;
    stage.play(|| ())
}

/// The loop, which answers until both clients are gone.
fn serve(role: &Role, mut take: Take, (server, a, b): (Put, Put, Put), culprit: Culprit) {
    role.claim("ow-loop");
    let mut clients = 2;
    while clients > 0 {
        match take() {
            SLOW if culprit == Culprit::Server => server(SLOW),
            SLOW => {
                compute(LOOP_WORK);
                a(REPLY);
            }
            RESULT => a(REPLY),
            FAST => {
                compute(TRIVIAL);
                b(REPLY);
            }
            _ => clients -= 1,
        }
    }
    server(END);
}

fn answer_slowly(role: &Role, mut take: Take, to_loop: &Put) {
    role.claim("ow-server");
    while take() != END {
        role.computes(SERVER_WORK);
        raw::nanosleep(DELAY);
        to_loop(RESULT);
    }
}

fn ask_slow(role: &Role, mut take: Take, to_loop: &Put, stopped: &AtomicU32) {
    role.claim("ow-a");
    while stopped.load(SeqCst) == 0 {
        role.computes(PAUSE);
        to_loop(SLOW);
        role.waits(&mut take);
    }
    to_loop(END);
}

fn ask_fast(role: &Role, mut take: Take, to_loop: &Put, stopped: &AtomicU32) {
    role.claim("ow-b");
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(OTHERS_PAUSE);
        to_loop(FAST);
        role.waits(&mut take);
    }
    to_loop(END);
}
