//! Who asked whom for something, and which answer belongs to which ask.
//!
//! ```text
//! loop    --send on F-----------------------..poll..[
//!              | a wake: the ask                   ^ a wake: the answer
//! server  .....[ works                       ------+
//! ```
//!
//! A send that wakes nobody leaves no record: the server was awake.

use std::collections::{BTreeMap, BTreeSet};

use offwake_recording::{
    FileId, SocketEnd, Wake,
    units::{Tgid, Timestamp},
};

use crate::timeline::{ThreadIndex, WaitIndex};

use super::{
    Blame, ConnectionSide,
    open_asks::{Addresses, KnownAsk, NextAnswers, OpenAsks},
    process_wakes::{MAX_SEARCHED, ProcessWake},
    slices::SliceStart,
};

/// That a thread asked another for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) at: Timestamp,
    pub(super) asker: ThreadIndex,
    pub(super) callee: ThreadIndex,
    /// The wait of the callee that the ask ended.
    pub(super) wait: WaitIndex,
}

/// What is known of the ask that led to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskSearch {
    /// It woke the one that answered.
    Found(Ask),
    /// It woke nobody. It came after the answer before this one, if there was one: the thread that
    /// got that answer, and when.
    Unseen(Option<(ThreadIndex, Timestamp)>),
}

/// What was asked through a connection, and the newest wait that a part of the answer has ended.
pub(super) struct AnswerInParts {
    pub(super) ask: Ask,
    pub(super) first_part: WaitIndex,
}

/// An answer, and who gave it.
struct Answer<'w> {
    wake: &'w Wake,
    thread: Option<ThreadIndex>,
    is_own_process: bool,
    /// Whether it is the first of a thread that was made for a connection.
    is_first: bool,
}

impl Blame<'_> {
    /// Finds the ask that led to an answer: a wake of the one that answered, through the same
    /// connection, after the answer before. Of several, one that `is_for_waiter` says is for the
    /// waiter in question; else the newest.
    pub(super) fn find_ask(
        &self,
        answer: WaitIndex,
        is_for_waiter: impl Fn(&Ask) -> bool,
    ) -> AskSearch {
        const UNKNOWN: AskSearch = AskSearch::Unseen(None);
        let Some((own, other, answered, wake)) = self.wake_between_processes(answer) else {
            return UNKNOWN;
        };
        let start = self.recording.meta.window.start;
        let before = self
            .process_wakes
            .newest_first((other, own), (start, answered))
            .find(|earlier| self.is_same_sender(&wake, earlier.wait));
        let since = before.map_or(start, |before| before.at);
        let answer = Answer {
            wake: &wake,
            thread: self.waker_thread(answer).map(|(thread, _)| thread),
            is_own_process: own == other,
            is_first: self.is_first_answer(answer),
        };
        let asks = self
            .process_wakes
            .newest_first((own, other), (since, answered))
            .filter(|ask| self.is_ask(ask.wait) && self.is_possible_ask(ask.wait, &answer));
        // What made another process is a wake of the one that made it.
        let connection = self
            .connection_of_answer(&answer, own)
            .filter(|ask| ask.at >= since && self.process_of_wait(ask.wait) != Some(other));
        let asks = asks.chain(connection);
        let mut newest = None;
        for ask in asks.filter_map(|wake| self.ask_of_wake(wake)) {
            if is_for_waiter(&ask) {
                return AskSearch::Found(ask);
            }
            newest.get_or_insert(ask);
        }
        match newest {
            Some(ask) => AskSearch::Found(ask),
            None => AskSearch::Unseen(before.and_then(|before| {
                Some((self.timeline.blocked_interval(before.wait)?.thread, before.at))
            })),
        }
    }

    /// Finds what the process of a wait had asked since `since` through the connection that ended the wait, and
    /// the newest part of the answer that came through it before. None if it had asked more than once.
    pub(super) fn find_answer_in_parts(
        &self,
        wait: WaitIndex,
        since: Timestamp,
    ) -> Option<AnswerInParts> {
        let whole = self.recording.waits.get(wait.0 as usize)?;
        let wake = whole.wake.as_ref()?;
        let own = wake.ready?.file;
        let until = wake.at;
        let peers = &self.tcp_socket(own)?.peers;
        let asked = peers.iter().flat_map(|peer| {
            let wakes = self.process_wakes.newest_first((whole.tgid, peer.tgid), (since, until));
            wakes.filter(|wake| self.file_of_wake(wake.wait) == Some(own))
        });
        let mut asks = asked.filter(|wake| self.is_ask(wake.wait));
        let asked = asks.next().filter(|_| asks.next().is_none())?;
        let callee = self.process_of_wait(asked.wait)?;
        let mut parts = self.process_wakes.newest_first((callee, whole.tgid), (asked.at, until));
        let first_part = parts.find(|part| {
            let through = self.file_of_wake(part.wait);
            through.and_then(|file| self.is_connection(own, file)) == Some(true)
        })?;
        Some(AnswerInParts { ask: self.ask_of_wake(asked)?, first_part: first_part.wait })
    }

    /// Finds what a process asked others for in `from..to`, for the waiter in question, and had no answer to by
    /// `until`: the first of what it asked of each thread, up to `limit` threads. `is_for_waiter` gets each ask with
    /// what had set the thread that asked to work.
    pub(super) fn find_open_asks(
        &self,
        process: Tgid,
        (from, to): (Timestamp, Timestamp),
        until: Timestamp,
        limit: usize,
        is_for_waiter: impl Fn(&Ask, Option<SliceStart>) -> bool,
    ) -> Vec<Ask> {
        let mut open: Vec<Ask> = Vec::new();
        let asks = self.asks_of(process).map(|asks| asks.newest_first((from, to), until));
        for known in asks.into_iter().flatten() {
            let KnownAsk { ask, begun, .. } = known;
            if !self.process_wakes.is_among_newest(process, &known, to)
                || !is_for_waiter(&ask, begun)
            {
                continue;
            }
            let is_full = open.len() == limit;
            match open.iter_mut().find(|open| open.callee == ask.callee) {
                // The first of several: the others are parts of it.
                Some(later) => *later = ask,
                None if is_full => break,
                None => open.push(ask),
            }
        }
        open
    }

    /// Returns what a process asked others for in `from..to`, and had no answer to by `until`.
    pub(super) fn open_asks_of(
        &self,
        process: Tgid,
        range: (Timestamp, Timestamp),
        until: Timestamp,
    ) -> impl Iterator<Item = Ask> + '_ {
        let asks = self.asks_of(process);
        asks.into_iter()
            .flat_map(move |asks| asks.newest_first(range, until))
            .map(|known| known.ask)
            .take(MAX_SEARCHED)
    }

    /// Returns the threads that were seen to answer a process with a loop: its servers', and those of its own that do
    /// jobs for it.
    pub(super) fn answering_threads(&self, process: Tgid) -> &[ThreadIndex] {
        let Some(known) = self.process_wakes.answering.get(&process) else { return &[] };
        known.threads.get_or_init(|| {
            let waits = known.last_of_patterns.iter();
            let threads: BTreeSet<ThreadIndex> = waits
                .filter_map(|&wait| self.waker_thread(wait).map(|(thread, _)| thread))
                .collect();
            threads.into_iter().collect()
        })
    }

    fn asks_of(&self, process: Tgid) -> Option<&OpenAsks> {
        let by_process = self.process_wakes.wakes.get(&process)?;
        Some(by_process.asks.get_or_init(|| self.find_asks(process, &by_process.by_woken)))
    }

    /// Returns whether a process with a loop was seen to do nothing but serve its clients.
    pub(crate) fn only_serves(&self, process: Tgid) -> bool {
        self.process_wakes.serves_alone(process)
    }

    /// Finds all that a process asked others for, and when each of them was first seen to answer it.
    fn find_asks(&self, process: Tgid, by_woken: &BTreeMap<Tgid, Vec<ProcessWake>>) -> OpenAsks {
        let mut asks = Vec::new();
        for (&callee, wakes) in by_woken {
            let mut next_answers = NextAnswers::default();
            let mut answers = self.process_wakes.between((callee, process)).iter().rev().peekable();
            for (wake, later_wakes) in wakes.iter().rev().zip(0..) {
                while let Some(answer) = answers.next_if(|answer| answer.at >= wake.at) {
                    let thread = self.waker_thread(answer.wait).map(|(thread, _)| thread);
                    next_answers.add(answer.at, thread, self.connection_of_wake(answer.wait));
                }
                // Most wakes are answers to clients.
                let ask = self.is_ask(wake.wait).then(|| self.ask_of_wake(*wake)).flatten();
                asks.extend(ask.map(|ask| {
                    let connection = self.connection_of_wake(ask.wait);
                    let answered = next_answers.find(ask.callee, connection);
                    let answered = match self.thread_made_for(ask.wait) {
                        // Its acceptor may be one that answers, too.
                        Some(made) => (self.woken_thread(*wake).into_iter())
                            .map(|acceptor| next_answers.find(acceptor, connection))
                            .chain(self.first_answer(made, process, ask.at))
                            .fold(answered, Timestamp::min),
                        None => answered,
                    };
                    let begun = self.find_slice_start(ask.asker, ask.at);
                    (KnownAsk { ask, begun, callee, later_wakes }, answered)
                }));
            }
        }
        OpenAsks::new(asks)
    }

    /// Returns when a thread first answered a process after it had been asked for something.
    fn first_answer(
        &self,
        callee: ThreadIndex,
        process: Tgid,
        asked: Timestamp,
    ) -> Option<Timestamp> {
        let answers =
            self.process_wakes.between((self.timeline.process_of_thread(callee)?, process));
        let next = answers.partition_point(|answer| answer.at < asked);
        let is_from_callee = |answer: &&ProcessWake| {
            self.waker_thread(answer.wait).is_some_and(|(thread, _)| thread == callee)
        };
        let mut later = answers.get(next..).unwrap_or_default().iter().take(MAX_SEARCHED);
        later.find(is_from_callee).map(|answer| answer.at)
    }

    /// Returns the wakes of a thread by a process in `from..to`, as asks.
    pub(super) fn wakes_of_thread(
        &self,
        process: Tgid,
        callee: ThreadIndex,
        (from, to): (Timestamp, Timestamp),
    ) -> impl Iterator<Item = Ask> + '_ {
        let other = self.timeline.process_of_thread(callee);
        let wakes =
            other.map(|other| self.process_wakes.newest_first((process, other), (from, to)));
        (wakes.into_iter().flatten())
            .filter_map(|wake| self.ask_of_wake(wake))
            .filter(move |ask| ask.callee == callee)
    }

    /// Returns the processes of a wait and of its waker, when it was ended, and by which wake.
    fn wake_between_processes(&self, wait: WaitIndex) -> Option<(Tgid, Tgid, Timestamp, Wake)> {
        let wait = self.recording.waits.get(wait.0 as usize)?;
        let wake = wait.wake?;
        Some((wait.tgid, wake.current.tgid, wake.at, wake))
    }

    fn wake_of(&self, wait: WaitIndex) -> Option<Wake> {
        self.recording.waits.get(wait.0 as usize)?.wake
    }

    /// Returns whether two wakes came through the same file, or from the same thread if that is not
    /// known.
    fn is_same_sender(&self, wake: &Wake, earlier: WaitIndex) -> bool {
        let Some(earlier) = self.wake_of(earlier) else { return false };
        match (wake.file, earlier.file) {
            (Some(one), Some(other)) => one == other,
            _ => wake.current == earlier.current,
        }
    }

    /// Returns whether the waker in a wait's end may have asked for something: it is not the server
    /// of the one that it woke.
    fn is_ask(&self, wait: WaitIndex) -> bool {
        self.pattern(wait).is_some_and(|(_, pattern)| pattern.side != ConnectionSide::Asking)
    }

    /// Returns whether a connection's ends tell that a wake was an ask: the one that it woke waited
    /// for its next request.
    pub(super) fn is_ask_by_side(&self, ask: &Ask) -> bool {
        self.pattern(ask.wait).is_some_and(|(_, pattern)| pattern.side == ConnectionSide::Serving)
    }

    /// Returns the wakes between the same two processes shortly before and after an ask, as asks.
    pub(super) fn wakes_around(&self, ask: &Ask) -> impl Iterator<Item = Ask> + '_ {
        let asker = self.timeline.process_of_thread(ask.asker);
        let pair = asker.zip(self.process_of_wait(ask.wait));
        let wakes = pair.map_or([].as_slice(), |pair| self.process_wakes.around(pair, ask.at));
        wakes.iter().filter_map(|&wake| self.ask_of_wake(wake))
    }

    /// Returns whether what ended a wait may have been the ask that `answer` is the answer to.
    fn is_possible_ask(&self, ask: WaitIndex, answer: &Answer<'_>) -> bool {
        let Some(asked) = self.recording.waits.get(ask.0 as usize) else { return false };
        let files = asked.wake.and_then(|wake| wake.file).zip(answer.wake.file);
        if let Some(is_same) = files.and_then(|(own, other)| self.is_connection(own, other)) {
            return is_same;
        }
        match self.thread_made_for(ask) {
            Some(made) => answer.thread == Some(made),
            // Who was made for another connection has not been asked through this one yet.
            None => {
                asked.tid == answer.wake.current.tid || !(answer.is_own_process || answer.is_first)
            }
        }
    }

    /// Returns whether a thread that was made for a connection had answered nobody of the process that it
    /// answers, and waited for no other work, before it ended a wait.
    fn is_first_answer(&self, answer: WaitIndex) -> bool {
        let made = self.waker_thread(answer).filter(|&(it, _)| self.made_after(it).is_some());
        let Some((thread, at)) = made else { return false };
        let Some((own, other, ..)) = self.wake_between_processes(answer) else { return false };
        let Some(life) = self.timeline.thread(thread) else { return false };
        self.find_slice_wait(thread, at).is_none()
            && !(self.process_wakes.newest_first((other, own), (life.from, at)))
                .any(|earlier| self.waker_thread(earlier.wait).is_some_and(|(it, _)| it == thread))
    }

    /// Returns the connection that a thread was made for which answers a process, if that process had made it.
    fn connection_of_answer(&self, answer: &Answer<'_>, process: Tgid) -> Option<ProcessWake> {
        let thread = answer.thread?;
        let wait = self.made_after(thread)?;
        let waker = self.pattern(wait)?.1.waker()?;
        let at = self.recording.waits.rows().get(wait.0 as usize)?.woken_at()?;
        let is_own = waker.tgid == process && self.thread_made_for(wait) == Some(thread);
        is_own.then_some(ProcessWake { at, wait })
    }

    /// Returns whether whoever ended a wait of a process's was made for a connection of that process.
    pub(super) fn is_answer_through_own_connection(&self, answer: WaitIndex) -> bool {
        let Some((own, _, _, wake)) = self.wake_between_processes(answer) else { return false };
        let thread = self.waker_thread(answer).map(|(thread, _)| thread);
        let answer = Answer { wake: &wake, thread, is_own_process: false, is_first: false };
        self.connection_of_answer(&answer, own).is_some()
    }

    /// Returns whether a thread that was made for a connection waited for the request that comes through it: it has not
    /// answered yet, and who connected ended the wait.
    pub(super) fn is_for_first_request(&self, ask: &Ask, wait: WaitIndex) -> bool {
        let Some(asker) = self.timeline.process_of_thread(ask.asker) else { return false };
        let waker = self.pattern(wait).and_then(|(_, pattern)| pattern.waker());
        self.thread_made_for(ask.wait) == Some(ask.callee)
            && waker.is_some_and(|waker| waker.tgid == asker)
            && self.end_of_blocked_part(wait).is_some_and(|ended| {
                self.first_answer(ask.callee, asker, ask.at).is_none_or(|first| first >= ended)
            })
    }

    fn process_of_wait(&self, wait: WaitIndex) -> Option<Tgid> {
        let row = self.recording.waits.rows().get(wait.0 as usize)?;
        Some(self.recording.waits.waiter(row).tgid)
    }

    /// Returns whether two sockets are the two ends of one connection; none if that can't be told.
    fn is_connection(&self, one: FileId, other: FileId) -> Option<bool> {
        let (one, other) = (self.tcp_socket(one)?, self.tcp_socket(other)?);
        Some((&one.local, &one.remote) == (&other.remote, &other.local))
    }

    /// Returns the addresses of the TCP socket through which a wait was ended.
    fn connection_of_wake(&self, wait: WaitIndex) -> Option<Addresses<'_>> {
        let socket = self.tcp_socket(self.file_of_wake(wait)?)?;
        Some((socket.local.as_str(), socket.remote.as_str()))
    }

    /// Returns the file through which a wait was ended.
    fn file_of_wake(&self, wait: WaitIndex) -> Option<FileId> {
        let waits = &self.recording.waits;
        waits.waker(waits.rows().get(wait.0 as usize)?)?.file
    }

    fn tcp_socket(&self, file: FileId) -> Option<&SocketEnd> {
        self.recording.files.socket(file).filter(|socket| {
            socket.protocol == "tcp" && !socket.local.is_empty() && !socket.remote.is_empty()
        })
    }

    fn ask_of_wake(&self, wake: ProcessWake) -> Option<Ask> {
        let (asker, _) = self.recorded_waker_thread(wake.wait)?;
        let callee = match self.thread_made_for(wake.wait) {
            Some(made) => made,
            None => self.woken_thread(wake)?,
        };
        Some(Ask { at: wake.at, asker, callee, wait: wake.wait })
    }

    fn woken_thread(&self, wake: ProcessWake) -> Option<ThreadIndex> {
        let row = self.recording.waits.rows().get(wake.wait.0 as usize)?;
        self.timeline.find_thread(self.recording.waits.waiter(row).tid, wake.at)
    }
}
