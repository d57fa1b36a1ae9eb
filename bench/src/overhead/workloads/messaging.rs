//! perf's benchmark of many processes that all talk to each other over sockets, wherever the
//! scheduler puts them.

use std::process::Command;

use anyhow::Context as _;

use super::Workload;
use xtask::command;

const GROUPS: &str = "10";
const LOOPS: &str = "500";

/// 400 processes in ten groups. An operation is the whole of it.
pub struct Messaging;

impl Workload for Messaging {
    fn run(&mut self) -> anyhow::Result<f64> {
        let mut perf = Command::new("perf");
        perf.args(["bench", "-f", "simple", "sched", "messaging", "-g", GROUPS, "-l", LOOPS]);
        let said = command::output(&mut perf).context("perf bench failed")?;
        said.parse().with_context(|| format!("perf bench said {said:?}"))
    }
}
