//! The files that threads poll since before anybody looked. The kernel half reads the descriptor in a
//! thread's `struct pollfd` as the thread goes to sleep; of a thread that sleeps already, it can't.
//!
//! ```text
//! open poll(0x7ffc…10, 1) ──▶ pollfd in memory: fd 7 ──▶ /proc/PID/fd/7 ──▶ the file
//! ```

use std::{collections::HashMap, sync::mpsc::Sender, time::Duration};

use offwake_analysis::blame::cause::syscalls;
use offwake_recording::{
    FileId, Wait,
    units::{Tgid, Tid},
};

use crate::{
    files, own_threads::OwnThread, reader_thread::ReaderThread, resident_memory::ResidentMemory,
    symbols::python::memory::Memory as _, thread_call::ThreadCall,
};

/// The most waits that are looked into.
const MAX_WAITS: usize = 4_096;
/// How long it may take in all.
const PATIENCE: Duration = Duration::from_millis(250);

static READER: ReaderThread = ReaderThread::new(OwnThread::PolledFiles);

/// An open wait of a thread that polls one file, which is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenPoll {
    tgid: Tgid,
    tid: Tid,
    seq: u32,
    syscall: u32,
    /// Address of the only `struct pollfd`.
    address: u64,
}

impl OpenPoll {
    fn from_wait(wait: &Wait) -> Option<Self> {
        let syscall = wait.syscall.as_ref()?;
        let [address, count, ..] = syscall.args;
        let is_unknown = wait.file.is_none() && wait.wake.is_none();
        // The kernel takes the lower half of the register for an `unsigned int`.
        let is_of_one = syscalls::name(syscall).is_some_and(syscalls::polls) && count as u32 == 1;
        (is_unknown && is_of_one).then_some(Self {
            tgid: wait.tgid,
            tid: wait.tid,
            seq: wait.seq,
            syscall: syscall.number,
            address,
        })
    }

    /// Returns whether the thread is in this very call.
    fn is_open(&self) -> bool {
        ThreadCall::read(self.tgid, self.tid).is_some_and(|call| self.is_call(call))
    }

    fn is_call(&self, ThreadCall { number, arguments: [address, count, _] }: ThreadCall) -> bool {
        (number, address, count) == (self.syscall, self.address, 1)
    }
}

/// The file that a thread polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolledFile {
    poll: OpenPoll,
    pub(crate) fd: u32,
    pub(crate) file: FileId,
}

impl PolledFile {
    /// The process that polls.
    pub(crate) fn tgid(&self) -> Tgid {
        self.poll.tgid
    }

    /// The thread that polls.
    pub(crate) fn tid(&self) -> Tid {
        self.poll.tid
    }
}

/// Selects the waits whose files are to be found: those of the target first.
pub(crate) fn select_open_polls(open: &[Wait]) -> Vec<OpenPoll> {
    let polls = |in_target| {
        (open.iter().filter(move |wait| wait.in_target == in_target))
            .filter_map(OpenPoll::from_wait)
    };
    polls(true).chain(polls(false)).take(MAX_WAITS).collect()
}

/// Finds the files that threads poll.
pub(crate) fn find_polled_files(polls: Vec<OpenPoll>) -> Vec<PolledFile> {
    READER.collect(PATIENCE, move |found| send_files(&polls, found))
}

/// Sends the files as they are found, until there are no more or nobody listens.
fn send_files(polls: &[OpenPoll], found: &Sender<PolledFile>) {
    let mut memories: HashMap<Tgid, Option<ResidentMemory>> = HashMap::new();
    for poll in polls {
        let memory = (memories.entry(poll.tgid))
            .or_insert_with(|| ResidentMemory::open(poll.tgid).ok())
            .as_ref();
        let file = memory.and_then(|memory| find_file(poll, memory));
        if file.is_some_and(|file| found.send(file).is_err()) {
            return;
        }
    }
}

/// Finds the file that a thread polls. The thread has to be in the same call afterwards.
fn find_file(poll: &OpenPoll, memory: &ResidentMemory) -> Option<PolledFile> {
    let fd = memory.half(poll.address)?;
    let file = files::identify_of_process(poll.tgid, fd)?;
    poll.is_open().then_some(PolledFile { poll: *poll, fd, file })
}

/// Adds the files that were found to the waits.
pub(crate) fn add_files(waits: &mut [Wait], found: &[PolledFile]) {
    let by_thread: HashMap<Tid, &PolledFile> =
        found.iter().map(|polled| (polled.poll.tid, polled)).collect();
    for wait in waits {
        let polled = by_thread
            .get(&wait.tid)
            .filter(|polled| OpenPoll::from_wait(wait) == Some(polled.poll));
        if let Some(polled) = polled {
            (wait.file, wait.polled_fd) = (Some(polled.file), Some(polled.fd));
        }
    }
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::{Tgid, Tid};

    use super::{OpenPoll, ThreadCall};

    #[test]
    fn a_call_is_the_same_if_its_number_and_its_arguments_are() {
        let poll = OpenPoll { tgid: Tgid(7), tid: Tid(8), seq: 3, syscall: 7, address: 0x7ffc10 };
        let is_poll = |text| ThreadCall::parse(text).is_some_and(|call| poll.is_call(call));
        assert!(is_poll("7 0x7ffc10 0x1 0xffffffff 0x0 0x0 0x0 0x7ffc00 0x7f01\n"));
        for other in [
            "271 0x7ffc10 0x1 0xffffffff 0x0 0x0 0x0 0x7ffc00 0x7f01",
            "7 0x7ffc18 0x1 0xffffffff 0x0 0x0 0x0 0x7ffc00 0x7f01",
            "7 0x7ffc10 0x2 0xffffffff 0x0 0x0 0x0 0x7ffc00 0x7f01",
            "running",
            "",
        ] {
            assert!(!is_poll(other), "{other}");
        }
    }
}
