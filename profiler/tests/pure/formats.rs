//! Reports for other people's tools. `tests/tests/readers.rs` opens them with those.

use std::{collections::BTreeSet, io};

use libdd_profiling_protobuf::prost_impls::{Message as _, Profile, Sample};
use offwake_analysis::{
    analysis::Extent,
    filter::Filter,
    formats::{pprof, speedscope},
    report::{
        Report,
        flame::{Direction, View},
    },
};
use offwake_recording::{Recording, units::Tid};

use crate::{
    draw::edit,
    fixtures::kernel,
    golden::{golden, report, service, written},
};

pub fn profile(report: &Report) -> Profile {
    profile_of_extent(report, Extent::Bounded)
}

fn profile_of_extent(report: &Report, extent: Extent) -> Profile {
    let mut bytes = Vec::new();
    pprof::write_plain(report, &View::default(), extent, &mut bytes).unwrap();
    Profile::decode(bytes.as_slice()).expect("a profile")
}

pub fn text(profile: &Profile, n: i64) -> &str {
    &profile.string_table[usize::try_from(n).unwrap()]
}

fn drawn(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    speedscope::write(report, &View::default(), out)
}

/// The names of a sample's frames, leaf first.
fn frames<'p>(profile: &'p Profile, sample: &Sample) -> Vec<&'p str> {
    let name = |&id: &u64| {
        let location = profile.locations.iter().find(|location| location.id == id).unwrap();
        let function = location.lines[0].function_id;
        let function = profile.functions.iter().find(|f| f.id == function).unwrap();
        text(profile, function.name)
    };
    sample.location_ids.iter().map(name).collect()
}

/// Each sample in three lines, as `go tool pprof -traces` shows them.
fn outline(profile: &Profile) -> String {
    let mut lines = Vec::new();
    let types: Vec<_> = profile.sample_types.iter().map(|t| text(profile, t.r#type)).collect();
    for sample in &profile.samples {
        lines.push(frames(profile, sample).join(" < "));
        let values = types.iter().zip(&sample.values).filter(|(_, value)| **value != 0);
        lines.push(values.map(|(name, value)| format!("  {name}={value}")).collect());
        let labels = sample.labels.iter().map(|label| match label.str {
            0 => format!("  {}:{}", text(profile, label.key), label.num),
            str => format!("  {}:{}", text(profile, label.key), text(profile, str)),
        });
        lines.push(labels.collect());
    }
    lines.extend(profile.comment.iter().map(|&comment| text(profile, comment).to_owned()));
    lines.join("\n") + "\n"
}

#[test]
fn the_profile_for_pprof_is_golden() {
    golden("service.pprof.txt", &outline(&profile(&report(&service(), &Filter::default()))));
}

/// `pprof -top` lists the innermost frames: they are functions, not kinds of blame.
#[test]
fn a_sample_ends_with_a_function_and_a_full_one_with_the_innermost() {
    let report = report(&service(), &Filter::default());
    let leaves = |extent| {
        let profile = profile_of_extent(&report, extent);
        let leaf = |sample| frames(&profile, sample)[0].to_owned();
        profile.samples.iter().map(leaf).collect::<BTreeSet<String>>()
    };
    let (own, innermost) = (leaves(Extent::Bounded), leaves(Extent::Full));
    let is_kind = |name: &String| name.starts_with('[') || name == "--";
    assert!(!own.iter().chain(&innermost).any(is_kind), "{own:?} {innermost:?}");
    assert!(own.contains("finish:job") && own.contains("reply"), "{own:?}");
    assert!(innermost.contains("wake_up_q") && innermost.contains("schedule"), "{innermost:?}");
}

/// The worker waits for the disk in one place, and wakes the web server from another. If it waits
/// in two places, nothing tells from which of them it came.
#[test]
fn time_in_which_a_waker_slept_is_where_it_slept_if_that_is_one_place() {
    let leaf = |recording: &Recording| {
        let report = report(recording, &Filter::default());
        let profile = profile(&report);
        let label = |sample: &Sample, name: &str| {
            let label = sample.labels.iter().find(|label| text(&profile, label.key) == name);
            text(&profile, label.unwrap().str).to_owned()
        };
        let sample = profile
            .samples
            .iter()
            .find(|sample| label(sample, "thread") == "web" && label(sample, "blame") == "disk");
        frames(&profile, sample.expect("a wait for a waker that waits for a disk"))[0].to_owned()
    };
    let mut recording = service();
    assert_eq!(leaf(&recording), "jbd2_log_wait_commit");
    let elsewhere = kernel(&mut recording, &["schedule", "folio_wait_bit_common", "filemap_fault"]);
    edit(&mut recording, |waits| {
        let wait = waits.iter_mut().find(|wait| wait.tid == Tid(8)).unwrap();
        wait.kernel_stack = elsewhere;
    });
    assert_eq!(leaf(&recording), "finish:job");
}

#[test]
fn the_thread_that_is_blamed_ends_a_sample_and_the_waiter_does_if_it_is_reversed() {
    let report = report(&service(), &Filter::default());
    let mut bytes = Vec::new();
    let view = View { direction: Direction::FromCulprit, ..View::default() };
    pprof::write_plain(&report, &view, Extent::Bounded, &mut bytes).unwrap();
    let reversed = Profile::decode(bytes.as_slice()).unwrap();
    let forward = profile(&report);
    let order = |profile: &Profile| {
        let mut threads = profile.samples.iter().map(|sample| {
            let names = frames(profile, sample);
            let threads = names.into_iter().filter(|name| ["web-7", "worker-8"].contains(name));
            threads.map(str::to_owned).collect::<Vec<_>>()
        });
        threads.find(|threads| threads.len() == 2).expect("a chain")
    };
    assert_eq!(order(&forward), ["worker-8", "web-7"]);
    assert_eq!(order(&reversed), ["web-7", "worker-8"]);
}

#[test]
fn every_wait_and_every_nanosecond_is_in_the_profile_once() {
    let report = report(&service(), &Filter::default());
    let profile = profile(&report);
    let sum = |n: usize| profile.samples.iter().map(|s| s.values[n] as u64).sum::<u64>();
    assert_eq!(sum(0), report.waits.iter().map(|wait| wait.blocked_ns.0).sum::<u64>());
    assert_eq!(sum(1), report.waits.iter().map(|wait| wait.count).sum::<u64>());
    assert_eq!(sum(0), (2..=5).map(sum).sum::<u64>(), "each has one kind of blame");
    assert_eq!(sum(6), report.waits.iter().map(|wait| wait.idle_ns.0).sum::<u64>());
}

#[test]
fn the_file_for_speedscope_is_golden() {
    let report = report(&service(), &Filter::default());
    let file = written(&report, drawn);
    golden("service.speedscope.json", &file);
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    let profiles = file["profiles"].as_array().unwrap();
    let weights = profiles.iter().flat_map(|profile| profile["weights"].as_array().unwrap());
    let sum: u64 = weights.map(|weight| weight.as_u64().unwrap()).sum();
    assert_eq!(sum, report.waits.iter().map(|wait| wait.blocked_ns.0).sum::<u64>());
}

/// The service, where every function is on line 7 of one file.
fn with_lines() -> Recording {
    let mut recording = service();
    for frame in recording.stacks.frames.values_mut() {
        for function in &mut frame.functions {
            function.file = Some("/src/app.c".into());
            function.line = Some(7);
        }
    }
    recording
}

#[test]
fn the_profile_for_pprof_has_files_and_lines_beside_the_names() {
    let plain = profile(&report(&service(), &Filter::default()));
    let profile = profile(&report(&with_lines(), &Filter::default()));
    assert_eq!(outline(&profile), outline(&plain));
    let mut placed = 0;
    for location in &profile.locations {
        let [line] = &location.lines[..] else { panic!("{location:?}") };
        let function = profile.functions.iter().find(|f| f.id == line.function_id).unwrap();
        match text(&profile, function.filename) {
            "" => assert_eq!(line.line, 0),
            file => assert_eq!((file, line.line), ("/src/app.c", 7)),
        }
        placed += u32::from(line.line == 7);
    }
    assert!(placed > 5, "{placed}");
}

#[test]
fn the_file_for_speedscope_has_files_and_lines_beside_the_names() {
    let file = written(&report(&with_lines(), &Filter::default()), drawn);
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    let frames = file["shared"]["frames"].as_array().unwrap();
    let placed = frames.iter().filter(|frame| {
        let place = (frame["file"].as_str(), frame["line"].as_u64());
        assert!([(None, None), (Some("/src/app.c"), Some(7))].contains(&place), "{frame}");
        place.1.is_some()
    });
    assert!(placed.count() > 5);
}

#[test]
fn names_of_other_programs_are_harmless() {
    let mut recording = service();
    for thread_event in &mut recording.thread_events {
        thread_event.comm = "\u{1b}[31m;\n\u{202e}".to_owned();
    }
    for function in recording.stacks.frames.values_mut().flat_map(|frame| &mut frame.functions) {
        function.file = Some("/\u{1b}[31m;\n\u{202e}".into());
    }
    recording.meta.target = "\u{9b}2J".to_owned();
    let report = report(&recording, &Filter::default());
    let is_harmless =
        |text: &str| text.chars().all(|c| !c.is_control() && !matches!(c, '\u{202e}' | '\u{2028}'));
    let profile = profile(&report);
    assert!(profile.string_table.iter().all(|text| is_harmless(text)));
    assert!(profile.string_table.iter().any(|text| text.starts_with("?[31m:??-")));
    let file = written(&report, drawn);
    assert!(
        is_harmless(file.trim_end()) && !file.contains("\\u001b") && file.contains("?[31m:??-")
    );
}
