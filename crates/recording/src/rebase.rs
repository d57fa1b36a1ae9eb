//! A recording as if it had been made at another time: what it says of its threads stays the same,
//! and when that was is not in it any more.

use super::{Clocks, Recording};
use crate::units::Timestamp;

/// 2026-01-01T00:00:00Z in nanoseconds since 1970.
const WINDOW_OPENS_NS: i128 = 1_767_225_600_000_000_000;

impl Recording {
    /// Moves all its times, so that the earliest moment that it knows of is 0, and sets the wall's
    /// clock so that the window opens at 2026-01-01T00:00:00Z.
    ///
    /// A thread's creation is such a moment, and threads are told apart by it: it moves like all
    /// others. The timeout of a wait stays as the syscall had it, and so do the addresses, the
    /// process ids and the numbers of files.
    pub fn rebase(&mut self) {
        let earliest = self.moments().map(|moment| *moment).min().unwrap_or_default();
        let wall = self.clocks.first().map_or(0, |clocks| {
            let opened = i128::from(self.meta.window.start.0) - i128::from(clocks.monotonic.0);
            WINDOW_OPENS_NS - (i128::from(clocks.realtime_ns) + opened)
        });
        for moment in self.moments() {
            *moment = Timestamp(moment.since(earliest).0);
        }
        for Clocks { realtime_ns, boottime_ns, .. } in &mut self.clocks {
            let moved = i128::from(*realtime_ns) + wall;
            *realtime_ns = moved.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            *boottime_ns = boottime_ns.saturating_sub(earliest.0);
        }
    }

    /// Every moment on the clock of the records.
    fn moments(&mut self) -> impl Iterator<Item = &mut Timestamp> {
        let window = [&mut self.meta.window.start, &mut self.meta.window.end];
        let ring_full = self.loss.ring_full.as_mut().map(|(first, last)| [first, last]);
        let off = self
            .preemptions
            .iter_mut()
            .flat_map(|p| [&mut p.off, &mut p.on].into_iter().chain(&mut p.migrated));
        let throttled = self.throttles.iter_mut().flat_map(|t| [&mut t.from, &mut t.until]);
        let counted = self.quotas.values_mut().flat_map(|q| [&mut q.first.at, &mut q.last.at]);
        let seen = self.thread_events.iter_mut().flat_map(|seen| [&mut seen.at, &mut seen.created]);
        let summed = self.summed.iter_mut().flat_map(|s| [&mut s.from, &mut s.until]);
        let detail = self.detail.iter_mut().flat_map(|d| [&mut d.from, &mut d.until]);
        let tagged = self
            .tag_changes
            .iter_mut()
            .flat_map(|change| [&mut change.at].into_iter().chain(&mut change.since));
        (window.into_iter().chain(ring_full.into_iter().flatten()))
            .chain(self.waits.moments())
            .chain(off)
            .chain(throttled)
            .chain(summed)
            .chain(detail)
            .chain(counted)
            .chain(seen)
            .chain(tagged)
            .chain(self.exits.iter_mut().map(|exit| &mut exit.at))
            .chain(self.samples.iter_mut().map(|sample| &mut sample.at))
            .chain(self.markers.iter_mut().map(|marker| &mut marker.at))
            .chain(self.file_lock_events.iter_mut().map(|event| &mut event.at))
            .chain(self.processes.iter_mut().map(|process| &mut process.at))
            .chain(self.clocks.iter_mut().map(|clocks| &mut clocks.monotonic))
    }
}
