//! That the version of Rust that is stated is enough.

use std::{fmt, path::Path, process::Command, str::FromStr};

use anyhow::{Context as _, bail};
use serde::Deserialize;

use xtask::{command, workspace};

/// Checks that every package of ours states one version, that no dependency wants a newer one, and,
/// if rustup has that very toolchain, that offwake compiles with it. What is used of the standard
/// library is clippy's to check (`incompatible_msrv`).
///
/// # Errors
///
/// When the version that is stated is not enough.
pub fn check() -> anyhow::Result<()> {
    let stated: Release =
        env!("CARGO_PKG_RUST_VERSION").parse().context("xtask states no version of Rust")?;
    let mut wrong = Vec::new();
    for folder in workspace::workspaces() {
        for package in packages(&folder)? {
            wrong.extend(package.breach(stated)?);
        }
    }
    if !wrong.is_empty() {
        bail!("Rust {stated} is stated:\n  {}", wrong.join("\n  "));
    }
    compile_with(stated)
}

/// Major and minor number: a patch brings nothing that a library could need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Release(u32, u32);

impl FromStr for Release {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self(major, minor)),
            _ => bail!("{text:?} is no version of Rust"),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}.{}", self.0, self.1)
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// A package as `cargo metadata` tells of it.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    rust_version: Option<String>,
    /// Where cargo fetched the package from; `None` for a package of this workspace.
    source: Option<String>,
}

impl Package {
    /// What is wrong with the version that it asks for. A dependency that names none makes no promise.
    fn breach(&self, stated: Release) -> anyhow::Result<Option<String>> {
        let wanted: Option<Release> = self.rust_version.as_deref().map(str::parse).transpose()?;
        Ok(match (wanted, &self.source) {
            (Some(wanted), None) if wanted == stated => None,
            (Some(wanted), None) => Some(format!("{} states {wanted}", self.name)),
            (None, None) => Some(format!("{} states none", self.name)),
            (Some(wanted), Some(_)) if wanted > stated => {
                Some(format!("{} {} wants {wanted}", self.name, self.version))
            }
            (_, Some(_)) => None,
        })
    }
}

/// Every package that is locked, for whatever system.
fn packages(folder: &Path) -> anyhow::Result<Vec<Package>> {
    let mut cargo = command::cargo();
    cargo.current_dir(folder).args(["metadata", "--locked", "--format-version", "1"]);
    let answer = command::output(&mut cargo)
        .with_context(|| format!("`cargo metadata --locked` fails in {}", folder.display()))?;
    let metadata: Metadata = serde_json::from_str(&answer).context("cargo's metadata")?;
    Ok(metadata.packages)
}

fn compile_with(release: Release) -> anyhow::Result<()> {
    let release = release.to_string();
    let program = |name: &str| {
        let mut rustup = Command::new("rustup");
        command::output(rustup.args(["which", "--toolchain", &release, name]))
    };
    let (Some(cargo), Some(rustc)) = (program("cargo"), program("rustc")) else {
        eprintln!("xtask: not compiled with Rust {release}, which rustup does not have here");
        return Ok(());
    };
    let mut check = command::foreign_cargo(Path::new(&cargo), Path::new(&rustc));
    check.args(["check", "--locked", "--package", "offwake", "--target-dir"]);
    command::run(check.arg(workspace::target().join("msrv")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breach(rust_version: Option<&str>, source: Option<&str>) -> Option<String> {
        let package = Package {
            name: "it".to_owned(),
            version: "1.0.0".to_owned(),
            rust_version: rust_version.map(str::to_owned),
            source: source.map(str::to_owned),
        };
        package.breach(Release(1, 88)).expect("a version of Rust")
    }

    #[test]
    fn releases_go_by_their_numbers_and_not_by_their_letters() -> anyhow::Result<()> {
        assert!("1.9".parse::<Release>()? < "1.88.0".parse()?);
        assert_eq!("1.88".parse::<Release>()?, "1.88.0".parse()?);
        assert!("stable".parse::<Release>().is_err());
        Ok(())
    }

    #[test]
    fn a_dependency_may_want_an_older_rust_and_ours_state_the_same() {
        let registry = Some("registry");
        assert_eq!(breach(Some("1.88.0"), registry), None);
        assert_eq!(breach(None, registry), None);
        assert_eq!(breach(Some("1.89"), registry).as_deref(), Some("it 1.0.0 wants 1.89"));
        assert_eq!(breach(Some("1.88"), None), None);
        assert_eq!(breach(Some("1.85"), None).as_deref(), Some("it states 1.85"));
        assert_eq!(breach(None, None).as_deref(), Some("it states none"));
    }
}
