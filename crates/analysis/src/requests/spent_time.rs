//! What the requests of a class spent their time on, with work divided by function.

use std::collections::HashMap;

use offwake_recording::units::Nanos;

use crate::findings::{CulpritTime, CulpritWriter};

use super::{
    compare::{Compared, OrderedRequests},
    profiles::{CulpritId, RequestPart, SpentOn},
    work_functions::{ComparedCounts, ProgramWork, Speed, WorkFunctions},
};

/// How long requests were spent on what.
type Times = HashMap<SpentOn, Nanos, foldhash::fast::RandomState>;

impl OrderedRequests<'_> {
    /// Divides work by the functions that slow requests have more of.
    pub(super) fn divide_work(mut self, writer: &mut CulpritWriter<'_>) -> Self {
        let Some(Compared { fast, slow, .. }) = self.compared() else { return self };
        let slow = self.places(slow).to_vec();
        for &place in &slow {
            if let Some(speed) = self.speeds.get_mut(place) {
                *speed = Speed::Slow;
            }
        }
        let fast = self.places(fast);
        let mut work: HashMap<CulpritId, ProgramWork> = HashMap::new();
        let is_own_work = |part: &RequestPart| {
            self.profiles.queued_behind(part).is_none() && self.profiles.is_work(part.culprit)
        };
        for &place in self.order {
            for part in self.parts_of(place).iter().filter(|part| is_own_work(part)) {
                let culprit = self.profiles.first_alike(part.culprit);
                let CulpritTime { stack, time, .. } = part.time;
                work.entry(culprit).or_default().add(self.speed(place), stack, time);
            }
        }
        for part in self.parts(fast).filter(|part| is_own_work(part)) {
            let culprit = self.profiles.first_alike(part.culprit);
            let CulpritTime { stack, time, .. } = part.time;
            work.entry(culprit).or_default().add_to_fast(stack, time);
        }
        let counts = ComparedCounts { slow: slow.len(), fast: fast.len() };
        let least = self.least_excess(self.mean_latency(&slow) - self.mean_latency(fast));
        self.functions = WorkFunctions::find(work, counts, least, writer);
        self
    }

    /// Returns what the time of some requests was spent on.
    pub(super) fn times(&self, places: &[usize]) -> Times {
        let mut times = Times::default();
        for &place in places {
            for part in self.parts_of(place) {
                self.visit_spent_on(place, part, |on, time| *times.entry(on).or_default() += time);
            }
        }
        times
    }

    /// Calls `visit` with what a part of a request was spent on, and how much of it.
    fn visit_spent_on(
        &self,
        place: usize,
        part: &RequestPart,
        mut visit: impl FnMut(SpentOn, Nanos),
    ) {
        match self.profiles.queued_behind(part) {
            Some(class) => visit(SpentOn::Queue(class), part.time.time),
            None => self.visit_culprit(place, part, visit),
        }
    }

    /// Calls `visit` with what whoever took a part of a request did meanwhile, and for how much of it.
    pub(super) fn visit_culprit(
        &self,
        place: usize,
        part: &RequestPart,
        mut visit: impl FnMut(SpentOn, Nanos),
    ) {
        let id = part.culprit;
        let CulpritTime { stack, time, .. } = part.time;
        let culprit = self.profiles.first_alike(id);
        self.functions.visit(culprit, self.speed(place), (stack, time), |function, time| {
            visit(function.map_or(SpentOn::Culprit(id), |one| SpentOn::InFunction(id, one)), time);
        });
    }

    /// Returns how much of a request's time would not have been without something. Without a culprit, servers would
    /// not have been held up by it while other requests lay in their sockets either.
    pub(super) fn time_of(&self, place: usize, on: SpentOn) -> Nanos {
        let mut all = Nanos(0);
        for part in self.parts_of(place) {
            let mut add = |one: SpentOn, time: Nanos| {
                if self.is_same(one, on) {
                    all += time;
                }
            };
            match on {
                SpentOn::Queue(_) => self.visit_spent_on(place, part, add),
                SpentOn::Culprit(_) | SpentOn::InFunction(..) => {
                    self.visit_culprit(place, part, &mut add);
                }
            }
        }
        all
    }

    /// Returns whether two are the same but for what lay in sockets meanwhile.
    fn is_same(&self, one: SpentOn, other: SpentOn) -> bool {
        let first = |id| self.profiles.first_alike(id);
        match (one, other) {
            (SpentOn::Culprit(one), SpentOn::Culprit(other)) => first(one) == first(other),
            (SpentOn::InFunction(one, function), SpentOn::InFunction(other, others)) => {
                first(one) == first(other) && function == others
            }
            _ => one == other,
        }
    }

    fn speed(&self, place: usize) -> Speed {
        self.speeds.get(place).copied().unwrap_or(Speed::Other)
    }

    pub(super) fn parts_of(&self, place: usize) -> &[RequestPart] {
        self.profiles.parts(self.first + place)
    }

    pub(super) fn parts<'s>(
        &'s self,
        places: &'s [usize],
    ) -> impl Iterator<Item = &'s RequestPart> {
        places.iter().flat_map(|&place| self.parts_of(place))
    }

    /// Returns how much of a request's time its server worked for others.
    pub(super) fn queued_time(&self, place: usize) -> Nanos {
        let parts = self.parts_of(place).iter();
        let queued = parts.filter(|part| self.profiles.queued_behind(part).is_some());
        queued.map(|part| part.time.time).sum()
    }
}
