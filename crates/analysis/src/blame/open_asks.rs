//! Finds the asks that had no answer yet among very many that had one.
//!
//! A loop with 30 clients asks ten thousand times a second, and nearly every ask is answered before the
//! next one. So it is found out once for each ask until when it was open, and what is not open is passed
//! over in blocks.
//!
//! ```text
//! asks of a process, by time   a b c d │ e f g h │ i j k l
//! open until                   2 4 9 5 │ 6 7 8 8 │ 12 ∞ 11 ∞
//! the last of a block            9     │    8    │    ∞       open at 9: c, i to l; e to h are not read
//! ```

use std::collections::HashMap;

use offwake_recording::units::{Tgid, Timestamp};

use crate::timeline::ThreadIndex;

use super::{asks::Ask, slices::SliceStart};

/// How many asks are passed over at once.
const BLOCK: usize = 64;

/// When an ask is answered that nobody answers.
const NEVER: Timestamp = Timestamp(u64::MAX);

type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// An ask of a process, and what does not depend on who looks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownAsk {
    pub(super) ask: Ask,
    /// What had set the thread that asked to work.
    pub(super) begun: Option<SliceStart>,
    /// The process that was asked.
    pub(super) callee: Tgid,
    /// How often the process that asked has woken it since.
    pub(super) later_wakes: u32,
}

/// The asks of one process in the order of time.
#[derive(Debug)]
pub(super) struct OpenAsks {
    asks: Vec<KnownAsk>,
    /// When each was first answered.
    open_until: Vec<Timestamp>,
    /// The last of those in each [`BLOCK`].
    block_open_until: Vec<Timestamp>,
}

impl OpenAsks {
    /// Puts asks, each with when it was first answered ([`NextAnswers::find`]), into order.
    pub(super) fn new(mut asks: Vec<(KnownAsk, Timestamp)>) -> Self {
        asks.sort_unstable_by_key(|(known, _)| (known.ask.at, known.ask.wait));
        let (asks, open_until): (Vec<_>, Vec<_>) = asks.into_iter().unzip();
        let last = |block: &[Timestamp]| block.iter().copied().max().unwrap_or(NEVER);
        let block_open_until = open_until.chunks(BLOCK).map(last).collect();
        Self { asks, open_until, block_open_until }
    }

    /// Returns the asks in `from..to` that had no answer before `until`, the newest first.
    pub(super) fn newest_first(
        &self,
        (from, to): (Timestamp, Timestamp),
        until: Timestamp,
    ) -> impl Iterator<Item = KnownAsk> + '_ {
        let count_before = |at| self.asks.partition_point(|known| known.ask.at < at);
        let (begin, end) = (count_before(from), count_before(to));
        (begin / BLOCK..end.div_ceil(BLOCK))
            .rev()
            .filter(move |&block| self.block_open_until.get(block).is_some_and(|&it| it >= until))
            .flat_map(move |block| {
                let first = block * BLOCK;
                (first.max(begin)..(first + BLOCK).min(end)).rev()
            })
            .filter(move |&n| self.open_until.get(n).is_some_and(|&it| it >= until))
            .filter_map(|n| self.asks.get(n).copied())
    }
}

/// The addresses of a TCP socket: its own, and the one of its other end.
pub(super) type Addresses<'r> = (&'r str, &'r str);

/// The next answers of one process to another, for somebody who goes back in time. An answer is known by its
/// connection where both it and the ask have one, and by the thread that was asked where not.
///
/// ```text
/// asks       A        B
/// answers        a      b   a
///                ◀──────────── back in time: the next answer to B is b, to A is the first a
/// ```
#[derive(Default)]
pub(super) struct NextAnswers<'r> {
    by_connection: FastMap<Addresses<'r>, Timestamp>,
    /// Those through connections, by the thread that answered, and all others.
    through_connections: FastMap<ThreadIndex, Timestamp>,
    otherwise: FastMap<ThreadIndex, Timestamp>,
}

impl<'r> NextAnswers<'r> {
    /// Adds an answer of a thread, which came before all that were added so far.
    pub(super) fn add(
        &mut self,
        at: Timestamp,
        thread: Option<ThreadIndex>,
        connection: Option<Addresses<'r>>,
    ) {
        let by_thread = match connection {
            Some(addresses) => {
                self.by_connection.insert(addresses, at);
                &mut self.through_connections
            }
            None => &mut self.otherwise,
        };
        by_thread.extend(thread.map(|thread| (thread, at)));
    }

    /// Returns when a thread first answered what it was asked through a connection, or otherwise.
    pub(super) fn find(&self, callee: ThreadIndex, connection: Option<Addresses<'r>>) -> Timestamp {
        let through = match connection {
            Some((local, remote)) => self.by_connection.get(&(remote, local)),
            None => self.through_connections.get(&callee),
        };
        let otherwise = self.otherwise.get(&callee);
        through.into_iter().chain(otherwise).copied().min().unwrap_or(NEVER)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::{Addresses, BLOCK, KnownAsk, NEVER, NextAnswers, OpenAsks};
    use crate::{
        blame::asks::Ask,
        timeline::{ThreadIndex, WaitIndex},
    };
    use offwake_recording::units::{Tgid, Timestamp};

    /// Both ends of two connections, and none.
    const CONNECTIONS: [Option<Addresses<'static>>; 5] =
        [None, Some(("a", "b")), Some(("b", "a")), Some(("a", "c")), Some(("c", "a"))];

    fn known(at: u64, n: u32) -> KnownAsk {
        let (asker, callee) = (ThreadIndex(0), ThreadIndex(1));
        let ask = Ask { at: Timestamp(at), asker, callee, wait: WaitIndex(n) };
        KnownAsk { ask, begun: None, callee: Tgid(1), later_wakes: 0 }
    }

    proptest! {
        #[test]
        fn asks_are_open_until_they_are_answered(
            asks in vec((0_u64..60, prop::option::of(0_u64..80)), 0..4 * BLOCK),
            (from, to, until) in (0_u64..60, 0_u64..70, 0_u64..80),
        ) {
            let end = |answered: Option<u64>| answered.map_or(NEVER, Timestamp);
            let all = (0..).zip(&asks).map(|(n, &(at, answered))| (known(at, n), end(answered)));
            let index = OpenAsks::new(all.clone().collect());
            let found: Vec<_> = index
                .newest_first((Timestamp(from), Timestamp(to)), Timestamp(until))
                .map(|known| (known.ask.at.0, known.ask.wait))
                .collect();
            let mut expected: Vec<_> = all
                .filter(|&(known, open_until)| {
                    (from..to).contains(&known.ask.at.0) && open_until >= Timestamp(until)
                })
                .map(|(known, _)| (known.ask.at.0, known.ask.wait))
                .collect();
            expected.sort_unstable();
            expected.reverse();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn the_next_answer_is_the_first_through_the_connection_or_of_the_thread(
            answers in vec((prop::option::of(0_u32..3), 0..CONNECTIONS.len()), 0..30),
            (callee, asked_through) in (0_u32..3, 0..CONNECTIONS.len()),
        ) {
            let callee = ThreadIndex(callee);
            let asked_through = CONNECTIONS[asked_through];
            let answers: Vec<_> = (0..)
                .map(Timestamp)
                .zip(answers.iter().map(|&(thread, n)| (thread.map(ThreadIndex), CONNECTIONS[n])))
                .collect();
            let mut next = NextAnswers::default();
            for &(at, (thread, through)) in answers.iter().rev() {
                next.add(at, thread, through);
            }
            let is_answer = |(thread, through): (Option<ThreadIndex>, Option<Addresses<'_>>)| {
                match asked_through.zip(through) {
                    Some((own, other)) => own == (other.1, other.0),
                    None => thread == Some(callee),
                }
            };
            let expected = answers.iter().find(|&&(_, answer)| is_answer(answer));
            let expected = expected.map_or(NEVER, |&(at, _)| at);
            prop_assert_eq!(next.find(callee, asked_through), expected);
        }
    }
}
