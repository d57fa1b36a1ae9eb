//! Trouble with the CPU: too little of it, or somebody else's.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use regex::Regex;

use super::{
    parties::Party,
    scene::{Scene, source_path},
    services::{start_clients, wait_for_operations},
    trouble::{ClientLog, Trouble},
};
use crate::{cgroup::Cgroup, wait_until::wait_until};

/// Python's lock of the interpreter.
pub fn start_gil(scene: &Scene) -> Result<Trouble> {
    let front = scene.path("front");
    let service = scene.start_python("gil/service.py", [&front])?;
    let (clients, log) = start_clients(scene, front.as_os_str(), 4, Duration::from_millis(4))?;
    let report = thread_ids(service)?.into_iter().find(|tid| *tid != service);
    let report = report.context("it has one thread only")?;
    let truth = format!(
        "Thread {report} of the target, python3 {service} (service.py), computes in build_report and \
         keeps the interpreter's lock, for which the main thread waits whenever it serves a request. \
         The clients are four threads of python3 {clients}."
    );
    let cpu_time = move || cpu_ticks(service, report);
    let before = cpu_time()?;
    Ok(Trouble::for_process(service, truth)
        .cause(&["build_report", r"service\.py", &report.to_string()])
        .culprits([Party::Thread(report)])
        .involved([Party::Process(service)])
        .log(log)
        .proof(move || {
            let used = cpu_time()? - before;
            ensure!(used > 10, "the thread that computes used {used} ticks");
            Ok(format!("the thread that computes has used {used} ticks of CPU time since"))
        }))
}

fn thread_ids(pid: u32) -> Result<Vec<u32>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
    tasks.map(|task| Ok(task?.file_name().to_string_lossy().parse()?)).collect()
}

/// The CPU time of a thread in user mode, in ticks of 10 ms: `proc_pid_stat(5)`.
fn cpu_ticks(pid: u32, tid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"))?;
    let rest = stat.rsplit_once(')').context("no stat")?.1;
    Ok(rest.split_whitespace().nth(11).context("no utime")?.parse()?)
}

/// A quota of a fifth of a CPU.
pub fn start_quota(scene: &Scene) -> Result<Trouble> {
    let group = Cgroup::with_cpu("thumbs", 0.2)?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(20) };
    let worker = scene.start_python("cpu-quota/thumbnails.py", [&log.path])?;
    group.adopt(worker)?;
    wait_for_operations(&log, 4)?;
    let name = group.path().file_name().context("no name")?.to_string_lossy().into_owned();
    let truth = format!(
        "The target, python3 {worker} (thumbnails.py), computes in make_thumbnail and is throttled: \
         its cgroup /{name} may use 0.2 of a CPU."
    );
    let statistics = group.path().join("cpu.stat");
    let throttled = move || -> Result<u64> {
        let text = fs::read_to_string(&statistics)?;
        let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        Ok(line.with_context(|| format!("no nr_throttled in {text}"))?.parse()?)
    };
    let before = throttled()?;
    scene.undo_at_end("the cgroup", move || {
        drop(group);
        Ok(())
    });
    Ok(Trouble::for_process(worker, truth)
        .cause(&["(?i)quota", &regex::escape(&name)])
        .context(&[r"thumbnails\.py is throttled"])
        .culprits([Party::Process(worker)])
        .log(log)
        .proof(move || {
            let times = wait_until("it to be throttled again and again", || {
                Ok(Some(throttled()? - before).filter(|times| *times >= 10))
            })?;
            Ok(format!("nr_throttled has grown by {times}"))
        }))
}

/// Eight busy programs on the CPUs that a server needs.
pub fn start_starvation(scene: &Scene) -> Result<Trouble> {
    let front = scene.path("front");
    let crunch = scene.compile_c("cpu-starvation/crunch.c")?;
    let server = scene.start_python("cpu-starvation/server.py", [&front])?;
    let (_, log) = start_clients(scene, front.as_os_str(), 1, Duration::from_millis(20))?;
    let cpus = std::thread::available_parallelism()?.get();
    let hungry = (0..4 * cpus)
        .map(|_| scene.start_and_wait(&mut Command::new(&crunch)))
        .collect::<Result<Vec<_>>>()?;
    let truth = format!(
        "The target, python3 {server} (server.py), is ready to run in render_page and gets no CPU, \
         for {} processes crunch {hungry:?} (crunch_numbers) want {cpus}.",
        hungry.len()
    );
    let waited = move || -> Result<u64> {
        // Time on a CPU, time in its queue, and turns: Documentation/scheduler/sched-stats.rst.
        let text = fs::read_to_string(format!("/proc/{server}/schedstat"))?;
        Ok(text.split_whitespace().nth(1).context("no schedstat")?.parse()?)
    };
    let before = waited()?;
    Ok(Trouble::for_process(server, truth)
        .cause(&[r"\bcrunch\b"])
        .context(&[r"server\.py .*(?i:starv|waits? for a CPU)"])
        .culprits(hungry.into_iter().map(Party::Process))
        .log(log)
        .proof(move || {
            let ns = wait_until("it to wait for a CPU", || {
                Ok(Some(waited()? - before).filter(|ns| *ns >= 500_000_000))
            })?;
            Ok(format!("the server has waited {} ms for a CPU since", ns / 1_000_000))
        }))
}

/// A build that waits for one file.
pub fn start_compiler(scene: &Scene) -> Result<Trouble> {
    for (from, to) in [
        ("Makefile", "Makefile"),
        ("heavy.cc", "heavy.cc"),
        ("small.c", "a.c"),
        ("small.c", "b.c"),
        ("small.c", "c.c"),
        ("small.c", "d.c"),
    ] {
        fs::copy(source_path(&format!("slow-compiler/{from}")), scene.path(to))?;
    }
    let directory = scene.path("").to_string_lossy().into_owned();
    let truth = "The target, make, waits for c++, and that for cc1plus, which works on heavy.cc."
        .to_owned();
    let heavy = scene.path("heavy.cc");
    // All that make starts are its own, and the four small files take their time as well.
    let names = Regex::new(r"^(make|sh|c\+\+|g\+\+|cc|gcc|cc1|cc1plus|as|collect2|ld)$")?;
    let mut trouble = Trouble::for_process(0, truth)
        .cause(&["cc1plus", r"heavy\.cc"])
        .culprits([Party::Named(names)])
        .proof(move || {
            wait_until("the compiler to work on heavy.cc", || find_process("cc1plus", "heavy.cc"))
                .map(|pid| format!("cc1plus {pid} works on {}", heavy.display()))
        });
    trouble.target.clear();
    trouble.command = ["make", "-s", "-C", &directory].map(str::to_owned).to_vec();
    Ok(trouble)
}

/// The process of this name one of whose arguments ends like this.
fn find_process(name: &str, argument: &str) -> Result<Option<u32>> {
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let is_about_it = || read("cmdline").split('\0').any(|word| word.ends_with(argument));
        if read("comm").trim() == name && is_about_it() {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}
