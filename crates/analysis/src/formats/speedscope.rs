//! The paths of the folded stacks as a file for speedscope: a profile for each process, that which
//! waited longest first.
//!
//! <https://www.speedscope.app/file-format-schema.json>

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    io, mem,
    sync::Arc,
};

use offwake_recording::units::Tgid;
use serde::Serialize;

use crate::{
    analysis::{Analysis, Extent},
    report::{
        MAX_PATH_BYTES, Report, SmallPaths,
        flame::{Path, View, paths},
        most_summed_up,
    },
    text,
};

use super::{
    OutputFormat, Written,
    source_frame::{SourceFrame, SourceFrames},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeFile<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: &'static str,
    active_profile_index: u32,
    shared: SharedFrames<'a>,
    profiles: Vec<SpeedscopeProfile>,
}

#[derive(Serialize)]
struct SharedFrames<'a> {
    frames: Vec<SpeedscopeFrame<'a>>,
}

#[derive(Serialize)]
struct SpeedscopeFrame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeProfile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// The places of frames, root first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// The time of each path of each process.
type ProcessPaths = BTreeMap<Tgid, BTreeMap<Vec<Arc<SourceFrame>>, u64>>;

/// A file for speedscope.
pub(super) struct Speedscope;

impl OutputFormat for Speedscope {
    fn name(&self) -> &'static str {
        "speedscope"
    }

    fn extension(&self) -> &'static str {
        "speedscope.json"
    }

    fn write(
        &self,
        analysis: &Analysis<'_>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<Written> {
        let room = match analysis.options().extent {
            Extent::Full => usize::MAX,
            Extent::Bounded => MAX_PATH_BYTES,
        };
        let report = analysis.report();
        let small = write_limited(report, &analysis.options().view, room, out)?;
        Ok(Written::from_limits(&report.filter, small))
    }
}

/// Writes the shown waits' blocked time.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    write_limited(report, view, usize::MAX, out).map(|_nothing| ())
}

/// Writes the same in at most some `room` bytes, and returns the paths that are summed up.
fn write_limited(
    report: &Report,
    view: &View,
    room: usize,
    out: &mut dyn io::Write,
) -> io::Result<SmallPaths> {
    let mut placed = SourceFrames::default();
    let mut by_process = ProcessPaths::new();
    for Path { frames, wait, blame } in paths(report, view) {
        let paths = by_process.entry(wait.tgid).or_default();
        let sum = paths.entry(placed.path(&frames)).or_default();
        *sum = sum.saturating_add(blame.ns.0);
    }
    let small = limit_paths(&mut by_process, room);
    let mut names: Vec<Arc<SourceFrame>> = Vec::new();
    let mut places: HashMap<Arc<SourceFrame>, usize> = HashMap::new();
    let mut place = |frame: &Arc<SourceFrame>| {
        *places.entry(Arc::clone(frame)).or_insert_with_key(|name| {
            names.push(Arc::clone(name));
            names.len() - 1
        })
    };
    let comms: HashMap<Tgid, &str> =
        report.processes.iter().map(|process| (process.tgid, process.comm.as_str())).collect();
    let mut profiles: Vec<SpeedscopeProfile> = (by_process.into_iter())
        .map(|(tgid, paths)| SpeedscopeProfile {
            r#type: "sampled",
            name: text::plain(&format!("{} {tgid}", comms.get(&tgid).unwrap_or(&""))),
            unit: "nanoseconds",
            start_value: 0,
            end_value: paths.values().fold(0, |all, &ns| u64::saturating_add(all, ns)),
            samples: paths.keys().map(|path| path.iter().map(&mut place).collect()).collect(),
            weights: paths.into_values().collect(),
        })
        .collect();
    profiles.sort_by_key(|profile| Reverse(profile.end_value));
    let file = SpeedscopeFile {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: text::plain(&format!("offwake: what {} waited for", report.meta.target)),
        exporter: "offwake",
        active_profile_index: 0,
        shared: SharedFrames { frames: names.iter().map(|name| frame(name)).collect() },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")?;
    Ok(small)
}

/// Sums up the paths of each process with the least time, so that the others have room.
fn limit_paths(by_process: &mut ProcessPaths, room: usize) -> SmallPaths {
    /// Most bytes that a frame's place takes, and that a path takes besides.
    const PLACE: usize = 6;
    const WEIGHT: usize = 16;
    let sizes = by_process.values().flatten().map(|(path, &ns)| (ns, WEIGHT + PLACE * path.len()));
    let Some(most) = most_summed_up(sizes, room) else { return SmallPaths::default() };
    let mut all = SmallPaths::default();
    for paths in by_process.values_mut() {
        let (small, kept): (BTreeMap<_, _>, _) =
            mem::take(paths).into_iter().partition(|&(_, ns)| ns <= most);
        *paths = kept;
        let mut rest = SmallPaths::default();
        for &ns in small.values() {
            rest.add(ns);
            all.add(ns);
        }
        if rest.count > 0 {
            let frame = SourceFrame { name: rest.frame_name(), file: None, line: None };
            paths.insert(vec![Arc::new(frame)], rest.ns);
        }
    }
    all
}

fn frame(placed: &SourceFrame) -> SpeedscopeFrame<'_> {
    let SourceFrame { name, file, line } = placed;
    SpeedscopeFrame { name, file: file.as_deref(), line: *line }
}
