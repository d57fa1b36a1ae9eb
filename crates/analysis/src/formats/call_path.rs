//! Paths as stacks of functions, for readers that add time up by the innermost function: pprof, the
//! Firefox Profiler.
//!
//! ```text
//! a path of .folded           the same as a stack
//!
//! web-1042                    web-1042
//! handle                      handle
//! futex_wait                  futex_wait
//! --
//! futex_wake                  worker-1043
//! finish_job                  finish_job        the deepest of the program's own functions
//! worker-1043
//! [work]
//! ```
//!
//! A picture reads the frames of a waker from where it woke the waiter towards its root, and ends
//! in a kind of blame. In `pprof -top`, all time would be in `[work]` and `[timer]`.

use std::collections::HashMap;

use offwake_recording::units::Tid;

use crate::{
    analysis::Extent,
    blame::BlameEntryKind,
    label::{CodeOwner, Label},
    report::{
        Report,
        flame::{Direction, FlameGraphKind, Frame, FrameKind, Path, View, paths},
    },
};

/// Builds the stacks of a report's paths: of each thread its name, then its frames from root to leaf.
///
/// The last thread's frames end with its label. What the program called from there, down to the
/// kernel's `schedule` or `try_to_wake_up`, says in what way the thread waited or woke another,
/// which is the same function for most waits. [`Extent::Full`] keeps it.
pub(super) struct CallPathBuilder<'r> {
    report: &'r Report,
    view: View,
    extent: Extent,
    /// Where threads wait for something that is no thread, by what that is. None for a thread that
    /// does so in several places.
    places: HashMap<(Tid, BlameEntryKind), Option<Vec<Frame>>>,
}

impl<'r> CallPathBuilder<'r> {
    pub(super) fn new(report: &'r Report, view: View, extent: Extent) -> Self {
        let mut builder = Self { report, view, extent, places: HashMap::new() };
        // If some waits are not in the report, so are some places.
        if view.graph == FlameGraphKind::Chain && report.filter.left_out_count == 0 {
            builder.find_places();
        }
        builder
    }

    /// Returns each path with its stack.
    pub(super) fn build_all(&self) -> impl Iterator<Item = (Path<'r>, Vec<Frame>)> {
        self.paths().map(|path| {
            let stack = self.build(&path);
            (path, stack)
        })
    }

    fn paths(&self) -> impl Iterator<Item = Path<'r>> + use<'r> {
        paths(self.report, &View { direction: Direction::FromWaiter, ..self.view })
    }

    fn find_places(&mut self) {
        for path in self.paths().filter(|path| path.blame.chain.is_empty()) {
            if !is_external(path.blame.kind) {
                continue;
            }
            let is_function =
                |frame: &&Frame| [FrameKind::User, FrameKind::Kernel].contains(&frame.kind);
            let mut frames: Vec<Frame> = path.frames.iter().filter(is_function).cloned().collect();
            self.end_with_label(&mut frames, path.wait.label.as_ref());
            let place = (self.places.entry((path.wait.tid, path.blame.kind)))
                .or_insert_with(|| Some(frames.clone()));
            if place.as_ref() != Some(&frames) {
                *place = None;
            }
        }
    }

    /// Returns a path's stack. The path is one from who waited, whatever the view.
    pub(super) fn build(&self, path: &Path<'_>) -> Vec<Frame> {
        let is_frame_of_thread =
            |frame: &&Frame| !matches!(frame.kind, FrameKind::Holder | FrameKind::Leaf(_));
        let parts = path.frames.split(|frame| frame.kind == FrameKind::Separator);
        let mut threads: Vec<Vec<Frame>> = parts
            .enumerate()
            .map(|(hops, part)| {
                let frames = part.iter().filter(is_frame_of_thread).cloned();
                // A path has a waker's frames leaf first, and its name last.
                if hops == 0 { frames.collect() } else { frames.rev().collect() }
            })
            .collect();
        if self.view.direction == Direction::FromCulprit {
            threads.reverse();
            if let Some(last) = threads.last_mut() {
                self.end_with_label(last, path.wait.label.as_ref());
            }
        } else if let Some(last) = threads.last_mut() {
            self.end_last_thread(path, last);
        }
        threads.concat()
    }

    /// Ends the frames of a path's last thread where its time went. A path has the stack with which
    /// a thread woke the one before. If the thread slept until then, that is not where it slept, but
    /// all of its own waits of the kind are in the report. If they have one place, it is the one.
    fn end_last_thread(&self, path: &Path<'_>, frames: &mut Vec<Frame>) {
        let chain = &path.blame.chain;
        let last_hop = match self.view.graph {
            FlameGraphKind::OffCpu => None,
            FlameGraphKind::OffWake => chain.first(),
            FlameGraphKind::Chain => chain.last(),
        };
        let Some(hop) = last_hop else {
            return self.end_with_label(frames, path.wait.label.as_ref());
        };
        if let Some(Some(place)) = self.places.get(&(hop.thread.tid, path.blame.kind)) {
            frames.retain(|frame| frame.kind == FrameKind::Waker);
            return frames.extend(place.iter().cloned());
        }
        let is_its_work =
            self.view.graph == FlameGraphKind::Chain && path.blame.kind == BlameEntryKind::Work;
        let label = if is_its_work { &path.blame.label } else { &hop.label };
        self.end_with_label(frames, label.as_ref());
    }

    fn end_with_label(&self, frames: &mut Vec<Frame>, label: Option<&Label>) {
        if self.extent == Extent::Bounded
            && let Some(label) = label
            && let Some(deepest) = frames.iter().rposition(|frame| is_labelled_by(frame, label))
        {
            frames.truncate(deepest + 1);
        }
    }
}

/// Returns whether a thread that is blamed so waited for something that is no thread.
fn is_external(kind: BlameEntryKind) -> bool {
    matches!(
        kind,
        BlameEntryKind::Timer
            | BlameEntryKind::Disk
            | BlameEntryKind::Network
            | BlameEntryKind::Device
    )
}

fn is_labelled_by(frame: &Frame, label: &Label) -> bool {
    let kind = match label.whose {
        CodeOwner::Kernel => FrameKind::Kernel,
        _ => FrameKind::User,
    };
    let function = frame.function.as_deref().map(|function| function.name.as_str());
    frame.kind == kind && [Some(&*frame.name), function].contains(&Some(&*label.function))
}
