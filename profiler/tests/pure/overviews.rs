//! Findings are made of sums in which most of what is known of waits is not told apart. They say what
//! they would if every part of blame were added to them by itself.

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::{Filter, IdleWaits},
    report::{Overview, Report, summary},
    timeline::Timeline,
};
use offwake_recording::{
    Recording, StackRef, Wait,
    units::{Nanos, Tid},
};
use proptest::prelude::*;

use crate::{
    draw::edit,
    fixtures, replay,
    simulator::{self, Migration, scenario},
};

/// Makes all threads the target. Gives waits and wakes stacks, so that they mean different things, and threads the names of two
/// programs, so that threads wait for others of their own. Some differ in what no finding tells.
fn add_meanings(recording: &mut Recording, choices: &[u8]) {
    let stacks = [
        StackRef::NotTaken,
        fixtures::user(recording, 100, &["shop take_order", "shop main"]),
        fixtures::user(recording, 100, &["shop take_order", "shop retry", "shop main"]),
        fixtures::user(recording, 100, &["shop WaitForLock", "shop pay", "shop main"]),
        fixtures::user(recording, 100, &["", "libc.so.6 read", "shop main"]),
    ];
    let mut chosen = choices.iter().cycle().map(|&n| stacks[usize::from(n) % stacks.len()]);
    let program = |tid: Tid| ["shop", "db"][usize::from(tid.0.is_multiple_of(3))].to_owned();
    for event in &mut recording.thread_events {
        event.comm = program(event.tid);
        event.in_target = true;
    }
    edit(recording, |waits: &mut Vec<Wait>| {
        for wait in waits {
            wait.in_target = true;
            wait.user_stack = chosen.next().unwrap_or(StackRef::NotTaken);
            if let Some(wake) = &mut wait.wake {
                wake.user_stack = chosen.next().unwrap_or(StackRef::NotTaken);
            }
        }
    });
}

fn first_screen(report: &Report) -> String {
    let mut bytes = Vec::new();
    summary::write(report, &mut bytes).expect("a vector takes all");
    String::from_utf8(bytes).expect("text")
}

/// Returns how many findings there are.
fn check(recording: &Recording, filter: &Filter) -> Result<usize, TestCaseError> {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let summed = Overview::new(&blame, filter);
    let one_by_one = Overview::new_part_by_part(&blame, filter);
    prop_assert_eq!(&summed.report().findings, &one_by_one.report().findings);
    prop_assert_eq!(first_screen(summed.report()), first_screen(one_by_one.report()));
    Ok(summed.report().findings.list.len())
}

fn filter() -> impl Strategy<Value = Filter> {
    (prop::option::of(0..200_000_u64), prop::bool::ANY).prop_map(|(min, hides_idle)| Filter {
        min: min.map(Nanos),
        idle: if hides_idle { IdleWaits::Hidden } else { IdleWaits::Shown },
        ..Filter::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_of_a_run_make_the_findings_of_its_parts(
        scenario in scenario(Migration::On), loss in simulator::loss(), filter in filter(),
        choices in prop::collection::vec(0..5_u8, 31),
    ) {
        let mut recording = loss.apply(&simulator::run(&scenario).recording);
        add_meanings(&mut recording, &choices);
        check(&recording, &filter)?;
    }
}

#[test]
fn sums_of_recorded_programs_make_the_findings_of_their_parts() {
    for (name, bytes) in replay::recordings() {
        let findings = check(&replay::read(&bytes), &Filter::default()).unwrap();
        assert!(findings > 0, "{name}");
    }
}
