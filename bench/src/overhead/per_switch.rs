//! What each switch costs with its wake, by the kernel's own clock: the time of all programs,
//! divided by the switches that there were.

use std::{collections::BTreeMap, time::Instant};

use super::{
    bpf_times::{self, Counting, ProgramTime},
    setup::{OverheadSetup, Stacks},
    workloads,
};
use crate::{running::Running, spread::Spread};
use xtask::markdown_table::MarkdownTable;

/// Operations of the pipe benchmark in a run: two switches each.
const OPERATIONS: u32 = 300_000;

/// What keeps the books of which interrupt a CPU is in.
const INTERRUPTS: [&str; 6] =
    ["softirq_", "irq_handler_", "hrtimer_expire_", "local_timer_", "call_function_", "irq_work_"];

/// A set of BPF programs that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramSet {
    /// Empty programs at the switch and the wake.
    Nothing,
    /// A program that walks both stacks of each thread that leaves a CPU.
    BothStacksWalked,
    Offwake(Stacks),
}

impl ProgramSet {
    pub fn start(self, setup: &OverheadSetup) -> anyhow::Result<Running> {
        match self {
            Self::Nothing => setup.yardstick(&["nothing_at_switch", "nothing_at_waking"]),
            Self::BothStacksWalked => setup.yardstick(&["both_stacks_walked"]),
            Self::Offwake(stacks) => setup.record(stacks, &setup.file("per-switch.offwake")),
        }
    }

    fn title(self) -> String {
        match self {
            Self::Nothing => "empty programs at switch and wake".to_owned(),
            Self::BothStacksWalked => "both stacks walked at each switch, nothing else".to_owned(),
            Self::Offwake(stacks) => stacks.title(),
        }
    }
}

/// What programs did while something ran.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    programs: Vec<ProgramTime>,
    seconds: f64,
}

impl Observed {
    /// Switches of the whole machine: there is one program that runs at each.
    pub fn switches(&self) -> u64 {
        let at_switch = |name: &str| {
            ["sched_switch", "nothing_at_switch", "both_stacks_walked"].contains(&name)
        };
        self.programs.iter().filter(|program| at_switch(&program.name)).map(|p| p.runs).sum()
    }

    fn ns(&self) -> u64 {
        self.programs.iter().map(|program| program.ns).sum()
    }

    pub fn ns_per_switch(&self) -> f64 {
        self.ns() as f64 / self.switches().max(1) as f64
    }

    fn interrupts_ns(&self) -> u64 {
        self.programs.iter().filter(|p| is_interrupt_bookkeeping(&p.name)).map(|p| p.ns).sum()
    }
}

/// Times the programs of a process while `work` is done.
///
/// # Errors
///
/// When the kernel can't be asked, or the work fails.
pub fn observe(
    running: &Running,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Observed> {
    let before = bpf_times::programs_held_by(running.pid())?;
    let begin = Instant::now();
    work()?;
    let seconds = begin.elapsed().as_secs_f64();
    let after = bpf_times::programs_held_by(running.pid())?;
    Ok(Observed { programs: bpf_times::between(&before, &after), seconds })
}

/// What all rounds measured.
pub struct PerSwitch {
    /// One entry a round for each set of programs.
    rounds: BTreeMap<ProgramSet, Vec<Observed>>,
}

/// Times each set of programs in turn, for several rounds.
///
/// # Errors
///
/// When something can't be run.
pub fn measure(setup: &OverheadSetup) -> anyhow::Result<PerSwitch> {
    let mut rounds: BTreeMap<ProgramSet, Vec<Observed>> = BTreeMap::new();
    let _counting = Counting::start()?;
    for round in 1..=setup.effort.pick(5, 2) {
        eprintln!("bench: ns per switch, round {round}");
        let offwakes = setup.modes().iter().map(|mode| ProgramSet::Offwake(*mode));
        for who in [ProgramSet::Nothing, ProgramSet::BothStacksWalked].into_iter().chain(offwakes) {
            let running = who.start(setup)?;
            let observed = observe(&running, || workloads::run_pipe(OPERATIONS).map(drop))?;
            running.stop()?;
            rounds.entry(who).or_default().push(observed);
        }
    }
    Ok(PerSwitch { rounds })
}

impl PerSwitch {
    /// ns per switch with its wake.
    pub fn ns(&self, who: ProgramSet) -> Option<Spread> {
        Spread::from_figures(self.rounds.get(&who)?.iter().map(Observed::ns_per_switch))
    }

    /// ns per switch as a share of those of the double stack walk, each round for itself.
    pub fn share_of_walk(&self, who: ProgramSet) -> Option<Spread> {
        let walks = self.rounds.get(&ProgramSet::BothStacksWalked)?;
        let rounds = self.rounds.get(&who)?.iter().zip(walks);
        Spread::from_figures(rounds.map(|(one, walk)| one.ns_per_switch() / walk.ns_per_switch()))
    }

    /// Interrupt bookkeeping as a share of all of offwake's programs' time.
    pub fn interrupts(&self, stacks: Stacks) -> Option<Spread> {
        let rounds = self.rounds.get(&ProgramSet::Offwake(stacks))?;
        Spread::from_figures(rounds.iter().map(|o| o.interrupts_ns() as f64 / o.ns().max(1) as f64))
    }

    /// A row for each set of programs.
    pub fn table(&self) -> String {
        let mut table =
            MarkdownTable::new(["programs", "ns per switch with its wake", "of the double walk"]);
        let offwakes = Stacks::ALL.map(ProgramSet::Offwake);
        for who in [ProgramSet::Nothing, ProgramSet::BothStacksWalked].into_iter().chain(offwakes) {
            let (ns, share) = (self.ns(who), self.share_of_walk(who));
            table.push_row([
                who.title(),
                ns.map_or("not in this build".to_owned(), |ns| ns.format(0)),
                share.map_or(String::new(), |share| share.format(3)),
            ]);
        }
        table.markdown()
    }

    /// A row for each of offwake's programs, and one for those that keep interrupts.
    pub fn programs_table(&self) -> String {
        let modes: Vec<(Stacks, Observed)> = Stacks::ALL
            .into_iter()
            .filter_map(|mode| {
                Some((mode, pool_rounds(self.rounds.get(&ProgramSet::Offwake(mode))?)))
            })
            .collect();
        let mut names: Vec<&str> = modes
            .iter()
            .flat_map(|(_, observed)| &observed.programs)
            .filter(|program| program.runs > 0)
            .map(|program| program.name.as_str())
            .collect();
        names.sort_by_key(|name| (is_interrupt_bookkeeping(name), *name));
        names.dedup();
        let mut header = vec!["program".to_owned()];
        header.extend(modes.iter().map(|(mode, _)| mode.name().to_owned()));
        let mut table = MarkdownTable::new(header);
        for name in names {
            let cell = |(_, observed): &(Stacks, Observed)| {
                let program = observed.programs.iter().find(|program| program.name == name);
                program.map_or(String::new(), |program| in_1000_switches(program, observed))
            };
            table.push_row(std::iter::once(format!("`{name}`")).chain(modes.iter().map(cell)));
        }
        let share = |of: fn(&Observed) -> f64| {
            modes.iter().map(move |(_, observed)| {
                format!("{:.2} %", 100.0 * observed.interrupts_ns() as f64 / of(observed))
            })
        };
        table.push_row(
            std::iter::once("**interrupts, of all programs**".to_owned())
                .chain(share(|observed| observed.ns() as f64)),
        );
        table.push_row(
            std::iter::once("**interrupts, of one CPU**".to_owned())
                .chain(share(|observed| observed.seconds * 1e9)),
        );
        table.markdown()
    }
}

fn in_1000_switches(program: &ProgramTime, observed: &Observed) -> String {
    if program.runs == 0 {
        return "–".to_owned();
    }
    format!(
        "{:.0} ns × {:.1}",
        program.ns as f64 / program.runs as f64,
        1000.0 * program.runs as f64 / observed.switches().max(1) as f64
    )
}

/// All rounds as one: programs are others in each round, but their names are the same.
fn pool_rounds(rounds: &[Observed]) -> Observed {
    let mut all = Observed::default();
    for Observed { programs, seconds } in rounds {
        all.seconds += seconds;
        for program in programs {
            match all.programs.iter_mut().find(|known| known.name == program.name) {
                Some(known) => {
                    known.runs += program.runs;
                    known.ns += program.ns;
                }
                None => all.programs.push(program.clone()),
            }
        }
    }
    all
}

fn is_interrupt_bookkeeping(name: &str) -> bool {
    INTERRUPTS.iter().any(|prefix| name.starts_with(prefix))
}
