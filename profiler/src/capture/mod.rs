//! One run: from loading the kernel half to a recording's bytes.
//!
//! ```text
//!            attached       window opens              window closes
//!  kernel ──────┼── survey ──────┼──────── records ────────┼── survey ── detached
//!  drain        └─ every 10 ms: rings → decoded records ──────────────────┐
//!  look-up         programs, sockets, cgroups: while they are there ──────┼─ names
//!  store                         └─ every second: a slice → the sink ─────┴─────── the last slice
//! ```
//!
//! The drain never waits for a look-up: what is to be looked up goes over a channel. It waits for the
//! store if that can't keep up, and what finds no room in the rings meanwhile is counted there.

mod assembled;
mod clocks;
mod collector;
mod counting;
mod drain;
mod file_sink;
pub mod flight;
mod lookup;
mod own_cpu;
mod sink;
mod snapshot;
mod store;
#[cfg(test)]
mod store_tests;
mod trigger;
mod user_stacks;

use std::{
    io::{self, PipeWriter},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, SyncSender},
    },
    thread::JoinHandle,
    time::Duration,
};

pub use assembled::Assembled;
pub use collector::OpenRecords;
use collector::{Collector, Records};
use counting::Counting;
use drain::Drain;
pub use file_sink::{Pipe, RecordingFile};
use flight::Why;
use lookup::LastFound;
pub use sink::{About, Encoded, Memory, NewSlice, Places, Sink, TakenBack};
use snapshot::{Desk, Request};
pub use store::Counts;
use store::{Ending, Opening, Part, Store};
use thiserror::Error;
pub use trigger::{Trigger, Trip};
use trigger::{Trips, Watch};
use user_stacks::UserStacks;

use crate::{
    kernel::{self, Kernel, KernelError, KernelTypes, Settings, StackSettings, Started, Survey},
    parser::{Parser, Role},
    privileges::{self, Task},
    recording::{ClosedBy, Effort, Meta, Window},
    symbols::{NameSources, Symbols},
    units::{CgroupId, Nanos, StackId, Tgid, Timestamp},
    unwinder_process::UnwinderClient,
};

/// What is on its way to the look-ups: a stack takes 1 KiB at most.
const LOOKUPS_WAITING: usize = 1 << 16;
/// What is on its way to the store: some 5 MiB each at most.
const PARTS_WAITING: usize = 4;

/// What a run is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the kernel half is to do.
    pub settings: Settings,
    /// The target in words.
    pub target: String,
    /// Bytes that the records may take when they are read again at once; the run is full when they
    /// are reached. None if it can go on for ever.
    pub memory_limit: Option<usize>,
    /// Waits that ask for a snapshot.
    pub triggers: Vec<Trigger>,
    /// The shortest time between two snapshots that were asked for like this.
    pub trigger_pause: Nanos,
    /// Where the names of functions come from.
    pub names: NameSources,
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
    /// The format can't hold the recording.
    #[error("the recording can't be encoded: {0}")]
    Format(io::Error),
}

/// What the threads of a run tell each other without words.
#[derive(Debug, Default)]
struct Control {
    stop: AtomicBool,
    memory_full: AtomicBool,
    sink_failed: AtomicBool,
    window_start: OnceLock<Timestamp>,
    desk: Desk,
    trips: Trips,
}

/// The programs run and everybody was looked at; the window is not open yet.
pub struct Armed<S> {
    kernel: Kernel,
    counting: Arc<Counting>,
    plan: Plan,
    control: Arc<Control>,
    parts: SyncSender<Part>,
    drain: JoinHandle<(Records, OpenRecords)>,
    lookup: JoinHandle<LastFound>,
    store: JoinHandle<Store<S>>,
    /// While it is open, copies of stacks are watched for.
    watching: PipeWriter,
}

/// A run whose window is open.
pub struct Capture<S> {
    armed: Armed<S>,
}

/// A run whose window is closed; names are still to be looked up.
pub struct Captured<S> {
    rest: Records,
    open: OpenRecords,
    lookup: JoinHandle<LastFound>,
    store: JoinHandle<Store<S>>,
    closed_at: Timestamp,
    own_cpu: Nanos,
    closed_by: ClosedBy,
}

/// Why a run should close, apart from what its user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The memory for records is used up.
    Memory,
    /// The sink takes no more.
    Sink,
}

/// A recording that was written.
#[derive(Debug)]
pub struct Written<S> {
    /// Where to.
    pub sink: S,
    /// What it has.
    pub counts: Counts,
    /// How long its window is.
    pub length: Nanos,
    /// What kept it from being whole.
    pub failed: Option<io::Error>,
}

impl<S: Sink> Armed<S> {
    /// Loads, attaches and looks at every thread.
    ///
    /// # Errors
    ///
    /// If the kernel refuses something that can't be done without.
    pub fn new(mut plan: Plan, sink: S) -> Result<Self, CaptureError> {
        // Before anything is attached, so that its start is in no recording.
        let unwinding = Parser::new(Role::Stacks).started();
        plan.settings.unwinder = unwinding.id().map(Tgid);
        let types = KernelTypes::of_running_kernel()?;
        let Started { mut kernel, rings, losses, stacks, programs } =
            Kernel::start(&types, &plan.settings)?;
        drop(types);
        kernel::give_back();
        let mut sent = kernel.take_sent_stacks()?;
        let maps = kernel.take_user_stacks()?;
        let epochs = kernel.take_code_epochs()?;
        let shared = Arc::new(user_stacks::Shared::default());
        let forget = {
            let shared = Arc::clone(&shared);
            Box::new(move |stacks: &[StackId]| {
                sent.forget(stacks);
                shared.forget(stacks);
            })
        };
        let store = Store::new(sink, forget).map_err(CaptureError::Format)?;
        let counting = Arc::new(Counting { losses, stacks, copies: Arc::clone(&shared) });
        let control =
            Arc::new(Control { trips: Trips::new(plan.trigger_pause), ..Control::default() });
        let (lookups, wanted) = mpsc::sync_channel(LOOKUPS_WAITING);
        let (parts, to_store) = mpsc::sync_channel(PARTS_WAITING);
        let store = {
            let control = Arc::clone(&control);
            start("store", Task::Naming, move || store.run(&to_store, &control))?
        };
        let settling = Arc::clone(&shared);
        let descriptor =
            maps.copies.descriptor().map_err(|_error| CaptureError::Thread("watch"))?;
        let lookup = {
            let parts = parts.clone();
            let shared = Arc::clone(&shared);
            let names = plan.names.clone();
            let StackSettings { method, max_stacks, .. } = plan.settings.stacks;
            start("look-up", Task::LookingUp, move || {
                let unwinder = UnwinderClient::new(method, unwinding);
                let user_stacks = UserStacks::new(maps, unwinder, max_stacks as usize, shared);
                let symbols = Symbols::new()
                    .named_by(names)
                    .told_of(Box::new(move |tgid| epochs.current(tgid)));
                lookup::run(&wanted, &parts, symbols, user_stacks)
            })?
        };
        let watching = {
            let lookups = lookups.clone();
            let (over, watching) = io::pipe().map_err(|_error| CaptureError::Thread("watch"))?;
            start("watch", Task::Other, move || {
                user_stacks::watch(&descriptor, &over, &lookups, &shared)
            })?;
            watching
        };
        let drain = {
            let control = Arc::clone(&control);
            let collector =
                Collector::new(lookups, plan.memory_limit, Watch::new(plan.triggers.clone()));
            let mut drain =
                Drain::new(rings, collector, Arc::clone(&counting), programs, parts.clone());
            // Attaching takes a while, and all that was sent meanwhile lies before the window.
            drain.take_early();
            start("drain", Task::Counting, move || drain.run(&control))?
        };
        let mut armed =
            Self { kernel, counting, plan, control, parts, drain, lookup, store, watching };
        match armed.kernel.survey(Survey::Opening) {
            Ok(()) => {
                settling.settle();
                Ok(armed)
            }
            Err(error) => {
                armed.control.stop.store(true, Ordering::Relaxed);
                drop((armed.parts, armed.watching));
                let _rest = armed.drain.join();
                let _found = armed.lookup.join();
                let _store = armed.store.join();
                Err(error.into())
            }
        }
    }

    /// Opens the window.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand out its counters.
    pub fn open(self) -> Result<Capture<S>, CaptureError> {
        let losses = self.counting.losses()?;
        // The programs have not been measured yet.
        let effort = Effort { stacks: self.counting.stacks()?, ..Effort::default() };
        let settings = &self.plan.settings;
        let start = kernel::now();
        let meta = Meta {
            window: Window { start, end: start },
            target: self.plan.target.clone(),
            scope: settings.scope,
            stacks: settings.stacks.mode,
            sample_hz: settings.sample_hz,
            options: options(settings),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            host: read_line("/proc/sys/kernel/hostname"),
            boot_id: read_line("/proc/sys/kernel/random/boot_id"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            closed_by: ClosedBy::CutOff,
            profiler: Some(Tgid(std::process::id())),
            ..Meta::default()
        };
        self.control.window_start.get_or_init(|| start);
        let opening = Opening { meta, losses, effort, own_cpu: own_cpu::used() };
        // The other end is gone only if its thread has died, and that is noticed when it is joined.
        let _died = self.parts.send(Part::Opening(Box::new(opening)));
        Ok(Capture { armed: self })
    }
}

impl<S: Sink> Capture<S> {
    /// Whether it can't go on, and why.
    #[must_use]
    pub fn exhausted(&self) -> Option<Exhausted> {
        let control = &self.armed.control;
        if control.sink_failed.load(Ordering::Relaxed) {
            Some(Exhausted::Sink)
        } else {
            control.memory_full.load(Ordering::Relaxed).then_some(Exhausted::Memory)
        }
    }

    /// Looks at everybody, and has the sink write out what it keeps up to now. That takes a while; what
    /// becomes of it is the sink's to say.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to say who is waiting.
    pub fn snapshot(&mut self, why: Why) -> Result<(), CaptureError> {
        let Armed { kernel, control, drain, .. } = &mut self.armed;
        let (at, own_cpu) = (kernel::now(), own_cpu::used());
        let surveyed = kernel.survey(Survey::Snapshot);
        // Also if that failed: what it sent must not be taken for what the next one sends.
        let request = Request { why, at, own_cpu };
        if !control.desk.ask(request, || !drain.is_finished()) {
            return Err(CaptureError::Thread("drain"));
        }
        Ok(surveyed?)
    }

    /// Has the sampling clock strike on CPUs that have come, or come back. To be called once in every
    /// [`Capture::clock_interval`].
    ///
    /// # Errors
    ///
    /// If the kernel does not say what there is.
    pub fn keep_clock(&mut self) -> Result<(), CaptureError> {
        Ok(self.armed.kernel.keep_clock()?)
    }

    /// How often to look after the sampling clock: no sooner than it has struck again, a few times
    /// over.
    #[must_use]
    pub fn clock_interval(&self) -> Duration {
        const AT_LEAST: Duration = Duration::from_secs(1);
        const STRIKES: u32 = 4;
        let hz = self.armed.plan.settings.sample_hz.max(1);
        AT_LEAST.max(Duration::from_secs(1) * STRIKES / hz)
    }

    /// Takes the threads in another cgroup for the target as well, from now on. It takes effect if the
    /// target is cgroups that come and go ([`kernel::TargetFilter::Cgroups`]).
    ///
    /// # Errors
    ///
    /// If there have been too many.
    pub fn add_target_cgroup(&mut self, id: CgroupId) -> Result<(), CaptureError> {
        Ok(self.armed.kernel.add_target_cgroup(id)?)
    }

    /// The wait that was too long, if it is time for a snapshot of it.
    #[must_use]
    pub fn tripped(&self) -> Option<Trip> {
        self.armed.control.trips.due(kernel::now())
    }

    /// Waits that were too long, and for which it was too soon after another.
    #[must_use]
    pub fn suppressed(&self) -> u64 {
        self.armed.control.trips.suppressed()
    }

    /// Closes the window, takes what is still open, and detaches.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to say who is still waiting.
    pub fn close(self, closed_by: ClosedBy) -> Result<Captured<S>, CaptureError> {
        let Armed { mut kernel, control, parts, drain, lookup, store, watching, .. } = self.armed;
        let (closed_at, own_cpu) = (kernel::now(), own_cpu::used());
        let surveyed = kernel.survey(Survey::Closing);
        control.stop.store(true, Ordering::Relaxed);
        let (rest, open) = drain.join().map_err(|_panic| CaptureError::Thread("drain"))?;
        drop((parts, watching));
        surveyed?;
        Ok(Captured { rest, open, lookup, store, closed_at, own_cpu, closed_by })
    }
}

impl<S: Sink> Captured<S> {
    /// Waits for the names of everything that was recorded, and ends the recording.
    ///
    /// # Errors
    ///
    /// If one of the threads has died.
    pub fn finish(self) -> Result<Written<S>, CaptureError> {
        let Self { rest, open, lookup, store, closed_at, own_cpu, closed_by } = self;
        let LastFound { found, names } =
            lookup.join().map_err(|_panic| CaptureError::Thread("look-up"))?;
        let store = store.join().map_err(|_panic| CaptureError::Thread("store"))?;
        let ending = Ending { records: rest, open, found, names, closed_at, own_cpu, closed_by };
        Ok(store.close(ending))
    }
}

fn start<T: Send + 'static>(
    name: &'static str,
    task: Task,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, CaptureError> {
    let with_no_more_rights = move || {
        privileges::keep_for(task);
        body()
    };
    std::thread::Builder::new()
        .name(format!("offwake-{name}"))
        .spawn(with_no_more_rights)
        .map_err(|_error| CaptureError::Thread(name))
}

/// The settings as the command line has them.
fn options(settings: &Settings) -> String {
    let Settings { scope, stacks, sample_hz, ring_bytes, max_threads, max_targets, .. } = settings;
    let StackSettings { mode, budget, check_one_in, max_stacks, method, .. } = stacks;
    let budget = budget.map_or("none".to_owned(), |budget| format!("{:.3}%", budget.as_percent()));
    format!(
        "--scope {} --stacks {} --unwind {} --budget {budget} --check-stacks {check_one_in} --max-stacks {max_stacks} \
         --sample {sample_hz} --ring-size {ring_bytes} --max-threads {max_threads} --max-targets {max_targets}",
        scope.name(),
        mode.name(),
        method.name(),
    )
}

fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
