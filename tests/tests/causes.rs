//! One test per workload: who ended the waits, what they were on, and how long they took, against
//! what the workload measured itself. The tolerances and their reasons are in
//! `offwake_tests::case`.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::{ABSOLUTE_NS, Case, RELATIVE, at_least, is_close},
    ground_truth::Activity,
    report::{Blame, Waits},
    throttled_disk::ThrottledDisk,
    wait_until::wait_until,
    workload::Workload,
};

/// Demands that `waiter` waited on `cause` for `waker`, who did nothing but compute meanwhile.
fn waits_for_a_worker(case: &Case, waiter: &str, cause: &str, waker: &str) -> Result<()> {
    let waker = BTreeSet::from([case.tid(waker)]);
    case.check_blocked_on(waiter, cause)?;
    case.check_wait_count(waiter, cause)?;
    case.check_woken_by(waiter, cause, &waker)?;
    case.check_blamed_on(waiter, cause, &waker)
}

/// Demands that `waiter` waited on `cause` for `waker`. How long does not matter: the waits are short
/// by construction, and on a busy machine many of them are over before they begin.
fn waits_briefly_for(case: &Case, waiter: &str, cause: &str, waker: &str) -> Result<()> {
    case.check_cause(waiter, cause)?;
    case.check_woken_by(waiter, cause, &BTreeSet::from([case.tid(waker)]))
}

/// Demands that a frame of the workload is in the stack of nearly all waits on `cause`.
fn waits_in(case: &Case, role: &str, cause: &str, function: &str) -> Result<()> {
    let tid = case.tid(role);
    let waits = case.report.waits_of(tid, Some(cause));
    let there = waits.filter(|waits| waits.has_frame(function)).map(|waits| waits.blocked_ns).sum();
    let blocked = case.report.blocked_ns(tid, cause);
    // The first wait may have begun before the window, when nobody could walk its stack.
    ensure!(
        at_least(there, 0.9, blocked),
        "{function} is in {there} ns of {blocked} of the waits of {role}, {:?}, {:?}: {}",
        case.report.meta.stack_counts,
        case.report.loss.counters,
        case.describe(role)
    );
    Ok(())
}

/// Demands of at least 95 % of what `role` waited on `cause` that `holds`.
fn mostly(case: &Case, role: &str, cause: &str, holds: impl Fn(&Waits) -> bool) -> Result<()> {
    let (mut all, mut held) = (0, 0);
    for waits in case.report.waits_of(case.tid(role), Some(cause)) {
        all += waits.blocked_ns;
        held += if holds(waits) { waits.blocked_ns } else { 0 };
    }
    ensure!(all > 0 && at_least(held, 0.95, all), "{role}: {held} of {all} ns");
    Ok(())
}

#[test]
fn a_futex_waiter_waits_for_who_wakes_it() -> Result<()> {
    let case = Case::profile("futex-handoff")?;
    waits_for_a_worker(&case, "waiter", "futex", "worker")?;
    waits_briefly_for(&case, "worker", "futex", "waiter")?;
    waits_in(&case, "waiter", "futex", "waits_for_baton")?;
    // Both ends of the futex meet: one address, waited on here and woken there.
    mostly(&case, "waiter", "futex", |waits| {
        let waited_on = waits.waited_on.as_ref().and_then(|on| on.futex_address.as_ref());
        let woken = waits.waker_call.as_ref().and_then(|call| call.futex_address.as_ref());
        waited_on.is_some() && waited_on == woken
    })
}

/// Returns how long the client waited for its socket, and how much of it TCP is said to have held back.
fn held_back_by_tcp(case: &Case, cause: &str) -> (u64, u64) {
    let waits = || case.report.waits_of(case.tid("client"), Some(cause));
    let is_held_back = |blame: &&Blame| blame.reason.as_deref() == Some("tcp_timer");
    let held_back = waits().flat_map(|waits| &waits.blame).filter(is_held_back);
    (waits().map(|waits| waits.blocked_ns).sum(), held_back.map(|blame| blame.ns).sum())
}

#[test]
fn an_answer_that_tcp_held_back_is_told_as_such() -> Result<()> {
    let case = Case::profile("answer-held-back-by-tcp")?;
    let (waited, held_back) = held_back_by_tcp(&case, "socket");
    ensure!(at_least(held_back, 0.7, waited), "{held_back}: {}", case.describe("client"));
    let findings = &case.report.findings;
    let lines = findings.iter().flat_map(|finding| &finding.lines);
    let told = lines.filter(|line| line.text.contains("delayed ACK")).count();
    ensure!(told > 0, "{findings:?}");
    Ok(())
}

#[test]
fn an_answer_that_is_sent_at_once_is_the_servers_in_however_many_pieces() -> Result<()> {
    let case = Case::profile("answer-in-pieces")?;
    let (waited, held_back) = held_back_by_tcp(&case, "socket");
    ensure!(held_back * 50 <= waited, "{held_back}: {}", case.describe("client"));
    case.check_blamed_on("client", "socket", &BTreeSet::from([case.tid("server")]))
}

/// What came to which socket, `epoll` alone knows.
#[test]
fn an_answer_that_tcp_held_back_is_told_as_such_to_a_poll_of_several_files() -> Result<()> {
    let case = Case::profile("answer-held-back-by-tcp-epoll")?;
    let (waited, held_back) = held_back_by_tcp(&case, "poll");
    ensure!(at_least(held_back, 0.7, waited), "{held_back}: {}", case.describe("client"));
    Ok(())
}

#[test]
fn an_answer_that_is_sent_at_once_to_a_poll_is_the_servers() -> Result<()> {
    let case = Case::profile("answer-in-pieces-epoll")?;
    let (waited, held_back) = held_back_by_tcp(&case, "poll");
    ensure!(held_back * 50 <= waited, "{held_back}: {}", case.describe("client"));
    case.check_blamed_on("client", "poll", &BTreeSet::from([case.tid("server")]))
}

#[test]
fn the_lock_of_an_inode_is_named_and_blamed_on_who_writes() -> Result<()> {
    let case = Case::profile("inode-lock-of-one-file")?;
    let writer = BTreeSet::from([case.tid("bulk-writer")]);
    let blocked = case.report.blocked_ns(case.tid("byte-writer"), "kernel_lock");
    ensure!(blocked > 0, "no wait for the lock: {}", case.describe("byte-writer"));
    case.check_woken_by("byte-writer", "kernel_lock", &writer)?;
    case.check_blamed_on("byte-writer", "kernel_lock", &writer)?;
    let hops = case.report.findings.iter().flat_map(|finding| &finding.chain);
    let told = hops.filter(|hop| hop.what.contains("the lock of a file (inode lock)")).count();
    ensure!(told > 0, "{:?}", case.report.findings);
    Ok(())
}

#[test]
fn who_writes_to_another_file_waits_for_no_lock_of_an_inode() -> Result<()> {
    let case = Case::profile("inode-locks-of-two-files")?;
    let blocked = case.report.blocked_ns(case.tid("byte-writer"), "kernel_lock");
    let waited = case.report.blocked_ns(case.tid("byte-writer"), "timer");
    ensure!(blocked * 50 <= waited, "{blocked}: {}", case.describe("byte-writer"));
    Ok(())
}

#[test]
fn a_mutex_is_waited_for_until_its_holder_lets_go() -> Result<()> {
    for name in ["mutex", "pi-mutex"] {
        let case = Case::profile(name)?;
        let holder = BTreeSet::from([case.tid("holder")]);
        // No count: a woken contender may find the lock taken again, and sleep twice in one call.
        if name == "pi-mutex" {
            // As long as the holder runs on another CPU, the kernel lets the contender spin
            // (https://github.com/torvalds/linux/blob/v6.12/kernel/locking/rtmutex.c#L1371): it waits
            // for longer than it is blocked.
            case.check_cause("contender", "futex").context(name)?;
        } else {
            case.check_blocked_on("contender", "futex").context(name)?;
        }
        case.check_woken_by("contender", "futex", &holder).context(name)?;
        case.check_blamed_on("contender", "futex", &holder).context(name)?;
        // The futex is named, although the kernel waits for this one with a lock of its own.
        let op = if name == "pi-mutex" { ":lock_pi" } else { ":wait" };
        mostly(&case, "contender", "futex", |waits| {
            waits.waited_on.as_ref().is_some_and(|on| on.text.ends_with(op))
        })
        .context(name)?;
    }
    Ok(())
}

#[test]
fn a_condition_is_waited_for_until_it_is_signalled() -> Result<()> {
    let case = Case::profile("condvar")?;
    waits_for_a_worker(&case, "consumer", "futex", "producer")
}

#[test]
fn a_client_waits_for_its_server_over_pipes() -> Result<()> {
    let case = Case::profile("pipe")?;
    waits_for_a_worker(&case, "client", "pipe", "server")?;
    waits_briefly_for(&case, "server", "pipe", "client")?;
    waits_in(&case, "client", "pipe", "waits_for_reply")?;
    mostly(&case, "client", "pipe", |waits| {
        waits.waited_on.as_ref().is_some_and(|on| on.text.starts_with("pipe:["))
            && waits.waker_call.as_ref().is_some_and(|call| call.syscall == "write")
    })
}

#[test]
fn a_client_waits_for_its_server_over_a_unix_socket() -> Result<()> {
    let case = Case::profile("unix-socket")?;
    // No count: the client is woken twice for each answer, first for nothing: when the server has
    // read the request, the client could write again (`unix_write_space`), and whoever sleeps on
    // the socket is woken, readers too. Both times it is the server.
    let server = BTreeSet::from([case.tid("server")]);
    case.check_blocked_on("client", "socket")?;
    case.check_woken_by("client", "socket", &server)?;
    case.check_blamed_on("client", "socket", &server)?;
    waits_briefly_for(&case, "server", "socket", "client")?;
    peer_is_named(&case, "unix", "client", "server")
}

/// Demands that the socket that `waiter` waited on is known down to the process that holds its other
/// end. The others that hold it got it when they were forked.
fn peer_is_named(case: &Case, protocol: &str, waiter: &str, peer: &str) -> Result<()> {
    let peer = case.pid(peer).to_string();
    mostly(case, waiter, "socket", |waits| {
        let on = waits.waited_on.as_ref().map_or("", |on| on.text.as_str());
        let mut words = on.split(|c: char| !c.is_ascii_alphanumeric());
        on.starts_with(protocol) && words.any(|word| word == peer)
    })
}

/// The wake runs in a softirq, but inside the sender's own send: the sender is the waker.
#[test]
fn a_client_waits_for_its_server_over_loopback_tcp() -> Result<()> {
    let case = Case::profile("loopback-tcp")?;
    waits_for_a_worker(&case, "client", "socket", "server")?;
    waits_briefly_for(&case, "server", "socket", "client")?;
    peer_is_named(&case, "tcp 127.0.0.1:", "client", "server")
}

#[test]
fn a_sleeper_waits_for_nobody() -> Result<()> {
    let case = Case::profile("sleeper")?;
    case.check_blocked_on("sleeper", "timer")?;
    case.check_wait_count("sleeper", "timer")?;
    case.check_external("sleeper", "timer", "timer")?;
    waits_in(&case, "sleeper", "timer", "sleeps")
}

/// The timer fires over the hog in each of some hundred waits: the hog is never the waker, nor to
/// blame.
#[test]
fn a_timer_that_fires_over_a_hog_does_not_accuse_it() -> Result<()> {
    let case = Case::profile("timer-over-hog")?;
    case.check_blocked_on("sleeper", "timer")?;
    case.check_external("sleeper", "timer", "timer")?;
    let hog = case.tid("hog");
    let woken: u64 = case
        .report
        .wakes
        .iter()
        .filter(|wakes| wakes.waker.tid == Some(hog))
        .map(|wakes| wakes.count)
        .sum();
    ensure!(woken == 0, "the hog woke somebody {woken} times");
    let accused = case
        .report
        .waits
        .iter()
        .flat_map(|waits| &waits.blame)
        .find(|blame| blame.blamed_tid() == Some(hog));
    ensure!(accused.is_none(), "the hog is accused: {accused:?}");
    // It computed all along, as far as others let it: the timers did fire over it.
    let ledger = case.report.thread(hog)?;
    ensure!(at_least(ledger.on_cpu_ns, 0.05, ledger.wall_ns), "{ledger:?}");
    ensure!(!at_least(ledger.blocked_ns, 0.05, ledger.wall_ns), "{ledger:?}");
    Ok(())
}

/// Each of the two threads has the one CPU half of the time, and waits for it the other half.
/// Other programs may want that CPU too, so the bounds are wide; what the spinners saw themselves
/// is the narrower measure.
#[test]
fn two_spinners_on_one_cpu_are_runnable_half_the_time() -> Result<()> {
    let case = Case::profile("two-spinners")?;
    for role in ["first", "second"] {
        let ledger = case.report.thread(case.tid(role))?;
        ensure!(at_least(ledger.runnable_ns, 0.3, ledger.wall_ns), "{ledger:?}");
        ensure!(at_least(ledger.on_cpu_ns, 0.05, ledger.wall_ns), "{ledger:?}");
        ensure!(!at_least(ledger.blocked_ns, 0.05, ledger.wall_ns), "{ledger:?}");
        let holes = case.log(role).total_ns(Activity::OffCpu, case.window());
        ensure!(
            is_close(ledger.runnable_ns, holes),
            "{role} missed its CPU for {holes}: {ledger:?}"
        );
    }
    let on_cpu = |role: &str| Ok::<_, anyhow::Error>(case.report.thread(case.tid(role))?.on_cpu_ns);
    let both = on_cpu("first")? + on_cpu("second")?;
    // The clock strikes every 5 ms: on a CPU that is theirs for so long it finds them this often.
    // Half of that will do on a machine that is itself kept waiting.
    let strikes = both as f64 / 1e9 * case.report.meta.sample_hz as f64;
    let samples = ["first", "second"].map(|role| case.report.thread(case.tid(role)));
    let samples: u64 = samples.into_iter().flatten().map(|thread| thread.samples).sum();
    ensure!(
        (strikes * 0.5 - 5.0..strikes * 1.5 + 5.0).contains(&(samples as f64)),
        "{samples} samples where {strikes} were due"
    );
    // 1 % for what they were doing when the window opened, which is looked up one after the other.
    ensure!(both as f64 <= case.window().length_ns() as f64 * 1.01, "on one CPU for {both} ns");
    Ok(())
}

/// The child that ends the wait computed all the while, and is another one each time.
#[test]
fn a_parent_waits_for_its_child() -> Result<()> {
    let case = Case::profile("child-exit")?;
    let children = case.tied_to("parent");
    case.check_blocked_on("parent", "child")?;
    case.check_wait_count("parent", "child")?;
    case.check_woken_by("parent", "child", &children)?;
    case.check_blamed_on("parent", "child", &children)?;
    // Each child computed for 5 ms, and lived no longer than from one wait's end to the next's (and
    // the moment that it takes to be gone after that).
    let window = case.window();
    let ends: Vec<_> = case.log("parent").entries_of(Activity::Wait).collect();
    for pair in ends.windows(2) {
        let [before, wait] = pair else { continue };
        if !before.interval().inside(window) || !wait.interval().inside(window) {
            continue;
        }
        let life = wait.interval().end_ns - before.interval().end_ns;
        let child = case.report.thread(wait.tied_to)?;
        ensure!(child.wall_ns as f64 <= life as f64 + ABSOLUTE_NS, "lived {life} ns: {child:?}");
        ensure!(child.on_cpu_ns > 0, "never computed: {child:?}");
    }
    // Nor does a child that was dead before the window opened fill it.
    for child in case.report.threads.iter().filter(|thread| thread.comm == "ow-child") {
        ensure!(!at_least(child.wall_ns, 0.5, window.length_ns()), "lived 5 ms: {child:?}");
    }
    // A child is named as it called itself, although it is gone by now.
    let parent = case.tid("parent");
    for wakes in case.report.wakes_of(parent).filter(|wakes| wakes.cause == "child") {
        ensure!(wakes.waker.comm.as_deref() == Some("ow-child"), "{wakes:?}");
    }
    Ok(())
}

/// `vfork` is no `wait4`, but what ends it is the child too. Its contract names no cause, so any
/// that is honest will do.
#[test]
fn a_parent_in_vfork_waits_for_its_child() -> Result<()> {
    let case = Case::profile("vfork-churn")?;
    let children = case.tied_to("parent");
    let parent = case.tid("parent");
    let blocked = |cause| case.report.blocked_ns(parent, cause);
    let cause = if blocked("child") > blocked("other") { "child" } else { "other" };
    case.check_blocked_on("parent", cause)?;
    case.check_woken_by("parent", cause, &children)
}

#[test]
fn epoll_waits_for_who_writes_to_the_pipe() -> Result<()> {
    let case = Case::profile("epoll")?;
    waits_for_a_worker(&case, "waiter", "poll", "writer")
}

/// An epoll does not say which of its sockets it was: the end of who woke it does.
#[test]
fn epoll_is_told_which_socket_woke_it() -> Result<()> {
    for (name, socket) in [("epoll-server-tcp", "tcp 127.0.0.1:"), ("epoll-server-unix", "unix /")]
    {
        let case = Case::profile(name)?;
        waits_for_a_worker(&case, "server", "poll", "client")?;
        let server = case.pid("server").to_string();
        mostly(&case, "server", "poll", |waits| {
            let file = waits.waker_call.as_ref().and_then(|call| call.file.as_deref());
            file.is_some_and(|file| {
                let mut words = file.split(|c: char| !c.is_ascii_alphanumeric());
                file.starts_with(socket) && words.any(|word| word == server)
            })
        })
        .context(name)?;
    }
    Ok(())
}

#[test]
fn poll_waits_for_who_writes_to_the_eventfd() -> Result<()> {
    let case = Case::profile("poll")?;
    waits_for_a_worker(&case, "waiter", "poll", "writer")
}

/// The poll names the only file that it is for, as a read would: the connection, and who holds its
/// other end.
#[test]
fn a_poll_of_one_socket_waits_for_the_other_end() -> Result<()> {
    for (name, asked) in [("polled-left", "left"), ("polled-right", "right")] {
        let case = Case::profile(name)?;
        case.check_blocked_on("client", "poll").context(name)?;
        case.check_woken_by("client", "poll", &BTreeSet::from([case.tid(asked)])).context(name)?;
        let peer = format!("ow-{asked} {}", case.pid(asked));
        mostly(&case, "client", "poll", |waits| {
            let on = waits.waited_on.as_ref().map_or("", |on| on.text.as_str());
            on.starts_with("tcp 127.0.0.1:") && on.contains(&peer)
        })
        .context(name)?;
    }
    Ok(())
}

#[test]
fn an_eventfd_is_read_when_somebody_writes() -> Result<()> {
    let case = Case::profile("eventfd")?;
    waits_for_a_worker(&case, "waiter", "eventfd", "writer")?;
    waits_in(&case, "waiter", "eventfd", "waits_in_read")
}

#[test]
fn a_signal_is_waited_for_until_somebody_sends_it() -> Result<()> {
    for name in ["sigwait", "sigsuspend"] {
        let case = Case::profile(name)?;
        waits_for_a_worker(&case, "waiter", "signal", "sender").context(name)?;
    }
    Ok(())
}

/// The timer of the thread's own did nothing about what the read was for.
#[test]
fn a_read_that_an_alarm_cuts_short_waits_for_nobody_who_is_known() -> Result<()> {
    for name in ["read-cut-short-by-itimer", "read-cut-short-by-posix-timer"] {
        let case = Case::profile(name)?;
        case.check_blocked_on("reader", "pipe").context(name)?;
        case.check_blamed_among("reader", "pipe", &BTreeSet::new()).context(name)?;
        let ledger = case.report.thread(case.tid("reader"))?;
        let by_signal = ledger.unattributed.get("signal").copied().unwrap_or_default();
        ensure!(
            at_least(by_signal, 0.95, ledger.blocked_ns),
            "{name}: {}",
            case.describe("reader")
        );
    }
    Ok(())
}

/// A thread whose epoll has a signalfd is woken before the alarm's signal is pending.
#[test]
fn an_alarm_that_cuts_a_loop_short_is_told_from_one_that_the_loop_waits_for() -> Result<()> {
    let case = Case::profile("epoll-cut-short-by-itimer")?;
    case.check_blocked_on("loop", "poll")?;
    let ledger = case.report.thread(case.tid("loop"))?;
    let by_signal = ledger.unattributed.get("signal").copied().unwrap_or_default();
    ensure!(at_least(by_signal, 0.95, ledger.blocked_ns), "{}", case.describe("loop"));
    let case = Case::profile("epoll-of-an-alarm")?;
    case.check_blocked_on("loop", "poll")?;
    case.check_external("loop", "poll", "timer")
}

#[test]
fn a_sleep_beside_an_alarm_that_is_blocked_is_ended_by_its_own_timer() -> Result<()> {
    let case = Case::profile("sleeps-beside-a-blocked-alarm")?;
    case.check_blocked_on("sleeper", "timer")?;
    case.check_external("sleeper", "timer", "timer")
}

/// Nobody lets go of the lock while it is looked at, so no wake tells who has it: the kernel's list
/// does, also of a process that is no target.
#[test]
fn who_still_holds_a_file_lock_at_the_end_is_named() -> Result<()> {
    for (name, holder, waiter) in
        [("file-lock-held-by-left", "left", "right"), ("file-lock-held-by-right", "right", "left")]
    {
        let workload = Workload::start(name)?;
        let path = workload.directory().join("lock").canonicalize()?;
        let waiting = workload.role(waiter)?.pid.to_string();
        wait_until("the waiter to be in the kernel's list", || {
            let list = fs::read_to_string("/proc/locks")?;
            let is_waiting = |line: &str| {
                line.contains("->") && line.split_ascii_whitespace().any(|word| word == waiting)
            };
            Ok(list.lines().any(is_waiting).then_some(()))
        })?;
        let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &waiting]))?;
        case.check_cause(waiter, "file_lock").context(name)?;
        let found: Vec<_> =
            case.report.findings.iter().filter(|found| found.kind == "still_waiting").collect();
        let [found] = &found[..] else { anyhow::bail!("{name}: one thing is stuck: {found:?}") };
        ensure!(found.text.contains("waits for a file lock"), "{name}: {found:?}");
        let holder = case.pid(holder).to_string();
        let names_holder = found.cause.text.split_ascii_whitespace().any(|word| word == holder);
        ensure!(names_holder, "{name}: {holder} holds it: {found:?}");
        let path = path.to_string_lossy();
        let names_file = found.lines.iter().any(|line| line.text.ends_with(path.as_ref()));
        ensure!(names_file, "{name}: it is {path}: {found:?}");
    }
    Ok(())
}

/// Whoever has the other end of a semaphore or a queue is waited for, on either side.
#[test]
fn semaphores_and_message_queues_are_waited_for_until_the_other_side_comes() -> Result<()> {
    for (name, cause, waiter, worker) in [
        ("sysv-sem", "sysv_sem", "receiver", "sender"),
        ("sysv-msg", "sysv_msg", "receiver", "sender"),
        ("sysv-msg-full", "sysv_msg", "sender", "receiver"),
        ("mqueue", "mqueue", "receiver", "sender"),
        ("mqueue-full", "mqueue", "sender", "receiver"),
    ] {
        let case = Case::profile(name)?;
        waits_for_a_worker(&case, waiter, cause, worker).context(name)?;
        if cause == "mqueue" {
            mostly(&case, waiter, cause, |waits| {
                waits.waited_on.as_ref().is_some_and(|on| on.text.contains("/ow-queue"))
            })
            .context(name)?;
        }
        let idle: u64 = case.report.waits_of(case.tid(waiter), None).map(|w| w.idle_ns).sum();
        ensure!(idle == 0, "{name}: the other side has work: {}", case.describe(waiter));
    }
    Ok(())
}

#[test]
fn a_queue_that_nothing_comes_to_is_waited_for_until_the_timeout_and_that_is_idle() -> Result<()> {
    for (name, cause) in [("sysv-sem-timeout", "sysv_sem"), ("mqueue-timeout", "mqueue")] {
        let case = Case::profile(name)?;
        case.check_blocked_on("waiter", cause).context(name)?;
        case.check_external("waiter", cause, "timer").context(name)?;
        mostly(&case, "waiter", cause, |waits| waits.idle_ns == waits.blocked_ns).context(name)?;
    }
    Ok(())
}

/// It is woken by whoever changes the file, and has nothing to do until then.
#[test]
fn a_watched_file_is_waited_for_until_somebody_writes_to_it() -> Result<()> {
    let case = Case::profile("inotify")?;
    waits_for_a_worker(&case, "watcher", "inotify", "writer")?;
    mostly(&case, "watcher", "inotify", |waits| waits.idle_ns == waits.blocked_ns)
}

/// What ends a wait for the disk is an interrupt, or a kernel thread of the filesystem; never the
/// program over which the interrupt came. How long a call computes and how long it is blocked is
/// the disk's affair, so there is no lower bound on the time.
#[test]
fn an_fsync_waits_for_the_disk_and_not_for_bystanders() -> Result<()> {
    let case = Case::profile("fsync")?;
    let writer = case.tid("writer");
    let blocked = case.report.blocked_ns(writer, "disk");
    let ledger = case.report.thread(writer)?;
    let about = || case.describe("writer");
    ensure!(blocked > 0, "nothing waited for the disk; is the target directory in memory?");
    ensure!(at_least(blocked, 0.9, ledger.blocked_ns), "{}", about());
    ensure!(blocked as f64 <= case.waited_ns("writer") as f64 * (1.0 + RELATIVE), "{}", about());
    for wakes in case.report.wakes_of(writer).filter(|wakes| wakes.cause == "disk") {
        if let Some(waker) = wakes.waker.tid {
            ensure!(is_kernel_thread(waker), "{wakes:?} is no kernel thread");
        }
    }
    let blame = case.report.blame_of(writer, Some("disk"));
    for ((kind, accused), ns) in &blame {
        if let Some(accused) = accused {
            ensure!(is_kernel_thread(*accused), "{kind} {ns} of {accused}: {}", about());
        }
    }
    // Where a journal's thread stands in between, what that thread waited for may be unknown.
    let sum = |kind| blame.get(&(kind, None)).copied().unwrap_or_default();
    let (disk, unknown) = (sum("disk"), sum("unattributed"));
    ensure!(disk > 0, "the disk is not blamed: {}", about());
    ensure!(at_least(disk + unknown, 0.8, blocked), "{disk} and {unknown} ns: {}", about());
    Ok(())
}

/// The kernel has a writer sleep by the clock while the disk takes what is written too slowly: a
/// timer ends each of these waits, and it is the disk that is waited for.
#[test]
fn a_writer_that_is_throttled_waits_for_the_disk_and_not_for_the_clock() -> Result<()> {
    let disk = ThrottledDisk::make()?;
    let workload = Workload::start_with("throttled-writer", |directory| {
        symlink(disk.path(), directory.join("disk")).context("cannot link to the disk")
    })?;
    let pids = workload.pids();
    let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &pids]))?;
    let writer = case.tid("writer");
    case.check_cause("writer", "disk")?;
    let blocked = case.report.blocked_ns(writer, "disk");
    ensure!(at_least(blocked, 0.05, case.window().length_ns()), "{}", case.describe("writer"));
    // The disk's own kernel thread may be waited for as well, for a page that it has.
    let blame = case.report.blame_of(writer, Some("disk"));
    let sum = |kind| blame.get(&(kind, None)).copied().unwrap_or_default();
    ensure!(at_least(sum("disk"), 0.8, blocked), "{}", case.describe("writer"));
    ensure!(sum("timer") == 0, "{}", case.describe("writer"));
    let device = disk.path();
    mostly(&case, "writer", "disk", |waits| {
        waits.waited_on.as_ref().is_some_and(|on| Path::new(&on.text) == device)
    })
}

/// A thread that was blocked before the window and stays so: nobody can know what for until when,
/// but that it was blocked is certain.
#[test]
fn a_thread_that_is_stuck_all_along_has_a_ledger_that_closes() -> Result<()> {
    let case = Case::profile("stuck-all-along")?;
    let ledger = case.report.thread(case.tid("stuck"))?;
    ensure!(ledger.wall_ns == case.window().length_ns(), "{ledger:?}");
    ensure!(ledger.blocked_ns == ledger.wall_ns, "{ledger:?}");
    ensure!(ledger.unattributed_ns == ledger.blocked_ns, "{ledger:?}");
    let reasons: Vec<&str> = ledger.unattributed.keys().map(String::as_str).collect();
    let honest = |reason: &&str| matches!(*reason, "before_window" | "still_blocked");
    ensure!(!reasons.is_empty() && reasons.iter().all(honest), "{ledger:?}");
    let cause: BTreeSet<&str> =
        case.report.waits_of(case.tid("stuck"), None).map(|waits| waits.cause.as_str()).collect();
    ensure!(cause == BTreeSet::from(["futex"]), "{}", case.describe("stuck"));
    Ok(())
}

/// Every 50 ms a thread is born that blocks for good: those born in the window have a ledger from
/// their birth to the window's end.
#[test]
fn a_wait_that_begins_in_the_window_and_never_ends_is_told() -> Result<()> {
    let case = Case::profile("stuck-one-after-the-other")?;
    let window = case.window();
    let born: Vec<_> = case
        .log("starter")
        .entries_of(Activity::Wait)
        .filter(|wait| wait.start_ns > window.start_ns && wait.start_ns < window.end_ns)
        // Those that came with the last 5 ms may not have got to it.
        .filter(|wait| window.end_ns - wait.start_ns > 5_000_000)
        .collect();
    // Twenty a second on a machine with nothing else to do.
    ensure!(born.len() >= 5, "only {} threads came in the window", born.len());
    for wait in born {
        let ledger = case.report.thread(wait.tied_to)?;
        let blocked = window.end_ns - wait.start_ns;
        // It was born shortly before it said so, and had to wait for a CPU first.
        ensure!(ledger.wall_ns >= blocked, "was there for {blocked}: {ledger:?}");
        ensure!(is_close(ledger.blocked_ns + ledger.runnable_ns, ledger.wall_ns), "{ledger:?}");
        let still = ledger.unattributed.get("still_blocked").copied().unwrap_or_default();
        // The rest is for what a new thread does first: its stack, its name.
        ensure!(at_least(still, 0.9, ledger.blocked_ns), "{ledger:?}");
        ensure!(case.report.blocked_ns(ledger.tid, "futex") >= still, "{ledger:?}");
    }
    Ok(())
}

/// In the 64-bit table, the number of a 32-bit `nanosleep` means `sync`, that of `futex` means
/// `mq_open`.
#[test]
fn a_32_bit_program_is_not_misread() -> Result<()> {
    for (name, cause) in [("compat32-sleep", "timer"), ("compat32-futex", "futex")] {
        let case = Case::profile(name)?;
        let tid = case.tid("compat32");
        let ledger = case.report.thread(tid)?;
        let blocked = case.report.blocked_ns(tid, cause);
        ensure!(
            at_least(blocked, 0.95, ledger.blocked_ns),
            "{name}: {}",
            case.describe("compat32")
        );
        // It does nothing else; the rest is for a busy machine.
        ensure!(at_least(blocked + ledger.runnable_ns, 0.8, ledger.wall_ns), "{ledger:?}");
        case.check_external("compat32", cause, "timer").context(name)?;
    }
    Ok(())
}

/// In the 64-bit table, the number of a 32-bit `read` means `close`, that of `write` means `stat`.
#[test]
fn a_32_bit_program_and_a_64_bit_one_wait_for_each_other() -> Result<()> {
    let case = Case::profile("compat32-pipe")?;
    let (compat, asker) = (case.tid("compat32"), BTreeSet::from([case.tid("asker")]));
    let ledger = case.report.thread(compat)?;
    let blocked = case.report.blocked_ns(compat, "pipe");
    ensure!(at_least(blocked, 0.95, ledger.blocked_ns), "{}", case.describe("compat32"));
    case.check_woken_by("compat32", "pipe", &asker)?;
    case.check_blamed_on("compat32", "pipe", &asker)?;
    // An answer comes at once, so the asker's waits are short, and some are none.
    case.check_wakers_among("asker", "pipe", &BTreeSet::from([compat]))
}

/// A case whose target is nothing but one thread of a workload.
#[test]
fn what_is_not_the_target_has_no_ledger_but_may_be_the_waker() -> Result<()> {
    let workload = Workload::start("futex-handoff")?;
    let waiter = workload.role("waiter")?.tid;
    let case =
        Case::profile_with(workload, |offwake, _| offwake.args(["-t", &waiter.to_string()]))?;
    ensure!(case.report.tids().eq([waiter]), "{:?}", case.report.threads);
    waits_for_a_worker(&case, "waiter", "futex", "worker")
}

/// Whether a thread lives in the kernel: `PF_KTHREAD` in the flags, the ninth field of its `stat`
/// (`proc_pid_stat(5)`). One that has gone cannot be told, and is taken for a user's.
fn is_kernel_thread(tid: u32) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let flags = || {
        let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
        // The name may hold anything, blanks and parentheses included.
        stat.rsplit_once(") ")?.1.split(' ').nth(6)?.parse::<u32>().ok()
    };
    flags().is_some_and(|flags| flags & PF_KTHREAD != 0)
}
