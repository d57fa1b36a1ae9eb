//! `offwake record --keep`: the latest part of a recording is retained in memory, and written out
//! on demand.

use std::path::Path;

use anyhow::Context as _;
use clap::error::ErrorKind;
use offwake::{
    capture::{
        LongWait, SnapshotReason, WaitBegin, WaitProgress,
        flight_recorder::{FlightRecorder, FlightRecorderPlan, Retention, SnapshotEvent},
    },
    writer_process::Place,
};
use offwake_recording::units::Nanos;

use crate::{
    cli::{Record, usage_error},
    name_arguments::print_fetched,
    outcome::Outcome,
    output::{on_one_line, start_writer},
    session::{EndedSession, Session},
    terminal_thread::{print_error, print_message},
};

const MAX_SNAPSHOTS: u32 = 16;
const MAX_MEMORY: usize = 2 << 30;
/// Between two snapshots by trigger, if what is retained is a size.
const PAUSE: Nanos = Nanos(10_000_000_000);

/// Records, and retains the latest part.
pub fn run(arguments: &Record, keep: Retention) -> anyhow::Result<Outcome> {
    let path = &arguments.output;
    let name = path.display().to_string();
    if path == Path::new("-") {
        refuse("--keep writes files, and -o - is none: name one");
    }
    if start_writer().check(path).with_context(|| format!("cannot write {name}"))? == Place::Special
    {
        refuse(&format!("--keep writes files, and {name} is a device or a pipe: name a file"));
    }
    let pause = match keep {
        Retention::Time(time) => time,
        Retention::Bytes(_) => PAUSE,
    };
    let names = arguments.names.sources()?;
    let session = Session::prepare(&arguments.recording, None)?
        .with_names(names.clone())
        .with_snapshots(arguments.trigger.clone(), pause);
    let max_snapshots = arguments.max_snapshots.unwrap_or(MAX_SNAPSHOTS);
    let plan = FlightRecorderPlan {
        path: path.clone(),
        retention: keep,
        max_memory: arguments.max_memory.unwrap_or(MAX_MEMORY),
        max_snapshots: usize::try_from(max_snapshots).unwrap_or(usize::MAX),
        report: Box::new(print_event),
    };
    let recorder = FlightRecorder::to_files(plan).context("cannot start a thread")?;
    let EndedSession { result: written, command } = session.run(recorder, Ok)?;
    print_fetched(&names);
    Ok(Outcome::from_written(&written, &name)?.pass_on(command.as_ref()))
}

fn refuse(message: &str) -> ! {
    usage_error(ErrorKind::ArgumentConflict, message)
}

/// Prints one line for each thing that happens.
fn print_event(event: SnapshotEvent) {
    match event {
        SnapshotEvent::Wrote { path, length, counts, bytes, reason } => {
            let reason = match reason {
                SnapshotReason::Signal(signal) => format!(" ({signal})"),
                SnapshotReason::Trigger(wait) => format!(" (trigger: {})", describe_wait(&wait)),
                SnapshotReason::View | SnapshotReason::End => String::new(),
            };
            print_message(&format!(
                "wrote {}: {length}, {} waits of the target and {} others, {bytes} bytes{reason}",
                path.display(),
                counts.target_waits,
                counts.waits - counts.target_waits,
            ));
        }
        SnapshotEvent::Removed { path } => {
            print_message(&format!("removed {}: --max-snapshots is reached", path.display()));
        }
        SnapshotEvent::Failed { path, error } => {
            print_error(&format!("cannot write {}: {error}", path.display()));
        }
        SnapshotEvent::Skipped => {
            print_error("no snapshot: the ones before it are still being written");
        }
    }
}

fn describe_wait(wait: &LongWait) -> String {
    let LongWait { tid, comm, blocked, .. } = wait;
    let comm = on_one_line(comm);
    match (wait.progress, wait.began) {
        (WaitProgress::Over, _) => format!("{comm} {tid} waited {blocked}"),
        (WaitProgress::Open, WaitBegin::InWindow) => {
            format!("{comm} {tid} still waits, for {blocked}")
        }
        (WaitProgress::Open, WaitBegin::BeforeWindow) => {
            format!("{comm} {tid} still waits, for at least {blocked}: since before the recording")
        }
    }
}
