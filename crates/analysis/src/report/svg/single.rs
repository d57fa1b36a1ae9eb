//! One report as a picture.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    ops::AddAssign,
};

use super::{
    draw::{self, Drawn},
    dress::{Emphasis, HeaderLine, Look},
    header,
    hover::{Note, Notes},
    palette,
};
use crate::{
    blame::Reason,
    report::{
        BlameClass, Report, WaitEntry,
        flame::{self, Direction, FlameGraph, FrameKind, NodeId, Tree, View},
        wait_groups,
    },
};
use offwake_recording::units::Nanos;

/// Culprits named in the header; the rest is counted.
const MOSTLY: usize = 4;

/// Writes the shown waits' blocked time as a picture.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    let sleepers = Sleepers::of(report);
    let mut tree = Tree::<Times>::new();
    for path in flame::paths(report, view).filter(|path| sleepers.shows(path.wait)) {
        tree.add(&path.frames, Times::of(path.blame.class(), path.blame.ns));
    }
    let drawn = Drawn::of(&tree, Times::sum);
    let mut notes = Notes::of_drawn(drawn.nodes());
    for path in flame::paths(report, view).filter(|path| sleepers.shows(path.wait)) {
        notes.add(&path, tree.along(&path.frames));
    }
    let looks = looks(&tree, &notes, view);
    let mut lines = vec![HeaderLine::Text(format!(
        "{}: {}",
        header::processes(report),
        header::window(report)
    ))];
    lines.extend(mostly(report, &sleepers));
    lines.extend(header::shortcomings(report));
    lines.extend(drawn.left_out().map(HeaderLine::Text));
    lines.push(HeaderLine::Text(header::reading(view).to_owned()));
    lines.push(header::legend(&times(report, &sleepers)));
    let target = &report.meta.target;
    let title = match (view.graph, view.direction) {
        (FlameGraph::Chain, Direction::FromWaiter) => format!("offwake: what {target} waited for"),
        (FlameGraph::Chain, Direction::FromCulprit) => {
            format!("offwake: what kept {target} waiting")
        }
        (FlameGraph::OffWake, _) => format!("offwake: who ended the waits of {target}"),
        (FlameGraph::OffCpu, _) => format!("offwake: where {target} waited"),
    };
    draw::picture(&title, &header::broken(lines), &drawn, &looks, out)
}

/// Threads that never woke, in a pool say. They held nobody up, and would be most of the picture.
struct Sleepers {
    window: Nanos,
    /// Whether there is anything else to draw.
    are_left_out: bool,
}

impl Sleepers {
    fn of(report: &Report) -> Self {
        let window = report.window.duration_ns;
        let are_left_out =
            flame::shown(report).any(|(wait, _)| !wait_groups::sleeps_through(wait, window));
        Self { window, are_left_out }
    }

    fn shows(&self, wait: &WaitEntry) -> bool {
        !self.are_left_out || !wait_groups::sleeps_through(wait, self.window)
    }
}

/// What the time went to, threads that never woke aside: as in the summary.
fn mostly(report: &Report, sleepers: &Sleepers) -> Vec<HeaderLine> {
    if !sleepers.are_left_out {
        return Vec::new();
    }
    let (awake, asleep): (Vec<_>, Vec<_>) =
        flame::shown(report).partition(|(wait, _)| sleepers.shows(wait));
    let awake = awake.into_iter().map(|(_, part)| part);
    let mut lines = vec![HeaderLine::Strong(format!(
        "mostly: {}",
        wait_groups::describe_largest_parts(awake, MOSTLY)
    ))];
    if !asleep.is_empty() {
        let time: Nanos = asleep.iter().map(|(_, part)| part.ns).sum();
        let threads = if asleep.len() == 1 { "thread" } else { "threads" };
        lines.push(HeaderLine::Text(format!(
            "not drawn: {} {threads} asleep all the time, {time}",
            asleep.len()
        )));
    }
    lines
}

/// What the classes are made of.
fn times(
    report: &Report,
    sleepers: &Sleepers,
) -> BTreeMap<BlameClass, BTreeMap<&'static str, Nanos>> {
    let mut times = BTreeMap::<BlameClass, BTreeMap<&str, Nanos>>::new();
    for (_, part) in flame::shown(report).filter(|(wait, _)| sleepers.shows(wait)) {
        let name = part.reason.map_or(part.kind.name(), Reason::name);
        *times.entry(part.class()).or_default().entry(name).or_default() += part.ns;
    }
    times
}

/// Time of each [`Class`], in its order. Wider than a report's sums, which stop at their largest.
#[derive(Clone, Copy, Debug, Default)]
struct Times([u128; BlameClass::ALL.len()]);

impl AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

impl Times {
    fn of(class: BlameClass, time: Nanos) -> Self {
        let mut times = Self::default();
        times.0[class as usize] = u128::from(time.0);
        times
    }

    fn sum(&self) -> u128 {
        self.0.iter().sum()
    }

    /// The class of more than half of it.
    fn dominant(&self) -> Option<BlameClass> {
        BlameClass::ALL.into_iter().find(|&class| self.0[class as usize] * 2 > self.sum())
    }
}

fn nanos(time: u128) -> Nanos {
    Nanos(u64::try_from(time).unwrap_or(u64::MAX))
}

fn looks(tree: &Tree<Times>, notes: &Notes<'_>, view: &View) -> HashMap<NodeId, Look> {
    let all = tree.root().all.sum();
    let look = |(&id, note): (&NodeId, &Note<'_>)| {
        let node = tree.get(id)?;
        let dominant = node.all.dominant();
        let kind = node.frame.as_ref().map_or(FrameKind::Group, |frame| frame.kind);
        // Where no kind of blame is on top, the end of a path stands for it.
        let is_end = view.graph != FlameGraph::Chain && node.own.sum() * 2 > node.all.sum();
        let fill = match dominant {
            Some(class) if is_end => palette::strong(class),
            _ => palette::quiet(kind, dominant),
        };
        let time = nanos(node.all.sum());
        let share = format!("{:.1}%", node.all.sum() as f64 * 100.0 / all as f64);
        let name = match &node.frame {
            Some(frame) => frame.name.to_string(),
            None => format!("all: {time} blocked"),
        };
        let details = note.details(&time.to_string(), &share);
        let emphasis = if note.is_label { Emphasis::Label } else { Emphasis::None };
        Some((id, Look { name, details, fill, emphasis }))
    };
    notes.0.iter().filter_map(look).collect()
}
