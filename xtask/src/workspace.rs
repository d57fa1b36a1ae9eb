//! Where things are.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// The workspace's root.
pub fn root() -> PathBuf {
    // The folder of this package is known when it is compiled; `cargo xtask` compiles it in place.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// The folders of what has a `Cargo.lock` of its own: fuzz targets are compiled with flags of theirs.
pub fn workspaces() -> [PathBuf; 2] {
    [root(), root().join("fuzz")]
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
pub fn offwake_binary() -> anyhow::Result<PathBuf> {
    let xtask = env::current_exe().context("cannot tell where xtask itself is")?;
    let profiles = xtask.parent().and_then(Path::parent).context("xtask lies outside a target")?;
    Ok(profiles.join("release").join("offwake"))
}

/// All files below a folder with an extension, sorted. What is built or hidden is left out.
///
/// # Errors
///
/// When a folder can't be read.
pub fn find_files(folder: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let built = workspaces().map(|workspace| workspace.join("target"));
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type()?.is_dir() {
                if !built.contains(&path) && !name.as_encoded_bytes().starts_with(b".") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|its| its == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_no_source_and_a_module_of_that_name_is() -> anyhow::Result<()> {
        let files = find_files(&root(), "rs")?;
        assert!(files.contains(&root().join("profiler/src/target/mod.rs")));
        assert!(!files.iter().any(|file| file.starts_with(target())));
        Ok(())
    }
}
