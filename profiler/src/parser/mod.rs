//! Processes that parse what other programs made: they are handed open files, and answer what is in
//! them.
//!
//! ```text
//! offwake, with rights                       the other, without any
//!   opens, copies    ── a question, files ──▶   reads
//!   checks           ◀──────── its answer ──
//! ```
//!
//! Two of them parse: `offwake-parser` for names, and `offwake-unwind` for stacks, so that neither
//! waits for the other. A third one, `offwake-reader`, reads what may never answer
//! ([`crate::reader_process`]), and `offwake-writer` writes to what may never answer ([`crate::writer_process`]). Each is this program, started again, and locked in (`sandbox.rs`) before it
//! is asked anything. Its answers are believed no more than the files themselves. If it dies, does
//! not answer in time or sends an invalid answer, then what it was asked for is missing, and is
//! counted as such; it is started anew for the next question, a few times.

pub(crate) mod bytes;
mod channel;
mod cpu_time;
pub(crate) mod end_deadline;
mod error;
mod sandbox;
mod time_budget;
mod watchdog;

use std::{
    env,
    io::{self, Stdin},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

#[cfg(test)]
pub(crate) use channel::unbox_file;
pub use channel::{Channel, MAX_FILES, MAX_MESSAGE, decode};
pub(crate) use channel::{box_file, sealed_copy};
use cpu_time::CpuAccount;
pub use cpu_time::cpu_used;
pub use end_deadline::describe_given_up;
pub use error::ChannelError;
use offwake_recording::{
    loss::{Diagnostics, count},
    units::Tgid,
};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
pub(crate) use sandbox::{READABLE, lacking_parts as lacking_sandbox_parts};

use crate::{
    own_threads,
    privileges::{self, Task},
    scheduling,
};
pub(crate) use time_budget::{LEAST, TimeBudget, WaitMeter};
use watchdog::Watchdog;

/// What a process that parses is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParserRole {
    /// Finds the functions of addresses.
    Names,
    /// Finds the frames of stacks.
    Stacks,
    /// Reads the memory and the files of other processes. It has the right to, parses next to
    /// nothing, and may wait for ever for what it reads.
    Reader,
    /// Writes recordings, and what is made of them. It may wait for ever for the file system, and has no right but to write.
    Writer,
}

/// What a process may do before it is given up.
struct Patience {
    /// How long the process may use no CPU at all, unless it waits for one.
    idle: Duration,
    /// How long the process may work on one question, however many messages its answer has.
    busy: Duration,
    /// How long the answers to all questions may be waited for while the process does nothing. A
    /// twentieth of the time that goes by comes back.
    waiting: Duration,
    /// How often the process is started for one client.
    starts: u32,
    /// How long a process that was killed is waited for: one that waits for a disk ends when that
    /// answers.
    kill: Duration,
    /// What becomes of questions when the time for the end of a run is over.
    at_end: AtEnd,
}

/// What becomes of questions when the time for the end of a run is over ([`end_deadline`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtEnd {
    /// The answer would make a recording better, which must end now.
    GivenUp,
    /// Without the answer there is no end.
    WaitedFor,
}

impl ParserRole {
    const ALL: [Self; 4] = [Self::Names, Self::Stacks, Self::Reader, Self::Writer];

    /// The name of the process, by which the program knows that it was started to parse.
    fn name(self) -> &'static str {
        match self {
            Self::Names => "offwake-parser",
            Self::Stacks => "offwake-unwind",
            Self::Reader => "offwake-reader",
            Self::Writer => "offwake-writer",
        }
    }

    /// Whether those who ask can lose something while they wait for the answer.
    fn answers_while_recording(self) -> bool {
        match self {
            Self::Names => false,
            Self::Stacks | Self::Reader | Self::Writer => true,
        }
    }

    /// How long the process may do nothing before it is given up.
    pub(crate) fn idle_patience(self) -> Duration {
        self.patience().idle
    }

    fn patience(self) -> Patience {
        match self {
            // A GiB of debug information takes some 10 s.
            Self::Names => Patience {
                idle: Duration::from_secs(10),
                busy: Duration::from_secs(300),
                waiting: Duration::from_secs(60),
                starts: 5,
                kill: Duration::from_secs(1),
                at_end: AtEnd::GivenUp,
            },
            // A stack that it dies of takes two: one with others, and one alone.
            Self::Stacks => Patience { starts: 9, ..Self::Names.patience() },
            // A page comes from a disk in milliseconds, and nothing else is looked up meanwhile. One
            // that can't be killed stays for as long as what it waits for.
            Self::Reader => Patience {
                idle: Duration::from_millis(1500),
                busy: Duration::from_secs(60),
                waiting: Duration::from_secs(30),
                starts: 17,
                kill: Duration::from_millis(20),
                at_end: AtEnd::GivenUp,
            },
            // A disk that is busy takes seconds, and all that a run writes may be waited for. Where one has
            // died, another one goes on.
            Self::Writer => Patience {
                idle: Duration::from_secs(30),
                busy: Duration::from_secs(300),
                waiting: Duration::MAX,
                starts: 5,
                kill: Duration::from_millis(20),
                at_end: AtEnd::WaitedFor,
            },
        }
    }
}

/// How many questions the threads of this process have asked others, and how many of these were
/// answered or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Questions {
    asked: u64,
    done: u64,
}

impl Questions {
    /// Whether somebody waits for an answer. There is a deadline for each.
    pub(crate) fn are_open(self) -> bool {
        self.asked > self.done
    }
}

static ASKED: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

pub(crate) fn questions() -> Questions {
    // In this order, so that none that was done appears to be open for ever.
    let done = DONE.load(Ordering::Acquire);
    Questions { asked: ASKED.load(Ordering::Acquire), done }
}

struct OpenQuestion;

impl OpenQuestion {
    fn begin() -> Self {
        ASKED.fetch_add(1, Ordering::AcqRel);
        Self
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        DONE.fetch_add(1, Ordering::AcqRel);
    }
}

/// The processes that were started, and have not ended.
static PROCESSES: Mutex<Vec<Tgid>> = Mutex::new(Vec::new());

fn lock_processes() -> MutexGuard<'static, Vec<Tgid>> {
    PROCESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processes of this program that parse, read or write for it now.
pub(crate) fn running_processes() -> Vec<Tgid> {
    lock_processes().clone()
}

/// This program, even if its file was replaced meanwhile.
const PROGRAM: &str = "/proc/self/exe";

/// Answers in a thread of this process, where a test or a benchmark has no program to start.
pub type ThreadBody = fn(&mut Channel<UnixStream>);

#[derive(Clone, Copy)]
enum Start {
    Program(ParserRole),
    Thread(ThreadBody),
}

impl Start {
    fn patience(self) -> Patience {
        match self {
            Self::Program(role) => role.patience(),
            Self::Thread(_) => ParserRole::Names.patience(),
        }
    }
}

/// The process that parses, as its client sees it: it is started with the first question.
pub struct Parser {
    start: Start,
    running: Option<Running>,
    starts: u32,
    budget: TimeBudget,
    waited: Duration,
}

struct Running {
    channel: Channel<OwnedFd>,
    /// None if the parser is a thread.
    child: Option<Child>,
}

impl Running {
    /// Says why there was no answer. A process that never began could not even be asked, and what it was to be
    /// asked about is not to blame: the file of this program does not answer.
    fn blame(&self, error: ChannelError, start: Start) -> ChannelError {
        let (ChannelError::TimedOut, Start::Program(role), Some(child)) =
            (error, start, &self.child)
        else {
            return error;
        };
        // It gives itself its name as it locks itself in.
        match std::fs::read_to_string(format!("/proc/{}/comm", child.id())) {
            Ok(name) if name.trim_end() != role.name() => ChannelError::NotStarted,
            _ => error,
        }
    }

    /// Whether the process runs. It is not collected, so that no other process gets its number
    /// before its CPU time is read.
    fn is_alive(&self) -> bool {
        let Some(child) = &self.child else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        id.is_some_and(|id| matches!(waitid(WaitId::Pid(id), options), Ok(None)))
    }
}

impl Parser {
    /// Uses a process of this program, which begins with [`run_if_requested`].
    #[must_use]
    pub fn new(role: ParserRole) -> Self {
        Self::with(Start::Program(role))
    }

    /// Uses a thread that has all the rights of this one.
    #[must_use]
    pub fn in_thread(body: ThreadBody) -> Self {
        Self::with(Start::Thread(body))
    }

    fn with(start: Start) -> Self {
        let budget = TimeBudget::new(start.patience().waiting, Instant::now());
        Self { start, running: None, starts: 0, budget, waited: Duration::ZERO }
    }

    /// How long may be waited for all that is asked from now on; none if that is too little to ask
    /// anybody who may not answer at once.
    pub(crate) fn allowance(&mut self) -> Option<Duration> {
        self.budget.allowance(Instant::now())
    }

    /// How long the last answer was waited for.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Starts the process before the first question. If that fails, the first question does.
    #[must_use]
    pub fn start_early(mut self) -> Self {
        self.running = self.start().ok();
        self
    }

    /// The process's number, if it is a process that runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref()?.child.as_ref().map(Child::id)
    }

    /// Runs an exchange of messages with the process. An error is counted, and ends the process.
    ///
    /// # Errors
    ///
    /// If there is no answer, or none that can be.
    pub fn exchange<T>(
        &mut self,
        diagnostics: &mut Diagnostics,
        body: impl FnOnce(&mut Channel<OwnedFd>) -> Result<T, ChannelError>,
    ) -> Result<T, ChannelError> {
        let allowance = self.allowance().unwrap_or(LEAST);
        self.exchange_within(allowance, diagnostics, body)
    }

    /// Runs an exchange of messages in which the process may do nothing for so long at most.
    ///
    /// # Errors
    ///
    /// If there is no answer, or none that can be.
    pub(crate) fn exchange_within<T>(
        &mut self,
        allowance: Duration,
        diagnostics: &mut Diagnostics,
        body: impl FnOnce(&mut Channel<OwnedFd>) -> Result<T, ChannelError>,
    ) -> Result<T, ChannelError> {
        self.waited = Duration::ZERO;
        let mut counted = |error: ChannelError| {
            count(diagnostics, error.diagnostic());
            error
        };
        if self.start.patience().at_end == AtEnd::GivenUp && end_deadline::has_passed() {
            return Err(counted(ChannelError::OutOfTime));
        }
        // A process that died between two questions has cost nothing but a start.
        if self.running.as_ref().is_some_and(|running| !running.is_alive()) {
            self.end();
            counted(ChannelError::Died);
        }
        let running = match &mut self.running {
            Some(running) => running,
            None => {
                let started = self.start().map_err(&mut counted)?;
                self.running.insert(started)
            }
        };
        running.channel.begin_question(allowance);
        let open = OpenQuestion::begin();
        let answer = body(&mut running.channel).map_err(|error| running.blame(error, self.start));
        let answer = answer.map_err(counted);
        drop(open);
        self.waited = running.channel.waited();
        self.budget.spend(self.waited);
        if answer.is_err() {
            self.end();
        }
        answer
    }

    fn start(&mut self) -> Result<Running, ChannelError> {
        if self.starts == self.start.patience().starts {
            return Err(ChannelError::NotStarted);
        }
        self.starts += 1;
        let started = match self.start {
            Start::Program(role) => start_program(role),
            Start::Thread(body) => start_thread(body),
        };
        started.map_err(|error| {
            log::warn!("cannot start what reads programs: {error}");
            ChannelError::NotStarted
        })
    }

    fn end(&mut self) {
        let Some(Running { channel, child }) = self.running.take() else { return };
        // This reads the CPU time that the process has used. The process ends without the other end
        // of its channel, unless it can't.
        drop(channel);
        let Some(mut child) = child else { return };
        let _ended_already = child.kill();
        let until = Instant::now() + self.start.patience().kill;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        // One that is left behind is still one of ours.
        if !matches!(child.try_wait(), Ok(None)) {
            lock_processes().retain(|process| process.0 != child.id());
        }
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        self.end();
    }
}

fn start_program(role: ParserRole) -> io::Result<Running> {
    let (ours, its) = UnixStream::pair()?;
    let mut command = Command::new(PROGRAM);
    close_all_but_streams(&mut command);
    if role == ParserRole::Reader {
        privileges::hand_over(Task::Reading, &mut command);
    }
    if role.answers_while_recording() {
        scheduling::raise_priority_of(&mut command);
    }
    let child = command
        .arg0(role.name())
        .env_clear()
        .current_dir("/")
        // Ctrl-C at the terminal is for offwake alone.
        .process_group(0)
        .envs(own_threads::injection())
        .stdin(Stdio::from(OwnedFd::from(its)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    lock_processes().push(Tgid(child.id()));
    let account = CpuAccount::for_child(child.id());
    let watchdog = Watchdog::for_child(account, child.id(), role.patience());
    let channel = Channel::watched(OwnedFd::from(ours), watchdog);
    Ok(Running { channel, child: Some(child) })
}

/// Has the child close all that it has of offwake's, but its standard streams, before it runs its program. It would
/// have that anyhow, but for as long as the file of this program does not answer, with a home directory on a dead
/// server: what offwake has attached would stay attached after its end.
///
/// `spawn` learns by a pipe when the program runs. That is closed as well, so that nobody waits for that either: a
/// program that can't be run shows as a process that died, or that has not answered.
fn close_all_but_streams(command: &mut Command) {
    let close = || {
        // SAFETY: takes plain integers. The child is about to run another program, and uses none of these.
        // Where a container's filter refuses it, the program closes them as it begins.
        let _refused = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
        Ok(())
    };
    // SAFETY: `close` makes one system call: it takes no lock and no memory.
    unsafe { command.pre_exec(close) };
}

fn start_thread(body: ThreadBody) -> io::Result<Running> {
    let (ours, its) = UnixStream::pair()?;
    thread::Builder::new()
        .name("offwake-apart".to_owned())
        .spawn(move || body(&mut Channel::to_trusted(its)))?;
    let channel = Channel::watched(OwnedFd::from(ours), Watchdog::for_thread());
    Ok(Running { channel, child: None })
}

/// Runs a parser, if this process was started as one; None if it was not. Call this before anything
/// else.
///
/// The bodies answer until the other end is closed.
pub fn run_if_requested(
    names: fn(&mut Channel<Stdin>),
    stacks: fn(&mut Channel<Stdin>),
    reader: fn(&mut Channel<Stdin>),
    writer: fn(&mut Channel<Stdin>),
) -> Option<ExitCode> {
    let called = env::args_os().next()?;
    let role = ParserRole::ALL.into_iter().find(|role| called == role.name())?;
    let (body, locked_in) = match role {
        ParserRole::Names => (names, sandbox::lock_in(role.name()).map(|_landlock| ())),
        ParserRole::Stacks => (stacks, sandbox::lock_in(role.name()).map(|_landlock| ())),
        ParserRole::Reader => (reader, sandbox::lock_in_reader(role.name())),
        ParserRole::Writer => (writer, sandbox::lock_in_writer(role.name())),
    };
    own_threads::set_helper(role.name());
    // There is no way to say why: the process that started this one sees that it is gone.
    if let Err(_refused) = locked_in {
        return Some(ExitCode::FAILURE);
    }
    body(&mut Channel::to_trusted(io::stdin()));
    Some(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use offwake_analysis::top::OWN_PROCESS_NAMES;

    use super::ParserRole;

    #[test]
    fn a_view_knows_its_own_processes_by_their_names() {
        for role in ParserRole::ALL {
            assert!(OWN_PROCESS_NAMES.contains(&role.name()), "{role:?}");
        }
    }
}
