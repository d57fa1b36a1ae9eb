//! Flame graphs and folded stacks: whatever the view, no time is lost or made, and no name from
//! another process becomes anything but a name.

use std::{collections::BTreeSet, io, sync::Arc};

use inferno::flamegraph::{self, Options};
use offwake_analysis::{
    blame::{BlameGroup, Reason},
    filter::{Filter, IdleWaits},
    report::{
        Report, WaitEntry,
        diff::{Diff, RatePer},
        flame::{
            self, Direction, FlameGraphKind, FrameDetail, FrameKind, GroupBy, ThreadNames, View,
        },
        folded, svg,
    },
};
use offwake_recording::{Recording, units::Nanos};
use proptest::prelude::*;

use crate::{
    draw::edit,
    fixtures::{kernel, user},
    golden::{golden, report, service},
    properties::world,
};

const GRAPHS: [FlameGraphKind; 3] =
    [FlameGraphKind::Chain, FlameGraphKind::OffWake, FlameGraphKind::OffCpu];
const GROUPS: [GroupBy; 4] = [GroupBy::Thread, GroupBy::Process, GroupBy::Cgroup, GroupBy::Cause];
const DIRECTIONS: [Direction; 2] = [Direction::FromWaiter, Direction::FromCulprit];
const NAMES: [ThreadNames; 2] = [ThreadNames::WithIds, ThreadNames::WithoutIds];

fn views() -> Vec<View> {
    let mut views = Vec::new();
    for graph in GRAPHS {
        for by in GROUPS {
            for direction in DIRECTIONS {
                let frames = FrameDetail::All;
                views.extend(NAMES.map(|names| View { graph, by, direction, names, frames }));
            }
        }
    }
    views
}

/// Every frame of every thread.
pub fn all_frames() -> View {
    View { frames: FrameDetail::All, ..View::default() }
}

/// The views that have a name of their own: each differs from the usual one in one thing.
pub fn named_views() -> Vec<(&'static str, View)> {
    let usual = all_frames();
    vec![
        ("off-wake", View { graph: FlameGraphKind::OffWake, ..usual }),
        ("off-cpu", View { graph: FlameGraphKind::OffCpu, ..usual }),
        ("by-process", View { by: GroupBy::Process, ..usual }),
        ("by-cgroup", View { by: GroupBy::Cgroup, ..usual }),
        ("by-cause", View { by: GroupBy::Cause, ..usual }),
        ("reverse", View { direction: Direction::FromCulprit, ..usual }),
    ]
}

pub fn folded_in(report: &Report, view: &View) -> String {
    text(|out| folded::write(report, view, out))
}

pub fn picture_in(report: &Report, view: &View) -> String {
    text(|out| svg::write(report, view, out))
}

fn text(write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes).expect("a Vec takes everything");
    String::from_utf8(bytes).expect("UTF-8")
}

fn blocked(report: &Report) -> Nanos {
    report.waits.iter().map(|wait| wait.blocked_ns).sum()
}

fn in_paths(report: &Report, view: &View) -> Nanos {
    flame::paths(report, view).map(|path| path.blame.ns).sum()
}

/// Each line's frames and values, as the common tools read them.
fn lines(folded: &str) -> Vec<(Vec<&str>, u64)> {
    (folded.lines())
        .map(|line| {
            let (path, value) = line.rsplit_once(' ').expect("a value");
            (path.split(';').collect(), value.parse().expect("a number"))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_view_the_paths_add_up_to_the_blocked_time(world in world()) {
        let report = report(&world.lossy(), &Filter::default());
        for view in views() {
            prop_assert_eq!(in_paths(&report, &view), blocked(&report));
            let folded = folded_in(&report, &view);
            let sum: u64 = lines(&folded).iter().map(|(_, ns)| ns).sum();
            prop_assert_eq!(Nanos(sum), blocked(&report), "{:?}", view);
        }
    }

    #[test]
    fn from_the_culprit_a_path_is_the_same_the_other_way_round(world in world()) {
        let report = report(&world.lossy(), &Filter::default());
        for view in views() {
            let reversed = View { direction: Direction::FromCulprit, ..view };
            let forward = View { direction: Direction::FromWaiter, ..view };
            for (one, other) in flame::paths(&report, &forward).zip(flame::paths(&report, &reversed)) {
                prop_assert!(one.frames.iter().eq(other.frames.iter().rev()));
                prop_assert_eq!(one.blame, other.blame);
            }
        }
    }

    #[test]
    fn what_is_hidden_is_exactly_what_is_said_to_be(world in world()) {
        let recording = world.lossy();
        let all = report(&recording, &Filter::default());
        for groups in [
            vec![BlameGroup::External],
            vec![BlameGroup::Unattributed],
            vec![BlameGroup::External, BlameGroup::Unattributed],
        ] {
            for idle in [IdleWaits::Shown, IdleWaits::Hidden] {
                let hidden = groups.iter().copied().collect();
                let some = report(&recording, &Filter { idle, hidden, ..Filter::default() });
                let left_out: Nanos = some.filter.hidden.values().copied().sum();
                for (_, view) in named_views() {
                    let shown = in_paths(&some, &view);
                    prop_assert_eq!(shown + left_out + some.filter.left_out_ns, blocked(&all));
                    prop_assert!(
                        flame::paths(&some, &view).all(|path| !groups.contains(&path.blame.kind.group()))
                    );
                }
            }
        }
    }

    #[test]
    fn hops_are_as_wide_as_what_waited_for_them_at_most(world in world()) {
        let report = report(&world.lossy(), &Filter::default());
        let picture = picture_in(&report, &View::default());
        if blocked(&report) == Nanos(0) {
            return Ok(());
        }
        let frames = drawn(&picture);
        prop_assert!(frames.len() > 1, "an empty picture: {picture}");
        if report.findings.hop_tree.boxes.is_empty() {
            return Ok(());
        }
        let rows: BTreeSet<u64> = frames.iter().map(|&(.., y)| y as u64).collect();
        let row = |n: usize| frames.iter().filter(move |(.., y)| rows.iter().nth(n) == Some(&(*y as u64)));
        let root = &frames[0];
        prop_assert_eq!(row(1).map(|(_, _, width, _)| width).sum::<u64>(), root.2);
        for (title, x, width, y) in &frames[1..] {
            // It lies below one frame, as wide as this one or wider.
            let holds = |(_, above, wide, at): &&(String, u64, u64, f64)| {
                (y - at - 49.0).abs() < 0.5 && above <= x && x + width <= above + wide
            };
            prop_assert_eq!(frames.iter().filter(holds).count(), 1, "{}", title);
        }
    }

    #[test]
    fn names_of_any_kind_stay_names(comm in ".{1,15}", function in ".{1,40}") {
        let recording = named(&comm, &function);
        let report = report(&recording, &Filter::default());
        for view in named_views().into_iter().map(|(_, view)| view).chain([View::default()]) {
            let folded = folded_in(&report, &view);
            prop_assert!(folded.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", folded);
            let read = lines(&folded);
            let lengths: Vec<_> =
                flame::paths(&report, &view).map(|path| path.frames.len()).collect();
            prop_assert!(read.iter().all(|(frames, _)| lengths.contains(&frames.len())));
            let sum: u64 = read.iter().map(|(_, ns)| ns).sum();
            prop_assert_eq!(Nanos(sum), blocked(&report));
            prop_assert!(read.iter().flat_map(|(frames, _)| frames).all(|frame| !frame.is_empty()));
            let picture = picture_in(&report, &view);
            let scripts = svg_of(&picture)
                .descendants()
                .filter(|node| node.tag_name().name() == "script" && node.has_tag_name((SVG, "script")))
                .count();
            prop_assert_eq!(scripts, 1, "the picture's own");
        }
    }
}

const SVG: &str = "http://www.w3.org/2000/svg";

fn svg_of(text: &str) -> roxmltree::Document<'_> {
    roxmltree::Document::parse(text).expect("XML")
}

/// The service, its threads and the functions of one stack called so.
fn named(comm: &str, function: &str) -> Recording {
    let mut recording = service();
    for thread_event in &mut recording.thread_events {
        thread_event.comm = comm.to_owned();
    }
    // `user` takes `<` for the end of an inlined function, and `+` for an offset.
    let function = function.replace(['<', '+'], "(");
    let waited = user(&mut recording, 7, &[&format!("web {function}")]);
    let slept = kernel(&mut recording, &[&function]);
    edit(&mut recording, |waits| {
        for wait in waits {
            (wait.user_stack, wait.kernel_stack) = (waited, slept);
        }
    });
    recording
}

#[test]
fn every_view_of_the_service_is_as_blessed() {
    let report = report(&service(), &Filter::default());
    for (name, view) in named_views() {
        golden(&format!("service.{name}.folded"), &folded_in(&report, &view));
        golden(&format!("service.{name}.svg"), &picture_in(&report, &view));
    }
    golden("service.all-frames.svg", &picture_in(&report, &all_frames()));
}

#[test]
fn a_picture_says_what_its_filter_left_out() {
    let hidden = [BlameGroup::External].into();
    let filter = Filter { idle: IdleWaits::Hidden, hidden, ..Filter::default() };
    let report = report(&service(), &filter);
    let picture = picture_in(&report, &View::default());
    let time = report.filter.hidden["external"];
    assert!(time > Nanos(0));
    assert!(picture.contains(&format!("left out: {time} of external time")), "{picture}");
}

/// Each frame of a picture: what it says, and the nanoseconds that it begins at and is wide.
fn drawn(picture: &str) -> Vec<(String, u64, u64, f64)> {
    let svg = svg_of(picture);
    let frames = svg.descendants().find(|node| node.attribute("id") == Some("frames")).unwrap();
    let number = |node: roxmltree::Node<'_, '_>, name: &str| {
        let attribute = node.attributes().find(|attribute| attribute.name() == name).unwrap();
        attribute.value().parse::<f64>().unwrap()
    };
    (frames.children().filter(|node| node.has_tag_name((SVG, "g"))))
        .map(|g| {
            let title = g.children().find(|node| node.has_tag_name((SVG, "title"))).unwrap();
            let rect = g.children().find(|node| node.has_tag_name((SVG, "rect"))).unwrap();
            let fg = |name: &str| {
                let fg = rect.attribute(("http://github.com/jonhoo/inferno", name)).unwrap();
                fg.parse::<u64>().unwrap()
            };
            (title.text().unwrap().to_owned(), fg("x"), fg("w"), number(rect, "y"))
        })
        .collect()
}

/// Whether a thread was in one and the same wait from the window's start to its end.
fn never_woke(report: &Report, wait: &WaitEntry) -> bool {
    wait.blocked_ns == report.window.duration_ns
        && wait.blame.iter().all(|part| part.reason == Some(Reason::StillBlocked))
}

#[test]
fn every_frame_of_the_paths_is_drawn_with_its_time_but_those_of_threads_that_never_woke() {
    let report = report(&service(), &Filter::default());
    let asleep: Nanos = (report.waits.iter())
        .filter(|wait| never_woke(&report, wait))
        .map(|wait| wait.blocked_ns)
        .sum();
    assert!(asleep > Nanos(0));
    for view in views() {
        let picture = picture_in(&report, &view);
        assert!(picture.contains(&format!("asleep all the time, {asleep}")), "{view:?}");
        let frames = drawn(&picture);
        let all = blocked(&report) - asleep;
        let root = frames.iter().find(|(title, ..)| title.starts_with("all: ")).unwrap();
        assert_eq!(root.2, all.0, "{view:?}");
        let awake = |path: &flame::Path<'_>| !never_woke(&report, path.wait);
        for path in flame::paths(&report, &view).filter(awake) {
            // Between what a path's root and its end begin with there is a column with all frames.
            for frame in &path.frames {
                let name: String = frame.name.chars().take_while(|c| !c.is_control()).collect();
                assert!(
                    frames.iter().any(|(title, _, width, _)| {
                        title.starts_with(&name) && *width >= path.blame.ns.0
                    }),
                    "{name:?} is not drawn, {view:?}"
                );
            }
        }
        for (title, ..) in &frames {
            // The script takes the last brackets off to have the name.
            let details = title.rsplit_once(" (").expect("details").1;
            assert!(details.ends_with(')') && !details.contains('('), "{title}");
            assert!(details.contains('%') && details.contains("wait"), "{title}");
        }
    }
}

/// inferno's own reader, which we did not write, reads them as flamegraph.pl does.
#[test]
fn folded_stacks_are_read_by_inferno() {
    let report = report(&service(), &Filter::default());
    for view in views() {
        let folded = folded_in(&report, &view);
        let mut options = Options::default();
        let mut picture = Vec::new();
        flamegraph::from_lines(&mut options, folded.lines(), &mut picture).unwrap();
        let picture = String::from_utf8(picture).unwrap();
        let total = format!("total_samples=\"{}\"", blocked(&report).0);
        assert!(picture.contains(&total), "{view:?}");
    }
}

#[test]
fn nothing_has_changed_between_a_recording_and_itself() {
    let report = report(&service(), &Filter::default());
    let diff = Diff { before: &report, after: &report, per: RatePer::Second };
    for view in views() {
        let folded = text(|out| diff.write_folded(&view, out));
        for line in folded.lines() {
            let mut values = line.rsplit(' ');
            assert_eq!(values.next(), values.next(), "{line}");
        }
        let picture = text(|out| svg::write_diff(&diff, &view, out));
        assert!(drawn(&picture).iter().all(|(title, ..)| title.contains("+0 ns/s")), "{picture}");
    }
}

#[test]
fn windows_of_any_length_compare_by_the_second() {
    let before = report(&service(), &Filter::default());
    let mut after = before.clone();
    after.window.duration_ns = Nanos(before.window.duration_ns.0 * 2);
    let folded = text(|out| {
        Diff { before: &before, after: &after, per: RatePer::Second }
            .write_folded(&View::default(), out)
    });
    for line in folded.lines() {
        let values: Vec<u64> = line.rsplit(' ').take(2).map(|n| n.parse().unwrap()).collect();
        assert!(values[1].abs_diff(values[0] * 2) <= 1, "{line}");
    }
}

#[test]
fn threads_of_one_name_compare_whatever_their_ids() {
    let before = report(&service(), &Filter::default());
    let mut after = before.clone();
    for wait in &mut after.waits {
        wait.tid.0 += 1000;
        for part in &mut wait.blame {
            part.chain.iter_mut().for_each(|hop| Arc::make_mut(hop).thread.tid.0 += 1000);
        }
    }
    let folded = text(|out| {
        Diff { before: &before, after: &after, per: RatePer::Second }
            .write_folded(&View::default(), out)
    });
    assert!(!folded.is_empty() && folded.lines().all(|line| !line.ends_with(" 0")), "{folded}");
}

/// inferno's own reader takes the first value for the one before.
#[test]
fn two_values_are_read_by_inferno() {
    let (before, mut after) =
        (report(&service(), &Filter::default()), report(&service(), &Filter::default()));
    for part in after.waits.iter_mut().flat_map(|wait| &mut wait.blame) {
        part.ns = Nanos(part.ns.0 / 2);
    }
    let folded = text(|out| {
        Diff { before: &before, after: &after, per: RatePer::Second }
            .write_folded(&View::default(), out)
    });
    let sum: u64 =
        folded.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut Options::default(), folded.lines(), &mut picture).unwrap();
    let picture = String::from_utf8(picture).unwrap();
    assert!(picture.contains(&format!("total_samples=\"{sum}\"")), "{folded}");
    assert!(picture.contains("; -"), "nothing is shorter: {picture}");
}

#[test]
fn a_comparison_is_as_blessed() {
    let (before, mut after) =
        (report(&service(), &Filter::default()), report(&service(), &Filter::default()));
    // The lock is waited for twice as long, and the reply no longer.
    for wait in &mut after.waits {
        if wait.cause.name() == "futex" {
            wait.blame.iter_mut().for_each(|part| part.ns = Nanos(part.ns.0 * 2));
        }
    }
    after.waits.retain(|wait| wait.cause.name() != "socket");
    let diff = Diff { before: &before, after: &after, per: RatePer::Second };
    golden("service.diff.folded", &text(|out| diff.write_folded(&View::default(), out)));
    golden("service.diff.svg", &text(|out| svg::write_diff(&diff, &View::default(), out)));
    let summary = text(|out| offwake_analysis::report::diff::summary::write(&diff, out));
    assert!(summary.lines().all(|line| line.chars().count() <= 100), "{summary}");
    golden("service.diff.summary.txt", &summary);
}

#[test]
fn no_waker_of_off_wake_paths_waits() {
    let report = report(&service(), &Filter::default());
    let view = View { graph: FlameGraphKind::OffWake, ..View::default() };
    for path in flame::paths(&report, &view) {
        let count = |kind: FrameKind| path.frames.iter().filter(|f| f.kind == kind).count();
        assert!(count(FrameKind::Separator) <= 1 && count(FrameKind::Waker) <= 1);
        assert_eq!(count(FrameKind::Separator), path.blame.chain.len().min(1));
    }
}
