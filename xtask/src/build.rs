//! `cargo xtask build`: the kernel half, then the user half, which embeds it.

use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::{
    command,
    kernel_half::{self, Outcome, Rebuild},
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
