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
//! The drain never waits for a look-up: what is to be looked up goes over a channel. It waits for
//! the store if that can't keep up, and what finds no room in the rings meanwhile is counted there.

mod brief_processes;
mod clocks;
mod collector;
mod control;
mod counters;
mod disk_uses;
mod drain;
mod file_sink;
pub mod flight_recorder;
mod join_in_time;
mod lookup;
mod lookup_queue;
mod marker_texts;
mod memory_sink;
mod messages;
mod overhead;
mod sink;
mod snapshot_pacer;
mod store;
mod trigger;
mod user_stacks;

use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, SyncSender, TrySendError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clocks::own_cpu_time;
use collector::Collector;
use control::Control;
use counters::Counters;
use drain::Drain;
pub use file_sink::{FileSink, PipeSink};
use join_in_time::{GRACE, Lost, PATIENCE, join_in_time};
pub use memory_sink::{AssemblingSink, MemorySink};
use messages::{
    LastLookupResults, Lookup, RecordBatch, RecordingEnd, RecordingStart, SnapshotRequest,
    StoreMessage, SurveyRequest,
};
pub use messages::{
    LongWait, OpenRecords, SnapshotEnd, SnapshotReason, WaitBegin, WaitCounts, WaitProgress,
};
use offwake_analysis::selection::describe_children;
use offwake_recording::{
    ClosedBy, LossTotals, Meta, ProfilerCost, Window,
    loss::Diagnostics,
    units::{CgroupId, Nanos, StackId, Tgid, Timestamp},
};
pub use overhead::OverheadLimit;
use overhead::{KernelSide, Overhead};
pub use sink::{EncodedSlice, NewSlice, RemovedSlice, Sink, SliceOffsets, SliceSummary};
use store::Store;
pub use store::{Ending, Written};
use thiserror::Error;
pub use trigger::Trigger;
use trigger::TriggerMatcher;
use user_stacks::UserStackExchange;

use crate::{
    awaited_children::find_awaited_children,
    awaited_threads::OpenWaits,
    file_locks,
    kernel::{
        self, DiskUseReader, DiskUses, Kernel, KernelError, KernelTypes, Settings, StackSettings,
        StartedKernel, Survey, TargetFilter,
    },
    lock_owners::find_lock_owners,
    own_threads::{self, OwnThread},
    parser::{self, Parser, ParserRole, end_deadline},
    polled_files,
    privileges::{self, Task},
    processes::find_stopped_threads,
    reader_process, scheduling,
    stacks::StackProcessor,
    symbols::NameSources,
    unwinder_process::UnwinderClient,
};

/// How many requests may wait for the look-up thread: a stack takes 1 KiB at most.
const MAX_LOOKUPS: usize = 1 << 16;
/// How many messages may wait for the store: some 5 MiB each at most.
const MAX_STORE_MESSAGES: usize = 4;

/// What a run is to record, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the kernel half is to do.
    pub settings: Settings,
    /// The target in words.
    pub target: String,
    /// How much of the machine recording may take; None if any amount.
    pub max_overhead: Option<OverheadLimit>,
    /// How many bytes the records may take when all of them are read again; the run is over when
    /// they would take more. None if there is no such limit.
    pub memory_limit: Option<usize>,
    /// Waits that ask for a snapshot.
    pub triggers: Vec<Trigger>,
    /// The shortest time between two snapshots that triggers ask for.
    pub trigger_pause: Nanos,
    /// Where the names of functions come from.
    pub names: NameSources,
    /// How long after the window's end processes, files and names may be looked up: what nobody has answered
    /// by then is missing.
    pub end_within: Duration,
}

/// Why a run failed.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A thread of the profiler could not be started, or died.
    #[error("offwake's own thread {} failed", .0.name())]
    Thread(OwnThread),
    /// The format can't hold the recording.
    #[error("the recording can't be encoded: {0}")]
    Format(io::Error),
}

/// A run whose programs are attached, and whose opening survey is done; the window is not open yet.
pub struct Armed<S> {
    kernel: Kernel,
    disk_uses: DiskUseReader,
    counters: Arc<Counters>,
    plan: Plan,
    control: Arc<Control>,
    to_store: SyncSender<StoreMessage>,
    lookups: SyncSender<Lookup>,
    drain: JoinHandle<(RecordBatch, OpenRecords)>,
    lookup: JoinHandle<LastLookupResults>,
    store: JoinHandle<Store<S>>,
}

/// A run whose window is open.
pub struct Capture<S> {
    armed: Armed<S>,
    /// What processes had read from disks and written to them as the window opened, if the kernel says so.
    used_before: Option<DiskUses>,
    /// What failed, and ends the run.
    broken: Option<CaptureError>,
}

/// A run whose window is closed; names are still to be looked up.
pub struct Captured<S> {
    /// None if the drain has died.
    rest: Option<RecordBatch>,
    open: OpenRecords,
    lookup: JoinHandle<LastLookupResults>,
    to_store: SyncSender<StoreMessage>,
    store: JoinHandle<Store<S>>,
    closed_at: Timestamp,
    own_cpu: Nanos,
    closed_by: ClosedBy,
    broken: Option<CaptureError>,
    /// When the look-up thread is not waited for any more.
    given_up_at: Instant,
}

/// Why a run should close, apart from what its user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The memory for records is used up.
    Memory,
    /// The sink can't take any more.
    Sink,
    /// A thread of the profiler has died: nothing that it did is done any more.
    Thread(OwnThread),
}

impl<S: Sink> Armed<S> {
    /// Loads and attaches the programs, starts the threads, and surveys every thread of the
    /// machine.
    ///
    /// # Errors
    ///
    /// If the kernel refuses something that can't be done without.
    pub fn new(mut plan: Plan, sink: S) -> Result<Self, CaptureError> {
        // These are started before anything is attached, so that their start is in no recording.
        let unwinding = Parser::new(ParserRole::Stacks).start_early();
        let reading = Parser::new(ParserRole::Reader).start_early();
        plan.settings.own_processes = parser::running_processes();
        reader_process::use_processes();
        let types = KernelTypes::from_running_kernel()?;
        let StartedKernel { mut kernel, rings, losses, stacks, programs, costs, detail, disk_uses } =
            Kernel::start(&types, &plan.settings)?;
        // Some thread may have started another one before the kernel half saw forks.
        kernel.leave_out(&parser::running_processes())?;
        types.free();
        let mut sent = kernel.take_sent_stacks()?;
        let maps = kernel.take_user_stacks()?;
        let epochs = kernel.take_code_epochs()?;
        kernel::keep_rings_from_children();
        let shared = Arc::new(user_stacks::Shared::default());
        let forget = {
            let shared = Arc::clone(&shared);
            Box::new(move |stacks: &[StackId]| {
                sent.forget(stacks);
                shared.forget(stacks);
            })
        };
        let store = Store::new(sink, forget).map_err(CaptureError::Format)?;
        let counters = Arc::new(Counters { losses, stacks, copies: Arc::clone(&shared) });
        let control = Arc::new(Control::new(plan.trigger_pause));
        let (lookups, requested) = mpsc::sync_channel(MAX_LOOKUPS);
        let (to_store, messages) = mpsc::sync_channel(MAX_STORE_MESSAGES);
        let store = {
            let control = Arc::clone(&control);
            start(OwnThread::Store, Task::Storing, move || store.run(&messages, &control))?
        };
        let settling = Arc::clone(&shared);
        let lookup = {
            let to_store = to_store.clone();
            let names = plan.names.clone();
            let StackSettings { method, max_stacks, .. } = plan.settings.stacks;
            start(OwnThread::LookUp, Task::LookingUp, move || {
                reader_process::use_process(reading);
                let unwinder = UnwinderClient::new(method, unwinding);
                let stacks = StackProcessor::new(unwinder, max_stacks as usize)
                    .with_name_sources(names)
                    .with_code_epochs(Box::new(move |tgid| epochs.current(tgid)));
                let user_stacks = UserStackExchange::new(maps, shared);
                lookup::run(&requested, &to_store, stacks, user_stacks)
            })?
        };
        let drain = {
            let control = Arc::clone(&control);
            let triggers = TriggerMatcher::new(plan.triggers.clone());
            let looked_up = Arc::clone(&control.looked_up_bytes);
            let collector = Collector::new(lookups.clone(), plan.memory_limit, looked_up, triggers);
            let overhead = Overhead::new(KernelSide { costs, detail }, plan.max_overhead);
            let counters = Arc::clone(&counters);
            let to_store = to_store.clone();
            let mut drain = Drain::new(rings, collector, counters, programs, overhead, to_store);
            // Attaching takes a while, and all that was sent meanwhile lies before the window.
            drain.drain_early_records();
            start(OwnThread::Drain, Task::Draining, move || drain.run(&control))?
        };
        let mut armed = Self {
            kernel,
            disk_uses,
            counters,
            plan,
            control,
            to_store,
            lookups,
            drain,
            lookup,
            store,
        };
        // The children first: the opening survey says of each thread whether it is of the target.
        match armed.add_children().and_then(|()| armed.kernel.survey(Survey::Opening)) {
            Ok(()) => {
                settling.settle();
                Ok(armed)
            }
            Err(error) => {
                armed.control.stop.store(true, Ordering::Relaxed);
                drop((armed.to_store, armed.lookups));
                let _rest = armed.drain.join();
                if join_in_time(armed.lookup, PATIENCE, Instant::now() + PATIENCE).is_ok() {
                    let _store = armed.store.join();
                }
                Err(error.into())
            }
        }
    }

    /// Makes what the target's processes forked before now part of the target, and says so in its
    /// words.
    fn add_children(&mut self) -> Result<(), KernelError> {
        if !matches!(self.plan.settings.target, TargetFilter::Processes(_)) {
            return Ok(());
        }
        let children = self.kernel.add_children_of_targets()?;
        self.plan.target.push_str(&describe_children(children));
        let refused = self.count_refused_targets()?;
        if refused > 0 {
            // Each visit counts those that there is no room for once.
            self.kernel.survey(Survey::Children)?;
            let left_out = self.count_refused_targets()?.saturating_sub(refused);
            if left_out > 0 {
                let words = format!(" (at least {left_out} more left out by --max-targets)");
                self.plan.target.push_str(&words);
            }
        }
        Ok(())
    }

    /// How often a process found no room among the targets.
    fn count_refused_targets(&self) -> Result<u64, KernelError> {
        let losses = self.counters.losses()?;
        Ok(losses.counters.get("targets_full").copied().unwrap_or(0))
    }

    /// Opens the window.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand out its counters.
    pub fn open(self) -> Result<Capture<S>, CaptureError> {
        let losses = self.counters.losses()?;
        let used_before = disk_uses::keep_readable(self.disk_uses.read());
        // The programs have not been measured yet.
        let profiler_cost =
            ProfilerCost { stacks: self.counters.stacks()?, ..ProfilerCost::default() };
        let settings = &self.plan.settings;
        let now = kernel::now();
        let meta = Meta {
            window: Window { start: now, end: now },
            target: self.plan.target.clone(),
            scope: settings.scope,
            stacks: settings.stacks.mode,
            sample_hz: settings.sample_hz,
            options: options(settings, self.plan.max_overhead),
            kernel: read_line("/proc/sys/kernel/osrelease"),
            host: read_line("/proc/sys/kernel/hostname"),
            boot_id: read_line("/proc/sys/kernel/random/boot_id"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            closed_by: ClosedBy::CutOff,
            profiler: Some(Tgid(std::process::id())),
            ..Meta::default()
        };
        self.control.window_start.get_or_init(|| now);
        let start = RecordingStart { meta, losses, profiler_cost, own_cpu: own_cpu_time() };
        // The other end is gone only if its thread has died, and that is noticed when it is joined.
        let _died = self.to_store.send(StoreMessage::Start(Box::new(start)));
        Ok(Capture { armed: self, used_before, broken: None })
    }
}

impl<S: Sink> Capture<S> {
    /// The target in words, the children that were found included.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.armed.plan.target
    }

    /// Why the run can't go on, if it can't.
    #[must_use]
    pub fn exhausted(&self) -> Option<Exhausted> {
        let Armed { control, drain, lookup, store, .. } = &self.armed;
        let threads = [
            (OwnThread::Drain, drain.is_finished()),
            (OwnThread::LookUp, lookup.is_finished()),
            (OwnThread::Store, store.is_finished()),
        ];
        // None ends before the window is closed.
        if let Some((thread, _)) = threads.into_iter().find(|(_, is_finished)| *is_finished) {
            Some(Exhausted::Thread(thread))
        } else if control.sink_failed.load(Ordering::Relaxed) {
            Some(Exhausted::Sink)
        } else {
            control.memory_full.load(Ordering::Relaxed).then_some(Exhausted::Memory)
        }
    }

    /// Says what has failed. The run is to be closed then: what was recorded before is stored.
    pub fn set_broken(&mut self, error: CaptureError) {
        self.broken.get_or_insert(error);
    }

    /// Surveys every thread, and has the sink write out what it retains up to now. That takes a
    /// while, and the sink reports on its own whether it worked.
    ///
    /// # Errors
    ///
    /// If the kernel refuses to say who is waiting.
    pub fn snapshot(&mut self, reason: SnapshotReason) -> Result<(), CaptureError> {
        let Armed { kernel, control, drain, .. } = &mut self.armed;
        let (at, own_cpu) = (kernel::now(), own_cpu_time());
        let surveyed = kernel.survey(Survey::Snapshot);
        // Submitted even if the survey failed: what it sent must not be taken for what the next one
        // sends.
        let request = SurveyRequest::Snapshot(SnapshotRequest { reason, at, own_cpu });
        if !control.snapshots.submit(request, || !drain.is_finished()) {
            return Err(CaptureError::Thread(OwnThread::Drain));
        }
        Ok(surveyed?)
    }

    /// Surveys every thread for waits that have not ended and are too long for a trigger already. Call
    /// it once in every [`Capture::open_wait_interval`].
    ///
    /// # Errors
    ///
    /// If the kernel refuses to say who is waiting.
    pub fn find_long_open_waits(&mut self) -> Result<(), CaptureError> {
        let Armed { kernel, control, drain, .. } = &mut self.armed;
        let surveyed = kernel.survey(Survey::Snapshot);
        if !control.snapshots.submit(SurveyRequest::LongOpenWaits, || !drain.is_finished()) {
            return Err(CaptureError::Thread(OwnThread::Drain));
        }
        Ok(surveyed?)
    }

    /// How often to look for long waits that have not ended; none if there is no trigger.
    #[must_use]
    pub fn open_wait_interval(&self) -> Option<Duration> {
        trigger::open_wait_interval(&self.armed.plan.triggers)
    }

    /// Starts the sampling clock on CPUs that have come, or come back. Call it once in every
    /// [`Capture::clock_interval`].
    ///
    /// # Errors
    ///
    /// If the kernel does not say what there is.
    pub fn restart_silent_clocks(&mut self) -> Result<(), CaptureError> {
        Ok(self.armed.kernel.restart_silent_clocks()?)
    }

    /// How often to check the sampling clock: no sooner than it has struck again, a few times over.
    #[must_use]
    pub fn clock_interval(&self) -> Duration {
        const AT_LEAST: Duration = Duration::from_secs(1);
        const STRIKES: u32 = 4;
        let hz = self.armed.plan.settings.sample_hz.max(1);
        AT_LEAST.max(Duration::from_secs(1) * STRIKES / hz)
    }

    /// Adds the threads in another cgroup to the target, from now on. This takes effect if the
    /// target is cgroups that come and go ([`kernel::TargetFilter::Cgroups`]).
    ///
    /// # Errors
    ///
    /// If there have been too many.
    pub fn add_target_cgroup(&mut self, id: CgroupId) -> Result<(), CaptureError> {
        Ok(self.armed.kernel.add_target_cgroup(id)?)
    }

    /// The wait that was too long for a trigger, if it is time for its snapshot.
    #[must_use]
    pub fn take_long_wait(&self) -> Option<LongWait> {
        self.armed.control.pacer.take_due(kernel::now())
    }

    /// How many waits were too long, and too soon after another for a snapshot.
    #[must_use]
    pub fn suppressed_snapshots(&self) -> u64 {
        self.armed.control.pacer.suppressed()
    }

    /// Closes the window, records what is still open, and detaches. Whatever fails, what was
    /// recorded before goes on to be stored.
    #[must_use]
    pub fn close(self, closed_by: ClosedBy) -> Captured<S> {
        let Self { armed, used_before, mut broken } = self;
        let (closed_at, own_cpu) = (kernel::now(), own_cpu_time());
        let last_question = Instant::now() + armed.plan.end_within;
        end_deadline::set(last_question);
        let used = disk_uses::keep_readable(armed.disk_uses.read());
        let Armed { mut kernel, control, to_store, lookups, drain, lookup, store, .. } = armed;
        // What is read once at the end is read later if there is no room.
        let _full = lookups.try_send(Lookup::WindowClosed);
        if let Err(error) = kernel.survey(Survey::Closing) {
            broken.get_or_insert(error.into());
        }
        control.stop.store(true, Ordering::Relaxed);
        let (mut rest, mut open) = match drain.join() {
            Ok((rest, open)) => (Some(rest), open),
            Err(_panic) => {
                broken = Some(CaptureError::Thread(OwnThread::Drain));
                (None, OpenRecords::default())
            }
        };
        let window = control.window_start.get().map_or(Nanos(0), |start| closed_at.since(*start));
        open.lock_owners = find_lock_owners(&open.waits, window);
        open.stopped_threads = find_stopped_threads(&open.waits);
        open.awaited_children = find_awaited_children(&open.waits);
        let mut diagnostics = Diagnostics::new();
        open.file_locks = file_locks::find_awaited(&open.waits, &mut diagnostics);
        if let Some(rest) = &mut rest {
            rest.loss.add_diagnostics(&diagnostics);
        }
        let mut last = vec![Lookup::OpenWaits(Box::new(OpenWaits::from_records(&open)))];
        let mut unheeded = LossTotals::default();
        let loss = rest.as_mut().map_or(&mut unheeded, |rest| &mut rest.loss);
        let uses = disk_uses::subtract_earlier(used_before.as_ref(), used.as_ref(), loss);
        last.push(Lookup::DiskUses(uses));
        for lookup in last {
            // Nobody else asks any more. If there is no room, the look-up thread may never make any.
            if let (Err(TrySendError::Full(_)), Some(rest)) = (lookups.try_send(lookup), &mut rest)
            {
                *rest.loss.counters.entry("lookups_over_limit".to_owned()).or_default() += 1;
            }
        }
        let given_up_at = last_question + GRACE;
        Captured {
            rest,
            open,
            lookup,
            to_store,
            store,
            closed_at,
            own_cpu,
            closed_by,
            broken,
            given_up_at,
        }
    }
}

impl<S: Sink> Captured<S> {
    /// Waits for the names of everything that was recorded, and ends the recording. If the look-up
    /// thread has died or is given up, with the names that there are.
    ///
    /// # Errors
    ///
    /// If the thread has died that has the recording.
    pub fn finish(self) -> Result<Written<S>, CaptureError> {
        self.finish_within(PATIENCE)
    }

    fn finish_within(self, patience: Duration) -> Result<Written<S>, CaptureError> {
        let Self { rest, mut open, lookup, to_store, store, closed_at, .. } = self;
        let Self { own_cpu, closed_by, mut broken, given_up_at, .. } = self;
        let (mut results, mut names) = (None, Vec::new());
        let mut is_over = true;
        match join_in_time(lookup, patience, given_up_at) {
            Ok(last) => {
                (results, names) = (Some(last.results), last.names);
                open.fuse_servers = last.fuse_servers;
                open.disk_uses = last.disk_uses;
                open.io_limits = last.io_limits;
                open.filesystems = last.filesystems;
                open.pipe_holders = last.pipe_holders;
                polled_files::add_files(&mut open.waits, &last.polled_files);
                open.add_sleepers(&last.sleepers);
            }
            Err(lost) => {
                broken.get_or_insert(CaptureError::Thread(OwnThread::LookUp));
                is_over = lost != Lost::GivenUp;
                if lost == Lost::GivenUp {
                    // That thread can still send, so that the channel does not end.
                    let _died = to_store.send(StoreMessage::End);
                }
            }
        }
        drop(to_store);
        let store = store.join().map_err(|_panic| CaptureError::Thread(OwnThread::Store))?;
        let closed_by = if broken.is_some() { ClosedBy::Failed } else { closed_by };
        let end =
            RecordingEnd { records: rest, open, results, names, closed_at, own_cpu, closed_by };
        let written = Written { broken, ..store.close(end) };
        // Whoever makes something of the recording may ask. A thread that runs on may not.
        if is_over {
            end_deadline::clear();
        }
        Ok(written)
    }
}

fn start<T: Send + 'static>(
    thread: OwnThread,
    task: Task,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, CaptureError> {
    let with_no_more_rights = move || {
        if let Err(error) = scheduling::raise_priority() {
            log::info!("a thread may wait for a CPU for longer than it need: {error}");
        }
        privileges::restrict_to(task);
        body()
    };
    own_threads::spawn(thread, with_no_more_rights).map_err(|_error| CaptureError::Thread(thread))
}

/// The settings as the command line has them.
fn options(settings: &Settings, max_overhead: Option<OverheadLimit>) -> String {
    let Settings { scope, stacks, sample_hz, ring_bytes, max_threads, max_targets, .. } = settings;
    let StackSettings { mode, budget, check_one_in, max_stacks, method, .. } = stacks;
    let budget = budget.map_or("none".to_owned(), |budget| format!("{:.3}%", budget.as_percent()));
    let overhead =
        max_overhead.map_or("none".to_owned(), |limit| format!("{}%", limit.as_percent()));
    // A request may have several places.
    let mut probes: Vec<&str> = settings.marker_probes.iter().map(|it| it.words.as_str()).collect();
    probes.dedup();
    let probes: String = probes.iter().map(|words| format!(" --marker {words}")).collect();
    format!(
        "--scope {} --stacks {} --unwind {} --budget {budget} --check-stacks {check_one_in} --max-stacks {max_stacks} \
         --sample {sample_hz} --ring-size {ring_bytes} --max-threads {max_threads} --max-targets {max_targets} \
         --max-overhead {overhead} --markers {}{probes}",
        scope.name(),
        mode.name(),
        method.name(),
        settings.markers.name(),
    )
}

fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
