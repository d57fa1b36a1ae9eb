//! The slowest requests of a class, one by one: what the threads did meanwhile that had to do with them.

use std::collections::BTreeMap;

use offwake_recording::units::{Nanos, Timestamp};

use crate::{
    blame::Blame,
    findings::CulpritWriter,
    timeline::{State, ThreadIndex, Track},
};

use super::{
    found::{Request, SeenBy},
    model::{RequestRole, RequestThread, StretchState, ThreadStretch},
    profiles::RequestPart,
};

/// How many requests of a class are shown one by one.
pub(super) const SLOWEST: usize = 5;

/// The most threads of a request.
const MAX_THREADS: usize = 6;

/// The most stretches of a thread. Where it did more, each of so many equal parts of the request's time has what the
/// thread did for the better part of it.
const MAX_STRETCHES: u64 = 200;

/// Returns what threads did during a request: the one that asked, the one that served, and those that most of the time
/// was spent on.
pub(super) fn describe_threads(
    blame: &Blame<'_>,
    request: &Request,
    parts: &[RequestPart],
    writer: &CulpritWriter<'_>,
) -> Vec<RequestThread> {
    let mut times: BTreeMap<ThreadIndex, Nanos> = BTreeMap::new();
    for part in parts {
        *times.entry(part.time.thread).or_default() += part.time.time;
    }
    let mut waited_for: Vec<(ThreadIndex, Nanos)> = times.into_iter().collect();
    waited_for.sort_by_key(|&(thread, time)| (std::cmp::Reverse(time), thread));
    let asked = matches!(request.seen_by, SeenBy::Asker(_)).then_some(request.thread);
    let known = asked.into_iter().map(|thread| (thread, RequestRole::Asked));
    let known: Vec<_> = known.chain([(request.server, RequestRole::Served)]).collect();
    let is_new = |&(thread, _): &(ThreadIndex, Nanos)| known.iter().all(|&(one, _)| one != thread);
    let others = waited_for.into_iter().filter(is_new);
    let others = others.map(|(thread, _)| (thread, RequestRole::WaitedFor));
    (known.iter().copied().chain(others).take(MAX_THREADS))
        .filter_map(|(thread, role)| {
            let track = &blame.timeline().thread(thread)?.track;
            let states = find_states(track, request.from, request.to);
            (!states.is_empty()).then(|| RequestThread {
                name: writer.name_thread(thread, request.from),
                role,
                states,
            })
        })
        .collect()
}

/// Returns what a thread did between two moments.
fn find_states(track: &Track, from: Timestamp, to: Timestamp) -> Vec<ThreadStretch> {
    let mut stretches: Vec<ThreadStretch> = (track.newest_between(from, to))
        .map(|interval| ThreadStretch {
            from_ns: interval.from.max(from).since(from),
            to_ns: interval.to.min(to).since(from),
            state: StretchState::from(interval.state),
        })
        .collect();
    stretches.reverse();
    if stretches.len() as u64 > MAX_STRETCHES { coarsen(&stretches) } else { stretches }
}

/// Divides time into equal parts, each of which has the state that took the most of it.
fn coarsen(stretches: &[ThreadStretch]) -> Vec<ThreadStretch> {
    let (Some(first), Some(last)) = (stretches.first(), stretches.last()) else {
        return Vec::new();
    };
    let (begin, whole) = (first.from_ns.0, (last.to_ns - first.from_ns).0);
    let mut coarse: Vec<ThreadStretch> = Vec::new();
    let mut rest = stretches;
    for n in 0..MAX_STRETCHES {
        let bound = |n: u64| {
            Nanos(begin + (u128::from(whole) * u128::from(n) / u128::from(MAX_STRETCHES)) as u64)
        };
        let (from_ns, to_ns) = (bound(n), bound(n + 1));
        let passed = rest.partition_point(|one| one.to_ns <= from_ns);
        rest = rest.get(passed..).unwrap_or_default();
        let inside = rest.iter().take_while(|one| one.from_ns < to_ns);
        let length = |one: &&ThreadStretch| one.to_ns.min(to_ns) - one.from_ns.max(from_ns);
        let Some(state) = inside.max_by_key(length).map(|one| one.state) else { continue };
        match coarse.last_mut() {
            Some(last) if last.state == state => last.to_ns = to_ns,
            _ => coarse.push(ThreadStretch { from_ns, to_ns, state }),
        }
    }
    coarse
}

impl From<State> for StretchState {
    fn from(state: State) -> Self {
        match state {
            State::OnCpu => Self::OnCpu,
            State::Runnable(_) => Self::Runnable,
            State::Throttled(_) => Self::Throttled,
            State::Blocked(_) => Self::Blocked,
            State::Lost | State::Summed(_) => Self::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Nanos;

    use super::{MAX_STRETCHES, StretchState, ThreadStretch, coarsen};

    #[test]
    fn what_took_the_most_of_a_part_stands_for_it() {
        // 3 ns on a CPU, 1 ns blocked, so many times that two of them are in each part.
        let stretches: Vec<ThreadStretch> = (0..MAX_STRETCHES * 2)
            .flat_map(|n| {
                let at = |ns| Nanos(n * 4 + ns);
                [(0, 3, StretchState::OnCpu), (3, 4, StretchState::Blocked)].map(
                    |(from, to, state)| ThreadStretch { from_ns: at(from), to_ns: at(to), state },
                )
            })
            .collect();
        let whole = ThreadStretch {
            from_ns: Nanos(0),
            to_ns: Nanos(MAX_STRETCHES * 8),
            state: StretchState::OnCpu,
        };
        assert_eq!(coarsen(&stretches), [whole]);
    }
}
