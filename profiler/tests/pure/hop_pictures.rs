//! Pictures of hops, rule by rule: what their heads and boxes say, and what is left out.

use offwake_analysis::{
    filter::Filter,
    report::{Report, flame::View, svg},
};
use offwake_recording::{Recording, units::Tgid};

use crate::{
    draw::{edit, live, recording},
    fixtures::{syscall, user},
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

/// The names of the boxes, with what stands in their titles.
fn titles(report: &Report) -> Vec<String> {
    let mut picture = Vec::new();
    svg::write(report, &View::default(), &mut picture).expect("a Vec takes everything");
    let picture = String::from_utf8(picture).expect("UTF-8");
    let document = roxmltree::Document::parse(&picture).expect("XML");
    let titles = document.descendants().filter(|node| node.has_tag_name("title"));
    titles.filter_map(|node| node.text()).map(str::to_owned).collect()
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
    let said = "most of the threads' time is not drawn: 2.00 s idle; 1.00 s are drawn";
    assert!(most.contains(said), "{most}");
    assert!(!head(&report(&mut server(1))).contains("not drawn"));
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
}
