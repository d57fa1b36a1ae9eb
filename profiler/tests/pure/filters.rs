//! `--where`: the waits that meet conditions are shown, and what is left out is counted.

use std::{fs, path::Path};

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    report::{Report, WaitEntry},
    timeline::Timeline,
};
use offwake_recording::{Recording, stream};

fn recordings() -> Vec<(String, Recording)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let recordings: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "offwake"))
        .map(|path| {
            let bytes = fs::read(&path).unwrap();
            (path.display().to_string(), stream::read(&bytes[..], 1 << 30).unwrap())
        })
        .collect();
    assert!(recordings.len() >= 7, "{} recordings", recordings.len());
    recordings
}

fn report(recording: &Recording, conditions: &[&str]) -> Report {
    let conditions = conditions.iter().map(|text| text.parse().unwrap()).collect();
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    Report::new(&blame, &Filter { conditions, ..Filter::default() })
}

fn count(waits: &[WaitEntry], is_shown: impl Fn(&WaitEntry) -> bool) -> u64 {
    waits.iter().filter(|wait| is_shown(wait)).map(|wait| wait.count).sum()
}

/// Demands that the report with conditions has those waits of the whole report that the test says.
fn check(recording: &Recording, conditions: &[&str], is_shown: impl Fn(&WaitEntry) -> bool) -> u64 {
    let (all, some) = (report(recording, &[]), report(recording, conditions));
    assert!(some.waits.iter().all(&is_shown), "{conditions:?}");
    let shown = count(&some.waits, |_| true);
    assert_eq!(shown, count(&all.waits, &is_shown), "{conditions:?}");
    assert_eq!(shown + some.filter.left_out_count, count(&all.waits, |_| true));
    assert_eq!(some.filter.conditions, conditions);
    assert_eq!(some.threads, all.threads, "the ledgers have everything");
    shown
}

#[test]
fn each_condition_shows_its_waits_and_no_others() {
    let mut shown = [0; 5];
    for (_, recording) in recordings() {
        let counts = [
            check(&recording, &["cause=futex"], |wait| wait.cause.name() == "futex"),
            check(&recording, &["cause=s*"], |wait| wait.cause.name().starts_with('s')),
            check(&recording, &["syscall=read"], |wait| wait.syscall == Some("read")),
            check(&recording, &["waited_on=pipe:*"], |wait| {
                wait.waited_on.as_ref().is_some_and(|on| on.text.starts_with("pipe:"))
            }),
            check(&recording, &["function=*futex*"], |wait| {
                wait.stack.names().iter().any(|name| name.text.contains("futex"))
            }),
        ];
        shown.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(shown.iter().all(|&count| count > 0), "a condition was never met: {shown:?}");
}

#[test]
fn conditions_on_one_field_are_alternatives_and_those_on_several_are_all_demanded() {
    for (name, recording) in recordings() {
        let either = check(&recording, &["cause=futex", "cause=pipe"], |wait| {
            ["futex", "pipe"].contains(&wait.cause.name())
        });
        let both = check(&recording, &["cause=pipe", "syscall=read"], |wait| {
            wait.cause.name() == "pipe" && wait.syscall == Some("read")
        });
        let pipe = check(&recording, &["cause=pipe"], |wait| wait.cause.name() == "pipe");
        assert!(both <= pipe && pipe <= either, "{name}");
        assert_eq!(check(&recording, &["function=no_such_function"], |_| false), 0);
    }
}
