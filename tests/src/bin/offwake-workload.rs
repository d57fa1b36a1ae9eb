//! Runs one workload: `offwake-workload NAME [ARGUMENT]`.

use anyhow::{Context, Result, ensure};
use offwake_tests::workloads::{
    WORKLOADS,
    stage::{Stage, die_with_parent, print_line},
};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let names = || WORKLOADS.iter().map(|&(name, _)| name).collect::<Vec<_>>().join(" ");
    let name = arguments.next().with_context(|| format!("name a workload: {}", names()))?;
    let argument = arguments.next();
    ensure!(arguments.next().is_none(), "too many arguments");
    let &(_, workload) = WORKLOADS
        .iter()
        .find(|(known, _)| *known == name)
        .with_context(|| format!("no workload {name}; there are: {}", names()))?;
    die_with_parent();
    let stage = Stage::new(argument)?;
    workload(&stage)?;
    print_line(&stage.truth())
}
