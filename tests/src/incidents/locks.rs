//! Locks and pools, and who keeps them.

use std::{
    collections::BTreeMap, fs, io::Write as _, os::unix::fs::MetadataExt as _, path::PathBuf,
    process::Command, time::Duration,
};

use anyhow::{Context, Result, ensure};
use regex::Regex;

use super::{
    parties::Party,
    scene::{Scene, source_path},
    services::{first_child, wait_for_operations},
    trouble::{ClientLog, Trouble},
};
use crate::wait_until::wait_until;

/// A monitor of Java's.
pub fn start_java(scene: &Scene) -> Result<Trouble> {
    let source = source_path("java-lock/Orders.java");
    scene.execute(Command::new("javac").arg("-d").arg(scene.path("")).arg(source))?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(20) };
    let exports = ClientLog { path: scene.path("exports"), least: Duration::from_millis(300) };
    let mut java = Command::new("java");
    java.arg("-cp").arg(scene.path("")).arg("Orders").args([&log.path, &exports.path]);
    let java = scene.start_and_wait(&mut java)?;
    wait_for_operations(&log, 8)?;
    let threads = thread_names(java)?;
    let ours = threads.iter().filter(|(_, name)| name.contains("order") || name.contains("ledger"));
    let truth = format!(
        "Threads order-0 to order-3 of the target, java {java}, wait in bookOrder for the monitor \
         LEDGER, which thread ledger-export holds while it sleeps 300 ms in exportLedger: {:?}.",
        ours.collect::<Vec<_>>()
    );
    Ok(Trouble::for_process(java, truth)
        .cause(&["ledger-export", r"(?i)\bsleep|exportLedger"])
        .context(&["waits for .*lock"])
        .culprits([Party::Named(Regex::new("^ledger-export")?)])
        .log(log)
        .culprit_log(exports))
}

/// Goroutines that share threads.
pub fn start_goroutines(scene: &Scene) -> Result<Trouble> {
    start_go(scene, "goroutines", "writes and syncs a file")
}

/// Goroutines with threads of their own.
pub fn start_go_threads(scene: &Scene) -> Result<Trouble> {
    start_go(scene, "threads", "writes and syncs a file, and sleeps in between")
}

fn start_go(scene: &Scene, mode: &str, work: &str) -> Result<Trouble> {
    let program = scene.path("cache-service");
    let mut go = Command::new("go");
    // A cache of its own, as the user may have no home; nothing is fetched.
    go.env("GOCACHE", scene.path("cache")).env("GOPROXY", "off").env("GOFLAGS", "-mod=mod");
    go.args(["build", "-o"]).arg(&program).arg(source_path("go-mutex/main.go"));
    scene.execute(&mut go)?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(20) };
    let saves = ClientLog { path: scene.path("saves"), least: Duration::from_millis(240) };
    let mut service = Command::new(&program);
    service.arg(&log.path).arg(scene.path_on_disk("saved")).arg(mode).arg(&saves.path);
    let service = scene.start_and_wait(&mut service)?;
    wait_for_operations(&log, 12)?;
    let truth = format!(
        "Six goroutines ({mode}) of the target, cache-service {service}, wait in main.updateCache for \
         a sync.Mutex, which the one in main.saveCache holds while it {work}."
    );
    Ok(Trouble::for_process(service, truth)
        .cause(&["cache-service", "saveCache"])
        // Any goroutine may be on any thread.
        .culprits([Party::Process(service)])
        .log(log)
        .culprit_log(saves))
}

/// A pool of one.
pub fn start_starved_pool(scene: &Scene) -> Result<Trouble> {
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(50) };
    let exports = ClientLog { path: scene.path("exports"), least: Duration::from_millis(500) };
    let arguments = [&scene.path("database"), &log.path, &exports.path];
    let shop = scene.start_python("starved-pool/shop.py", arguments)?;
    wait_for_operations(&log, 6)?;
    let truth = format!(
        "Five threads of the target, python3 {shop} (shop.py), wait in Pool.acquire for the one \
         connection, which the main thread keeps in export_orders while it sleeps in \
         upload_to_partner."
    );
    let others = thread_names(shop)?.into_keys().filter(|tid| *tid != shop);
    Ok(Trouble::for_process(shop, truth)
        .cause(&["sleeps in upload_to_partner", "shop"])
        .context(&["acquire"])
        .culprits([Party::Thread(shop)])
        .innocents(others.map(Party::Thread))
        .log(log)
        .culprit_log(exports))
}

/// Two mutexes in the wrong order, long ago.
pub fn start_deadlock(scene: &Scene) -> Result<Trouble> {
    let program = scene.compile_c("deadlock/bank.c")?;
    let bank = scene.start_and_wait(&mut Command::new(program))?;
    wait_for_deadlock(bank)?;
    deadlock(bank, "before the recording")
}

/// The same, in front of everybody's eyes.
pub fn start_deadlock_later(scene: &Scene) -> Result<Trouble> {
    let program = scene.compile_c("deadlock/bank.c")?;
    let (bank, mut input) = scene.start_with_input(Command::new(program).arg("wait"))?;
    // It is the lab that has it wait, until offwake looks.
    let lab = Party::Process(std::process::id());
    Ok(deadlock(bank, "within the recording")?
        .involved([lab])
        .once_recorded(move || Ok(input.write_all(b"\n")?)))
}

fn deadlock(bank: u32, when: &str) -> Result<Trouble> {
    let regex = Regex::new("^to-(savings|checking)")?;
    let truth = format!(
        "Two threads of the target, bank {bank}, are in a deadlock in transfer that began {when}: \
         to-savings has the mutex of checking and wants that of savings, to-checking the other way \
         round. The main thread waits for both."
    );
    Ok(Trouble::for_process(bank, truth)
        .cause(&["DEADLOCK"])
        .context(&["to-savings", "to-checking", "transfer"])
        .culprits([Party::Named(regex)])
        .proof(move || {
            let threads = wait_for_deadlock(bank)?;
            Ok(format!("all of them sleep on a futex: {threads:?}"))
        }))
}

fn wait_for_deadlock(bank: u32) -> Result<BTreeMap<u32, String>> {
    wait_until("the deadlock", || {
        let threads = thread_names(bank)?;
        let sleeps = |tid: &u32| {
            let call = fs::read_to_string(format!("/proc/{bank}/task/{tid}/syscall"));
            call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_futex)))
        };
        Ok((threads.len() == 3 && threads.keys().all(sleeps)).then_some(threads))
    })
}

/// `flock` on a file.
pub fn start_file_lock(scene: &Scene) -> Result<Trouble> {
    let lock = scene.path("stock.lock");
    let backup = scene.start_python("file-lock/backup.py", [&lock])?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(100) };
    let shop = scene.start_python("file-lock/shop.py", [&lock, &log.path])?;
    wait_for_operations(&log, 2)?;
    let truth = format!(
        "python3 {backup} (backup.py) holds the lock on {} while it sleeps 600 ms in upload_archive. \
         The target, python3 {shop} (shop.py), waits for it in take_from_stock.",
        lock.display()
    );
    Ok(Trouble::for_process(shop, truth)
        .cause(&[r"backup\.py", "sleeps in upload_archive"])
        .context(&[r"shop\.py", "take_from_stock", "lock"])
        .culprits([Party::Process(backup)])
        .log(log)
        .proof(move || find_in_proc_locks(&lock, backup, shop)))
}

/// `flock` of a shell script: the process that took the lock is gone.
pub fn start_script_lock(scene: &Scene) -> Result<Trouble> {
    let lock = scene.path("jobs.lock");
    let script = |name: &str| {
        let mut bash = Command::new("bash");
        bash.arg(source_path(&format!("script-lock/{name}"))).arg(&lock);
        bash
    };
    let backup = scene.start_and_wait(&mut script("backup.sh"))?;
    let report = scene.start_and_wait(&mut script("report.sh"))?;
    let taker = wait_until("the lock to be wanted", || find_taker(&lock))?;
    let truth = format!(
        "The child of the target, bash {report} (report.sh), waits in flock for {}. flock {taker} took \
         that lock, and has ended. bash {backup} (backup.sh) keeps the file open, and waits for its \
         child, python3 (upload.py), which sleeps in upload_dump.",
        lock.display()
    );
    Ok(Trouble::for_process(report, truth)
        .cause(&[r"upload\.py", "upload_dump"])
        .context(&["lock"])
        .culprits([Party::Process(first_child(backup)?)])
        .proof(move || {
            ensure!(!PathBuf::from(format!("/proc/{taker}")).exists(), "flock {taker} lives");
            let still = find_taker(&lock)?.context("nobody waits for the lock any more")?;
            ensure!(still == taker, "{still} has taken the lock");
            Ok(format!("the kernel says that {taker} has the lock, which is no process"))
        }))
}

/// Finds the process that took a lock for which another one waits, by the kernel's list.
fn find_taker(lock: &PathBuf) -> Result<Option<u32>> {
    let inode = fs::metadata(lock)?.ino();
    let locks = fs::read_to_string("/proc/locks")?;
    let (waiters, takers): (Vec<_>, Vec<_>) = (locks.lines())
        .filter(|line| line.contains(&format!(":{inode} ")))
        .partition(|line| line.contains("->"));
    let taker = takers.first().and_then(|line| line.split_whitespace().nth(4));
    Ok(taker.filter(|_| !waiters.is_empty()).and_then(|pid| pid.parse().ok()))
}

/// The kernel's list has the one that holds the lock, and the one that waits.
fn find_in_proc_locks(lock: &PathBuf, holder: u32, waiter: u32) -> Result<String> {
    let inode = fs::metadata(lock)?.ino();
    wait_until("the lock to be wanted", || {
        let locks = fs::read_to_string("/proc/locks")?;
        let ours: Vec<_> =
            locks.lines().filter(|line| line.contains(&format!(":{inode} "))).collect();
        let has = |pid: u32, waits: bool| {
            ours.iter()
                .any(|line| line.contains("->") == waits && line.contains(&format!(" {pid} ")))
        };
        Ok((has(holder, false) && has(waiter, true)).then(|| ours.join("\n")))
    })
}

/// The threads of a process.
fn thread_names(pid: u32) -> Result<BTreeMap<u32, String>> {
    let mut names = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        let tid = path.file_name().context("no name")?.to_string_lossy().parse()?;
        names.insert(tid, fs::read_to_string(path.join("comm"))?.trim().to_owned());
    }
    ensure!(!names.is_empty(), "process {pid} has no threads");
    Ok(names)
}
