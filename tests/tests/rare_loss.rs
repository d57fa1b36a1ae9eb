//! Loss that does not come by itself: what the kernel gives is taken away, or what is kept of a thread is changed under
//! the programs. It is counted, and the ledgers close. `loss.rs` has what too little room does.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use aya::maps::{HashMap, Map, MapData, PerCpuArray};
use offwake_tests::{
    case::{WINDOW, duration_argument},
    cgroup::Cgroup,
    clock::{now_ns, spin},
    kernel_objects::{KernelObjects, parse_fdinfo},
    machine_lock::MachineLock,
    offwake::{Offwake, Running},
    paths,
    process::{Process, wait_for_state},
    report::{Report, Waits},
    task_locals::{TaskLocal, TaskLocals},
    wait_until::{deadline, wait_at_most, wait_until},
    workload::Workload,
    workloads::stage::{allowed_cpus, bind},
};
use profiler_ebpf::{
    loss::{LOSS_KINDS, Loss},
    record::phase,
};

const RECORDING: &str = "x.offwake";

fn recorder(target: &[&str]) -> Result<Running> {
    Offwake::record()?.args(target).args(["-o", RECORDING]).start_recording()
}

/// Has a reader wait, changes what is kept for it, wakes it, and returns the report and the reader.
fn record_changed_wait(change: impl FnOnce(&mut TaskLocal)) -> Result<(Report, u32)> {
    let mut reader = Process::start("cat", &[])?;
    let pid = reader.pid();
    let recorder = recorder(&["-p", &pid.to_string()])?;
    let locals = TaskLocals::open(recorder.pid())?;
    let mut local = wait_until("the reader to wait", || {
        let local = locals.read(pid)?;
        Ok((local.phase()? == phase::BLOCKED).then_some(local))
    })?;
    change(&mut local);
    locals.write(pid, &mut local)?;
    reader.write(b"x")?;
    recorder.wait_for_slices(RECORDING, 2)?;
    let (_, report) = recorder.interrupt()?.report_on(RECORDING)?;
    Ok((report, pid))
}

#[test]
fn a_time_that_runs_backwards_is_counted_and_no_wait_is_longer_than_the_window() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    const AHEAD: u64 = 3_600_000_000_000;
    let (report, pid) = record_changed_wait(|local| local.set_switch_out(now_ns() + AHEAD))?;
    ensure!(report.loss_count("time_backwards") > 0, "{:?}", report.loss);
    let ledger = report.thread(pid)?;
    ensure!(ledger.wall_ns == report.window.duration_ns, "{ledger:?}");
    Ok(())
}

#[test]
fn a_thread_that_left_unseen_has_a_gap_from_then_on() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let (report, pid) = record_changed_wait(|local| local.set_phase(phase::ON_CPU))?;
    ensure!(report.loss_count("switch_out_missed") > 0, "{:?}", report.loss);
    let ledger = report.thread(pid)?;
    ensure!(ledger.lost_ns() > 0 && report.loss.gaps > 0, "{ledger:?}, {:?}", report.loss);
    Ok(())
}

/// A thread that computes is said to be blocked; the sampling clock finds it on its CPU. The scheduler
/// has not seen it leave since, so that nobody knows when it came back.
#[test]
fn a_thread_that_came_back_unseen_is_found_on_its_cpu() -> Result<()> {
    let (report, pid) =
        record_unseen_return(&[], |local| local.set_switch_out(now_ns()), GoesOn::Computing)?;
    for blame in report.waits_of(pid, None).flat_map(|waits| &waits.blame) {
        // Who wrote what it read.
        let own = blame.tgid == Some(std::process::id());
        ensure!(blame.blamed_tid().is_none() || own, "nobody else kept it waiting: {blame:?}");
    }
    Ok(())
}

/// The same, but it is said to have left before the scheduler saw it come to its CPU.
#[test]
fn who_came_back_unseen_has_no_gap_if_the_scheduler_knows_when() -> Result<()> {
    let mut ledgers = Vec::new();
    // The thread may leave its CPU while what is kept for it is changed, which tears that.
    for _attempt in 0..ATTEMPTS {
        let (report, pid) = record_unseen_return(&[], |_| {}, GoesOn::Computing)?;
        let ledger = report.thread(pid)?.clone();
        if ledger.lost_ns() == 0 {
            return Ok(());
        }
        ledgers.push(ledger);
    }
    anyhow::bail!("time is lost each time: {ledgers:?}");
}

/// Nothing finds the thread on its CPU before it ends: the sampling clock does not run, the thread wakes
/// nobody, and no other thread takes its CPU.
#[test]
fn a_thread_that_came_back_unseen_and_ended_was_not_on_its_cpu_all_the_while() -> Result<()> {
    let mut ledgers = Vec::new();
    // The scheduler takes the CPU away even from a real-time thread where others starve
    // (`fair_server`, Linux 6.12), and it is found as it leaves.
    for _attempt in 0..ATTEMPTS {
        let change = |local: &mut TaskLocal| local.set_switch_out(now_ns());
        let (report, pid) = record_unseen_return(&["--sample", "0"], change, GoesOn::Ending)?;
        let ledger = report.thread(pid)?.clone();
        if u128::from(ledger.lost_ns()) >= UNSEEN.as_nanos() / 2 {
            return Ok(());
        }
        ledgers.push(ledger);
    }
    anyhow::bail!("it was on its CPU all the while: {ledgers:?}");
}

/// How often is tried what the machine may spoil.
const ATTEMPTS: usize = 5;

/// How long a thread computes that came back unseen before it ends.
const UNSEEN: Duration = Duration::from_millis(100);

/// What a thread does that came back unseen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GoesOn {
    Computing,
    Ending,
}

/// Records a thread that computes and is said to be blocked, with whatever else is changed of what is
/// kept for it. That its return was missed is noticed, whatever it does next.
fn record_unseen_return(
    arguments: &[&str],
    change: impl FnOnce(&mut TaskLocal),
    goes_on: GoesOn,
) -> Result<(Report, u32)> {
    let _machine_lock = MachineLock::acquire()?;
    let policy: &[&str] = match goes_on {
        GoesOn::Computing => &["--other", "0"],
        GoesOn::Ending => &["--fifo", "1"],
    };
    let program = ["sh", "-c", "read -r line; while :; do :; done"];
    let mut spinner = Process::start("chrt", &[policy, &program].concat())?;
    let pid = spinner.pid();
    let target = pid.to_string();
    let recorder = recorder(&[&["-p", target.as_str()], arguments].concat())?;
    // What it waited for before is not what is changed.
    spinner.write(b"go\n")?;
    let locals = TaskLocals::open(recorder.pid())?;
    let mut local = wait_until("the spinner to run", || {
        let local = locals.read(pid)?;
        Ok((local.phase()? == phase::ON_CPU).then_some(local))
    })?;
    local.set_phase(phase::BLOCKED);
    change(&mut local);
    locals.write(pid, &mut local)?;
    if goes_on == GoesOn::Ending {
        spin(UNSEEN);
        spinner.kill()?;
        wait_for_state(pid, 'Z')?;
    }
    recorder.wait_for_slices(RECORDING, 2)?;
    let (_, report) = recorder.interrupt()?.report_on(RECORDING)?;
    ensure!(report.loss_count("switch_in_missed") > 0, "{:?}", report.loss);
    Ok((report, pid))
}

/// The map that stands in for task storage has room for one of the two.
#[test]
fn threads_of_which_nothing_is_known_are_counted_as_they_come_and_as_they_are_woken() -> Result<()>
{
    let _machine_lock = MachineLock::acquire()?;
    let _pair = Workload::start("ping-pong")?;
    let recorder = recorder(&["--all", "--stand-in", "1"])?;
    recorder.wait_for_slices(RECORDING, 2)?;
    let (_, report) = recorder.interrupt()?.report_on(RECORDING)?;
    for name in ["switch_in_unmatched", "wake_unmatched", "stand_in_full"] {
        ensure!(report.loss_count(name) > 0, "no {name}: {:?}", report.loss);
    }
    Ok(())
}

/// Every stack that was sent is said to have been another one.
#[test]
fn two_stacks_of_one_id_are_told_apart_and_counted() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let pair = Workload::start("ping-pong")?;
    let recorder = recorder(&["-p", &pair.pids(), "--stacks", "exact"])?;
    recorder.wait_for_slices(RECORDING, 2)?;
    let sent = KernelObjects::held_by(recorder.pid())?.open_map("SENT_STACKS")?;
    let mut sent: HashMap<MapData, u64, u64> = HashMap::try_from(Map::LruHashMap(sent))?;
    let known: Vec<u64> = sent.keys().flatten().collect();
    for id in known {
        // It may have been forgotten meanwhile.
        if let Ok(check) = sent.get(&id, 0) {
            sent.insert(id, !check, 0)?;
        }
    }
    recorder.wait_for_slices(RECORDING, 2)?;
    let (_, report) = recorder.interrupt()?.report_on(RECORDING)?;
    ensure!(report.loss_count("stack_id_collision") > 0, "{:?}", report.loss);
    for (waiter, waker) in [("ping", "pong"), ("pong", "ping")] {
        let (waiter, waker) = (pair.role(waiter)?.tid, pair.role(waker)?.tid);
        let waits: Vec<_> = report.waits_of(waiter, Some("pipe")).collect();
        // Both ids lead to the same frames. A few waits may be the first of their kind and have
        // none, however many there are (5 of 22,072 once); of hundreds of thousands a few more.
        let count = |is_counted: &dyn Fn(&Waits) -> bool| -> u64 {
            waits.iter().filter(|waits| is_counted(waits)).map(|waits| waits.count).sum()
        };
        let (all, read) = (count(&|_| true), count(&|waits| waits.has_frame("pipe_read")));
        ensure!(all > 1_000 && all - read <= (all / 5_000).max(20), "{read} of {all}");
        report.check_wakers_among(waiter, "pipe", &[waker].into())?;
    }
    Ok(())
}

/// What the kernel keeps for offwake's maps counts for the cgroup that offwake was in as it made them.
#[test]
fn without_memory_for_task_storage_a_map_stands_in_and_it_is_counted() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    const AT_FIRST: u64 = 1 << 30;
    const THREADS: usize = 1000;
    let starved = Cgroup::with_memory("storage", AT_FIRST)?;
    let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", starved.path().display());
    let recorder = Offwake::record()?
        .binary("/bin/sh".as_ref())
        .args(["-c", &script, "sh"])
        .arg(paths::offwake_binary()?)
        .args(["record", "--all", "-o", RECORDING])
        .start_recording()?;
    // Its own memory is not to be short, that of its maps is.
    let rest = starved.path().parent().context("a cgroup without a parent")?.join("cgroup.procs");
    fs::write(rest, recorder.pid().to_string())?;
    starved.limit_memory(starved.memory_used()? + (64 << 10))?;
    let (hold, held) = mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let threads = (0..THREADS).map(|_| {
        let held = Arc::clone(&held);
        thread::Builder::new().stack_size(32 << 10).spawn(move || {
            // All but one wait for the lock, the one for the end.
            drop(held.lock().map(|held| held.recv()));
        })
    });
    let threads: Vec<_> = threads.collect::<Result<_, _>>()?;
    drop(hold);
    for thread in threads {
        ensure!(thread.join().is_ok(), "a thread panicked");
    }
    starved.limit_memory(AT_FIRST)?;
    let (_, report) = recorder.interrupt()?.report_on(RECORDING)?;
    ensure!(report.loss_count("storage_failed") > 0, "{:?}", report.loss);
    Ok(())
}

/// One thread goes to sleep, on another CPU than the one that wakes it in the same moment. Of several offwakes the
/// one that was there first has seen it leave while the programs of the others are still at work.
#[test]
fn a_thread_that_is_woken_as_it_leaves_its_cpu_has_no_stack_and_it_is_counted() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let cpus = allowed_cpus()?;
    let [first, .., last] = cpus[..] else { anyhow::bail!("this takes two CPUs: {cpus:?}") };
    let (going, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let sleeper = {
        let (going, over) = (Arc::clone(&going), Arc::clone(&over));
        thread::spawn(move || -> Result<()> {
            bind(0, last)?;
            while !over.load(SeqCst) {
                going.store(true, SeqCst);
                thread::park();
            }
            Ok(())
        })
    };
    let waker = {
        let (going, over, sleeper) = (going, Arc::clone(&over), sleeper.thread().clone());
        thread::spawn(move || -> Result<()> {
            bind(0, first)?;
            let mut late = 0_u64;
            while !over.load(SeqCst) {
                if going.swap(false, SeqCst) {
                    // Now sooner, now later: some time it is the right one.
                    late = (late + 100) % 40_000;
                    spin(Duration::from_nanos(late));
                    sleeper.unpark();
                }
            }
            sleeper.unpark();
            Ok(())
        })
    };
    let counted_once = || -> Result<Report> {
        const OTHERS: usize = 3;
        let pid = std::process::id().to_string();
        let exact = || recorder(&["-p", &pid, "--stacks", "exact", "--unwind", "fp"]);
        let first = exact()?;
        let _others: Vec<Running> = (0..OTHERS).map(|_| exact()).collect::<Result<_>>()?;
        let losses = losses_of(&first)?;
        wait_until("a stack that can't be taken", || {
            Ok((losses.counted(Loss::KernelStackUnsettled)? > 0).then_some(()))
        })?;
        Ok(first.interrupt()?.report_on(RECORDING)?.1)
    };
    let report = counted_once();
    over.store(true, SeqCst);
    for thread in [sleeper, waker] {
        thread.join().map_err(|_panic| anyhow!("a thread panicked"))??;
    }
    let report = report?;
    ensure!(report.loss_count("kernel_stack_unsettled") > 0, "{:?}", report.loss);
    Ok(())
}

/// What the kernel half has counted so far.
struct LossesSoFar(PerCpuArray<MapData, [u64; LOSS_KINDS + 2]>);

fn losses_of(recorder: &Running) -> Result<LossesSoFar> {
    let map = KernelObjects::held_by(recorder.pid())?.open_map("LOSSES")?;
    Ok(LossesSoFar(PerCpuArray::try_from(Map::PerCpuArray(map))?))
}

impl LossesSoFar {
    fn counted(&self, loss: Loss) -> Result<u64> {
        Ok(self.0.get(&0, 0)?.iter().map(|cpu| cpu[loss as usize]).sum())
    }
}

/// Sends that the kernel paces: the timer of each packet strikes in a softirq, where others can strike over it.
struct PacedSends {
    over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<Result<()>>>,
}

impl PacedSends {
    const CONNECTIONS: usize = 64;
    /// Bytes a second of one connection: with packets of two segments, a timer for each millisecond.
    const RATE: libc::c_int = 1_000_000;
    const SEGMENT: libc::c_int = 536;
    const SLEEPERS: u64 = 30;

    fn start() -> Result<Self> {
        let cpu = *allowed_cpus()?.first().context("the CPU mask is empty")?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // Loopback's segments are of 64 KiB: hardly a timer a second.
        set(&listener, libc::IPPROTO_TCP, libc::TCP_MAXSEG, Self::SEGMENT)?;
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..Self::CONNECTIONS {
            let sender = TcpStream::connect(listener.local_addr()?)?;
            set(&sender, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, Self::RATE)?;
            sender.set_nonblocking(true)?;
            let (receiver, _) = listener.accept()?;
            receiver.set_nonblocking(true)?;
            senders.push(sender);
            receivers.push(receiver);
        }
        let mut sends = Self { over: Arc::default(), threads: Vec::new() };
        // What there is no room for, or nothing of, is for the next time.
        let mut bytes = vec![0; 16 << 10];
        sends.over_and_over(cpu, Duration::from_millis(2), move || {
            senders.iter_mut().for_each(|sender| drop(sender.write(&bytes)));
        });
        bytes = vec![0; 64 << 10];
        sends.over_and_over(cpu, Duration::from_millis(2), move || {
            receivers.iter_mut().for_each(|receiver| drop(receiver.read(&mut bytes)));
        });
        for number in 0..Self::SLEEPERS {
            sends.over_and_over(cpu, Duration::from_micros(20 + number), || ());
        }
        Ok(sends)
    }

    fn over_and_over(
        &mut self,
        cpu: usize,
        pause: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) {
        let over = Arc::clone(&self.over);
        self.threads.push(thread::spawn(move || {
            bind(0, cpu)?;
            // SAFETY: takes numbers alone. Timers that may be late by 50 us strike together.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
            while !over.load(SeqCst) {
                work();
                thread::sleep(pause);
            }
            Ok(())
        }));
    }

    fn stop(self) -> Result<()> {
        self.over.store(true, SeqCst);
        for thread in self.threads {
            thread.join().map_err(|_panic| anyhow!("a thread panicked"))??;
        }
        Ok(())
    }
}

fn set(socket: &impl AsRawFd, level: i32, name: i32, value: libc::c_int) -> Result<()> {
    let (value, size) = (&raw const value, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the value is there, and has this size.
    let failed = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.cast(), size) };
    ensure!(failed == 0, "setsockopt: {}", std::io::Error::last_os_error());
    Ok(())
}

/// How often the kernel has not run a program, as it was at work on the same CPU already.
fn skipped(pid: u32) -> Result<u64> {
    let of_programs: Vec<u64> = parse_fdinfo(pid, "recursion_misses:")?;
    Ok(of_programs.iter().sum())
}

/// A timer strikes while another one's strike is noted.
#[test]
fn a_program_that_an_interrupt_asks_for_while_it_runs_is_skipped_and_counted() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let recorder = recorder(&["-p", &std::process::id().to_string()])?;
    // One may be skipped before the window opens, and is not counted.
    let before = skipped(recorder.pid())?;
    let is_skipped = || Ok((skipped(recorder.pid())? > before).then_some(()));
    // It comes soon after the sends begin, or takes minutes.
    wait_at_most(4 * deadline(), "a program that is skipped", || {
        let sends = PacedSends::start()?;
        let _may_be_in_vain = wait_at_most(Duration::from_secs(2), "one", is_skipped);
        sends.stop()?;
        is_skipped()
    })?;
    let (_, report) = recorder.interrupt()?.report_on(RECORDING)?;
    ensure!(report.loss_count("program_skipped") > 0, "{:?}", report.loss);
    Ok(())
}

/// A setting of the whole machine, put back when this is dropped.
struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    fn set(path: &'static str, value: &str) -> Result<Self> {
        let before = fs::read_to_string(path)?;
        fs::write(path, value).with_context(|| format!("cannot set {path}"))?;
        Ok(Self { path, before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // It can't be changed as long as a program that asks for stacks is there, and the kernel
        // frees those when it comes to it.
        let back = wait_until("the setting", || Ok(fs::write(self.path, &self.before).ok()));
        if let Err(error) = back {
            eprintln!("{} is not as it was, {}: {error}", self.path, self.before.trim());
        }
    }
}

/// `kernel.perf_event_max_stack` of 0.
#[test]
fn where_the_kernel_gives_no_stacks_waits_are_known_all_the_same() -> Result<()> {
    let _machine_lock = MachineLock::acquire()?;
    let _none = Setting::set("/proc/sys/kernel/perf_event_max_stack", "0")?;
    let pair = Workload::start("pipe")?;
    let outcome = Offwake::profile()?
        .args(["-p", &pair.pids(), "--stacks", "exact", "--unwind", "fp"])
        .args(["-v", "-d", &duration_argument(WINDOW), "-o", "x.json"])
        .run()?;
    let report = outcome.report("x.json")?;
    for name in ["user_stack_failed", "kernel_stack_failed"] {
        ensure!(report.loss_count(name) > 0, "no {name}: {:?}", report.loss);
    }
    ensure!(report.loss.records == 0, "{:?}", report.loss);
    let said = outcome.terminal();
    ensure!(said.contains(&format!("{} stacks", report.loss.stacks)), "{said}");
    let (client, server) = (pair.role("client")?.tid, pair.role("server")?.tid);
    ensure!(report.thread(client)?.blocked_ns > 0, "{:?}", report.thread(client));
    let wakers: BTreeSet<_> = report.wakes_of(client).filter_map(|wakes| wakes.waker.tid).collect();
    ensure!(wakers.contains(&server), "{:?}", report.wakes_of(client).collect::<Vec<_>>());
    Ok(())
}
