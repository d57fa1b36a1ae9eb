//! In whatever way offwake gets its rights, it can record, and a command that it runs has none of them but what
//! its caller had.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    offwake::{NOBODY, Offwake, Outcome},
    paths,
    process::descendants,
    runc::{Bundle, User},
    workload::Workload,
};

const NONE: &str = "0000000000000000";
/// `CAP_BPF`, `CAP_PERFMON` and `CAP_SYS_PTRACE`, as `/proc` has them.
const THREE: &str = "000000c000080000";
const SETS: [&str; 4] = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"];

/// A command that says who it is, what it can do, and where its home is; it leaves a file.
const COMMAND: [&str; 4] =
    ["--", "sh", "-c", "id -u; id -G; echo $HOME; cat /proc/self/status; touch made"];

fn sets_of(said: &str) -> Vec<Option<&str>> {
    let set = |name: &&str| {
        let line = said.lines().find_map(|line| line.strip_prefix(*name))?;
        line.split_whitespace().last()
    };
    SETS.iter().map(set).collect()
}

/// Demands that the command was nobody's and could do nothing special, and that what was written is nobody's.
fn is_nobodys(outcome: &Outcome) -> Result<()> {
    ensure!(outcome.status.success(), "{outcome}");
    let said: Vec<&str> = outcome.stdout.lines().take(2).collect();
    let nobody = NOBODY.to_string();
    ensure!(said == [&nobody, &nobody], "{outcome}");
    let sets = sets_of(&outcome.stdout);
    ensure!(sets == [Some(NONE); 4], "{sets:?}: {outcome}");
    for name in ["x.json", "made"] {
        let metadata = fs::metadata(outcome.path(name))?;
        ensure!((metadata.uid(), metadata.gid()) == (NOBODY, NOBODY), "{name}: {metadata:?}");
    }
    let report = outcome.report("x.json")?;
    ensure!(report.threads.iter().any(|thread| thread.comm == "sh"), "{:?}", report.threads);
    Ok(())
}

/// pkexec and doas tell root's program who called in variables of their own.
#[test]
fn by_pkexec_and_doas_everything_is_the_callers_as_it_is_by_sudo() -> Result<()> {
    for (variable, value) in
        [("PKEXEC_UID", NOBODY.to_string()), ("DOAS_USER", "nobody".to_owned())]
    {
        let offwake = Offwake::profile()?;
        chown(offwake.directory(), Some(NOBODY), Some(NOBODY))?;
        let outcome = offwake
            .env(variable, &value)
            .env("HOME", "/root")
            .args(["-o", "x.json"])
            .args(COMMAND)
            .run()?;
        is_nobodys(&outcome).context(variable)?;
        let home = outcome.stdout.lines().nth(2);
        ensure!(home.is_some_and(|home| home != "/root"), "{variable}: {outcome}");
    }
    Ok(())
}

/// What can't be told must not become root's.
#[test]
fn a_caller_who_is_no_user_ends_the_run() -> Result<()> {
    for (variable, value) in [("PKEXEC_UID", "4294000000"), ("DOAS_USER", "no-such-user")] {
        let outcome =
            Offwake::profile()?.env(variable, value).args(["-d", "200ms"]).args(COMMAND).run()?;
        outcome.check_failure(1, &["there is no user", value])?;
        ensure!(!outcome.path("made").exists(), "the command ran: {outcome}");
    }
    Ok(())
}

/// `setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep offwake`, for a group that may run it.
#[test]
fn with_capabilities_of_its_file_it_records_and_gives_none_of_them_away() -> Result<()> {
    let directory = paths::scratch_directory()?;
    let copy = directory.path().join("offwake");
    fs::copy(paths::offwake_binary()?, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    let set = "cap_bpf,cap_perfmon,cap_sys_ptrace=ep";
    let done = Command::new("setcap").arg(set).arg(&copy).status()?;
    ensure!(done.success(), "setcap: {done}");
    let nobodys = |arguments: &[&str]| -> Result<Offwake> {
        let offwake = Offwake::profile()?.binary(&copy).as_nobody().arg("profile").args(arguments);
        chown(offwake.directory(), Some(NOBODY), Some(NOBODY))?;
        Ok(offwake)
    };
    is_nobodys(&nobodys(&[&["-o", "x.json"][..], &COMMAND].concat())?.run()?)?;
    // Somebody else's process, too, and its functions.
    let workload = Workload::start("pipe")?;
    let mut running = nobodys(&["-p", &workload.pids(), "-o", "x.json"])?.start_recording()?;
    let helpers = descendants(running.pid())?;
    ensure!(helpers.len() > 1, "{helpers:?}");
    for (pid, name) in helpers {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let sets = sets_of(&status);
        // Who reads has the right to look at others, and no more.
        let may = if name == "offwake-reader" { "0000000000080000" } else { NONE };
        ensure!(sets[0] == Some(NONE) || sets[0] == Some(may), "{name}: {sets:?}");
        ensure!(sets[1..3].iter().all(|set| *set == Some(may)), "{name}: {sets:?}");
    }
    running.signal(libc::SIGINT)?;
    let outcome = running.outcome()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    ensure!(report.waits.iter().any(|waits| waits.has_frame("main")), "{:?}", report.waits);
    Ok(())
}

/// The unit of SECURITY.md.
fn unit() -> Result<String> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../SECURITY.md");
    let document = fs::read_to_string(document)?;
    let (_, rest) = document.split_once("    [Unit]\n").context("no unit in SECURITY.md")?;
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let lines: Vec<&str> = lines.map(|line| line.trim_start()).collect();
    Ok(format!("[Unit]\n{}\n", lines.join("\n")))
}

/// What a unit says of one setting.
fn setting<'u>(unit: &'u str, name: &str) -> Result<&'u str> {
    let value = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.with_context(|| format!("the unit has no {name}"))
}

#[test]
fn the_unit_of_the_documents_is_one_and_what_it_gives_is_enough() -> Result<()> {
    let unit = unit()?;
    let directory = paths::scratch_directory()?;
    let file = directory.path().join("offwake.service");
    // The program need not be installed here.
    let installed = setting(&unit, "ExecStart")?.split(' ').next().context("no program")?;
    let binary = paths::offwake_binary()?.display().to_string();
    fs::write(&file, unit.replace(installed, &binary))?;
    match Command::new("systemd-analyze").arg("verify").arg(&file).output() {
        Ok(verified) => {
            let said = String::from_utf8_lossy(&verified.stderr).into_owned();
            let of_it: Vec<&str> =
                said.lines().filter(|line| line.contains("offwake.service")).collect();
            ensure!(of_it.is_empty(), "{of_it:?}");
        }
        // Not every machine has systemd.
        Err(error) => eprintln!("systemd-analyze: {error}"),
    }
    // What systemd would do: a user of its own, these capabilities and no more, no new ones.
    let names = |setting_name: &str| -> Result<String> {
        let names = setting(&unit, setting_name)?.split(' ');
        Ok(names.fold("-all".to_owned(), |all, name| {
            format!("{all},+{}", name.trim_start_matches("CAP_").to_lowercase())
        }))
    };
    let (bounding, ambient) = (names("CapabilityBoundingSet")?, names("AmbientCapabilities")?);
    ensure!(setting(&unit, "NoNewPrivileges")? == "yes");
    let offwake = Offwake::profile()?.binary(Path::new("/usr/bin/setpriv"));
    chown(offwake.directory(), Some(NOBODY), Some(NOBODY))?;
    let outcome = offwake
        .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")])
        .args(["--clear-groups", "--no-new-privs"])
        .args([format!("--bounding-set={bounding}"), format!("--inh-caps={ambient}")])
        .arg(format!("--ambient-caps={ambient}"))
        .arg(binary)
        .args(["profile", "-o", "x.json"])
        .args(COMMAND)
        .run()?;
    is_nobodys(&outcome)
}

/// A unit that names no user: root, with a bounding set.
#[test]
fn of_a_root_that_is_bounded_it_and_its_command_have_no_more_than_the_bounds() -> Result<()> {
    let set = "-all,+bpf,+perfmon,+sys_ptrace";
    let offwake = Offwake::profile()?.binary(Path::new("/usr/bin/setpriv"));
    let outcome = offwake
        .arg(format!("--bounding-set={set}"))
        .arg(format!("--inh-caps={set}"))
        .arg(paths::offwake_binary()?)
        .args(["profile", "-o", "x.json"])
        .args(COMMAND)
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let sets = sets_of(&outcome.stdout);
    ensure!(sets == [Some(NONE), Some(THREE), Some(THREE), Some(NONE)], "{sets:?}: {outcome}");
    Ok(())
}

/// Somebody's `docker run --cap-add`, by the program that Docker starts containers with.
#[test]
fn in_a_container_three_capabilities_are_enough_and_a_command_has_no_more() -> Result<()> {
    let run = |user: User, capabilities: &[&str], arguments: &[&str]| -> Result<Outcome> {
        let offwake = Offwake::profile()?.binary(Path::new("runc"));
        let volume = offwake.directory();
        fs::set_permissions(volume, fs::Permissions::from_mode(0o777))?;
        let copy = volume.join("offwake");
        fs::copy(paths::offwake_binary()?, &copy)?;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
        let words = [&["/volume/offwake", "profile", "-o", "x.json"], arguments].concat();
        let bundle = Bundle::make(user, capabilities, volume, &words)?;
        offwake.args(bundle.arguments()).run()
    };
    let three = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"];
    // Root in there stays that, with what the bounds allow; who is not has nothing left to give away.
    for (user, sets) in [(User::Root, [NONE, THREE, THREE, NONE]), (User::Other(NOBODY), [NONE; 4])]
    {
        let outcome = run(user, &three, &COMMAND)?;
        ensure!(outcome.status.success(), "{user:?}: {outcome}");
        let given = sets_of(&outcome.stdout);
        ensure!(given == sets.map(Some), "{user:?}: {given:?}: {outcome}");
        let report = outcome.report("x.json")?;
        ensure!(report.threads.iter().any(|thread| thread.comm == "sh"), "{:?}", report.threads);
        ensure!(outcome.path("made").exists());
    }
    // The machine's other processes, and their functions.
    let workload = Workload::start("pipe")?;
    let outcome = run(User::Root, &three, &["-d", "500ms", "-p", &workload.pids()])?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    ensure!(report.waits.iter().any(|waits| waits.has_frame("main")), "{:?}", report.waits);
    // Without one of them it says which, in one line, and runs nothing.
    for missing in three {
        let others: Vec<&str> = three.into_iter().filter(|name| *name != missing).collect();
        let outcome = run(User::Root, &others, &COMMAND)?;
        outcome.check_failure(1, &[missing])?;
        ensure!(!outcome.path("made").exists(), "the command ran: {outcome}");
    }
    Ok(())
}
