//! What `cargo binstall` is told in `profiler/Cargo.toml`: where the archive of a release is, and where the
//! program lies in it.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};
use xtask::{command, workspace};

use super::VERSION;

/// The templates, of which each `{ variable }` is replaced:
/// <https://github.com/cargo-bins/cargo-binstall/blob/v1.15.5/SUPPORT.md>.
struct Templates {
    pkg_url: String,
    bin_dir: String,
    pkg_fmt: String,
}

/// Checks that the templates lead to this archive, and to the program in it.
///
/// # Errors
///
/// With what they lead to instead.
pub fn check(archive: &Path) -> anyhow::Result<()> {
    let templates = Templates::read()?;
    let url = expand(&templates.pkg_url)?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let (_, wanted) = url.rsplit_once('/').context("pkg-url has no folder")?;
    ensure!(wanted == name, "cargo binstall would look for {wanted}, and the archive is {name}");
    ensure!(templates.pkg_fmt == "tgz", "{name} is no {}", templates.pkg_fmt);
    let members = command::output(Command::new("tar").arg("-tf").arg(archive))
        .with_context(|| format!("tar cannot list {name}"))?;
    let program = expand(&templates.bin_dir)?;
    ensure!(members.lines().any(|member| member == program), "{name} has no {program}");
    Ok(())
}

impl Templates {
    fn read() -> anyhow::Result<Self> {
        let manifest = std::fs::read_to_string(workspace::root().join("profiler/Cargo.toml"))
            .context("cannot read profiler/Cargo.toml")?;
        let manifest: toml_edit::DocumentMut = manifest.parse()?;
        let binstall = &manifest["package"]["metadata"]["binstall"];
        let text = |key: &str| {
            let value = binstall[key].as_str().map(str::to_owned);
            value.with_context(|| format!("profiler/Cargo.toml states no {key} for binstall"))
        };
        Ok(Self { pkg_url: text("pkg-url")?, bin_dir: text("bin-dir")?, pkg_fmt: text("pkg-fmt")? })
    }
}

/// Replaces variables, for this machine.
fn expand(template: &str) -> anyhow::Result<String> {
    let mut expanded = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{ ") {
        let (variable, after) = after.split_once(" }").context("a brace is not closed")?;
        let value = match variable {
            "name" | "bin" => "offwake",
            "version" => VERSION,
            "target-arch" => std::env::consts::ARCH,
            // Stated once the repository has an address; the rest of the URL is what can be compared.
            "repo" => "https://example.org/offwake",
            other => anyhow::bail!("{other} is not among the variables that are known here"),
        };
        expanded.push_str(before);
        expanded.push_str(value);
        rest = after;
    }
    ensure!(!rest.contains(['{', '}']), "a brace is left in {template}");
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_lead_to_the_archive_that_is_made() {
        let Templates { pkg_url, bin_dir, .. } = Templates::read().unwrap();
        let archive = format!("{}.tar.gz", super::super::archive_name());
        assert_eq!(
            expand(&pkg_url).unwrap(),
            format!("https://example.org/offwake/releases/download/v{VERSION}/{archive}")
        );
        assert_eq!(expand(&bin_dir).unwrap(), "usr/bin/offwake");
    }

    #[test]
    fn a_variable_that_is_unknown_is_an_error() {
        for template in ["{ target }", "{ name", "{name}"] {
            assert!(expand(template).is_err(), "{template}");
        }
    }

    #[test]
    fn another_archive_is_refused() {
        let error = check(Path::new("offwake-0.0.0-x86_64-linux.tar.gz")).unwrap_err().to_string();
        assert!(error.contains("would look for offwake-"), "{error}");
    }
}
