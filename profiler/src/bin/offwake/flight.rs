//! `offwake record --keep`: the last stretch, written out when somebody asks for it.

use std::path::Path;

use anyhow::Context as _;
use clap::{CommandFactory as _, error::ErrorKind};
use offwake::{
    capture::{
        Trip,
        flight::{Event, Flight, FlightPlan, Keep, Why},
    },
    units::Nanos,
};

use crate::{
    Outcome,
    cli::{Cli, Record},
    console::Terminal,
    name_arguments,
    output::{Destination, Unfinished, on_one_line},
    record,
    session::Session,
};

const MAX_SNAPSHOTS: u32 = 16;
const MAX_MEMORY: usize = 2 << 30;
/// Between two snapshots by trigger, if a size is kept.
const PAUSE: Nanos = Nanos(10_000_000_000);

/// Records and keeps the last stretch.
pub fn run(arguments: &Record, keep: Keep) -> anyhow::Result<Outcome> {
    let path = &arguments.output;
    let name = path.display().to_string();
    if path == Path::new("-") {
        refuse("--keep writes files, and -o - is none: name one");
    }
    if let Destination::Special(_) = Destination::of(path)? {
        refuse(&format!("--keep writes files, and {name} is a device or a pipe: name a file"));
    }
    let unfinished = Unfinished::default();
    let pause = match keep {
        Keep::Time(time) => time,
        Keep::Bytes(_) => PAUSE,
    };
    let names = arguments.names.sources()?;
    let session = Session::prepare(&arguments.recording, None)?
        .named_by(names.clone())
        .with_snapshots(arguments.trigger.clone(), pause);
    let max_snapshots = arguments.max_snapshots.unwrap_or(MAX_SNAPSHOTS);
    let plan = FlightPlan {
        path: path.clone(),
        keep,
        max_memory: arguments.max_memory.unwrap_or(MAX_MEMORY),
        max_snapshots: usize::try_from(max_snapshots).unwrap_or(usize::MAX),
        say: Box::new(say),
        unfinished: unfinished.clone(),
    };
    let flight = Flight::new(plan).context("cannot start a thread")?;
    let written = session.run(flight, &unfinished, Ok)?;
    name_arguments::say_fetched(&names);
    record::end(&written, &name)
}

/// A usage error, as the parser of the command line makes them.
fn refuse(message: &str) -> ! {
    Cli::command().error(ErrorKind::ArgumentConflict, message).exit()
}

/// One line for each thing that happens.
fn say(event: Event) {
    let said = match event {
        Event::Wrote { path, length, counts, bytes, why } => {
            let why = match why {
                Why::Signal(signal) => format!(" ({signal})"),
                Why::Trigger(trip) => format!(" (trigger: {})", tripped(&trip)),
                Why::View | Why::End => String::new(),
            };
            Terminal::remarks().line(&format!(
                "wrote {}: {length}, {} waits of the target and {} others, {bytes} bytes{why}",
                path.display(),
                counts.target_waits,
                counts.waits - counts.target_waits,
            ))
        }
        Event::Removed { path } => Terminal::remarks()
            .line(&format!("removed {}: --max-snapshots is reached", path.display())),
        Event::Failed { path, error } => {
            eprintln!("offwake: cannot write {}: {error}", path.display());
            Ok(())
        }
        Event::Skipped => {
            eprintln!("offwake: no snapshot: the ones before it are still being written");
            Ok(())
        }
    };
    if let Err(error) = said {
        eprintln!("offwake: {error:#}");
    }
}

fn tripped(trip: &Trip) -> String {
    let Trip { tid, comm, blocked, .. } = trip;
    format!("{} {tid} waited {blocked}", on_one_line(comm))
}
