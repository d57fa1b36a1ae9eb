//! Licences and sources of the dependencies, and what is known against them: `deny.toml` has the
//! rules, cargo-deny reads them.

use std::{path::Path, process::Command};

use anyhow::Context as _;

use crate::cargo_tool::CargoTool;
use xtask::{command, workspace};

const CARGO_DENY: CargoTool = CargoTool::new("cargo-deny", "0.20.2");

/// Whether the advisories were looked at.
pub enum Advisories {
    /// No advisory is about a dependency.
    Checked,
    /// The database of advisories can't be had, for this reason.
    OutOfReach(String),
}

/// Checks licences, sources and second versions.
///
/// # Errors
///
/// When a dependency breaks a rule, or cargo-deny can't be had.
pub fn check() -> anyhow::Result<()> {
    check_each(&["licenses", "bans", "sources"])
}

/// Checks that no advisory of RustSec is about a dependency. They are on GitHub, which not every
/// machine that builds can reach.
///
/// # Errors
///
/// When one is, or cargo-deny can't be had.
pub fn advisories() -> anyhow::Result<Advisories> {
    let mut fetch = deny(&workspace::root())?;
    // A host that never answers ends it too, and nobody is asked for a password.
    fetch.env("GIT_TERMINAL_PROMPT", "0");
    fetch.env("GIT_HTTP_LOW_SPEED_LIMIT", "1").env("GIT_HTTP_LOW_SPEED_TIME", "30");
    fetch.args(["fetch", "db"]);
    command::print(&fetch);
    let output = fetch.output().context("cannot run `cargo deny`")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Ok(Advisories::OutOfReach(last_line(&said).to_owned()));
    }
    check_each(&["advisories"])?;
    Ok(Advisories::Checked)
}

fn check_each(what: &[&str]) -> anyhow::Result<()> {
    for folder in workspace::workspaces() {
        command::run(deny(&folder)?.args(["check", "--hide-inclusion-graph"]).args(what))?;
    }
    Ok(())
}

/// `cargo deny`, by the one set of rules, for the workspace in a folder.
fn deny(folder: &Path) -> anyhow::Result<Command> {
    let mut cargo = CARGO_DENY.cargo()?;
    cargo.current_dir(folder).args(["deny", "--locked", "--workspace", "--config"]);
    cargo.arg(workspace::root().join("deny.toml"));
    Ok(cargo)
}

/// Programs say last why they failed.
fn last_line(text: &str) -> &str {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it does not say why")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_something_failed_is_its_last_line() {
        assert_eq!(last_line("cloning\nfatal: no host\n\n"), "fatal: no host");
        assert_eq!(last_line("\n"), "it does not say why");
    }
}
