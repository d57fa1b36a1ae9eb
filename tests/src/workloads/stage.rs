//! What all workloads share: roles with their logs, threads and processes to play them, and the
//! talk with the harness on standard input and output.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::shared::{Zeroed, map};
use crate::{
    clock::{compute, now_ns, spin},
    ground_truth::{Activity, Entry, GroundTruth, Log, Player, Ready},
    intervals::Interval,
    wait_until::wait_until,
};

/// Entries that a role's log can hold: a minute of 1 ms iterations.
const LOG_ENTRIES: usize = 1 << 16;

/// One running workload: its roles, threads and processes.
pub struct Stage {
    roles: RefCell<Vec<(&'static str, &'static Role)>>,
    threads: RefCell<Vec<JoinHandle<()>>>,
    processes: RefCell<Vec<libc::pid_t>>,
    stopped: &'static AtomicU32,
    argument: Option<String>,
}

/// One role: who plays it, and what they measured. It lives in shared memory.
#[repr(C)]
pub struct Role {
    pid: AtomicU32,
    tid: AtomicU32,
    comm: [AtomicU32; 16],
    used: AtomicU64,
    dropped: AtomicU64,
    log: [LogSlot; LOG_ENTRIES],
}

#[repr(C)]
struct LogSlot {
    activity: AtomicU32,
    tied_to: AtomicU32,
    start_ns: AtomicU64,
    end_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

// SAFETY: atomics only, and 0 is a value of each.
unsafe impl Zeroed for Role {}

/// An entry of a log that has begun.
#[derive(Clone, Copy)]
pub struct Begun(Option<usize>);

impl Stage {
    /// An empty stage.
    ///
    /// # Errors
    ///
    /// When there is no memory to share.
    pub fn new(argument: Option<String>) -> Result<Self> {
        Ok(Self {
            roles: RefCell::default(),
            threads: RefCell::default(),
            processes: RefCell::default(),
            stopped: map()?,
            argument,
        })
    }

    /// What followed the workload's name on the command line.
    ///
    /// # Errors
    ///
    /// When nothing did.
    pub fn argument(&self) -> Result<&str> {
        self.argument.as_deref().context("this workload wants an argument")
    }

    /// Adds a role. All roles must be there before the first thread or process starts.
    ///
    /// # Errors
    ///
    /// When there is no memory to share.
    pub fn role(&self, name: &'static str) -> Result<&'static Role> {
        let role = map()?;
        self.roles.borrow_mut().push((name, role));
        Ok(role)
    }

    /// A word that threads and processes share, 0 at first.
    ///
    /// # Errors
    ///
    /// When there is no memory to share.
    pub fn word(&self) -> Result<&'static AtomicU32> {
        map()
    }

    /// The flag that is not 0 once the harness wants the end.
    #[must_use]
    pub fn stopped(&self) -> &'static AtomicU32 {
        self.stopped
    }

    /// Starts a thread, which plays a role.
    ///
    /// # Errors
    ///
    /// When the kernel gives none.
    pub fn thread(&self, play: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().spawn(play).context("cannot start a thread")?;
        self.threads.borrow_mut().push(thread);
        Ok(())
    }

    /// Forks a process, which plays a role and ends. Only before the first thread.
    ///
    /// # Errors
    ///
    /// When the kernel gives none, or a thread runs already.
    pub fn process(&self, play: impl FnOnce()) -> Result<()> {
        ensure!(self.threads.borrow().is_empty(), "fork first, threads afterwards");
        self.processes.borrow_mut().push(fork(play)?);
        Ok(())
    }

    /// Tells the harness that all roles are taken, waits until it wants the end, then sets the
    /// flag, calls `release` to free who is stuck, and joins everybody.
    ///
    /// # Errors
    ///
    /// When a role stays empty, a thread panicked, a process did not end well, or the harness
    /// can't be talked to.
    pub fn play(&self, release: impl FnOnce()) -> Result<()> {
        wait_until("every role to be taken", || {
            Ok(self.roles.borrow().iter().all(|(_, role)| role.tid.load(SeqCst) != 0).then_some(()))
        })?;
        let roles = self.roles.borrow();
        let roles = roles.iter().map(|&(name, role)| (name.to_owned(), role.player())).collect();
        print_line(&Ready { pid: std::process::id(), roles })?;
        io::stdin().lock().read_to_end(&mut Vec::new()).context("cannot read standard input")?;
        self.stopped.store(1, SeqCst);
        release();
        for thread in self.threads.take() {
            ensure!(thread.join().is_ok(), "a role panicked");
        }
        for process in self.processes.take() {
            ensure!(reap(process)? == 0, "the role in process {process} failed");
        }
        Ok(())
    }

    /// What the roles measured.
    #[must_use]
    pub fn truth(&self) -> GroundTruth {
        let roles = self.roles.borrow();
        GroundTruth {
            roles: roles.iter().map(|&(name, role)| (name.to_owned(), role.log())).collect(),
        }
    }
}

impl Role {
    /// Claims the role for the calling thread, and names the thread `comm` (15 bytes of it count).
    pub fn claim(&self, comm: &str) {
        self.claim_with_raw_name(comm.as_bytes());
    }

    /// As [`Role::claim`], with a name that need not be text.
    pub fn claim_with_raw_name(&self, comm: &[u8]) {
        let mut name = [0_u8; 16];
        for (place, &byte) in name.iter_mut().zip(comm.iter().take(15)) {
            *place = byte;
        }
        // SAFETY: the name ends in a NUL.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        // SAFETY: takes nothing, cannot fail.
        let tid = unsafe { libc::gettid() };
        self.publish(std::process::id(), tid.cast_unsigned(), &name);
    }

    /// Assigns the role to the only thread of process `pid`, a program that knows no roles.
    pub fn assign_to(&self, pid: u32, comm: &str) {
        self.publish(pid, pid, comm.as_bytes());
    }

    fn publish(&self, pid: u32, tid: u32, comm: &[u8]) {
        for (place, &byte) in self.comm.iter().zip(comm) {
            place.store(byte.into(), Relaxed);
        }
        self.pid.store(pid, SeqCst);
        self.tid.store(tid, SeqCst);
    }

    /// The thread that plays the role, 0 as long as nobody does.
    #[must_use]
    pub fn tid(&self) -> u32 {
        self.tid.load(SeqCst)
    }

    /// Calls `block`, which is expected to block, and logs how long it took.
    #[inline(always)]
    pub fn waits<R>(&self, block: impl FnOnce() -> R) -> R {
        let begun = self.begin(Activity::Wait, 0);
        let result = block();
        self.end(begun);
        result
    }

    /// Computes for `length`, and logs it.
    pub fn works(&self, length: Duration) {
        let begun = self.begin(Activity::Work, 0);
        spin(length);
        self.end(begun);
    }

    /// Computes until it has had `length` of CPU time, and logs it.
    pub fn computes(&self, length: Duration) {
        let begun = self.begin(Activity::Work, 0);
        let had_ns = compute(length);
        if let Some(slot) = begun.0.and_then(|index| self.log.get(index)) {
            slot.cpu_ns.store(had_ns, Relaxed);
        }
        self.end(begun);
    }

    /// Begins an entry, tied to a process or thread or to none (0).
    pub fn begin(&self, activity: Activity, tied_to: u32) -> Begun {
        let index = usize::try_from(self.used.fetch_add(1, Relaxed)).unwrap_or(usize::MAX);
        let Some(slot) = self.log.get(index) else {
            self.dropped.fetch_add(1, Relaxed);
            return Begun(None);
        };
        slot.activity.store(activity as u32, Relaxed);
        slot.tied_to.store(tied_to, Relaxed);
        slot.start_ns.store(now_ns(), Relaxed);
        Begun(Some(index))
    }

    /// Ends an entry.
    pub fn end(&self, begun: Begun) {
        let now = now_ns();
        if let Some(slot) = begun.0.and_then(|index| self.log.get(index)) {
            slot.end_ns.store(now, SeqCst);
        }
    }

    /// Logs an interval that is over.
    pub fn log_past(&self, activity: Activity, past: Interval, tied_to: u32) {
        let begun = self.begin(activity, tied_to);
        if let Some(slot) = begun.0.and_then(|index| self.log.get(index)) {
            slot.start_ns.store(past.start_ns, Relaxed);
            slot.end_ns.store(past.end_ns, SeqCst);
        }
    }

    fn player(&self) -> Player {
        let comm: Vec<u8> = self
            .comm
            .iter()
            .filter_map(|byte| u8::try_from(byte.load(Relaxed)).ok())
            .take_while(|&byte| byte != 0)
            .collect();
        Player {
            pid: self.pid.load(SeqCst),
            tid: self.tid.load(SeqCst),
            comm: String::from_utf8_lossy(&comm).into_owned(),
        }
    }

    fn log(&self) -> Log {
        let used = usize::try_from(self.used.load(SeqCst)).unwrap_or(usize::MAX);
        let slots = self.log.iter().take(used);
        Log { entries: slots.map(LogSlot::entry).collect(), dropped: self.dropped.load(SeqCst) }
    }
}

impl LogSlot {
    fn entry(&self) -> Entry {
        let end_ns = self.end_ns.load(SeqCst);
        Entry {
            activity: match self.activity.load(Relaxed) {
                activity if activity == Activity::Wait as u32 => Activity::Wait,
                activity if activity == Activity::Work as u32 => Activity::Work,
                _ => Activity::OffCpu,
            },
            start_ns: self.start_ns.load(Relaxed),
            end_ns: (end_ns != 0).then_some(end_ns),
            tied_to: self.tied_to.load(Relaxed),
            cpu_ns: self.cpu_ns.load(Relaxed),
        }
    }
}

/// Forks; the child runs `play` and ends, and dies with its parent.
///
/// # Errors
///
/// When the kernel gives no process.
pub fn fork(play: impl FnOnce()) -> Result<libc::pid_t> {
    // SAFETY: the process has one thread (the callers see to it), so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("cannot fork"),
        0 => {
            die_with_parent();
            play();
            // SAFETY: ends this process without running what the parent registered.
            unsafe { libc::_exit(0) }
        }
        child => Ok(child),
    }
}

/// Has the calling process killed when its parent ends, so that a workload leaves nobody behind.
pub fn die_with_parent() {
    // SAFETY: takes plain integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Waits for a child's end, and returns its status.
///
/// # Errors
///
/// When it is no child of ours.
pub fn reap(child: libc::pid_t) -> Result<i32> {
    let mut status = 0;
    // SAFETY: `status` is a valid place to write to.
    let reaped = unsafe { libc::waitpid(child, &raw mut status, 0) };
    ensure!(reaped == child, "cannot wait for process {child}: {}", io::Error::last_os_error());
    Ok(status)
}

/// Prints one line of JSON.
///
/// # Errors
///
/// When standard output can't be written.
pub fn print_line(value: &impl serde::Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(value).context("cannot make JSON")?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).context("cannot write standard output")
}

/// Binds the calling thread to the last CPU that it may run on.
///
/// # Errors
///
/// When the kernel refuses.
pub fn pin_to_last_cpu() -> Result<()> {
    let last = allowed_cpus()?.pop().context("the CPU mask is empty")?;
    bind(0, last)
}

/// The CPUs that the calling thread may run on, in order.
///
/// # Errors
///
/// When the kernel does not tell.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    // SAFETY: a set of CPUs is plain bits, all zero is the empty one.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `allowed` is a valid place of the size given.
    let got = unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) };
    ensure!(got == 0, "cannot read the CPU mask: {}", io::Error::last_os_error());
    let cpus = 0..usize::try_from(libc::CPU_SETSIZE)?;
    // SAFETY: the index is below CPU_SETSIZE.
    Ok(cpus.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &allowed) }).collect())
}

/// Binds a thread, or the calling one (0), to a CPU. When this returns it is not on another any more.
///
/// # Errors
///
/// When the kernel refuses.
pub fn bind(tid: u32, cpu: usize) -> Result<()> {
    ensure!(cpu < usize::try_from(libc::CPU_SETSIZE)?, "there is no CPU {cpu}");
    // SAFETY: a set of CPUs is plain bits, all zero is the empty one.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    let tid = libc::pid_t::try_from(tid)?;
    // SAFETY: `one` is valid and of the size given.
    let set = unsafe { libc::sched_setaffinity(tid, size_of_val(&one), &raw const one) };
    ensure!(set == 0, "cannot bind {tid} to CPU {cpu}: {}", io::Error::last_os_error());
    Ok(())
}
