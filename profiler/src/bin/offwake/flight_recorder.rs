//! `offwake record --keep`: the latest part of a recording is retained in memory, and written out
//! on demand.

use std::path::Path;

use anyhow::Context as _;
use clap::error::ErrorKind;
use offwake::{
    capture::{
        Trip,
        flight::{Event, Flight, FlightPlan, Keep, Why},
    },
    units::Nanos,
};

use crate::{
    cli::{Record, usage_error},
    console::Terminal,
    name_arguments::print_fetched,
    outcome::Outcome,
    output::{Destination, PartialFile, on_one_line},
    session::Session,
};

const MAX_SNAPSHOTS: u32 = 16;
const MAX_MEMORY: usize = 2 << 30;
/// Between two snapshots by trigger, if what is retained is a size.
const PAUSE: Nanos = Nanos(10_000_000_000);

/// Records, and retains the latest part.
pub fn run(arguments: &Record, keep: Keep) -> anyhow::Result<Outcome> {
    let path = &arguments.output;
    let name = path.display().to_string();
    if path == Path::new("-") {
        refuse("--keep writes files, and -o - is none: name one");
    }
    if let Destination::Special(_) = Destination::from_path(path)? {
        refuse(&format!("--keep writes files, and {name} is a device or a pipe: name a file"));
    }
    let partial_file = PartialFile::default();
    let pause = match keep {
        Keep::Time(time) => time,
        Keep::Bytes(_) => PAUSE,
    };
    let names = arguments.names.sources()?;
    let session = Session::prepare(&arguments.recording, None)?
        .with_names(names.clone())
        .with_snapshots(arguments.trigger.clone(), pause);
    let max_snapshots = arguments.max_snapshots.unwrap_or(MAX_SNAPSHOTS);
    let plan = FlightPlan {
        path: path.clone(),
        keep,
        max_memory: arguments.max_memory.unwrap_or(MAX_MEMORY),
        max_snapshots: usize::try_from(max_snapshots).unwrap_or(usize::MAX),
        say: Box::new(print_event),
        unfinished: partial_file.clone(),
    };
    let flight = Flight::new(plan).context("cannot start a thread")?;
    let written = session.run(flight, &partial_file, Ok)?;
    print_fetched(&names);
    Outcome::from_written(&written, &name)
}

fn refuse(message: &str) -> ! {
    usage_error(ErrorKind::ArgumentConflict, message)
}

/// Prints one line for each thing that happens.
fn print_event(event: Event) {
    let printed = match event {
        Event::Wrote { path, length, counts, bytes, why } => {
            let why = match why {
                Why::Signal(signal) => format!(" ({signal})"),
                Why::Trigger(trip) => format!(" (trigger: {})", trip_text(&trip)),
                Why::View | Why::End => String::new(),
            };
            Terminal::messages().line(&format!(
                "wrote {}: {length}, {} waits of the target and {} others, {bytes} bytes{why}",
                path.display(),
                counts.target_waits,
                counts.waits - counts.target_waits,
            ))
        }
        Event::Removed { path } => Terminal::messages()
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
    if let Err(error) = printed {
        eprintln!("offwake: {error:#}");
    }
}

fn trip_text(trip: &Trip) -> String {
    let Trip { tid, comm, blocked, .. } = trip;
    format!("{} {tid} waited {blocked}", on_one_line(comm))
}
