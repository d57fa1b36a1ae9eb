//! Waits that never end, and who could end them: workloads whose locks have one owner, known by
//! construction, and another thread that does the same without the lock.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::Case,
    cgroup::{Cgroup, Motion},
    offwake::Offwake,
    report::Finding,
    wait_until::wait_until,
    workload::Workload,
};

/// Profiles the processes of a workload once all of `waiters` wait for a futex.
fn profile(name: &str, waiters: &[&str]) -> Result<Case> {
    let workload = Workload::start(name)?;
    for waiter in waiters {
        let player = workload.role(waiter)?;
        let call = format!("/proc/{}/task/{}/syscall", player.pid, player.tid);
        wait_until("the waiter to wait", || {
            let is_futex = |call: &str| call.starts_with(&format!("{} ", libc::SYS_futex));
            Ok(is_futex(&fs::read_to_string(&call)?).then_some(()))
        })?;
    }
    Case::profile_with(workload, |offwake, workload| offwake.args(["--pid", &workload.pids()]))
}

/// Returns the finding that tells of a thread's wait.
fn stuck<'c>(case: &'c Case, role: &str) -> Result<&'c Finding> {
    let tid = case.tid(role);
    let findings = &case.report.findings;
    let is_its = |found: &&Finding| {
        found.kind == "still_waiting" && found.chain.first().and_then(|hop| hop.tid) == Some(tid)
    };
    findings.iter().find(is_its).with_context(|| format!("{role} {tid} is stuck: {findings:#?}"))
}

/// Demands that `waiter` waits for `holder`, who sleeps with the lock.
fn check_held(case: &Case, waiter: &str, holder: &str, what: &str) -> Result<()> {
    let found = stuck(case, waiter)?;
    let [first, last] = found.chain.as_slice() else {
        anyhow::bail!("there are two hops: {found:#?}");
    };
    ensure!(first.what.contains(what) && first.what.ends_with("thread ow-holder"), "{found:#?}");
    ensure!(last.tid == Some(case.tid(holder)), "{holder} has the lock: {found:#?}");
    ensure!(last.what == "sleeps", "{found:#?}");
    let function = last.function.as_deref().unwrap_or_default();
    ensure!(function.contains("sleeps_with_the_lock"), "{found:#?}");
    ensure!(found.cause.text.contains("sleeps_with_the_lock"), "{found:#?}");
    ensure!(!format!("{found:?}").contains("bystander"), "{found:#?}");
    Ok(())
}

/// Demands that the first finding is the deadlock of `left` and `right`.
fn check_deadlock(case: &Case, owner: impl Fn(&str) -> String) -> Result<()> {
    let findings = &case.report.findings;
    let found = findings.first().context("there is a deadlock")?;
    ensure!(found.kind == "deadlock", "{findings:#?}");
    ensure!(findings.iter().filter(|found| found.kind == "deadlock").count() == 1, "{findings:#?}");
    let tids: BTreeSet<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
    ensure!(tids == BTreeSet::from(["left", "right"].map(|role| case.tid(role))), "{found:#?}");
    for hop in &found.chain {
        let other = if hop.tid == Some(case.tid("left")) { "right" } else { "left" };
        let wanted = format!("for a lock held by {}", owner(other));
        ensure!(hop.what.contains(&wanted), "{wanted}: {found:#?}");
        let function = hop.function.as_deref().unwrap_or_default();
        ensure!(function.contains("PthreadMutex::lock"), "{found:#?}");
    }
    let screen = case.outcome.terminal();
    let first = screen.lines().nth(1).unwrap_or_default();
    ensure!(first.starts_with("1 ") && first.contains("DEADLOCK"), "{screen}");
    Ok(())
}

#[test]
fn two_threads_that_want_each_others_mutex_are_a_deadlock() -> Result<()> {
    let case = profile("deadlock", &["left", "right"])?;
    check_deadlock(&case, |role| format!("thread ow-{role}"))?;
    // The main thread waits for something else.
    ensure!(!case.report.findings[0].text.contains("main thread"), "{:#?}", case.report.findings);
    Ok(())
}

#[test]
fn two_processes_that_want_each_others_mutex_are_a_deadlock() -> Result<()> {
    let case = profile("deadlock-of-processes", &["left", "right"])?;
    check_deadlock(&case, |role| format!("offwake-workload {}", case.pid(role)))
}

/// The other process is not of the target, and has slept since before anybody looked.
#[test]
fn a_deadlock_with_a_process_outside_of_the_target_is_one() -> Result<()> {
    for target in ["left", "right"] {
        let workload = Workload::start("deadlock-of-processes")?;
        let pid = workload.role(target)?.pid.to_string();
        let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &pid]))?;
        check_deadlock(&case, |role| format!("offwake-workload {}", case.pid(role)))?;
        let first = case.report.findings[0].chain.first().and_then(|hop| hop.tid);
        ensure!(first == Some(case.tid(target)), "the target is told first: {first:?}");
    }
    Ok(())
}

#[test]
fn who_sleeps_with_a_mutex_held_is_the_cause() -> Result<()> {
    for (name, holder) in [
        ("mutex-held-by-left", "left"),
        ("mutex-held-by-right", "right"),
        ("pi-mutex-held-by-left", "left"),
    ] {
        let case = profile(name, &["waiter"])?;
        check_held(&case, "waiter", holder, "waits for a lock held by").context(name)?;
    }
    Ok(())
}

/// Whoever polls one connection since before anybody looked waits for who holds the other end.
#[test]
fn a_server_that_does_not_answer_a_poll_is_named() -> Result<()> {
    for (name, asked, other) in
        [("polled-left-hangs", "left", "right"), ("polled-right-hangs", "right", "left")]
    {
        let workload = Workload::start(name)?;
        let client = workload.role("client")?;
        let call = format!("/proc/{}/task/{}/syscall", client.pid, client.tid);
        wait_until("the client to poll", || {
            let call = fs::read_to_string(&call)?;
            let number = call.split(' ').next().and_then(|number| number.parse().ok());
            Ok(number.is_some_and(|number| POLLING.contains(&number)).then_some(()))
        })?;
        let case = Case::profile_with(workload, |offwake, workload| {
            offwake.args(["--pid", &workload.pids()])
        })?;
        let found = stuck(&case, "client").context(name)?;
        let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
        ensure!(tids == [case.tid("client"), case.tid(asked)], "{name}: {found:#?}");
        ensure!(found.cause.text.contains("sleeps"), "{name}: {found:#?}");
        ensure!(!format!("{found:?}").contains(&format!("ow-{other}")), "{name}: {found:#?}");
    }
    Ok(())
}

/// The server that does not answer is traced, or in a frozen cgroup; the other one is not. A cgroup is named that
/// was told to freeze, be it the server's own or one above it.
#[test]
fn who_stops_the_server_that_a_client_waits_for_is_named() -> Result<()> {
    for (name, asked) in [("polled-left-hangs", "left"), ("polled-right-hangs", "right")] {
        let outer = Cgroup::new(&format!("outer-{asked}"))?;
        let inner = outer.child("inner")?;
        let v1 = Cgroup::with_freezer_of_v1(&format!("v1-{asked}"))?;
        if v1.is_none() {
            eprintln!("NOT RUN, no freezer of cgroups v1 is mounted: a server that it freezes");
        }
        let told = if asked == "left" { &outer } else { &inner };
        let frozen = [Some((told, &inner)), v1.as_ref().map(|it| (it, it))];
        for (told, home) in frozen.into_iter().flatten() {
            check_stop(name, asked, |server, and_then| {
                home.adopt(server)?;
                told.set(Motion::Frozen)?;
                and_then()?;
                told.set(Motion::Free)?;
                let path = told.path().to_string_lossy();
                let below = path.rsplit_once("/offwake-test-").context("a test's cgroup")?.1;
                Ok(format!("is frozen (freezer of cgroup /offwake-test-{below})"))
            })?;
        }
        check_stop(name, asked, |server, and_then| {
            let tracer = Tracer::stop(server)?;
            and_then()?;
            drop(tracer);
            let comm = fs::read_to_string("/proc/self/comm")?;
            let (comm, pid) = (comm.trim(), std::process::id());
            Ok(format!("is stopped by its tracer {comm} {pid} (ptrace)"))
        })?;
    }
    Ok(())
}

/// Demands that a client whose server is stopped is told so. `stop` stops the server, calls what it is given,
/// has it go on, and returns what is to be said of it.
fn check_stop(
    name: &str,
    asked: &str,
    stop: impl FnOnce(u32, &mut dyn FnMut() -> Result<()>) -> Result<String>,
) -> Result<()> {
    let mut workload = Some(Workload::start(name)?);
    let server = workload.as_ref().context("a workload")?.role(asked)?.pid;
    let mut recorded = None;
    let said = stop(server, &mut || {
        let started = workload.take().context("it is called once")?;
        let arguments =
            ["-d", "1", "--pid", &started.pids(), "-o", "report.json"].map(str::to_owned);
        recorded = Some((Offwake::profile()?.args(arguments).run()?, started));
        Ok(())
    })?;
    let (outcome, workload) = recorded.context("nothing was recorded")?;
    let case = Case::from_outcome(workload, outcome, "report.json")?;
    let found = stuck(&case, "client").context(said.clone())?;
    ensure!(found.cause.text.ends_with(&said), "{name}, {said}: {found:#?}");
    let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
    ensure!(tids == [case.tid("client"), case.tid(asked)], "{name}, {said}: {found:#?}");
    Ok(())
}

/// A process that this thread traces, and has stopped.
struct Tracer(libc::pid_t);

impl Tracer {
    fn stop(pid: u32) -> Result<Self> {
        let pid = pid.cast_signed();
        // SAFETY: takes plain integers. The workload reaps its processes, which are not this one's children.
        let stopped = unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == 0
                && libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) == 0
        };
        ensure!(stopped, "cannot trace {pid}: {}", std::io::Error::last_os_error());
        let status = format!("/proc/{pid}/status");
        wait_until("the tracer's stop", || {
            Ok(fs::read_to_string(&status)?.contains("State:\tt").then_some(()))
        })?;
        Ok(Self(pid))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // SAFETY: takes plain integers.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

/// The syscalls that poll. Some machines have no `poll`.
const POLLING: &[i64] = &[
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// The first thread's lock is never waited for: three types in each row are.
#[test]
fn a_chain_leads_over_mutexes_of_all_types_to_who_sleeps() -> Result<()> {
    for name in ["mutexes-in-a-row", "mutexes-in-another-row"] {
        let case = profile(name, &["first", "second", "third"])?;
        let found = stuck(&case, "first")?;
        let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
        let row = ["first", "second", "third", "fourth"].map(|role| case.tid(role));
        ensure!(tids == row, "{name}: {row:?}: {found:#?}");
        for (hop, owner) in found.chain.iter().zip(["second", "third", "fourth"]) {
            let wanted = format!("waits for a lock held by thread {owner}");
            ensure!(hop.what.ends_with(&wanted), "{name}: {wanted}: {found:#?}");
        }
        ensure!(found.cause.text.contains("[fourth] sleeps"), "{name}: {found:#?}");
        // It tells of the others as well.
        let first = case.report.findings.first().context("there are findings")?;
        ensure!(first.text == found.text, "{name}: {:#?}", case.report.findings);
    }
    Ok(())
}

#[test]
fn who_sleeps_with_a_readers_writer_lock_held_is_the_cause_for_readers_and_writers() -> Result<()> {
    for (name, holder) in [("rwlock-held-by-left", "left"), ("rwlock-held-by-right", "right")] {
        let case = profile(name, &["reader", "writer"])?;
        for waiter in ["reader", "writer"] {
            let what = "waits for a lock held for writing by";
            check_held(&case, waiter, holder, what).with_context(|| format!("{name}, {waiter}"))?;
        }
    }
    Ok(())
}

/// Who sleeps in a write to a file has the lock of its inode; another thread sleeps likewise with another file.
#[test]
fn who_sleeps_with_the_lock_of_a_file_is_the_cause() -> Result<()> {
    let (inode, position) = (
        "the lock of a file (inode lock)",
        "the position in an open file that others use too (f_pos_lock)",
    );
    for (name, holder, lock) in [
        ("inode-lock-held-by-left", "left", inode),
        ("inode-lock-held-by-right", "right", inode),
        ("file-position-held-by-left", "left", position),
        ("file-position-held-by-right", "right", position),
    ] {
        let workload = Workload::start(name)?;
        let waiter = workload.role("waiter")?;
        let state = format!("/proc/{}/task/{}/stat", waiter.pid, waiter.tid);
        wait_until("the waiter to wait for the lock", || {
            Ok(fs::read_to_string(&state)?.contains(") D ").then_some(()))
        })?;
        let case = Case::profile_with(workload, |offwake, workload| {
            offwake.args(["--pid", &workload.pids()])
        })?;
        let found = stuck(&case, "waiter").context(name)?;
        let tids: Vec<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
        ensure!(tids == [case.tid("waiter"), case.tid(holder)], "{name}: {found:#?}");
        let wanted = format!("waits for {lock}, held by thread ow-{holder}");
        ensure!(found.chain[0].what == wanted, "{name}: {found:#?}");
        let function = found.chain[1].function.as_deref().unwrap_or_default();
        ensure!(function.contains("writes_from"), "{name}: {found:#?}");
    }
    Ok(())
}

#[test]
fn nobody_is_named_for_a_condition_variable() -> Result<()> {
    let case = profile("condition-never-signalled", &["waiter"])?;
    let tid = case.tid("waiter");
    for found in &case.report.findings {
        ensure!(found.kind != "deadlock", "{found:#?}");
        let is_its = found.chain.first().and_then(|hop| hop.tid) == Some(tid);
        ensure!(!is_its || found.chain.len() == 1, "{found:#?}");
        // The main thread waits at a pipe of this test's process, whose own threads wait for a lock.
        ensure!(!is_its || !format!("{found:?}").contains("held by"), "{found:#?}");
    }
    Ok(())
}

/// A target whose main thread waits at one, and which does nothing else.
#[test]
fn who_waits_at_a_condition_variable_is_told_that_it_has_no_owner() -> Result<()> {
    let workload = Workload::start("condition-of-main-never-signalled")?;
    workload.wait_for_call("waiter", &[libc::SYS_futex])?;
    let pid = workload.role("waiter")?.pid.to_string();
    let case = Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &pid]))?;
    let found = stuck(&case, "waiter")?;
    let first = found.chain.first().context("a hop")?;
    ensure!(first.what == "waits for another thread", "{found:#?}");
    let wanted = "a condition variable has no owner: who should signal it is not known";
    ensure!(found.cause.text == wanted && found.chain.len() == 1, "{found:#?}");
    let screen = case.outcome.terminal();
    let text = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(text.contains("STILL WAITING") && text.contains(wanted), "{screen}");
    ensure!(!text.contains("held by"), "{screen}");
    Ok(())
}

/// The server never waits on the connection: what it is is known by the other namespace's sockets
/// alone, and, where addresses are translated on the way, by the kernel's connection tracking.
#[test]
fn a_client_is_led_to_a_server_that_hangs_in_another_network_namespace() -> Result<()> {
    for name in [
        "between-namespaces-hung",
        "between-namespaces-translated-hung",
        "between-namespaces-datagrams-hung",
    ] {
        let case = Case::profile_with(Workload::start(name)?, |offwake, workload| {
            offwake.args(["--pid", &workload.role("client").expect("a client").pid.to_string()])
        })?;
        let found = stuck(&case, "client").context(name)?;
        let last = found.chain.last().context("there is a chain")?;
        ensure!(last.tid == Some(case.tid("server")), "{name}: {found:#?}");
        let function = last.function.as_deref().unwrap_or_default();
        ensure!(function.contains("sleep_with_the_request"), "{name}: {found:#?}");
    }
    Ok(())
}

/// Where the servers of the workloads sleep that fell asleep before anybody looked: the workload, its
/// call, its function.
const ASLEEP: [(&str, libc::c_long, &str); 4] = [
    ("asleep-in-a-pipe", libc::SYS_read, "waits_for_the_ledger"),
    ("asleep-in-a-futex", libc::SYS_futex, "waits_for_the_vault"),
    ("asleep-in-a-timer", libc::SYS_nanosleep, "naps_for_an_hour"),
    ("asleep-behind-a-middle", libc::SYS_read, "waits_for_the_ledger"),
];

/// Starts a workload whose server sleeps, and whose client waits for it.
fn start_asleep(name: &str, call: libc::c_long) -> Result<Workload> {
    let workload = Workload::start(name)?;
    for (role, call) in [("server", call), ("client", libc::SYS_read)] {
        let player = workload.role(role)?;
        let path = format!("/proc/{}/task/{}/syscall", player.pid, player.tid);
        wait_until("the role to sleep", || {
            let is_call = |text: &str| text.starts_with(&format!("{call} "));
            Ok(is_call(&fs::read_to_string(&path)?).then_some(()))
        })?;
    }
    Ok(workload)
}

/// Neither is the server of the target, nor did it go to sleep while anybody looked.
#[test]
fn a_server_that_has_slept_since_before_the_recording_is_named_with_its_function() -> Result<()> {
    for (name, call, function) in ASLEEP {
        let workload = start_asleep(name, call)?;
        let case = Case::profile_with(workload, |offwake, workload| {
            offwake.args(["--pid", &workload.role("client").expect("a client").pid.to_string()])
        })?;
        let found = stuck(&case, "client").context(name)?;
        let between = (name == "asleep-behind-a-middle").then_some("middle");
        let chain = ["client"].into_iter().chain(between).chain(["server"]);
        let chain: Vec<_> = chain.map(|role| Some(case.tid(role))).collect();
        let tids: Vec<_> = found.chain.iter().map(|hop| hop.tid).collect();
        ensure!(tids == chain, "{name}: {chain:?}: {found:#?}");
        let last = found.chain.last().context("there is a chain")?;
        let named = last.function.as_deref().unwrap_or_default();
        ensure!(named.contains(function), "{name}: {found:#?}");
        ensure!(found.cause.text.contains("has not answered"), "{name}: {found:#?}");
        // The other functions are in the same program, and the bystander in the same state.
        let all = format!("{:?}", case.report.findings);
        for (_, _, other) in ASLEEP.iter().filter(|(_, _, other)| *other != function) {
            ensure!(!all.contains(other), "{name}: {other}: {found:#?}");
        }
        ensure!(!all.contains("bystander") && !all.contains("beside_them"), "{name}: {found:#?}");
    }
    Ok(())
}
