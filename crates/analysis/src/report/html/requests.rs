//! The requests of a page: how long they took, and what the slow ones have that the fast ones do not.

use serde::Serialize;

use crate::requests::{
    CulpritShare, Latencies, RequestBand, RequestClass, RequestThread, Requests, SlowRequests,
    SlowestRequest, StretchState,
};

use super::{class::PageClass, texts::sanitise};

/// The most classes that the page has.
const MAX_CLASSES: usize = 10;
/// The most culprits of a band, of the slow requests, or of one of them.
const MAX_CULPRITS: usize = 8;
/// The most servers of which requests can't be told apart.
const MAX_NOT_TOLD_APART: usize = 10;

/// Times are nanoseconds.
#[derive(Serialize)]
pub(super) struct PageRequests {
    classes: Vec<ClassEntry>,
    classes_left_out: u64,
    not_told_apart: Vec<String>,
}

#[derive(Serialize)]
struct ClassEntry {
    server: String,
    /// And what for, by the program's own label.
    serving_end: String,
    roles_known: bool,
    count: u64,
    unfinished: u64,
    seen_by_server: u64,
    start_unseen: u64,
    /// Mean, p50, p90, p99, p99.9 and the longest.
    latency: [u64; 6],
    service: [u64; 6],
    /// From which time, to which, and how many.
    histogram: Vec<[u64; 3]>,
    bands: Vec<BandEntry>,
    slow: Option<SlowEntry>,
    slowest: Vec<SlowestEntry>,
}

#[derive(Serialize)]
struct BandEntry {
    name: String,
    count: u64,
    /// The shortest latency in it, and the longest.
    from_ns: u64,
    to_ns: u64,
    mean_ns: u64,
    parts: Vec<PartEntry>,
    other_ns: u64,
}

/// A culprit, and what it took of the mean.
#[derive(Serialize)]
struct PartEntry {
    text: String,
    class: PageClass,
    ns: u64,
    meanwhile: Vec<(String, u64)>,
    held_up: Option<String>,
}

#[derive(Serialize)]
struct SlowEntry {
    from_percentile: f64,
    count: u64,
    mean_ns: u64,
    fast_mean_ns: u64,
    excess: Vec<ExcessEntry>,
    /// What a percentile would be without the first of these, in words.
    bound: Option<String>,
}

#[derive(Serialize)]
struct ExcessEntry {
    text: String,
    class: PageClass,
    ns: u64,
    meanwhile: Vec<(String, u64)>,
    held_up: Option<String>,
}

#[derive(Serialize)]
struct SlowestEntry {
    /// Since the window opened.
    at_ns: u64,
    ns: u64,
    parts: Vec<PartEntry>,
    other_ns: u64,
    threads: Vec<ThreadEntry>,
}

#[derive(Serialize)]
struct ThreadEntry {
    name: String,
    role: &'static str,
    /// `[from, to, state]`: the state's place among those of the timeline.
    states: Vec<(u64, u64, u8)>,
}

/// Builds the requests that the page has room for.
pub(super) fn build_requests(requests: &Requests) -> PageRequests {
    let start = requests.window.start_ns.0;
    let all = requests.classes.len() as u64 + requests.summed_up.classes;
    // Those come first of which it is known that they are requests.
    let (known, unknown): (Vec<_>, Vec<_>) =
        requests.classes.iter().partition(|class| class.roles_known);
    let classes: Vec<_> = (known.into_iter().chain(unknown).take(MAX_CLASSES))
        .map(|class| class_entry(class, start))
        .collect();
    PageRequests {
        classes_left_out: all - classes.len() as u64,
        classes,
        not_told_apart: (requests.not_told_apart_by_server.iter().take(MAX_NOT_TOLD_APART))
            .map(|one| sanitise(&one.describe()))
            .collect(),
    }
}

fn class_entry(class: &RequestClass, window_start: u64) -> ClassEntry {
    ClassEntry {
        server: sanitise(&class.server),
        serving_end: sanitise(&class.asked_for()),
        roles_known: class.roles_known,
        count: class.count,
        unfinished: class.unfinished,
        seen_by_server: class.seen_by_server,
        start_unseen: class.start_unseen,
        latency: percentiles(&class.latency),
        service: percentiles(&class.service),
        histogram: (class.histogram.iter())
            .map(|bucket| [bucket.from_ns.0, bucket.to_ns.0, bucket.count])
            .collect(),
        bands: class.bands.iter().map(band_entry).collect(),
        slow: class.slow.as_ref().map(|slow| slow_entry(slow, &class.latency)),
        slowest: class.slowest.iter().map(|one| slowest_entry(one, window_start)).collect(),
    }
}

fn percentiles(times: &Latencies) -> [u64; 6] {
    let Latencies { mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = *times;
    [mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns].map(|time| time.0)
}

fn band_entry(band: &RequestBand) -> BandEntry {
    let (parts, other_ns) = part_entries(&band.culprits, band.other_ns.0);
    BandEntry {
        name: band.name.clone(),
        count: band.count,
        from_ns: band.min_ns.0,
        to_ns: band.max_ns.0,
        mean_ns: band.mean_ns.0,
        parts,
        other_ns,
    }
}

/// Returns the largest parts, and what all others come to.
fn part_entries(culprits: &[CulpritShare], other_ns: u64) -> (Vec<PartEntry>, u64) {
    let (shown, rest) = culprits.split_at(culprits.len().min(MAX_CULPRITS));
    let part = |culprit: &CulpritShare| PartEntry {
        text: sanitise(&culprit.text),
        class: culprit_class(culprit),
        ns: culprit.mean_ns.0,
        meanwhile: meanwhile_entries(culprit),
        held_up: culprit.held_up.as_deref().map(sanitise),
    };
    let rest: u64 = rest.iter().map(|culprit| culprit.mean_ns.0).sum();
    (shown.iter().map(part).collect(), other_ns + rest)
}

/// What the server did while requests lay in their sockets.
fn meanwhile_entries(culprit: &CulpritShare) -> Vec<(String, u64)> {
    let entries = culprit.meanwhile.iter();
    entries.map(|one| (sanitise(&one.text), one.mean_ns.0)).collect()
}

fn culprit_class(culprit: &CulpritShare) -> PageClass {
    PageClass::from_kind(culprit.kind, culprit.reason)
}

fn slow_entry(slow: &SlowRequests, latency: &Latencies) -> SlowEntry {
    let first = slow.excess.first();
    let changed = first.and_then(|first| first.changed_percentile(latency));
    SlowEntry {
        from_percentile: slow.from_percentile,
        count: slow.count,
        mean_ns: slow.mean_ns.0,
        fast_mean_ns: slow.fast_mean_ns.0,
        excess: (slow.excess.iter().take(MAX_CULPRITS))
            .map(|one| ExcessEntry {
                text: sanitise(&one.culprit.text),
                class: culprit_class(&one.culprit),
                ns: one.excess_ns.0,
                meanwhile: meanwhile_entries(&one.culprit),
                held_up: one.culprit.held_up.as_deref().map(sanitise),
            })
            .collect(),
        bound: changed.map(|changed| changed.describe(latency)),
    }
}

fn slowest_entry(request: &SlowestRequest, window_start: u64) -> SlowestEntry {
    let (parts, other_ns) = part_entries(&request.culprits, request.other_ns.0);
    SlowestEntry {
        at_ns: request.start_ns.0.saturating_sub(window_start),
        ns: request.latency_ns.0,
        parts,
        other_ns,
        threads: request.threads.iter().map(thread_entry).collect(),
    }
}

fn thread_entry(thread: &RequestThread) -> ThreadEntry {
    ThreadEntry {
        name: sanitise(&thread.name),
        role: thread.role.words(),
        states: (thread.states.iter())
            .map(|one| (one.from_ns.0, one.to_ns.0, state_place(one.state)))
            .collect(),
    }
}

/// The place of a state among those of the page's timeline.
fn state_place(state: StretchState) -> u8 {
    match state {
        StretchState::OnCpu => 0,
        StretchState::Runnable | StretchState::Throttled => 1,
        StretchState::Blocked => 2,
        StretchState::Lost => 3,
    }
}
