//! The page: what it holds, how large it can become, and that nothing in it can break out.

use std::{fs, path::Path};

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::{Filter, IdleWaits},
    report::{
        Report,
        html::{self, Lanes, MAX_PAGE_BYTES},
    },
    requests::RequestAnalysis,
    timeline::Timeline,
};
use offwake_recording::{
    AddressSpace, Function, Recording, Stack, StackEnd, StackRef, ThreadEventReason, ThreadRef,
    Window, stream,
    units::{StackId, Tgid, Tid, Timestamp},
};
use serde_json::Value;

use crate::{
    draw::{at, recording, thread_event, wait, wake_by},
    golden::{golden, service},
    open_waits::{asleep, waits_in},
    quotas::{add_quota, throttled_thread},
};

fn page_of(recording: &Recording, filter: &Filter) -> (Report, String) {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let report = Report::new(&blame, filter);
    let lanes = Lanes::new(&blame, &report.threads);
    let mut bytes = Vec::new();
    let requests = RequestAnalysis::find(&blame);
    html::write(&report, &lanes, requests.summary(), &mut bytes).unwrap();
    (report, String::from_utf8(bytes).unwrap())
}

const DATA: &str = r#"<script type="application/json" id="data">"#;

/// What stands before the data, the data, and what comes after.
fn pieces(page: &str) -> (&str, &str, &str) {
    let (before, rest) = page.split_once(DATA).unwrap();
    let (data, after) = rest.split_once("</script>").unwrap();
    (before, data, after)
}

fn data_of(page: &str) -> Value {
    serde_json::from_str(pieces(page).1).unwrap()
}

fn sum(list: &Value, key: &str) -> u64 {
    list.as_array().unwrap().iter().map(|entry| entry[key].as_u64().unwrap()).sum()
}

#[test]
fn what_the_page_shows_is_golden() {
    let (_, page) = page_of(&service(), &Filter::default());
    let data = serde_json::to_string_pretty(&data_of(&page)).unwrap();
    golden("service.html.json", &(data + "\n"));
}

/// A recording of real programs.
fn replayed(name: &str) -> Recording {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let bytes = fs::read(data.join(format!("{name}.offwake"))).unwrap();
    stream::read(&bytes[..], 64 << 20).unwrap()
}

#[test]
fn findings_have_the_lines_that_the_terminal_has_and_begin_as_there() {
    let list = |recording: &Recording| {
        data_of(&page_of(recording, &Filter::default()).1)["findings"]["list"].clone()
    };
    let found = list(&replayed("demo"));
    let lines = |n: usize| found[n]["lines"].as_array().unwrap().clone();
    let is_there = |line: &Value| line["is_folded"].is_null();
    // The first one in full, and later ones with the hops between the waiter and the cause.
    assert!(lines(0).len() == 5 && lines(0).iter().all(is_there), "{found:#}");
    let of_gateway: Vec<_> = lines(2).into_iter().filter(is_there).collect();
    let text = |n: usize| of_gateway[n]["text"].as_str().unwrap();
    assert!(text(1).contains("worker-*") && text(2).contains("store-*"), "{of_gateway:#?}");
    assert!(found[0]["leading"].is_null(), "it has ended: {found:#}");
    let mut throttled = throttled_thread();
    add_quota(&mut throttled);
    throttled.sort();
    let found = list(&throttled);
    assert_eq!(found[0]["leading"], "THROTTLED 82.0 of 100 ms", "{found:#}");
    let mut stuck = asleep(&[7]);
    waits_in(&mut stuck, 7, "pthread_mutex_lock", "report", 128);
    stuck.sort();
    let found = list(&stuck);
    assert!(found[0]["leading"].as_str().unwrap().starts_with("STILL WAITING ≥"), "{found:#}");
}

#[test]
fn a_loss_stands_first_only_if_it_could_change_the_answer() {
    let head = |recording: &Recording| {
        let head = &data_of(&page_of(recording, &Filter::default()).1)["head"];
        [&head["loss_relevance"], &head["loss"]].map(|word| word.as_str().unwrap().to_owned())
    };
    let [relevance, loss] = head(&service());
    assert!(relevance == "could_change_the_answer" && loss.starts_with("INCOMPLETE: 9%"), "{loss}");
    let mut demo = replayed("demo");
    assert_eq!(head(&demo), ["irrelevant", "lost: nothing"]);
    demo.loss.stacks = 3;
    assert_eq!(head(&demo), ["irrelevant", "no relevant loss (3 stacks)"]);
}

#[test]
fn all_but_the_data_is_the_same_in_every_page() {
    let (_, one) = page_of(&service(), &Filter::default());
    let (_, other) = page_of(&recording(3), &Filter::default());
    let ((before, _, after), (other_before, _, other_after)) = (pieces(&one), pieces(&other));
    assert_eq!((before, after), (other_before, other_after));
    assert!(!before.contains("{{") && !after.contains("{{code"));
    assert_eq!(page_of(&service(), &Filter::default()).1, one);
}

#[test]
fn every_picture_adds_up_to_the_report() {
    let (report, page) = page_of(&service(), &Filter::default());
    let data = data_of(&page);
    let blocked: u64 = report.waits.iter().map(|wait| wait.blocked_ns.0).sum();
    assert_eq!(data["flame"]["ns"][0], blocked);
    assert_eq!(
        sum(&data["waits"]["list"], "ns") + data["waits"]["left_out_ns"].as_u64().unwrap(),
        blocked
    );
    for wait in data["waits"]["list"].as_array().unwrap() {
        let parts = sum(&wait["parts"], "ns") + wait["parts_left_out_ns"].as_u64().unwrap();
        assert_eq!(wait["ns"], parts);
    }
    // A box is as wide as those on it and what ends there.
    let column = |name: &str| -> Vec<u64> {
        data["flame"][name].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
    };
    let (parents, ns, kinds) = (column("parent"), column("ns"), column("kind"));
    for (place, &width) in ns.iter().enumerate() {
        let on_it = parents.iter().zip(&ns).skip(1).filter(|&(&parent, _)| parent == place as u64);
        let on_it: u64 = on_it.map(|(_, &ns)| ns).sum();
        assert_eq!(on_it, if kinds[place] == 6 { 0 } else { width }, "box {place}");
    }
    // The classes are the blocked time, gaps included.
    let total = &data["ledgers"]["total"];
    let blocked: u64 = (3..6).map(|column| total[column].as_u64().unwrap()).sum();
    let classes = data["ledgers"]["classes"].as_array().unwrap();
    assert_eq!(classes.iter().map(|ns| ns.as_u64().unwrap()).sum::<u64>(), blocked);
}

#[test]
fn a_lane_is_its_threads_life() {
    let recording = service();
    let timeline = Timeline::build(&recording);
    let (_, page) = page_of(&recording, &Filter::default());
    let data = data_of(&page);
    let start = recording.meta.window.start;
    for lane in data["timeline"]["lanes"].as_array().unwrap() {
        let name = data["texts"][lane["text"].as_u64().unwrap() as usize].as_str().unwrap();
        let tid: u32 = name.rsplit(' ').next().unwrap().parse().unwrap();
        let thread = timeline.threads.iter().find(|thread| thread.tid == Tid(tid)).unwrap();
        let exact: Vec<u64> =
            lane["exact"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        let mut begin = lane["from_ns"].as_u64().unwrap();
        let begins: Vec<u64> = (exact.chunks(2))
            .map(|pair| {
                begin += pair[0];
                begin
            })
            .collect();
        let track: Vec<u64> = thread.track.iter().map(|i| i.from.since(start).0).collect();
        assert_eq!(begins, track, "{name}");
    }
}

/// Whatever the filter keeps from the waits, the page says, and its ledger has all.
#[test]
fn what_the_filter_leaves_out_is_said() {
    let filter = Filter { min: Some(crate::draw::ticks(7)), ..Filter::default() };
    let (_, all) = page_of(&service(), &Filter::default());
    let (_, some) = page_of(&service(), &filter);
    let (all, some) = (data_of(&all), data_of(&some));
    assert_eq!(all["ledgers"]["total"], some["ledgers"]["total"]);
    assert_eq!(all["head"]["filter"], Value::Array(Vec::new()));
    let words = some["head"]["filter"].to_string();
    assert!(words.contains("at least 7.00 ms") && words.contains("left out"), "{words}");
    assert_eq!(some["ledgers"]["classes"], Value::Null);
    let hidden = Filter { idle: IdleWaits::Hidden, ..Filter::default() };
    let (_, hidden) = page_of(&service(), &hidden);
    assert!(data_of(&hidden)["head"]["filter"].to_string().contains("idle waits hidden"));
}

#[test]
fn no_name_ends_its_script_or_reaches_the_page_raw() {
    const NAME: &str = "</script><script>alert(1)</script><!--\u{1b}[2J\u{202e}\u{2028}\"\\";
    let mut recording = service();
    for thread_event in &mut recording.thread_events {
        thread_event.comm = NAME.to_owned();
    }
    for frame in recording.stacks.frames.values_mut() {
        frame.functions = vec![Function::named(NAME)];
    }
    recording.meta.target = NAME.to_owned();
    recording.meta.host = NAME.to_owned();
    recording.meta.kernel = NAME.to_owned();
    recording.meta.version = NAME.to_owned();
    let (_, page) = page_of(&recording, &Filter::default());
    let (before, data, after) = pieces(&page);
    assert!(!data.contains('<'));
    let (_, plain) = page_of(&service(), &Filter::default());
    assert_eq!((before, after), (pieces(&plain).0, pieces(&plain).2));
    let texts = data_of(&page).to_string();
    assert!(texts.contains("</script><script>alert(1)"));
    let hidden = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2028}');
    assert!(!data.contains(hidden), "{data}");
}

#[test]
fn a_page_of_nothing_is_one_all_the_same() {
    let (_, page) = page_of(&Recording::default(), &Filter::default());
    assert_eq!(data_of(&page)["waits"]["list"], Value::Array(Vec::new()));
}

/// 5,000 threads of 500 processes, 40 waits each, over ten seconds. A few that never wait wake them.
fn large() -> Recording {
    const THREADS: u32 = 5_000;
    const WAKERS: u32 = 10;
    let mut r = recording(10_000);
    let tid = |n: u32| 100_000 + n;
    let tgid = |n: u32| Tgid(tid(n / 10 * 10));
    for n in 0..THREADS + WAKERS {
        for reason in [ThreadEventReason::Opening, ThreadEventReason::Closing] {
            let moment = if reason == ThreadEventReason::Opening { at(0) } else { at(10_000) };
            let seen = thread_event(tid(n), reason, moment, Timestamp(u64::from(n)));
            r.thread_events.push(offwake_recording::ThreadEvent {
                tgid: tgid(n),
                in_target: n < THREADS,
                phase: offwake_recording::Phase::OnCpu,
                seq: if n < THREADS && reason == ThreadEventReason::Closing { 40 } else { 0 },
                ..seen
            });
        }
        if n >= THREADS {
            continue;
        }
        for nth in 0..40 {
            let off = Timestamp(at(nth as usize * 250).0 + u64::from(n) * 1_000);
            let on = Timestamp(off.0 + 30_000_000 + u64::from(n % 7) * 1_000_000);
            let waker = THREADS + nth % WAKERS;
            let mut wake = wake_by(tid(waker), Timestamp(on.0 - 1_000));
            wake.current = ThreadRef { tid: Tid(tid(waker)), tgid: tgid(waker) };
            let wait = wait(tid(n), nth + 1, off, on);
            let (tgid, wake) = (tgid(n), Some(wake));
            r.waits.push(&offwake_recording::Wait { tgid, in_target: true, wake, ..wait });
        }
    }
    r.sort();
    r
}

#[test]
fn five_thousand_threads_make_a_small_page() {
    let recording = large();
    assert_eq!(recording.waits.len(), 200_000);
    let (report, page) = page_of(&recording, &Filter::default());
    assert!(page.len() < MAX_PAGE_BYTES, "{} bytes", page.len());
    let data = data_of(&page);
    let count = |list: &Value| list.as_array().unwrap().len();
    assert_eq!(count(&data["ledgers"]["threads"]["rows"]), 5_000);
    assert!(count(&data["waits"]["list"]) <= 2_000);
    assert!(count(&data["flame"]["ns"]) <= 24_000);
    assert!(count(&data["graphs"]["threads"]["edges"]) <= 60);
    assert_eq!(count(&data["timeline"]["lanes"]), 150);
    assert!(count(&data["timeline"]["waits"]) <= 3_000);
    // What is not there is said.
    assert_eq!(data["timeline"]["threads_left_out"], 4_850);
    assert!(data["timeline"]["waits_left_out"].as_u64() >= Some(3_000));
    let listed: u64 = sum(&data["waits"]["list"], "count");
    assert_eq!(listed + data["waits"]["left_out"].as_u64().unwrap(), 200_000);
    let blocked: u64 = report.waits.iter().map(|wait| wait.blocked_ns.0).sum();
    assert_eq!(data["flame"]["ns"][0], blocked);
}

/// Names of a megabyte, stacks of thousands of frames, times to the end of time.
#[test]
fn whatever_is_recorded_the_page_stays_within_its_size() {
    let mut r = recording(1);
    r.meta.window = Window { start: at(0), end: Timestamp(u64::MAX) };
    let long = "\u{1b}<".repeat(500_000);
    let frames: Vec<_> = (0..3_000).map(offwake_recording::FrameId).collect();
    for &id in &frames {
        r.stacks.frames.insert(
            id,
            offwake_recording::Frame {
                address: 1,
                kind: offwake_recording::AddressKind::Return,
                module: None,
                module_offset: None,
                functions: vec![Function::named(format!("{}{}", id.0, "<\u{7}".repeat(2_000)))],
            },
        );
    }
    for stack in 0..60 {
        let mut frames = frames.clone();
        frames.rotate_left(stack * 40);
        let id = StackId(stack as u64 + 1);
        r.stacks.stacks.insert(
            id,
            Stack { space: AddressSpace::Process(Tgid(7)), frames, end: StackEnd::Unknown },
        );
        let mut wait = wait(7, stack as u32 + 1, at(stack * 4), at(stack * 4 + 2));
        wait.user_stack = StackRef::Id(id);
        wait.wake = Some(wake_by(8, at(stack * 4 + 1)));
        r.waits.push(&wait);
    }
    r.waits.push(&wait(8, 1, at(0), Timestamp(u64::MAX)));
    for tid in [7, 8] {
        let seen = thread_event(tid, ThreadEventReason::Opening, at(0), at(0));
        r.thread_events.push(offwake_recording::ThreadEvent { comm: long.clone(), ..seen });
    }
    r.sort();
    let (_, page) = page_of(&r, &Filter::default());
    assert!(page.len() < MAX_PAGE_BYTES, "{} bytes", page.len());
    assert!(data_of(&page)["texts_left_out"].as_u64() > Some(0));
}
