//! Pictures of hops, rule by rule: what their heads and boxes say, and what is left out.

use offwake_analysis::{
    filter::Filter,
    report::{Report, flame::View, svg},
};
use offwake_recording::{
    Recording, WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{CLOCK_NANOSLEEP, POLL, kernel, syscall, user},
    golden::report as build_report,
};

const ACCEPT: u32 = 43;
const LENGTH: usize = 1_000;

fn report(recording: &mut Recording) -> Report {
    recording.sort();
    build_report(recording, &Filter::default())
}

/// The texts above the frames.
fn head(report: &Report) -> String {
    let mut picture = Vec::new();
    svg::write(report, &View::default(), &mut picture).expect("a Vec takes everything");
    let picture = String::from_utf8(picture).expect("UTF-8");
    let document = roxmltree::Document::parse(&picture).expect("XML");
    let texts = document.root_element().descendants().filter(|node| node.has_tag_name("text"));
    let is_above = |node: &roxmltree::Node<'_, '_>| {
        node.ancestors().all(|above| above.attribute("id") != Some("frames"))
    };
    texts.filter(is_above).filter_map(|node| node.text()).collect::<Vec<_>>().join("\n")
}

/// All texts that are drawn.
fn texts(report: &Report) -> Vec<String> {
    let mut picture = Vec::new();
    svg::write(report, &View::default(), &mut picture).expect("a Vec takes everything");
    let picture = String::from_utf8(picture).expect("UTF-8");
    let document = roxmltree::Document::parse(&picture).expect("XML");
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    texts.filter_map(|node| node.text()).map(str::to_owned).collect()
}

/// The names of the boxes, with what stands in their titles.
fn titles(report: &Report) -> Vec<String> {
    let mut picture = Vec::new();
    svg::write(report, &View::default(), &mut picture).expect("a Vec takes everything");
    let picture = String::from_utf8(picture).expect("UTF-8");
    let document = roxmltree::Document::parse(&picture).expect("XML");
    let titles = document.descendants().filter(|node| node.has_tag_name("title"));
    titles.filter_map(|node| node.text()).map(str::to_owned).collect()
}

/// What stands in boxes that are too narrow for all that is said of their threads.
fn short_names(report: &Report) -> Vec<String> {
    let mut picture = Vec::new();
    svg::write(report, &View::default(), &mut picture).expect("a Vec takes everything");
    let picture = String::from_utf8(picture).expect("UTF-8");
    let document = roxmltree::Document::parse(&picture).expect("XML");
    let attributes = document.descendants().flat_map(|node| node.attributes());
    let short = attributes.filter(|attribute| attribute.name() == "short");
    short.map(|attribute| attribute.value().to_owned()).collect()
}

/// 7 waits for a thread of process 20, all of whose other threads have names as given.
fn waits_for_one_of(names: [&str; 3]) -> Vec<String> {
    let mut r = recording(LENGTH);
    live(
        &mut r,
        7,
        &format!("#{}r#{}r#{}r#", ".".repeat(300), ".".repeat(300), ".".repeat(393)),
        21,
    );
    for tid in 20..24 {
        live(&mut r, tid, &"#".repeat(LENGTH), 0);
    }
    for event in r.thread_events.iter_mut().filter(|event| (20..24).contains(&event.tid.0)) {
        event.tgid = Tgid(20);
        event.comm = match event.tid.0 {
            20 => "shop".to_owned(),
            tid => names[tid as usize - 21].to_owned(),
        };
    }
    edit(&mut r, |waits| {
        for (wait, waker) in waits.iter_mut().zip(21..) {
            let wake = wait.wake.as_mut().unwrap();
            (wake.current.tid, wake.current.tgid) = (Tid(waker), Tgid(20));
        }
    });
    short_names(&report(&mut r))
}

/// Roles within one program can be told apart, and which comes first, as the end is cut.
#[test]
fn some_of_a_programs_threads_are_told_by_what_their_names_have_in_common() {
    let names = waits_for_one_of(["store-1", "store-2", "store-3"]);
    assert!(names.iter().any(|name| name == "store-* of shop"), "{names:?}");
    // The only thread of a program is the program.
    assert!(names.iter().any(|name| name.ends_with("thread7")), "{names:?}");
    let names = waits_for_one_of(["shop"; 3]);
    assert!(names.iter().all(|name| !name.contains(" of ")), "{names:?}");
}

/// A thread that runs, and `idle` others that wait for connections.
fn server(idle: u32) -> Recording {
    let mut r = recording(LENGTH);
    live(&mut r, 7, &"#".repeat(LENGTH), 0);
    for tid in 8..8 + idle {
        live(&mut r, tid, &format!("#{}", "_".repeat(LENGTH - 1)), 7);
    }
    edit(&mut r, |waits| {
        waits.iter_mut().for_each(|wait| wait.syscall = syscall(ACCEPT, [3, 0, 0, 0, 0, 0]));
    });
    r
}

#[test]
fn a_picture_says_so_if_more_is_left_out_than_drawn() {
    let most = head(&report(&mut server(2)));
    let said = "most of the threads' time is not drawn: 2.00 s in which they had nothing to do; 1.00 s is drawn";
    assert!(most.contains(said), "{most}");
}

/// What changes nothing stands where somebody asks for it: in the title of the box of all threads.
#[test]
fn what_is_left_out_is_in_the_title_of_the_first_box_alone_if_more_is_drawn() {
    let report = report(&mut server(1));
    let in_titles = |words: &str| titles(&report).iter().filter(|it| it.contains(words)).count();
    assert!(!texts(&report).join("\n").contains("not drawn"), "{:#?}", texts(&report));
    assert_eq!(in_titles("100%; not drawn: 999 ms in which they had nothing to do"), 1);
}

#[test]
fn threads_that_were_still_asleep_at_the_end_are_told_from_idle_ones() {
    let mut r = recording(LENGTH);
    live(&mut r, 7, &"#".repeat(LENGTH), 0);
    for tid in [8, 9] {
        live(&mut r, tid, &format!("#{}", ".".repeat(LENGTH - 1)), 7);
    }
    let most = head(&report(&mut r));
    assert!(most.contains("2.00 s of threads still asleep at the end of the recording"), "{most}");
    assert!(!most.contains("nothing to do"), "{most}");
}

/// Has a thread sleep, or wait for a name server, until a timer.
fn add_until_timer(r: &mut Recording, tid: u32, call: u32) {
    live(r, tid, &format!("#{}r#", ".".repeat(LENGTH - 3)), 0);
    let sleeps = kernel(r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    let polls = kernel(r, &["schedule", "do_sys_poll"]);
    let nap = user(r, tid, &["libc.so.6 clock_nanosleep", "app pause", "app main"]);
    let asks = user(r, tid, &["libc.so.6 poll", "libc.so.6 __res_context_send", "app find_host"]);
    edit(r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(tid)) {
            wait.syscall = syscall(call, [0x1000, 1, 997, 0, 0, 0]);
            (wait.user_stack, wait.kernel_stack) =
                if call == CLOCK_NANOSLEEP { (nap, sleeps) } else { (asks, polls) };
            wait.wake.as_mut().unwrap().context = WakeContext::Hrtimer;
        }
    });
}

#[test]
fn a_wait_that_ended_by_its_timeout_is_no_sleep() {
    let head_of = |calls: &[u32]| {
        let mut r = recording(LENGTH);
        for (tid, &call) in (7..).zip(calls) {
            add_until_timer(&mut r, tid, call);
        }
        head(&report(&mut r))
    };
    let sleep = head_of(&[CLOCK_NANOSLEEP]);
    assert!(sleep.contains("\nsleeps 997 ms, ") && !sleep.contains("timeout"), "{sleep}");
    let timeout = head_of(&[POLL]);
    assert!(timeout.contains("\nwaits until a timeout 997 ms, "), "{timeout}");
    assert!(!timeout.contains("sleeps"), "{timeout}");
    let both = head_of(&[CLOCK_NANOSLEEP, POLL]);
    assert!(both.contains("\nsleeps 997 ms, or waits until a timeout 997 ms: 1.99 s, "), "{both}");
}

/// Ten threads of one process: most of their waits are those of nine.
fn pool() -> Recording {
    let mut r = recording(LENGTH);
    for tid in 10..20 {
        let waits = if tid == 19 { 300 } else { LENGTH - 3 };
        let runs = "#".repeat(LENGTH - 3 - waits);
        live(&mut r, tid, &format!("#{}r#{runs}", ".".repeat(waits)), 60);
    }
    live(&mut r, 60, &"#".repeat(LENGTH), 0);
    let asks = user(&mut r, 10, &["libc.so.6 recv", "app ask_peer", "app main"]);
    edit(&mut r, |waits| {
        for wait in waits {
            (wait.tgid, wait.user_stack) = (Tgid(10), asks);
        }
    });
    for event in r.thread_events.iter_mut().filter(|event| event.tid.0 < 60) {
        event.tgid = Tgid(10);
    }
    r
}

#[test]
fn a_box_counts_the_threads_that_its_time_is_of() {
    let report = report(&mut pool());
    let finding = &report.findings.list[0];
    assert_eq!((finding.threads, finding.chain[0].threads), (10, 10), "{finding:#?}");
    let titles = titles(&report);
    let first = titles.iter().find(|title| title.starts_with("1: ")).unwrap();
    assert!(first.contains("[10 threads") && first.contains("over 10 threads"), "{first}");
    // One thread runs, for much longer than there was time.
    let below = titles.iter().find(|title| title.contains("runs on a CPU; 9.")).unwrap();
    assert!(below.contains(" s in waits of 10 threads, "), "{below}");
    let head = head(&report);
    assert!(head.contains("added up over 10 threads, each of which had at most 1.00 s"), "{head}");
}

#[test]
fn every_number_in_a_box_is_one_of_the_list_above() {
    // Ten functions that each take a tenth of the time: more than are listed.
    let mut r = recording(LENGTH);
    for tid in 10..20 {
        live(&mut r, tid, &format!("#{}r#", ".".repeat(LENGTH - 3)), 60);
        let function = format!("app ask_{tid}");
        let asks = user(&mut r, tid, &["libc.so.6 recv", &function, "app main"]);
        edit(&mut r, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(tid)) {
                wait.user_stack = asks;
            }
        });
    }
    live(&mut r, 60, &"#".repeat(LENGTH), 0);
    let report = report(&mut r);
    assert_eq!(report.findings.list.len(), 10, "{:#?}", report.findings.list);
    let (head, titles) = (head(&report), titles(&report));
    for number in 1..=10 {
        let begin = format!("{number}: ");
        let is_in_box = titles.iter().any(|title| title.starts_with(&begin));
        let first_word = |line: &str| line.split_whitespace().next().map(str::to_owned);
        let is_listed = head.lines().any(|line| first_word(line) == Some(number.to_string()));
        assert_eq!((is_in_box, is_listed), (number <= 6, number <= 6), "{number}: {head}");
    }
    assert!(head.contains("4 smaller findings"), "{head}");
}
