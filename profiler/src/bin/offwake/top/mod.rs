//! `offwake top`: the live view's terminal, threads and files. What keys do is in
//! [`offwake::top::ViewState`].
//!
//! ```text
//! this thread    keys, drawing ─ request ─▶ session ── survey ──▶ drain, store, kept stretch
//!                        ▲                                              │ a recording's bytes
//!                        └────────── TopData ◀── TopAnalysis (a thread) ──┘
//! ```
//!
//! The next update is requested when the one before has come: when there is too much to do, they
//! come more seldom, and none is late.

mod save;
mod screen;

use std::{
    io::IsTerminal as _,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::error::ErrorKind;
use offwake::{
    capture::{
        CaptureError,
        flight_recorder::{FlightRecorder, Retention, Viewer},
    },
    own_threads::{self, OwnThread},
    top::{KeyAction, ViewState},
};
use offwake_analysis::top::{AnalysisError, TargetState, TopAnalysis, TopData, Wanted};
use offwake_recording::{ClosedBy, units::Nanos};

use crate::{
    cli::{RecordingArguments, Top, usage_error},
    console::Terminal,
    outcome::{EndedCommand, Outcome},
    output::Destination,
    remote_control::RemoteControl,
    session::{EndedSession, Session},
    terminal_thread::print_error,
};

use save::SavedRecordings;
use screen::{Input, Screen};

/// Time between two checks for keys and pictures.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest time between two pictures: nobody reads faster.
const MIN_REFRESH: Duration = Duration::from_millis(100);
/// The pause after an update is this many times as long as the update took.
const PAUSE_FACTOR: u32 = 6;
/// The longest time that leaving takes: the programs are detached when the process ends in any
/// case.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest time that one picture may take once the session is over.
const DRAWING_TIMEOUT: Duration = Duration::from_secs(5);

/// What was made of one snapshot.
struct TopUpdate {
    data: Result<Box<TopData>, String>,
    took: Duration,
}

/// Shows waits live until somebody leaves, or recording ends.
pub fn run(arguments: &Top) -> anyhow::Result<Outcome> {
    check_arguments(arguments);
    let colours = screen::check()?;
    if crate::console::is_verbose() && std::io::stderr().is_terminal() {
        bail!("-v writes to standard error, which is the screen: send it elsewhere (2>log)");
    }
    // Fails now if nothing could be saved there.
    Destination::from_path(&arguments.output)?;
    screen::watch_panics();
    let remote = Arc::new(RemoteControl::new(screen::restore));
    let session = Session::prepare_remote(&arguments.recording, Arc::clone(&remote))?;
    let (sender, updates) = mpsc::channel();
    let wanted = Arc::new(Mutex::new(Wanted::default()));
    let window = nanos(arguments.window);
    let viewer = viewer(
        TopAnalysis::new(window, arguments.max_memory),
        sender,
        Arc::clone(&wanted),
        Arc::clone(&remote),
    );
    let recorder = FlightRecorder::to_viewer(Retention::Time(window), arguments.max_memory, viewer)
        .context("cannot start a thread")?;
    let control = Arc::clone(&remote);
    let session = own_threads::spawn(OwnThread::Session, move || {
        let ended = session.run(recorder, |written| match written.broken {
            Some(error) => Err(error.into()),
            None => Ok(()),
        });
        // The view may wait for a terminal that nobody reads. Nothing can be restored there then.
        if control.ends_with_session() && !control.wait_until_left(DRAWING_TIMEOUT) {
            std::process::exit(1);
        }
        ended
    })
    .context("cannot start a thread")?;
    let mut watch = Watch {
        remote,
        updates,
        session: Some(session),
        command: None,
        wanted,
        refresh: arguments.refresh,
        ends_with_target: ends_with_target(&arguments.recording),
        closed_by: None,
        view: ViewState::default(),
        data: None,
        saved: SavedRecordings::beside(arguments.output.clone()),
        requested_at: None,
        next: Instant::now(),
        deaths: None,
    };
    let watched = Screen::open(colours).and_then(|mut screen| watch.run(&mut screen));
    // The terminal is as it was: errors can be read.
    let left = watch.leave();
    if let Some(deaths) = own_threads::describe_deaths() {
        print_error(&deaths);
    }
    watched.and(left)?;
    for path in watch.saved.paths() {
        Terminal::messages().line(&format!("wrote {}", path.display()))?;
    }
    Ok(Outcome::Done.pass_on(watch.command.as_ref()))
}

/// Ends the program with a usage error for arguments that don't go together.
fn check_arguments(arguments: &Top) {
    let refuse = |message: &str| -> ! { usage_error(ErrorKind::ValueValidation, message) };
    if arguments.refresh < MIN_REFRESH {
        refuse("--refresh is 100ms at least");
    }
    if arguments.window < 2 * arguments.refresh {
        refuse("--window is at least twice as long as --refresh");
    }
}

/// Returns whether there is nothing left to watch once the target has ended. Processes and threads
/// end for good; new ones may come into a cgroup or a container, and onto a machine.
fn ends_with_target(arguments: &RecordingArguments) -> bool {
    let target = &arguments.target;
    let is_lasting = target.all || target.cgroup.is_some() || target.container.is_some();
    let is_command = !arguments.command.is_empty() && !is_lasting;
    !target.pid.is_empty() || !target.tid.is_empty() || is_command
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Analyses each snapshot, unless the program is about to leave.
fn viewer(
    mut analysis: TopAnalysis,
    updates: Sender<TopUpdate>,
    wanted: Arc<Mutex<Wanted>>,
    remote: Arc<RemoteControl>,
) -> Viewer {
    Box::new(move |bytes| {
        if remote.is_stopped() {
            return;
        }
        let began = Instant::now();
        let wanted = *wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let data = match bytes {
            Ok(bytes) => analysis
                .analyse(bytes, wanted)
                .map(Box::new)
                .map_err(|error: AnalysisError| error.to_string()),
            Err(error) => Err(format!("the last stretch can't be encoded: {error}")),
        };
        // The other end is gone when the program is about to leave.
        let _left = updates.send(TopUpdate { data, took: began.elapsed() });
    })
}

/// Everything between the keyboard and the session.
struct Watch {
    remote: Arc<RemoteControl>,
    updates: Receiver<TopUpdate>,
    /// None once the session has ended.
    session: Option<JoinHandle<anyhow::Result<EndedSession<()>>>>,
    /// The command, once it has ended and its session has.
    command: Option<EndedCommand>,
    /// What the next update is to have.
    wanted: Arc<Mutex<Wanted>>,
    refresh: Duration,
    ends_with_target: bool,
    /// Why recording has ended, if it has.
    closed_by: Option<ClosedBy>,
    view: ViewState,
    data: Option<Box<TopData>>,
    saved: SavedRecordings,
    /// When the update was requested that has not come yet.
    requested_at: Option<Instant>,
    /// When the next update is to be requested.
    next: Instant,
    /// What the deaths of threads cost that the view has shown.
    deaths: Option<String>,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Leave,
}

impl Watch {
    fn run(&mut self, screen: &mut Screen) -> anyhow::Result<()> {
        screen.draw(&self.view, None)?;
        loop {
            let mut is_stale = false;
            if let Some(input) = screen.input(POLL_INTERVAL)? {
                is_stale = true;
                if self.handle_input(input) == Next::Leave {
                    return Ok(());
                }
            }
            while let Ok(update) = self.updates.try_recv() {
                is_stale |= self.receive(update);
            }
            own_threads::pass();
            if let Some(thread) = screen::fatal_panic() {
                return Err(CaptureError::Thread(thread).into());
            }
            if screen::was_restored() {
                bail!("the terminal was given back");
            }
            let deaths = own_threads::describe_deaths();
            if deaths != self.deaths {
                self.deaths = deaths;
                self.view.show_message(self.deaths.clone().unwrap_or_default());
                is_stale = true;
            }
            let was_open = self.closed_by.is_none();
            if self.check_session()? == Next::Leave {
                return Ok(());
            }
            is_stale |= was_open && self.closed_by.is_some();
            if self.requested_at.is_none() && self.session.is_some() && Instant::now() >= self.next
            {
                self.remote.request_snapshot();
                self.requested_at = Some(Instant::now());
            }
            if is_stale {
                screen.draw(&self.view, self.data.as_deref())?;
            }
        }
    }

    fn handle_input(&mut self, input: Input) -> Next {
        let key = match input {
            Input::Key(key) => key,
            Input::Resized => return Next::Continue,
            Input::Gone => return Next::Leave,
        };
        let action = self.view.handle_key(key, self.data.as_deref());
        let wanted = self.view.wanted();
        let before = std::mem::replace(
            &mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner),
            wanted,
        );
        if before != wanted {
            self.next = Instant::now();
        }
        match action {
            KeyAction::Quit => return Next::Leave,
            KeyAction::Save => {
                let message = self.saved.save(self.data.as_deref(), self.view.period());
                self.view.show_message(message);
            }
            KeyAction::Nothing => {}
        }
        Next::Continue
    }

    /// Takes an update over. Returns whether the screen is to be drawn again.
    fn receive(&mut self, TopUpdate { data, took }: TopUpdate) -> bool {
        let now = Instant::now();
        let requested_at = self.requested_at.take().unwrap_or(now);
        self.next = (requested_at + self.refresh).max(now + took * PAUSE_FACTOR);
        match data {
            Ok(data) => {
                if self.ends_with_target && data.header.target_state == TargetState::Ended {
                    self.remote.stop();
                    self.view.show_message("the target has ended: q leaves".to_owned());
                }
                match &mut self.data {
                    // The last data stays on screen, and not the emptiness behind it.
                    Some(shown) if data.window.threads.is_empty() => {
                        shown.header.target_state = data.header.target_state;
                    }
                    Some(_) if !self.view.is_live() => {}
                    shown => *shown = Some(data),
                }
            }
            Err(why) => self.view.show_message(why),
        }
        true
    }

    fn check_session(&mut self) -> anyhow::Result<Next> {
        self.join_session()?;
        let had_closed = std::mem::replace(&mut self.closed_by, self.remote.closed_by()).is_some();
        if !had_closed && self.closed_by == Some(ClosedBy::Command) {
            // Its last update may take a while, since all names are looked up before.
            self.view.show_message("the command has ended: q leaves".to_owned());
        }
        Ok(if self.remote.ends_with_session() { Next::Leave } else { Next::Continue })
    }

    /// Keeps what a session that has ended came to.
    fn join_session(&mut self) -> anyhow::Result<()> {
        let Some(session) = self.session.take_if(|session| session.is_finished()) else {
            return Ok(());
        };
        match session.join() {
            Ok(ended) => self.command = ended?.command,
            Err(_panic) => Err(CaptureError::Thread(OwnThread::Session))?,
        }
        Ok(())
    }

    /// Ends the session, and waits a while for it.
    fn leave(&mut self) -> anyhow::Result<()> {
        self.remote.set_left();
        self.remote.stop();
        let until = Instant::now() + LEAVE_TIMEOUT;
        while self.session.as_ref().is_some_and(|session| !session.is_finished())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.join_session()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::ends_with_target;
    use crate::cli::{Cli, Command};

    #[test]
    fn a_command_beside_another_target_does_not_end_the_view() {
        for (arguments, ends) in [
            (&["-p", "1"][..], true),
            (&["--", "make"], true),
            (&["-p", "1", "--", "make"], true),
            (&["-a", "--", "make"], false),
            (&["--cgroup", "/shop", "--", "make"], false),
            (&["--container", "web", "--", "make"], false),
            (&["--container", "web"], false),
            (&[], false),
        ] {
            let parsed = Cli::try_parse_from([&["offwake", "top"], arguments].concat());
            let Ok(Command::Top(top)) = parsed.map(|cli| cli.command) else {
                panic!("{arguments:?} are not taken")
            };
            assert_eq!(ends_with_target(&top.recording), ends, "{arguments:?}");
        }
    }
}
