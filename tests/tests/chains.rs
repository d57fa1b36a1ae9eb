//! Who is to blame at the far end of a chain: workloads in which every thread's part of a wait is
//! known by construction, and by its own CPU clock.
//!
//! Each test prints a line of how much of the blame is right. With `--nocapture` they make a table.

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    blame_accuracy::BlameAccuracy,
    case::{Case, SHARE, at_least},
    ground_truth::Activity,
    intervals::{Interval, overlap_ns},
    lock_turns::{Bounds, Contender, bound_waits},
    report::Blame,
};

/// How far a share of the time may be from what the workload measured itself: the rest of each
/// thread's part is its syscalls, and what the profiler takes of it.
const POINTS: f64 = 0.05;

/// The part of a wait for a disk that must be right. On a machine that hides a process of its own from
/// BPF, nobody sees an interrupt that comes over it; and these waits are few and short.
const DISK_SHARE: f64 = 0.85;

/// The part of waits for a lock with a timeout that must be right: who held the lock when a timeout
/// was over is proven only where somebody else waited for it then, and on a busy machine they may not
/// have got to it.
const PROVEN: f64 = 0.7;

/// Prints a line of the table.
fn row(name: &str, accuracy: &BlameAccuracy) {
    println!("| {name:<44} | {accuracy}");
}

/// Whether a thread worked, or was kept from its CPU, at the end of this chain.
fn is_busy(blame: &Blame, chain: &[u32]) -> bool {
    blame.blamed_tid() == chain.last().copied()
        && blame.blamed_tid().is_some()
        && blame.path() == chain
}

/// Whether it is on something outside of every thread, at the end of this chain.
fn is_external(blame: &Blame, kind: &str, chain: &[u32]) -> bool {
    blame.kind == kind && blame.path() == chain
}

/// Whether the thread at the end of this chain computed. Who is woken may take the CPU from its waker
/// at once: that one is not blocked yet then, and waits for a CPU that the other one holds.
fn is_computing(blame: &Blame, chain: &[u32]) -> bool {
    let computes = blame.kind == "work" && is_busy(blame, chain);
    computes
        || chain
            .split_last()
            .is_some_and(|(&last, before)| is_busy(blame, before) && is_held_by(blame, last))
}

/// Whether somebody waited for the CPU that this thread held.
fn is_held_by(blame: &Blame, holder: u32) -> bool {
    blame.holder.as_ref().is_some_and(|held_by| held_by.tid == holder)
}

fn sum<'a>(blame: impl IntoIterator<Item = &'a Blame>, holds: impl Fn(&Blame) -> bool) -> u64 {
    blame.into_iter().filter(|blame| holds(blame)).map(|blame| blame.ns).sum()
}

fn blame_of<'a>(
    case: &'a Case,
    role: &str,
    cause: &'a str,
) -> impl Iterator<Item = &'a Blame> + use<'a> {
    case.report.waits_of(case.tid(role), Some(cause)).flat_map(|waits| &waits.blame)
}

/// When a role was in what it logs as `activity`, inside the window.
fn times(case: &Case, role: &str, activity: Activity) -> Vec<Interval> {
    let all = case.log(role).intervals(activity).into_iter();
    all.filter_map(|one| one.clipped(case.window())).collect()
}

/// Demands that shares of the blame are those of the truth.
fn in_proportion(case: &Case, role: &str, shares: &[(&str, u64, f64)]) -> Result<()> {
    let blamed: u64 = shares.iter().map(|(_, blamed, _)| blamed).sum();
    let truth: f64 = shares.iter().map(|(_, _, truth)| truth).sum();
    for (who, part, true_part) in shares {
        let (share, true_share) = (*part as f64 / blamed as f64, true_part / truth);
        ensure!(
            (share - true_share).abs() <= POINTS,
            "{who} is blamed for {share:.3} and did {true_share:.3}, of {shares:?}: {}",
            case.describe(role)
        );
    }
    Ok(())
}

#[test]
fn who_is_early_at_a_barrier_waits_for_the_work_of_who_is_late() -> Result<()> {
    for (name, late, early) in
        [("barrier-late-left", "left", "right"), ("barrier-late-right", "right", "left")]
    {
        let case = Case::profile(name)?;
        let culprit = [case.tid(late)];
        let accuracy =
            BlameAccuracy::for_role(&case, early, "futex", |blame| is_busy(blame, &culprit));
        row(name, &accuracy);
        accuracy.check(&case, early).context(name)?;
        let work = sum(blame_of(&case, early, "futex"), |blame| blame.kind == "work");
        ensure!(work > 0, "nobody worked: {}", case.describe(early));
        let late_waited = case.report.blocked_ns(case.tid(late), "futex");
        ensure!(
            !at_least(late_waited, 0.5, accuracy.blocked_ns),
            "{name}: {late} was late, and waited for {late_waited} ns"
        );
    }
    Ok(())
}

/// A is blocked while each thread behind it computes: its blame names each at its depth, with its
/// share of the CPU time that all of them measured.
fn chain(name: &str, cause: &str, hops: usize) -> Result<()> {
    let case = Case::profile(name)?;
    let roles: Vec<&str> = ["b", "c", "d", "e", "f", "g"].into_iter().take(hops).collect();
    let tids: Vec<u32> = roles.iter().map(|role| case.tid(role)).collect();
    let at_depth = |blame: &Blame, depth: usize| is_busy(blame, &tids[..depth]);
    let is_right = |blame: &Blame| (1..=hops).any(|depth| at_depth(blame, depth));
    let accuracy = BlameAccuracy::for_role(&case, "a", cause, is_right);
    row(&format!("{name}, {hops} hops"), &accuracy);
    accuracy.check(&case, "a")?;
    let waited = times(&case, "a", Activity::Wait);
    let mut shares = Vec::new();
    for (depth, role) in (1..).zip(&roles) {
        let work = sum(blame_of(&case, "a", cause), |blame| is_computing(blame, &tids[..depth]));
        shares.push((*role, work, case.log(role).cpu_ns(&waited)));
    }
    in_proportion(&case, "a", &shares)
}

#[test]
fn a_chain_over_condition_variables_is_followed_to_its_end() -> Result<()> {
    chain("chain-condvar", "futex", 3)
}

/// The part of a wait that may be for a CPU that another of the same chain has. Whoever wakes another on the
/// same CPU needs it for some microseconds more.
const OWN_QUEUE: f64 = 0.02;

/// Nobody waits for anybody's CPU there but for that of whom it waits for anyway: with more CPUs they would be as
/// slow. So all of it is work.
#[test]
fn a_chain_on_one_cpu_is_work_and_no_wait_for_that_cpu() -> Result<()> {
    let (name, hops) = ("chain-condvar-on-one-cpu", 5);
    chain(name, "futex", hops)?;
    let case = Case::profile(name)?;
    let players = ["a", "b", "c", "d", "e", "f"].map(|role| case.tid(role));
    let work = sum(blame_of(&case, "a", "futex"), |blame| blame.kind == "work");
    let queued = sum(blame_of(&case, "a", "futex"), |blame| {
        players.iter().any(|&player| is_held_by(blame, player))
    });
    println!("{name}: {work} ns of work, {queued} ns queued for a CPU that another of them had");
    ensure!(
        !at_least(queued, OWN_QUEUE, work + queued),
        "{queued} ns queued, {work} ns of work: {}",
        case.describe("a")
    );
    Ok(())
}

#[test]
fn a_chain_over_pipes_is_followed_to_its_end() -> Result<()> {
    chain("chain-pipe", "pipe", 6)
}

#[test]
fn a_chain_over_unix_sockets_is_followed_to_its_end() -> Result<()> {
    chain("chain-unix", "socket", 3)
}

#[test]
fn a_chain_over_loopback_tcp_is_followed_to_its_end() -> Result<()> {
    chain("chain-tcp", "socket", 6)
}

#[test]
fn a_lock_is_waited_for_while_its_holder_computes_and_while_it_sleeps() -> Result<()> {
    let case = Case::profile("lock-with-a-sleep-inside")?;
    let holder = [case.tid("holder")];
    let accuracy = BlameAccuracy::for_role(&case, "contender", "futex", |blame| {
        is_busy(blame, &holder) || is_external(blame, "timer", &holder)
    });
    row("lock-with-a-sleep-inside", &accuracy);
    accuracy.check(&case, "contender")?;
    // What the holder did while the contender waited. Some of that time the contender was runnable.
    let waited = times(&case, "contender", Activity::Wait);
    let computed = case.log("holder").cpu_ns(&waited);
    let slept = overlap_ns(&waited, &times(&case, "holder", Activity::Wait)) as f64;
    let of_kind =
        |kind| sum(blame_of(&case, "contender", "futex"), |blame| blame.kind == kind) as f64;
    let (work, timer, queued) = (of_kind("work"), of_kind("timer"), of_kind("cpu_queue"));
    let runnable = case.report.thread(case.tid("contender"))?.runnable_ns as f64;
    let about = || {
        let about = case.describe("contender");
        format!("work {work} of {computed}, timer {timer} of {slept}: {about}")
    };
    // A computing thread is interrupted now and then, which is not in its CPU time.
    ensure!(work <= computed * (1.0 + POINTS) && timer <= slept * (1.0 + POINTS), "{}", about());
    ensure!(work >= computed * (1.0 - POINTS) - runnable, "{}", about());
    ensure!(timer >= slept * (1.0 - POINTS) - runnable - queued, "{}", about());
    ensure!(work > 0.0 && timer > 0.0, "{}", about());
    Ok(())
}

/// Three threads: whoever wants the lock waits for those who held it meanwhile, however often it
/// changed hands.
#[test]
fn a_lock_that_is_handed_over_is_waited_for_by_who_held_it() -> Result<()> {
    is_divided_over_who_held_it("lock-handed-over", "futex", SHARE, is_held_up_at_once)
}

/// The kernel keeps the queue of such a lock, so a waiter may sleep through several holders.
#[test]
fn a_lock_with_priority_inheritance_is_waited_for_by_who_held_it() -> Result<()> {
    is_divided_over_who_held_it("pi-lock-handed-over", "futex", SHARE, is_held_up_at_once)
}

/// A wait that is begun anew after each timeout is one wait.
#[test]
fn a_lock_that_is_tried_again_after_timeouts_is_waited_for_by_who_held_it() -> Result<()> {
    for name in ["timed-lock-handed-over", "timed-lock-held-longest-by-x"] {
        is_divided_over_who_held_it(name, "futex", PROVEN, is_held_up_at_once)?;
    }
    Ok(())
}

/// Whoever held the lock lets go of it later, when another one who had waited all along is woken.
/// To wait for a lock is never idle.
#[test]
fn who_gives_a_lock_up_after_a_time_waited_for_who_held_it_meanwhile() -> Result<()> {
    let case = Case::profile("lock-given-up")?;
    let waits = ("impatient", "futex");
    let holders = ["x", "y", "z"];
    waits_for_holders("lock-given-up", &case, waits, &holders, PROVEN, is_held_up_at_once)?;
    let idle: u64 =
        case.report.waits_of(case.tid("impatient"), None).map(|waits| waits.idle_ns).sum();
    ensure!(idle == 0, "{}", case.describe("impatient"));
    Ok(())
}

/// Readers share a lock: whoever lets go of it last had it for a part of the wait only.
#[test]
fn a_writer_waits_for_a_reader_no_longer_than_that_one_had_the_lock() -> Result<()> {
    let name = "rwlock-two-readers";
    let case = Case::profile_until(name, |case| times(case, "writer", Activity::Wait).len() > 100)?;
    let readers = ["long", "short"];
    let accuracy = BlameAccuracy::for_role(&case, "writer", "futex", |blame| {
        readers.iter().any(|reader| blame.path() == [case.tid(reader)])
    });
    row(name, &accuracy);
    accuracy.check_share(0.4, &case, "writer")?;
    let waited = times(&case, "writer", Activity::Wait);
    for reader in readers {
        let is_readers = |blame: &Blame| blame.path() == [case.tid(reader)];
        let blamed = sum(blame_of(&case, "writer", "futex"), is_readers) as f64;
        let held = overlap_ns(&waited, &times(&case, reader, Activity::Work)) as f64;
        ensure!(
            blamed <= held + accuracy.blocked_ns as f64 * POINTS,
            "{reader} is blamed for {blamed} ns and held the lock for {held}: {}",
            case.describe("writer")
        );
    }
    Ok(())
}

/// A reader that sleeps with the lock is to blame for that sleep.
#[test]
fn a_writer_waits_for_the_one_reader_that_has_the_lock() -> Result<()> {
    let name = "rwlock-one-reader";
    let case = Case::profile(name)?;
    let reader = [case.tid("long")];
    let accuracy = BlameAccuracy::for_role(&case, "writer", "futex", |blame| {
        is_busy(blame, &reader) || is_external(blame, "timer", &reader)
    });
    row(name, &accuracy);
    accuracy.check(&case, "writer")
}

/// The kernel queues waiters behind each other, so the way to the first holder may lead through
/// the second, which waited for it too. The one that it woke may wait for a CPU while the last holder
/// has the lock again: those behind it wait for one of the two.
#[test]
fn a_file_lock_is_waited_for_by_who_held_it() -> Result<()> {
    for name in ["flock-handed-over", "fcntl-lock-handed-over", "ofd-lock-handed-over"] {
        let case = Case::profile(name)?;
        let all = ["x", "y", "z"];
        let contenders = all.map(|role| Contender {
            waits: case.log(role).intervals(Activity::Wait),
            holds: case.log(role).intervals(Activity::Work),
        });
        for (waiter, role) in all.into_iter().enumerate() {
            let bounds = bound_waits(&contenders, waiter, case.window());
            let is_on = |blame: &Blame, holder: &str| blame.blamed_tid() == Some(case.tid(holder));
            let bounds = all.into_iter().zip(bounds).collect();
            is_divided_within(name, &case, (role, "file_lock"), bounds, is_on)?;
        }
    }
    Ok(())
}

/// The lock of an inode and of a file's position are handed from one to the next in line, and who has them
/// sleeps meanwhile, until its pager has the page that it writes from.
#[test]
fn a_lock_of_the_kernel_is_waited_for_by_who_slept_with_it() -> Result<()> {
    for name in ["inode-lock-by-turns", "file-position-by-turns"] {
        let case = Case::profile(name)?;
        let all = ["x", "y", "z"];
        let contenders = all.map(|role| Contender {
            waits: case.log(role).intervals(Activity::Wait),
            holds: case.log(role).intervals(Activity::Work),
        });
        let is_on = |blame: &Blame, holder: &str| {
            let ends = [case.tid(holder), case.tid(&format!("pager-{holder}"))];
            blame.path().last().is_some_and(|last| ends.contains(last))
        };
        for (waiter, role) in all.into_iter().enumerate() {
            let bounds = bound_waits(&contenders, waiter, case.window());
            let bounds = all.into_iter().zip(bounds).collect();
            is_divided_within(name, &case, (role, "kernel_lock"), bounds, is_on)?;
        }
    }
    Ok(())
}

/// Demands that waits of a role for a lock are blamed on the others, in shares within these bounds.
fn is_divided_within(
    name: &str,
    case: &Case,
    (role, cause): (&str, &str),
    mut bounds: Vec<(&str, Bounds)>,
    is_on: impl Fn(&Blame, &str) -> bool,
) -> Result<()> {
    bounds.retain(|(holder, _)| *holder != role);
    let accuracy = BlameAccuracy::for_role(case, role, cause, |blame| {
        bounds.iter().any(|(holder, _)| is_on(blame, holder))
    });
    row(&format!("{name}, {role}"), &accuracy);
    accuracy.check_share(SHARE, case, role).context(name.to_owned())?;
    for (holder, own) in &bounds {
        let blamed = sum(blame_of(case, role, cause), |blame| is_on(blame, holder));
        let others = || bounds.iter().filter(|(other, _)| other != holder).map(|(_, it)| it);
        let others_most: u64 = others().map(|other| other.most).sum();
        let others_least: u64 = others().map(|other| other.least).sum();
        let part = |one: u64, rest: u64| one as f64 / (one + rest).max(1) as f64;
        let share = part(blamed, accuracy.right_ns.saturating_sub(blamed));
        let least = part(own.least, others_most) - POINTS;
        let most = part(own.most, others_least) + POINTS;
        ensure!(
            (least..=most).contains(&share),
            "{name}: {holder} is blamed for {share:.3}, not {least:.3} to {most:.3}, of {bounds:?}: {}",
            case.describe(role)
        );
    }
    Ok(())
}

/// Whether a thread is blamed as the waker itself.
fn is_held_up_at_once(blame: &Blame, holder: u32) -> bool {
    is_busy(blame, &[holder])
}

/// Demands that each of three threads that want one lock waits for the other two, as long as each
/// held it; `is_held_up_by` says whether some blame is on a holder in the way that the lock allows.
fn is_divided_over_who_held_it(
    name: &str,
    cause: &str,
    share: f64,
    is_held_up_by: fn(&Blame, u32) -> bool,
) -> Result<()> {
    let case = Case::profile(name)?;
    let all = ["x", "y", "z"];
    for role in all {
        let others: Vec<&str> = all.into_iter().filter(|other| *other != role).collect();
        waits_for_holders(name, &case, (role, cause), &others, share, is_held_up_by)?;
    }
    Ok(())
}

/// Demands that this share of a role's waits on a cause is blamed on these holders, as long as each
/// held what it waited for, and nothing on anybody else.
fn waits_for_holders(
    name: &str,
    case: &Case,
    (role, cause): (&str, &str),
    holders: &[&str],
    share: f64,
    is_held_up_by: fn(&Blame, u32) -> bool,
) -> Result<()> {
    let holds = |blame: &Blame, holder: &str| is_held_up_by(blame, case.tid(holder));
    let accuracy = BlameAccuracy::for_role(case, role, cause, |blame| {
        holders.iter().any(|holder| holds(blame, holder))
    });
    row(&format!("{name}, {role}"), &accuracy);
    accuracy.check_share(share, case, role).context(name.to_owned())?;
    let waited = times(case, role, Activity::Wait);
    let shares: Vec<_> = (holders.iter())
        .map(|holder| {
            let blamed = sum(blame_of(case, role, cause), |blame| holds(blame, holder));
            let held = overlap_ns(&waited, &times(case, holder, Activity::Work)) as f64;
            (*holder, blamed, held)
        })
        .collect();
    in_proportion(case, role, &shares)
}

/// Until the callee's end it was computing, whichever way it died.
#[test]
fn who_calls_one_that_crashes_waits_for_its_work_until_its_end() -> Result<()> {
    for (name, cause) in [("crash-behind-a-socket", "socket"), ("crash-behind-wait4", "child")] {
        let case = Case::profile(name)?;
        let callees = case.tied_to("caller");
        let accuracy = BlameAccuracy::for_role(&case, "caller", cause, |blame| {
            blame
                .blamed_tid()
                .is_some_and(|accused| callees.contains(&accused) && is_busy(blame, &[accused]))
        });
        row(name, &accuracy);
        accuracy.check(&case, "caller").context(name)?;
        let work = sum(blame_of(&case, "caller", cause), |blame| blame.kind == "work");
        let computed = case.log("caller").cpu_ns(&times(&case, "caller", Activity::Wait));
        // The caller may be kept from its CPU before it gets to wait.
        let runnable = case.report.thread(case.tid("caller"))?.runnable_ns as f64;
        ensure!(
            work as f64 >= computed * (1.0 - POINTS) - runnable,
            "{name}: {work} of {computed} ns computed"
        );
    }
    Ok(())
}

#[test]
fn everybody_that_a_broadcast_wakes_waits_for_the_broadcaster() -> Result<()> {
    let case = Case::profile("broadcast-futex")?;
    let broadcaster = [case.tid("broadcaster")];
    for role in ["first", "second", "third", "fourth"] {
        let accuracy =
            BlameAccuracy::for_role(&case, role, "futex", |blame| is_busy(blame, &broadcaster));
        row(&format!("broadcast-futex, {role}"), &accuracy);
        accuracy.check(&case, role)?;
    }
    Ok(())
}

/// Each has to get the mutex back when it wakes, and the broadcaster needs it too: for a moment any of
/// them may wait for any other, and for as long as a busy machine keeps that one from its CPU.
#[test]
fn everybody_that_waits_for_a_condition_waits_for_who_broadcasts_it() -> Result<()> {
    let case = Case::profile("broadcast-condvar")?;
    let broadcaster = case.tid("broadcaster");
    let waiters = ["first", "second", "third", "fourth"];
    let all: Vec<u32> = waiters.iter().map(|role| case.tid(role)).chain([broadcaster]).collect();
    for role in waiters {
        let accuracy = BlameAccuracy::for_role(&case, role, "futex", |blame| {
            blame.blamed_tid().is_some() && blame.path().iter().all(|tid| all.contains(tid))
        });
        row(&format!("broadcast-condvar, {role}"), &accuracy);
        accuracy.check(&case, role)?;
        let broadcast =
            sum(blame_of(&case, role, "futex"), |blame| blame.path().first() == Some(&broadcaster));
        ensure!(at_least(broadcast, 0.8, accuracy.right_ns), "{}", case.describe(role));
    }
    Ok(())
}

/// Both are woken by each event. Whoever waits for the seldom one looks and sleeps on, and waits for the
/// thread that computes it; the other one waits for the thread that sleeps.
#[test]
fn who_is_woken_for_another_event_waits_for_its_own() -> Result<()> {
    waits_for_its_own_event("two-events-on-one-condition")
}

/// The same, where each waiter is woken by a call of its own.
#[test]
fn who_is_woken_with_all_others_in_turn_waits_for_its_own_event() -> Result<()> {
    waits_for_its_own_event("two-events-woken-in-turn")
}

fn waits_for_its_own_event(name: &str) -> Result<()> {
    let case = Case::profile(name)?;
    let [seldom, often] = ["seldom", "often"].map(|role| case.tid(role));
    for (role, own, others) in [("for-seldom", seldom, often), ("for-often", often, seldom)] {
        let accuracy = BlameAccuracy::for_role(&case, role, "futex", |blame| {
            blame.path().first() == Some(&own)
        });
        row(&format!("{name}, {role}"), &accuracy);
        ensure!(accuracy.is_enough(), "{accuracy}");
        ensure!(at_least(accuracy.right_ns, 0.85, accuracy.known_ns()), "{}", case.describe(role));
        // Where the window closes between two seldom events, 25 to 40 ms, nobody saw what it waited for. All
        // of it was wrong before broadcasts were known, 98 %.
        let wrong = sum(blame_of(&case, role, "futex"), |blame| blame.path().contains(&others));
        ensure!(!at_least(wrong, 0.12, accuracy.known_ns()), "{wrong}: {}", case.describe(role));
    }
    Ok(())
}

/// A direct read is over when the disk says so.
#[test]
fn a_read_by_io_uring_waits_for_the_disk() -> Result<()> {
    let case = Case::profile("uring-read")?;
    let accuracy =
        BlameAccuracy::for_role(&case, "reader", "io_uring", |blame| blame.kind == "disk");
    row("uring-read", &accuracy);
    accuracy.check_share(DISK_SHARE, &case, "reader")
}

/// io_uring leaves an fsync to a thread of its own, and that one waits for the journal's, or for the
/// disk.
#[test]
fn an_fsync_by_io_uring_waits_for_the_disk_behind_its_worker() -> Result<()> {
    let case = Case::profile("uring-fsync")?;
    let accuracy = BlameAccuracy::for_role(&case, "syncer", "io_uring", is_of_a_sync);
    row("uring-fsync", &accuracy);
    accuracy.check_share(DISK_SHARE, &case, "syncer")
}

#[test]
fn an_fsync_waits_for_the_disk_behind_the_journal() -> Result<()> {
    let judge = |case: &Case| BlameAccuracy::for_role(case, "writer", "disk", is_of_a_sync);
    let case = Case::profile_until("fsync", |case| judge(case).is_enough())?;
    let accuracy = judge(&case);
    row("fsync", &accuracy);
    accuracy.check_share(DISK_SHARE, &case, "writer")
}

/// The disk, or what a thread of the kernel did for it, and no other thread anywhere on the way.
fn is_of_a_sync(blame: &Blame) -> bool {
    const HELPERS: [&str; 3] = ["iou-wrk-", "jbd2/", "kworker/"];
    let is_helper = |comm: &str| HELPERS.iter().any(|helper| comm.starts_with(helper));
    (blame.kind == "disk" || blame.blamed_tid().is_some())
        && blame.chain.iter().all(|hop| is_helper(&hop.comm))
}

/// The timer expires over the hog each time; the sleeper then waits for the CPU that the hog holds.
#[test]
fn a_hog_that_a_timer_expires_over_is_never_named() -> Result<()> {
    let case = Case::profile("sleeper-beside-a-hog")?;
    let (answerer, hog) = ([case.tid("answerer")], case.tid("hog"));
    let accuracy = BlameAccuracy::for_role(&case, "asker", "futex", |blame| {
        is_external(blame, "timer", &answerer) || is_busy(blame, &answerer)
    });
    row("sleeper-beside-a-hog, asker", &accuracy);
    accuracy.check(&case, "asker")?;
    let slept = BlameAccuracy::for_role(&case, "answerer", "timer", |blame| {
        is_external(blame, "timer", &[])
    });
    row("sleeper-beside-a-hog, answerer", &slept);
    slept.check(&case, "answerer")?;
    let timer = sum(blame_of(&case, "asker", "futex"), |blame| blame.kind == "timer");
    ensure!(at_least(timer, 0.3, accuracy.blocked_ns), "{}", case.describe("asker"));
    is_never_named(&case, hog)
}

fn is_never_named(case: &Case, hog: u32) -> Result<()> {
    let woke = case.report.wakes.iter().find(|wakes| wakes.waker.tid == Some(hog));
    ensure!(woke.is_none(), "the hog wakes nobody: {woke:?}");
    let blame = case.report.waits.iter().flat_map(|waits| &waits.blame);
    let named = blame.into_iter().find(|blame| {
        blame.blamed_tid() == Some(hog) || blame.chain.iter().any(|hop| hop.tid == hog)
    });
    ensure!(named.is_none(), "the hog has nothing to do with it: {named:?}");
    Ok(())
}

/// Half of the time that the answerer wants the CPU, the hog has it: the asker waits for the
/// answerer in the queue, and is told who was in front.
#[test]
fn a_thread_that_waits_for_a_cpu_is_blamed_with_who_held_it() -> Result<()> {
    let case = Case::profile("worker-beside-a-hog")?;
    let (answerer, hog) = ([case.tid("answerer")], case.tid("hog"));
    let accuracy =
        BlameAccuracy::for_role(&case, "asker", "futex", |blame| is_busy(blame, &answerer));
    row("worker-beside-a-hog", &accuracy);
    accuracy.check(&case, "asker")?;
    is_never_named(&case, hog)?;
    let blame = || blame_of(&case, "asker", "futex");
    let queued = sum(blame(), |blame| blame.kind == "cpu_queue");
    let work = sum(blame(), |blame| blame.kind == "work");
    ensure!(at_least(queued, 0.2, accuracy.right_ns), "{}", case.describe("asker"));
    let held_by = |who: u32| sum(blame(), |blame| is_held_by(blame, who));
    // Other programs may want that CPU too; of some nobody knows that they had it.
    let held = sum(blame(), |blame| blame.holder.is_some());
    ensure!(at_least(held, 0.85, queued), "{}", case.describe("asker"));
    ensure!(at_least(held_by(hog), 0.2, queued), "{}", case.describe("asker"));
    for innocent in ["asker", "answerer"] {
        let held = held_by(case.tid(innocent));
        ensure!(held == 0, "{innocent} was in front of the answerer for {held} ns");
    }
    let waited = times(&case, "asker", Activity::Wait);
    let computed = case.log("answerer").cpu_ns(&waited);
    let took = overlap_ns(&waited, &times(&case, "answerer", Activity::Work)) as f64;
    let shares = [("work", work, computed), ("cpu_queue", queued, took - computed)];
    in_proportion(&case, "asker", &shares)
}

/// The client waits for both; only the waits for the next request are idle.
#[test]
fn a_client_waits_for_the_server_behind_its_server_and_only_requests_are_idled_for() -> Result<()> {
    for name in ["epoll-chain-tcp", "epoll-chain-unix"] {
        let case = Case::profile(name)?;
        let [client, front, back] = ["client", "front", "back"].map(|role| case.tid(role));
        let accuracy = BlameAccuracy::for_role(&case, "client", "socket", |blame| {
            is_busy(blame, &[front]) || is_busy(blame, &[front, back])
        });
        row(&format!("{name}, client"), &accuracy);
        accuracy.check(&case, "client").context(name)?;
        let of = |chain: &[u32]| {
            sum(blame_of(&case, "client", "socket"), |blame| is_computing(blame, chain))
        };
        let waited = times(&case, "client", Activity::Wait);
        let cpu = |role: &str| case.log(role).cpu_ns(&waited);
        let shares =
            [("front", of(&[front]), cpu("front")), ("back", of(&[front, back]), cpu("back"))];
        in_proportion(&case, "client", &shares).context(name)?;
        let idle = sum(blame_of(&case, "client", "socket"), |blame| blame.idle);
        ensure!(idle == 0, "{name}: the client is idle for {idle} ns: {}", case.describe("client"));
        for (waker, is_idle) in [(client, true), (back, false)] {
            let waits = || {
                case.report.waits_of(front, Some("poll")).filter(move |waits| {
                    waits.waker.as_ref().is_some_and(|by| by.tid == Some(waker))
                })
            };
            let blocked: u64 = waits().map(|waits| waits.blocked_ns).sum();
            let idle: u64 = waits().map(|waits| waits.idle_ns).sum();
            ensure!(at_least(blocked, 0.05, case.window().length_ns()), "{name}: {blocked} ns");
            ensure!(idle == if is_idle { blocked } else { 0 }, "{name}: {idle} of {blocked} idle");
            let accuracy =
                BlameAccuracy::from_blame(waits().flat_map(|waits| &waits.blame), |blame| {
                    is_busy(blame, &[waker]) && blame.idle == is_idle
                });
            let who = if is_idle { "client" } else { "back" };
            row(&format!("{name}, front until {who}"), &accuracy);
            ensure!(accuracy.wrong_ns == 0, "{name}: {accuracy}: {}", case.describe("front"));
            ensure!(at_least(accuracy.right_ns, 0.9, accuracy.blocked_ns), "{name}: {accuracy}");
        }
    }
    Ok(())
}

/// All requests come over one connection, directly or through a bridge. The client may know the server by
/// an address that is translated on the way (a service's address, a published port).
#[test]
fn a_client_waits_for_its_server_in_another_network_namespace() -> Result<()> {
    for name in
        ["between-namespaces", "between-namespaces-bridged", "between-namespaces-translated"]
    {
        let case = Case::profile(name)?;
        check_other_namespace(name, &case)?;
        for (role, peer) in [("client", "server"), ("server", "client")] {
            ends_at(&case, role, case.pid(peer), "tcp").context(name)?;
        }
        // Only the server waits for its next request.
        let idle = |role| -> u64 {
            case.report.waits_of(case.tid(role), Some("socket")).map(|waits| waits.idle_ns).sum()
        };
        let (client, server) = (idle("client"), idle("server"));
        ensure!(client == 0 && server > 0, "{name}: {client} {server}");
    }
    Ok(())
}

/// The server has one socket for all of its clients. That tells no other end.
#[test]
fn datagrams_lead_to_the_server_in_another_network_namespace() -> Result<()> {
    for name in ["between-namespaces-datagrams", "between-namespaces-datagrams-translated"] {
        let case = Case::profile(name)?;
        check_other_namespace(name, &case)?;
        ends_at(&case, "client", case.pid("server"), "udp").context(name)?;
        // No other thread than the client wakes the server.
        let strangers: Vec<_> = (case.report.wakes_of(case.tid("server")))
            .filter(|wakes| wakes.cause == "socket")
            .filter(|wakes| wakes.waker.tid.is_some_and(|waker| waker != case.tid("client")))
            .collect();
        ensure!(strangers.is_empty(), "{name}: the server was not woken by {strangers:?}");
    }
    Ok(())
}

/// Demands that the client waits for what its server does, and for its sleep.
fn check_other_namespace(name: &str, case: &Case) -> Result<()> {
    let server = [case.tid("server")];
    let accuracy = BlameAccuracy::for_role(case, "client", "socket", |blame| {
        is_busy(blame, &server) || is_external(blame, "timer", &server)
    });
    row(name, &accuracy);
    accuracy.check(case, "client").context(name.to_owned())?;
    let slept = sum(blame_of(case, "client", "socket"), |blame| blame.kind == "timer");
    ensure!(at_least(slept, 0.4, accuracy.blocked_ns), "{slept} of {}", accuracy.blocked_ns);
    Ok(())
}

/// Demands that the sockets which a role waits on have their other ends at a process.
fn ends_at(case: &Case, role: &str, peer: u32, protocol: &str) -> Result<()> {
    let waited_on: Vec<_> = (case.report.waits_of(case.tid(role), Some("socket")))
        .filter_map(|waits| waits.waited_on.as_ref())
        .map(|waited_on| waited_on.text.clone())
        .collect();
    let ended_at = |text: &String| text.contains(&peer.to_string()) && text.contains(protocol);
    ensure!(
        !waited_on.is_empty() && waited_on.iter().all(ended_at),
        "{role} waits on {waited_on:?}, whose other end is {peer}'s"
    );
    Ok(())
}

/// Each request has a connection of its own: the server's end is gone before anybody looks.
#[test]
fn short_connections_to_another_network_namespace_lead_to_who_listens_there() -> Result<()> {
    for name in ["between-namespaces-short", "between-namespaces-translated-short"] {
        let case = Case::profile(name)?;
        let server = [case.tid("server")];
        let accuracy = BlameAccuracy::for_role(&case, "client", "socket", |blame| {
            is_busy(blame, &server) || is_external(blame, "timer", &server)
        });
        row(name, &accuracy);
        accuracy.check(&case, "client").context(name)?;
    }
    Ok(())
}

/// A full pipe or socket is waited for until its reader reads.
#[test]
fn a_writer_without_room_waits_for_the_work_of_its_reader() -> Result<()> {
    for (name, cause) in [
        ("back-pressure-pipe", "pipe"),
        ("back-pressure-unix", "socket"),
        ("back-pressure-tcp", "socket"),
    ] {
        let case = Case::profile(name)?;
        let reader = [case.tid("reader")];
        let accuracy =
            BlameAccuracy::for_role(&case, "writer", cause, |blame| is_busy(blame, &reader));
        row(name, &accuracy);
        accuracy.check(&case, "writer").context(name)?;
    }
    Ok(())
}

/// Packets of many connections meet on one CPU: whoever delivers one, no thread is said to wait for
/// another one's client or server.
#[test]
fn nobody_is_blamed_for_packets_of_other_connections() -> Result<()> {
    let case = Case::profile("crowded-tcp")?;
    let tid = |role: &str, number: u32| case.tid(&format!("{role}-{number}"));
    let mut all = Vec::new();
    for number in 1..=4 {
        for (role, peer) in [("client", "server"), ("server", "client")] {
            let peer = tid(peer, number);
            let strangers: Vec<_> = (case.report.wakes_of(tid(role, number)))
                .filter(|wakes| wakes.cause == "socket")
                .filter(|wakes| wakes.waker.tid.is_some_and(|waker| waker != peer))
                .collect();
            ensure!(strangers.is_empty(), "{role}-{number} was not woken by {strangers:?}");
        }
        let name = format!("client-{number}");
        let server = tid("server", number);
        let accuracy = BlameAccuracy::for_role(&case, &name, "socket", |blame| {
            blame.path().first() == Some(&server)
        });
        row(&format!("crowded-tcp, {name}"), &accuracy);
        all.push(accuracy);
    }
    ensure!(
        all.iter().all(|accuracy| accuracy.blocked_ns > 0 && accuracy.wrong_ns == 0),
        "{all:?}"
    );
    Ok(())
}
