//! Processes that wait for each other to the end: services that ask each other, and parents of
//! children that hang.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    machine_lock::MachineLock,
    offwake::{Offwake, Outcome},
    paths::scratch_directory,
    process::Process,
    report::Finding,
    wait_until::wait_until,
};

const PYTHON: &str = "/usr/bin/python3";

fn profile(target: u32) -> Result<(Outcome, Vec<Finding>)> {
    let outcome =
        Offwake::profile()?.args(["-d", "1", "-p", &target.to_string(), "-o", "x.json"]).run()?;
    ensure!(outcome.status.success(), "{outcome}");
    println!("{}", outcome.terminal());
    let findings = outcome.report("x.json")?.findings;
    Ok((outcome, findings))
}

fn wait_for_call(pid: u32, call: libc::c_long) -> Result<()> {
    let path = format!("/proc/{pid}/syscall");
    let wanted = format!("{call} ");
    wait_until("a process to wait", || {
        Ok(fs::read_to_string(&path)?.starts_with(&wanted).then_some(()))
    })
}

/// A script that says what it has to say in its first line.
fn start_script(path: &Path, arguments: &[&str]) -> Result<(Process, String)> {
    let mut command = Command::new(PYTHON);
    command.arg(path).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = Process(command.spawn().context("cannot start python3")?);
    let mut line = String::new();
    let stdout = script.0.stdout.take().context("it has no standard output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    Ok((script, line.trim().to_owned()))
}

/// A service with one thread, which asks another one before it answers, or sleeps.
const SERVICE: &str = r#"
import http.server, sys, time, urllib.request

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = globals()[sys.argv[1]]()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

def ask_the_other():
    return urllib.request.urlopen("http://127.0.0.1:%s/" % other).read()

def compute_prices():
    time.sleep(600)

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
other = sys.stdin.readline().strip()
server.serve_forever()
"#;

/// Sends a request, and waits for the answer until it is ended.
fn ask(port: &str) -> Result<Process> {
    let code =
        format!("import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/').read()");
    Process::start(PYTHON, &["-c", &code])
}

#[test]
fn two_services_that_ask_each_other_are_a_deadlock() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let folder = scratch_directory()?;
    let script = folder.path().join("service.py");
    fs::write(&script, SERVICE)?;
    for does in ["ask_the_other", "compute_prices"] {
        let (mut left, left_port) = start_script(&script, &["ask_the_other"])?;
        let (mut right, right_port) = start_script(&script, &[does])?;
        left.write(format!("{right_port}\n").as_bytes())?;
        right.write(format!("{left_port}\n").as_bytes())?;
        let client = ask(&left_port)?;
        wait_for_call(left.pid(), libc::SYS_recvfrom)?;
        let last = match does {
            "ask_the_other" => libc::SYS_recvfrom,
            _ => libc::SYS_clock_nanosleep,
        };
        wait_for_call(right.pid(), last)?;
        wait_for_call(client.pid(), libc::SYS_recvfrom)?;
        let pids = [left.pid(), right.pid()];
        for target in [pids[0], pids[1], client.pid()] {
            let (_outcome, findings) = profile(target)?;
            let found = findings.first().with_context(|| format!("{does}: {target}"));
            if does == "compute_prices" {
                ensure!(findings.iter().all(|it| it.kind != "deadlock"), "{findings:#?}");
                if target != pids[1] {
                    let found = found?;
                    let last = found.chain.last().and_then(|hop| hop.tid);
                    ensure!(last == Some(pids[1]), "{target}: {found:#?}");
                    ensure!(found.cause.text.contains("compute_prices"), "{found:#?}");
                }
                continue;
            }
            let found = found?;
            ensure!(found.kind == "deadlock", "{target}: {findings:#?}");
            let members: BTreeSet<_> = found.chain.iter().filter_map(|hop| hop.tid).collect();
            let expected: BTreeSet<_> = pids.into_iter().chain([target]).collect();
            ensure!(members == expected, "{expected:?}: {found:#?}");
            let of_services = found.chain.iter().filter(|hop| hop.tid != Some(client.pid()));
            for hop in of_services {
                let function = hop.function.as_deref().unwrap_or_default();
                ensure!(function.starts_with("ask_the_other"), "{found:#?}");
                ensure!(hop.what.contains("for an answer of python3"), "{found:#?}");
            }
        }
    }
    Ok(())
}

/// A parent of two children, of which it waits for one, or for any. Another thread of it works
/// meanwhile.
const PARENT: &str = r#"
import os, subprocess, sys, threading, time

def work():
    while True:
        sum(range(20_000))
        time.sleep(0.002)

def await_by_pid(child):
    child.wait()

def await_by_descriptor(child):
    os.waitid(os.P_PIDFD, os.pidfd_open(child.pid), os.WEXITED)

def await_any(child):
    os.wait()

children = [subprocess.Popen(command, shell=True) for command in sys.argv[2:]]
print(*[child.pid for child in children], flush=True)
threading.Thread(target=work, daemon=True).start()
globals()[sys.argv[1]](children[0])
"#;

struct Family {
    parent: Process,
    children: Vec<u32>,
}

impl Family {
    fn start(folder: &Path, parent_does: &str, children: &[String]) -> Result<Self> {
        let script = folder.join("parent.py");
        fs::write(&script, PARENT)?;
        let arguments: Vec<&str> =
            [parent_does].into_iter().chain(children.iter().map(String::as_str)).collect();
        let (parent, pids) = start_script(&script, &arguments)?;
        let children = pids.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { parent, children })
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for child in &self.children {
            // SAFETY: plain integers. Their parent has not reaped them: none has ended by itself.
            unsafe { libc::kill(child.cast_signed(), libc::SIGKILL) };
        }
    }
}

fn hold(lock: &Path) -> Result<Process> {
    let holder =
        Process::start("flock", &["--no-fork", lock.to_str().context("a path")?, "sleep", "600"])?;
    let comm = format!("/proc/{}/comm", holder.pid());
    wait_until("the lock to be taken", || {
        Ok((fs::read_to_string(&comm)? == "sleep\n").then_some(()))
    })?;
    Ok(holder)
}

#[test]
fn a_parent_waits_for_what_the_child_waits_for_that_it_names() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let folder = scratch_directory()?;
    let locks: [PathBuf; 2] = ["left", "right"].map(|name| folder.path().join(name));
    let holders = [hold(&locks[0])?, hold(&locks[1])?];
    let wants = |n: usize| format!("exec flock {} true", locks[n].display());
    for parent_does in ["await_by_pid", "await_by_descriptor"] {
        for (named, other) in [(0, 1), (1, 0)] {
            let family = Family::start(folder.path(), parent_does, &[wants(named), wants(other)])?;
            for &child in &family.children {
                wait_for_call(child, libc::SYS_flock)?;
            }
            let (_outcome, findings) = profile(family.parent.pid())?;
            let is_parents = |it: &&Finding| {
                it.chain[0].tid == Some(family.parent.pid()) && it.kind == "still_waiting"
            };
            let found = findings.iter().find(is_parents);
            let found = found.with_context(|| format!("{parent_does}: {findings:#?}"))?;
            let tids: Vec<_> = found.chain.iter().map(|hop| hop.tid).collect();
            let chain = [family.parent.pid(), family.children[0], holders[named].pid()];
            ensure!(tids == chain.map(Some), "{parent_does}: {chain:?}: {found:#?}");
        }
    }
    Ok(())
}

/// A supervisor waits all its life for children that serve.
#[test]
fn a_supervisor_of_a_child_that_serves_is_not_stuck() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let folder = scratch_directory()?;
    let serves = format!(
        "exec {PYTHON} -c \"import socket; s = socket.create_server(('127.0.0.1', 0)); s.accept()\""
    );
    for (parent_does, count) in [("await_by_pid", 1), ("await_any", 1), ("await_any", 2)] {
        let family = Family::start(folder.path(), parent_does, &vec![serves.clone(); count])?;
        for &child in &family.children {
            wait_for_call(child, libc::SYS_accept4)?;
        }
        let (_outcome, findings) = profile(family.parent.pid())?;
        let is_parents = |it: &&Finding| it.chain[0].tid == Some(family.parent.pid());
        let found = findings.iter().filter(is_parents).find(|it| it.kind == "still_waiting");
        ensure!(found.is_none(), "{parent_does}, {count}: {found:#?}");
    }
    Ok(())
}
