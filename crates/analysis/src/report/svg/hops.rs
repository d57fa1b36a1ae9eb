//! One report as a picture with one box for each hop: who, what it waited for, how long.

use std::io;

use offwake_recording::units::Nanos;

use super::{
    header, palette,
    picture::{HeaderLine, Picture, PictureFrame, Place, RowKind},
    single::list_findings,
};
use crate::{
    blame::{BlameClass, BlameGroup},
    findings::{HopBox, TimeByClass, in_waits_of_threads, over_threads},
    report::{Report, first_screen, flame::FrameKind, styled_lines::percent},
};

/// The most hops below each other.
const MAX_DEPTH: usize = 12;

/// Returns whether there is anything to draw.
pub(super) fn has_any(report: &Report) -> bool {
    ShownClasses::new(report).time(&report.findings.hop_tree.time()) > Nanos(0)
}

/// Writes what the target's threads waited for and ran.
///
/// # Errors
///
/// Those of `out`.
pub(super) fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let shown = ShownClasses::new(report);
    let tree = &report.findings.hop_tree;
    let all = shown.time(&tree.time());
    let mut frames = vec![root_frame(all, report)];
    let of_picture = (all, report.window.duration_ns, first_screen::split_findings(report).0.len());
    let mut x = 0;
    for hop in &tree.boxes {
        shown.push_frames(hop, "", 1, x, of_picture, &mut frames);
        x += u128::from(shown.time(&hop.time).0);
    }
    let title = format!("offwake: what {} waited for", report.meta.target);
    let header = header::break_lines(header_lines(report, &shown));
    Picture { title, header, frames, rows: RowKind::ThreeLines }.write(out)
}

fn header_lines(report: &Report, shown: &ShownClasses) -> Vec<HeaderLine> {
    let (processes, window) = (header::describe_processes(report), header::describe_window(report));
    let mut lines = vec![HeaderLine::Text(format!("{processes}: {window}"))];
    lines.extend(list_findings(report));
    lines.push(HeaderLine::Text(describe_rest(report)));
    lines.extend(describe_not_drawn(report, shown).map(HeaderLine::Strong));
    lines.extend(
        first_screen::relevant_loss(report)
            .map(|loss| HeaderLine::Strong(format!("INCOMPLETE: {loss}"))),
    );
    lines.extend(report.warnings().into_iter().map(HeaderLine::Strong));
    lines.extend(header::describe_filter(report).map(HeaderLine::Text));
    lines.push(HeaderLine::Text(format!(
        "Below each box: whom it waited for, and what that one did meanwhile. The last box of a \
         column is the cause, as far as it is known. Colours and their times are those of causes, \
         pale where a thread waited for one. {}",
        explain_times(report, shown)
    )));
    lines.push(legend(report, shown));
    lines
}

/// Says that times are sums, and why they are longer than the window where they are.
fn explain_times(report: &Report, shown: &ShownClasses) -> String {
    let (window, threads) = (report.window.duration_ns, report.findings.activity.active_threads);
    let longest = shown.time(&report.findings.hop_tree.time());
    match threads {
        2.. if longest > window => {
            format!("Times are added up over {threads} threads, each of which had at most {window}")
        }
        _ => "Times are added up over all threads that waited".to_owned(),
    }
}

/// Describes what is drawn and has no entry in the list of findings, as the last line of every first screen does.
fn describe_rest(report: &Report) -> String {
    let (listed, sleeps) = first_screen::split_findings(report);
    first_screen::describe_rest(report, &listed, &sleeps).join(" · ")
}

/// Says so where more time is left out than is drawn: who sees the picture alone takes it for all. Less changes
/// nothing, and stands with the box of all threads.
fn describe_not_drawn(report: &Report, shown: &ShownClasses) -> Option<String> {
    let drawn = shown.time(&report.findings.hop_tree.time());
    let is_most = report.findings.activity.idle_ns > drawn;
    let left_out = list_not_drawn(report).filter(|_| is_most)?;
    Some(format!("most of the threads' time is not drawn: {left_out}; {drawn} is drawn"))
}

/// `50.1 s in which they had nothing to do, 5.00 s of threads still asleep at the end of the recording (nothing
/// says that they are stuck)`
fn list_not_drawn(report: &Report) -> Option<String> {
    let activity = &report.findings.activity;
    let idle = match activity.idle_ns - activity.open_ns {
        Nanos(0) => None,
        idle => Some(format!("{idle} in which they had nothing to do")),
    };
    let open = match activity.open_ns {
        Nanos(0) => None,
        open => Some(format!(
            "{open} of threads still asleep at the end of the recording (nothing says that they are stuck)"
        )),
    };
    let parts: Vec<_> = idle.into_iter().chain(open).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn root_frame(all: Nanos, report: &Report) -> PictureFrame {
    let activity = &report.findings.activity;
    let not_drawn = list_not_drawn(report).map(|parts| format!("; not drawn: {parts}"));
    let window = report.window.duration_ns;
    let threads = match activity.active_threads {
        1 => "of 1 thread".to_owned(),
        many => format!("{many} threads added up"),
    };
    PictureFrame {
        place: Place { depth: 0, x: 0, width: u128::from(all.0) },
        name: format!("all threads: {all} of waiting and running, {threads}, in {window}"),
        short_name: None,
        lines: Vec::new(),
        details: format!("{all}, 100%{}", not_drawn.unwrap_or_default()),
        fill: palette::frame_fill(FrameKind::Group, None),
        is_label: true,
    }
}

/// The classes of time that the filter shows.
struct ShownClasses(Vec<BlameClass>);

impl ShownClasses {
    fn new(report: &Report) -> Self {
        let hides = |group: BlameGroup| report.filter.hidden.contains_key(group.name());
        let is_shown = |class: &BlameClass| class.group().is_none_or(|group| !hides(group));
        Self(BlameClass::ALL.into_iter().filter(is_shown).collect())
    }

    fn time(&self, time: &TimeByClass) -> Nanos {
        self.0.iter().map(|&class| time.get(class)).sum()
    }

    /// The class of more than half of some time.
    fn dominant(&self, time: &TimeByClass) -> Option<BlameClass> {
        let all = self.time(time);
        self.0.iter().copied().find(|&class| u128::from(time.get(class).0) * 2 > u128::from(all.0))
    }

    /// Adds the frame of a box that begins at `x`, and those below it. `above` is who the threads of
    /// the box above are.
    fn push_frames(
        &self,
        hop: &HopBox,
        above: &str,
        depth: usize,
        x: u128,
        (all, window, listed): (Nanos, Nanos, usize),
        frames: &mut Vec<PictureFrame>,
    ) {
        let time = self.time(&hop.time);
        if time == Nanos(0) || depth > MAX_DEPTH {
            return;
        }
        let is_end = hop.children.is_empty() || depth == MAX_DEPTH;
        let dominant = self.dominant(&hop.time);
        let fill = match dominant {
            Some(class) if is_end => palette::class_fill(class),
            _ => palette::frame_fill(FrameKind::Waiter, dominant),
        };
        let number = first_screen::number_of_box(hop, listed);
        let place_of_hop = hop.describe_place();
        let (what, share) = (&hop.what, percent(time, all));
        let over = explain_sum(time, hop, depth, window);
        let of_threads = match &over {
            Some(over) => format!("{time} {over}"),
            None => time.to_string(),
        };
        let (name, mut lines) = match hop.who.as_str() {
            "" => (format!("{number}{what}"), vec![of_threads.clone()]),
            who => {
                // What there is no room for is cut at the end.
                let over = over.map(|over| format!(" ({over})")).unwrap_or_default();
                (format!("{number}{who}"), vec![format!("{time} {what}{over}")])
            }
        };
        let who = if hop.who.is_empty() { above } else { &hop.who };
        let said = [Some(who), Some(what), place_of_hop.as_deref()].into_iter().flatten();
        let said = said.collect::<Vec<_>>().join(" ");
        let detail = match hop.detail.as_str() {
            "" => String::new(),
            detail => format!("; {detail}"),
        };
        lines.extend(place_of_hop.clone());
        frames.push(PictureFrame {
            place: Place { depth, x, width: u128::from(time.0) },
            name,
            short_name: match hop.short_who.as_str() {
                "" => None,
                short => Some(format!("{number}{short}")),
            },
            lines,
            details: format!("{said}; {of_threads}, {share} of what is drawn{detail}"),
            fill,
            is_label: depth == 1 || is_end,
        });
        let mut x = x;
        for child in &hop.children {
            self.push_frames(child, who, depth + 1, x, (all, window, listed), frames);
            x += u128::from(self.time(&child.time).0);
        }
    }
}

/// Says of a box's time that is longer than the window which threads' times it is added up of.
fn explain_sum(time: Nanos, hop: &HopBox, depth: usize, window: Nanos) -> Option<String> {
    match depth {
        1 => over_threads(time, hop.threads, window),
        _ => in_waits_of_threads(time, hop.threads, window),
    }
}

/// What the colours mean, with the share of each.
fn legend(report: &Report, shown: &ShownClasses) -> HeaderLine {
    let time = report.findings.hop_tree.time();
    let all = shown.time(&time);
    let entries = (shown.0.iter()).filter(|&&class| time.get(class) > Nanos(0)).map(|&class| {
        let words = match class {
            BlameClass::Timer => describe_timers(&time),
            _ => header::class_words(class).to_owned(),
        };
        let time = time.get(class);
        (palette::class_fill(class), format!("{words} {time}, {}", percent(time, all)))
    });
    HeaderLine::Legend(entries.collect())
}

/// What the time until a timer was: sleeps on purpose, or waits whose end was a timeout.
fn describe_timers(time: &TimeByClass) -> String {
    let timers = time.get(BlameClass::Timer);
    match time.timeouts() {
        Nanos(0) => "sleeps".to_owned(),
        all if all == timers => "waits until a timeout".to_owned(),
        some => format!("sleeps {}, or waits until a timeout {some}:", timers - some),
    }
}
