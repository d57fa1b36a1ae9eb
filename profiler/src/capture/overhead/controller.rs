//! Which step is to hold, by what recording costs. Pure: figures in, a step out.

use super::steps::Step;

/// What the newest reading counts in the cost of late; those before it make up the rest.
const NEWEST: f64 = 0.3;
/// Above this share of the limit at once, nobody waits for a second reading.
const FAR_ABOVE: f64 = 1.5;
/// Below this share of the limit, more detail may fit.
const LOW: f64 = 0.6;
/// Below this share of the limit, much more detail may fit.
const VERY_LOW: f64 = 0.2;
/// No stacks are given up for our threads unless they take at most so many times what the programs take with full
/// detail. What takes them more, the look-ups of processes that come and go, does not become less by that. Summing
/// short waits up helps them in any case: beside `/bin/true` in loops, they took 27 % of two CPUs before, and 7 after.
const THREADS_TO_PROGRAMS: f64 = 4.0;
/// What the programs took before the newest step counts for so much in each reading after it: half of it after 7 s. A
/// step that works makes the programs cheaper than the threads, and would have the threads not counted any more.
const FADING: f64 = 0.99;
/// For so many readings at the beginning only the programs count: everybody is looked up then, once.
const WARM_UP: u32 = 5;
/// For so many readings in a row the cost must be low before detail is added: a second.
const PATIENCE: u32 = 10;
/// For so many times as long, detail that was added must not be too much, to count as settled.
const PROBATION: u32 = 8;
/// The most that this becomes, where detail that was added turned out to be too much: half a minute.
const MOST_PATIENCE: u32 = 320;

/// What recording has cost since the last decision, as shares of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// The programs' in the kernel.
    pub programs: f64,
    /// That of our own threads.
    pub threads: f64,
}

/// Holds the cost below the limit.
///
/// ```text
/// cost    above the limit          low          above again: it was too much          low
/// step  0 ── 1 ── 3 ──────────── for 1 s ── 2 ── 3 ─────────────────────────────── for 2 s ── 2 ── 3 …
/// ```
///
/// Detail is given up as soon as the cost is too high, by more steps at once where it is far above, and
/// comes back one step at a time after the cost was low for a while. Where it was too much, that while
/// becomes longer each time, so that it does not go to and fro.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    step: Step,
    /// How many readings there were, up to the end of the warm-up.
    readings: u32,
    /// The cost of late for which detail is given up, as a share of the limit, since the step holds; none just after
    /// a change.
    of_late: Option<f64>,
    /// The same of all that recording costs: detail comes back only if that is low.
    all_of_late: Option<f64>,
    /// What the programs have cost at most, fading.
    most_of_programs: f64,
    /// For how many readings the cost has been low.
    low_for: u32,
    /// For how many it must be.
    patience: u32,
    /// How many readings ago detail was added; none if none was since it was given up last.
    added_ago: Option<u32>,
}

impl Controller {
    pub fn new() -> Self {
        Self {
            step: Step::default(),
            readings: 0,
            of_late: None,
            all_of_late: None,
            most_of_programs: 0.0,
            low_for: 0,
            patience: PATIENCE,
            added_ago: None,
        }
    }

    /// The step that holds.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Decides which step is to hold from now on.
    pub fn decide(&mut self, Cost { programs, threads }: Cost) -> Step {
        let is_warm = self.readings >= WARM_UP;
        self.readings = (self.readings + 1).min(WARM_UP);
        self.most_of_programs = programs.max(self.most_of_programs * FADING);
        let all = if is_warm { programs + threads } else { programs };
        let helps_threads = threads <= self.most_of_programs * THREADS_TO_PROGRAMS;
        let counts_threads = helps_threads || self.step < Step::LAST_WITH_STACKS;
        let cost = if counts_threads { all } else { programs };
        let is_for_threads_alone = counts_threads && !helps_threads && programs <= 1.0;
        let most = if is_for_threads_alone { Step::LAST_WITH_STACKS } else { Step::LAST };
        let of_late = smooth(&mut self.of_late, cost);
        let all_of_late = smooth(&mut self.all_of_late, all);
        if let Some(ago) = &mut self.added_ago {
            *ago += 1;
            if *ago > PROBATION * self.patience {
                // It was not too much.
                (self.added_ago, self.patience) = (None, PATIENCE);
            }
        }
        if of_late > 1.0 || cost > FAR_ABOVE {
            self.give_up(of_late.max(cost), most);
        } else if all_of_late < LOW {
            self.low_for += 1;
            if self.low_for >= self.patience {
                self.add_detail(all_of_late);
            }
        } else {
            self.low_for = 0;
        }
        self.step
    }

    /// Gives up as many steps as the cost is too high for, up to `most`.
    fn give_up(&mut self, cost: f64, most: Step) {
        let steps = match cost {
            above if above > 4.0 => 4,
            above if above > 2.0 => 2,
            _ => 1,
        };
        let step = Step((self.step.0 + steps).min(most.0).max(self.step.0));
        if step != self.step && self.added_ago.take().is_some() {
            self.patience = (2 * self.patience).min(MOST_PATIENCE);
        }
        self.change_to(step);
    }

    fn add_detail(&mut self, cost: f64) {
        // Where detail was too much before, it comes back one step at a time.
        let halves = cost < VERY_LOW && self.patience == PATIENCE;
        let step = if halves { self.step.0 / 2 } else { self.step.0.saturating_sub(1) };
        if step != self.step.0 {
            self.added_ago = Some(0);
        }
        self.change_to(Step(step));
    }

    fn change_to(&mut self, step: Step) {
        self.low_for = 0;
        if step != self.step {
            self.step = step;
            (self.of_late, self.all_of_late) = (None, None);
        }
    }
}

/// Adds a reading to a cost of late, and returns that.
fn smooth(of_late: &mut Option<f64>, cost: f64) -> f64 {
    *of_late.insert(of_late.map_or(cost, |before| before + NEWEST * (cost - before)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Controller, Cost, LOW, PATIENCE, Step, WARM_UP};

    /// Ten readings a second.
    const SECOND: usize = 10;

    /// What each step costs beside a load, as a share of the limit: each less than the one before.
    fn costs(first: f64, factors: &[f64]) -> Vec<f64> {
        let mut cost = first;
        let mut costs = vec![first];
        for factor in factors {
            cost *= factor;
            costs.push(cost);
        }
        costs
    }

    /// The steps beside a load of which each step costs so much, half of it the programs'.
    fn run(controller: &mut Controller, costs: &[f64], noise: &[f64]) -> Vec<usize> {
        run_with_threads(controller, costs, 0.5, noise)
    }

    /// The same with another share of our threads.
    fn run_with_threads(
        controller: &mut Controller,
        costs: &[f64],
        threads: f64,
        noise: &[f64],
    ) -> Vec<usize> {
        let step = |noise: &f64| {
            let cost = costs[controller.step().0] * noise;
            let (programs, threads) = (cost * (1.0 - threads), cost * threads);
            controller.decide(Cost { programs, threads }).0
        };
        noise.iter().map(step).collect()
    }

    /// One that has had its first second.
    fn warm() -> Controller {
        let mut controller = Controller::new();
        run(&mut controller, &[0.0], &[1.0; WARM_UP as usize]);
        controller
    }

    fn changes(steps: &[usize]) -> usize {
        steps.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    #[test]
    fn nothing_is_given_up_below_the_limit() {
        let mut controller = warm();
        assert!(run(&mut controller, &[0.99; 9], &[1.0; 100]).iter().all(|step| *step == 0));
    }

    #[test]
    fn one_reading_that_is_a_little_above_gives_nothing_up() {
        let mut controller = warm();
        let noise = [0.8, 0.8, 0.8, 1.1, 0.8, 0.8];
        assert_eq!(run(&mut controller, &[1.0; 9], &noise), [0; 6]);
    }

    #[test]
    fn no_stacks_are_given_up_for_what_our_threads_take_most_of() {
        let mut controller = warm();
        for _ in 0..100 {
            let step = controller.decide(Cost { programs: 0.9, threads: 5.0 });
            assert!(step <= Step::LAST_WITH_STACKS, "{step:?}");
        }
        assert_eq!(controller.step(), Step::LAST_WITH_STACKS);
        // Unless the programs alone take more than they may.
        for _ in 0..100 {
            controller.decide(Cost { programs: 1.6, threads: 50.0 });
        }
        assert_eq!(controller.step(), Step::LAST);
    }

    /// With short waits summed up, the programs take 0.1, and our threads the rest.
    #[test]
    fn detail_that_was_given_up_for_our_threads_stays_away_while_they_take_too_much() {
        let mut controller = warm();
        let full = Cost { programs: 1.5, threads: 4.0 };
        let summed = Cost { programs: 0.1, threads: 0.8 };
        let mut steps: Vec<Step> = Vec::new();
        for _ in 0..60 * SECOND {
            let cost = if controller.step().0 < 4 { full } else { summed };
            steps.push(controller.decide(cost));
        }
        assert!(steps[SECOND..].iter().all(|step| step.0 >= 4), "{steps:?}");
    }

    #[test]
    fn at_the_beginning_only_the_programs_count() {
        let mut controller = Controller::new();
        let beginning = Cost { programs: 0.9, threads: 1.5 };
        for _ in 0..WARM_UP {
            assert_eq!(controller.decide(beginning), Step(0));
        }
        assert_ne!(controller.decide(beginning), Step(0));
        let mut flooded = Controller::new();
        assert_ne!(flooded.decide(Cost { programs: 2.0, threads: 0.0 }), Step(0));
    }

    #[test]
    fn detail_comes_back_when_the_load_is_gone() {
        let mut controller = warm();
        let given_up = run(&mut controller, &[10.0; 9], &[1.0; SECOND]);
        assert_eq!(given_up.last(), Some(&Step::LAST.0));
        // By halves, when the cost of late is low: 8, 4, 2, 1, 0.
        let steps = run(&mut controller, &[0.01; 9], &[1.0; 5 * PATIENCE as usize + 1]);
        assert_eq!(steps.last(), Some(&0));
        assert_eq!(changes(&steps), 4);
    }

    #[test]
    fn what_was_too_much_is_tried_ever_less_often() {
        let mut controller = warm();
        // Step 2 costs little, and step 1 too much.
        let costs = [3.0, 1.2, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5];
        let first = run(&mut controller, &costs, &[1.0; 30 * SECOND]);
        let later = run(&mut controller, &costs, &[1.0; 30 * SECOND]);
        assert!(changes(&first) <= 12, "{first:?}");
        assert!(changes(&later) <= 4, "{later:?}");
    }

    proptest! {
        #[test]
        fn it_converges_and_does_not_go_to_and_fro(
            first in 0.1_f64..12.0,
            factors in prop::collection::vec(0.4_f64..1.0, Step::LAST.0),
            threads in 0.0_f64..0.8,
            noise in prop::collection::vec(0.95_f64..1.05, 60 * SECOND),
        ) {
            let costs = costs(first, &factors);
            let mut controller = warm();
            let steps = run_with_threads(&mut controller, &costs, threads, &noise);
            // From the second second on, the limit is held or everything is given up.
            let is_held = |step: usize| step == Step::LAST.0 || costs[step] < 1.1;
            prop_assert!(is_held(steps[SECOND - 1]), "{costs:?}: {steps:?}");
            let above = steps[SECOND..].iter().filter(|step| !is_held(**step)).count();
            prop_assert!(above <= steps.len() / 20, "{above} readings above: {costs:?}");
            // Two changes in opposite directions are never closer than the patience.
            let mut last_added = None;
            for (at, pair) in steps.windows(2).enumerate() {
                if pair[1] < pair[0] {
                    if let Some(before) = last_added {
                        prop_assert!(at - before >= PATIENCE as usize, "{costs:?}: {steps:?}");
                    }
                    last_added = Some(at);
                }
            }
            // In the end it rests: a try or two in the last ten seconds.
            prop_assert!(changes(&steps[50 * SECOND..]) <= 6, "{costs:?}: {steps:?}");
            // Detail is not given up for nothing: one step less would be too much, or nearly so.
            let last = steps[steps.len() - 1];
            prop_assert!(last == 0 || costs[last - 1] > LOW * 0.9, "{costs:?}: {steps:?}");
        }
    }
}
