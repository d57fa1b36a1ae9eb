//! A report and a view → paths.

use std::{collections::HashMap, sync::Arc};

use offwake_recording::{
    Function,
    units::{CgroupId, Tgid},
};

use super::{Direction, FlameGraphKind, GroupBy, ThreadNames, View};
use crate::{
    blame::{BlameClass, BlameEntryKind},
    frames::{FrameName, Frames},
    report::{BlameEntry, HopEntry, ProcessEntry, Report, ThreadName, WaitEntry},
    timeline::NAMELESS,
};

/// What a frame stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// A process, cgroup or cause that waits are grouped by.
    Group,
    /// The waiting thread.
    Waiter,
    /// A range that the thread's program marked.
    Marker,
    /// A function of a program or library, or what stands for a user stack that is missing.
    User,
    /// A function of the kernel, or what stands for a kernel stack that is missing.
    Kernel,
    /// Between a wait and who woke the thread.
    Separator,
    /// A thread that was waited for.
    Waker,
    /// Who had the CPU that a thread waited for.
    Holder,
    /// What the time is blamed on.
    Leaf(BlameClass),
}

/// One frame of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// What the frame stands for.
    pub kind: FrameKind,
    /// Its name as it was recorded: it may hold anything.
    pub name: Arc<str>,
    /// The function that it is, where its source is known.
    pub function: Option<Arc<Function>>,
}

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
    let builder = PathBuilder::new(report, *view);
    shown_parts(report).map(move |(wait, blame)| Path {
        frames: builder.frames(wait, blame),
        wait,
        blame,
    })
}

/// The parts of waits that have paths: all but those that the report's filter hides.
pub(crate) fn shown_parts(report: &Report) -> impl Iterator<Item = (&WaitEntry, &BlameEntry)> {
    let hidden = &report.filter.hidden;
    (report.waits.iter())
        .flat_map(|wait| wait.blame.iter().map(move |blame| (wait, blame)))
        .filter(|(_, blame)| !hidden.contains_key(blame.kind.group().name()))
}

/// Makes the paths of one report, seen in one way.
pub(crate) struct PathBuilder<'r> {
    view: View,
    processes: HashMap<Tgid, &'r ProcessEntry>,
    cgroups: HashMap<CgroupId, String>,
    separator: Arc<str>,
}

impl<'r> PathBuilder<'r> {
    pub(crate) fn new(report: &'r Report, view: View) -> Self {
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

    /// The frames of the path of one part of some waits' blame.
    pub(crate) fn frames(&self, wait: &WaitEntry, blame: &BlameEntry) -> Vec<Frame> {
        let mut frames = self.wait_frames(wait);
        match (self.view.graph, blame.chain.split_last()) {
            (FlameGraphKind::OffCpu, _) => {}
            (FlameGraphKind::OffWake, Some(_)) => {
                frames.extend(
                    blame
                        .chain
                        .first()
                        .into_iter()
                        .flat_map(|hop| self.hop_frames(hop, &hop.stack)),
                );
            }
            (FlameGraphKind::Chain, Some((last, before))) => {
                frames.extend(before.iter().flat_map(|hop| self.hop_frames(hop, &hop.stack)));
                frames.extend(self.hop_frames(last, &blame.stack));
                frames.extend(self.end_frames(blame));
            }
            (FlameGraphKind::OffWake | FlameGraphKind::Chain, None) => {
                frames.extend(self.end_frames(blame));
            }
        }
        if self.view.direction == Direction::FromCulprit {
            frames.reverse();
        }
        frames
    }

    /// Who waited, and where.
    pub(in crate::report) fn wait_frames(&self, wait: &WaitEntry) -> Vec<Frame> {
        let mut frames = self.waiter_frames(wait);
        frames.extend(marker_frames(&wait.markers));
        frames.extend(stack_frames(&wait.stack));
        frames
    }

    /// What comes behind the last hop, or at once where no thread ended the wait: the leaf says what did.
    pub(in crate::report) fn end_frames(
        &self,
        blame: &BlameEntry,
    ) -> impl Iterator<Item = Frame> + use<> {
        let holder = blame.holder.as_ref().filter(|_| !blame.chain.is_empty());
        let name = holder.map(|holder| format!("held by {}", self.thread_name(holder)));
        (name.map(|name| frame(FrameKind::Holder, name)).into_iter()).chain([leaf_frame(blame)])
    }

    /// Who waited, the coarsest first.
    fn waiter_frames(&self, wait: &WaitEntry) -> Vec<Frame> {
        let thread = || {
            frame(
                FrameKind::Waiter,
                self.display_name(&wait.comm, wait.tid.0, wait.container.as_deref()),
            )
        };
        let process = || {
            let process = self.processes.get(&wait.tgid);
            let comm = process.map_or(NAMELESS, |process| &process.comm);
            let container = process.and_then(|process| process.container.as_deref());
            frame(FrameKind::Group, self.display_name(comm, wait.tgid.0, container))
        };
        match self.view.by {
            GroupBy::Thread => vec![thread()],
            GroupBy::Process => vec![process()],
            GroupBy::Cgroup => vec![frame(FrameKind::Group, self.cgroup_name(wait)), process()],
            GroupBy::Cause => vec![frame(FrameKind::Group, wait.cause.name().to_owned()), thread()],
            GroupBy::Label => vec![frame(FrameKind::Group, label_group(wait)), thread()],
        }
    }

    /// A thread that was waited for, and its frames.
    pub(in crate::report) fn hop_frames(
        &self,
        hop: &HopEntry,
        stack: &Frames,
    ) -> impl Iterator<Item = Frame> + use<> {
        let name = Arc::clone(&self.separator);
        let separator = Frame { kind: FrameKind::Separator, name, function: None };
        let waker = frame(FrameKind::Waker, self.thread_name(&hop.thread));
        let root_first = marker_frames(&hop.markers).chain(stack_frames(stack));
        let mut leaf_first: Vec<_> = root_first.collect();
        leaf_first.reverse();
        [separator].into_iter().chain(leaf_first).chain([waker])
    }

    fn thread_name(&self, thread: &ThreadName) -> String {
        self.display_name(&thread.comm, thread.tid.0, thread.container.as_deref())
    }

    /// `web-1042`, `web-1042 in shop`
    fn display_name(&self, comm: &str, id: u32, container: Option<&str>) -> String {
        let name = match self.view.names {
            ThreadNames::WithIds => format!("{comm}-{id}"),
            ThreadNames::WithoutIds => comm.to_owned(),
        };
        container.map_or(name.clone(), |container| format!("{name} in {container}"))
    }

    fn cgroup_name(&self, wait: &WaitEntry) -> String {
        match wait.cgroup {
            None => "[unknown cgroup]".to_owned(),
            Some(id) => {
                (self.cgroups.get(&id)).map_or_else(|| format!("[cgroup {}]", id.0), Clone::clone)
            }
        }
    }
}

fn frame(kind: FrameKind, name: String) -> Frame {
    Frame { kind, name: name.into(), function: None }
}

/// The ranges that a thread was in, the outermost first: `in Training:forward`.
fn marker_frames(markers: &[Arc<str>]) -> impl Iterator<Item = Frame> {
    markers.iter().map(|text| frame(FrameKind::Marker, format!("in {text}")))
}

fn stack_frames(frames: &Frames) -> impl DoubleEndedIterator<Item = Frame> {
    let (user, kernel) = frames.halves();
    let frame_of_kind = |kind| {
        move |name: &FrameName| Frame {
            kind,
            name: Arc::clone(&name.text),
            function: name.function.clone(),
        }
    };
    user.iter()
        .map(frame_of_kind(FrameKind::User))
        .chain(kernel.iter().map(frame_of_kind(FrameKind::Kernel)))
}

fn leaf_frame(blame: &BlameEntry) -> Frame {
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
/// `http.route=/checkout`
fn label_group(wait: &WaitEntry) -> String {
    match wait.labels.first_key_value() {
        Some((name, value)) => format!("{name}={value}"),
        // Of these nobody knows any more what they had.
        None if wait.summed_up > 0 => "[smaller waits]".to_owned(),
        None => "[no label]".to_owned(),
    }
}
