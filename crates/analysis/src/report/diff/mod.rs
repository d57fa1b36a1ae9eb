//! Two recordings, or two bands of requests of one, compared: what is waited for longer, and what shorter.
//!
//! Windows differ in length, so times are those of a second of the window; bands have different numbers of requests, so
//! times are those of a request. Thread ids differ from run
//! to run, so threads of one name are one. Which recording is which is as with `difffolded.pl` and
//! inferno: the one before comes first.

mod changes;
pub mod summary;

use std::{collections::BTreeMap, fmt, io};

use offwake_recording::units::Nanos;

pub(super) use changes::{Change, changes};

use super::{
    BlameEntry, Report, WaitEntry,
    flame::{self, Path, ThreadNames, View},
    folded,
};

/// Two reports, made with the same filter.
#[derive(Clone, Copy, Debug)]
pub struct Diff<'r> {
    /// The report of the recording that was made first, or that is the baseline.
    pub before: &'r Report,
    /// The report of the other recording.
    pub after: &'r Report,
    /// What times are divided by.
    pub per: RatePer,
}

/// What times are divided by before they are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RatePer {
    /// The seconds of each window.
    #[default]
    Second,
    /// The requests of each side.
    #[expect(missing_docs, reason = "as in `Diff`")]
    Request { before: u64, after: u64 },
}

/// Nanoseconds of waiting in each second of a window, or for each request. Of several threads together it may be
/// more than a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds.
    pub ns: u64,
    per: RatePer,
}

/// `12.5 ms/s`, `12.5 ms/request`
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per {
            RatePer::Second => "s",
            RatePer::Request { .. } => "request",
        };
        f.pad(&format!("{}/{unit}", Nanos(self.ns)))
    }
}

/// How much time some waiting took before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// The rate before.
    pub before: Rate,
    /// The rate after.
    pub after: Rate,
}

impl Rates {
    /// `+12.5 ms/s`, `-3.00 us/s`
    #[must_use]
    pub fn change(self) -> String {
        let sign = if self.after.ns >= self.before.ns { '+' } else { '-' };
        let Rate { ns, per } = self.after;
        format!("{sign}{}", Rate { ns: ns.abs_diff(self.before.ns), per })
    }
}

/// Time on both sides, not yet divided by the windows' lengths: wider than a report's sums, which
/// saturate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SideTimes {
    pub(super) before: u128,
    pub(super) after: u128,
}

impl std::ops::AddAssign for SideTimes {
    fn add_assign(&mut self, other: Self) {
        self.before += other.before;
        self.after += other.after;
    }
}

/// One of the two recordings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DiffSide {
    Before,
    After,
}

impl SideTimes {
    pub(super) fn on_side(side: DiffSide, time: Nanos) -> Self {
        match side {
            DiffSide::Before => Self { before: u128::from(time.0), after: 0 },
            DiffSide::After => Self { before: 0, after: u128::from(time.0) },
        }
    }
}

impl<'r> Diff<'r> {
    /// Divides times by the length of each side's window, or by its requests.
    pub(super) fn rates(&self, times: SideTimes) -> Rates {
        let rate = |time: u128, (unit, units): (u64, u64)| {
            let ns = time.saturating_mul(u128::from(unit)) / u128::from(units.max(1));
            Rate { ns: u64::try_from(ns).unwrap_or(u64::MAX), per: self.per }
        };
        let seconds = |report: &Report| (1_000_000_000, report.window.duration_ns.0);
        let (before, after) = match self.per {
            RatePer::Second => (seconds(self.before), seconds(self.after)),
            RatePer::Request { before, after } => ((1, before), (1, after)),
        };
        Rates { before: rate(times.before, before), after: rate(times.after, after) }
    }

    /// Returns each side with its name.
    pub(super) fn sides(&self) -> [(&'r str, &'r Report); 2] {
        let name = |report: &'r Report, usual| report.filter.band.as_deref().unwrap_or(usual);
        [(name(self.before, "before"), self.before), (name(self.after, "after"), self.after)]
    }

    /// Says what all times are those of.
    pub(super) fn unit(&self) -> &'static str {
        match self.per {
            RatePer::Second => "a second of the window",
            RatePer::Request { .. } => "a request",
        }
    }

    /// Returns the parts of both reports that flame graphs show.
    fn shown_parts(
        &self,
    ) -> impl Iterator<Item = (DiffSide, &'r WaitEntry, &'r BlameEntry)> + use<'r> {
        let of =
            |side, report| flame::shown_parts(report).map(move |(wait, part)| (side, wait, part));
        of(DiffSide::Before, self.before).chain(of(DiffSide::After, self.after))
    }

    /// Returns the rates of all waiting.
    fn total_rates(&self) -> Rates {
        let mut all = SideTimes::default();
        self.shown_parts().for_each(|(side, _, part)| all += SideTimes::on_side(side, part.ns));
        self.rates(all)
    }

    /// Returns the paths of both reports, with threads by name, whatever the view.
    pub(super) fn paths(
        &self,
        view: &View,
    ) -> impl Iterator<Item = (DiffSide, Path<'r>)> + use<'r> {
        let view = View { names: ThreadNames::WithoutIds, ..*view };
        let before = flame::paths(self.before, &view).map(|path| (DiffSide::Before, path));
        before.chain(flame::paths(self.after, &view).map(|path| (DiffSide::After, path)))
    }

    /// Writes folded stacks with two values each, before and after, in nanoseconds of waiting by
    /// the second: what `flamegraph.pl` and inferno draw as a differential flame graph.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_folded(&self, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
        let mut sums = BTreeMap::<String, SideTimes>::new();
        for (side, path) in self.paths(view) {
            *sums.entry(folded::line(&path.frames)).or_default() +=
                SideTimes::on_side(side, path.blame.ns);
        }
        for (path, times) in sums {
            let Rates { before, after } = self.rates(times);
            writeln!(out, "{path} {} {}", before.ns, after.ns)?;
        }
        Ok(())
    }
}
