//! Where things are.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// The workspace's root.
pub fn root() -> PathBuf {
    // The folder of this package is known when it is compiled; `cargo xtask` compiles it in place.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// Everything that is built besides cargo's own: the kernel half, its linker, the workloads.
pub fn target() -> PathBuf {
    root().join("target")
}

/// The `offwake` that a release build leaves behind.
///
/// It lies where xtask itself does, in the folder of the other profile: that holds for a moved
/// target directory and for a `build.target` in the user's settings too.
///
/// # Errors
///
/// When the running program can't be found, as after it was deleted.
pub fn offwake() -> anyhow::Result<PathBuf> {
    let xtask = env::current_exe().context("cannot tell where xtask itself is")?;
    let profiles = xtask.parent().and_then(Path::parent).context("xtask lies outside a target")?;
    Ok(profiles.join("release").join("offwake"))
}
