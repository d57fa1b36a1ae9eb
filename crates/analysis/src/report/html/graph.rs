//! Who waits for whom: the chains of all shown waits as the edges of a graph.
//!
//! ```text
//! a wait of A, 30 ns:  A -> B -> C [work] 20,  A -> B [work] 10
//! edges                A -> B 30,  B -> C 20
//! ```

use std::{cmp::Reverse, collections::BTreeMap};

use offwake_recording::units::{Tgid, Tid};
use serde::Serialize;

use crate::{
    blame::BlameEntryKind,
    report::{BlameEntry, Report, ThreadName},
    timeline::NAMELESS,
};

use super::{
    class::PageClass,
    texts::{TextId, Texts},
};

/// The most edges that are drawn of each graph.
const MAX_EDGES: usize = 60;

/// An end of an edge: a thread, a process, or something outside of every thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Endpoint<'a> {
    Thread(Tid, Tgid, NameAndContainer<'a>),
    Process(Tgid),
    Outside(BlameEntryKind),
}

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum EdgeKind {
    /// The first was blocked until the second had finished.
    WaitsFor,
    /// The first waited for the CPU that the second held.
    WaitsForCpu,
}

/// A part of a wait's blame, and its class.
#[derive(Clone, Copy)]
struct ClassifiedBlame<'a> {
    blame: &'a BlameEntry,
    class: PageClass,
}

#[derive(Clone, Copy, Default)]
struct EdgeWeight {
    ns: u64,
    /// The part of it that is idle or asleep.
    quiet_ns: u64,
}

impl EdgeWeight {
    fn add(&mut self, blame: ClassifiedBlame<'_>) {
        let ClassifiedBlame { blame, class } = blame;
        self.ns = self.ns.saturating_add(blame.ns.0);
        if class.is_quiet() {
            self.quiet_ns = self.quiet_ns.saturating_add(blame.ns.0);
        }
    }
}

/// The graph of processes and the graph of threads.
#[derive(Serialize)]
pub(super) struct Graphs {
    processes: Graph,
    threads: Graph,
}

#[derive(Serialize)]
struct Graph {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    left_out: u64,
    left_out_ns: u64,
}

#[derive(Serialize)]
struct Node {
    text: TextId,
    /// The name of something outside of every thread; none for a thread or a process.
    outside: Option<&'static str>,
    /// The node's own work and waiting for a CPU that others waited for.
    blamed_ns: u64,
    /// The waits of a process's threads for each other.
    within_ns: u64,
}

#[derive(Serialize)]
struct Edge {
    from: u32,
    to: u32,
    link: EdgeKind,
    ns: u64,
    quiet_ns: u64,
}

/// A thread on a chain.
#[derive(Clone, Copy)]
struct ChainThread<'a> {
    tid: Tid,
    tgid: Tgid,
    name: NameAndContainer<'a>,
}

/// What a thread or process is called, and its container.
type NameAndContainer<'a> = (&'a str, Option<&'a str>);

impl<'a> From<&'a ThreadName> for ChainThread<'a> {
    fn from(thread: &'a ThreadName) -> Self {
        let called = (thread.comm.as_str(), thread.container.as_deref());
        Self { tid: thread.tid, tgid: thread.tgid, name: called }
    }
}

/// Builds both graphs from the report's waits.
pub(super) fn build_graphs<'a>(report: &'a Report, texts: &mut Texts<'_>) -> Graphs {
    let names = process_names(report);
    let by_thread =
        |thread: ChainThread<'a>| Endpoint::Thread(thread.tid, thread.tgid, thread.name);
    let by_process = |thread: ChainThread<'a>| Endpoint::Process(thread.tgid);
    Graphs {
        processes: GraphSums::new(report, by_process).into_graph(&names, texts),
        threads: GraphSums::new(report, by_thread).into_graph(&names, texts),
    }
}

/// Returns the names of processes: that of the process's first thread, or of any thread of it.
fn process_names(report: &Report) -> BTreeMap<Tgid, NameAndContainer<'_>> {
    let mut names = BTreeMap::new();
    for wait in &report.waits {
        names.entry(wait.tgid).or_insert((wait.comm.as_str(), wait.container.as_deref()));
        let chains = wait.blame.iter().flat_map(|blame| &blame.chain).map(|hop| &hop.thread);
        let holders = wait.blame.iter().filter_map(|blame| blame.holder.as_ref());
        for thread in chains.chain(holders) {
            let called = (thread.comm.as_str(), thread.container.as_deref());
            let name = names.entry(thread.tgid).or_insert(called);
            if thread.tid.0 == thread.tgid.0 {
                *name = called;
            }
        }
    }
    names.extend(
        report
            .processes
            .iter()
            .map(|process| (process.tgid, (process.comm.as_str(), process.container.as_deref()))),
    );
    names
}

/// The sums from which a graph is made.
#[derive(Default)]
struct GraphSums<'a> {
    edges: BTreeMap<(Endpoint<'a>, Endpoint<'a>, EdgeKind), EdgeWeight>,
    blamed: BTreeMap<Endpoint<'a>, EdgeWeight>,
    within: BTreeMap<Endpoint<'a>, EdgeWeight>,
}

impl<'a> GraphSums<'a> {
    fn new(report: &'a Report, end_of: impl Fn(ChainThread<'a>) -> Endpoint<'a>) -> Self {
        let mut sums = Self::default();
        for wait in &report.waits {
            let called = (wait.comm.as_str(), wait.container.as_deref());
            let waiter = end_of(ChainThread { tid: wait.tid, tgid: wait.tgid, name: called });
            for blame in wait.blame.iter().filter(|blame| blame.ns.0 > 0) {
                let class = PageClass::classify(wait, blame, report.window.duration_ns);
                let blamed = ClassifiedBlame { blame, class };
                let mut at = waiter;
                for hop in &blame.chain {
                    let next = end_of((&hop.thread).into());
                    sums.add_edge(at, next, EdgeKind::WaitsFor, blamed);
                    at = next;
                }
                match (blame.kind, &blame.holder) {
                    (BlameEntryKind::Work, _) => sums.blamed.entry(at).or_default().add(blamed),
                    (BlameEntryKind::CpuQueue, holder) => {
                        sums.blamed.entry(at).or_default().add(blamed);
                        if let Some(holder) = holder {
                            sums.add_edge(at, end_of(holder.into()), EdgeKind::WaitsForCpu, blamed);
                        }
                    }
                    (outside, _) => {
                        sums.add_edge(at, Endpoint::Outside(outside), EdgeKind::WaitsFor, blamed)
                    }
                }
            }
        }
        sums
    }

    fn add_edge(
        &mut self,
        from: Endpoint<'a>,
        to: Endpoint<'a>,
        link: EdgeKind,
        blame: ClassifiedBlame<'_>,
    ) {
        if from == to {
            self.within.entry(from).or_default().add(blame);
        } else {
            self.edges.entry((from, to, link)).or_default().add(blame);
        }
    }

    fn into_graph(
        self,
        names: &BTreeMap<Tgid, NameAndContainer<'_>>,
        texts: &mut Texts<'_>,
    ) -> Graph {
        let mut heaviest: Vec<_> = self.edges.into_iter().collect();
        heaviest.sort_by_key(|&(key, weight)| (Reverse(weight.ns), key));
        let rest = heaviest.get(MAX_EDGES..).unwrap_or_default();
        let left_out = rest.len() as u64;
        let left_out_ns = rest.iter().fold(0, |sum: u64, (_, w)| sum.saturating_add(w.ns));
        heaviest.truncate(MAX_EDGES);
        let mut places = BTreeMap::new();
        let mut nodes = Vec::new();
        let mut place = |end: Endpoint<'a>| {
            *places.entry(end).or_insert_with(|| {
                let sum =
                    |sums: &BTreeMap<Endpoint<'a>, EdgeWeight>| sums.get(&end).map_or(0, |w| w.ns);
                nodes.push(Node {
                    text: match end {
                        Endpoint::Thread(tid, _, (comm, container)) => {
                            texts.thread(comm, tid, container)
                        }
                        Endpoint::Process(tgid) => {
                            let called = names.get(&tgid).copied();
                            let (comm, container) = called.unwrap_or((NAMELESS, None));
                            texts.thread(comm, tgid, container)
                        }
                        Endpoint::Outside(word) => texts.id(word.name()),
                    },
                    outside: match end {
                        Endpoint::Outside(word) => Some(word.name()),
                        Endpoint::Thread(..) | Endpoint::Process(_) => None,
                    },
                    blamed_ns: sum(&self.blamed),
                    within_ns: sum(&self.within),
                });
                u32::try_from(nodes.len() - 1).unwrap_or(u32::MAX)
            })
        };
        let edges = (heaviest.into_iter())
            .map(|((from, to, link), EdgeWeight { ns, quiet_ns })| {
                let (from, to) = (place(from), place(to));
                Edge { from, to, link, ns, quiet_ns }
            })
            .collect();
        Graph { nodes, edges, left_out, left_out_ns }
    }
}
