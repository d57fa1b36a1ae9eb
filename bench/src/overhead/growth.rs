//! How the cost of a switch grows with the number of threads that switch, and with the number of
//! stacks that they wait in.

use std::{thread::sleep, time::Duration};

use super::{
    bpf_times::{self, Counting, MapBytes},
    per_switch::{Observed, ProgramSet, observe},
    setup::OverheadSetup,
};
use crate::{
    load_count::LoadCount,
    process::{self, Memory, megabytes},
};
use xtask::markdown_table::MarkdownTable;

/// Caches fill meanwhile, and every thread has had its turn.
const SETTLE: Duration = Duration::from_secs(1);

/// What there are more and more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    Threads,
    Stacks,
}

impl Dimension {
    fn load(self) -> &'static str {
        match self {
            Self::Threads => "ring",
            Self::Stacks => "paths",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Stacks => "stacks",
        }
    }
}

/// The figures with so many threads or stacks.
struct Point {
    many: u32,
    walk: Observed,
    offwake: Observed,
    memory: Memory,
    maps: MapBytes,
    /// What the load counted while offwake recorded it.
    load: LoadCount,
    lost: u64,
}

/// All points of one kind.
pub struct Growth {
    dimension: Dimension,
    points: Vec<Point>,
    title: String,
}

/// Measures each point once: the growth is what counts.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(setup: &OverheadSetup, dimension: Dimension) -> anyhow::Result<Growth> {
    let all: &[u32] = match dimension {
        Dimension::Threads => setup.effort.pick(&[2, 100, 1_000, 10_000], &[2, 10_000]),
        Dimension::Stacks => setup.effort.pick(&[1, 100, 10_000, 100_000], &[1, 100_000]),
    };
    let _counting = Counting::start()?;
    let points = all
        .iter()
        .map(|many| measure_point(setup, dimension, *many))
        .collect::<anyhow::Result<_>>()?;
    Ok(Growth { dimension, points, title: setup.default_mode().title() })
}

fn measure_point(setup: &OverheadSetup, dimension: Dimension, many: u32) -> anyhow::Result<Point> {
    eprintln!("bench: ns per switch with {many} {}", dimension.title());
    let length = Duration::from_secs(setup.effort.pick(3, 1));
    let pause = || {
        sleep(length);
        Ok(())
    };
    let load = setup.load(dimension.load(), many)?;
    let walk = ProgramSet::BothStacksWalked.start(setup)?;
    let walked = observe(&walk, pause)?;
    walk.stop()?;
    load.stop()?;

    let recording = setup.file("growth.offwake");
    let load = setup.load(dimension.load(), many)?;
    let running = setup.record(setup.default_mode(), &recording)?;
    sleep(SETTLE);
    let offwake = observe(&running, pause)?;
    let memory = process::memory(running.pid())?;
    let maps = bpf_times::map_bytes_held_by(running.pid())?;
    running.stop()?;
    let load = LoadCount::read(&load.stop()?)?;
    let lost = setup.report(&recording)?.lost;
    Ok(Point { many, walk: walked, offwake, memory, maps, load, lost })
}

impl Growth {
    /// Kernel memory of offwake's maps with the most of them.
    pub fn maps(&self) -> Option<MapBytes> {
        self.points.last().map(|point| point.maps)
    }

    pub fn table(&self) -> String {
        let mut table = MarkdownTable::new([
            self.dimension.title(),
            "the load's switches a second",
            "double walk, ns per switch",
            &format!("{}, ns per switch", self.title),
            "own memory, peak",
            "maps / rings / in each thread",
            "records lost",
        ]);
        for Point { many, walk, offwake, memory, maps, load, lost } in &self.points {
            table.push_row([
                many.to_string(),
                format!("{:.0}", load.rate()),
                format!("{:.0}", walk.ns_per_switch()),
                format!("{:.0}", offwake.ns_per_switch()),
                format!("{:.0} MB", megabytes(memory.peak)),
                format!(
                    "{:.1} / {:.1} MB / {} bytes",
                    megabytes(maps.others + maps.per_cpu),
                    megabytes(maps.rings),
                    maps.each_thread
                ),
                lost.to_string(),
            ]);
        }
        table.markdown()
    }
}
