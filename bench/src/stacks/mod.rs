//! `cargo xtask bench stacks`: how many stacks of blocked threads reach the entry point of their thread, in programs as
//! they are in use, beside what other tools get of the same programs.
//!
//! A whole run writes the tables of `docs/stacks.md`; a quick or partial one only prints them.

mod entry_point;
mod offwake;
mod peers;
mod program;
mod share;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum as _};

use offwake::{Recorded, Unwind};
use peers::Peer;
use program::{BusyProgram, ProgramKind};
use share::Share;

use crate::document;
use xtask::{
    apt, build, markdown_table::MarkdownTable, python, root::RootAccess, signal, workspace,
};

/// Debian's packages: the programs, their compilers, the other tools and the names that all of them show.
const PACKAGES: [&str; 13] = [
    "bpftrace",
    "g++",
    "golang-go",
    "libc6-dbg",
    "linux-perf",
    "musl-tools",
    "nginx-light",
    "postgresql",
    "python3",
    "redis-server",
    "redis-tools",
    "util-linux",
    "gcc",
];

/// How to run it.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// A second each instead of three. Prints, but leaves docs/stacks.md as it is
    #[arg(long)]
    quick: bool,
    /// Only these programs. Prints, but leaves docs/stacks.md as it is
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PROGRAM,…")]
    only: Vec<ProgramKind>,
    /// Measure this offwake instead of building one
    #[arg(long, value_name = "FILE")]
    offwake: Option<PathBuf>,
}

/// A program by all tools.
struct ProgramResult {
    kind: ProgramKind,
    recorded: Vec<(Unwind, Recorded)>,
    peers: Vec<(Peer, Share)>,
}

/// Measures, prints, and writes the document after a whole run.
///
/// # Errors
///
/// When something that is needed can't be had or run.
pub fn measure(options: Options) -> anyhow::Result<()> {
    let Options { quick, only, offwake } = options;
    ensure!(
        RootAccess::obtain_for("measuring")? == RootAccess::Already,
        "this looks at other users' programs: run it as root"
    );
    apt::install(&PACKAGES.map(str::to_owned))?;
    python::install()?;
    let offwake = match offwake {
        Some(offwake) => offwake,
        None => {
            build::build()?;
            workspace::offwake_binary()?
        }
    };
    signal::leave_interrupt_to_children()?;
    let seconds = if quick { 1 } else { 3 };
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let mut all = Vec::new();
    for &kind in ProgramKind::value_variants() {
        if only.is_empty() || only.contains(&kind) {
            let looked = ProgramResult::measure(kind, &offwake, seconds, directory.path())
                .with_context(|| kind.title().to_owned())?;
            eprintln!("bench: {}: {}", kind.title(), looked.cells().join(", "));
            all.push(looked);
        }
    }
    let texts = [
        ("reached", reached_table(&all)),
        ("blocked-time", blocked_time_table(&all)),
        ("ends", ends_table(&all)),
        ("recognised", cache_table(&all)),
    ];
    for (name, text) in &texts {
        println!("\n{name}\n\n{text}");
    }
    if quick || !only.is_empty() {
        Ok(())
    } else {
        document::write_tables("docs/stacks.md", &texts)
    }
}

impl ProgramResult {
    fn measure(
        kind: ProgramKind,
        offwake: &Path,
        seconds: u32,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let busy = BusyProgram::start(kind)?;
        let mut recorded = Vec::new();
        for unwind in Unwind::ALL {
            recorded.push((unwind, offwake::record(offwake, &busy, unwind, seconds, directory)?));
        }
        let mut peers = Vec::new();
        for peer in Peer::ALL {
            if !kind.is_made_to_collide() {
                // perf writes 8 KiB for each switch.
                peers.push((peer, peer.measure(&busy, 1, directory)?));
            }
        }
        Ok(Self { kind, recorded, peers })
    }

    /// A cell for each tool.
    fn cells(&self) -> Vec<String> {
        let own = self.recorded.iter().map(|(_, recorded)| recorded.waits.cell());
        own.chain(self.peers.iter().map(|(_, share)| share.cell())).collect()
    }

    /// The recording in the default mode.
    fn by_default(&self) -> Option<&Recorded> {
        self.recorded.iter().find(|(unwind, _)| *unwind == Unwind::Auto).map(|(_, by)| by)
    }
}

fn own_titles() -> impl Iterator<Item = String> {
    Unwind::ALL.into_iter().map(|unwind| format!("`{}`", unwind.name()))
}

fn ordinary(all: &[ProgramResult]) -> impl Iterator<Item = &ProgramResult> {
    all.iter().filter(|looked| !looked.kind.is_made_to_collide())
}

fn reached_table(all: &[ProgramResult]) -> String {
    let peers = Peer::ALL.into_iter().map(|peer| peer.title().to_owned());
    let mut table =
        MarkdownTable::new(["waits of".to_owned()].into_iter().chain(own_titles()).chain(peers));
    for looked in ordinary(all) {
        table.push_row([looked.kind.title().to_owned()].into_iter().chain(looked.cells()));
    }
    table.markdown()
}

fn blocked_time_table(all: &[ProgramResult]) -> String {
    let mut table =
        MarkdownTable::new(["blocked time of".to_owned()].into_iter().chain(own_titles()));
    for looked in ordinary(all) {
        let cells = looked.recorded.iter().map(|(_, recorded)| recorded.blocked_ns.cell());
        table.push_row([looked.kind.title().to_owned()].into_iter().chain(cells));
    }
    table.markdown()
}

/// By `auto`: what the others end with, and what the rule about roots says of the same stacks.
fn ends_table(all: &[ProgramResult]) -> String {
    let mut table =
        MarkdownTable::new(["by `auto`", "waits", "end there", "by the root", "others end with"]);
    for looked in ordinary(all) {
        let Some(recorded) = looked.by_default() else { continue };
        let mut others: Vec<_> =
            recorded.ends.iter().filter(|(end, _)| *end != "entry_point").collect();
        others.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let others = others.into_iter().map(|(end, count)| format!("{end} {count}"));
        table.push_row([
            looked.kind.title().to_owned(),
            recorded.waits.whole.to_string(),
            recorded.waits.cell(),
            recorded.by_root.cell(),
            others.collect::<Vec<_>>().join(", "),
        ]);
    }
    table.markdown()
}

/// By `auto`, and nobody else being recorded. The counts are those of user and kernel stacks together.
fn cache_table(all: &[ProgramResult]) -> String {
    let mut table = MarkdownTable::new([
        "by `auto`",
        "recognised",
        "checks that agree",
        "copied or walked a second",
        "distinct stacks",
    ]);
    for looked in all {
        let Some(Recorded { counts, seconds, distinct, .. }) = looked.by_default() else {
            continue;
        };
        let counts = counts.both();
        let all = counts.recognised + counts.taken;
        let agreed = counts.checked.saturating_sub(counts.disagreed);
        table.push_row([
            looked.kind.title().to_owned(),
            Share { part: counts.recognised, whole: all }.cell(),
            Share { part: agreed, whole: counts.checked }.cell(),
            format!("{:.0}", (counts.taken + counts.checked) as f64 / seconds.max(1e-9)),
            distinct.to_string(),
        ]);
    }
    table.markdown()
}
