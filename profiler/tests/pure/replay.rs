//! Recordings of real programs, made on Linux 6.18 by `offwake record` and moved to a time of their
//! own by `examples/rebase-recording.rs`: `tests/data/README.md` says of what. What is reported of
//! them is settled byte for byte.

use std::{fs, path::Path};

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    formats::json,
    report::summary,
    spans::{self, SpanLimits},
    timeline::{Interval, Timeline, WaitIndex},
};
use offwake_recording::{
    OpenFile, Recording,
    stream::{self, Damage},
    units::{Nanos, Timestamp},
};

use crate::{
    draw::edit,
    flames::{folded_in, named_views},
    golden::{Writer, folded, golden, picture, report, summary_and_details, written},
    spans::{check, find_with, outline},
};

const MEMORY: usize = 64 << 20;

/// Every recording that is there, by name.
pub fn recordings() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut recordings = Vec::new();
    for entry in fs::read_dir(folder).expect("the recordings") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "offwake") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            recordings.push((name, fs::read(&path).expect("a recording")));
        }
    }
    recordings.sort();
    assert!(recordings.len() >= 7, "recordings are missing");
    recordings
}

pub fn read(bytes: &[u8]) -> Recording {
    stream::read(bytes, MEMORY).expect("a whole recording")
}

#[test]
fn what_is_reported_is_golden() {
    for (name, bytes) in recordings() {
        let recording = read(&bytes);
        assert_eq!(recording.damage, Damage::default(), "{name}");
        let report = report(&recording, &Filter::default());
        assert!(!report.waits.is_empty(), "{name}");
        golden(&format!("replay-{name}.json"), &written(&report, json::write));
        golden(&format!("replay-{name}.folded"), &written(&report, folded));
        golden(&format!("replay-{name}.summary.txt"), &written(&report, summary_and_details));
    }
}

#[test]
fn requests_through_three_processes_are_golden() {
    let (_, bytes) = recordings().into_iter().find(|(name, _)| name == "demo").unwrap();
    let recording = read(&bytes);
    let spans = find_with(&recording, &Filter::default(), SpanLimits::default());
    check(&recording, &spans);
    // A client asks the gateway, that a worker, and that the store.
    let outline = outline(&spans);
    assert!(outline.iter().any(|line| line.starts_with("          server ")), "{outline:#?}");
    let mut json = Vec::new();
    spans::json::write(&recording, &spans, &mut json).unwrap();
    golden("replay-demo.spans.json", &String::from_utf8(json).unwrap());
}

#[test]
fn a_picture_is_golden() {
    let (_, bytes) = recordings().into_iter().find(|(name, _)| name == "redis").unwrap();
    let report = report(&read(&bytes), &Filter::default());
    golden("replay-redis.svg", &written(&report, picture));
}

#[test]
fn every_view_of_a_recording_is_golden() {
    let (_, bytes) = recordings().into_iter().find(|(name, _)| name == "redis").unwrap();
    let report = report(&read(&bytes), &Filter::default());
    for (name, view) in named_views() {
        golden(&format!("replay-redis.{name}.folded"), &folded_in(&report, &view));
    }
}

/// Two reports of two readings: nothing is in one that is not in the bytes.
#[test]
fn the_same_bytes_give_the_same_reports() {
    let writers: [Writer; 4] = [json::write, folded, picture, summary::write];
    for (name, bytes) in recordings() {
        for write in writers {
            let once = written(&report(&read(&bytes), &Filter::default()), write);
            let again = written(&report(&read(&bytes), &Filter::default()), write);
            assert_eq!(once, again, "{name}");
        }
    }
}

#[test]
fn every_nanosecond_is_accounted_for() {
    for (name, bytes) in recordings() {
        let recording = read(&bytes);
        let timeline = Timeline::build(&recording);
        let blame = Blame::new(&recording, &timeline, ChainLimits::default());
        for (thread, ledger) in timeline.threads.iter().zip(blame.ledgers()) {
            assert_eq!(ledger.wall, thread.until.since(thread.from), "{name}");
            assert_eq!(ledger.wall, ledger.on_cpu + ledger.runnable + ledger.blocked, "{name}");
            let parts = ledger.attributed() + ledger.external() + ledger.unattributed();
            assert_eq!(ledger.blocked, parts, "{name}");
        }
        let mut walker = blame.walker();
        for n in 0..recording.waits.len() {
            let index = WaitIndex(n as u32);
            let blocked = timeline.blocked_interval(index).map_or(Nanos(0), |p| p.to.since(p.from));
            let parts = walker.parts(index).iter().map(|part| part.time);
            assert_eq!(parts.sum::<Nanos>(), blocked, "{name}");
        }
        for wait in &report(&recording, &Filter::default()).waits {
            let parts = wait.blame.iter().map(|part| part.ns);
            assert_eq!(parts.sum::<Nanos>(), wait.blocked_ns, "{name}");
        }
        let misfits = timeline.anomalies;
        assert_eq!((misfits.overlaps, misfits.backwards), (0, 0), "{name}");
    }
}

#[test]
fn what_is_read_can_be_written_and_read_again() {
    let written = |recording: &Recording| {
        let mut bytes = Vec::new();
        stream::write(recording, &mut bytes).unwrap();
        bytes
    };
    for (name, bytes) in recordings() {
        let recording = read(&bytes);
        // Not the bytes that were read: columns have come since.
        let now = written(&recording);
        assert_eq!(format!("{:?}", read(&now)), format!("{recording:?}"), "{name}");
        assert!(written(&read(&now)) == now, "{name}");
    }
}

/// They are of a version that had no columns for it.
#[test]
fn what_older_recordings_do_not_say_is_not_known() {
    for (name, bytes) in recordings() {
        let recording = read(&bytes);
        let wakes: Vec<_> = recording.waits.iter().filter_map(|wait| wait.wake).collect();
        assert!(!wakes.is_empty(), "{name}");
        assert!(wakes.iter().all(|wake| wake.current_seq.is_none()), "{name}");
        assert!(wakes.iter().all(|wake| wake.file.is_none()), "{name}");
        assert!(
            recording.files.files.values().all(|file| match file {
                OpenFile::Socket(socket) => socket.role.is_none(),
                OpenFile::Named(_) => true,
            }),
            "{name}"
        );
        assert!(recording.samples.iter().all(|sample| sample.seq.is_none()), "{name}");
        assert!(recording.waits.iter().all(|wait| wait.migrated.is_none()), "{name}");
        assert!(recording.preemptions.iter().all(|p| p.migrated.is_none()), "{name}");
    }
}

/// What each thread did, how long after the window opened, and for how long.
fn shape(recording: &Recording) -> Vec<(Timestamp, String)> {
    let start = recording.meta.window.start;
    let timeline = Timeline::build(recording);
    let threads = timeline.threads.iter().flat_map(|thread| {
        thread.track.iter().map(move |Interval { from, to, state }| {
            (
                Timestamp(from.since(start).0),
                format!("{:?} {:?} {state:?}", thread.tid, to.since(from)),
            )
        })
    });
    threads.collect()
}

#[test]
fn at_another_time_a_recording_says_the_same() {
    const HOURS: u64 = 3_600_000_000_000;
    for (name, bytes) in recordings() {
        let zero = read(&bytes);
        let mut late = read(&bytes);
        // As after hours of uptime.
        shift(&mut late, 5 * HOURS);
        assert_ne!(format!("{late:?}"), format!("{zero:?}"), "{name}");
        late.rebase();
        assert_eq!(format!("{late:?}"), format!("{zero:?}"), "{name}");
        shift(&mut late, HOURS);
        assert_eq!(shape(&late), shape(&zero), "{name}");
    }
}

fn shift(recording: &mut Recording, by: u64) {
    let later = |moment: &mut Timestamp| *moment = *moment + Nanos(by);
    later(&mut recording.meta.window.start);
    later(&mut recording.meta.window.end);
    edit(recording, |waits| {
        for wait in waits {
            later(&mut wait.off);
            later(&mut wait.on);
            wait.migrated.as_mut().map(later);
            if let Some(wake) = &mut wait.wake {
                later(&mut wake.at);
            }
        }
    });
    for preemption in &mut recording.preemptions {
        later(&mut preemption.off);
        later(&mut preemption.on);
        preemption.migrated.as_mut().map(later);
    }
    for thread_event in &mut recording.thread_events {
        later(&mut thread_event.at);
        later(&mut thread_event.created);
    }
    recording.exits.iter_mut().for_each(|exit| later(&mut exit.at));
    recording.samples.iter_mut().for_each(|sample| later(&mut sample.at));
    recording.processes.iter_mut().for_each(|process| later(&mut process.at));
    if let Some((first, last)) = &mut recording.loss.ring_full {
        later(first);
        later(last);
    }
    for clocks in &mut recording.clocks {
        later(&mut clocks.monotonic);
        clocks.boottime_ns += by;
        clocks.realtime_ns += 77;
    }
}
