//! `offwake profile`: check everything that can be checked before, record, report.

use std::{
    io::{self, IsTerminal as _},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::CommandFactory as _;
use offwake::{
    blame::Blame,
    capture::{Capture, Plan},
    kernel::{Features, Messages, Need, Settings, Standing},
    recording::{ClosedBy, Recording},
    report::{Filter, Kinds, Report},
    target::{HeldCommand, Request, Target},
    timeline::Timeline,
    units::{Tgid, Tid},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    Outcome,
    cli::{Cli, Profile, TargetArguments},
    output::{Destination, Output, Terminal, Unfinished, remove_unfinished},
};

/// How often a run looks whether its command has ended or its memory is used up.
const GLANCE: Duration = Duration::from_millis(20);

/// Records, and reports.
pub fn run(arguments: Profile) -> anyhow::Result<Outcome> {
    if arguments.verbose {
        env_logger::Builder::new().filter_level(log::LevelFilter::Debug).init();
    }
    let outputs = outputs(&arguments)?;
    check_machine()?;
    let target = target(&arguments)?;
    let plan = plan(&arguments, &target);
    let filter = filter(&arguments);
    let takes_standard_output =
        outputs.iter().any(|output| output.destination == Destination::StandardOutput);

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let unfinished = Unfinished::default();
    let report = runtime.block_on(record(plan, target, arguments.duration, filter, &unfinished))?;

    if let Some(reason) = nothing_recorded(&report) {
        eprintln!("offwake: nothing was recorded: {reason}");
        return Ok(Outcome::NothingRecorded);
    }
    let mut terminal = if takes_standard_output {
        Terminal::standard_error()
    } else {
        Terminal::standard_output()
    };
    terminal.summary(&report)?;
    for output in &outputs {
        output.write(&report, &unfinished)?;
        if let Destination::File(path) = &output.destination {
            terminal.line(&format!("wrote {}", path.display()))?;
        }
    }
    Ok(Outcome::Done)
}

fn outputs(arguments: &Profile) -> anyhow::Result<Vec<Output>> {
    let mut outputs = Vec::new();
    for path in &arguments.outputs {
        outputs.push(if path == Path::new("-") {
            let Some(format) = arguments.format else {
                Cli::command()
                    .error(
                        clap::error::ErrorKind::MissingRequiredArgument,
                        "`-o -` has no extension: name the format with --format",
                    )
                    .exit()
            };
            Output { destination: Destination::StandardOutput, format }
        } else {
            Output::to_file(path)?
        });
    }
    Ok(outputs)
}

/// Says what is missing in one line, before the kernel says it in many.
fn check_machine() -> anyhow::Result<()> {
    for feature in Features::probe().0 {
        if let (Need::Required, Standing::Missing { why, remedy }) =
            (feature.need, feature.standing)
        {
            bail!("{}: {why}; {remedy}", feature.name);
        }
    }
    Ok(())
}

/// As with perf, a command beside a target says no more than how long to record.
fn target(arguments: &Profile) -> anyhow::Result<Target> {
    let command = &arguments.command;
    Ok(match named(&arguments.target) {
        None if command.is_empty() => Target::find(Request::All)?,
        None => Target::find(Request::Command(command.clone()))?,
        Some(request) => {
            let mut target = Target::find(request)?;
            if !command.is_empty() {
                target.command = Some(HeldCommand::start(command)?);
            }
            target
        }
    })
}

/// The target that the options name.
fn named(arguments: &TargetArguments) -> Option<Request> {
    let TargetArguments { pid, tid, cgroup, all } = arguments;
    if !pid.is_empty() {
        Some(Request::Processes(pid.iter().copied().map(Tgid).collect()))
    } else if !tid.is_empty() {
        Some(Request::Threads(tid.iter().copied().map(Tid).collect()))
    } else if let Some(path) = cgroup {
        Some(Request::Cgroup(path.clone()))
    } else {
        all.then_some(Request::All)
    }
}

fn plan(arguments: &Profile, target: &Target) -> Plan {
    Plan {
        settings: Settings {
            target: target.filter.clone(),
            scope: arguments.scope.into(),
            stacks: arguments.stacks.into(),
            sample_hz: arguments.sample,
            ring_bytes: ring_bytes(arguments.ring_size),
            stand_in_only: arguments.stand_in,
            max_targets: arguments.max_targets,
            messages: if arguments.verbose { Messages::Logged } else { Messages::Off },
        },
        target: target.description.clone(),
        memory_limit: arguments.max_memory,
    }
}

/// A ring's size must be a power of two, and a page at least. 128 MiB are shared out over the CPUs:
/// 8 MiB each hold a fifth of a second of the fastest switching that was seen.
fn ring_bytes(wanted: Option<usize>) -> u32 {
    const PAGE: usize = 4096;
    const LARGEST: usize = 1 << 30;
    let bytes = wanted.unwrap_or_else(|| {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        ((128 << 20) / cpus).clamp(1 << 20, 8 << 20)
    });
    let bytes = bytes.clamp(PAGE, LARGEST).next_power_of_two();
    u32::try_from(bytes).unwrap_or(1 << 30)
}

fn filter(arguments: &Profile) -> Filter {
    Filter {
        min: arguments.min_wait,
        max: arguments.max_wait,
        kinds: if arguments.user_only {
            Kinds::User
        } else if arguments.kernel_only {
            Kinds::Kernel
        } else {
            Kinds::All
        },
        states: arguments.state.clone().map(|states| states.0),
    }
}

/// Records until something ends it, then puts the report together; a second Ctrl-C or SIGTERM leaves
/// at once.
async fn record(
    plan: Plan,
    mut target: Target,
    duration: Option<Duration>,
    filter: Filter,
    unfinished: &Unfinished,
) -> anyhow::Result<Report> {
    // Before anything is attached, so that no signal ends the program half way.
    let mut interrupts = [
        signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?,
        signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?,
        signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?,
    ];
    let mut capture = Capture::open(plan)?;
    say_begin(&target.description, duration);
    if let Some(command) = &mut target.command {
        capture.begin_now();
        command.release()?;
    }
    let deadline = duration.map(|duration| Instant::now() + duration);
    let closed_by =
        wait_for_end(&capture, target.command.as_ref(), deadline, &mut interrupts).await;
    if let (ClosedBy::Duration | ClosedBy::Memory, Some(command)) = (closed_by, &target.command) {
        // Its time is up; it would run on with nobody watching.
        command.terminate();
    }
    let finish = tokio::task::spawn_blocking(move || -> anyhow::Result<Report> {
        let captured = capture.close(closed_by)?;
        let recording = captured.finish()?;
        Ok(report(&recording, &filter))
    });
    tokio::select! {
        report = finish => report.context("the report could not be put together")?,
        () = any(&mut interrupts) => {
            remove_unfinished(unfinished);
            // What a shell gives for a program that Ctrl-C ended.
            std::process::exit(130);
        }
    }
}

fn report(recording: &Recording, filter: &Filter) -> Report {
    let timeline = Timeline::build(recording);
    let blame = Blame::assign(recording, &timeline);
    Report::new(recording, &timeline, &blame, filter)
}

async fn wait_for_end(
    capture: &Capture,
    command: Option<&HeldCommand>,
    deadline: Option<Instant>,
    interrupts: &mut [Signal; 3],
) -> ClosedBy {
    let mut glances = interval(GLANCE);
    glances.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // tokio knows no "never"; the deadline's branch is off without one.
    let at = deadline.unwrap_or_else(Instant::now);
    loop {
        tokio::select! {
            () = any(interrupts) => return ClosedBy::Signal,
            () = sleep_until(at), if deadline.is_some() => return ClosedBy::Duration,
            _ = glances.tick() => {
                if command.is_some_and(HeldCommand::has_ended) {
                    return ClosedBy::Command;
                }
                if capture.is_full() {
                    return ClosedBy::Memory;
                }
            }
        }
    }
}

async fn any(signals: &mut [Signal; 3]) {
    let [first, second, third] = signals;
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
        _ = third.recv() => {}
    }
}

fn say_begin(target: &str, duration: Option<Duration>) {
    if io::stderr().is_terminal() {
        let until = duration.map_or_else(
            || "until Ctrl-C".to_owned(),
            |duration| format!("for {} s; Ctrl-C ends it sooner", duration.as_secs_f64()),
        );
        eprintln!("Recording {target} {until}.");
    }
}

/// Why there is nothing to show, if there is not.
fn nothing_recorded(report: &Report) -> Option<String> {
    let target = &report.meta.target;
    if report.threads.is_empty() {
        return Some(format!("no thread of the target ({target}) was seen in the window"));
    }
    if !report.waits.is_empty() {
        return None;
    }
    if report.meta.closed_by == ClosedBy::Memory.name() {
        return Some("the memory for records was used up at once; raise --max-memory".to_owned());
    }
    Some(if report.filter.left_out_ns.0 > 0 {
        format!(
            "no wait passes the filters; they left out {} of waiting",
            report.filter.left_out_ns
        )
    } else {
        format!(
            "{} threads of the target ({target}) were seen, and none of them waited",
            report.threads.len()
        )
    })
}
