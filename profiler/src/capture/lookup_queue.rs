//! What the look-up thread is asked for, with a look ahead: nothing has to be found out about a
//! program that has already ended.
//!
//! ```text
//!  drain, each 10 ms:  fork 7   exec 7   exit 7   fork 9   exec 9
//!                      |        |                 |        '- looked up
//!                      |        |                 '- replaced by its exec: not looked up
//!                      '--------'- gone: not looked up
//! ```

use std::{
    collections::{HashMap, VecDeque},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use foldhash::fast::RandomState;
use offwake_recording::units::Tgid;

use super::messages::Lookup;

/// Requests that are received ahead at most. A drain of 10 ms brings some 100 of a machine whose two
/// CPUs do nothing but start processes.
const MAX_AHEAD: usize = 4096;

/// The requests that have come, in order.
pub(super) struct LookupQueue<'a> {
    requests: &'a Receiver<Lookup>,
    ahead: VecDeque<Lookup>,
    /// How many requests in `ahead` say that the program of a process is over.
    ends: HashMap<Tgid, u32, RandomState>,
}

impl<'a> LookupQueue<'a> {
    pub(super) fn new(requests: &'a Receiver<Lookup>) -> Self {
        Self { requests, ahead: VecDeque::new(), ends: HashMap::default() }
    }

    /// Receives the next request, and all that have come behind it.
    ///
    /// # Errors
    ///
    /// If none comes in time, or nobody can ask any more.
    pub(super) fn receive(&mut self, timeout: Duration) -> Result<Lookup, RecvTimeoutError> {
        if self.ahead.is_empty() {
            let first = self.requests.recv_timeout(timeout)?;
            self.add(first);
        }
        while self.ahead.len() < MAX_AHEAD
            && let Ok(request) = self.requests.try_recv()
        {
            self.add(request);
        }
        let next = self.ahead.pop_front().ok_or(RecvTimeoutError::Timeout)?;
        if let Some(tgid) = ended_program(&next)
            && let Some(count) = self.ends.get_mut(&tgid)
        {
            *count -= 1;
            if *count == 0 {
                self.ends.remove(&tgid);
            }
        }
        Ok(next)
    }

    /// Returns whether a request that was received ahead says that the process runs another program
    /// or has ended.
    pub(super) fn is_over(&self, tgid: Tgid) -> bool {
        self.ends.contains_key(&tgid)
    }

    fn add(&mut self, request: Lookup) {
        if let Some(tgid) = ended_program(&request) {
            *self.ends.entry(tgid).or_default() += 1;
        }
        self.ahead.push_back(request);
    }
}

/// Returns the process whose program is over with this.
fn ended_program(request: &Lookup) -> Option<Tgid> {
    match *request {
        Lookup::Exec { tgid, .. } | Lookup::Exit { tgid, .. } => Some(tgid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{self, RecvTimeoutError},
        time::Duration,
    };

    use super::{Lookup, LookupQueue, MAX_AHEAD};
    use offwake_recording::units::{Tgid, Timestamp};

    const AT: Timestamp = Timestamp(1);
    const NOW: Duration = Duration::ZERO;

    fn fork(child: u32) -> Lookup {
        Lookup::Fork { parent: Tgid(1), child: Tgid(child), at: AT }
    }

    fn exec(tgid: u32) -> Lookup {
        Lookup::Exec { tgid: Tgid(tgid), at: AT }
    }

    fn exit(tgid: u32) -> Lookup {
        Lookup::Exit { tgid: Tgid(tgid), at: AT }
    }

    #[test]
    fn a_program_is_over_if_its_end_is_behind_it() {
        let (sender, requests) = mpsc::sync_channel(100);
        let sent = [fork(7), exec(7), exit(7), fork(9), exec(9), fork(7)];
        for request in sent {
            sender.send(request).unwrap();
        }
        let mut queue = LookupQueue::new(&requests);
        let mut over = Vec::new();
        while let Ok(request) = queue.receive(NOW) {
            let (Lookup::Fork { child: tgid, .. }
            | Lookup::Exec { tgid, .. }
            | Lookup::Exit { tgid, .. }) = request
            else {
                panic!("something else was received")
            };
            over.push((tgid.0, queue.is_over(tgid)));
        }
        // The second 7 is another process: nothing ends it.
        let expected = [(7, true), (7, true), (7, false), (9, true), (9, false), (7, false)];
        assert_eq!(over, expected);
        assert!(queue.ends.is_empty());
    }

    #[test]
    fn so_many_are_received_ahead_and_every_one_comes() {
        let (sender, requests) = mpsc::sync_channel(3 * MAX_AHEAD);
        for n in 0..2 * MAX_AHEAD as u32 {
            sender.send(exit(n)).unwrap();
        }
        let mut queue = LookupQueue::new(&requests);
        assert!(matches!(queue.receive(NOW), Ok(Lookup::Exit { tgid: Tgid(0), .. })));
        assert_eq!(queue.ahead.len(), MAX_AHEAD - 1);
        let rest = std::iter::from_fn(|| queue.receive(NOW).ok()).count();
        assert_eq!(rest, 2 * MAX_AHEAD - 1);
        assert!(matches!(queue.receive(NOW), Err(RecvTimeoutError::Timeout)));
        drop(sender);
        assert!(matches!(queue.receive(NOW), Err(RecvTimeoutError::Disconnected)));
    }
}
