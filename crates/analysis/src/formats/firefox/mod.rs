//! The target's waits as a profile for the Firefox Profiler: each thread has a track, each wait is as
//! many samples as it has parts of blame, and one marker.
//!
//! ```text
//! wait      ────[ blocked for the lock of worker, who worked, then slept ]────
//! samples       w────────0w───────0        a weight where a part begins, and none where it ends, so
//!             0 ─ none ──┘         └ 0     that the track is filled as long as the thread waited
//! stacks        web · handle · worker · main · finish_job
//! ```
//!
//! Its format is described in
//! <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/processed-profile-format.md>.
//! Stacks are those of the profile for pprof; the kind of blame is the category of their last frame.

mod file;
mod tables;
mod threads;

use std::io;

use crate::{
    analysis::{Analysis, AnalysisOptions, Extent},
    blame::{Blame, BlameClass},
    report::{
        Report,
        flame::{Direction, Path, PathBuilder, View},
        loss_line,
        single_waits::{LeftOutWaits, SingleWait, SingleWaitLimits, visit_longest},
    },
    text,
};

use super::{OutputFormat, Written, call_path::CallPathBuilder, source_frame::SourceFrames};
use file::{
    Category, ExtraEntry, ExtraSection, MarkerField, MarkerSchema, Meta, Milliseconds, Profile,
    SampleUnits,
};
use tables::Tables;
use threads::{DrawnPart, Threads};

/// The version of the format: the first in which all threads have one table of stacks.
const FORMAT_VERSION: u32 = 60;
/// The version of the format from which this one is made, were it Firefox's own. Nobody reads it.
const UNPROCESSED_VERSION: u32 = 32;

/// A profile for the Firefox Profiler.
pub(super) struct Firefox;

impl OutputFormat for Firefox {
    fn name(&self) -> &'static str {
        "firefox"
    }

    fn extension(&self) -> &'static str {
        "firefox.json"
    }

    fn write(
        &self,
        analysis: &Analysis<'_>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<Written> {
        write(analysis.blame(), analysis.report(), analysis.options(), out)
    }
}

/// Writes a profile. The report is that of this blame, with the options' filter.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    blame: &Blame<'_>,
    report: &Report,
    options: &AnalysisOptions,
    out: &mut dyn io::Write,
) -> io::Result<Written> {
    let limits = match options.extent {
        Extent::Full => Limits::NONE,
        Extent::Bounded => Limits::USABLE,
    };
    let (profile, left_out) = build(blame, report, options, limits);
    serde_json::to_writer(&mut *out, &profile)?;
    out.write_all(b"\n")?;
    Ok(left_out.describe().map_or(Written::Everything, Written::Limited))
}

/// The most of everything of which a profile can have very many.
#[derive(Clone, Copy)]
struct Limits {
    waits: SingleWaitLimits,
    /// Bytes of all stacks, frames and names together.
    tables: usize,
    /// Threads that have no wait.
    threads_without_waits: usize,
}

impl Limits {
    const NONE: Self = Self {
        waits: SingleWaitLimits::NONE,
        tables: usize::MAX,
        threads_without_waits: usize::MAX,
    };
    /// A profile of usable size, about 20 MB: a wait takes up to 700 bytes, most of them texts of its
    /// marker, and each of its parts 54.
    const USABLE: Self = Self {
        waits: SingleWaitLimits { waits: 15_000, parts: 120_000 },
        tables: 6_000_000,
        threads_without_waits: 500,
    };
}

/// What there is no room for.
#[derive(Default)]
struct LeftOut {
    waits: LeftOutWaits,
    /// Parts of waits without their frames.
    frameless: u64,
    threads: u64,
}

impl LeftOut {
    fn describe(&self) -> Option<String> {
        let parts = [
            (self.waits.waits, "shorter waits left out"),
            (self.waits.parts, "smaller parts of blame summed up"),
            (self.frameless, "parts of shorter waits without their frames"),
            (self.threads, "threads without a wait left out"),
        ];
        let parts: Vec<_> = (parts.into_iter())
            .filter(|&(count, _)| count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!parts.is_empty()).then(|| format!("has {}", parts.join(", ")))
    }
}

fn build(
    blame: &Blame<'_>,
    report: &Report,
    options: &AnalysisOptions,
    limits: Limits,
) -> (Profile, LeftOut) {
    let view = options.view;
    let paths = PathBuilder::new(report, View { direction: Direction::FromWaiter, ..view });
    let stacks = CallPathBuilder::new(report, view, options.extent);
    let mut sources = SourceFrames::default();
    let mut tables = Tables::new(limits.tables);
    let mut threads = Threads::new(blame, report);
    let mut left_out = LeftOut::default();
    left_out.waits = visit_longest(blame, &options.filter, limits.waits, |wait| {
        let SingleWait { thread, from, to, entry } = &wait;
        let parts = entry.blame.iter().map(|part| {
            if options.filter.hidden.contains(&part.kind.group()) {
                return DrawnPart { stack: None, time: part.ns };
            }
            let path = Path { frames: paths.frames(entry, part), wait: entry, blame: part };
            let frames = sources.path(&stacks.build(&path));
            let stack = tables.stack(&frames, part.class());
            left_out.frameless += u64::from(stack.is_frameless);
            DrawnPart { stack: Some(stack.index), time: part.ns }
        });
        let parts: Vec<DrawnPart> = parts.collect();
        threads.add(*thread, (*from, *to), &parts, entry, &mut tables);
    });
    let (threads, without_room) = threads.finish(limits.threads_without_waits);
    left_out.threads = without_room;
    let profile = Profile { meta: meta(report), libs: [], shared: tables.finish(), threads };
    (profile, left_out)
}

fn meta(report: &Report) -> Meta {
    let window = report.window;
    let meta = &report.meta;
    let entry =
        |label, value: String| ExtraEntry { label, format: "string", value: text::plain(&value) };
    let mut entries = vec![
        entry("Target", meta.target.clone()),
        entry("Host", meta.host.clone()),
        entry("Lost", loss_line(report)),
    ];
    entries.extend(report.warnings().into_iter().map(|warning| entry("Note", warning)));
    Meta {
        interval: 1,
        start_time: window
            .start_unix_ns
            .map_or(Milliseconds(0), |ns| Milliseconds(u64::try_from(ns).unwrap_or_default())),
        profiling_start_time: Milliseconds(0),
        profiling_end_time: Milliseconds(window.duration_ns.0),
        process_type: 0,
        product: text::plain(&format!("offwake: what {} waited for", meta.target)),
        stackwalk: 1,
        debug: false,
        version: UNPROCESSED_VERSION,
        preprocessed_profile_version: FORMAT_VERSION,
        oscpu: text::plain(&format!("Linux {}", meta.kernel)),
        symbolicated: true,
        categories: categories(),
        marker_schema: [marker_schema()],
        sample_units: SampleUnits { time: "ms", event_delay: "ms", thread_cpu_delta: "ns" },
        imported_from: format!("offwake {}", text::plain(&meta.offwake)),
        uses_only_one_stack_type: true,
        source_code_is_not_on_searchfox: true,
        keep_profile_thread_order: true,
        extra: [ExtraSection { label: "Recording", entries }],
    }
}

/// The categories: first the one that a profile must have, for frames without any other.
fn categories() -> Vec<Category> {
    let other = Category { name: "Other", color: "grey", subcategories: ["Other"] };
    let classes = BlameClass::ALL.into_iter().map(|class| {
        let (name, color) = match class {
            BlameClass::Work => ("Work", "green"),
            BlameClass::CpuQueue => ("Waits for a CPU", "orange"),
            BlameClass::Throttled => ("CPU quota used up", "red"),
            BlameClass::Timer => ("Timer", "yellow"),
            BlameClass::Disk => ("Disk", "brown"),
            BlameClass::Network => ("Network", "blue"),
            BlameClass::Device => ("Device", "purple"),
            BlameClass::HeldBack => ("Held back", "magenta"),
            BlameClass::Unattributed => ("Unattributed", "darkgrey"),
            // By this name and colour, it is told from what is worth a look.
            BlameClass::Idle => ("Idle", "transparent"),
        };
        Category { name, color, subcategories: ["Other"] }
    });
    [other].into_iter().chain(classes).collect()
}

/// The index of a class among the [`categories`].
fn category_index(class: BlameClass) -> u8 {
    let place = BlameClass::ALL.iter().position(|&one| one == class);
    place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0)
}

fn marker_schema() -> MarkerSchema {
    let field = |key, label| MarkerField { key, label, format: "unique-string" };
    MarkerSchema {
        name: threads::WAIT,
        tooltip_label: "{marker.name}: {marker.data.on}",
        table_label: "{marker.data.on} in {marker.data.place}, ended by {marker.data.wokenBy}",
        chart_label: "{marker.data.on}",
        display: ["marker-chart", "marker-table", "timeline-overview"],
        fields: [
            field("on", "Waited for"),
            field("place", "Function"),
            field("wokenBy", "Ended by"),
            field("spentOn", "Spent on"),
            field("ranges", "In"),
        ],
        description: "A wait of the thread, from when it left its CPU until it was woken.",
    }
}
