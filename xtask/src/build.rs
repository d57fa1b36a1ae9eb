//! `cargo xtask build`: the kernel half, then the user half, which embeds it.

use std::{fs, path::PathBuf, process::Stdio};

use anyhow::{Context as _, bail};

use crate::{
    command,
    kernel_half::{self, Outcome, Rebuild},
    workspace,
};

/// Builds both halves, of each what is out of date.
///
/// # Errors
///
/// When one of them can't be built.
pub fn build() -> anyhow::Result<()> {
    kernel_half::build(Rebuild::IfStale)?;
    build_user_half()
}

fn build_user_half() -> anyhow::Result<()> {
    command::run_quietly(command::cargo().args(["build", "--release", "--package", "offwake"]))
        .context("cannot build the user half")
}

/// Links the user half once more, with its C library in it, and returns that program. Everything before the
/// last step is the same as of [`build()`]: which C library is linked is decided there.
///
/// # Errors
///
/// When it can't be linked.
pub fn link_statically() -> anyhow::Result<PathBuf> {
    let mut cargo = command::cargo();
    cargo.args(["rustc", "--release", "--package", "offwake", "--bin", "offwake", "--"]);
    command::run(cargo.args(["-C", "target-feature=+crt-static"]))
        .context("cannot link the user half statically")?;
    let folder = workspace::target().join("static");
    let program = folder.join("offwake");
    let linked = workspace::offwake_binary()?;
    fs::create_dir_all(&folder)
        .and_then(|()| fs::copy(&linked, &program))
        .with_context(|| format!("cannot copy {} to {}", linked.display(), program.display()))?;
    // Cargo has put it in the other's place.
    build_user_half()?;
    Ok(program)
}

/// Builds both halves again and wants that nothing was out of date.
///
/// # Errors
///
/// When something was.
pub fn check_second_build() -> anyhow::Result<()> {
    if kernel_half::build(Rebuild::IfStale)? != Outcome::Fresh {
        bail!("a second build compiled the kernel half again");
    }
    let output = command::cargo()
        .args(["build", "--release", "--package", "offwake", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    let messages = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !messages.contains("\"fresh\":true") {
        bail!("a second build failed");
    }
    if let Some(message) = messages.lines().find(|line| line.contains("\"fresh\":false")) {
        let package = message.split("\"package_id\":\"").nth(1).and_then(|id| id.split('"').next());
        bail!("a second build compiled {} again", package.unwrap_or("something"));
    }
    Ok(())
}
