//! Names of spans.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use offwake_recording::{StackRef, Wait, units::Timestamp};

use crate::{
    blame::cause::{Cause, WaitedOn, waited_on},
    label::{CodeOwner, LabelFinder},
    text,
    timeline::{NAMELESS, ThreadIndex, WaitIndex},
    waited_on_entry,
};

use super::SpanInput;

/// The most bytes of a name or of what was waited on. A symbol can be as long as its program likes.
const MAX_TEXT_BYTES: usize = 256;

/// Makes each name once, however many spans have it.
pub(super) struct SpanNames<'a> {
    evidence: SpanInput<'a>,
    labels: LabelFinder<'a>,
    frames: HashMap<(bool, StackRef, StackRef), Option<Arc<str>>>,
    comms: HashMap<(ThreadIndex, Option<usize>), Arc<str>>,
    waited_on: BTreeMap<WaitedOn, Arc<str>>,
}

impl<'a> SpanNames<'a> {
    pub(super) fn new(evidence: SpanInput<'a>) -> Self {
        Self {
            evidence,
            labels: LabelFinder::new(&evidence.recording.stacks),
            frames: HashMap::new(),
            comms: HashMap::new(),
            waited_on: BTreeMap::new(),
        }
    }

    /// Returns the name of a thread at a moment.
    pub(super) fn comm(&mut self, index: ThreadIndex, at: Timestamp) -> Arc<str> {
        let evidence = self.evidence;
        let thread = evidence.thread(index);
        let name = thread.and_then(|thread| thread.name_at(at));
        let entry = self.comms.entry((index, name));
        let comm = || thread?.names.get(name?).map(|name| Arc::clone(&name.comm));
        entry.or_insert_with(|| comm().unwrap_or_else(|| Arc::from(NAMELESS))).clone()
    }

    /// Returns the frame in which a thread asked and waited, else the wait's cause.
    pub(super) fn request_name(&mut self, index: WaitIndex) -> Arc<str> {
        self.wait_frame(index).unwrap_or_else(|| Arc::from((self.evidence.cause)(index).name()))
    }

    /// Returns the frame in which a thread waited.
    pub(super) fn wait_frame(&mut self, index: WaitIndex) -> Option<Arc<str>> {
        let cause = (self.evidence.cause)(index);
        let wait = self.evidence.wait(index)?;
        self.frame(cause, wait.user_stack, wait.kernel_stack)
    }

    /// Returns the frame in which a thread ended a wait, else the thread's name.
    pub(super) fn waker_frame_or_comm(
        &mut self,
        ended: WaitIndex,
        thread: ThreadIndex,
        at: Timestamp,
    ) -> Arc<str> {
        let evidence = self.evidence;
        let wake = evidence.wait(ended).and_then(|wait| wait.wake);
        let wake = wake.filter(|_| evidence.waker_thread(ended) == Some(thread));
        // Its kernel half says no more than how a wake is made.
        wake.and_then(|wake| self.frame(Cause::Futex, wake.user_stack, StackRef::NotTaken))
            .unwrap_or_else(|| self.comm(thread, at))
    }

    /// Returns the object that a wait was on, as text.
    pub(super) fn waited_on(&mut self, wait: &Wait, cause: Cause) -> Option<Arc<str>> {
        let on = waited_on(wait, cause)?;
        let files = &self.evidence.recording.files;
        let entry = self.waited_on.entry(on);
        let text = || {
            text::cut_bytes(&waited_on_entry::waited_on_entry(files, on).text, MAX_TEXT_BYTES)
                .into()
        };
        Some(entry.or_insert_with(text).clone())
    }

    fn frame(&mut self, cause: Cause, user: StackRef, kernel: StackRef) -> Option<Arc<str>> {
        let best_fit = &mut self.labels;
        let find = || {
            let label = best_fit.wait_label(cause, user, kernel)?;
            (label.whose != CodeOwner::Libc)
                .then(|| text::cut_bytes(&label.function, MAX_TEXT_BYTES).into())
        };
        let entry = self.frames.entry((cause == Cause::Other, user, kernel));
        entry.or_insert_with(find).clone()
    }
}
