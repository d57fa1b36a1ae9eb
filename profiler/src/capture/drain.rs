//! The drain: empties the rings, often enough that they never fill.

use std::{
    sync::{Arc, atomic::Ordering, mpsc::SyncSender},
    time::Duration,
};

use offwake_recording::units::{Nanos, Timestamp};

use super::{
    clocks::own_cpu_time,
    collector::{Collector, KernelTotals},
    control::Control,
    counters::Counters,
    messages::{Lookup, OpenRecords, RecordBatch, StoreMessage, SurveyRequest, SurveyedSnapshot},
    overhead::Overhead,
};
use crate::{
    kernel::{self, ProgramTimer, Ring},
    own_threads,
};

/// A ring of 4 MiB holds 16,900 waits: 1.7 million a second on each CPU at this interval.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);
/// A slice covers no more time than this.
const LONGEST_SLICE: Nanos = Nanos(1_000_000_000);
/// A slice has no more records than this: 5 MiB before they are compressed, which stay in the
/// CPU's cache meanwhile.
const LARGEST_SLICE: u64 = 16_384;
/// How long the kernel measures the programs, which makes each run of one dearer by some 20 ns.
const MEASURING_TIME: Nanos = Nanos(50_000_000);
/// How often the kernel measures the programs.
const MEASURING_INTERVAL: Nanos = Nanos(5_000_000_000);
/// How often the counters are read at most: not for every slice when there are many.
const TOTALS_INTERVAL: Nanos = Nanos(500_000_000);
/// A record gets its time some 100 ns before it can be seen in a ring: this is surely longer.
const RING_DELAY: Nanos = Nanos(1_000_000);

/// Empties the rings.
pub(super) struct Drain {
    rings: Vec<Ring>,
    collector: Collector,
    counters: Arc<Counters>,
    programs: ProgramTimer,
    overhead: Overhead,
    store: SyncSender<StoreMessage>,
    totals: KernelTotals,
    totals_read: Timestamp,
    measured: Timestamp,
    last_cut: Timestamp,
    /// A snapshot for which the look-up thread had no room yet.
    pending: Option<Lookup>,
}

impl Drain {
    pub fn new(
        rings: Vec<Ring>,
        collector: Collector,
        counters: Arc<Counters>,
        programs: ProgramTimer,
        overhead: Overhead,
        store: SyncSender<StoreMessage>,
    ) -> Self {
        Self {
            rings,
            collector,
            counters,
            programs,
            overhead,
            store,
            totals: KernelTotals::default(),
            totals_read: Timestamp(0),
            measured: Timestamp(0),
            last_cut: kernel::now(),
            pending: None,
        }
    }

    /// Drains what was sent before the opening survey.
    pub fn drain_early_records(&mut self) {
        for ring in &mut self.rings {
            ring.drain(|bytes| self.collector.add_early_record(bytes));
        }
    }

    /// Runs until it is told to stop, and once more after that: everything that was sent before is
    /// kept. Returns what was not sent to the store any more, and how everybody stood at last.
    pub fn run(mut self, control: &Control) -> (RecordBatch, OpenRecords) {
        loop {
            own_threads::pass();
            let is_last = control.stop.load(Ordering::Relaxed);
            // Taken before the rings are read: the survey is done, and what it sent is in them.
            let request =
                if self.pending.is_none() { control.snapshots.take_request() } else { None };
            if let Some(start) = control.window_start.get() {
                self.collector.open_window(*start);
            }
            let from = kernel::now();
            if control.window_start.get().is_some() {
                self.measure_programs(from);
                self.overhead.pass(from);
            }
            for index in 0..self.rings.len() {
                if let Some(ring) = self.rings.get_mut(index) {
                    ring.drain(|bytes| self.collector.add_record(bytes));
                }
                // One busy ring must not make a slice that is many times as large as it should be.
                if self.collector.len() >= 2 * LARGEST_SLICE && !is_last {
                    let until = self.last_cut;
                    self.send_batch(until);
                }
            }
            for long_wait in self.collector.take_long_waits() {
                control.pacer.request(long_wait);
            }
            if let Some(SurveyRequest::LongOpenWaits) = &request {
                let quiet_until = control.pacer.quiet_until();
                for long_wait in self.collector.take_long_open_waits(quiet_until) {
                    control.pacer.request(long_wait);
                }
                control.snapshots.complete();
            }
            if let Some(SurveyRequest::Snapshot(request)) = request {
                self.read_totals(from);
                let until = Timestamp(from.0.saturating_sub(RING_DELAY.0));
                self.send_batch(until);
                self.last_cut = from;
                let open = self.collector.take_open_records();
                let window =
                    control.window_start.get().map_or(Nanos(0), |start| from.since(*start));
                let surveyed = SurveyedSnapshot { request, window, open };
                self.pending = Some(Lookup::Snapshot(Box::new(surveyed)));
                control.snapshots.complete();
            }
            if let Some(lookup) = self.pending.take() {
                self.pending = self.collector.try_request(lookup);
            }
            if self.collector.is_full() {
                control.memory_full.store(true, Ordering::Relaxed);
            }
            if is_last && self.pending.is_none() {
                self.programs.stop_measuring();
                self.read_totals(from);
                let open = self.collector.take_open_records();
                self.overhead.measure(from);
                let detail = self.overhead.take_stretches();
                let records = self.collector.take_batch(from, own_cpu_time(), self.totals);
                return (RecordBatch { detail, ..records }, open);
            }
            let is_long = from.since(self.last_cut) >= LONGEST_SLICE;
            if is_long || self.collector.len() >= LARGEST_SLICE {
                if from.since(self.totals_read) >= TOTALS_INTERVAL {
                    self.read_totals(from);
                }
                let until = Timestamp(from.0.saturating_sub(RING_DELAY.0));
                self.send_batch(until);
                self.last_cut = from;
            }
            std::thread::sleep(DRAIN_INTERVAL);
        }
    }

    fn read_totals(&mut self, at: Timestamp) {
        self.totals_read = at;
        // If a read fails, the totals of the last one stand: all of them were read once as the
        // window opened.
        if let Ok(loss) = self.counters.losses() {
            self.totals.loss = loss;
        }
        if let Ok(stacks) = self.counters.stacks() {
            self.totals.profiler_cost.stacks = stacks;
        }
        self.totals.profiler_cost.programs = self.programs.measured();
        self.totals.undecodable_copies = self.counters.undecodable_copies();
    }

    /// Has the kernel measure the programs for a moment now and then.
    fn measure_programs(&mut self, at: Timestamp) {
        let since = at.since(self.measured);
        if self.programs.is_measuring() {
            if since >= MEASURING_TIME {
                self.programs.stop_measuring();
            }
        } else if since >= MEASURING_INTERVAL {
            self.programs.start_measuring();
            self.measured = at;
        }
    }

    /// Sends a batch to the store, and waits if the store has not kept up: the rings fill meanwhile, and
    /// what finds no room there is counted and dated.
    fn send_batch(&mut self, until: Timestamp) {
        let records = self.collector.take_batch(until, own_cpu_time(), self.totals.clone());
        let detail = self.overhead.take_stretches();
        let records = RecordBatch { detail, ..records };
        // The other end is gone only if its thread has died, and that is noticed when it is joined.
        let _died = self.store.send(StoreMessage::Records(Box::new(records)));
    }
}
