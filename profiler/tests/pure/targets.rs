//! A recording that is narrowed to another target after the fact.

use std::{collections::BTreeSet, fs::File, path::Path};

use offwake_analysis::{
    analysis::{Analysis, AnalysisInput, AnalysisOptions},
    formats::FORMATS,
    selection::{Children, ContainerQuery, SelectionError, TargetSelection},
};
use offwake_recording::{
    CgroupInfo, ContainerId, ContainerNames, PodName, ProcessInfo, Recording, Scope,
    ThreadEventReason, stream,
    units::{CgroupId, Tgid, Tid},
};

use crate::draw::{at, edit, live, recording, thread_event};

const WEB: &str = "4f1c0b5a9d3e7f2846b0c8d1e5a37f904f1c0b5a9d3e7f2846b0c8d1e5a37f90";
const DB: &str = "4f112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Makes everybody the target, as `record -a` does.
fn select_all_threads(mut recording: Recording) -> Recording {
    recording.sort();
    recorded_of(&recording, |_| true, "all threads")
}

/// The same records, as if the target had been another one from the start.
fn recorded_of(recording: &Recording, is_target: impl Fn(Tgid) -> bool, words: &str) -> Recording {
    let mut recording = recording.clone();
    recording.meta.target = words.to_owned();
    edit(&mut recording, |waits| {
        waits.iter_mut().for_each(|wait| wait.in_target = is_target(wait.tgid));
    });
    for preemption in &mut recording.preemptions {
        preemption.in_target = is_target(preemption.tgid);
    }
    for thread_event in &mut recording.thread_events {
        thread_event.in_target = is_target(thread_event.tgid);
    }
    for exit in &mut recording.exits {
        exit.in_target = is_target(exit.tgid);
    }
    recording
}

/// Sets what the events of a thread say of it.
fn describe(recording: &mut Recording, tid: u32, tgid: u32, parent: u32, comm: &str) {
    for thread_event in recording.thread_events.iter_mut().filter(|event| event.tid == Tid(tid)) {
        thread_event.tgid = Tgid(tgid);
        thread_event.parent = Tgid(parent);
        thread_event.comm = comm.to_owned();
    }
    edit(recording, |waits| {
        waits
            .iter_mut()
            .filter(|wait| wait.tid == Tid(tid))
            .for_each(|wait| wait.tgid = Tgid(tgid));
    });
    for exit in recording.exits.iter_mut().filter(|exit| exit.tid == Tid(tid)) {
        exit.tgid = Tgid(tgid);
    }
}

/// ```text
/// 1  ─┬─ 7 web ─┬─ (thread 17)
///     │         └─ 8 worker ─── 9 helper, forked in the window
///     ├─ 70 web
///     └─ 60 stranger, who wakes everybody
/// ```
fn machine() -> Recording {
    let mut recording = recording(16);
    live(&mut recording, 7, "##......####....", 60);
    live(&mut recording, 17, "#.........####..", 7);
    live(&mut recording, 8, "###...#####...##", 9);
    live(&mut recording, 9, "    rr###....###", 60);
    live(&mut recording, 70, "##...####.....##", 60);
    live(&mut recording, 60, "################", 7);
    describe(&mut recording, 7, 7, 1, "web");
    describe(&mut recording, 17, 7, 1, "web-io");
    describe(&mut recording, 8, 8, 7, "worker");
    describe(&mut recording, 9, 9, 8, "helper");
    describe(&mut recording, 70, 70, 1, "web");
    describe(&mut recording, 60, 60, 1, "stranger");
    select_all_threads(recording)
}

fn processes(pids: &[u32]) -> TargetSelection {
    TargetSelection {
        processes: pids.iter().copied().map(Tgid).collect(),
        ..TargetSelection::default()
    }
}

fn comms(names: &[&str]) -> TargetSelection {
    let comms = names.iter().map(|name| (*name).to_owned()).collect();
    TargetSelection { comms, ..TargetSelection::default() }
}

fn container(query: &str) -> TargetSelection {
    let container = ContainerQuery::parse(query);
    TargetSelection { container, ..TargetSelection::default() }
}

fn cgroup(path: &str) -> TargetSelection {
    TargetSelection { cgroup: Some(path.to_owned()), ..TargetSelection::default() }
}

/// The tids of the target, and the target in words.
fn select(
    recording: &Recording,
    selection: &TargetSelection,
) -> Result<(Vec<u32>, String), SelectionError> {
    let input = AnalysisInput::new(recording.clone()).with_target(selection)?;
    let report = Analysis::new(&input, AnalysisOptions::default()).into_report();
    let tids = report.threads.iter().map(|thread| thread.tid.0).collect();
    let waiting: BTreeSet<Tid> = report.waits.iter().map(|wait| wait.tid).collect();
    assert!(waiting.iter().all(|tid| report.threads.iter().any(|thread| thread.tid == *tid)));
    Ok((tids, report.meta.target))
}

fn selected(recording: &Recording, selection: &TargetSelection) -> Vec<u32> {
    select(recording, selection).unwrap().0
}

fn refused(recording: &Recording, selection: &TargetSelection) -> String {
    select(recording, selection).unwrap_err().to_string()
}

#[test]
fn a_process_brings_its_threads_and_all_that_descend_from_it() {
    let (tids, target) = select(&machine(), &processes(&[7])).unwrap();
    assert_eq!(tids, [7, 8, 9, 17]);
    assert_eq!(target, "pid 7 and 2 children (of all threads)");
    let (tids, target) = select(&machine(), &processes(&[8])).unwrap();
    assert_eq!((tids, &*target), (vec![8, 9], "pid 8 and 1 child (of all threads)"));
    let (tids, target) = select(&machine(), &processes(&[70, 9, 70])).unwrap();
    assert_eq!((tids, &*target), (vec![9, 70], "pid 70,9 (of all threads)"));
    // Whose parent is among the processes that were asked for is no child beside.
    let (tids, target) = select(&machine(), &processes(&[7, 8])).unwrap();
    assert_eq!((tids, &*target), (vec![7, 8, 9, 17], "pid 7,8 and 1 child (of all threads)"));
}

#[test]
fn a_process_can_be_had_without_its_children() {
    let selection = TargetSelection { children: Children::Excluded, ..processes(&[7]) };
    let (tids, target) = select(&machine(), &selection).unwrap();
    assert_eq!((tids, &*target), (vec![7, 17], "pid 7 without children (of all threads)"));
}

#[test]
fn a_child_stays_one_when_its_parent_has_ended() {
    let mut recording = recording(16);
    live(&mut recording, 7, "##......####....", 60);
    live(&mut recording, 8, "###...###       ", 60);
    live(&mut recording, 9, "    rr###....###", 60);
    describe(&mut recording, 8, 8, 7, "worker");
    describe(&mut recording, 9, 9, 8, "helper");
    // PID 1 adopts it.
    let closing = recording.thread_events.iter_mut().rfind(|event| event.tid == Tid(9)).unwrap();
    assert_eq!(closing.reason, ThreadEventReason::Closing);
    closing.parent = Tgid(1);
    assert_eq!(selected(&select_all_threads(recording), &processes(&[7])), [7, 8, 9]);
}

#[test]
fn a_parent_that_proc_told_of_is_one() {
    let mut recording = machine();
    recording.processes.push(ProcessInfo {
        tgid: Tgid(70),
        at: at(3),
        parent: Some(Tgid(9)),
        executable: None,
        arguments: Vec::new(),
        cgroup: None,
        pid_in_container: None,
        uid: None,
    });
    assert_eq!(selected(&recording, &processes(&[7])), [7, 8, 9, 17, 70]);
}

#[test]
fn whoever_gets_the_id_of_a_child_is_none() {
    let mut recording = recording(16);
    live(&mut recording, 7, "##......####....", 60);
    live(&mut recording, 8, "###..##         ", 60);
    describe(&mut recording, 8, 8, 7, "worker");
    let known = recording.thread_events.len();
    live(&mut recording, 8, "          #..###", 60);
    for thread_event in &mut recording.thread_events[known..] {
        thread_event.parent = Tgid(1);
        thread_event.comm = "stranger".to_owned();
    }
    // The child of the stranger, whose parent's id is that of the worker.
    live(&mut recording, 9, "            ####", 60);
    describe(&mut recording, 9, 9, 8, "theirs");
    let recording = select_all_threads(recording);
    let input = AnalysisInput::new(recording).with_target(&processes(&[7])).unwrap();
    let report = Analysis::new(&input, AnalysisOptions::default()).into_report();
    let comms: Vec<&str> = report.threads.iter().map(|thread| &*thread.comm).collect();
    assert_eq!(comms, ["thread7", "worker"]);
}

#[test]
fn threads_are_selected_by_id_and_by_every_name_that_they_had() {
    let threads = TargetSelection { threads: vec![Tid(17), Tid(9)], ..TargetSelection::default() };
    let (tids, target) = select(&machine(), &threads).unwrap();
    assert_eq!((tids, &*target), (vec![9, 17], "tid 17,9 (of all threads)"));
    let (tids, target) = select(&machine(), &comms(&["web", "helper"])).unwrap();
    assert_eq!((tids, &*target), (vec![7, 9, 70], "comm web,helper (of all threads)"));

    let mut renamed = machine();
    let mut event = thread_event(8, ThreadEventReason::Rename, at(5), at(0));
    event.created = renamed.thread_events.iter().find(|event| event.tid == Tid(8)).unwrap().created;
    event.tgid = Tgid(8);
    event.comm = "fifteen-bytes-1".to_owned();
    renamed.thread_events.push(event);
    renamed.sort();
    for name in ["worker", "fifteen-bytes-1", "fifteen-bytes-123"] {
        assert_eq!(selected(&renamed, &comms(&[name])), [8], "{name}");
    }
    assert!(select(&renamed, &comms(&["fifteen-bytes"])).is_err());
}

/// ```text
/// /web.slice                        7
/// /web.slice/inner                  8, from the middle of the window on
/// /docker/4f1c…                     9: web
/// /docker/4f1c…/nested              17
/// /kubepods/pod1/4f11…              70: db of pod shop/cart
/// /web.slices                       60
/// ```
fn grouped() -> Recording {
    let mut recording = machine();
    let named = |name: &str, pod: Option<&str>| ContainerNames {
        name: Some(name.to_owned()),
        image: None,
        pod: pod.map(|pod| PodName { namespace: "shop".to_owned(), name: pod.to_owned() }),
    };
    let groups = [
        (1, "/".to_owned(), None),
        (7, "/web.slice".to_owned(), None),
        (8, "/web.slice/inner".to_owned(), None),
        (9, format!("/docker/{WEB}"), Some((WEB, named("web", None)))),
        (17, format!("/docker/{WEB}/nested"), Some((WEB, named("web", None)))),
        (70, format!("/kubepods/pod1/{DB}"), Some((DB, named("db", Some("cart"))))),
        (60, "/web.slices".to_owned(), None),
    ];
    for (id, path, container) in groups {
        let id = CgroupId(id);
        let cgroup = CgroupInfo::new(id, path);
        let cgroup = match container {
            Some((id, names)) => cgroup.named(ContainerId::new(id).unwrap(), names),
            None => cgroup,
        };
        recording.cgroups.insert(id, cgroup);
    }
    for thread_event in &mut recording.thread_events {
        let was_elsewhere = thread_event.tid == Tid(8) && thread_event.at < at(8);
        let id = if was_elsewhere { 1 } else { thread_event.tid.0 };
        thread_event.cgroup = CgroupId(u64::from(id));
    }
    recording
}

#[test]
fn a_cgroup_brings_what_is_below_it_and_not_its_neighbour() {
    let recording = grouped();
    let (tids, target) = select(&recording, &cgroup("/sys/fs/cgroup/web.slice/")).unwrap();
    assert_eq!((tids, &*target), (vec![7, 8], "cgroup /web.slice (of all threads)"));
    assert_eq!(selected(&recording, &cgroup("/web.slice/inner")), [8]);
    assert_eq!(selected(&recording, &cgroup("/")), [7, 8, 9, 17, 60, 70]);
    assert!(refused(&recording, &cgroup("/web")).starts_with(
        "the recording has no cgroup /web; the nearest of its cgroups are: /, /web.slice, "
    ));
}

#[test]
fn a_container_is_selected_by_all_that_record_accepts() {
    let recording = grouped();
    for query in ["web", WEB, "4f1c"] {
        assert_eq!(selected(&recording, &container(query)), [9, 17], "{query}");
    }
    for query in ["db", "pod/cart", "pod/cart/db", "4f11"] {
        assert_eq!(selected(&recording, &container(query)), [70], "{query}");
    }
    let (_, target) = select(&recording, &container("pod/cart/db")).unwrap();
    assert_eq!(target, "container db of pod cart (of all threads)");
    assert_eq!(
        refused(&recording, &container("4f1")),
        "container 4f1 may be any of shop/cart/db 4f1122334455, web 4f1c0b5a9d3e; say more digits of one's id, or its whole name"
    );
    assert_eq!(
        refused(&recording, &container("pod/cart/web")),
        "the recording has no container web of pod cart; its containers are: shop/cart/db 4f1122334455, web 4f1c0b5a9d3e"
    );
    assert_eq!(
        refused(&machine(), &container("web")),
        "the recording has no container web; it has no containers at all"
    );
}

#[test]
fn several_criteria_narrow_the_target_further() {
    let both = TargetSelection { comms: vec!["web".to_owned()], ..processes(&[7]) };
    let (tids, target) = select(&machine(), &both).unwrap();
    assert_eq!((tids, &*target), (vec![7], "pid 7 and 2 children, comm web (of all threads)"));
    let neither = TargetSelection { comms: vec!["stranger".to_owned()], ..processes(&[7]) };
    assert_eq!(
        refused(&machine(), &neither),
        "no thread of the recording is all of this: pid 7 and 2 children, comm stranger"
    );
}

#[test]
fn what_matches_nothing_says_what_there_is() {
    assert_eq!(
        refused(&machine(), &processes(&[7, 61])),
        "the recording has no process with the PID 61; its processes are: 60 stranger, 7 web, 70 web, 8 worker, 9 helper"
    );
    let tid = TargetSelection { threads: vec![Tid(18)], ..TargetSelection::default() };
    assert_eq!(
        refused(&machine(), &tid),
        "the recording has no thread with the TID 18; its threads are: 8 worker, 17 web-io, 60 stranger, 7 web, 70 web, 9 helper"
    );
    assert_eq!(
        refused(&machine(), &comms(&["wrker"])),
        "the recording has no thread with the name wrker; its threads' names are: worker, web, helper, stranger, web-io"
    );
}

#[test]
fn what_was_not_recorded_is_said_to_be_missing() {
    let mut recording = recorded_of(&machine(), |tgid| tgid == Tgid(7), "pid 7");
    recording.meta.scope = Scope::Target;
    assert_eq!(
        refused(&recording, &processes(&[60])),
        "no waits of pid 60 were recorded: the recording has those of its own target (pid 7) alone (--scope target)"
    );
    let (tids, target) = select(&recording, &comms(&["web"])).unwrap();
    assert_eq!((tids, &*target), (vec![7], "comm web (of pid 7)"));
    // Narrowed further, what the rest of the target did is known all the same.
    let thread = TargetSelection { threads: vec![Tid(17)], ..TargetSelection::default() };
    let waits = |input: AnalysisInput| {
        let report = Analysis::new(&input, AnalysisOptions::default()).into_report();
        report.waits.into_iter().filter(|wait| wait.tid == Tid(17)).collect::<Vec<_>>()
    };
    let whole = waits(AnalysisInput::new(recording.clone()));
    assert!(whole.iter().any(|wait| wait.blame.iter().any(|part| part.tid == Some(Tid(7)))));
    assert_eq!(waits(AnalysisInput::new(recording).with_target(&thread).unwrap()), whole);
}

/// What is narrowed is, in every format, what would have been recorded of that target alone.
#[test]
fn every_output_follows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo.offwake");
    let demo = stream::read(&File::open(path).unwrap(), 1 << 30).unwrap();
    let store = (demo.thread_events.iter()).find(|event| event.comm == "store").unwrap();
    let pids = [store.tgid.0];
    for (everything, pids, members) in [
        (machine(), &[7][..], vec![7, 8, 9]),
        (select_all_threads(demo.clone()), &pids, pids.to_vec()),
        // Recorded of another target.
        (recorded_of(&machine(), |tgid| tgid == Tgid(60), "pid 60"), &[8], vec![8, 9]),
    ] {
        let narrowed =
            AnalysisInput::new(everything.clone()).with_target(&processes(pids)).unwrap();
        let narrowed = Analysis::new(&narrowed, AnalysisOptions::default());
        let words = &narrowed.report().meta.target;
        let original = recorded_of(&everything, |tgid| members.contains(&tgid.0), words);
        let original = AnalysisInput::new(original);
        let original = Analysis::new(&original, AnalysisOptions::default());
        assert!(!original.report().waits.is_empty());
        for format in FORMATS {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let _written = format.write(&narrowed, &mut one).unwrap();
            let _written = format.write(&original, &mut other).unwrap();
            // The recording itself stays as it is.
            if format.name() == "offwake" {
                stream::write(&everything, &mut &mut *{
                    other.clear();
                    &mut other
                })
                .unwrap();
            }
            assert!(one == other, "{format:?} of {pids:?}");
        }
    }
}
