//! Blame → requests: what do the slow ones have that the fast ones do not?
//!
//! ```text
//! asked, served ──▶ classes ──▶ bands ──▶ profiles ──▶ excess, bounds
//! (spans, turns)    (server)    (rank)    (blame)
//! ```
//!
//! Values in, values out. `docs/requests.md` says what the words mean, for those who read the outputs.

mod bands;
mod compare;
mod found;
mod model;
mod profiles;
mod turns;
mod write;

use std::{cmp::Reverse, collections::BTreeMap};

use offwake_recording::units::Nanos;

use crate::{
    blame::Blame,
    findings::{CulpritWriter, WaitMeanings, with_culprit_writer},
    report,
    spans::Roles,
    timeline::ThreadIndex,
};

use compare::describe_class;
use found::{ClassId, FoundRequests, Request, find_requests};
use profiles::Profiles;

pub use model::{
    CulpritShare, Excess, Latencies, RequestBand, RequestClass, Requests, SlowRequests,
    SummedUpClasses,
};

/// The most classes that are listed.
const MAX_CLASSES: usize = 50;

impl Requests {
    /// The name of the schema.
    pub const SCHEMA: &'static str = "offwake.requests/1";

    /// Finds the requests that the target made or served, and what they took.
    #[must_use]
    pub fn find(blame: &Blame<'_>) -> Self {
        let meanings = WaitMeanings::new(blame);
        let found = find_requests(blame, &meanings);
        let profiles = Profiles::new(blame, &meanings, &found.answered);
        let mut requests = Self {
            schema: Self::SCHEMA,
            window: report::window_entry(blame.recording()),
            classes: Vec::new(),
            summed_up: SummedUpClasses::default(),
            not_told_apart: found.not_told_apart,
        };
        with_culprit_writer(meanings, |writer| {
            add_classes(&found, &profiles, writer, &mut requests)
        });
        requests
    }
}

fn add_classes(
    found: &FoundRequests,
    profiles: &Profiles,
    writer: &mut CulpritWriter<'_>,
    requests: &mut Requests,
) {
    let mut classes: Vec<(ClassId, usize, &[Request])> = Vec::new();
    let mut first = 0;
    for of_class in found.answered.chunk_by(|a, b| a.class == b.class) {
        if let Some(request) = of_class.first() {
            classes.push((request.class, first, of_class));
        }
        first += of_class.len();
    }
    let time = |requests: &[Request]| requests.iter().map(Request::latency).sum::<Nanos>();
    classes.sort_by_key(|&(class, _, requests)| (Reverse(time(requests)), class));
    for (n, &(class, first, of_class)) in classes.iter().enumerate() {
        let Some(key) = found.classes.get_index(class.0 as usize) else { continue };
        if n >= MAX_CLASSES {
            let SummedUpClasses { classes, count, ns } = &mut requests.summed_up;
            *classes += 1;
            *count += of_class.len() as u64;
            *ns += time(of_class);
            continue;
        }
        let mut servers: BTreeMap<ThreadIndex, Nanos> = BTreeMap::new();
        for request in of_class {
            *servers.entry(request.server).or_default() += request.service;
        }
        let server = writer.name_server(key.server, &servers);
        let unfinished = found.cut.get(&class).copied().unwrap_or(0);
        let described = describe_class((first, of_class), profiles, writer);
        requests.classes.push(RequestClass {
            server: CulpritWriter::server_line(&server),
            program: server.program,
            pid: server.pid,
            container: server.container,
            serving_end: key.serving_end.clone(),
            roles_known: key.roles == Roles::Known,
            unfinished,
            ..described
        });
    }
}
