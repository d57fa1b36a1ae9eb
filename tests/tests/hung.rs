//! Processes that hang, as somebody reads it who was called because of them: the first lines of the summary
//! name who could end the wait. Each workload has one culprit by construction, and another process that does
//! the same beside it.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::Case, cgroup::Cgroup, offwake::Offwake, report::Finding, wait_until::wait_until,
    workload::Workload,
};

/// Profiles one role's process once all of `waiting` are in this call.
fn profile(name: &str, waiting: &[&str], call: libc::c_long, target: &str) -> Result<Case> {
    let workload = Workload::start(name)?;
    for role in waiting {
        workload.wait_for_call(role, &[call])?;
    }
    profile_role(workload, target)
}

fn profile_role(workload: Workload, target: &str) -> Result<Case> {
    let pid = workload.role(target)?.pid.to_string();
    Case::profile_with(workload, |offwake, _| offwake.args(["--pid", &pid]))
}

fn first(case: &Case) -> Result<&Finding> {
    case.report.findings.first().context("there are findings")
}

fn tids(found: &Finding) -> Vec<Option<u32>> {
    found.chain.iter().map(|hop| hop.tid).collect()
}

/// Demands that the lines of the summary from its second one on contain these texts, one after the other. White
/// space does not count: lines are broken where they are too long.
fn check_screen(case: &Case, wanted: &[&str]) -> Result<()> {
    let screen = case.outcome.terminal();
    println!("{screen}");
    let lines: Vec<&str> = screen.lines().skip(1).take(12).collect();
    let text = lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = &*text;
    for wanted in wanted {
        let place =
            rest.find(wanted).with_context(|| format!("no {wanted:?} in order: {screen}"))?;
        rest = &rest[place + wanted.len()..];
    }
    Ok(())
}

#[test]
fn a_server_behind_a_unix_socket_that_hangs_is_named() -> Result<()> {
    for (name, asked, other) in
        [("unix-left-hangs", "left", "right"), ("unix-right-hangs", "right", "left")]
    {
        let workload = Workload::start(name)?;
        workload.wait_for_call("client", &[libc::SYS_read])?;
        workload.wait_for_call(asked, &[libc::SYS_nanosleep])?;
        let case = profile_role(workload, "client")?;
        let found = first(&case)?;
        ensure!(found.kind == "still_waiting", "{name}: {found:#?}");
        let expected = ["client", asked].map(|role| Some(case.tid(role)));
        ensure!(tids(found) == expected, "{name}: {expected:?}: {found:#?}");
        let all = format!("{:?}", case.report.findings);
        ensure!(!all.contains(&format!("ow-{other}")), "{name}: {all}");
        let (client, server) = (case.pid("client"), case.pid(asked));
        check_screen(
            &case,
            &[
                "STILL WAITING ≥",
                &format!("offwake-workload {client}"),
                // The first line is cut where it is too long.
                "waits for an answer of offwake-",
                "└ it waits at unix ",
                &format!("└ offwake-workload {server} has not answered: sleeps in"),
                "sleeps_without_an_answer",
                "← cause",
            ],
        )
        .context(name)?;
    }
    Ok(())
}

#[test]
fn three_threads_that_want_each_others_mutex_are_one_deadlock() -> Result<()> {
    const RING: [&str; 3] = ["left", "middle", "right"];
    let case = profile("deadlock-of-three", &RING, libc::SYS_futex, "left")?;
    let found = first(&case)?;
    let deadlocks = case.report.findings.iter().filter(|found| found.kind == "deadlock").count();
    ensure!(found.kind == "deadlock" && deadlocks == 1, "{:#?}", case.report.findings);
    let members: BTreeSet<_> = tids(found).into_iter().collect();
    ensure!(members == RING.map(|role| Some(case.tid(role))).into(), "{found:#?}");
    for hop in &found.chain {
        let role = RING.iter().position(|role| hop.tid == Some(case.tid(role)));
        let next = RING[(role.context("a role")? + 1) % RING.len()];
        ensure!(hop.what.contains(&format!("lock held by thread ow-{next}")), "{found:#?}");
    }
    let process = format!("offwake-workload {}", case.pid("left"));
    check_screen(
        &case,
        &["1 ", "DEADLOCK ≥", &process, "waits for a lock held by thread ow-", "└ "],
    )
}

/// The kernel looks for deadlocks among locks of processes alone (`EDEADLK`).
#[test]
fn two_processes_that_want_each_others_file_are_a_deadlock() -> Result<()> {
    for (name, call) in
        [("flock-deadlock", libc::SYS_flock), ("ofd-lock-deadlock", libc::SYS_fcntl)]
    {
        for (target, other) in [("left", "right"), ("right", "left")] {
            let case = profile(name, &["left", "right"], call, target)?;
            let found = first(&case)?;
            ensure!(found.kind == "deadlock", "{name}: {:#?}", case.report.findings);
            let expected = [target, other].map(|role| Some(case.tid(role)));
            ensure!(tids(found) == expected, "{name}: {expected:?}: {found:#?}");
            let pid = |role| format!("offwake-workload {}", case.pid(role));
            let files = match target {
                "left" => ["/vault", "/ledger"],
                _ => ["/ledger", "/vault"],
            };
            check_screen(
                &case,
                &[
                    "DEADLOCK ≥",
                    &format!("{} waits for a file lock held by offwake-", pid(target)),
                    files[0],
                    &format!(
                        "└ {} still waits for a file lock held by {}",
                        pid(other),
                        pid(target)
                    ),
                    files[1],
                ],
            )
            .context(name)?;
        }
    }
    Ok(())
}

/// The server computes for its answer, and its cgroup hardly lets it. Another server is under no quota.
#[test]
fn the_quota_that_keeps_a_server_from_answering_is_named() -> Result<()> {
    let group = Cgroup::with_cpu("slow-answer", 0.1)?;
    let workload = Workload::start("server-that-computes")?;
    let server = workload.role("left")?.pid;
    workload.wait_for_call("client", &[libc::SYS_read])?;
    group.adopt(server)?;
    let before = group.cpu_count()?.throttled_periods;
    wait_until("it to be throttled", || {
        Ok((group.cpu_count()?.throttled_periods > before + 1).then_some(()))
    })?;
    let case = profile_role(workload, "client")?;
    let found = first(&case)?;
    let expected = ["client", "left"].map(|role| Some(case.tid(role)));
    ensure!(tids(found) == expected, "{expected:?}: {found:#?}");
    let path = group.path().file_name().context("a name")?.to_string_lossy().into_owned();
    check_screen(
        &case,
        &[
            "STILL WAITING ≥",
            "waits for an answer of offwake-",
            &format!("└ offwake-workload {server} has not answered:"),
            &format!("is throttled by the CPU quota of /{path}: 10 ms in 100 ms"),
            "← cause",
        ],
    )
}

#[test]
fn who_opens_a_fifo_that_nobody_else_opens_is_told_what_is_missing() -> Result<()> {
    for (name, missing) in [
        ("fifo-without-reader", "waits until a reader opens its FIFO"),
        ("fifo-without-writer", "waits until a writer opens its FIFO"),
    ] {
        let workload = Workload::start(name)?;
        let player = workload.role("waiter")?;
        let path = format!("/proc/{}/task/{}/stack", player.pid, player.tid);
        wait_until("the waiter to open the FIFO", || {
            Ok(fs::read_to_string(&path)?.contains("fifo_open").then_some(()))
        })?;
        let case = profile_role(workload, "waiter")?;
        let found = first(&case)?;
        ensure!(found.kind == "still_waiting", "{name}: {found:#?}");
        ensure!(tids(found) == [Some(case.tid("waiter"))], "{name}: {found:#?}");
        let process = format!("offwake-workload {}", case.pid("waiter"));
        check_screen(&case, &["STILL WAITING ≥", &process, missing, "opens_the_orders"])
            .context(name)?;
    }
    Ok(())
}

/// Profiles the client of a workload, which hangs while somebody looks.
fn profile_hang(name: &str) -> Result<Case> {
    let workload = Workload::start(name)?;
    let pid = workload.role("client")?.pid.to_string();
    let arguments = ["--budget", "none", "--max-overhead", "none", "-d", "4", "-o", "report.json"];
    let running = Offwake::profile()?.args(arguments).args(["--pid", &pid]).start_recording()?;
    fs::write(workload.directory().join("hang"), "")?;
    Case::from_outcome(workload, running.outcome()?, "report.json")
}

/// The other process has the same end of the connection open, and sleeps as well.
#[test]
fn of_two_processes_that_hold_a_connection_the_one_that_has_the_request_is_named() -> Result<()> {
    for (name, function) in [
        ("connection-kept-by-parent", "sleeps_with_the_request"),
        ("connection-kept-by-child", "waits_with_the_request"),
        ("pair-kept-by-parent", "waits_with_the_request"),
        ("pair-kept-by-child", "sleeps_with_the_request"),
    ] {
        let case = profile_hang(name)?;
        let found = first(&case)?;
        ensure!(found.kind == "still_waiting", "{name}: {found:#?}");
        let expected = ["client", "server"].map(|role| Some(case.tid(role)));
        ensure!(tids(found) == expected, "{name}: {expected:?}: {found:#?}");
        ensure!(!format!("{found:?}").contains("sleeps_beside_it"), "{name}: {found:#?}");
        let server = format!("└ offwake-workload {} has not answered:", case.pid("server"));
        check_screen(&case, &["STILL WAITING ≥", &server, function, "← cause"]).context(name)?;
    }
    Ok(())
}

/// Nobody saw who read the request: both processes may have to answer, and neither is the cause.
#[test]
fn two_processes_that_held_a_connection_before_anybody_looked_are_both_listed() -> Result<()> {
    for name in ["connection-kept-by-parent", "pair-kept-by-child"] {
        let workload = Workload::start(name)?;
        fs::write(workload.directory().join("hang"), "")?;
        workload.wait_for_call("client", &[libc::SYS_read])?;
        workload.wait_for_call("server", &[libc::SYS_nanosleep])?;
        let case = profile_role(workload, "client")?;
        let found = first(&case)?;
        ensure!(tids(found) == [Some(case.tid("client"))], "{name}: {found:#?}");
        let lines = ["who has to answer is not known: ", "hold the other end", "sleeps in"];
        check_screen(&case, &lines).context(name)?;
        for role in ["server", "keeper"] {
            let process = format!("offwake-workload {}", case.pid(role));
            ensure!(found.cause.text.contains(&process), "{name}, {role}: {found:#?}");
        }
        ensure!(!case.outcome.terminal().contains("← cause"), "{}", case.outcome.terminal());
    }
    Ok(())
}

/// Both threads of the server hang with a request. The client waits for one of them.
#[test]
fn of_a_servers_threads_the_one_that_has_the_request_is_named() -> Result<()> {
    for (name, asked) in [("thread-left-hangs", "left"), ("thread-right-hangs", "right")] {
        let case = profile_hang(name)?;
        let found = first(&case)?;
        ensure!(found.kind == "still_waiting", "{name}: {found:#?}");
        let expected = ["client", asked].map(|role| Some(case.tid(role)));
        ensure!(tids(found) == expected, "{name}: {expected:?}: {found:#?}");
        ensure!(!format!("{found:?}").contains("sleeps_beside_it"), "{name}: {found:#?}");
        let server = format!("└ offwake-workload {} [ow-{asked}]", case.pid("main"));
        let sleeps = "has not answered: sleeps in";
        let wanted = ["STILL WAITING ≥", &server, sleeps, "sleeps_with_the_request", "← cause"];
        check_screen(&case, &wanted).context(name)?;
    }
    Ok(())
}
