//! Threads that live in containers are said to, wherever they are named.

use offwake::top::{Key, ViewState as Screen};
use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    report::{Report, flame::View, folded, html, summary, svg},
    requests::RequestAnalysis,
    timeline::Timeline,
};
use offwake_recording::{
    CgroupInfo, ContainerNames, PodName, ProcessInfo, Recording,
    units::{CgroupId, Tgid},
};

use crate::{
    draw::{at, edit, live, recording},
    formats, top,
};

const WEB: &str = "4f1c0b5a9d3e7f2846b0c8d1e5a37f904f1c0b5a9d3e7f2846b0c8d1e5a37f90";
const DB: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Thread 7 of one container waits for thread 60 of another.
///
/// ```text
/// web   7   ##..........##
/// db    60  ##############
/// ```
fn two_containers() -> Recording {
    let mut recording = recording(14);
    live(&mut recording, 7, "##..........##", 60);
    live(&mut recording, 60, "##############", 7);
    edit(&mut recording, |waits| {
        waits.iter_mut().for_each(|wait| wait.cgroup = cgroup_of(wait.tid.0));
    });
    for thread_event in &mut recording.thread_events {
        thread_event.cgroup = cgroup_of(thread_event.tid.0);
    }
    let pod = Some(PodName { namespace: "shop".to_owned(), name: "cart-7d9f".to_owned() });
    for (tid, id, name, pod) in [(7, WEB, "web", None), (60, DB, "db<b>\u{1b}[31m;x", pod)] {
        let image = Some(format!("{name}:1"));
        let names = ContainerNames { name: Some(name.to_owned()), image, pod };
        let path = format!("/docker/{id}");
        let cgroup = cgroup_of(tid);
        let known = CgroupInfo { names, ..CgroupInfo::new(cgroup, path) };
        recording.cgroups.insert(cgroup, known);
        recording.processes.push(ProcessInfo {
            tgid: Tgid(tid),
            at: at(0),
            parent: None,
            executable: None,
            arguments: Vec::new(),
            cgroup: None,
            pid_in_container: Some(tid + 1),
            uid: None,
        });
    }
    recording
}

fn cgroup_of(tid: u32) -> CgroupId {
    CgroupId(u64::from(tid))
}

fn with_report(recording: &Recording, check: impl FnOnce(&Blame<'_>, &Report)) {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    check(&blame, &Report::new(&blame, &Filter::default()));
}

fn text_of(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn blame_that_leads_into_another_container_says_its_name() {
    with_report(&two_containers(), |_, report| {
        let db = "shop/cart-7d9f/db<b>\u{1b}[31m;x";
        let labels: Vec<_> = report.containers.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels, [db, "web"]);
        let [web] = &report.processes[..] else { panic!("{:?}", report.processes) };
        assert_eq!((web.container.as_deref(), web.pid_in_container), (Some("web"), Some(8)));
        let waits = report.waits.iter().filter(|wait| wait.blocked_ns.0 > 0);
        for wait in waits {
            assert_eq!(wait.container.as_deref(), Some("web"));
            assert_eq!(wait.waker.as_ref().unwrap().container.as_deref(), Some(db));
            for part in &wait.blame {
                assert_eq!(part.container.as_deref(), Some(db), "{part:?}");
                assert_eq!(part.chain[0].thread.container.as_deref(), Some(db));
            }
        }
    });
}

#[test]
fn texts_name_the_container_and_its_pids_outside_and_inside_and_are_harmless() {
    with_report(&two_containers(), |blame, report| {
        let summary = text_of(|out| summary::write_details(report, out));
        for line in [
            "  web (web:1, 4f1c0b5a9d3e): thread7 7 (8 inside)",
            "thread7 7 in web: other",
            "woken by thread60 60 in shop/cart-7d9f/db<b>\\x1b[31m;x",
            "= work of thread60 60 in shop/cart-7d9f/db<b>\\x1b[31m;x 100.0%",
        ] {
            assert!(summary.contains(line), "no {line:?} in {summary}");
        }
        let folded = text_of(|out| folded::write(report, &View::default(), out));
        assert!(folded.starts_with("thread7-7 in web;"), "{folded}");
        assert!(folded.contains(";thread60-60 in shop/cart-7d9f/db<b>?[31m:x;[work] "), "{folded}");
        let svg = text_of(|out| svg::write(report, &View::default(), out));
        assert!(svg.contains("thread7 7 in web (PID 8 there)") && !svg.contains("<b>"), "{svg}");
        let requests = RequestAnalysis::find(blame);
        let lanes = html::Lanes::new(blame, &report.threads);
        let html = text_of(|out| html::write(report, &lanes, requests.summary(), out));
        assert!(html.contains("thread7 7 in web") && !html.contains("db<b>"));
        for text in [summary, folded, svg, html] {
            assert!(!text.contains('\u{1b}'));
        }
    });
}

#[test]
fn a_profile_for_pprof_has_the_waiters_container_as_a_label_and_the_wakers_beside_its_name() {
    with_report(&two_containers(), |_, report| {
        let profile = formats::profile(report);
        let of = |name: &str| {
            let labels = profile.samples.iter().flat_map(|sample| &sample.labels);
            let found = labels.filter(|label| formats::text(&profile, label.key) == name);
            found.map(|label| formats::text(&profile, label.str)).collect::<Vec<_>>()
        };
        assert_eq!(of("container"), vec!["web"; profile.samples.len()]);
        let waker = "thread60 60 in shop/cart-7d9f/db<b>?[31m;x";
        assert_eq!(of("waker"), vec![waker; profile.samples.len()]);
    });
}

#[test]
fn rows_of_the_live_view_name_the_container() {
    let recording = two_containers();
    let mut screen = Screen::default();
    let picture = top::picture_of(top::bytes(&recording));
    for _ in ["processes", "threads"] {
        let text = top::text(&screen, &picture, top::LARGE);
        let ledger =
            text.lines().find(|line| line.contains("thread7 7 in web") && line.contains('%'));
        assert!(ledger.is_some(), "{text}");
        assert!(text.contains("work of thread60 60 in shop/cart-7d9f/db"), "{text}");
        screen.handle_key(Key::Char('t'), Some(&picture));
    }
}

#[test]
fn a_container_that_nobody_could_name_goes_by_its_id() {
    let mut recording = two_containers();
    for cgroup in recording.cgroups.values_mut() {
        cgroup.names = ContainerNames::default();
    }
    with_report(&recording, |_, report| {
        let folded = text_of(|out| folded::write(report, &View::default(), out));
        assert!(folded.starts_with("thread7-7 in 4f1c0b5a9d3e;"), "{folded}");
    });
}
