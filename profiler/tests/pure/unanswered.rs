//! What did not answer while recording, from the recording to every screen.

use offwake_analysis::{
    filter::Filter,
    report::{Report, summary},
};
use offwake_recording::{Unanswered, UnansweredKind, stream, units::Tgid};

use crate::{
    draw::{live, recording},
    golden::{report as build_report, written},
};

fn row(kind: UnansweredKind, place: &str, tgid: Option<u32>, count: u64) -> Unanswered {
    Unanswered { kind, place: place.to_owned(), tgid: tgid.map(Tgid), count }
}

fn report(rows: Vec<Unanswered>) -> Report {
    let mut recording = recording(4);
    live(&mut recording, 7, "#..#", 8);
    recording.loss.counters.insert("reader_files_unanswered".to_owned(), 4);
    recording.loss.unanswered = rows;
    let mut bytes = Vec::new();
    stream::write(&recording, &mut bytes).unwrap();
    build_report(&stream::read(&bytes[..], 1 << 30).unwrap(), &Filter::default())
}

#[test]
fn what_did_not_answer_is_named_in_one_line_of_the_summary_and_in_the_json() {
    let report = report(vec![
        row(UnansweredKind::File, "/mnt/nfs", None, 3),
        row(UnansweredKind::Memory, "", Some(4711), 1),
        row(UnansweredKind::Directory, "/usr/lib/debug\x1b[2J", None, 1),
        row(UnansweredKind::Other, "", None, 12),
    ]);
    let line = "not answered: 3 files on /mnt/nfs, the memory of process 4711, files in \
        /usr/lib/debug\\x1b[2J, 12 more: names or stacks of theirs are missing";
    assert_eq!(report.warnings(), [line]);
    let screen = written(&report, summary::write);
    assert_eq!(screen.matches("not answered: ").count(), 1, "{screen}");
    assert!(screen.contains("3 files on /mnt/nfs"), "{screen}");
    let json = serde_json::to_value(&report).unwrap();
    let first = serde_json::json!({"kind": "file", "place": "/mnt/nfs", "tgid": null, "count": 3});
    assert_eq!(json["loss"]["unanswered"][0], first);
    assert_eq!(json["loss"]["unanswered"][1]["tgid"], 4711);
}

#[test]
fn many_that_did_not_answer_take_one_line() {
    let rows = (0..33).map(|pid| row(UnansweredKind::Memory, "", Some(pid), 1)).collect();
    let warnings = report(rows).warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("process 5, 27 more (each: -o wait.json):"), "{warnings:?}");
}

/// Recordings of earlier builds only count.
#[test]
fn without_the_names_of_what_did_not_answer_their_number_is_said() {
    let warnings = report(Vec::new()).warnings();
    assert_eq!(warnings, ["not answered: files (4): names or stacks of theirs are missing"]);
}

#[test]
fn a_thread_of_our_own_that_died_is_named_with_what_is_missing_for_want_of_it() {
    let warnings = |counters: &[(&str, u64)]| {
        let mut recording = recording(4);
        live(&mut recording, 7, "#..#", 8);
        for (name, count) in counters {
            recording.loss.counters.insert((*name).to_owned(), *count);
        }
        build_report(&recording, &Filter::default()).warnings()
    };
    assert_eq!(
        warnings(&[
            ("own_threads_failed", 2),
            ("own_thread_polled_failed", 1),
            ("own_thread_sync_failed", 1)
        ]),
        [
            "offwake's thread offwake-sync died: the recording went to its disk only as it ended",
            "offwake's thread offwake-polled died: which files were polled at the end is not known",
        ]
    );
    // Recordings of earlier builds only count.
    assert_eq!(
        warnings(&[("own_threads_failed", 1)]),
        ["threads of offwake's own died: 1, and what they alone bring is missing"]
    );
    assert!(warnings(&[]).is_empty());
}
