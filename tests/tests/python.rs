//! The frames of CPython in the stacks of its threads: functions, files and lines, as the program
//! itself knows them.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    case::{WINDOW, duration_argument},
    machine_lock::MachineLock,
    offwake::Offwake,
    paths,
    process::Process,
    report::Waits,
    wait_until::wait_until,
};

/// Each thread says its name, its number, and where it is about to wait: `name tid function:line`.
const PROGRAM: &str = r#"
import queue, sys, threading, time

lock = threading.Lock()
said = set()

def say(name, function, line):
    with lock:
        if name in said:
            return
        said.add(name)
        print(name, threading.get_native_id(), f"{function} (waits.py:{line})", flush=True)

def here():
    return sys._getframe(1).f_lineno

# Two callers of one wait.
def nap(seconds):
    time.sleep(seconds)

def short(name):
    say(name, "short", here() + 2)
    while True:
        nap(0.002)

def long(name):
    say(name, "long", here() + 2)
    while True:
        nap(0.004)

# Waits from before the window to its end.
def for_ever(name):
    held = threading.Lock()
    held.acquire()
    say(name, "for_ever", here() + 1)
    held.acquire()

# C calls Python calls C.
def in_callback(name):
    def key(number):
        time.sleep(0.003)
        return number
    say(name, "in_callback", here() + 2)
    while True:
        sorted([2, 1], key=key)

def deep(name, depth=20):
    if depth == 20:
        say(name, "deep", here() + 2)
    if depth == 0:
        work.get()
        return
    deep(name, depth - 1)

def get_for_ever(name):
    while True:
        deep(name)

work = queue.Queue()
for function in [short, long, for_ever, in_callback, get_for_ever]:
    threading.Thread(target=function, args=[function.__name__], daemon=True).start()
while True:
    work.put(1)
    time.sleep(0.005)
"#;

/// A program whose threads wait in Python.
struct Program {
    process: Process,
    /// Where each of its threads waits, by what it is called.
    threads: BTreeMap<String, (u32, String)>,
    _machine_lock: MachineLock,
    _directory: tempfile::TempDir,
}

impl Program {
    fn start() -> Result<Self> {
        let turn = MachineLock::acquire()?;
        let directory = paths::scratch_directory()?;
        let script = directory.path().join("waits.py");
        std::fs::write(&script, PROGRAM)?;
        let child = Command::new("/usr/bin/python3").arg(&script).stdout(Stdio::piped()).spawn();
        let mut process = Process(child.context("cannot start python3")?);
        let stdout = process.0.stdout.take().context("it has no standard output")?;
        let threads = BTreeMap::new();
        let mut program = Self { process, threads, _machine_lock: turn, _directory: directory };
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            let mut words = line.splitn(3, ' ');
            let (Some(name), Some(tid), Some(place)) = (words.next(), words.next(), words.next())
            else {
                anyhow::bail!("python said {line:?}");
            };
            let known = (tid.parse()?, place.to_owned());
            program.threads.entry(name.to_owned()).or_insert(known);
            if program.threads.len() == 5 {
                return Ok(program);
            }
        }
        anyhow::bail!("python said no more than {:?}", program.threads)
    }

    fn thread(&self, name: &str) -> Result<&(u32, String)> {
        self.threads.get(name).with_context(|| format!("no thread {name}"))
    }
}

/// The share of a thread's blocked time whose stacks have this frame.
fn share_with(waits: &[Waits], tid: u32, frame: &str) -> f64 {
    let own = || waits.iter().filter(|waits| waits.tid == tid);
    let all: u64 = own().map(|waits| waits.blocked_ns).sum();
    let with = own().filter(|waits| waits.stack.iter().any(|name| name == frame));
    with.map(|waits| waits.blocked_ns).sum::<u64>() as f64 / all.max(1) as f64
}

#[test]
fn pythons_own_frames_are_in_the_stacks_of_its_threads() -> Result<()> {
    let program = Program::start()?;
    let outcome = Offwake::profile()?
        .args([
            "-d",
            &duration_argument(WINDOW),
            "-p",
            &program.process.pid().to_string(),
            "-o",
            "x.json",
        ])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    for name in ["short", "long", "for_ever", "in_callback", "get_for_ever"] {
        let (tid, place) = program.thread(name)?;
        let share = share_with(&report.waits, *tid, place);
        let stacks: Vec<_> = report.waits.iter().filter(|waits| waits.tid == *tid).collect();
        ensure!(share > 0.98, "{place} is in {share} of {name}'s time: {stacks:#?}");
    }
    // What is above one is not above the other.
    let (long, short_place) = (program.thread("long")?.0, &program.thread("short")?.1);
    ensure!(share_with(&report.waits, long, short_place) == 0.0, "long waits in short");
    Ok(())
}

#[test]
fn python_calls_c_calls_python_in_the_order_of_the_calls() -> Result<()> {
    let program = Program::start()?;
    let outcome = Offwake::profile()?
        .args([
            "-d",
            &duration_argument(WINDOW),
            "-p",
            &program.process.pid().to_string(),
            "-o",
            "x.json",
        ])
        .run()?;
    let report = outcome.report("x.json")?;
    let (tid, place) = program.thread("in_callback")?;
    let waits = report.waits.iter().filter(|waits| waits.tid == *tid && waits.cause == "timer");
    let longest = waits.max_by_key(|waits| waits.blocked_ns).context("it did not wait")?;
    let at = |what: &str| {
        let at = longest.stack.iter().position(|frame| frame.starts_with(what));
        at.with_context(|| format!("no {what} in {:#?}", longest.stack))
    };
    let (caller, callee) = (at(place)?, at("in_callback.<locals>.key (waits.py:")?);
    ensure!(at("Thread.run (threading.py:")? < caller && caller < callee, "{:#?}", longest.stack);
    let is_native = |frame: &String| !frame.contains(".py:");
    ensure!(longest.stack[caller..callee].iter().any(is_native), "no sorted(): {longest:#?}");
    ensure!(longest.stack[callee + 1..].iter().all(is_native), "{longest:#?}");
    Ok(())
}

/// Sleeps already when the recording begins, and does not wake: no thread of it is seen to do
/// anything.
const ASLEEP: &str = r#"
import sys

def read_order():
    sys.stdin.read()

print("ready", flush=True)
read_order()
"#;

#[test]
fn a_program_that_is_never_seen_awake_has_pythons_frames() -> Result<()> {
    let _turn = MachineLock::acquire()?;
    let directory = paths::scratch_directory()?;
    let script = directory.path().join("orders.py");
    std::fs::write(&script, ASLEEP)?;
    for _ in 0..3 {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process(command.spawn().context("cannot start python3")?);
        let stdout = process.0.stdout.take().context("it has no standard output")?;
        let ready = BufReader::new(stdout).lines().next().transpose()?;
        ensure!(ready.as_deref() == Some("ready"), "python said {ready:?}");
        let pid = process.pid();
        wait_until("python to sleep", || {
            let place = std::fs::read_to_string(format!("/proc/{pid}/wchan"))?;
            Ok(place.contains("pipe").then_some(()))
        })?;
        let outcome = Offwake::profile()?
            .args(["-d", "300ms", "-p", &pid.to_string(), "-o", "x.json"])
            .run()?;
        let report = outcome.report("x.json")?;
        let share = share_with(&report.waits, pid, "read_order (orders.py:5)");
        ensure!(share == 1.0, "{share} of {:#?}", report.waits);
    }
    Ok(())
}

/// Starts a thread for each job. It waits once and ends, and nobody has seen it before.
const SHORT_LIVED: &str = r#"
import threading, time

def fetch():
    time.sleep(0.03)

def serve():
    for _ in range(4):
        threading.Thread(target=fetch).start()

print("ready", flush=True)
while True:
    serve()
    time.sleep(0.04)
"#;

#[test]
fn threads_that_live_for_one_wait_have_pythons_frames() -> Result<()> {
    let _turn = MachineLock::acquire()?;
    let directory = paths::scratch_directory()?;
    let script = directory.path().join("jobs.py");
    std::fs::write(&script, SHORT_LIVED)?;
    let child = Command::new("/usr/bin/python3").arg(&script).stdout(Stdio::piped()).spawn();
    let mut process = Process(child.context("cannot start python3")?);
    let stdout = process.0.stdout.take().context("it has no standard output")?;
    let ready = BufReader::new(stdout).lines().next().transpose()?;
    ensure!(ready.as_deref() == Some("ready"), "python said {ready:?}");
    let pid = process.pid();
    let outcome = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-p", &pid.to_string(), "-o", "x.json"])
        .run()?;
    ensure!(outcome.status.success(), "{outcome}");
    let report = outcome.report("x.json")?;
    let sleeps = || report.waits.iter().filter(|waits| waits.tid != pid && waits.cause == "timer");
    let all: u64 = sleeps().map(|waits| waits.blocked_ns).sum();
    ensure!(all > 0, "no thread slept: {:#?}", report.waits);
    let with_frame = |waits: &&Waits| waits.stack.iter().any(|name| name == "fetch (jobs.py:5)");
    let named: u64 = sleeps().filter(with_frame).map(|waits| waits.blocked_ns).sum();
    let share = named as f64 / all as f64;
    ensure!(share > 0.95, "fetch is in {share} of {:#?}", sleeps().take(5).collect::<Vec<_>>());
    Ok(())
}

/// A thread computes in code that nobody can unwind, and another one waits for it.
const GENERATED_CODE: &str = r#"
import ctypes, mmap, queue, threading

# push rbp; mov ebp, 1; loop: dec rdi; jnz loop; pop rbp; ret
CODE = bytes.fromhex("55 bd01000000 48ffcf 75fb 5d c3")
memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(CODE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
count_down = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(address)
jobs, results = queue.SimpleQueue(), queue.SimpleQueue()

def compute_digest():
    count_down(100_000_000)

def work():
    while True:
        jobs.get()
        compute_digest()
        results.put(1)

threading.Thread(target=work).start()
print("ready", flush=True)
while True:
    jobs.put(1)
    results.get()
"#;

#[test]
fn python_that_calls_code_without_unwind_data_is_named() -> Result<()> {
    let _turn = MachineLock::acquire()?;
    let directory = paths::scratch_directory()?;
    let script = directory.path().join("digests.py");
    std::fs::write(&script, GENERATED_CODE)?;
    let mut command = Command::new("/usr/bin/python3");
    command.arg(&script).stdout(Stdio::piped());
    let mut process = Process(command.spawn().context("cannot start python3")?);
    let stdout = process.0.stdout.take().context("it has no standard output")?;
    let ready = BufReader::new(stdout).lines().next().transpose()?;
    ensure!(ready.as_deref() == Some("ready"), "python said {ready:?}");
    let outcome = Offwake::profile()?
        .args(["-d", "1s", "-p", &process.pid().to_string(), "-o", "x.json"])
        .run()?;
    let report = outcome.report("x.json")?;
    let blame: Vec<_> = (report.waits.iter())
        .filter(|waits| waits.tid == process.pid())
        .flat_map(|waits| waits.blame.iter().filter(|blame| blame.kind == "work"))
        .collect();
    let sum = |with: &str| -> u64 {
        let has_frame = |name: &String| name.starts_with(with);
        let blame = blame.iter().filter(|blame| blame.stack.iter().any(has_frame));
        blame.map(|blame| blame.ns).sum()
    };
    // Of what no sample was taken, or the kernel's part alone, there is no such frame.
    let (native, named) = (sum("[native frames missing]"), sum("compute_digest (digests.py:"));
    ensure!(native > 100_000_000 && named >= native, "{named} of {native} ns: {blame:#?}");
    Ok(())
}
