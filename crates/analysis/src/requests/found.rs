//! Finds requests, and what serves them.

use std::collections::{BTreeSet, HashMap};

use indexmap::{IndexMap, IndexSet};
use offwake_recording::{
    FileId, Recording, SocketEnd, Wait,
    units::{Nanos, Tgid, Timestamp},
};

use crate::{
    blame::{Blame, ConnectionSides, cause::Cause, descriptor},
    findings::{ServerProgram, WaitMeanings},
    spans::{AskedRequest, Hands, RequestStart, Roles, SpanInput, find_asked_requests},
    tags::ThreadTags,
    timeline::{ThreadIndex, WaitIndex},
};

use super::{
    model::NotToldApartReason,
    not_told_apart::{UnassignedWake, find_unassigned_wakes},
    turns::{Turn, find_turns},
};

/// The labels that name what a request is for, in the words of
/// [OpenTelemetry](https://opentelemetry.io/docs/specs/semconv/registry/attributes/): the first one that the
/// serving thread has. Of these there are few values, as of the names of spans.
const CLASS_LABELS: [&str; 6] = [
    "http.route",
    "rpc.method",
    "graphql.operation.name",
    "messaging.operation.name",
    "db.query.summary",
    "route",
];

/// Whose time a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeenBy {
    /// That of the thread that asked, from its question to the answer.
    Asker(RequestStart),
    /// That of the thread that served: the one that asked waits for several at once, or is on another machine.
    Server(RequestStart),
}

/// Identifies a class within one [`FoundRequests`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClassId(pub(super) u32);

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) class: ClassId,
    /// The thread whose time it is.
    pub(super) thread: ThreadIndex,
    pub(super) server: ThreadIndex,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) service: Nanos,
    pub(super) seen_by: SeenBy,
    pub(super) hands: Hands,
    /// The wait that the answer ended, or that the request did.
    pub(super) wait: WaitIndex,
}

impl Request {
    /// Returns whether the thread that was asked is the one that the asker waited for, and it waited for nothing else.
    pub(super) fn is_served_by_one(&self) -> bool {
        matches!(self.seen_by, SeenBy::Asker(_)) && self.hands == Hands::One
    }

    pub(super) fn latency(&self) -> Nanos {
        self.to.since(self.from)
    }

    /// Returns the server's part, which begins as it begins on the request: for so long it worked for others first.
    pub(super) fn service_behind_queue(&self, queued: Nanos) -> Nanos {
        Nanos(self.service.0.saturating_sub(queued.0))
    }
}

/// What requests have in common that are compared with each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClassKey {
    pub(super) server: ServerProgram,
    /// Where the server is asked: `tcp 127.0.0.1:5432`, `futex`.
    pub(super) serving_end: String,
    /// What the serving thread says that they are for: `http.route=/checkout`.
    pub(super) label: Option<String>,
    pub(super) roles: Roles,
    /// The server's process where the roles are not known, so that the two directions are apart.
    process: Option<Tgid>,
}

/// The requests that the target made or served.
#[derive(Debug, Default)]
pub(super) struct FoundRequests {
    pub(super) classes: IndexSet<ClassKey>,
    /// In the order of classes, then of time.
    pub(super) answered: Vec<Request>,
    /// Those that the window cut, by class.
    pub(super) cut: HashMap<ClassId, CountedRequests>,
    /// What came for, or was an answer to, a thread that serves or asks several at once, of which nothing tells to
    /// which request it belongs.
    pub(super) not_told_apart: IndexMap<UnassignedKey, CountedRequests>,
}

/// What wakes have in common that can't be assigned to requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UnassignedKey {
    pub(super) server: ServerProgram,
    pub(super) serving_end: String,
    pub(super) reason: NotToldApartReason,
}

/// How many requests there were at least, and who served them.
#[derive(Debug, Default)]
pub(super) struct CountedRequests {
    pub(super) count: u64,
    /// Who served them.
    pub(super) servers: BTreeSet<ThreadIndex>,
}

impl CountedRequests {
    fn add(&mut self, server: ThreadIndex) {
        self.count += 1;
        self.servers.insert(server);
    }
}

/// Finds the requests of a recording.
pub(super) fn find_requests(blame: &Blame<'_>, meanings: &WaitMeanings<'_>) -> FoundRequests {
    let evidence = SpanInput {
        recording: blame.recording(),
        timeline: blame.timeline(),
        wake_source: &|wait: WaitIndex| blame.wake_source(wait),
        cause: &|wait: WaitIndex| blame.cause(wait),
    };
    let asked = find_asked_requests(evidence);
    let sides = ConnectionSides::new(blame.recording());
    let turns = find_turns(blame, &sides, &asked);
    let tags = ThreadTags::new(blame.recording());
    let mut finder = RequestFinder { blame, meanings, tags, found: FoundRequests::default() };
    for request in &asked.answered {
        finder.add_asked(request);
    }
    let is_new = |turn: &&Turn| !asked.has_answer(turn.server, turn.from, turn.to);
    for turn in turns.whole.iter().filter(is_new) {
        finder.add_turn(turn);
    }
    for request in &asked.cut {
        let class = finder.class_of_asked(request);
        finder.found.cut.entry(class).or_default().add(request.server);
    }
    for turn in turns.cut.iter().filter(is_new) {
        let class = finder.class_of_turn(turn);
        finder.found.cut.entry(class).or_default().add(turn.server);
    }
    for wake in find_unassigned_wakes(evidence, &sides, &asked, &turns) {
        finder.add_unassigned(&wake);
    }
    let mut found = finder.found;
    found.answered.sort_by_key(|request| (request.class, request.from, request.thread));
    found
}

struct RequestFinder<'a> {
    blame: &'a Blame<'a>,
    meanings: &'a WaitMeanings<'a>,
    tags: ThreadTags<'a>,
    found: FoundRequests,
}

impl RequestFinder<'_> {
    fn add_asked(&mut self, asked: &AskedRequest) {
        let class = self.class_of_asked(asked);
        let AskedRequest { wait, asker, server, from, to, start, service, hands, .. } = *asked;
        let seen_by = SeenBy::Asker(start);
        let request =
            Request { class, thread: asker, server, from, to, service, seen_by, hands, wait };
        self.found.answered.push(request);
    }

    fn add_turn(&mut self, turn: &Turn) {
        let class = self.class_of_turn(turn);
        let Turn { wait, server, from, to, start } = *turn;
        let (service, seen_by) = (to.since(from), SeenBy::Server(start));
        let hands = Hands::One;
        let request =
            Request { class, thread: server, server, from, to, service, seen_by, hands, wait };
        self.found.answered.push(request);
    }

    fn add_unassigned(&mut self, wake: &UnassignedWake) {
        let UnassignedWake { wait, server: thread, at, reason } = *wake;
        let serving_end = match reason {
            NotToldApartReason::AskerWaitsForSeveral => {
                find_serving_end(self.blame, wait, WaitEnd::Asking)
            }
            NotToldApartReason::SidesUnknown => means(self.blame.cause(wait)).to_owned(),
            NotToldApartReason::ClientWaitsForSeveral
            | NotToldApartReason::ClientDidNotWait
            | NotToldApartReason::ClientNotSeen => {
                find_serving_end(self.blame, wait, WaitEnd::Serving)
            }
        };
        let named = self.blame.timeline().named_thread(thread, at);
        let server = ServerProgram::find(self.meanings, named);
        let key = UnassignedKey { server, serving_end, reason };
        self.found.not_told_apart.entry(key).or_default().add(thread);
    }

    fn class_of_asked(&mut self, asked: &AskedRequest) -> ClassId {
        let serving_end = find_serving_end(self.blame, asked.wait, WaitEnd::Asking);
        let label = self.find_label(asked.server, asked.from, asked.to);
        self.class((asked.server, asked.to), serving_end, label, asked.roles)
    }

    fn class_of_turn(&mut self, turn: &Turn) -> ClassId {
        let serving_end = find_serving_end(self.blame, turn.wait, WaitEnd::Serving);
        let label = self.find_label(turn.server, turn.from, turn.to);
        self.class((turn.server, turn.from), serving_end, label, Roles::Known)
    }

    /// Returns what a thread says that it does for a request.
    fn find_label(&self, server: ThreadIndex, from: Timestamp, to: Timestamp) -> Option<String> {
        if self.tags.is_empty() {
            return None;
        }
        let tid = self.blame.timeline().thread(server)?.tid;
        CLASS_LABELS.iter().find_map(|name| {
            let value = self.tags.label_of_work(tid, from, to, name)?;
            Some(format!("{name}={value}"))
        })
    }

    /// Returns the class of requests that a thread serves at a time.
    fn class(
        &mut self,
        (server, at): (ThreadIndex, Timestamp),
        serving_end: String,
        label: Option<String>,
        roles: Roles,
    ) -> ClassId {
        let named = self.blame.timeline().named_thread(server, at);
        let process = match roles {
            Roles::Known => None,
            Roles::Unknown => self.blame.timeline().process_of_thread(server),
        };
        let server = ServerProgram::find(self.meanings, named);
        let key = ClassKey { server, serving_end, label, roles, process };
        let (index, _) = self.found.classes.insert_full(key);
        ClassId(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// Which end of a connection a wait was on.
#[derive(Clone, Copy)]
enum WaitEnd {
    Asking,
    Serving,
}

/// Says where a server is asked, by a wait for its answer, or of it for a request: as the wait's own socket tells, or
/// that of whoever ended it.
fn find_serving_end(blame: &Blame<'_>, index: WaitIndex, end: WaitEnd) -> String {
    let recording = blame.recording();
    let Some(wait) = recording.waits.get(index.0 as usize) else { return String::new() };
    let own = own_socket(recording, &wait).and_then(|socket| match end {
        WaitEnd::Asking => address(socket, &socket.remote),
        WaitEnd::Serving => address(socket, &socket.local),
    });
    let others = || {
        let socket = recording.files.socket(wait.wake.as_ref()?.file?)?;
        match end {
            WaitEnd::Asking => address(socket, &socket.local),
            WaitEnd::Serving => address(socket, &socket.remote),
        }
    };
    own.or_else(others).unwrap_or_else(|| means(blame.cause(index)).to_owned())
}

/// Returns the socket that a wait was on, or that made it end.
fn own_socket<'r>(recording: &'r Recording, wait: &Wait) -> Option<&'r SocketEnd> {
    let ready = wait.wake.as_ref().and_then(|wake| wake.ready).map(|ready| ready.file);
    let named = descriptor(wait.syscall.as_ref(), wait.polled_fd, wait.file).map(|(_, file)| file);
    let socket = |file: FileId| recording.files.socket(file);
    ready.and_then(socket).or_else(|| named.and_then(socket))
}

/// `tcp 127.0.0.1:5432`
fn address(socket: &SocketEnd, address: &str) -> Option<String> {
    (!address.is_empty()).then(|| format!("{} {address}", socket.protocol))
}

/// Names what a request without an address goes through.
fn means(cause: Cause) -> &'static str {
    match cause {
        Cause::Poll => "socket",
        cause => cause.name(),
    }
}

impl SeenBy {
    /// Returns whether nobody saw when the request began.
    pub(super) fn is_start_unseen(self) -> bool {
        matches!(self, Self::Asker(RequestStart::Unseen) | Self::Server(RequestStart::Unseen))
    }
}
