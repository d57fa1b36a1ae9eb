//! Time in which a CPU quota kept threads from running, from records to every screen.

use offwake_analysis::{
    blame::BlameEntryKind,
    filter::Filter,
    findings::{Finding, FindingKind},
    report::{Report, summary},
};
use offwake_recording::{
    CpuQuota, QuotaCount, Recording, SocketRole,
    units::{CgroupId, Nanos, Timestamp},
};

use crate::{
    draw::{at, edit, live, recording, throttle, ticks},
    fixtures::RECVFROM,
    golden::{report as build_report, written},
    open_waits::{LENGTH, waits_at_socket},
};

const SHOP: u64 = 40;

fn report(recording: &mut Recording) -> Report {
    recording.sort();
    build_report(recording, &Filter::default())
}

fn screen(report: &Report) -> String {
    written(report, summary::write)
}

fn first(report: &Report) -> &Finding {
    report.findings.list.first().expect("a finding")
}

pub fn add_quota(recording: &mut Recording) {
    let count = |at, periods, throttled_periods, throttled| QuotaCount {
        at: Timestamp(at),
        periods,
        throttled_periods,
        throttled: ticks(throttled),
    };
    let quota = CpuQuota {
        cgroup: CgroupId(SHOP),
        path: "/shop.slice".to_owned(),
        quota: ticks(20),
        period: ticks(100),
        first: count(1, 100, 50, 900),
        last: count(2, 102, 52, 1_042),
    };
    recording.quotas.insert(quota.cgroup, quota);
}

/// Thread 7 computes under a quota: it is throttled twice, and once waits for 60, which has the CPU.
pub fn throttled_thread() -> Recording {
    let mut r = recording(100);
    live(&mut r, 7, &format!("##{}####{}##", "r".repeat(50), "r".repeat(42)), 0);
    live(&mut r, 60, &format!("rr{}rrrr{}rr", "#".repeat(50), "#".repeat(42)), 0);
    throttle(&mut r, 7, 2..42, SHOP);
    throttle(&mut r, 7, 56..98, SHOP);
    r
}

#[test]
fn a_thread_that_only_computes_under_a_quota_is_a_finding() {
    let mut r = throttled_thread();
    add_quota(&mut r);
    let report = report(&mut r);
    let thread = &report.threads[0].ledger;
    assert_eq!((thread.runnable_ns, thread.throttled_ns), (ticks(92), ticks(82)));
    assert_eq!(thread.wall_ns, thread.on_cpu_ns + thread.runnable_ns + thread.blocked_ns);
    let finding = first(&report);
    assert_eq!((finding.kind, finding.cause.kind), (FindingKind::Throttled, "throttled"));
    assert_eq!(
        finding.text,
        "thread7 7 is throttled by the CPU quota of /shop.slice: 20 ms in 100 ms"
    );
    assert_eq!((finding.ns, finding.share), (ticks(82), 0.82));
    let screen = screen(&report);
    // It leads as waits do that have not ended: with the word, how long, and whose quota it is.
    let leads = "1   82%  THROTTLED 82.0 of 100 ms  cgroup /shop.slice, quota 0.2 CPU: thread7 7 is throttled";
    assert!(screen.contains(leads), "{screen}");
    assert!(screen.contains("└ the CPU quota of /shop.slice: 20 ms in 100 ms"), "{screen}");
    assert!(screen.contains("20 ms in 100 ms, used up in 2 of 2 periods  ← cause"), "{screen}");
    // The rest of the time that it could have run, another had the CPU.
    let queued = report.findings.list.iter().find(|finding| finding.cause.kind == "cpu_queue");
    let queued = queued.expect("it waited for a CPU as well");
    assert_eq!(queued.ns, ticks(10));
    assert!(queued.text.contains("held by thread60"), "{}", queued.text);
}

#[test]
fn without_a_throttle_the_same_time_is_whoever_held_the_cpu() {
    let mut r = throttled_thread();
    r.throttles.clear();
    add_quota(&mut r);
    let report = report(&mut r);
    assert_eq!(report.threads[0].ledger.throttled_ns, Nanos(0));
    assert!(report.findings.list.iter().all(|finding| finding.kind != FindingKind::Throttled));
    assert_eq!((first(&report).cause.kind, first(&report).ns), ("cpu_queue", ticks(92)));
    assert!(report.quotas.is_empty(), "it kept nobody from running");
}

#[test]
fn the_quota_is_listed_with_what_the_kernel_counted_and_with_its_threads() {
    let mut r = throttled_thread();
    add_quota(&mut r);
    let report = report(&mut r);
    let [quota] = report.quotas.as_slice() else { panic!("{:?}", report.quotas) };
    assert_eq!(quota.path.as_deref(), Some("/shop.slice"));
    assert_eq!((quota.quota_ns, quota.period_ns), (Some(ticks(20)), Some(ticks(100))));
    assert_eq!(quota.throttled_ns, ticks(82));
    let counted = quota.counted.expect("it was read");
    assert_eq!((counted.periods, counted.throttled_periods), (2, 2));
    assert_eq!(counted.throttled_ns, ticks(142));
    assert_eq!(
        (quota.threads[0].thread.comm.as_str(), quota.threads[0].ns),
        ("thread7", ticks(82))
    );
}

/// Threads 7 and 8 are under one quota, which keeps each from running for a while of its own.
#[test]
fn each_thread_under_a_quota_counts_for_as_long_as_it_was_kept_from_running() {
    let mut r = throttled_thread();
    live(&mut r, 8, &format!("{}{}####", "#".repeat(70), "r".repeat(26)), 0);
    throttle(&mut r, 8, 70..90, SHOP);
    add_quota(&mut r);
    let report = report(&mut r);
    let [quota] = report.quotas.as_slice() else { panic!("{:?}", report.quotas) };
    assert_eq!(quota.throttled_ns, ticks(82 + 20));
    let threads = quota.threads.iter().map(|it| (it.thread.comm.as_str(), it.ns));
    assert_eq!(threads.collect::<Vec<_>>(), [("thread7", ticks(82)), ("thread8", ticks(20))]);
}

/// A thread that is moved while it is throttled was throttled by the quota of the cgroup that it came from.
#[test]
fn who_is_moved_while_throttled_was_throttled_by_the_quota_that_it_left() {
    const NEW: u64 = 41;
    let mut r = throttled_thread();
    r.throttles.retain(|throttle| throttle.from.0 < at(50).0);
    throttle(&mut r, 7, 56..60, NEW);
    add_quota(&mut r);
    let mut new = r.quotas[&CgroupId(SHOP)].clone();
    (new.cgroup, new.path) = (CgroupId(NEW), "/new.slice".to_owned());
    r.quotas.insert(new.cgroup, new);
    r.thread_events.iter_mut().for_each(|event| event.cgroup = CgroupId(NEW));
    let report = report(&mut r);
    let quotas = report.quotas.iter().map(|quota| (quota.path.as_deref(), quota.throttled_ns));
    let expected = [(Some("/shop.slice"), ticks(40)), (Some("/new.slice"), ticks(4))];
    assert_eq!(quotas.collect::<Vec<_>>(), expected);
    assert!(first(&report).text.contains("/shop.slice"), "{}", first(&report).text);
}

#[test]
fn a_quota_that_nobody_could_read_is_a_quota_all_the_same() {
    let mut r = throttled_thread();
    let report = report(&mut r);
    assert_eq!(first(&report).text, "thread7 7 is throttled by a CPU quota");
    let screen = screen(&report);
    assert!(screen.contains("THROTTLED 82.0 of 100 ms  thread7 7 is throttled"), "{screen}");
    assert!(!screen.contains("quota 0."), "{screen}");
    assert_eq!((report.quotas[0].cgroup, &report.quotas[0].path), (Some(CgroupId(SHOP)), &None));
    assert_eq!(report.quotas[0].counted, None);
}

#[test]
fn a_path_that_another_program_chose_can_do_nothing_to_a_terminal() {
    let mut r = throttled_thread();
    add_quota(&mut r);
    r.quotas.get_mut(&CgroupId(SHOP)).unwrap().path = "/a\u{1b}[31m\nb".to_owned();
    let report = report(&mut r);
    assert!(!screen(&report).contains('\u{1b}') && !first(&report).text.contains('\n'));
}

/// Thread 7 waits for 60, which computes, is throttled, and waits behind 61.
fn throttled_server() -> Recording {
    let mut r = recording(40);
    live(&mut r, 7, &format!("#{}r#", ".".repeat(37)), 60);
    live(&mut r, 60, &format!("{}{}{}", "#".repeat(10), "r".repeat(25), "#".repeat(5)), 0);
    live(&mut r, 61, &format!("{}{}{}", "r".repeat(10), "#".repeat(25), "r".repeat(5)), 0);
    throttle(&mut r, 60, 10..30, SHOP);
    add_quota(&mut r);
    edit(&mut r, |waits| waits.iter_mut().for_each(|wait| wait.on_cpu.0 = 1));
    r
}

#[test]
fn who_waits_for_a_throttled_thread_waits_for_the_quota_and_for_nobody_who_ran_meanwhile() {
    let mut r = throttled_server();
    let report = report(&mut r);
    let blame = &report.waits[0].blame;
    let of_kind = |kind| {
        let parts = blame.iter().filter(|part| part.kind == kind);
        parts.map(|part| part.ns).sum::<Nanos>()
    };
    assert_eq!(of_kind(BlameEntryKind::Throttled), ticks(20));
    assert_eq!(of_kind(BlameEntryKind::CpuQueue), ticks(5));
    assert_eq!(of_kind(BlameEntryKind::Work), ticks(12));
    let throttled = blame.iter().find(|part| part.kind == BlameEntryKind::Throttled).unwrap();
    assert_eq!((throttled.tid, throttled.depth), (None, 1));
    assert!(throttled.holder.is_none());
    assert_eq!(throttled.chain[0].thread.comm, "thread60");
    let queued = blame.iter().find(|part| part.kind == BlameEntryKind::CpuQueue).unwrap();
    assert_eq!(queued.holder.as_ref().unwrap().comm, "thread61");
    let ledger = &report.threads[0].ledger;
    assert_eq!((ledger.external_ns, ledger.external["throttled"]), (ticks(20), ticks(20)));
    assert_eq!(
        ledger.blocked_ns,
        ledger.attributed_ns + ledger.external_ns + ledger.unattributed_ns
    );
    let finding = first(&report);
    assert_eq!((finding.kind, finding.cause.kind), (FindingKind::Wait, "throttled"));
    assert!(
        finding
            .text
            .ends_with("thread60 60 is throttled by the CPU quota of /shop.slice: 20 ms in 100 ms"),
        "{}",
        finding.text
    );
}

/// Thread 7 waits for an answer of 60, which computes for so much of each period and is throttled then. The
/// window ends in a throttle, or as the server runs. Returns what is said of 60.
fn last_hop(on_cpu: usize, ends_throttled: bool) -> String {
    const PERIOD: usize = 100;
    let mut r = recording(LENGTH);
    live(&mut r, 7, &format!("#{}", "_".repeat(LENGTH - 1)), 0);
    let (runs, throttled) = ("#".repeat(on_cpu), "r".repeat(PERIOD - on_cpu));
    let (period, first_throttle) = match ends_throttled {
        true => (format!("{runs}{throttled}"), on_cpu),
        false => (format!("{throttled}{runs}"), 0),
    };
    live(&mut r, 60, &period.repeat(LENGTH / PERIOD), 0);
    for begin in (first_throttle..LENGTH).step_by(PERIOD) {
        throttle(&mut r, 60, begin..begin + PERIOD - on_cpu, SHOP);
    }
    add_quota(&mut r);
    waits_at_socket(&mut r, 7, RECVFROM, SocketRole::Asking, 60);
    let report = report(&mut r);
    let found = first(&report);
    assert_eq!(found.kind, FindingKind::StillWaiting, "{found:#?}");
    assert!(found.lines.iter().any(|line| line.is_cause && found.cause.text.contains(&line.text)));
    found.chain.last().expect("a chain").what.clone()
}

#[test]
fn an_open_chain_names_the_quota_that_keeps_its_last_thread_from_running() {
    let throttled =
        "has not answered: is throttled by the CPU quota of /shop.slice: 20 ms in 100 ms";
    for ends_throttled in [true, false] {
        assert_eq!(last_hop(20, ends_throttled), throttled, "{ends_throttled}");
        // It works for most of the time.
        assert_eq!(last_hop(70, ends_throttled), "has not answered: runs on a CPU");
    }
}
