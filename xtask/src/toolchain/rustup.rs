//! Nightlies that rustup manages.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, bail};

use super::Compiler;
use crate::command;

/// The nightly that is fetched, and the first choice among those that are there: rustc 1.97 with
/// LLVM 22. Dated, because bpf-linker follows the newest LLVM some weeks behind.
const NIGHTLY: &str = "nightly-2026-05-20";

/// The nightlies with the source of their library, the dated one first.
pub fn installed() -> Vec<Compiler> {
    if command::find_program("rustup").is_none() {
        return Vec::new();
    }
    let list = command::output(Command::new("rustup").args(["toolchain", "list"]));
    let mut names: Vec<_> = list
        .iter()
        .flat_map(|list| list.lines())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.starts_with("nightly"))
        .collect();
    names.sort_by_key(|name| !name.starts_with(NIGHTLY));
    // Most nightlies lack the source; that is nothing to complain of.
    names.into_iter().filter_map(|name| inspect_nightly(name).ok()).collect()
}

/// Has rustup fetch the dated nightly.
///
/// # Errors
///
/// When there is no rustup, or it can't.
pub fn install() -> anyhow::Result<Compiler> {
    if command::find_program("rustup").is_none() {
        bail!("there is no rustup");
    }
    let mut install = Command::new("rustup");
    install
        // Where there is no way to the server, trying again makes none.
        .env("RUSTUP_MAX_RETRIES", "0")
        .args(["toolchain", "install", NIGHTLY, "--profile", "minimal"])
        .args(["--component", "rust-src", "--no-self-update"]);
    command::print(&install);
    let output = install.output().context("cannot run rustup")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().find_map(|line| line.strip_prefix("error: "));
        bail!("rustup cannot fetch {NIGHTLY}: {}", error.unwrap_or("it does not say why"));
    }
    inspect_nightly(NIGHTLY)
}

fn inspect_nightly(name: &str) -> anyhow::Result<Compiler> {
    let mut question = Command::new("rustup");
    question.args(["run", name, "rustc", "--print", "sysroot"]);
    let sysroot = command::output(&mut question)
        .with_context(|| format!("rustup does not say where {name} is"))?;
    let programs = PathBuf::from(sysroot).join("bin");
    Compiler::inspect(programs.join("cargo"), programs.join("rustc"))
}
