//! Requests as every output has them.

use offwake_recording::units::{Nanos, Tgid, Timestamp};
use schemars::{JsonSchema, Schema};
use serde::Serialize;

use crate::{
    blame::{BlameEntryKind, Reason},
    formats::json,
    report::WindowEntry,
    text,
};

use super::write::with_commas;

/// The requests that the target made or served: `docs/requests.md`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Requests {
    /// `offwake.requests/1`
    #[schemars(extend("const" = "offwake.requests/1"))]
    pub schema: &'static str,
    /// The time in which requests were looked for.
    pub window: WindowEntry,
    /// Those that are alike, by the time that they took, all of them together: the most first.
    pub classes: Vec<RequestClass>,
    /// Those of which none was answered, the most first: longer than the time that was recorded.
    pub unanswered: Vec<UnansweredRequests>,
    /// What there was no room for.
    pub summed_up: SummedUpClasses,
    /// How often something came for a thread that serves, or asks, several at once, of which nothing tells to
    /// which request it belongs.
    pub not_told_apart: u64,
    /// The same, by server and reason, the most first. 50 are listed at most.
    pub not_told_apart_by_server: Vec<RequestsNotToldApart>,
}

impl RequestsNotToldApart {
    /// Says in one line what can't be told apart, and why.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { server, serving_end, reason, count, .. } = self;
        let serving_end = text::terminal(serving_end);
        let waits = if *count == 1 {
            "1 wait".to_owned()
        } else {
            format!("{} waits", with_commas(*count))
        };
        let begin = format!("requests of {server} ({serving_end}) can't be told apart");
        match reason {
            NotToldApartReason::ClientWaitsForSeveral => format!(
                "{begin}: clients ended {waits} of its threads, and both ends wait for several connections at once"
            ),
            NotToldApartReason::ClientDidNotWait => format!(
                "{begin}: clients ended {waits} of its threads, and did not fall asleep at their sockets"
            ),
            NotToldApartReason::ClientNotSeen => format!(
                "{begin}: packets ended {waits} of its threads, from other machines or clients that were not seen, and it serves several connections at once"
            ),
            NotToldApartReason::AskerWaitsForSeveral => {
                format!("{begin}: it ended {waits} of clients that wait for several things at once")
            }
            NotToldApartReason::SidesUnknown => format!(
                "{server}: others ended {waits} for several things at once ({serving_end}), and nothing tells whether they asked or answered"
            ),
        }
    }
}

impl Requests {
    /// The name of the schema.
    pub const SCHEMA: &'static str = "offwake.requests/1";

    /// The JSON schema of `x.requests.json`; `docs/requests.schema.json` is a copy. It allows for more keys than
    /// there are: additions are free.
    #[must_use]
    pub fn json_schema_root() -> Schema {
        json::schema_of::<Self>(Self::SCHEMA)
    }
}

/// Classes that are not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SummedUpClasses {
    /// How many.
    pub classes: u64,
    /// How many requests they have.
    pub count: u64,
    /// The time of these, all together.
    pub ns: Nanos,
    /// How many more they have that the end of the recording cut.
    pub unfinished: u64,
}

/// Requests that one program is asked at one place, and answered none of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnansweredRequests {
    /// Who serves them: `orders-api 4242`.
    pub server: String,
    /// The program: `postgres`.
    pub program: String,
    /// Its process, if it is one.
    pub pid: Option<Tgid>,
    /// Its container.
    pub container: Option<String>,
    /// Where it is asked, as in [`RequestClass::serving_end`].
    pub serving_end: String,
    /// What the serving threads say that they are for, as in [`RequestClass::label`].
    pub label: Option<String>,
    /// Whether it is known which end serves.
    pub roles_known: bool,
    /// How many.
    pub unfinished: u64,
}

/// What came for event loops of one program, and nothing tells for which of their requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequestsNotToldApart {
    /// Who serves: `redis-server 4242`; where nothing tells who does, whoever was woken.
    pub server: String,
    /// The program: `redis-server`.
    pub program: String,
    /// Its process, if it is one.
    pub pid: Option<Tgid>,
    /// Its container.
    pub container: Option<String>,
    /// Where it is asked, as in [`RequestClass::serving_end`].
    pub serving_end: String,
    /// Why they can't be told apart.
    pub reason: NotToldApartReason,
    /// How many waits ended by this. Each may have been for several requests.
    pub count: u64,
}

/// Why nothing tells to which request a wake belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotToldApartReason {
    /// The server and its client each wait for several connections at once: nothing tells which answer belongs to
    /// which question.
    ClientWaitsForSeveral,
    /// The server serves several connections at once, and the client did not fall asleep at its socket.
    ClientDidNotWait,
    /// The server serves several connections at once, and the client is on another machine, or was not
    /// seen.
    ClientNotSeen,
    /// Whoever asked waits for several at once, and the server's side of it was not seen.
    AskerWaitsForSeveral,
    /// An event loop was woken by others, and nothing tells whether they asked it or answered it.
    SidesUnknown,
}

/// Requests that one program is asked at one place.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RequestClass {
    /// Who serves them: `orders-api 4242`, `postgres ×20`.
    pub server: String,
    /// The program: `postgres`.
    pub program: String,
    /// The process, if it was one only.
    pub pid: Option<Tgid>,
    /// The label of its container.
    pub container: Option<String>,
    /// Where it is asked: `tcp 127.0.0.1:5432`, `unix /run/app.sock`, `pipe`, `futex`.
    pub serving_end: String,
    /// What the serving threads say that they are for, by a label of the program's own:
    /// `http.route=/checkout`. None if they say nothing.
    pub label: Option<String>,
    /// Whether a socket tells who asks and who serves. Where nothing does, such as at a pipe, these may be waits for
    /// the next request.
    pub roles_known: bool,
    /// How many requests were answered.
    pub count: u64,
    /// How many the window cut: they are in no percentile.
    pub unfinished: u64,
    /// Of the answered ones, those that were seen from the server alone: their time is from when the request came to
    /// when the server waited for its next one.
    pub seen_by_server: u64,
    /// Those that nobody saw beginning, as the server was awake: their time is from when the one that asked fell asleep.
    pub start_unseen: u64,
    /// The time of all of them together.
    pub ns: Nanos,
    /// How long they took.
    pub latency: Latencies,
    /// How long servers took for them.
    pub service: Latencies,
    /// The same requests, divided by how long they took: the shortest ones first.
    pub bands: Vec<RequestBand>,
    /// The slowest of them, compared with the fast half. None if there are too few.
    pub slow: Option<SlowRequests>,
    /// How many took how long.
    pub histogram: Vec<LatencyBucket>,
    /// The five slowest, the slowest one first, of the classes that most of the time went to.
    pub slowest: Vec<SlowestRequest>,
}

impl RequestClass {
    /// Returns where they are asked and what for: `tcp 127.0.0.1:80, http.route=/checkout`.
    #[must_use]
    pub fn asked_for(&self) -> String {
        join_label(&self.serving_end, self.label.as_deref())
    }
}

impl UnansweredRequests {
    /// Returns where they are asked and what for, as [`RequestClass::asked_for`] does.
    #[must_use]
    pub fn asked_for(&self) -> String {
        join_label(&self.serving_end, self.label.as_deref())
    }
}

fn join_label(serving_end: &str, label: Option<&str>) -> String {
    match label {
        Some(label) => format!("{serving_end}, {label}"),
        None => serving_end.to_owned(),
    }
}

/// How many requests took between two times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LatencyBucket {
    /// As long as this at least.
    pub from_ns: Nanos,
    /// Less than this: about 1.26 times as long.
    pub to_ns: Nanos,
    /// How many.
    pub count: u64,
}

/// One request, and what the threads did meanwhile that had to do with it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SlowestRequest {
    /// When it began: `CLOCK_MONOTONIC`, as in `window`.
    pub start_ns: Timestamp,
    /// How long it took.
    pub latency_ns: Nanos,
    /// What for, the most first.
    pub culprits: Vec<CulpritShare>,
    /// What there was no room for in the list.
    pub other_ns: Nanos,
    /// The one that asked, the one that served, and those that they waited for.
    pub threads: Vec<RequestThread>,
}

/// What a thread did while a request went on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RequestThread {
    /// Which: `orders-api 4242 [worker-1]`.
    pub name: String,
    /// Its part in the request.
    pub role: RequestRole,
    /// In order.
    pub states: Vec<ThreadStretch>,
}

/// A thread's part in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestRole {
    /// It asked.
    Asked,
    /// It was asked.
    Served,
    /// It was waited for.
    WaitedFor,
}

impl RequestRole {
    /// Returns it in words, after the thread's name.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Served => "served",
            Self::WaitedFor => "waited for",
        }
    }
}

/// A stretch of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ThreadStretch {
    /// When it began, since the beginning of the request.
    pub from_ns: Nanos,
    /// When it ended.
    pub to_ns: Nanos,
    /// What the thread did.
    pub state: StretchState,
}

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum StretchState {
    OnCpu,
    Runnable,
    Throttled,
    Blocked,
    Lost,
}

/// Percentiles of times, of the nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Latencies {
    /// The mean.
    pub mean_ns: Nanos,
    /// Half of them took at most this long.
    pub p50_ns: Nanos,
    /// Nine of ten.
    pub p90_ns: Nanos,
    /// 99 of 100.
    pub p99_ns: Nanos,
    /// 999 of 1,000.
    pub p999_ns: Nanos,
    /// The longest.
    pub max_ns: Nanos,
}

/// Requests of one class whose latencies lie between two percentiles.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RequestBand {
    /// `p0–50`, `p99–99.9`
    pub name: String,
    /// How many.
    pub count: u64,
    /// The shortest latency of them.
    pub min_ns: Nanos,
    /// The longest.
    pub max_ns: Nanos,
    /// Their mean latency.
    pub mean_ns: Nanos,
    /// What it was spent on, the most first. Adds up to the mean, but for what is less than a nanosecond a request.
    pub culprits: Vec<CulpritShare>,
    /// What there was no room for in the list.
    pub other_ns: Nanos,
}

/// What part of requests' time was spent on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CulpritShare {
    /// Who, and on what: `compactor 4260 waits for the disk nvme0n1 (ext4, /) in flush_index`.
    pub text: String,
    /// Where the requests were asked that the server worked on meanwhile, if it had not begun on these. All else here
    /// is what the server did for the longest part of that time.
    pub queued_behind: Option<String>,
    /// What the server did meanwhile, the most first; three at most.
    pub meanwhile: Vec<Meanwhile>,
    /// Who waited for it, and what for: the first one on the way that waited for a lock, else the one that waited for it
    /// itself. None if that was who asked, or if there was no way that more than half of the time came by.
    pub held_up: Option<String>,
    /// The program.
    pub program: String,
    /// The process, if it was one only.
    pub pid: Option<Tgid>,
    /// The thread's own name, if it was one only and has one.
    pub thread_name: Option<String>,
    /// The function in which it slept or worked.
    pub function: Option<String>,
    /// What it did.
    pub kind: BlameEntryKind,
    /// Why it is not known, if it is not.
    pub reason: Option<Reason>,
    /// How much of the mean latency.
    pub mean_ns: Nanos,
}

/// What a server did while requests lay in their sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Meanwhile {
    /// Who, and on what, as in [`CulpritShare::text`].
    pub text: String,
    /// How much of the mean latency.
    pub mean_ns: Nanos,
}

/// What the slow requests have that the fast ones do not.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SlowRequests {
    /// From which percentile on they are slow: 99, or less if there are few.
    pub from_percentile: f64,
    /// How many.
    pub count: u64,
    /// Their mean latency.
    pub mean_ns: Nanos,
    /// The mean latency of the fast half.
    pub fast_mean_ns: Nanos,
    /// What makes the difference, the most first.
    pub excess: Vec<Excess>,
}

/// What slow requests spend more time on than fast ones.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Excess {
    /// Who, and on what, in the slow ones.
    pub culprit: CulpritShare,
    /// How much of the mean latency it is in the fast ones.
    pub fast_mean_ns: Nanos,
    /// The difference.
    pub excess_ns: Nanos,
    /// How long the requests of the class would take at least if none had spent any time on this: it may be more,
    /// as something else may come to light.
    pub without: Latencies,
}

/// A percentile that would be lower without a culprit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedPercentile {
    /// `p99`, `max`
    pub name: &'static str,
    /// What it is.
    pub now: Nanos,
    /// What it would at least be.
    pub least: Nanos,
}

/// A percentile that drops by less than this part is as good as the same.
const MIN_CHANGE: f64 = 0.01;

impl Excess {
    /// Returns the percentile that tells best what it would bring to be rid of the culprit, of a class with these
    /// latencies: p99; one above it if that stays as it is; else one below. None if none of them changes.
    #[must_use]
    pub fn changed_percentile(&self, latency: &Latencies) -> Option<ChangedPercentile> {
        let percentile = |name, now, least| ChangedPercentile { name, now, least };
        let without = &self.without;
        let percentiles = [
            percentile("p99", latency.p99_ns, without.p99_ns),
            percentile("p99.9", latency.p999_ns, without.p999_ns),
            percentile("max", latency.max_ns, without.max_ns),
            percentile("p90", latency.p90_ns, without.p90_ns),
            percentile("p50", latency.p50_ns, without.p50_ns),
        ];
        percentiles.into_iter().find(ChangedPercentile::is_lower)
    }
}

impl ChangedPercentile {
    fn is_lower(&self) -> bool {
        let dropped = self.now - self.least;
        dropped.0 as f64 >= self.now.0 as f64 * MIN_CHANGE
            && self.now.to_string() != self.least.to_string()
    }
}
