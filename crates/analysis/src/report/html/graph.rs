//! Who waits for whom: the chains of all shown waits as the edges of a graph.
//!
//! ```text
//! a wait of A, 30 ns:  A -> B -> C [work] 20,  A -> B [work] 10
//! edges                A -> B 30,  B -> C 20
//! ```

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use indexmap::IndexSet;
use offwake_recording::units::{Tgid, Tid};
use serde::Serialize;

use crate::{
    blame::BlameEntryKind,
    report::{BlameEntry, HopEntry, Report, ThreadName},
    timeline::NAMELESS,
};

use super::{
    class::PageClass,
    texts::{TextId, Texts},
};

/// The most edges that are drawn of each graph.
const MAX_EDGES: usize = 60;

/// An end of an edge: a thread, a process, or something outside of every thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Endpoint<'a> {
    Thread(Tid, Tgid, NameAndContainer<'a>),
    Process(Tgid),
    Outside(BlameEntryKind),
}

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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

/// What both graphs are made from.
pub(super) struct ReportGraphs<'a> {
    names: ProcessNames<'a>,
    by_process: GraphSums<'a>,
    by_thread: GraphSums<'a>,
}

impl<'a> ReportGraphs<'a> {
    /// Adds up the report's waits.
    pub(super) fn add_up(report: &'a Report) -> Self {
        let by_thread =
            |thread: ChainThread<'a>| Endpoint::Thread(thread.tid, thread.tgid, thread.name);
        let by_process = |thread: ChainThread<'a>| Endpoint::Process(thread.tgid);
        Self {
            names: process_names(report),
            by_process: GraphSums::new(report, by_process),
            by_thread: GraphSums::new(report, by_thread),
        }
    }

    /// Makes the graphs.
    pub(super) fn into_graphs(self, texts: &mut Texts<'_>) -> Graphs {
        let Self { names, by_process, by_thread } = self;
        Graphs {
            processes: by_process.into_graph(&names, texts),
            threads: by_thread.into_graph(&names, texts),
        }
    }
}

type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

type ProcessNames<'a> = FastMap<Tgid, NameAndContainer<'a>>;

/// Returns the names of processes: that of the process's first thread, or of any thread of it.
fn process_names(report: &Report) -> ProcessNames<'_> {
    let mut names = ProcessNames::default();
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

/// The number of an end in the table of all ends of one graph.
type EndNumber = usize;

/// The sums from which a graph is made. Chains have some hundred thousand hops, of which a few hundred are of
/// different threads: ends are compared by their numbers.
#[derive(Default)]
struct GraphSums<'a> {
    ends: IndexSet<Endpoint<'a>, foldhash::fast::RandomState>,
    /// The number of a hop's end, by where the hop is in memory.
    hops: FastMap<usize, EndNumber>,
    edges: FastMap<(EndNumber, EndNumber, EdgeKind), EdgeWeight>,
    blamed: FastMap<EndNumber, EdgeWeight>,
    within: FastMap<EndNumber, EdgeWeight>,
}

impl<'a> GraphSums<'a> {
    fn new(report: &'a Report, end_of: impl Fn(ChainThread<'a>) -> Endpoint<'a>) -> Self {
        let mut sums = Self::default();
        for wait in &report.waits {
            let called = (wait.comm.as_str(), wait.container.as_deref());
            let waiter = ChainThread { tid: wait.tid, tgid: wait.tgid, name: called };
            let waiter = sums.number(end_of(waiter));
            for blame in wait.blame.iter().filter(|blame| blame.ns.0 > 0) {
                let class = PageClass::classify(wait, blame, report.window.duration_ns);
                let blamed = ClassifiedBlame { blame, class };
                let mut at = waiter;
                for hop in &blame.chain {
                    let next = sums.number_of_hop(hop, &end_of);
                    sums.add_edge(at, next, EdgeKind::WaitsFor, blamed);
                    at = next;
                }
                match (blame.kind, &blame.holder) {
                    (BlameEntryKind::Work, _) => sums.blamed.entry(at).or_default().add(blamed),
                    (BlameEntryKind::CpuQueue, holder) => {
                        sums.blamed.entry(at).or_default().add(blamed);
                        if let Some(holder) = holder {
                            let holder = sums.number(end_of(holder.into()));
                            sums.add_edge(at, holder, EdgeKind::WaitsForCpu, blamed);
                        }
                    }
                    (outside, _) => {
                        let outside = sums.number(Endpoint::Outside(outside));
                        sums.add_edge(at, outside, EdgeKind::WaitsFor, blamed);
                    }
                }
            }
        }
        sums
    }

    fn number(&mut self, end: Endpoint<'a>) -> EndNumber {
        self.ends.insert_full(end).0
    }

    fn number_of_hop(
        &mut self,
        hop: &'a Arc<HopEntry>,
        end_of: &impl Fn(ChainThread<'a>) -> Endpoint<'a>,
    ) -> EndNumber {
        let Self { ends, hops, .. } = self;
        *hops
            .entry(Arc::as_ptr(hop).addr())
            .or_insert_with(|| ends.insert_full(end_of((&hop.thread).into())).0)
    }

    fn add_edge(
        &mut self,
        from: EndNumber,
        to: EndNumber,
        link: EdgeKind,
        blame: ClassifiedBlame<'_>,
    ) {
        if from == to {
            self.within.entry(from).or_default().add(blame);
        } else {
            self.edges.entry((from, to, link)).or_default().add(blame);
        }
    }

    fn into_graph(self, names: &ProcessNames<'_>, texts: &mut Texts<'_>) -> Graph {
        let Self { ends, edges, blamed, within, .. } = self;
        let end = |number: EndNumber| ends.get_index(number).copied();
        let mut heaviest: Vec<_> = (edges.into_iter())
            .filter_map(|((from, to, link), weight)| Some(((end(from)?, end(to)?, link), weight)))
            .collect();
        heaviest.sort_by_key(|&(key, weight)| (Reverse(weight.ns), key));
        let rest = heaviest.get(MAX_EDGES..).unwrap_or_default();
        let left_out = rest.len() as u64;
        let left_out_ns = rest.iter().fold(0, |sum: u64, (_, w)| sum.saturating_add(w.ns));
        heaviest.truncate(MAX_EDGES);
        let mut places = HashMap::new();
        let mut nodes = Vec::new();
        let mut place = |end: Endpoint<'a>| {
            *places.entry(end).or_insert_with(|| {
                let number = ends.get_index_of(&end);
                let sum = |sums: &FastMap<EndNumber, EdgeWeight>| {
                    number.and_then(|number| sums.get(&number)).map_or(0, |weight| weight.ns)
                };
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
                    blamed_ns: sum(&blamed),
                    within_ns: sum(&within),
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
