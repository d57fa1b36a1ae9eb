//! Arguments about stacks.

use clap::{Args, ValueEnum};
use offwake::kernel::{StackBudget, StackSettings, UserStackMethod};
use offwake_recording::StackMode;
use offwake_unwind::Method;

use crate::values::{parse_bytes, round_ring_bytes};

/// How stacks are taken, and what that may cost.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stacks")]
pub struct StackArguments {
    /// How to get stacks
    #[arg(long, value_enum, default_value_t = Stacks::Cached)]
    pub stacks: Stacks,

    /// How to find the frames of user stacks
    #[arg(long, value_enum, default_value_t = Unwind::Auto)]
    pub unwind: Unwind,

    /// Limit for the cost of stacks: the share of each CPU's time that walking and copying them may
    /// take (3%, 0.5%, none). Waits above the limit have no stack; the report says how many
    /// [default: 3% with --stacks cached, none with --stacks exact]
    #[arg(long, value_name = "PERCENT", value_parser = parse_budget)]
    pub budget: Option<BudgetArgument>,

    /// Check the stack cache: for 1 in N stacks from the cache, take the real stack too and compare
    /// (1 checks every stack). The summary says how many agreed. Limit: about 200 checks per second
    /// for the user stacks of a thread, and as many for its kernel stacks
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub check_stacks: u32,

    /// How many different stacks to remember, so that each is taken out of the kernel only once. Any
    /// further stack is sent again each time it occurs, which costs CPU time
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub max_stacks: u32,

    /// Size of the ring buffer for copies of user stacks (a power of two; 64K, 8M) [default: 4M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub copy_ring_size: Option<usize>,
}

/// The ring of copies unless the user says otherwise: some 400 of the shortest.
const COPY_RING: usize = 4 << 20;

/// How stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    /// From a cache where the thread had the same stack before, else walked.
    Cached,
    /// Walked at every wait.
    Exact,
    /// No stacks: only who woke whom.
    Off,
}

/// How the frames of user stacks are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unwind {
    /// By what each module has: call frame information, else frame pointers.
    Auto,
    /// By frame pointers only.
    Fp,
    /// By DWARF's call frame information only.
    Dwarf,
}

/// The value of `--budget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetArgument {
    /// Any amount.
    None,
    /// A share of each CPU.
    Share(StackBudget),
}

/// The budget unless the user says otherwise: a busy redis-server takes a thirtieth of it.
const DEFAULT_PERCENT: f64 = 3.0;

impl StackArguments {
    /// The settings that the arguments ask for.
    pub fn settings(&self) -> StackSettings {
        let budget = match (self.budget, self.stacks) {
            (Some(BudgetArgument::Share(budget)), _) => Some(budget),
            (None, Stacks::Cached) => StackBudget::from_percent(DEFAULT_PERCENT),
            (Some(BudgetArgument::None), _) | (None, Stacks::Exact | Stacks::Off) => None,
        };
        StackSettings {
            mode: self.stacks.into(),
            budget,
            check_one_in: self.check_stacks,
            max_stacks: self.max_stacks,
            user: match (self.unwind, self.stacks) {
                (Unwind::Fp, Stacks::Exact) | (_, Stacks::Off) => UserStackMethod::Walked,
                _ => UserStackMethod::Copied,
            },
            method: self.unwind.into(),
            copies_bytes: round_ring_bytes(self.copy_ring_size.unwrap_or(COPY_RING)),
        }
    }
}

impl From<Stacks> for StackMode {
    fn from(stacks: Stacks) -> Self {
        match stacks {
            Stacks::Cached => Self::Cached,
            Stacks::Exact => Self::Exact,
            Stacks::Off => Self::Off,
        }
    }
}

impl From<Unwind> for Method {
    fn from(unwind: Unwind) -> Self {
        match unwind {
            Unwind::Auto => Self::Auto,
            Unwind::Fp => Self::FramePointers,
            Unwind::Dwarf => Self::Dwarf,
        }
    }
}

fn parse_budget(text: &str) -> Result<BudgetArgument, String> {
    if text == "none" {
        return Ok(BudgetArgument::None);
    }
    let number = text.strip_suffix('%').unwrap_or(text);
    number.parse().ok().and_then(StackBudget::from_percent).map(BudgetArgument::Share).ok_or_else(
        || format!("the budget {text:?} is not a share of a CPU like 3% or 0.5%, nor none"),
    )
}
