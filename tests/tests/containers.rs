//! Containers of a real engine: found by name, blamed by name, followed by name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use offwake_tests::{
    case::{SHARE, at_least},
    docker::{Container, Engine, IMAGE},
    offwake::{Offwake, Outcome},
    paths,
    report::Report,
    wait_until::deadline,
};

const FAILED: i32 = 1;
const NOTHING_RECORDED: i32 = 3;

/// Answers each request after it has counted for a while. Each end keeps both FIFOs open: with one that
/// opens them anew each time, a writer can find that the reader has left.
const SERVER: &str = "exec 3<>/volume/request 4<>/volume/reply; \
     while read x <&3; do i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; echo done >&4; done";
/// Goes on asking.
const CLIENT: &str = "exec 3<>/volume/request 4<>/volume/reply; \
     while true; do echo go >&3; read x <&4; done";

/// Two containers, of which one waits for the other all the time.
///
/// ```text
/// client  --request FIFO-->  server
///         <---reply FIFO---  counts
/// ```
struct Pair<'e> {
    server: Container<'e>,
    client: Container<'e>,
}

impl<'e> Pair<'e> {
    fn start(engine: &'e Engine, volume: &Path) -> Result<Self> {
        for fifo in ["request", "reply"] {
            let path = std::ffi::CString::new(volume.join(fifo).to_string_lossy().into_owned())?;
            // SAFETY: the path is a string that ends in NUL.
            ensure!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) } == 0, "cannot make {fifo}");
        }
        let server = engine.run("offwake-server", volume, SERVER)?;
        let client = engine.run("offwake-client", volume, CLIENT)?;
        Ok(Self { server, client })
    }
}

fn profile(engine: &Engine, arguments: &[&str]) -> Result<Offwake> {
    Ok(Offwake::profile()?.env("DOCKER_HOST", &engine.host()).args(arguments))
}

/// Demands that what the client waited for is the server in its container. The rest is for a process that a
/// kernel may hide from BPF: nobody sees who comes to the CPU after it.
fn leads_to_the_server(report: &Report, client: u32, server: u32) -> Result<()> {
    let waits: Vec<_> = report.waits.iter().filter(|waits| waits.tgid == client).collect();
    let mut sums = BTreeMap::<_, u64>::new();
    for part in waits.iter().flat_map(|waits| &waits.blame) {
        let whose = part.tgid.map(|tgid| (tgid, part.container.as_deref()));
        *sums.entry((whose, part.reason.as_deref())).or_default() += part.ns;
    }
    let blocked: u64 = waits.iter().map(|waits| waits.blocked_ns).sum();
    let there = sums.remove(&(Some((server, Some("offwake-server"))), None)).unwrap_or(0);
    let loss = &report.loss;
    ensure!(at_least(there, SHARE, blocked), "{there} of {blocked}: {sums:?}, {loss:?}");
    let others: Vec<_> = sums.keys().filter(|(whose, _)| whose.is_some()).collect();
    ensure!(others.is_empty(), "these have nothing to do with it: {others:?} of {sums:?}");
    Ok(())
}

fn check(report: &Report, pair: &Pair<'_>) -> Result<()> {
    let (client, server) = (pair.client.pid()?, pair.server.pid()?);
    ensure!(report.tgids() == BTreeSet::from([client]), "{:?}", report.threads);
    leads_to_the_server(report, client, server)?;
    for (label, container, pid) in
        [("offwake-client", &pair.client, client), ("offwake-server", &pair.server, server)]
    {
        let entry = report.containers.iter().find(|entry| entry.label == label);
        let entry = entry.with_context(|| format!("no {label}: {:?}", report.containers))?;
        ensure!(entry.id == container.id()? && entry.image.as_deref() == Some(IMAGE), "{entry:?}");
        let inside = entry.processes.iter().find(|process| process.tgid == pid);
        ensure!(inside.is_some_and(|process| process.pid_in_container == Some(1)), "{entry:?}");
    }
    Ok(())
}

#[test]
fn the_blame_of_a_container_that_waits_leads_into_the_other_one_by_name() -> Result<()> {
    let engine = Engine::start()?;
    let volume = paths::scratch_directory()?;
    let pair = Pair::start(&engine, volume.path())?;
    let outputs = ["-d", "3s", "-o", "x.json", "-o", "x.svg", "-o", "x.html", "-o", "x.offwake"];
    let outcome = profile(&engine, &["--container", "offwake-client"])?.args(outputs).run()?;
    check(&outcome.report("x.json")?, &pair)?;

    // A name, an id and its beginning mean the same.
    let id = pair.client.id()?;
    for wanted in [&id, &id[..12]] {
        let outcome =
            profile(&engine, &["--container", wanted, "-d", "1s", "-o", "x.json"])?.run()?;
        check(&outcome.report("x.json")?, &pair)?;
    }

    // The recording knows the names when no engine does any more.
    let (client, server) = (pair.client.pid()?, pair.server.pid()?);
    drop(pair);
    engine.end()?;
    let again = outcome.report_of("x.offwake", &["-o", "again.json"])?;
    let report = again.report("again.json")?;
    leads_to_the_server(&report, client, server)?;

    let summary = outcome.report_of("x.offwake", &["-v"])?.stdout;
    for text in [
        format!("container offwake-client ({IMAGE}, {})", &id[..12]),
        format!("sh {client} (1 inside)"),
        format!("sh {server} in offwake-server"),
    ] {
        ensure!(summary.contains(&text), "no {text:?}: {summary}");
    }
    for file in ["x.svg", "x.html"] {
        let picture = outcome.text(file)?;
        ensure!(picture.contains("in offwake-server"), "{file} does not say whom it waited for");
    }
    let picture = outcome.text("x.svg")?;
    ensure!(picture.contains(&format!("sh {client} in offwake-client (PID 1 there)")));
    Ok(())
}

#[test]
fn what_is_started_in_a_container_later_is_the_target_too() -> Result<()> {
    let engine = Engine::start()?;
    let volume = paths::scratch_directory()?;
    let container = engine.run("offwake-idle", volume.path(), "while true; do sleep 1; done")?;
    // It begins when the window is open.
    let command = "exec docker exec offwake-idle sh -c \
        'sleep 0.2; read id rest < /proc/self/stat; echo $id > /volume/inside'";
    let outcome = profile(&engine, &["--container", "offwake-idle", "-o", "x.json"])?
        .args(["--", "sh", "-c", command])
        .run()?;
    let report = outcome.report("x.json")?;
    let inside: u32 = fs::read_to_string(volume.path().join("inside"))?.trim().parse()?;
    let entry = report.containers.iter().find(|entry| entry.label == "offwake-idle");
    let entry = entry.with_context(|| format!("{:?}", report.containers))?;
    let later = entry.processes.iter().find(|process| process.pid_in_container == Some(inside));
    let later = later.with_context(|| format!("no process {inside} inside: {entry:?}"))?;
    ensure!(report.tgids().contains(&later.tgid), "it is not the target: {:?}", report.threads);
    ensure!(report.tgids().contains(&container.pid()?), "{:?}", report.threads);
    drop(container);
    engine.end()
}

/// What two restarts of a container come to: the same one, then another one of its name. Each has
/// a process of three seconds in it, and their PIDs are written down.
const RESTARTS: &str = "
    pid() { docker inspect --format '{{.State.Pid}}' offwake-again >> pids; }
    docker restart --time 0 offwake-again && pid && docker exec offwake-again sleep 3 &&
    docker rm --force offwake-again &&
    docker run --detach --network=none --name offwake-again offwake-busybox:1 \
        sh -c 'while true; do sleep 0.1; done' && pid && docker exec offwake-again sleep 3";

#[test]
fn a_container_that_starts_again_is_followed_by_its_name() -> Result<()> {
    let engine = Engine::start()?;
    let volume = paths::scratch_directory()?;
    let first = engine.run("offwake-again", volume.path(), "while true; do sleep 0.1; done")?;
    let pid = first.pid()?;
    let outcome = profile(&engine, &["--container", "offwake-again", "--follow", "-o", "x.json"])?
        .args(["--", "sh", "-c", RESTARTS])
        .start()?
        .outcome_within(2 * deadline())?;
    let report = outcome.report("x.json")?;
    let later = outcome.text("pids")?;
    let later: Vec<u32> = later.lines().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(later.len() == 2, "it did not start twice: {later:?}: {outcome}");
    for pid in [pid].iter().chain(&later) {
        ensure!(report.tgids().contains(pid), "{pid} of {pid}, {later:?} is missing: {outcome}");
    }
    let known = report.containers.iter().filter(|one| one.label == "offwake-again").count();
    ensure!(known == 2, "{:?}", report.containers);
    // By its name, the second one goes with the first.
    drop(first);
    engine.end()
}

/// What starts the container that is waited for; it lives for some seconds.
const LATE: &str = "
    docker run --detach --network=none --name offwake-late offwake-busybox:1 \
        sh -c 'while true; do sleep 0.1; done' > /dev/null &&
    docker inspect --format '{{.State.Pid}}' offwake-late > pid && sleep 3";

#[test]
fn a_container_that_does_not_run_yet_is_waited_for() -> Result<()> {
    let engine = Engine::start()?;
    let outcome = profile(&engine, &["--container", "offwake-late", "--follow", "-o", "x.json"])?
        .args(["--", "sh", "-c", LATE])
        .start()?
        .outcome_within(2 * deadline())?;
    let pid: u32 = outcome.text("pid")?.trim().parse()?;
    ensure!(outcome.report("x.json")?.tgids().contains(&pid), "{pid}: {outcome}");
    let said =
        "offwake: waiting for container offwake-late to start: there is no container offwake-late";
    ensure!(outcome.stderr.starts_with(said), "{outcome}");

    // It is there and does not run; and it never does.
    engine.docker(&["stop", "--time", "0", "offwake-late"])?;
    let arguments = ["--container", "offwake-late", "--follow", "-d", "1s", "-o", "y.json"];
    let never = profile(&engine, &arguments)?.run()?;
    ensure!(never.status.code() == Some(NOTHING_RECORDED), "{never}");
    let [waiting, why] = &never.stderr.lines().collect::<Vec<_>>()[..] else {
        bail!("not two lines: {never}")
    };
    ensure!(waiting.contains("is not running (exited)"), "{never}");
    ensure!(
        *why == "offwake: nothing was recorded: container offwake-late did not start in time",
        "{never}"
    );
    ensure!(never.text("y.json").is_err(), "a report of nothing: {never}");
    engine.docker(&["rm", "--force", "offwake-late"])?;
    engine.end()
}

#[test]
fn names_that_mean_none_or_several_or_one_that_stopped_list_what_there_is() -> Result<()> {
    let engine = Engine::start()?;
    let volume = paths::scratch_directory()?;
    let idle = "while true; do sleep 1; done";
    let one = engine.run("offwake-one", volume.path(), idle)?;
    let refused = |wanted: &str| -> Result<Outcome> {
        profile(&engine, &["--container", wanted, "-d", "1s", "-o", "x.json"])?.run()
    };
    let none = refused("no-such-container")?;
    none.check_failure(FAILED, &["there is no container no-such-container"])?;
    ensure!(none.stderr.contains(&format!("offwake-one {}", &one.id()?[..12])), "{none}");
    refused("pod/none")?.check_failure(FAILED, &["there is no pod none"])?;

    // Of seventeen ids two begin alike.
    let mut others = Vec::new();
    let digit = loop {
        let name = format!("offwake-other-{}", others.len());
        others.push(engine.create(&name)?);
        let ids: Vec<String> = others.iter().map(Container::id).collect::<Result<_>>()?;
        let alike = |digit: &char| ids.iter().filter(|id| id.starts_with(*digit)).count() > 1;
        if let Some(digit) = "0123456789abcdef".chars().find(alike) {
            break digit;
        }
    };
    let several = refused(&digit.to_string())?;
    several.check_failure(FAILED, &["may be any of"])?;
    ensure!(several.stderr.contains("offwake-other-"), "{several}");

    engine.docker(&["stop", "--time", "0", "offwake-one"])?;
    refused("offwake-one")?.check_failure(FAILED, &["is not running (exited)"])?;
    drop((one, others));
    engine.end()
}
