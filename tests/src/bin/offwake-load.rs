//! Runs one load: `offwake-load NAME NUMBER`.

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    loads::LOADS,
    workloads::stage::{die_with_parent, print_line},
};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let names = || LOADS.iter().map(|&(name, _)| name).collect::<Vec<_>>().join(" ");
    let name = arguments.next().with_context(|| format!("name a load: {}", names()))?;
    let number = arguments.next().context("how many?")?;
    let number = number.parse().with_context(|| format!("{number:?} is no number"))?;
    ensure!(arguments.next().is_none(), "too many arguments");
    let &(_, load) = LOADS
        .iter()
        .find(|(known, _)| *known == name)
        .with_context(|| format!("no load {name}; there are: {}", names()))?;
    die_with_parent();
    print_line(&load(number)?)
}
