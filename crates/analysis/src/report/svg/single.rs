//! One report as a picture.

use std::io;

use offwake_recording::units::Nanos;

use super::{
    header::{self, ClassParts},
    hops, hover, palette,
    picture::{HeaderLine, Picture, PictureFrame, RowKind},
};
use crate::{
    blame::{BlameClass, Reason},
    report::{
        Report, WaitEntry, first_screen,
        flame::{
            self, ClassTimes, Direction, FlameGraphKind, FrameDetail, FrameKind, Layout,
            PlacedFrame, Summaries, Tree, View,
        },
        printed_lines::{self, DetailPlace, LineLayout},
        wait_groups,
    },
};

/// The time of each [`BlameClass`].
type Times = ClassTimes<{ BlameClass::ALL.len() }>;

/// Writes the shown waits' blocked time as a picture.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    match draws_hops(report, view) {
        true => hops::write(report, out),
        false => write_all_frames(report, view, out),
    }
}

/// Returns whether a picture is drawn of the findings alone, without a report's waits. Threads that only
/// waited for something to do have no hops.
pub(crate) fn draws_hops(report: &Report, view: &View) -> bool {
    view.frames == FrameDetail::Hops && hops::has_any(report)
}

fn write_all_frames(report: &Report, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    let sleepers = Sleepers::new(report);
    let mut tree = Tree::<Times>::new();
    let parts: Vec<_> = (flame::paths(report, view))
        .filter(|path| sleepers.are_drawn(path.wait))
        .map(|path| {
            let times = Times::new(path.blame.class() as usize, path.blame.ns);
            (path.wait, path.blame, tree.add(path.frames, times))
        })
        .collect();
    let layout = Layout::new(&tree, Times::sum);
    let mut summaries = Summaries::new(layout.frames.iter().map(|frame| frame.node));
    for (wait, part, end) in parts {
        summaries.add(wait, part, &tree, end);
    }
    let frame = |&place: &PlacedFrame| picture_frame(place, &tree, &summaries, view);
    let frames = layout.frames.iter().filter_map(frame).collect();
    let target = &report.meta.target;
    let title = match (view.graph, view.direction) {
        (FlameGraphKind::Chain, Direction::FromWaiter) => {
            format!("offwake: what {target} waited for")
        }
        (FlameGraphKind::Chain, Direction::FromCulprit) => {
            format!("offwake: what kept {target} waiting")
        }
        (FlameGraphKind::OffWake, _) => format!("offwake: who woke {target}"),
        (FlameGraphKind::OffCpu, _) => format!("offwake: where {target} waited"),
    };
    let header = header::break_lines(header_lines(report, view, &sleepers, &layout));
    Picture { title, header, frames, rows: RowKind::OneLine }.write(out)
}

fn header_lines(
    report: &Report,
    view: &View,
    sleepers: &Sleepers,
    layout: &Layout,
) -> Vec<HeaderLine> {
    let (processes, window) = (header::describe_processes(report), header::describe_window(report));
    let stacks = report.meta.stacks;
    let mut lines = vec![HeaderLine::Text(format!("{processes}: {window}; stacks: {stacks}"))];
    lines.extend(list_culprits(report, sleepers));
    lines.extend(header::list_caveats(report));
    lines.extend(layout.describe_omitted().map(HeaderLine::Text));
    lines.push(HeaderLine::Text(header::explain_view(view).to_owned()));
    lines.push(header::legend(&class_parts(report, sleepers)));
    lines
}

/// Threads that never woke, in a pool say. They held nobody up, and would be most of the picture:
/// they are left out unless there is nothing else.
struct Sleepers {
    window: Nanos,
    are_left_out: bool,
}

impl Sleepers {
    fn new(report: &Report) -> Self {
        let window = report.window.duration_ns;
        let are_left_out =
            flame::shown_parts(report).any(|(wait, _)| !wait_groups::sleeps_through(wait, window));
        Self { window, are_left_out }
    }

    fn are_drawn(&self, wait: &WaitEntry) -> bool {
        !self.are_left_out || !wait_groups::sleeps_through(wait, self.window)
    }
}

/// What the time went to, threads that never woke aside: as in the summary.
fn list_culprits(report: &Report, sleepers: &Sleepers) -> Vec<HeaderLine> {
    if !sleepers.are_left_out {
        return Vec::new();
    }
    let (awake, asleep): (Vec<_>, Vec<_>) =
        flame::shown_parts(report).partition(|(wait, _)| sleepers.are_drawn(wait));
    if awake.is_empty() {
        return Vec::new();
    }
    let mut lines = list_findings(report);
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

/// The lines of findings in a header.
const WIDE_LINES: LineLayout =
    LineLayout { width: header::LONGEST_LINE, detail: DetailPlace::BehindText };

/// What holds the target up, as on every first screen.
pub(super) fn list_findings(report: &Report) -> Vec<HeaderLine> {
    let (shown, _) = first_screen::split_findings(report);
    let mut lines: Vec<_> =
        first_screen::mostly_idle(report).map(HeaderLine::Strong).into_iter().collect();
    for (n, finding) in shown.iter().enumerate() {
        let mut left_out = 0;
        for printed_lines::PrintedLine { line, text } in
            printed_lines::lines(n + 1, finding, WIDE_LINES)
        {
            if line.depth > 0 && !line.is_cause && n > 0 {
                left_out += 1;
                continue;
            }
            let text = match left_out {
                0 => text,
                _ => text.replacen("└ ", "└ … ", 1),
            };
            // Spaces at the beginning of a line are not drawn.
            let text = text.replace("  ", "\u{a0}\u{a0}");
            lines.push(match line.is_cause || line.depth == 0 {
                true => HeaderLine::Strong(text),
                false => HeaderLine::Text(text),
            });
        }
    }
    lines
}

fn class_parts(report: &Report, sleepers: &Sleepers) -> ClassParts {
    let mut parts = ClassParts::new();
    for (_, part) in flame::shown_parts(report).filter(|(wait, _)| sleepers.are_drawn(wait)) {
        let name = part.reason.map_or(part.kind.name(), Reason::name);
        *parts.entry(part.class()).or_default().entry(name).or_default() += part.ns;
    }
    parts
}

/// The class of more than half of a frame's time.
fn dominant(times: &Times) -> Option<BlameClass> {
    let by_class = times.by_class();
    BlameClass::ALL.into_iter().find(|&class| by_class[class as usize] * 2 > times.sum())
}

fn picture_frame(
    place: PlacedFrame,
    tree: &Tree<Times>,
    summaries: &Summaries<'_>,
    view: &View,
) -> Option<PictureFrame> {
    let (node, summary) = (tree.get(place.node)?, summaries.get(place.node)?);
    let dominant = dominant(&node.total);
    let kind = node.frame.as_ref().map_or(FrameKind::Group, |frame| frame.kind);
    // Where no kind of blame is on top, the end of a path stands for it.
    let is_end = view.graph != FlameGraphKind::Chain && place.own_width * 2 > place.width;
    let fill = match dominant {
        Some(class) if is_end => palette::class_fill(class),
        _ => palette::frame_fill(kind, dominant),
    };
    let time = Nanos(u64::try_from(place.width).unwrap_or(u64::MAX));
    let all = tree.root().total.sum();
    let share = format!("{:.1}%", place.width as f64 * 100.0 / all as f64);
    let name = match &node.frame {
        Some(frame) => frame.name.to_string(),
        None => format!("all: {time} blocked"),
    };
    let details = hover::details(time, &share, summary, summaries);
    let (place, is_label) = (place.into(), summary.is_label);
    Some(PictureFrame { place, name, short_name: None, lines: Vec::new(), details, fill, is_label })
}
