//! Emptying the rings, often enough that they never fill.

use std::{
    sync::{Arc, atomic::Ordering, mpsc::SyncSender},
    time::Duration,
};

use super::{
    Control,
    collector::{Collector, OpenRecords, Records, Totals},
    counting::Counting,
    lookup::Lookup,
    own_cpu,
    snapshot::Snapshot,
    store::Part,
};
use crate::{
    kernel::{self, ProgramClock, Ring},
    units::{Nanos, Timestamp},
};

/// A ring of 4 MiB holds 16,900 waits: 1.7 million a second on each CPU at this pace.
const PACE: Duration = Duration::from_millis(10);
/// What is recorded is stored no later than this.
const LONGEST_SLICE: Nanos = Nanos(1_000_000_000);
/// Nor when there are more: 5 MiB before they are compressed, which stay in the cache meanwhile.
const LARGEST_SLICE: u64 = 16_384;
/// How long the kernel measures the programs, which makes each run of one dearer by some 20 ns.
const MEASURED_FOR: Nanos = Nanos(50_000_000);
/// How often it does.
const MEASURED_EVERY: Nanos = Nanos(5_000_000_000);
/// The counters are not read for every slice when there are many.
const LOSSES_EVERY: Nanos = Nanos(500_000_000);
/// A record gets its time some 100 ns before it can be seen in a ring.
const ON_ITS_WAY: Nanos = Nanos(1_000_000);

/// Empties the rings.
pub(super) struct Drain {
    rings: Vec<Ring>,
    collector: Collector,
    counting: Arc<Counting>,
    programs: ProgramClock,
    parts: SyncSender<Part>,
    totals: Totals,
    totals_read: Timestamp,
    measured: Timestamp,
    last_cut: Timestamp,
    /// A snapshot for which the look-ups had no room yet.
    pending: Option<Lookup>,
}

impl Drain {
    pub fn new(
        rings: Vec<Ring>,
        collector: Collector,
        counting: Arc<Counting>,
        programs: ProgramClock,
        parts: SyncSender<Part>,
    ) -> Self {
        Self {
            rings,
            collector,
            counting,
            programs,
            parts,
            totals: Totals::default(),
            totals_read: Timestamp(0),
            measured: Timestamp(0),
            last_cut: kernel::now(),
            pending: None,
        }
    }

    /// Takes what was sent before anybody was looked at.
    pub fn take_early(&mut self) {
        for ring in &mut self.rings {
            ring.drain(|bytes| self.collector.take_early(bytes));
        }
    }

    /// Runs until it is told to stop, and once more after that: everything that was sent before is
    /// kept. Gives back what was not handed on any more, and how everybody stood at last.
    pub fn run(mut self, control: &Control) -> (Records, OpenRecords) {
        loop {
            let is_last = control.stop.load(Ordering::Relaxed);
            // Before the rings: the survey has been, and what it sent is in them.
            let request = if self.pending.is_none() { control.desk.take() } else { None };
            if let Some(start) = control.window_start.get() {
                self.collector.open_at(*start);
            }
            let from = kernel::now();
            if control.window_start.get().is_some() {
                self.measure(from);
            }
            for ring in &mut self.rings {
                ring.drain(|bytes| self.collector.take(bytes));
                // One busy ring must not make a slice that is many times as large as it should be.
                if self.collector.count() >= 2 * LARGEST_SLICE && !is_last {
                    let until = self.last_cut;
                    hand_on(&mut self.collector, until, &self.totals, &self.parts);
                }
            }
            for trip in self.collector.take_trips() {
                control.trips.trip(trip);
            }
            if let Some(request) = request {
                self.read_totals(from);
                let until = Timestamp(from.0.saturating_sub(ON_ITS_WAY.0));
                hand_on(&mut self.collector, until, &self.totals, &self.parts);
                self.last_cut = from;
                let open = self.collector.take_open();
                self.pending = Some(Lookup::Snapshot(Box::new(Snapshot { request, open })));
                control.desk.done();
            }
            if let Some(lookup) = self.pending.take() {
                self.pending = self.collector.ask(lookup);
            }
            if self.collector.is_full() {
                control.memory_full.store(true, Ordering::Relaxed);
            }
            if is_last && self.pending.is_none() {
                self.programs.end_measuring();
                self.read_totals(from);
                let open = self.collector.take_open();
                let records = self.collector.cut(from, own_cpu::used(), self.totals);
                return (records, open);
            }
            let is_long = from.since(self.last_cut) >= LONGEST_SLICE;
            if is_long || self.collector.count() >= LARGEST_SLICE {
                if from.since(self.totals_read) >= LOSSES_EVERY {
                    self.read_totals(from);
                }
                let until = Timestamp(from.0.saturating_sub(ON_ITS_WAY.0));
                hand_on(&mut self.collector, until, &self.totals, &self.parts);
                self.last_cut = from;
            }
            std::thread::sleep(PACE);
        }
    }

    fn read_totals(&mut self, at: Timestamp) {
        self.totals_read = at;
        // They were read as the window opened. What was lost up to here is known in any case.
        if let Ok(loss) = self.counting.losses() {
            self.totals.loss = loss;
        }
        if let Ok(stacks) = self.counting.stacks() {
            self.totals.effort.stacks = stacks;
        }
        self.totals.effort.programs = self.programs.measured();
        self.totals.undecodable_copies = self.counting.undecodable_copies();
    }

    /// Has the kernel measure the programs for a moment now and then.
    fn measure(&mut self, at: Timestamp) {
        let since = at.since(self.measured);
        if self.programs.is_measuring() {
            if since >= MEASURED_FOR {
                self.programs.end_measuring();
            }
        } else if since >= MEASURED_EVERY {
            self.programs.begin_measuring();
            self.measured = at;
        }
    }
}

/// Waits if the store has not kept up: the rings fill meanwhile, and what finds no room there is
/// counted and dated.
fn hand_on(collector: &mut Collector, until: Timestamp, totals: &Totals, parts: &SyncSender<Part>) {
    let records = collector.cut(until, own_cpu::used(), totals.clone());
    // The other end is gone only if its thread has died, and that is noticed when it is joined.
    let _died = parts.send(Part::Records(Box::new(records)));
}
