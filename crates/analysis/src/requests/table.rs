//! Each request as a row, for tables.

use std::rc::Rc;

use offwake_recording::units::{Nanos, Tgid, Tid, Timestamp};

use crate::{
    blame::Blame,
    findings::{WaitMeanings, with_culprit_writer},
    timeline::ThreadIndex,
};

use super::{
    analysis::RequestAnalysis,
    bands,
    compare::OrderedRequests,
    found::{Request, SeenBy},
    model::{CulpritShare, RequestClass},
};

/// A request, and what is known of it.
pub(crate) struct RequestRow<'a> {
    pub(crate) class: &'a RequestClass,
    pub(crate) band: &'a str,
    pub(crate) start: Timestamp,
    pub(crate) is_start_seen: bool,
    pub(crate) latency: Nanos,
    pub(crate) service: Nanos,
    /// How long the server worked for others first.
    pub(crate) queued: Nanos,
    /// The thread that asked, if it was seen.
    pub(crate) asker: Option<(Tgid, Tid)>,
    pub(crate) server: Option<(Tgid, Tid)>,
    /// What most of the time was spent on, and how much.
    pub(crate) culprit: Option<(Rc<CulpritShare>, Nanos)>,
}

impl RequestAnalysis {
    /// Passes all requests of the listed classes on, class by class, the fastest ones of each first.
    pub(crate) fn visit_rows(&self, blame: &Blame<'_>, visit: &mut dyn FnMut(&RequestRow<'_>)) {
        let timeline = blame.timeline();
        let ids =
            |thread: ThreadIndex| timeline.thread(thread).map(|thread| (thread.tgid, thread.tid));
        with_culprit_writer(WaitMeanings::new(blame), |writer| {
            for (of_class, class) in self.classes.iter().zip(&self.summary().classes) {
                let ordered = OrderedRequests::new(blame, &self.found, &self.profiles, of_class)
                    .divide_work(writer);
                let culprits = ordered.describe_main_culprits(writer);
                let bands = bands::divide(of_class.order.len());
                let names: Vec<String> = bands.iter().map(bands::Band::name).collect();
                let rows = ordered.in_order().zip(&of_class.order).zip(culprits);
                for (rank, ((request, &place), culprit)) in rows.enumerate() {
                    let queued = ordered.queued_time(place);
                    let band = bands.iter().position(|band| band.ranks.contains(&rank));
                    let &Request { thread, server, from, seen_by, .. } = request;
                    visit(&RequestRow {
                        class,
                        band: band.and_then(|band| names.get(band)).map_or("", String::as_str),
                        start: from,
                        is_start_seen: !seen_by.is_start_unseen(),
                        latency: request.latency(),
                        service: request.service_behind_queue(queued),
                        queued,
                        asker: match seen_by {
                            SeenBy::Asker(_) => ids(thread),
                            SeenBy::Server(_) => None,
                        },
                        server: ids(server),
                        culprit,
                    });
                }
            }
        });
    }
}
