//! A report and a view → paths.

use std::{collections::HashMap, sync::Arc};

use super::{Direction, FlameGraph, Frame, FrameKind, GroupBy, ThreadNames, View};
use crate::{
    blame::cause::Cause,
    report::{
        BlameEntry, BlameEntryKind, FrameName, Frames, HopEntry, ProcessEntry, Report, ThreadName,
        WaitEntry, build::NAMELESS,
    },
};
use offwake_recording::units::{CgroupId, Tgid};

/// What one part of some waits' blame looks like. Its time is `blame.ns`.
#[derive(Clone, Debug)]
pub struct Path<'r> {
    /// Root first.
    pub frames: Vec<Frame>,
    /// The waits.
    pub wait: &'r WaitEntry,
    /// The part of their blame.
    pub blame: &'r BlameEntry,
}

/// The paths of a report's waits, but for the parts that its filter hides. Paths of the same frames
/// come as often as there are waits that differ otherwise.
pub fn paths<'r>(report: &'r Report, view: &View) -> impl Iterator<Item = Path<'r>> + use<'r> {
    let layout = Layout::new(report, *view);
    shown(report).map(move |(wait, blame)| Path { frames: layout.frames(wait, blame), wait, blame })
}

/// The parts of which there are paths: waits, and what is blamed for them.
pub(crate) fn shown(report: &Report) -> impl Iterator<Item = (&WaitEntry, &BlameEntry)> {
    let hidden = &report.filter.hidden;
    (report.waits.iter())
        .flat_map(|wait| wait.blame.iter().map(move |blame| (wait, blame)))
        .filter(|(_, blame)| !hidden.contains_key(blame.kind.group().name()))
}

/// Lays out paths.
struct Layout<'r> {
    view: View,
    processes: HashMap<Tgid, &'r ProcessEntry>,
    cgroups: HashMap<CgroupId, String>,
    separator: Arc<str>,
}

impl<'r> Layout<'r> {
    fn new(report: &'r Report, view: View) -> Self {
        let processes = report.processes.iter().map(|process| (process.tgid, process));
        let labels: HashMap<_, _> =
            report.containers.iter().map(|one| (one.id.as_str(), one.label.as_str())).collect();
        let cgroups = report.cgroups.iter().filter_map(|cgroup| {
            let label = cgroup.container.as_deref().and_then(|id| labels.get(id).copied());
            let path = cgroup.path.as_deref().or(cgroup.container.as_deref())?;
            Some((cgroup.id, label.map_or(path.to_owned(), |label| format!("{label} {path}"))))
        });
        Self {
            view,
            processes: processes.collect(),
            cgroups: cgroups.collect(),
            separator: Arc::from("--"),
        }
    }

    fn frames(&self, wait: &WaitEntry, blame: &BlameEntry) -> Vec<Frame> {
        let mut frames = self.beginning(wait);
        frames.extend(stack(&wait.stack));
        match (self.view.graph, blame.chain.split_last()) {
            (FlameGraph::OffCpu, _) => {}
            (FlameGraph::OffWake, Some(_)) => {
                frames.extend(
                    blame.chain.first().into_iter().flat_map(|hop| self.hop(hop, &hop.stack)),
                );
            }
            (FlameGraph::Chain, Some((last, before))) => {
                frames.extend(before.iter().flat_map(|hop| self.hop(hop, &hop.stack)));
                frames.extend(self.hop(last, &blame.stack));
                if let Some(holder) = &blame.holder {
                    let name = format!("held by {}", self.thread(holder));
                    frames.push(frame(FrameKind::Holder, name));
                }
                frames.push(leaf(blame));
            }
            // No thread ended it: what did says the leaf.
            (FlameGraph::OffWake | FlameGraph::Chain, None) => frames.push(leaf(blame)),
        }
        if self.view.direction == Direction::FromCulprit {
            frames.reverse();
        }
        frames
    }

    /// Who waited, the coarsest first.
    fn beginning(&self, wait: &WaitEntry) -> Vec<Frame> {
        let thread = || {
            frame(FrameKind::Waiter, self.named(&wait.comm, wait.tid.0, wait.container.as_deref()))
        };
        let process = || {
            let process = self.processes.get(&wait.tgid);
            let comm = process.map_or(NAMELESS, |process| &process.comm);
            let container = process.and_then(|process| process.container.as_deref());
            frame(FrameKind::Group, self.named(comm, wait.tgid.0, container))
        };
        match self.view.by {
            GroupBy::Thread => vec![thread()],
            GroupBy::Process => vec![process()],
            GroupBy::Cgroup => vec![frame(FrameKind::Group, self.cgroup(wait)), process()],
            GroupBy::Cause => vec![frame(FrameKind::Group, cause(wait.cause)), thread()],
        }
    }

    fn hop(&self, hop: &HopEntry, deed: &Frames) -> impl Iterator<Item = Frame> + use<> {
        let name = Arc::clone(&self.separator);
        let separator = Frame { kind: FrameKind::Separator, name, function: None };
        let waker = frame(FrameKind::Waker, self.thread(&hop.thread));
        let leaf_first: Vec<_> = stack(deed).rev().collect();
        [separator].into_iter().chain(leaf_first).chain([waker])
    }

    fn thread(&self, thread: &ThreadName) -> String {
        self.named(&thread.comm, thread.tid.0, thread.container.as_deref())
    }

    /// `web-1042`, `web-1042 in shop`
    fn named(&self, comm: &str, id: u32, container: Option<&str>) -> String {
        let name = match self.view.names {
            ThreadNames::WithIds => format!("{comm}-{id}"),
            ThreadNames::WithoutIds => comm.to_owned(),
        };
        container.map_or(name.clone(), |container| format!("{name} in {container}"))
    }

    fn cgroup(&self, wait: &WaitEntry) -> String {
        match wait.cgroup {
            None => "[unknown cgroup]".to_owned(),
            Some(id) => {
                (self.cgroups.get(&id)).map_or_else(|| format!("[cgroup {}]", id.0), Clone::clone)
            }
        }
    }
}

fn cause(cause: Cause) -> String {
    cause.name().to_owned()
}

fn frame(kind: FrameKind, name: String) -> Frame {
    Frame { kind, name: name.into(), function: None }
}

fn stack(frames: &Frames) -> impl DoubleEndedIterator<Item = Frame> {
    let (user, kernel) = frames.halves();
    let of = |kind| {
        move |name: &FrameName| Frame {
            kind,
            name: Arc::clone(&name.text),
            function: name.function.clone(),
        }
    };
    user.iter().map(of(FrameKind::User)).chain(kernel.iter().map(of(FrameKind::Kernel)))
}

fn leaf(blame: &BlameEntry) -> Frame {
    frame(FrameKind::Leaf(blame.class()), leaf_name(blame))
}

/// The kind of blame in brackets.
pub(in crate::report) fn leaf_name(blame: &BlameEntry) -> String {
    match (blame.kind, blame.reason) {
        (BlameEntryKind::Unattributed, Some(reason)) => {
            format!("[unattributed: {}]", reason.name())
        }
        (kind, _) => format!("[{}]", kind.name()),
    }
}
