//! A recording session: check everything that can be checked before, record until something ends
//! it.

use std::{
    sync::Arc,
    thread::{self, Scope},
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::error::ErrorKind;
use offwake::{
    capture::{
        Armed, Capture, CaptureError, Exhausted, Plan, Sink, SnapshotReason, Trigger, Written,
    },
    containers::RestartWatcher,
    kernel::{DetailMode, FeatureStatus, Features, LogMessages, Need, Settings},
    marker_probes::{Searched, find_probes},
    own_threads::{self, OwnThread},
    parser, privileges, reader_process,
    symbols::NameSources,
    target::{Children, HeldCommand, Restarts, Streams, Target, TargetRequest},
};
use offwake_recording::{
    ClosedBy,
    units::{CgroupId, Nanos, Tgid, Tid},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    cli::{RecordingArguments, TargetArguments, usage_error},
    console::{self, Progress},
    container_start::wait_for_start,
    interrupts::{self, Interrupts},
    outcome::EndedCommand,
    output::on_one_line,
    remote_control::RemoteControl,
    terminal_thread::{self, print_error},
    values::{OverheadArgument, default_ring_bytes, round_ring_bytes},
};

/// Time between two checks whether the command has ended or something is used up.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A session that can begin: its target is there, and the machine has what it takes.
pub struct Session {
    target: Target,
    plan: Plan,
    duration: Option<Duration>,
    snapshots: Snapshots,
    remote: Option<Arc<RemoteControl>>,
}

/// A session that has ended.
pub struct EndedSession<T> {
    /// What was made of the recording.
    pub result: T,
    /// The command, if its end was the end of the recording. A command that offwake outlived for any
    /// other reason has no exit status that says anything about it.
    pub command: Option<EndedCommand>,
}

/// Whether snapshots can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshots {
    /// No: everything is written as it comes.
    Refused,
    /// Yes: of what is retained in memory.
    OfRetained,
}

/// What happens while a session records.
enum Event {
    /// Recording ends.
    End(ClosedBy),
    /// A snapshot is asked for.
    SnapshotRequest(SnapshotReason),
    /// The container that is followed has this cgroup now, or nobody follows it any more.
    ContainerRestart(Result<CgroupId, CaptureError>),
    /// It is time to start the sampling clocks of CPUs that have come back.
    ClockTick,
    /// It is time to look for open waits that are too long for a trigger.
    OpenWaitCheck,
}

impl Session {
    /// Checks what can be checked.
    pub fn prepare(
        arguments: &RecordingArguments,
        memory_limit: Option<usize>,
    ) -> anyhow::Result<Self> {
        Self::prepare_with(arguments, memory_limit, Streams::Shared)
    }

    /// Does what [`Self::prepare`] does, for a command with other streams.
    fn prepare_with(
        arguments: &RecordingArguments,
        memory_limit: Option<usize>,
        streams: Streams,
    ) -> anyhow::Result<Self> {
        if console::is_logging() {
            env_logger::Builder::new().filter_level(log::LevelFilter::Debug).init();
        }
        check_machine()?;
        let deadline = arguments.duration.map(|duration| Instant::now() + duration);
        let found = find_target(arguments, streams, deadline)?;
        let duration = match found {
            FoundTarget::AtOnce(_) => arguments.duration,
            // Waiting for the target has taken a part of the time.
            FoundTarget::AfterWaiting(_) => {
                deadline.map(|at| at.saturating_duration_since(Instant::now()))
            }
        };
        let (FoundTarget::AtOnce(target) | FoundTarget::AfterWaiting(target)) = found;
        let searched = match (&target.command, requests_command(arguments)) {
            (Some(_), true) => Searched::Command,
            _ => Searched::Target(&target.filter),
        };
        let mut plan = build_plan(arguments, &target, memory_limit);
        plan.settings.marker_probes = find_probes(&arguments.marker, searched)?;
        Ok(Self { target, plan, duration, snapshots: Snapshots::Refused, remote: None })
    }

    /// Prepares a session that another thread controls: it asks for snapshots, and has the
    /// terminal, on which the session then prints nothing.
    pub fn prepare_remote(
        arguments: &RecordingArguments,
        remote: Arc<RemoteControl>,
    ) -> anyhow::Result<Self> {
        let session = Self::prepare_with(arguments, None, Streams::Null)?;
        Ok(Self { snapshots: Snapshots::OfRetained, remote: Some(remote), ..session })
    }

    /// Takes snapshots: when a signal asks for one, and when a wait trips one of `triggers`.
    #[must_use]
    pub fn with_snapshots(mut self, triggers: Vec<Trigger>, pause: Nanos) -> Self {
        self.plan.triggers = triggers;
        self.plan.trigger_pause = pause;
        self.snapshots = Snapshots::OfRetained;
        self
    }

    /// Names functions from these sources.
    #[must_use]
    pub fn with_names(mut self, sources: NameSources) -> Self {
        self.plan.names = sources;
        self
    }

    /// Records into `sink` until something ends it, then does `afterwards` with what was written,
    /// in another thread; a second Ctrl-C or SIGTERM leaves at once.
    pub fn run<S: Sink, T: Send>(
        self,
        sink: S,
        afterwards: impl FnOnce(Written<S>) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<EndedSession<T>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let is_controlled = self.remote.is_some();
        let done = thread::scope(|scope| runtime.block_on(self.record(scope, sink, afterwards)));
        privileges::restrict_unless_root(privileges::Task::Other);
        // Nothing is attached any more: whoever writes outputs may be ended at once. Who controls a session
        // has the terminal to put right.
        if !is_controlled {
            interrupts::end_the_program()?;
        }
        done
    }

    async fn record<'scope, S: Sink + 'scope, T: Send + 'scope>(
        mut self,
        scope: &'scope Scope<'scope, '_>,
        sink: S,
        afterwards: impl FnOnce(Written<S>) -> anyhow::Result<T> + Send + 'scope,
    ) -> anyhow::Result<EndedSession<T>> {
        // Before anything is attached, so that no signal ends the program half way.
        let mut interrupts = Interrupts::watch()?;
        // Nobody may read the terminal, and this thread must not wait for that.
        terminal_thread::start();
        let snapshots = self.snapshots;
        let end_within = self.plan.end_within;
        let is_controlled = self.remote.is_some();
        let mut requests = [
            signal(SignalKind::user_defined1()).context("cannot watch for SIGUSR1")?,
            signal(SignalKind::user_defined2()).context("cannot watch for SIGUSR2")?,
        ];
        let armed = Armed::new(self.plan, sink)?;
        let remote = self.remote.as_deref();
        let mut capture = armed.open()?;
        if let Some(command) = &mut self.target.command {
            command.release()?;
        }
        let deadline = self.duration.map(|duration| Instant::now() + duration);
        let command = self.target.command.as_ref();
        // A command writes to the same terminal, and whoever controls a session draws on it.
        let progress = (command.is_none() && remote.is_none())
            .then(|| Progress::start_recording(capture.target(), self.duration));
        let mut was_refused = false;
        let mut clock = interval(capture.clock_interval());
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_clock_failed = false;
        // The first tick of an interval is at once, and the clock has only just been started.
        clock.reset();
        let mut checks = capture.open_wait_interval().map(interval);
        if let Some(checks) = &mut checks {
            checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            checks.reset();
        }
        let closed_by = loop {
            let event = tokio::select! {
                closed_by = wait_for_end(&capture, command, remote, deadline, &mut interrupts) => Event::End(closed_by),
                why = wait_for_request(&capture, remote, &mut requests) => Event::SnapshotRequest(why),
                cgroup = wait_for_restart(self.target.restarts.as_ref()) => Event::ContainerRestart(cgroup),
                _ = clock.tick() => Event::ClockTick,
                () = wait_for_check(checks.as_mut()) => Event::OpenWaitCheck,
            };
            let handled = match (event, snapshots) {
                (Event::End(closed_by), _) => break closed_by,
                (Event::ContainerRestart(cgroup), _) => {
                    cgroup.and_then(|cgroup| capture.add_target_cgroup(cgroup))
                }
                (Event::ClockTick, _) => {
                    if let (Err(error), false) = (capture.restart_silent_clocks(), has_clock_failed)
                    {
                        let words = format!("CPUs that come back may not be sampled: {error}");
                        print_error(&words);
                        has_clock_failed = true;
                    }
                    Ok(())
                }
                (Event::OpenWaitCheck, _) => capture.find_long_open_waits(),
                (Event::SnapshotRequest(why), Snapshots::OfRetained) => capture.snapshot(why),
                (Event::SnapshotRequest(_), Snapshots::Refused) if was_refused => Ok(()),
                (Event::SnapshotRequest(_), Snapshots::Refused) => {
                    print_error("a signal asks for a snapshot: there is none without --keep");
                    was_refused = true;
                    Ok(())
                }
            };
            // What was recorded until now must not be lost.
            if let Err(error) = handled {
                capture.set_broken(error);
                break ClosedBy::Failed;
            }
        };
        drop(progress);
        if capture.suppressed_snapshots() > 0 {
            let more = capture.suppressed_snapshots();
            print_error(&format!(
                "{more} more waits tripped a trigger, too soon after the one before"
            ));
        }
        if let Some(remote) = remote {
            remote.set_closed_by(closed_by);
        }
        // Ctrl-C has reached the command as well, unless it was no more than a key.
        let has_ended = match closed_by {
            ClosedBy::Command => true,
            ClosedBy::Signal => !remote.is_some_and(RemoteControl::is_stopped),
            _ => false,
        };
        let ended_command = match (closed_by, command) {
            (ClosedBy::Command, Some(command)) => command
                .status()
                .map(|status| EndedCommand { name: command.name().to_owned(), status }),
            _ => None,
        };
        let progress = remote.is_none().then(|| Progress::start("naming what was recorded"));
        // The sender is dropped when the thread ends, whether it returns or panics.
        let (running, ended) = oneshot::channel::<()>();
        let (closed, window_closed) = oneshot::channel::<()>();
        let finish =
            own_threads::spawn_scoped(OwnThread::Finish, scope, move || -> anyhow::Result<T> {
                let _running = running;
                let captured = capture.close(closed_by);
                drop(closed);
                let written = captured.finish()?;
                if let Some(silent) = reader_process::describe_unanswered() {
                    let silent = on_one_line(&silent);
                    print_error(&format!(
                        "not answered: {silent}: names or stacks of theirs are missing"
                    ));
                }
                if let Some(given_up) = parser::describe_given_up() {
                    let given_up = on_one_line(&given_up);
                    print_error(&format!(
                        "the time to look things up was over ({end_within:?} after the end, --end-within): \
                         not looked up: {given_up}"
                    ));
                }
                // Who controls a session says it, when it has given the terminal back.
                if let (false, Some(deaths)) = (is_controlled, own_threads::describe_deaths()) {
                    print_error(&deaths);
                }
                privileges::restrict_unless_root(privileges::Task::Other);
                afterwards(written)
            })
            .context("cannot start the thread that ends the recording")?;
        if let (false, Some(command)) = (has_ended, command) {
            // Its time is up; it would run on with nobody watching. Not before the window is closed:
            // what it is waiting for then has not ended, and who ends it is no waker of its threads.
            let _ = window_closed.await;
            command.terminate();
        }
        tokio::select! {
            _ = ended => {
                drop(progress);
                let result = finish
                    .join()
                    .map_err(|_panic| CaptureError::Thread(OwnThread::Finish))??;
                Ok(EndedSession { result, command: ended_command })
            }
            () = interrupts.recv() => {
                if let Some(remote) = remote {
                    remote.restore_terminal();
                }
                // The status that a shell reports of a program that Ctrl-C ended.
                std::process::exit(130);
            }
        }
    }
}

/// A target, and when it was found.
enum FoundTarget {
    AtOnce(Target),
    AfterWaiting(Target),
}

/// Fails in one line for what is missing, before the kernel does in many.
fn check_machine() -> anyhow::Result<()> {
    for feature in Features::probe().0 {
        if let (Need::Required, FeatureStatus::Missing { why, remedy }) =
            (feature.need, feature.status)
        {
            bail!("{}: {why}; {remedy}", feature.name);
        }
    }
    Ok(())
}

/// Finds the target. As with perf, a command beside another target only tells how long to record.
fn find_target(
    arguments: &RecordingArguments,
    streams: Streams,
    deadline: Option<Instant>,
) -> anyhow::Result<FoundTarget> {
    let command = &arguments.command;
    let restarts = if arguments.follow { Restarts::Followed } else { Restarts::Ignored };
    let children = if arguments.no_inherit { Children::Excluded } else { Children::Included };
    let Some(request) = requested_target(&arguments.target, restarts, children) else {
        let request = match command.as_slice() {
            [] if children == Children::Excluded => usage_error(
                ErrorKind::MissingRequiredArgument,
                "--no-inherit is about --pid or a command: name one",
            ),
            [] => TargetRequest::All,
            command => TargetRequest::Command(command.to_vec(), streams, children),
        };
        return Ok(FoundTarget::AtOnce(Target::find(request)?));
    };
    let beside = || -> anyhow::Result<Option<HeldCommand>> {
        Ok(if command.is_empty() { None } else { Some(HeldCommand::start(command, streams)?) })
    };
    match Target::find(request.clone()) {
        Err(error) if arguments.follow && error.is_temporary() => {
            let mut command = beside()?;
            let target = wait_for_start(&request, &error, deadline, command.as_mut())?;
            Ok(FoundTarget::AfterWaiting(Target { command, ..target }))
        }
        found => Ok(FoundTarget::AtOnce(Target { command: beside()?, ..found? })),
    }
}

/// Whether the target is the command, which no option names.
fn requests_command(arguments: &RecordingArguments) -> bool {
    requested_target(&arguments.target, Restarts::Ignored, Children::Included).is_none()
}

/// The target that the options ask for, if they name one.
fn requested_target(
    arguments: &TargetArguments,
    restarts: Restarts,
    children: Children,
) -> Option<TargetRequest> {
    let TargetArguments { pid, tid, cgroup, container, all } = arguments;
    if !pid.is_empty() {
        Some(TargetRequest::Processes(pid.iter().copied().map(Tgid).collect(), children))
    } else if !tid.is_empty() {
        Some(TargetRequest::Threads(tid.iter().copied().map(Tid).collect()))
    } else if let Some(path) = cgroup {
        Some(TargetRequest::Cgroup(path.clone()))
    } else if let Some(wanted) = container {
        Some(TargetRequest::Container(wanted.clone(), restarts))
    } else {
        all.then_some(TargetRequest::All)
    }
}

fn build_plan(
    arguments: &RecordingArguments,
    target: &Target,
    memory_limit: Option<usize>,
) -> Plan {
    Plan {
        settings: Settings {
            target: target.filter.clone(),
            scope: arguments.scope.into(),
            stacks: arguments.stacks.settings(),
            sample_hz: arguments.sample,
            ring_bytes: arguments.ring_size.map_or_else(default_ring_bytes, round_ring_bytes),
            stand_in_only: arguments.stand_in,
            max_threads: arguments.max_threads,
            max_targets: arguments.max_targets,
            messages: if console::is_logging() { LogMessages::Logged } else { LogMessages::Off },
            detail: match arguments.max_overhead {
                OverheadArgument::None => DetailMode::Full,
                OverheadArgument::Share(_) => DetailMode::Adjustable,
            },
            markers: arguments.markers.into(),
            marker_probes: Vec::new(),
            own_processes: Vec::new(),
        },
        target: target.description.clone(),
        max_overhead: arguments.max_overhead.into(),
        memory_limit,
        triggers: Vec::new(),
        trigger_pause: Nanos(0),
        names: NameSources::default(),
        end_within: arguments.end_within,
    }
}

async fn wait_for_end<S: Sink>(
    capture: &Capture<S>,
    command: Option<&HeldCommand>,
    remote: Option<&RemoteControl>,
    deadline: Option<Instant>,
    interrupts: &mut Interrupts,
) -> ClosedBy {
    let mut polls = interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // tokio knows no "never"; the deadline's branch is off without one.
    let at = deadline.unwrap_or_else(Instant::now);
    loop {
        tokio::select! {
            () = interrupts.recv() => return ClosedBy::Signal,
            () = sleep_until(at), if deadline.is_some() => return ClosedBy::Duration,
            _ = polls.tick() => {
                if remote.is_some_and(RemoteControl::is_stopped) {
                    return ClosedBy::Signal;
                }
                if command.is_some_and(HeldCommand::has_ended) {
                    return ClosedBy::Command;
                }
                own_threads::pass();
                match capture.exhausted() {
                    Some(Exhausted::Memory) => return ClosedBy::Memory,
                    Some(Exhausted::Sink) => return ClosedBy::DiskFull,
                    Some(Exhausted::Thread(_)) => return ClosedBy::Failed,
                    None => {}
                }
            }
        }
    }
}

/// Waits until a snapshot is asked for.
async fn wait_for_request<S: Sink>(
    capture: &Capture<S>,
    remote: Option<&RemoteControl>,
    requests: &mut [Signal; 2],
) -> SnapshotReason {
    let mut polls = interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let [first, second] = requests;
    loop {
        tokio::select! {
            _ = first.recv() => return SnapshotReason::Signal("SIGUSR1"),
            _ = second.recv() => return SnapshotReason::Signal("SIGUSR2"),
            _ = polls.tick() => {
                if remote.is_some_and(RemoteControl::take_snapshot_request) {
                    return SnapshotReason::View;
                }
                if let Some(wait) = capture.take_long_wait() {
                    return SnapshotReason::Trigger(wait);
                }
            }
        }
    }
}

/// Waits until open waits are to be looked at; for ever if they never are.
async fn wait_for_check(checks: Option<&mut Interval>) {
    match checks {
        Some(checks) => _ = checks.tick().await,
        None => std::future::pending().await,
    }
}

/// Waits until the container that is followed has another cgroup; for ever if none is.
async fn wait_for_restart(restarts: Option<&RestartWatcher>) -> Result<CgroupId, CaptureError> {
    let Some(restarts) = restarts else { return std::future::pending().await };
    let mut polls = interval(POLL_INTERVAL);
    polls.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        polls.tick().await;
        if let Some(restart) = restarts.try_next_restart().transpose() {
            return restart;
        }
    }
}
