//! The rules by which records become intervals, one drawing each.

use offwake_analysis::timeline::{Timeline, WaitIndex, WakeUse, wake_use};
use offwake_recording::{
    Begin, End, Phase, Recording, ThreadEvent, ThreadEventReason, ThreadExit, Wait,
    units::{Nanos, Tgid, Tid, Timestamp},
};

use crate::draw::{
    TICK, at, drawn, edit, live, lose, preemption, recording, thread_event, throttle, wait, wake_by,
};

fn build(recording: &mut Recording) -> Timeline {
    recording.sort();
    Timeline::build(recording)
}

/// What the timeline says of a thread that lived like this, when these of its records are lost.
fn lived(life: &str, lost: &[u32]) -> String {
    let mut recording = recording(life.len());
    live(&mut recording, 7, life, 8);
    for &seq in lost {
        lose(&mut recording, 7, seq);
    }
    let timeline = build(&mut recording);
    drawn(&recording, &timeline, 7)
}

#[test]
fn a_life_is_drawn_as_it_was_lived() {
    for life in [
        "##########",
        "##...rr###",
        "##.....###",
        "##rr####rr",
        "...rr#####",
        "rrr#######",
        "###......",
        "..........",
        "#.r#.r#.rr",
        "   rr##..r##    ",
        "##...r###   ",
    ] {
        assert_eq!(lived(life, &[]), life);
    }
    // Not woken is blocked all the same.
    assert_eq!(lived("##___##", &[]), "##...##");
}

#[test]
fn a_missing_number_is_a_gap_between_its_neighbours() {
    assert_eq!(lived("##..r##...r##.r#", &[2]), "##..r????????.r#");
    assert_eq!(lived("##..r##rr###.r##", &[2]), "##..r???????.r##");
    // The first and the last.
    assert_eq!(lived("##..r##...r##.r#", &[1]), "???????...r##.r#");
    assert_eq!(lived("##..r##...r##.r#", &[3]), "##..r##...r?????");
    assert_eq!(lived("..r##..r##", &[1]), "?????..r##");
    assert_eq!(lived("##..r##...", &[2]), "##..r?????");
    assert_eq!(lived("  rr##..r##", &[1]), "  ????..r##");
    assert_eq!(lived("##..r##..r#   ", &[2]), "##..r??????   ");
}

#[test]
fn with_no_record_left_all_is_lost() {
    assert_eq!(lived("..........", &[1]), "??????????");
    assert_eq!(lived("##....####", &[1]), "??????????");
}

#[test]
fn a_wake_just_before_the_switch_out_leaves_no_blocked_time() {
    let mut recording = recording(10);
    live(&mut recording, 7, "##...rr###", 8);
    edit(&mut recording, |waits| {
        waits[0].wake = Some(wake_by(8, Timestamp(at(2).0 - 100_000)));
    });
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "##rrrrr###");
    assert_eq!(wake_use(&recording.waits.rows()[0]), WakeUse::Early);
    assert_eq!(timeline.blocked_interval(WaitIndex(0)), None);

    edit(&mut recording, |waits| {
        waits[0].wake = Some(wake_by(8, Timestamp(at(2).0 - 100_001)));
    });
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "##.....###");
    assert_eq!(wake_use(&recording.waits.rows()[0]), WakeUse::Stale);
    assert_eq!(timeline.anomalies.stale_wakes, 1);
}

#[test]
fn records_that_overlap_are_clipped_and_counted() {
    let mut recording = recording(10);
    live(&mut recording, 7, "##...r####", 8);
    recording.preemptions.push(preemption(7, 2, at(4), at(8)));
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "##...rrr??");
    assert_eq!(timeline.anomalies.overlaps, 1);
    assert_eq!(timeline.threads[0].track.total_times().total(), Nanos(10_000_000));
}

#[test]
fn times_that_run_backwards_are_clipped_and_counted() {
    let mut recording = recording(10);
    live(&mut recording, 7, "##...r####", 8);
    edit(&mut recording, |waits| waits[0].on = at(1));
    let timeline = build(&mut recording);
    assert_eq!(timeline.anomalies.backwards, 2, "the switch-in, and the wake after it");
    assert_eq!(timeline.threads[0].track.total_times().total(), Nanos(10_000_000));
}

#[test]
fn a_tid_used_again_is_another_thread() {
    let mut recording = recording(20);
    live(&mut recording, 7, "##..r##             ", 8);
    live(&mut recording, 7, "            rr##..r#", 8);
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "##..r##     rr##..r#");
    assert_eq!(timeline.threads.len(), 2);
    assert_eq!(timeline.find_thread(Tid(7), at(3)).map(|index| index.0), Some(0));
    assert_eq!(timeline.find_thread(Tid(7), at(10)), None);
    assert_eq!(timeline.find_thread(Tid(7), at(13)).map(|index| index.0), Some(1));
}

#[test]
fn a_lost_exit_leaves_a_gap_until_the_tid_is_used_again() {
    let mut recording = recording(20);
    live(&mut recording, 7, "##..r##             ", 8);
    live(&mut recording, 7, "            rr##..r#", 8);
    recording.exits.clear();
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "##..r???????rr##..r#");
}

#[test]
fn a_thread_that_takes_over_a_tid_by_exec_is_a_thread_of_its_own() {
    let mut recording = recording(20);
    live(&mut recording, 7, "##..r##             ", 8);
    let created = recording.thread_events[0].created;
    recording.thread_events.push(thread_event(7, ThreadEventReason::Exec, at(10), created));
    recording.waits.push(&wait(7, 5, at(12), at(14)));
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "##..r##   ??..??????");
}

/// Thread 9 of process 7 lives as drawn in `old`, executes another program at `exec`, and goes on as drawn
/// in `new`, its records counted on. Returns what the timeline says of both tids.
fn lived_through_exec(first: &str, old: &str, new: &str, exec: usize) -> (String, String) {
    let mut recording = recording(old.len());
    live(&mut recording, 7, first, 8);
    let created = recording.thread_events[0].created;
    let mut renumbered = Recording { meta: recording.meta.clone(), ..Recording::default() };
    live(&mut recording, 9, old, 8);
    let made = recording.waits.iter().filter(|wait| wait.tid == Tid(9)).count() as u32;
    recording.exits.retain(|exit| exit.tid != Tid(9));
    live(&mut renumbered, 7, new, 8);
    edit(&mut renumbered, |waits| waits.iter_mut().for_each(|wait| wait.seq += made));
    let before_exec = renumbered.waits.iter().filter(|wait| wait.off < at(exec)).count() as u32;
    let closing = renumbered
        .thread_events
        .drain(..)
        .filter(|event| event.reason == ThreadEventReason::Closing);
    recording.thread_events.extend(closing.map(|event| ThreadEvent {
        seq: event.seq + made,
        created,
        ..event
    }));
    let event = thread_event(7, ThreadEventReason::Exec, at(exec), created);
    recording.thread_events.push(ThreadEvent {
        old_tid: Some(Tid(9)),
        phase: Phase::OnCpu,
        seq: made + before_exec,
        ..event
    });
    let waits: Vec<Wait> = recording.waits.iter().chain(renumbered.waits.iter()).collect();
    recording.waits = waits.into_iter().map(|wait| Wait { tgid: Tgid(7), ..wait }).collect();
    recording.thread_events.iter_mut().for_each(|event| event.tgid = Tgid(7));
    recording.exits.iter_mut().for_each(|exit| exit.tgid = Tgid(7));
    let timeline = build(&mut recording);
    (drawn(&recording, &timeline, 7), drawn(&recording, &timeline, 9))
}

#[test]
fn no_time_is_lost_where_a_thread_gets_another_tid_by_exec() {
    // It waits for the first thread to end, executes the program, and lives on under its tid.
    let (seven, nine) = lived_through_exec(
        "##....#                       ",
        "###...##                      ",
        "        ##..r####...r#########",
        8,
    );
    assert_eq!(seven, "##....# ##..r####...r#########");
    assert_eq!(nine, "###...##                      ");
    // The program is read from a disk before the exec is done.
    let (seven, nine) = lived_through_exec(
        "##....#             ",
        "###...##            ",
        "        ##..r####...",
        15,
    );
    assert_eq!(seven, "##....#   ..r####...");
    assert_eq!(nine, "###...####          ");
    // It never waits again.
    let (seven, nine) = lived_through_exec("##....#   ", "###...##  ", "        ##", 8);
    assert_eq!(seven, "##....# ##");
    assert_eq!(nine, "###...##  ");
}

#[test]
fn a_zombie_that_is_looked_at_does_not_live_on() {
    let mut recording = recording(12);
    live(&mut recording, 7, "##..r##     ", 8);
    let created = recording.thread_events[0].created;
    recording.thread_events.push(thread_event(7, ThreadEventReason::Closing, at(12), created));
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "##..r##     ");
}

#[test]
fn a_thread_that_nobody_sighted_is_known_by_its_records_alone() {
    let mut recording = recording(10);
    live(&mut recording, 7, "##..r##.r#", 8);
    recording.thread_events.clear();
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "??..r##.r?");
    assert_eq!(timeline.threads[0].created, None);
    assert_eq!(timeline.threads[0].comm_at(at(5)), None);
}

#[test]
fn edges_of_the_window_continue_what_was_seen_near_them() {
    // Looked at a tick after the window opened, and a tick before it closed.
    let mut recording = recording(10);
    let mut record = wait(7, 1, at(1), at(9));
    (record.begin, record.end) = (Begin::BeforeWindow, End::StillOff);
    recording.waits.push(&record);
    recording.thread_events.push(thread_event(7, ThreadEventReason::Opening, at(1), Timestamp(1)));
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "..........");
    let place = timeline.blocked_interval(WaitIndex(0)).expect("blocked");
    assert_eq!((place.from, place.to), (at(0), at(10)));
}

#[test]
fn the_idle_task_is_no_thread() {
    let mut recording = recording(10);
    recording.waits.push(&wait(0, 1, at(2), at(4)));
    recording.exits.push(ThreadExit {
        at: at(5),
        tid: Tid(0),
        tgid: Tgid(0),
        in_target: false,
        seq: 0,
        status: 0,
    });
    let timeline = build(&mut recording);
    assert!(timeline.threads.is_empty());
    assert_eq!(timeline.blocked_interval(WaitIndex(0)), None);
}

#[test]
fn a_name_is_the_one_of_that_time() {
    let mut recording = recording(10);
    live(&mut recording, 7, "##########", 8);
    let created = recording.thread_events[0].created;
    let mut renamed = thread_event(7, ThreadEventReason::Rename, at(5), created);
    renamed.comm = "later".to_owned();
    recording.thread_events.push(renamed);
    let timeline = build(&mut recording);
    let comm = |tick| timeline.threads[0].comm_at(at(tick));
    assert_eq!((comm(4), comm(5)), (Some("thread7"), Some("later")));
}

/// A thread of whose times off the CPU the second is lost, and what others say of it.
fn gapped(tell: impl FnOnce(&mut Recording)) -> (String, Vec<(u64, u64)>) {
    let mut recording = recording(20);
    live(&mut recording, 7, "##..r###..r####..r##", 8);
    lose(&mut recording, 7, 2);
    tell(&mut recording);
    let timeline = build(&mut recording);
    let start = at(0);
    let ticks = |moment: Timestamp| moment.since(start).0 / TICK;
    let inferred = &timeline.threads[0].inferred;
    let inferred = inferred.iter().map(|&(from, to)| (ticks(from), ticks(to))).collect();
    (drawn(&recording, &timeline, 7), inferred)
}

/// Has a thread that had made so many records wake thread 9 at a tick.
fn wakes_nine(recording: &mut Recording, tick: usize, seq: u32) {
    let mut wake = wake_by(7, at(tick));
    wake.current_seq = Some(seq);
    let record = Wait { wake: Some(wake), ..wait(9, 1, at(1), at(19)) };
    recording.waits.push(&record);
}

#[test]
fn a_gap_ends_where_others_saw_the_thread_on_a_cpu() {
    let lost = "##..r??????????..r##".to_owned();
    assert_eq!(gapped(|_| {}), (lost.clone(), vec![]));
    // It had not left since its first time off, or it was back from its second.
    assert_eq!(
        gapped(|recording| wakes_nine(recording, 7, 1)),
        ("##..r##????????..r##".to_owned(), vec![(5, 7)])
    );
    assert_eq!(
        gapped(|recording| wakes_nine(recording, 12, 2)),
        ("##..r???????###..r##".to_owned(), vec![(12, 15)])
    );
    // Another was preempted for it: it came back then.
    let comes = |recording: &mut Recording| {
        let mut preempted = preemption(9, 1, at(11), at(16));
        preempted.next = Tid(7);
        recording.preemptions.push(preempted);
    };
    assert_eq!(gapped(comes), ("##..r??????####..r##".to_owned(), vec![(11, 15)]));
    // Twice, though only one record is missing: that can't be.
    let comes_twice = |recording: &mut Recording| {
        comes(recording);
        let mut preempted = preemption(9, 2, at(13), at(16));
        preempted.next = Tid(7);
        recording.preemptions.push(preempted);
    };
    assert_eq!(gapped(comes_twice), (lost, vec![]));
}

#[test]
fn throttled_time_is_the_part_of_the_runnable_time_that_a_quota_took() {
    let mut recording = recording(24);
    live(&mut recording, 7, "##rrrrrr##...rrrr#rrr###", 8);
    // From its preemption on, until its queue was refilled: then it waits for a CPU.
    throttle(&mut recording, 7, 2..5, 40);
    // In the middle, twice; a snapshot has said the second one before it was over.
    throttle(&mut recording, 7, 14..15, 40);
    throttle(&mut recording, 7, 16..17, 40);
    throttle(&mut recording, 7, 16..16, 40);
    // It ran, or slept: that can't be. What overlaps counts once.
    throttle(&mut recording, 7, 8..12, 40);
    throttle(&mut recording, 7, 17..20, 40);
    throttle(&mut recording, 7, 18..19, 40);
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "##tttrrr##...rtrt#ttr###");
    let times = timeline.threads[0].track.total_times();
    assert_eq!((times.runnable, times.throttled), (Nanos(13_000_000), Nanos(7_000_000)));
    assert_eq!(times.total(), Nanos(24_000_000));
}

#[test]
fn a_throttle_is_clipped_to_the_window_and_is_that_of_its_thread_alone() {
    let mut recording = recording(10);
    live(&mut recording, 7, "rrrr####rr", 8);
    live(&mut recording, 9, "rrrr####rr", 8);
    throttle(&mut recording, 7, 0..3, 40);
    recording.throttles[0].from = Timestamp(0);
    throttle(&mut recording, 7, 9..30, 40);
    let timeline = build(&mut recording);
    assert_eq!(drawn(&recording, &timeline, 7), "tttr####rt");
    assert_eq!(drawn(&recording, &timeline, 9), "rrrr####rr");
}
