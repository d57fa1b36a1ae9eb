//! Divides a program's work by the functions in which slow requests spend more of it than fast ones do.
//!
//! ```text
//! fast   [ answer 1 ms ]
//! slow   [ answer 1 ms ][ answer → make_report 30 ms ]      30 ms more in make_report, nothing more elsewhere
//! ```
//!
//! Samples tell where a thread worked. Short work has none: of that, a function gets the share that it has of the
//! sampled work of such requests, of the slow ones or of all others.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use offwake_recording::units::Nanos;

use crate::{blame::StackPairId, findings::CulpritWriter, label::Label};

use super::profiles::CulpritId;

/// Fewer samples in slow requests tell nothing about where they worked.
const FEWEST_SAMPLES: usize = 5;

/// Samples of at least this part of some work tell where all of it was.
const MIN_SAMPLED: f64 = 0.2;

/// The most functions that the work of one program is divided into.
const MAX_FUNCTIONS: usize = 4;

/// A function that makes a smaller part of the difference is not told apart.
const MIN_EXCESS: f64 = 0.05;

/// Functions of which fast requests run this much more than of another are none that tell them from slow ones.
const FAST_SHARE: f64 = 0.05;

/// Identifies a function within one [`WorkFunctions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FunctionId(usize);

/// Which of its class's requests a request is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speed {
    Slow,
    Other,
}

/// The work of one program in the requests of a class.
#[derive(Debug, Default)]
pub(super) struct ProgramWork {
    slow: WorkInStacks,
    others: WorkInStacks,
    /// Of the fast half alone.
    fast: WorkInStacks,
}

/// Work, by where threads were at it.
#[derive(Debug, Default)]
struct WorkInStacks {
    /// How long, and in how many parts of requests.
    times: HashMap<StackPairId, (Nanos, usize), foldhash::fast::RandomState>,
}

/// How many requests are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComparedCounts {
    pub(super) slow: usize,
    pub(super) fast: usize,
}

/// The functions that work is divided by.
#[derive(Debug, Default)]
pub(super) struct WorkFunctions {
    labels: Vec<Label>,
    divided: HashMap<CulpritId, DividedWork, foldhash::fast::RandomState>,
}

/// The work of one program, divided.
#[derive(Debug, Default)]
struct DividedWork {
    functions: Vec<FunctionShares>,
    /// The function that each sampled stack counts for; none if it is in no such function.
    by_stack: HashMap<StackPairId, Option<FunctionId>, foldhash::fast::RandomState>,
}

/// A function, and its part of the sampled work.
#[derive(Clone, Copy, Debug)]
struct FunctionShares {
    function: FunctionId,
    of_slow: f64,
    of_others: f64,
}

impl ProgramWork {
    pub(super) fn add(&mut self, speed: Speed, stack: StackPairId, time: Nanos) {
        match speed {
            Speed::Slow => self.slow.add(stack, time),
            Speed::Other => self.others.add(stack, time),
        }
    }

    pub(super) fn add_to_fast(&mut self, stack: StackPairId, time: Nanos) {
        self.fast.add(stack, time);
    }

    /// Returns how much more of this work a slow request has than one of the fast half, in nanoseconds.
    fn excess(&self, counts: ComparedCounts) -> f64 {
        mean(self.slow.time(), counts.slow) - mean(self.fast.time(), counts.fast)
    }
}

impl WorkInStacks {
    fn add(&mut self, stack: StackPairId, time: Nanos) {
        let (sum, parts) = self.times.entry(stack).or_default();
        *sum += time;
        *parts += 1;
    }

    fn time(&self) -> Nanos {
        self.times.values().map(|&(time, _)| time).sum()
    }
}

fn mean(time: Nanos, count: usize) -> f64 {
    time.0 as f64 / count.max(1) as f64
}

impl WorkFunctions {
    /// Divides the work of those programs that slow requests have more of, `least` nanoseconds at least.
    pub(super) fn find(
        work: HashMap<CulpritId, ProgramWork>,
        counts: ComparedCounts,
        least: f64,
        writer: &mut CulpritWriter<'_>,
    ) -> Self {
        let mut found = Self::default();
        let mut work: Vec<(CulpritId, ProgramWork)> = work.into_iter().collect();
        work.sort_unstable_by_key(|&(culprit, _)| culprit);
        for (culprit, work) in work {
            if work.excess(counts) < least {
                continue;
            }
            let stacks = work.slow.times.keys().chain(work.others.times.keys()).copied();
            let frames = writer.sampled_functions(stacks);
            if let Some(divided) = found.divide_program(&work, &frames, counts) {
                found.divided.insert(culprit, divided);
            }
        }
        found
    }

    /// Calls `visit` with the functions that a part of a request's work was in, and how long; with none for the rest.
    pub(super) fn visit(
        &self,
        culprit: CulpritId,
        speed: Speed,
        (stack, time): (StackPairId, Nanos),
        mut visit: impl FnMut(Option<FunctionId>, Nanos),
    ) {
        let Some(divided) = self.divided.get(&culprit) else { return visit(None, time) };
        if let Some(&function) = divided.by_stack.get(&stack) {
            return visit(function, time);
        }
        let mut rest = time;
        for &FunctionShares { function, of_slow, of_others } in &divided.functions {
            let share = match speed {
                Speed::Slow => of_slow,
                Speed::Other => of_others,
            };
            let part = Nanos((time.0 as f64 * share) as u64).min(rest);
            if part > Nanos(0) {
                visit(Some(function), part);
                rest = rest - part;
            }
        }
        if rest > Nanos(0) {
            visit(None, rest);
        }
    }

    pub(super) fn label(&self, function: FunctionId) -> Option<&Label> {
        self.labels.get(function.0)
    }

    /// Divides the work of one program: takes the function that has half of what slow requests have more, then the one
    /// that has half of what is left, and so on. Of several, it takes those that fast requests run least, and of these the
    /// innermost one:
    ///
    /// ```text
    /// main ── answer ─┬─ render_page ── spin       fast, slow       spin is the innermost one,
    ///                 └─ make_report ── spin       slow             make_report makes the difference
    /// ```
    fn divide_program(
        &mut self,
        work: &ProgramWork,
        frames: &HashMap<StackPairId, Vec<Label>>,
        counts: ComparedCounts,
    ) -> Option<DividedWork> {
        let slow = SampledWork::new(&work.slow, frames);
        let others = SampledWork::new(&work.others, frames);
        let fast = SampledWork::new(&work.fast, frames);
        let fast = if fast.parts >= FEWEST_SAMPLES { &fast } else { &others };
        let all = work.slow.time();
        let is_told =
            slow.parts >= FEWEST_SAMPLES && slow.time.0 as f64 >= all.0 as f64 * MIN_SAMPLED;
        if !is_told {
            return None;
        }
        let (slow_mean, fast_mean) = (mean(all, counts.slow), mean(work.fast.time(), counts.fast));
        let excess = work.excess(counts);
        let mut divided = DividedWork::default();
        let mut left = excess;
        let mut taken: HashSet<StackPairId> = HashSet::new();
        while divided.functions.len() < MAX_FUNCTIONS && left >= excess * MIN_EXCESS {
            let [in_slow, in_others, in_fast] =
                [&slow, &others, fast].map(|work| work.add_up(&taken));
            let fast_share = |label: &Label| in_fast.share(label);
            let more =
                |label: &Label| in_slow.share(label) * slow_mean - fast_share(label) * fast_mean;
            let with_half: Vec<(&Label, usize)> = (in_slow.times.iter())
                .map(|(&label, &(_, depth))| (label, depth))
                .filter(|&(label, _)| more(label) * 2.0 >= left)
                .collect();
            let least = with_half.iter().map(|&(label, _)| fast_share(label)).fold(1.0, f64::min);
            let innermost = (with_half.into_iter())
                .filter(|&(label, _)| fast_share(label) <= least + FAST_SHARE)
                .max_by_key(|&(label, depth)| (depth, more(label) as u64, Reverse(label)));
            let Some((label, _)) = innermost else { break };
            let function = FunctionId(self.labels.len());
            self.labels.push(label.clone());
            let (of_slow, of_others) = (in_slow.share(label), in_others.share(label));
            divided.functions.push(FunctionShares { function, of_slow, of_others });
            left -= more(label);
            for (&stack, _) in frames.iter().filter(|(_, frames)| frames.contains(label)) {
                if taken.insert(stack) {
                    divided.by_stack.insert(stack, Some(function));
                }
            }
        }
        for &stack in frames.keys() {
            divided.by_stack.entry(stack).or_insert(None);
        }
        (!divided.functions.is_empty()).then_some(divided)
    }
}

/// How long sampled work was in each function, or in what it called.
struct FunctionSums<'a> {
    /// By function; and how far that is from the outermost one.
    times: HashMap<&'a Label, (Nanos, usize)>,
    all: Nanos,
}

impl FunctionSums<'_> {
    /// Returns the share of all sampled work that was in a function.
    fn share(&self, label: &Label) -> f64 {
        let time = self.times.get(label).map_or(Nanos(0), |&(time, _)| time);
        time.0 as f64 / self.all.0.max(1) as f64
    }
}

/// The part of some work of which samples tell where it was.
struct SampledWork<'a> {
    stacks: Vec<(StackPairId, &'a [Label], Nanos)>,
    time: Nanos,
    /// How many parts of requests that is.
    parts: usize,
}

impl<'a> SampledWork<'a> {
    fn new(work: &WorkInStacks, frames: &'a HashMap<StackPairId, Vec<Label>>) -> Self {
        let stacks: Vec<_> = (work.times.iter())
            .filter_map(|(&stack, &(time, _))| Some((stack, frames.get(&stack)?.as_slice(), time)))
            .collect();
        let time = stacks.iter().map(|&(.., time)| time).sum();
        let parts = |stack| work.times.get(stack).map_or(0, |&(_, parts)| parts);
        let parts = stacks.iter().map(|(stack, ..)| parts(stack)).sum();
        Self { stacks, time, parts }
    }

    /// Adds up by function, without the stacks that are taken already.
    fn add_up(&self, taken: &HashSet<StackPairId>) -> FunctionSums<'a> {
        let mut times: HashMap<&Label, (Nanos, usize)> = HashMap::new();
        for &(stack, frames, time) in &self.stacks {
            if taken.contains(&stack) {
                continue;
            }
            let mut seen = HashSet::new();
            for (label, depth) in frames.iter().rev().zip(1..) {
                let (sum, depths) = times.entry(label).or_default();
                if seen.insert(label) {
                    *sum += time;
                }
                *depths = depth.max(*depths);
            }
        }
        FunctionSums { times, all: self.time }
    }
}

#[cfg(test)]
mod tests {
    use offwake_recording::units::Nanos;
    use proptest::prelude::*;

    use super::{
        CulpritId, DividedWork, FunctionId, FunctionShares, Speed, StackPairId, WorkFunctions,
    };

    proptest! {
        #[test]
        fn divided_work_adds_up(
            shares in proptest::collection::vec((0.0..1.0, 0.0..1.0), 0..4),
            time in 0_u64..1 << 62,
            speed in prop_oneof![Just(Speed::Slow), Just(Speed::Other)],
        ) {
            let mut functions = WorkFunctions::default();
            let shares = shares.into_iter().enumerate().map(|(n, (of_slow, of_others))| {
                FunctionShares { function: FunctionId(n), of_slow, of_others }
            });
            let divided = DividedWork { functions: shares.collect(), ..DividedWork::default() };
            functions.divided.insert(CulpritId(0), divided);
            let mut sum = Nanos(0);
            for culprit in [CulpritId(0), CulpritId(1)] {
                functions.visit(culprit, speed, (StackPairId::NONE, Nanos(time)), |_, part| {
                    sum += part;
                });
                prop_assert_eq!(sum, Nanos(time));
                sum = Nanos(0);
            }
        }
    }
}
