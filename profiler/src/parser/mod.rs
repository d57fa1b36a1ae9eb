//! A process of its own for what others made: it is given open files, and answers what is in them.
//!
//! ```text
//! offwake, with rights                       the other, without any
//!   opens, copies    ── a question, files ──▶   reads
//!   checks           ◀──────── its answer ──
//! ```
//!
//! There are two: `offwake-parser` for names, `offwake-unwind` for stacks, as who wants the one does not wait for the
//! other. Each is this program, started again, and locked in (`sandbox.rs`) before it is asked anything. What it says is
//! believed no more than what is in the files. If it dies, is silent for too long or says what can't be, then what
//! it was asked for is missing, and is counted as such; it is started anew for what is asked next, a few times.

mod channel;
mod copy;
mod cpu;
mod sandbox;
mod watch;

use std::{
    env,
    io::{self, Stdin},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

pub use channel::{Channel, MAX_FILES, MAX_MESSAGE, decode};
pub(crate) use copy::sealed_copy;
use cpu::Account;
pub use cpu::cpu_used;
pub(crate) use sandbox::READABLE;
use watch::Watch;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::recording::loss::{Shortfalls, count};

/// What it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Functions of addresses.
    Names,
    /// Frames of stacks.
    Stacks,
}

impl Role {
    /// What it is called, and told apart by from other starts of the program.
    fn name(self) -> &'static str {
        match self {
            Self::Names => "offwake-parser",
            Self::Stacks => "offwake-unwind",
        }
    }
}

/// This program, even if its file was replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";
/// How often it is started for one who asks.
const MAX_STARTS: u32 = 5;
/// How long a process that was killed is waited for: one that waits for a disk ends when that answers.
const AT_END: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It could not be started, or was too often.
    NotStarted,
    /// It is gone.
    Died,
    /// It has said nothing for too long.
    Silent,
    /// It said what can't be.
    Nonsense,
}

impl Broken {
    /// Its name among what could not be done.
    #[must_use]
    pub fn shortfall(self) -> &'static str {
        match self {
            Self::NotStarted => "parser_not_started",
            Self::Died => "parser_died",
            Self::Silent => "parser_silent",
            Self::Nonsense => "parser_nonsense",
        }
    }
}

/// What answers in a thread of this process, where a test or a benchmark has no program to start.
pub type Body = fn(&mut Channel<UnixStream>);

#[derive(Clone, Copy)]
enum Start {
    Program(Role),
    Thread(Body),
}

/// The process that parses, as who asks it has it: started when it is asked first.
pub struct Parser {
    start: Start,
    running: Option<Running>,
    starts: u32,
}

struct Running {
    channel: Channel<OwnedFd>,
    /// None if it is a thread.
    child: Option<Child>,
}

impl Running {
    /// Not waited for yet: its number is its own until it is accounted for.
    fn is_alive(&self) -> bool {
        let Some(child) = &self.child else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        id.is_some_and(|id| matches!(waitid(WaitId::Pid(id), options), Ok(None)))
    }
}

impl Parser {
    /// This program, which begins with [`run_if_asked`].
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self { start: Start::Program(role), running: None, starts: 0 }
    }

    /// A thread that has all the rights of this one.
    #[must_use]
    pub fn in_thread(body: Body) -> Self {
        Self { start: Start::Thread(body), running: None, starts: 0 }
    }

    /// Starts it before anybody asks. If that fails, the first who asks is told.
    #[must_use]
    pub fn started(mut self) -> Self {
        self.running = self.start().ok();
        self
    }

    /// Its number, if it is a process that runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.running.as_ref()?.child.as_ref().map(Child::id)
    }

    /// Talks with it. What breaks off is counted, and ends it.
    ///
    /// # Errors
    ///
    /// If there is no answer, or none that can be.
    pub fn talk<T>(
        &mut self,
        shortfalls: &mut Shortfalls,
        body: impl FnOnce(&mut Channel<OwnedFd>) -> Result<T, Broken>,
    ) -> Result<T, Broken> {
        let mut counted = |broken: Broken| {
            count(shortfalls, broken.shortfall());
            broken
        };
        // One that died while nobody asked it anything has cost nothing but a start.
        if self.running.as_ref().is_some_and(|running| !running.is_alive()) {
            self.end();
            counted(Broken::Died);
        }
        let running = match &mut self.running {
            Some(running) => running,
            None => {
                let started = self.start().map_err(&mut counted)?;
                self.running.insert(started)
            }
        };
        let said = body(&mut running.channel).map_err(counted);
        if said.is_err() {
            self.end();
        }
        said
    }

    fn start(&mut self) -> Result<Running, Broken> {
        if self.starts == MAX_STARTS {
            return Err(Broken::NotStarted);
        }
        self.starts += 1;
        let started = match self.start {
            Start::Program(role) => start_program(role),
            Start::Thread(body) => start_thread(body),
        };
        started.map_err(|error| {
            log::warn!("cannot start what reads programs: {error}");
            Broken::NotStarted
        })
    }

    fn end(&mut self) {
        let Some(Running { channel, child }) = self.running.take() else { return };
        // It ends when there is nobody at the other end, unless it can't. What it has cost is read by then.
        drop(channel);
        let Some(mut child) = child else { return };
        let _ended_already = child.kill();
        let until = Instant::now() + AT_END;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        self.end();
    }
}

fn start_program(role: Role) -> io::Result<Running> {
    let (ours, its) = UnixStream::pair()?;
    let child = Command::new(PROGRAM)
        .arg0(role.name())
        .env_clear()
        .current_dir("/")
        // Ctrl-C at the terminal is for offwake alone.
        .process_group(0)
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let channel =
        Channel::watched(OwnedFd::from(ours), Watch::of_child(Account::of_child(child.id())));
    Ok(Running { channel, child: Some(child) })
}

fn start_thread(body: Body) -> io::Result<Running> {
    let (ours, its) = UnixStream::pair()?;
    thread::Builder::new()
        .name("offwake-apart".to_owned())
        .spawn(move || body(&mut Channel::to_trusted(its)))?;
    let channel = Channel::watched(OwnedFd::from(ours), Watch::of_thread());
    Ok(Running { channel, child: None })
}

/// Parses, if that is what this process was started for: to be called first of all. None if it was not.
///
/// The bodies answer until nobody asks any more.
pub fn run_if_asked(
    names: fn(&mut Channel<Stdin>),
    stacks: fn(&mut Channel<Stdin>),
) -> Option<ExitCode> {
    let called = env::args_os().next()?;
    let role = [Role::Names, Role::Stacks].into_iter().find(|role| called == role.name())?;
    let body = match role {
        Role::Names => names,
        Role::Stacks => stacks,
    };
    // There is nobody to tell why: who has started it sees that it is gone.
    if let Err(_refused) = sandbox::lock_in(role.name()) {
        return Some(ExitCode::FAILURE);
    }
    body(&mut Channel::to_trusted(io::stdin()));
    Some(ExitCode::SUCCESS)
}
