//! How long requests took, and what the slow ones have that the fast ones do not.

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    requests::{Excess, Latencies, RequestAnalysis, RequestClass, Requests},
    timeline::Timeline,
};
use offwake_recording::{
    FileId, FileKind, OpenFile, ReadyFile, Recording, SocketEnd, SocketRole, TagChange, TagName,
    TagSet, TagSetId,
    units::{Nanos, Tgid, Tid, Timestamp},
};
use proptest::prelude::*;

use crate::{
    draw::{at, edit, live, recording, ticks},
    fixtures::{EPOLL_WAIT, READ, file, syscall},
    properties::world,
};

/// How long one exchange takes in drawings.
const PERIOD: usize = 20;

/// Finds the requests of a recording.
pub(crate) fn find(recording: &mut Recording) -> Requests {
    recording.sort();
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    RequestAnalysis::find(&blame).summary().clone()
}

/// 7 asks 60 so many times. Each time that `is_slow` says so, 60 asks 61, who works for 10 ticks.
pub fn asks(count: usize, is_slow: impl Fn(usize) -> bool) -> Recording {
    let mut r = recording(count * PERIOD);
    let (mut asks, mut serves, mut helps) = (String::new(), String::new(), String::new());
    // The number of 60's wait that 61 ends, of all of its waits.
    let (mut waits, mut helped) = (0, Vec::new());
    for n in 0..count {
        waits += 1;
        if is_slow(n) {
            waits += 1;
            helped.push(waits);
            asks += "###..............###";
            serves += "..##..........###...";
            helps += "....##########......";
        } else {
            asks += "###...##############";
            serves += "..####..............";
            helps += "....................";
        }
    }
    live(&mut r, 7, &asks, 60);
    live(&mut r, 60, &serves, 7);
    live(&mut r, 61, &helps, 60);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(60)) {
            if helped.contains(&wait.seq)
                && let Some(wake) = &mut wait.wake
            {
                (wake.current.tid, wake.current.tgid.0) = (Tid(61), 61);
            }
        }
    });
    r
}

fn only_class(requests: &Requests) -> &RequestClass {
    let [class] = requests.classes.as_slice() else { panic!("{requests:#?}") };
    class
}

/// Returns the class of a server.
pub(crate) fn class_of<'r>(requests: &'r Requests, server: &str) -> &'r RequestClass {
    let mut classes = requests.classes.iter();
    classes.find(|class| class.server.contains(server)).unwrap_or_else(|| panic!("{requests:#?}"))
}

#[test]
fn latency_is_from_the_question_to_the_answer() {
    let requests = find(&mut asks(10, |_| false));
    // Nothing tells who asks: 60 waits for 7 as well.
    let class = class_of(&requests, "thread60");
    assert!(!class.roles_known);
    assert_eq!((class.count, class.unfinished), (10, 0));
    assert_eq!(class.latency.p50_ns, ticks(4));
    assert_eq!(class.latency.max_ns, ticks(4));
    assert_eq!(class.service.p50_ns, ticks(4));
    assert_eq!(class.slow, None);
}

#[test]
fn a_request_longer_than_the_recording_is_told_as_one_without_an_answer() {
    let mut r = recording(40);
    live(&mut r, 7, &format!("###{}", "_".repeat(37)), 60);
    live(&mut r, 60, &format!("..{}", "#".repeat(38)), 7);
    let requests = find(&mut r);
    assert!(requests.classes.is_empty(), "{requests:#?}");
    let [unanswered] = requests.unanswered.as_slice() else { panic!("{requests:#?}") };
    assert_eq!((unanswered.server.as_str(), unanswered.unfinished), ("thread60 60", 1));
    let reason = requests.why_none().expect("none was answered");
    assert_eq!(reason, "the only one was not answered in the time that was recorded");
    let text = requests.text_lines(100).join("\n");
    assert!(text.contains("requests of thread60 60 ("), "{text}");
    assert!(text.contains("1 unfinished, none answered in "), "{text}");
    // With those that are answered, they are in no class of their own.
    let answered = find(&mut asks(10, |_| false));
    assert!(answered.unanswered.is_empty() && answered.why_none().is_none(), "{answered:#?}");
}

#[test]
fn slow_requests_have_what_fast_ones_do_not_and_the_bound_is_without_it() {
    // 15 of 100 are slow: 10 ticks of 61's work, and one more of 60's own.
    let requests = find(&mut asks(400, |n| n % 20 < 3));
    let class = class_of(&requests, "thread60");
    assert_eq!(class.count, 400);
    assert_eq!((class.latency.p50_ns, class.latency.p90_ns), (ticks(4), ticks(15)));
    let slow = class.slow.as_ref().expect("enough of them");
    assert_eq!((slow.from_percentile, slow.count), (90.0, 40));
    assert_eq!((slow.mean_ns, slow.fast_mean_ns), (ticks(15), ticks(4)));
    let excess: Vec<(&str, Nanos, Nanos)> = (slow.excess.iter())
        .map(|one| (one.culprit.program.as_str(), one.excess_ns, one.without.p90_ns))
        .collect();
    assert_eq!(excess, [("thread61", ticks(10), ticks(5)), ("thread60", ticks(1), ticks(11))]);
}

/// Before 60 comes to the CPU, 80 has it for two ticks in each request, and 81 for ten more in the slow ones.
#[test]
fn who_had_the_cpu_in_the_slow_ones_alone_is_what_they_have_more() {
    let mut r = recording(400 * PERIOD);
    let draw = |fast: &str, slow: &str| -> String {
        (0..400).map(|n| if n % 10 == 0 { slow } else { fast }).collect()
    };
    live(&mut r, 7, &draw("###.....############", "###...............##"), 60);
    live(&mut r, 60, &draw("..rrr###............", "..rrrrrrrrrrrrr###.."), 7);
    live(&mut r, 80, &draw("...##...............", "...##..............."), 9);
    live(&mut r, 81, &draw("....................", ".....##########....."), 9);
    let requests = find(&mut r);
    let class = class_of(&requests, "thread60");
    assert_eq!((class.latency.p50_ns, class.latency.max_ns), (ticks(6), ticks(16)));
    let slow = class.slow.as_ref().expect("enough of them");
    let [excess] = slow.excess.as_slice() else { panic!("{slow:#?}") };
    assert!(excess.culprit.text.contains("thread81"), "{excess:#?}");
    assert!(!excess.culprit.text.contains("thread80"), "{excess:#?}");
    assert_eq!((excess.fast_mean_ns, excess.excess_ns), (ticks(0), ticks(10)));
    // What 80 takes of each request would not be gained.
    assert_eq!(excess.without.max_ns, ticks(6));
}

/// Returns latencies of these percentiles; the longest is that of p99.9.
fn latencies(p50: u64, p90: u64, p99: u64, p999: u64) -> Latencies {
    let [p50_ns, p90_ns, p99_ns, p999_ns] = [p50, p90, p99, p999].map(ticks);
    Latencies { mean_ns: p50_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns: p999_ns }
}

#[test]
fn a_bound_is_of_a_percentile_that_changes() {
    let requests = find(&mut asks(400, |n| n % 20 < 3));
    let slow = class_of(&requests, "thread60").slow.clone().expect("enough of them");
    let now = latencies(1, 10, 20, 30);
    for (without, expected) in [
        (latencies(1, 10, 15, 30), Some("p99 would be at least 15.0 ms instead of 20.0 ms")),
        // Only the longest ones have it.
        (
            latencies(1, 10, 20, 25),
            Some(
                "p99.9 would be at least 25.0 ms instead of 30.0 ms, and p99 would stay near 20.0 ms",
            ),
        ),
        // The longest ones have something else.
        (
            latencies(1, 5, 20, 30),
            Some(
                "p90 would be at least 5.00 ms instead of 10.0 ms, and p99 would stay near 20.0 ms",
            ),
        ),
        (now, None),
    ] {
        let excess = Excess { without, ..slow.excess[0].clone() };
        let changed = excess.changed_percentile(&now).map(|changed| changed.describe(&now));
        assert_eq!(changed.as_deref(), expected);
    }
}

/// The profile of a band adds up to its mean.
fn check_sums(class: &RequestClass) -> Result<(), TestCaseError> {
    let mut all = 0;
    for band in &class.bands {
        let sum: u64 = band.culprits.iter().map(|one| one.mean_ns.0).sum::<u64>() + band.other_ns.0;
        // Each part is rounded by itself.
        let parts = band.culprits.len() as u64 + 1;
        prop_assert!(sum.abs_diff(band.mean_ns.0) <= parts, "{} of {}", sum, band.mean_ns);
        all += band.count;
    }
    prop_assert_eq!(all, class.count);
    Ok(())
}

/// A socket of a server at port 80.
fn server_socket(r: &mut Recording, inode: u64) -> FileId {
    let id = file(FileKind::Socket, inode);
    let socket = SocketEnd {
        protocol: "tcp".to_owned(),
        local: "127.0.0.1:80".to_owned(),
        remote: format!("127.0.0.1:{}", 40_000 + inode),
        role: Some(SocketRole::Serving),
        peers: Vec::new(),
    };
    r.files.files.insert(id, OpenFile::Socket(socket));
    id
}

/// 7 serves what 60 asks, which waits for others as well.
fn served_for_loop(inodes: impl Fn(usize) -> u64, number: u32) -> Requests {
    let count = 30;
    let mut r = recording(count * PERIOD);
    let (mut asks, mut serves) = (String::new(), String::new());
    for _ in 0..count {
        asks += "####################";
        serves += "..####..............";
    }
    live(&mut r, 60, &asks, 7);
    live(&mut r, 7, &serves, 60);
    let sockets: Vec<_> = (0..=count).map(|n| server_socket(&mut r, inodes(n))).collect();
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(7)) {
            let socket = sockets.get(wait.seq as usize - 1).copied();
            wait.syscall = syscall(number, [4, 0, 0, 0, 0, 0]);
            wait.file = socket;
            if number == EPOLL_WAIT
                && let (Some(wake), Some(file)) = (&mut wait.wake, socket)
            {
                wake.ready = Some(ReadyFile { descriptor: 5, file });
                wait.file = Some(FileId { kind: FileKind::Anonymous, ..file });
            }
        }
    });
    find(&mut r)
}

#[test]
fn a_thread_that_serves_one_connection_shows_what_a_loop_asked_it() {
    for requests in [served_for_loop(|_| 5, READ), served_for_loop(|_| 5, EPOLL_WAIT)] {
        let class = only_class(&requests);
        assert_eq!((class.count, class.seen_by_server), (30, 30));
        assert!(class.roles_known);
        assert_eq!(class.latency.p50_ns, ticks(4));
        assert_eq!(class.serving_end, "tcp 127.0.0.1:80");
        assert_eq!(requests.not_told_apart, 0);
    }
}

#[test]
fn what_comes_for_a_thread_that_serves_several_is_counted_alone() {
    let in_turn = |n: usize| n as u64 % 2;
    // Of connections with one request each, nothing tells whether there were others meanwhile.
    let for_each_request = |n: usize| n as u64;
    // The first one is used again after the second one.
    let once_more = |n: usize| u64::from((10..20).contains(&n));
    for requests in [
        served_for_loop(in_turn, EPOLL_WAIT),
        served_for_loop(for_each_request, EPOLL_WAIT),
        served_for_loop(once_more, EPOLL_WAIT),
    ] {
        assert_eq!((requests.classes.len(), requests.not_told_apart), (0, 30));
    }
}

/// nginx ends a connection after 1,000 requests.
#[test]
fn a_client_that_makes_one_connection_after_the_other_has_requests() {
    let requests = served_for_loop(|n| n as u64 / 10, EPOLL_WAIT);
    let class = only_class(&requests);
    assert_eq!((class.count, class.seen_by_server), (30, 30));
    assert_eq!((class.latency.p50_ns, requests.not_told_apart), (ticks(4), 0));
}

/// Sets, at these ticks, what 60 says that it is for.
fn label(recording: &mut Recording, key: u8, changes: &[(usize, Option<&str>)]) {
    for (n, &(tick, value)) in changes.iter().enumerate() {
        let id = TagSetId(n as u64 + 1);
        let attributes = value.iter().map(|value| (key, (*value).to_owned())).collect();
        let (tgid, at) = (Tgid(60), at(tick));
        // It was looked at just before.
        let since = Some(Timestamp(at.0 - 1));
        let set = TagSet { id, tgid, trace: None, span: None, attributes, labels: Vec::new() };
        recording.tag_sets.insert(id, set);
        let set = value.map(|_| id);
        recording.tag_changes.push(TagChange { tid: Tid(60), tgid, at, since, set });
    }
    let name = ["http.route", "enduser.id"][usize::from(key)].to_owned();
    recording.tag_names.push(TagName { tgid: Tgid(60), key, name });
}

/// Every other request is for the cart, and its label is laid down before the next one.
fn labelled(key: u8) -> Requests {
    let mut r = asks(20, |_| false);
    let mut changes = Vec::new();
    for n in 0..20 {
        changes.push((n * PERIOD + 3, Some(if n % 2 == 0 { "/checkout" } else { "/cart" })));
        changes.push((n * PERIOD + 8, None));
    }
    label(&mut r, key, &changes);
    find(&mut r)
}

#[test]
fn requests_are_told_apart_by_what_the_serving_thread_says_that_they_are_for() {
    let requests = labelled(0);
    let served = requests.classes.iter().filter(|class| class.server.contains("thread60"));
    let mut classes: Vec<_> = served.map(|class| (class.label.as_deref(), class.count)).collect();
    classes.sort_unstable();
    assert_eq!(classes, [(Some("http.route=/cart"), 10), (Some("http.route=/checkout"), 10)]);
    // The other direction has no labels: 7 says nothing.
    assert!(requests.classes.iter().any(|class| class.label.is_none()), "{requests:#?}");
    let text = requests.text_lines(120).join("\n");
    assert!(text.contains(", http.route=/cart), 10 in "), "{text}");
}

#[test]
fn a_label_that_may_have_any_number_of_values_divides_nothing() {
    let requests = labelled(1);
    assert_eq!(class_of(&requests, "thread60").count, 20);
    assert!(requests.classes.iter().all(|class| class.label.is_none()), "{requests:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_was_lost_the_parts_of_requests_add_up(world in world()) {
        for mut recording in [world.full(), world.lossy()] {
            let requests = find(&mut recording);
            let untold: u64 = requests.not_told_apart_by_server.iter().map(|one| one.count).sum();
            prop_assert_eq!(untold, requests.not_told_apart);
            for class in &requests.classes {
                check_sums(class)?;
                prop_assert!(class.latency.max_ns <= recording.meta.window.length());
            }
        }
    }
}
