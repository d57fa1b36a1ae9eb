//! The requests of a recording, all of them, and what they come to.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
};

use offwake_recording::units::{Nanos, Tid, Timestamp};

use crate::{
    blame::Blame,
    filter::RequestWaits,
    findings::{CulpritWriter, WaitMeanings, with_culprit_writer},
    report,
    spans::{Roles, otlp::RequestLabels},
    timeline::{State, ThreadIndex, WaitIndex},
};

use super::{
    bands::{self, BandRange},
    compare::OrderedRequests,
    found::{ClassId, CountedRequests, FoundRequests, Request, UnassignedKey, find_requests},
    model::{RequestClass, Requests, RequestsNotToldApart, SummedUpClasses, UnansweredRequests},
    profiles::Profiles,
};

/// The most classes that are listed.
const MAX_CLASSES: usize = 50;

/// The slowest requests of so many classes are shown one by one.
const CLASSES_WITH_SLOWEST: usize = 3;

/// The requests that the target made or served: all of them, and what they come to.
#[derive(Debug)]
pub struct RequestAnalysis {
    pub(super) found: FoundRequests,
    pub(super) profiles: Profiles,
    /// Those that most of the time went to first.
    pub(super) classes: Vec<RequestsOfClass>,
    summary: Requests,
}

/// The places of the requests of a class.
#[derive(Clone, Debug)]
pub(super) struct RequestsOfClass {
    pub(super) class: ClassId,
    /// The place of the first one among all requests; the others follow.
    pub(super) first: usize,
    /// Their places in the class, the fastest one first.
    pub(super) order: Vec<usize>,
}

impl RequestAnalysis {
    /// Finds the requests that the target made or served, and what they took.
    #[must_use]
    pub fn find(blame: &Blame<'_>) -> Self {
        let meanings = WaitMeanings::new(blame);
        let found = find_requests(blame, &meanings);
        let profiles = Profiles::new(blame, &meanings, &found.answered);
        let classes = divide_into_classes(&found);
        let summary = with_culprit_writer(meanings, |writer| {
            summarise(blame, &found, &profiles, &classes, writer)
        });
        Self { found, profiles, classes, summary }
    }

    /// What the requests come to.
    #[must_use]
    pub fn summary(&self) -> &Requests {
        &self.summary
    }

    /// What the requests come to, and nothing of each.
    #[must_use]
    pub fn into_summary(self) -> Requests {
        self.summary
    }

    /// Returns how many requests a band has, and the waits of those that asked and of those that served meanwhile.
    #[must_use]
    pub fn waits_in_band(&self, blame: &Blame<'_>, band: BandRange) -> (u64, RequestWaits) {
        let (mut count, mut waits) = (0, HashSet::new());
        for class in &self.classes {
            for (rank, request) in self.requests_in_order(class).enumerate() {
                if band.contains(rank, class.order.len()) {
                    let Request { thread, server, from, to, .. } = *request;
                    count += 1;
                    waits.extend(find_waits(blame, thread, from, to));
                    waits.extend(find_waits(blame, server, from, to));
                }
            }
        }
        (count, RequestWaits::new(band.to_string(), waits))
    }

    /// Returns the class and band of each request of a listed class, by the thread whose time it is and by when it was
    /// answered.
    pub(crate) fn labels(&self, blame: &Blame<'_>) -> HashMap<(Tid, Timestamp), RequestLabels> {
        let mut labels = HashMap::new();
        for (class, listed) in self.classes.iter().zip(&self.summary.classes) {
            let name = format!("{} ({})", listed.program, listed.asked_for());
            let bands = bands::divide(class.order.len());
            for (rank, request) in self.requests_in_order(class).enumerate() {
                let band = bands.iter().find(|band| band.ranks.contains(&rank));
                let thread = blame.timeline().thread(request.thread);
                if let Some((band, thread)) = band.zip(thread) {
                    let found = RequestLabels { class: name.clone(), band: band.name() };
                    labels.insert((thread.tid, request.to), found);
                }
            }
        }
        labels
    }

    /// Returns the requests of a class, the fastest one first.
    fn requests_in_order<'a>(
        &'a self,
        class: &'a RequestsOfClass,
    ) -> impl Iterator<Item = &'a Request> + 'a {
        let places = class.order.iter().map(|place| class.first + place);
        places.filter_map(|place| self.found.answered.get(place))
    }
}

/// Returns the waits of a thread that went on between two moments.
fn find_waits<'a>(
    blame: &'a Blame<'_>,
    thread: ThreadIndex,
    from: Timestamp,
    to: Timestamp,
) -> impl Iterator<Item = WaitIndex> + use<'a> {
    let track = blame.timeline().thread(thread).map(|thread| &thread.track);
    let intervals = track.into_iter().flat_map(move |track| track.newest_between(from, to));
    intervals.filter_map(|interval| match interval.state {
        State::Blocked(wait) => Some(wait),
        _ => None,
    })
}

fn divide_into_classes(found: &FoundRequests) -> Vec<RequestsOfClass> {
    let mut classes = Vec::new();
    let mut first = 0;
    for requests in found.answered.chunk_by(|a, b| a.class == b.class) {
        if let Some(&Request { class, .. }) = requests.first() {
            let mut order: Vec<usize> = (0..requests.len()).collect();
            order
                .sort_by_key(|&n| requests.get(n).map(|request| (request.latency(), request.from)));
            let time: Nanos = requests.iter().map(Request::latency).sum();
            classes.push((Reverse(time), RequestsOfClass { class, first, order }));
        }
        first += requests.len();
    }
    classes.sort_by_key(|(time, of_class)| (*time, of_class.class));
    classes.into_iter().map(|(_, of_class)| of_class).collect()
}

fn summarise(
    blame: &Blame<'_>,
    found: &FoundRequests,
    profiles: &Profiles,
    classes: &[RequestsOfClass],
    writer: &mut CulpritWriter<'_>,
) -> Requests {
    let mut listed = Vec::new();
    let mut summed_up = SummedUpClasses::default();
    let count_cut = |class: ClassId| found.cut.get(&class).map_or(0, |cut| cut.count);
    for (n, of_class) in classes.iter().enumerate() {
        let ordered = OrderedRequests::new(blame, found, profiles, of_class);
        if n >= MAX_CLASSES {
            summed_up.classes += 1;
            summed_up.count += of_class.order.len() as u64;
            summed_up.ns += ordered.time();
            summed_up.unfinished += count_cut(of_class.class);
            continue;
        }
        let Some(key) = found.classes.get_index(of_class.class.0 as usize) else { continue };
        let ordered = ordered.divide_work(writer);
        let mut servers: BTreeMap<ThreadIndex, Nanos> = BTreeMap::new();
        for request in ordered.in_order() {
            *servers.entry(request.server).or_default() += request.service;
        }
        let server = writer.name_server(key.server, &servers);
        let slowest = match n < CLASSES_WITH_SLOWEST {
            true => ordered.describe_slowest(writer),
            false => Vec::new(),
        };
        listed.push(RequestClass {
            server: CulpritWriter::server_line(&server),
            program: server.program,
            pid: server.pid,
            container: server.container,
            serving_end: key.serving_end.clone(),
            label: key.label.clone(),
            roles_known: key.roles == Roles::Known,
            unfinished: count_cut(of_class.class),
            slowest,
            ..ordered.describe(writer)
        });
    }
    let unanswered = list_unanswered(found, classes, &mut summed_up, writer);
    Requests {
        schema: Requests::SCHEMA,
        window: report::window_entry(blame.recording()),
        classes: listed,
        unanswered,
        summed_up,
        not_told_apart: found.not_told_apart.values().map(|counted| counted.count).sum(),
        not_told_apart_by_server: list_not_told_apart(found, writer),
    }
}

/// Lists what can't be assigned to requests, the most first.
fn list_not_told_apart(
    found: &FoundRequests,
    writer: &CulpritWriter<'_>,
) -> Vec<RequestsNotToldApart> {
    let mut listed: Vec<_> = found.not_told_apart.iter().collect();
    listed.sort_by_key(|(_, counted)| Reverse(counted.count));
    let entry = |(key, counted): (&UnassignedKey, &CountedRequests)| {
        let threads = counted.servers.iter().map(|&server| (server, Nanos(0))).collect();
        let server = writer.name_server(key.server, &threads);
        RequestsNotToldApart {
            server: CulpritWriter::server_line(&server),
            program: server.program,
            pid: server.pid,
            container: server.container,
            serving_end: key.serving_end.clone(),
            reason: key.reason,
            count: counted.count,
        }
    };
    listed.into_iter().take(MAX_CLASSES).map(entry).collect()
}

/// Lists the requests of classes of which none was answered, and sums up those that there is no room for.
fn list_unanswered(
    found: &FoundRequests,
    classes: &[RequestsOfClass],
    summed_up: &mut SummedUpClasses,
    writer: &CulpritWriter<'_>,
) -> Vec<UnansweredRequests> {
    let answered: HashSet<ClassId> = classes.iter().map(|of_class| of_class.class).collect();
    let mut cut: Vec<_> = found.cut.iter().filter(|(class, _)| !answered.contains(class)).collect();
    cut.sort_by_key(|(class, cut)| (Reverse(cut.count), **class));
    let mut listed = Vec::new();
    for (class, CountedRequests { count, servers }) in cut {
        let Some(key) = found.classes.get_index(class.0 as usize) else { continue };
        if listed.len() >= MAX_CLASSES {
            summed_up.classes += 1;
            summed_up.unfinished += count;
            continue;
        }
        let threads = servers.iter().map(|&server| (server, Nanos(0))).collect();
        let server = writer.name_server(key.server, &threads);
        listed.push(UnansweredRequests {
            server: CulpritWriter::server_line(&server),
            program: server.program,
            pid: server.pid,
            container: server.container,
            serving_end: key.serving_end.clone(),
            label: key.label.clone(),
            roles_known: key.roles == Roles::Known,
            unfinished: *count,
        });
    }
    listed
}
