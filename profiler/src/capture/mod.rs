//! One run: from loading the kernel half to a [`Recording`].
//!
//! ```text
//!            attached       window opens              window closes
//!  kernel ──────┼── survey ──────┼──────── records ────────┼── survey ── detached
//!  drain        └─ every 10 ms: rings → decoded records ──────────────────┘
//!  look-up         processes, names' files, sockets: while they live ─────┴─ names
//! ```
//!
//! The drain never waits for a look-up: what is to be looked up goes over a channel.

pub mod clocks;
mod collector;
mod drain;
mod lookup;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use collector::Collector;
use lookup::{Found, Lookup};
use thiserror::Error;

use crate::{
    kernel::{self, Kernel, KernelError, KernelTypes, Settings, Survey},
    recording::{ClosedBy, LossTotals, Meta, Recording, Window, loss::add_all},
    units::{Nanos, Tgid, Timestamp},
};

/// What a run is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the kernel half is to do.
    pub settings: Settings,
    /// The target in words.
    pub target: String,
    /// Bytes of records that are kept at most; the window closes when they are reached.
    pub memory_limit: usize,
}

/// Why a run failed.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A thread of the profiler could not be started, or died.
    #[error("offwake's own {0} thread failed")]
    Thread(&'static str),
}

/// Something to look up while it is there.
type Lookups = mpsc::Sender<Lookup>;

/// A run under way.
pub struct Capture {
    kernel: Kernel,
    plan: Plan,
    start: Timestamp,
    losses_before: LossTotals,
    own_cpu_before: Nanos,
    stop: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
    drain: JoinHandle<Collector>,
    lookup: JoinHandle<Found>,
}

/// A run that is over; names are still to be looked up.
pub struct Captured {
    collector: Collector,
    lookup: JoinHandle<Found>,
    meta: Meta,
    losses: LossTotals,
}

impl Capture {
    /// Loads, attaches, looks at every thread and opens the window.
    ///
    /// # Errors
    ///
    /// If the kernel refuses something that can't be done without.
    pub fn open(plan: Plan) -> Result<Self, CaptureError> {
        let types = KernelTypes::of_running_kernel()?;
        let (mut kernel, mut rings) = Kernel::start(&types, &plan.settings)?;
        let stop = Arc::new(AtomicBool::new(false));
        let full = Arc::new(AtomicBool::new(false));
        let (lookups, wanted) = mpsc::channel();
        let lookup = start("look-up", move || lookup::run(&wanted))?;
        let drain = {
            let (stop, full) = (Arc::clone(&stop), Arc::clone(&full));
            let mut collector = Collector::new(lookups, plan.memory_limit);
            // Attaching takes a while, and all that was sent meanwhile lies before the window.
            for ring in &mut rings {
                ring.drain(|bytes| collector.take_early(bytes));
            }
            start("drain", move || drain::run(rings, collector, &stop, &full))?
        };
        let surveyed = kernel.survey(Survey::Opening);
        let losses_before = kernel::read_losses(&kernel);
        let mut capture = Self {
            kernel,
            plan,
            start: Timestamp(0),
            losses_before: LossTotals::default(),
            own_cpu_before: own_cpu(),
            stop,
            full,
            drain,
            lookup,
        };
        match surveyed.and(losses_before) {
            Ok(losses) => {
                capture.losses_before = losses;
                capture.start = kernel::now();
                Ok(capture)
            }
            Err(error) => {
                capture.abandon();
                Err(error.into())
            }
        }
    }

    /// Lets the window begin only now: what a command waited for before it was let go is not its own.
    pub fn begin_now(&mut self) {
        self.start = kernel::now();
    }

    /// Whether the limit of memory was reached; nothing more is kept then.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    fn abandon(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _collector = self.drain.join();
        let _found = self.lookup.join();
    }

    /// Closes the window, takes what is still open, and detaches.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand out its counters.
    pub fn close(mut self, closed_by: ClosedBy) -> Result<Captured, CaptureError> {
        let window = Window { start: self.start, end: kernel::now() };
        let own_cpu = own_cpu() - self.own_cpu_before;
        let surveyed = self.kernel.survey(Survey::Closing);
        let losses = kernel::read_losses(&self.kernel);
        self.stop.store(true, Ordering::Relaxed);
        let collector = self.drain.join().map_err(|_panic| CaptureError::Thread("drain"))?;
        surveyed?;
        let losses = losses?.since(&self.losses_before);
        let Plan { settings, target, memory_limit: _ } = self.plan;
        let meta = Meta {
            window,
            target,
            scope: settings.scope,
            stacks: settings.stacks,
            sample_hz: settings.sample_hz,
            kernel: read_line("/proc/sys/kernel/osrelease"),
            host: read_line("/proc/sys/kernel/hostname"),
            own_cpu,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            closed_by,
            profiler: Some(Tgid(std::process::id())),
        };
        Ok(Captured { collector, lookup: self.lookup, meta, losses })
    }
}

impl Captured {
    /// Waits for the names of everything that was recorded, and puts the recording together.
    ///
    /// # Errors
    ///
    /// If the thread that looks them up has died.
    pub fn finish(self) -> Result<Recording, CaptureError> {
        let Self { collector, lookup, meta, losses } = self;
        // Dropping the collector's end of the channel is what lets the look-ups end.
        let (mut recording, lost_here) = collector.into_recording(meta);
        let Found { stacks, files, processes, cgroups, shortfalls } =
            lookup.join().map_err(|_panic| CaptureError::Thread("look-up"))?;
        recording.stacks = stacks;
        recording.stacks.trim_tracing_frames();
        recording.files = files;
        recording.processes = processes;
        recording.cgroups = cgroups;
        recording.loss = losses;
        recording.loss.undecodable = lost_here.undecodable;
        recording.loss.over_memory = lost_here.over_memory;
        add_all(&mut recording.loss.counters, &shortfalls);
        recording.sort();
        Ok(recording)
    }
}

fn start<T: Send + 'static>(
    name: &'static str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, CaptureError> {
    std::thread::Builder::new()
        .name(format!("offwake-{name}"))
        .spawn(body)
        .map_err(|_error| CaptureError::Thread(name))
}

fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// CPU time that this process has used, user and system.
fn own_cpu() -> Nanos {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills `usage`; it can't fail with these arguments, and zeroes are valid.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            u32::try_from(time.tv_usec).unwrap_or(0).saturating_mul(1000),
        )
    };
    let total = time(usage.ru_utime) + time(usage.ru_stime);
    Nanos(u64::try_from(total.as_nanos()).unwrap_or(u64::MAX))
}
