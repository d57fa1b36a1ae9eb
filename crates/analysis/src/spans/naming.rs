//! Names of spans.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    blame::cause::{Cause, WaitedOn, waited_on},
    report::{self, Whose, best_fit::BestFit},
    text,
    timeline::{ThreadIndex, WaitIndex},
};
use offwake_recording::{StackRef, Wait, units::Timestamp};

use super::Evidence;

/// The most bytes of a name or of what was waited on. A symbol can be as long as its program likes.
const LONGEST: usize = 256;

/// Makes each name once, however many spans have it.
pub(super) struct Names<'a> {
    evidence: Evidence<'a>,
    best_fit: BestFit<'a>,
    frames: HashMap<(bool, StackRef, StackRef), Option<Arc<str>>>,
    comms: HashMap<(ThreadIndex, Option<usize>), Arc<str>>,
    waited_on: BTreeMap<WaitedOn, Arc<str>>,
}

impl<'a> Names<'a> {
    pub(super) fn of(evidence: Evidence<'a>) -> Self {
        Self {
            evidence,
            best_fit: BestFit::new(&evidence.recording.stacks),
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
        entry.or_insert_with(|| comm().unwrap_or_else(|| Arc::from(report::NAMELESS))).clone()
    }

    /// Returns the frame in which a thread asked and waited, else the wait's cause.
    pub(super) fn of_request(&mut self, index: WaitIndex) -> Arc<str> {
        self.seen_in(index).unwrap_or_else(|| Arc::from((self.evidence.cause)(index).name()))
    }

    /// Returns the frame in which a thread waited.
    pub(super) fn seen_in(&mut self, index: WaitIndex) -> Option<Arc<str>> {
        let cause = (self.evidence.cause)(index);
        let wait = self.evidence.wait(index)?;
        self.frame(cause, wait.user_stack, wait.kernel_stack)
    }

    /// Returns the frame in which a thread ended a wait, else the thread's name.
    pub(super) fn of_ender(
        &mut self,
        ended: WaitIndex,
        thread: ThreadIndex,
        at: Timestamp,
    ) -> Arc<str> {
        let evidence = self.evidence;
        let wake = evidence.wait(ended).and_then(|wait| wait.wake);
        let wake = wake.filter(|_| evidence.waker(ended) == Some(thread));
        // Its kernel half says no more than how a wake is made.
        wake.and_then(|wake| self.frame(Cause::Futex, wake.user_stack, StackRef::NotTaken))
            .unwrap_or_else(|| self.comm(thread, at))
    }

    /// Returns the object that a wait was on, as text.
    pub(super) fn waited_on(&mut self, wait: &Wait, cause: Cause) -> Option<Arc<str>> {
        let on = waited_on(wait, cause)?;
        let files = &self.evidence.recording.files;
        let entry = self.waited_on.entry(on);
        let text = || text::cut(&report::waited_on::entry(files, on).text, LONGEST).into();
        Some(entry.or_insert_with(text).clone())
    }

    fn frame(&mut self, cause: Cause, user: StackRef, kernel: StackRef) -> Option<Arc<str>> {
        let best_fit = &mut self.best_fit;
        let find = || {
            let label = best_fit.of_wait(cause, user, kernel)?;
            (label.whose != Whose::Libc).then(|| text::cut(&label.function, LONGEST).into())
        };
        let entry = self.frames.entry((cause == Cause::Other, user, kernel));
        entry.or_insert_with(find).clone()
    }
}
