//! What slow requests have more of, where it is a program's own work: the function makes the culprit.

use offwake_analysis::requests::{RequestClass, SlowRequests};
use offwake_recording::{
    Recording, Sample, StackRef,
    units::{Cpu, Nanos, Tgid, Tid},
};

use crate::{
    draw::{at, live, recording, ticks},
    fixtures::user,
    requests::{class_of, find},
};

const COUNT: usize = 400;
/// One of so many is slow.
const SLOW_ONE_OF: usize = 10;
const PERIOD: usize = 40;
const ANSWER: &[&str] = &["app answer", "app main"];
const REPORT: &[&str] = &["app make_report", "app answer", "app main"];

/// 7 asks 60, which works for 4 ticks, and in slow requests for 20 more. The first of them counts as 7's own work, which
/// has not fallen asleep yet.
fn asks() -> Recording {
    let mut r = recording(COUNT * PERIOD);
    let (mut asks, mut serves) = (String::new(), String::new());
    for n in 0..COUNT {
        if n % SLOW_ONE_OF == 0 {
            asks += &format!("###{}{}", ".".repeat(23), "#".repeat(14));
            serves += &format!("..{}{}", "#".repeat(24), ".".repeat(14));
        } else {
            asks += &format!("###{}{}", ".".repeat(3), "#".repeat(34));
            serves += &format!("..{}{}", "#".repeat(4), ".".repeat(34));
        }
    }
    live(&mut r, 7, &asks, 60);
    live(&mut r, 60, &serves, 7);
    r
}

/// Samples the server at work: `functions` says where a request of this number is after so many ticks of it.
fn sample(r: &mut Recording, functions: impl Fn(usize, usize) -> Option<&'static [&'static str]>) {
    for n in 0..COUNT {
        let length = if n % SLOW_ONE_OF == 0 { 24 } else { 4 };
        for tick in 0..length {
            let Some(frames) = functions(n, tick) else { continue };
            let user_stack = user(r, 60, frames);
            r.samples.push(Sample {
                at: at(n * PERIOD + 2 + tick),
                cpu: Cpu(0),
                tid: Tid(60),
                tgid: Tgid(60),
                seq: None,
                user_stack,
                kernel_stack: StackRef::NotTaken,
            });
        }
    }
}

fn is_slow(n: usize) -> bool {
    n.is_multiple_of(SLOW_ONE_OF)
}

fn slow_of(class: &RequestClass) -> &SlowRequests {
    class.slow.as_ref().expect("enough of them")
}

/// Returns the function of each culprit, how much of it slow requests have more, and the highest and the middle
/// latency without it.
fn excess(r: &mut Recording) -> Vec<(Option<String>, Nanos, Nanos, Nanos)> {
    let requests = find(r);
    let class = class_of(&requests, "thread60");
    assert_eq!((class.latency.p50_ns, class.latency.max_ns), (ticks(4), ticks(24)));
    (slow_of(class).excess.iter())
        .map(|one| {
            let function = one.culprit.function.clone();
            (function, one.excess_ns, one.without.max_ns, one.without.p50_ns)
        })
        .collect()
}

#[test]
fn a_function_that_slow_requests_alone_run_is_the_culprit_and_nothing_else_is_taken_away() {
    let mut r = asks();
    sample(&mut r, |n, tick| match (is_slow(n), tick) {
        (true, 4..) => Some(REPORT),
        (true, _) => Some(ANSWER),
        // Most of the usual ones are too short for a sample.
        (false, 1) if n.is_multiple_of(7) => Some(ANSWER),
        (false, _) => None,
    });
    let expected = (Some("make_report".to_owned()), ticks(20), ticks(4), ticks(4));
    assert_eq!(excess(&mut r), [expected]);
}

/// Both call the same helper, which is further inside.
#[test]
fn a_helper_that_fast_requests_call_as_well_is_not_the_culprit() {
    const SPIN: &[&str] = &["app spin", "app render", "app answer", "app main"];
    const SPIN_FOR_REPORT: &[&str] = &["app spin", "app make_report", "app answer", "app main"];
    let mut r = asks();
    sample(&mut r, |n, tick| match (is_slow(n), tick) {
        (true, 4..) => Some(SPIN_FOR_REPORT),
        (true, _) => Some(SPIN),
        (false, 1) if n.is_multiple_of(7) => Some(SPIN),
        (false, _) => None,
    });
    let expected = (Some("make_report".to_owned()), ticks(20), ticks(4), ticks(4));
    assert_eq!(excess(&mut r), [expected]);
}

/// The same function takes longer in the slow ones: there is none that only they run.
#[test]
fn a_function_that_all_requests_run_is_taken_away_from_all() {
    let mut r = asks();
    sample(&mut r, |n, tick| (is_slow(n) || tick == 1 && n.is_multiple_of(7)).then_some(ANSWER));
    assert_eq!(excess(&mut r), [(Some("answer".to_owned()), ticks(20), ticks(1), ticks(1))]);
}

/// Half of what the usual ones do is in the same function. Those without a sample count by the others.
#[test]
fn short_work_without_samples_counts_by_that_of_others() {
    let mut r = asks();
    sample(&mut r, |n, tick| match (is_slow(n), tick) {
        (true, 2..) => Some(REPORT),
        (true, _) => Some(ANSWER),
        (false, 1) if n.is_multiple_of(7) => Some(REPORT),
        (false, 3) if n.is_multiple_of(7) => Some(ANSWER),
        (false, _) => None,
    });
    // 22 of 24 ticks in the slow ones, half of 3 in the others.
    let left = Nanos(ticks(5).0 / 2);
    let expected = (Some("make_report".to_owned()), Nanos(ticks(41).0 / 2), left, left);
    assert_eq!(excess(&mut r), [expected]);
}

#[test]
fn two_functions_are_two_culprits() {
    const STORE: &[&str] = &["app store", "app answer", "app main"];
    let mut r = asks();
    sample(&mut r, |n, tick| match (is_slow(n), tick) {
        (true, 4..16) => Some(REPORT),
        (true, 16..) => Some(STORE),
        (true, _) => Some(ANSWER),
        (false, 1) if n.is_multiple_of(7) => Some(ANSWER),
        (false, _) => None,
    });
    let expected = [("make_report", 12, 12), ("store", 8, 16)]
        .map(|(name, more, left)| (Some(name.to_owned()), ticks(more), ticks(left), ticks(4)));
    assert_eq!(excess(&mut r), expected);
}

/// Without samples, nothing tells where the work was.
#[test]
fn work_without_samples_is_one_culprit() {
    assert_eq!(excess(&mut asks()), [(None, ticks(20), ticks(1), ticks(1))]);
}

#[test]
fn bands_of_divided_work_add_up() {
    let mut r = asks();
    sample(&mut r, |n, tick| match (is_slow(n), tick % 3) {
        (true, 0) => Some(REPORT),
        (true, _) => Some(ANSWER),
        (false, 1) if n.is_multiple_of(7) => Some(if n % 2 == 0 { REPORT } else { ANSWER }),
        (false, _) => None,
    });
    let requests = find(&mut r);
    for band in &class_of(&requests, "thread60").bands {
        let sum: u64 = band.culprits.iter().map(|one| one.mean_ns.0).sum();
        let rounded = band.culprits.len() as u64;
        assert!(sum.abs_diff(band.mean_ns.0) <= rounded, "{sum} of {}", band.mean_ns);
    }
}
