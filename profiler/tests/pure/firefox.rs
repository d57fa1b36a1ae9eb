//! Profiles for the Firefox Profiler. `tests/tests/readers.rs` opens them with its own reading code.

use std::collections::BTreeMap;

use offwake_analysis::{
    analysis::{Analysis, AnalysisInput, AnalysisOptions, Extent},
    blame::BlameGroup,
    filter::Filter,
    formats::{self, Written},
};
use offwake_recording::Recording;
use serde_json::Value;

use crate::golden::{golden, report, service};

/// A profile, and what it says of what it leaves out.
fn profile(recording: Recording, filter: Filter) -> (Value, Written) {
    let input = AnalysisInput::new(recording);
    let options = AnalysisOptions { filter, extent: Extent::Bounded, ..AnalysisOptions::default() };
    let analysis = Analysis::new(&input, options);
    let mut bytes = Vec::new();
    let written = formats::from_name("firefox").unwrap().write(&analysis, &mut bytes).unwrap();
    (serde_json::from_slice(&bytes).unwrap(), written)
}

fn strings(profile: &Value) -> Vec<&str> {
    profile["shared"]["stringArray"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_str().unwrap())
        .collect()
}

fn column<'v>(table: &'v Value, name: &str) -> &'v Vec<Value> {
    let column = table[name].as_array().unwrap_or_else(|| panic!("no column {name} in {table}"));
    assert_eq!(Some(column.len() as u64), table["length"].as_u64(), "{name}");
    column
}

fn at<'v>(table: &'v Value, name: &str, row: &Value) -> &'v Value {
    &column(table, name)[usize::try_from(row.as_u64().unwrap()).unwrap()]
}

/// The names of a stack's frames, root first, and the category of the last.
fn stack(profile: &Value, index: &Value) -> String {
    let shared = &profile["shared"];
    let mut names = Vec::new();
    let mut next = index;
    let mut category = None;
    while !next.is_null() {
        let frame = at(&shared["stackTable"], "frame", next);
        let function = at(&shared["frameTable"], "func", frame);
        let name = at(&shared["funcTable"], "name", function).as_u64().unwrap();
        names.push(strings(profile)[usize::try_from(name).unwrap()].to_owned());
        let of_frame = at(&shared["frameTable"], "category", frame);
        category = category.or_else(|| of_frame.as_u64());
        next = at(&shared["stackTable"], "prefix", next);
    }
    names.reverse();
    let category = &profile["meta"]["categories"][usize::try_from(category.unwrap()).unwrap()];
    format!("{} ({})", names.join(" > "), category["name"].as_str().unwrap())
}

/// Each thread's samples that have a weight, and its markers.
fn outline(profile: &Value) -> String {
    let mut lines = Vec::new();
    for thread in profile["threads"].as_array().unwrap() {
        let (name, process) = (thread["name"].as_str().unwrap(), &thread["processName"]);
        lines.push(format!("thread {} {name} of {} {process}", thread["tid"], thread["pid"]));
        let samples = &thread["samples"];
        let rows = column(samples, "time").iter().zip(column(samples, "weight"));
        for ((time, weight), index) in rows.zip(column(samples, "stack")) {
            let stack = match index.is_null() {
                true => "-".to_owned(),
                false => stack(profile, index),
            };
            lines.push(format!("  {time} +{weight} {stack}"));
        }
        let markers = &thread["markers"];
        let rows = column(markers, "startTime").iter().zip(column(markers, "endTime"));
        for (n, (start, end)) in rows.enumerate() {
            let texts = strings(profile);
            let text = |value: &Value| {
                value.as_u64().map_or("-", |n| texts[usize::try_from(n).unwrap()]).to_owned()
            };
            let data = &column(markers, "data")[n];
            let fields =
                ["on", "place", "wokenBy", "spentOn", "ranges"].map(|key| text(&data[key]));
            let name = text(&column(markers, "name")[n]);
            lines.push(format!("  {name} {start}..{end}: {}", fields.join(" | ")));
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_profile_for_firefox_is_golden() {
    let (profile, written) = profile(service(), Filter::default());
    golden("service.firefox.txt", &outline(&profile));
    assert_eq!(written, Written::Everything);
}

/// By nanosecond, per thread: what the report adds up.
#[test]
fn every_wait_and_every_nanosecond_is_in_its_threads_track_once() {
    let (profile, _) = profile(service(), Filter::default());
    let report = report(&service(), &Filter::default());
    let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for wait in &report.waits {
        let sum = expected.entry(wait.tid.0.into()).or_default();
        *sum = (sum.0 + wait.count, sum.1 + wait.blocked_ns.0);
    }
    let mut found = BTreeMap::new();
    for thread in profile["threads"].as_array().unwrap() {
        let weights = column(&thread["samples"], "weight").iter();
        let ns: u64 = weights.map(|ms| (ms.as_f64().unwrap() * 1e6).round() as u64).sum();
        let waits = thread["markers"]["length"].as_u64().unwrap();
        if waits > 0 {
            found.insert(thread["tid"].as_u64().unwrap(), (waits, ns));
        }
    }
    assert_eq!(found, expected);
}

/// The track is filled from the middle between two samples to the next middle: so that a wait is filled
/// from end to end and nothing else is, each of its parts has a sample at both ends.
#[test]
fn samples_are_in_order_and_begin_and_end_with_none() {
    let (profile, _) = profile(service(), Filter::default());
    for thread in profile["threads"].as_array().unwrap() {
        let samples = &thread["samples"];
        let times: Vec<f64> =
            column(samples, "time").iter().map(|time| time.as_f64().unwrap()).collect();
        assert!(times.is_sorted(), "{times:?}");
        let markers = &thread["markers"];
        let stacks = column(samples, "stack");
        let ends = ["startTime", "endTime"].map(|name| column(markers, name));
        for (n, _) in ends[0].iter().enumerate() {
            for end in ends {
                let at_end = end[n].as_f64().unwrap();
                let here = times.iter().zip(stacks).filter(|(time, _)| **time == at_end);
                let (none, some): (Vec<_>, Vec<_>) = here.partition(|(_, stack)| stack.is_null());
                assert!(!none.is_empty() && !some.is_empty(), "{at_end}: {thread}");
            }
        }
    }
}

#[test]
fn what_is_hidden_has_no_stack_and_no_weight() {
    let hidden = [BlameGroup::External].into();
    let (all, _) = profile(service(), Filter::default());
    let (without, _) = profile(service(), Filter { hidden, ..Filter::default() });
    let (all, without) = (outline(&all), outline(&without));
    assert!(all.contains("(Disk)") && !without.contains("(Disk)"), "{without}");
    assert!(without.contains("(Work)"), "{without}");
}

#[test]
fn names_of_other_programs_are_harmless() {
    let mut recording = service();
    for thread_event in &mut recording.thread_events {
        thread_event.comm = "\u{1b}[31m;\n\u{202e}".to_owned();
    }
    for function in recording.stacks.frames.values_mut().flat_map(|frame| &mut frame.functions) {
        function.name = format!("\u{1b}[31m\u{202e}{}", "x".repeat(100_000));
    }
    recording.meta.target = "\u{9b}2J".to_owned();
    let text = profile(recording, Filter::default()).0.to_string();
    assert!(text.chars().all(|c| !c.is_control() && c != '\u{202e}') && !text.contains("\\u001b"));
    assert!(text.contains("?[31m") && text.len() < 100_000, "{} bytes", text.len());
}

#[test]
fn what_a_filter_leaves_out_is_in_no_track() {
    let filter =
        Filter { min: Some(offwake_recording::units::Nanos(u64::MAX)), ..Filter::default() };
    let (profile, written) = profile(service(), filter);
    for thread in profile["threads"].as_array().unwrap() {
        assert_eq!(
            (&thread["samples"]["length"], &thread["markers"]["length"]),
            (&0.into(), &0.into())
        );
    }
    assert_eq!(written, Written::Everything, "a filter is no lack of room");
}
