//! Compares the slow requests of a class with its fast ones.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    ops::Range,
    rc::Rc,
};

use offwake_recording::units::Nanos;

use crate::{
    blame::Blame,
    findings::{CulpritTime, CulpritWriter},
    label::Label,
    text,
    timeline::ThreadIndex,
};

use super::{
    analysis::RequestsOfClass,
    bands::{self, Band, FEWEST},
    found::{ClassId, FoundRequests, Request, SeenBy},
    model::{
        CulpritShare, Excess, Latencies, LatencyBucket, Meanwhile, RequestBand, RequestClass,
        SlowRequests, SlowestRequest,
    },
    profiles::{CulpritId, Profiles, RequestCulprit, SpentOn, WayId},
    slowest::{SLOWEST, describe_threads},
    work_functions::{FunctionId, Speed, WorkFunctions},
};

/// The most culprits that are listed of a band, or of what slow requests have more.
const MAX_CULPRITS: usize = 12;

/// The most that is listed of what a server did while requests lay in their sockets.
const MAX_MEANWHILE: usize = 3;

/// What makes a smaller part of the difference is not listed.
const MIN_EXCESS: f64 = 0.01;

/// Slow requests begin at the highest of these percentiles above which there are enough of them.
const SLOW_FROM: [f64; 2] = [99.0, 90.0];

/// The requests of a class in the order of their latencies.
pub(super) struct OrderedRequests<'a> {
    blame: &'a Blame<'a>,
    found: &'a FoundRequests,
    pub(super) profiles: &'a Profiles,
    class: ClassId,
    /// The place of the class's first request among all.
    pub(super) first: usize,
    requests: &'a [Request],
    /// The places of the requests in the class, the shortest one first.
    pub(super) order: &'a [usize],
    pub(super) functions: WorkFunctions,
    /// By the place of a request in the class.
    pub(super) speeds: Vec<Speed>,
}

/// The requests of a class that are compared.
pub(super) struct Compared {
    /// From which percentile on they are slow.
    from_percentile: f64,
    /// The ranks of the fast half.
    pub(super) fast: Range<usize>,
    /// The ranks of the slow ones.
    pub(super) slow: Range<usize>,
}

impl<'a> OrderedRequests<'a> {
    pub(super) fn new(
        blame: &'a Blame<'a>,
        found: &'a FoundRequests,
        profiles: &'a Profiles,
        of_class: &'a RequestsOfClass,
    ) -> Self {
        let &RequestsOfClass { class, first, ref order } = of_class;
        let requests = found.answered.get(first..first + order.len()).unwrap_or_default();
        let functions = WorkFunctions::default();
        let speeds = vec![Speed::Other; requests.len()];
        Self { blame, found, profiles, class, first, requests, order, functions, speeds }
    }

    /// Says what the requests took, and what for. Whose class it is is left to be filled in.
    pub(super) fn describe(&self, writer: &mut CulpritWriter<'_>) -> RequestClass {
        let latencies: Vec<Nanos> = self.in_order().map(Request::latency).collect();
        let mut services: Vec<Nanos> = (self.requests.iter().enumerate())
            .map(|(n, request)| request.service_behind_queue(self.queued_time(n)))
            .collect();
        services.sort_unstable();
        let count = |is_counted: fn(SeenBy) -> bool| {
            self.requests.iter().filter(|request| is_counted(request.seen_by)).count() as u64
        };
        let bands = bands::divide(self.requests.len());
        RequestClass {
            server: String::new(),
            program: String::new(),
            pid: None,
            container: None,
            serving_end: String::new(),
            label: None,
            roles_known: false,
            unfinished: 0,
            count: self.requests.len() as u64,
            seen_by_server: count(|seen_by| matches!(seen_by, SeenBy::Server(_))),
            start_unseen: count(SeenBy::is_start_unseen),
            ns: self.time(),
            latency: Latencies::from_sorted(&latencies),
            service: Latencies::from_sorted(&services),
            slow: self.describe_slow(&latencies, writer),
            bands: bands.iter().map(|band| self.describe_band(band, writer)).collect(),
            histogram: count_by_latency(&latencies),
            slowest: Vec::new(),
        }
    }

    /// Describes the slowest requests one by one, the slowest one first.
    pub(super) fn describe_slowest(&self, writer: &mut CulpritWriter<'_>) -> Vec<SlowestRequest> {
        let places = self.order.iter().rev().take(SLOWEST);
        places
            .filter_map(|place| {
                let request = self.requests.get(*place)?;
                let parts = self.profiles.parts(self.first + place);
                let (culprits, other_ns) =
                    self.describe_culprits(std::slice::from_ref(place), writer);
                Some(SlowestRequest {
                    start_ns: request.from,
                    latency_ns: request.latency(),
                    culprits,
                    other_ns,
                    threads: describe_threads(self.blame, request, parts, writer),
                })
            })
            .collect()
    }

    /// The time of all of them together.
    pub(super) fn time(&self) -> Nanos {
        self.requests.iter().map(Request::latency).sum()
    }
}

/// How many buckets of the histogram there are from one time to ten times that.
const BUCKETS_PER_DECADE: f64 = 10.0;

/// Counts latencies in order, in buckets that are equally wide on a logarithmic axis.
fn count_by_latency(sorted: &[Nanos]) -> Vec<LatencyBucket> {
    let bucket = |latency: &Nanos| (latency.0.max(1) as f64).log10() * BUCKETS_PER_DECADE;
    let bound = |n: f64| Nanos(10_f64.powf(n / BUCKETS_PER_DECADE).round() as u64);
    let same = |one: &Nanos, other: &Nanos| bucket(one).floor() == bucket(other).floor();
    (sorted.chunk_by(same))
        .filter_map(|alike| {
            let n = bucket(alike.first()?).floor();
            Some(LatencyBucket {
                from_ns: bound(n),
                to_ns: bound(n + 1.0),
                count: alike.len() as u64,
            })
        })
        .collect()
}

impl Latencies {
    fn from_sorted(sorted: &[Nanos]) -> Self {
        let percentile = |percent| bands::percentile(sorted, percent).unwrap_or_default();
        Self {
            mean_ns: mean(sorted.iter().copied().sum(), sorted.len()),
            p50_ns: percentile(50.0),
            p90_ns: percentile(90.0),
            p99_ns: percentile(99.0),
            p999_ns: percentile(99.9),
            max_ns: percentile(100.0),
        }
    }
}

/// Returns the mean of so many times, rounded to the nearest nanosecond.
fn mean(sum: Nanos, count: usize) -> Nanos {
    let count = count.max(1) as u64;
    Nanos((sum.0 + count / 2) / count)
}

impl OrderedRequests<'_> {
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Request> + '_ {
        self.order.iter().filter_map(|&n| self.requests.get(n))
    }

    /// Returns the places of some requests in the class.
    pub(super) fn places(&self, ranks: Range<usize>) -> &[usize] {
        self.order.get(ranks).unwrap_or_default()
    }

    pub(super) fn mean_latency(&self, places: &[usize]) -> Nanos {
        let requests = places.iter().filter_map(|&n| self.requests.get(n));
        mean(requests.map(Request::latency).sum(), places.len())
    }

    fn describe_band(&self, band: &Band, writer: &mut CulpritWriter<'_>) -> RequestBand {
        let places = self.places(band.ranks.clone());
        let (culprits, other_ns) = self.describe_culprits(places, writer);
        let latency = |place: Option<&usize>| {
            place.and_then(|&n| self.requests.get(n)).map_or(Nanos(0), Request::latency)
        };
        RequestBand {
            name: band.name(),
            count: places.len() as u64,
            min_ns: latency(places.first()),
            max_ns: latency(places.last()),
            mean_ns: self.mean_latency(places),
            culprits,
            other_ns,
        }
    }

    /// Returns what the time of some requests was spent on, the most first, and how much of the mean there is no room
    /// for.
    fn describe_culprits(
        &self,
        places: &[usize],
        writer: &mut CulpritWriter<'_>,
    ) -> (Vec<CulpritShare>, Nanos) {
        let mut times: Vec<(SpentOn, Nanos)> = self.times(places).into_iter().collect();
        times.sort_unstable_by_key(|&(on, time)| (Reverse(time), on));
        let other: Nanos = times.iter().skip(MAX_CULPRITS).map(|&(_, time)| time).sum();
        let culprits = (times.iter().take(MAX_CULPRITS))
            .filter_map(|&(on, time)| self.describe_share(on, time, places, writer))
            .collect();
        (culprits, mean(other, places.len()))
    }

    /// Returns what each request was spent on for the most part, and how long, in the order of their latencies.
    pub(super) fn describe_main_culprits(
        &self,
        writer: &mut CulpritWriter<'_>,
    ) -> Vec<Option<(Rc<CulpritShare>, Nanos)>> {
        let mut described: HashMap<SpentOn, Option<Rc<CulpritShare>>> = HashMap::new();
        let mains = self.order.iter().map(|&place| {
            let times = self.times(std::slice::from_ref(&place));
            times.into_iter().max_by_key(|&(on, time)| (time, Reverse(on)))
        });
        mains
            .map(|main| {
                let (on, time) = main?;
                let share = described.entry(on).or_insert_with(|| {
                    let share = self.describe_share(on, time, self.order, writer);
                    share.map(Rc::new)
                });
                Some((share.clone()?, time))
            })
            .collect()
    }

    /// Describes what some requests spent so much time on.
    fn describe_share(
        &self,
        on: SpentOn,
        time: Nanos,
        places: &[usize],
        writer: &mut CulpritWriter<'_>,
    ) -> Option<CulpritShare> {
        match on {
            SpentOn::Culprit(id) => self.describe_culprit((id, None), time, places, writer),
            SpentOn::InFunction(id, function) => {
                self.describe_culprit((id, Some(function)), time, places, writer)
            }
            SpentOn::Queue(class) => self.describe_queue(class, time, places, writer),
        }
    }

    /// Describes what the server did while some requests lay in their sockets for so long.
    fn describe_queue(
        &self,
        class: ClassId,
        time: Nanos,
        places: &[usize],
        writer: &mut CulpritWriter<'_>,
    ) -> Option<CulpritShare> {
        let key = self.found.classes.get_index(class.0 as usize)?;
        let mut times: HashMap<CulpritId, Nanos> = HashMap::new();
        let queued = self.parts(places);
        for part in queued.filter(|part| self.profiles.queued_behind(part) == Some(class)) {
            *times.entry(part.culprit).or_default() += part.time.time;
        }
        let mut times: Vec<(CulpritId, Nanos)> = times.into_iter().collect();
        times.sort_unstable_by_key(|&(culprit, time)| (Reverse(time), culprit));
        let meanwhile: Vec<CulpritShare> = (times.into_iter().take(MAX_MEANWHILE))
            .filter_map(|(id, time)| self.describe_all_of_culprit(id, time, places, writer))
            .collect();
        let first = meanwhile.first()?.clone();
        Some(CulpritShare {
            text: match class == self.class {
                true => "queued behind other requests".to_owned(),
                false => format!("queued behind requests to {}", text::terminal(&key.serving_end)),
            },
            queued_behind: Some(key.serving_end.clone()),
            meanwhile: (meanwhile.into_iter())
                .map(|share| Meanwhile { text: share.text, mean_ns: share.mean_ns })
                .collect(),
            held_up: None,
            mean_ns: mean(time, places.len()),
            ..first
        })
    }

    /// Describes what a culprit did in some requests, in one function or in none of those that its work is divided by.
    fn describe_culprit(
        &self,
        (id, function): (CulpritId, Option<FunctionId>),
        time: Nanos,
        places: &[usize],
        writer: &mut CulpritWriter<'_>,
    ) -> Option<CulpritShare> {
        let on = function.map_or(SpentOn::Culprit(id), |one| SpentOn::InFunction(id, one));
        let mut times: Vec<(CulpritTime, WayId)> = Vec::new();
        for &place in places {
            for part in self.parts_of(place).iter().filter(|part| part.culprit == id) {
                self.visit_culprit(place, part, |one, time| {
                    if one == on {
                        times.push((CulpritTime { time, ..part.time }, part.way));
                    }
                });
            }
        }
        let label = function.and_then(|function| self.functions.label(function));
        self.describe_times((id, label), time, (places, times), writer)
    }

    /// Describes what a culprit did in some requests, whatever function it was in.
    fn describe_all_of_culprit(
        &self,
        id: CulpritId,
        time: Nanos,
        places: &[usize],
        writer: &mut CulpritWriter<'_>,
    ) -> Option<CulpritShare> {
        let times = self.parts(places).filter(|part| part.culprit == id);
        let times = times.map(|part| (part.time, part.way)).collect();
        self.describe_times((id, None), time, (places, times), writer)
    }

    /// Describes what a culprit did in some requests, of which it took these times.
    fn describe_times(
        &self,
        (id, function): (CulpritId, Option<&Label>),
        time: Nanos,
        (places, times): (&[usize], Vec<(CulpritTime, WayId)>),
        writer: &mut CulpritWriter<'_>,
    ) -> Option<CulpritShare> {
        let RequestCulprit { culprit, .. } = self.profiles.culprit(id)?;
        let mut waiters: BTreeMap<ThreadIndex, Nanos> = BTreeMap::new();
        for request in places.iter().filter_map(|&n| self.requests.get(n)) {
            *waiters.entry(request.thread).or_default() += request.latency();
        }
        let ways = times.iter().map(|(time, way)| (self.profiles.way(*way), time.time));
        let held_up = writer.describe_way(ways);
        let times = times.iter().map(|&(time, _)| time);
        let hop = writer.describe((culprit, function), times, &waiters);
        Some(CulpritShare {
            text: CulpritWriter::line(&hop),
            queued_behind: None,
            meanwhile: Vec::new(),
            held_up,
            program: hop.program,
            pid: hop.pid,
            thread_name: hop.thread_name,
            function: hop.function,
            kind: culprit.kind(),
            reason: culprit.reason(),
            mean_ns: mean(time, places.len()),
        })
    }

    /// Returns which requests are slow, and which ones they are compared with. None if there are too few of either.
    pub(super) fn compared(&self) -> Option<Compared> {
        let bands = bands::divide(self.order.len());
        let [fast, .., slowest] = bands.as_slice() else { return None };
        let (from_percentile, rank) = SLOW_FROM
            .into_iter()
            .filter_map(|from| {
                let first = bands.iter().find(|band| band.from >= from)?;
                Some((from, first.ranks.start))
            })
            .find(|&(_, rank)| self.order.len() - rank >= FEWEST)
            .unwrap_or((slowest.from, slowest.ranks.start));
        let (fast, slow) = (fast.ranks.clone(), rank..self.order.len());
        Some(Compared { from_percentile, fast, slow })
    }

    /// Returns the least that is listed of a difference.
    pub(super) fn least_excess(&self, difference: Nanos) -> f64 {
        difference.0 as f64 * MIN_EXCESS
    }

    /// Compares the slowest requests with the fast half. None if there are too few of either.
    fn describe_slow(
        &self,
        latencies: &[Nanos],
        writer: &mut CulpritWriter<'_>,
    ) -> Option<SlowRequests> {
        let Compared { from_percentile, fast, slow } = self.compared()?;
        let (fast, slow) = (self.places(fast), self.places(slow));
        let (fast_mean, slow_mean) = (self.mean_latency(fast), self.mean_latency(slow));
        let (fast_times, slow_times) = (self.times(fast), self.times(slow));
        let in_fast =
            |on: SpentOn| mean(fast_times.get(&on).copied().unwrap_or_default(), fast.len());
        let mut excess: Vec<(SpentOn, Nanos, Nanos)> = (slow_times.iter())
            .map(|(&on, &time)| (on, time, mean(time, slow.len()) - in_fast(on)))
            .collect();
        let least = self.least_excess(slow_mean - fast_mean);
        excess.retain(|&(_, _, more)| more > Nanos(0) && more.0 as f64 >= least);
        excess.sort_unstable_by_key(|&(on, _, more)| (Reverse(more), on));
        excess.truncate(MAX_CULPRITS);
        let excess = (excess.into_iter())
            .filter_map(|(on, time, more)| {
                Some(Excess {
                    culprit: self.describe_share(on, time, slow, writer)?,
                    fast_mean_ns: in_fast(on),
                    excess_ns: more,
                    without: self.latencies_without(on, latencies),
                })
            })
            .collect();
        Some(SlowRequests {
            from_percentile,
            count: slow.len() as u64,
            mean_ns: slow_mean,
            fast_mean_ns: fast_mean,
            excess,
        })
    }

    /// Returns how long requests would take if a culprit had taken no time of any. `latencies` are in order.
    fn latencies_without(&self, on: SpentOn, latencies: &[Nanos]) -> Latencies {
        let mut without: Vec<Nanos> = (self.order.iter().zip(latencies))
            .map(|(&n, latency)| *latency - self.time_of(n, on))
            .collect();
        without.sort_unstable();
        Latencies::from_sorted(&without)
    }
}
