//! Subcommands of cargo that tasks need, each compiled once, in a version of its own.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;

use xtask::{command, workspace};

/// A package of crates.io that brings one subcommand of cargo.
pub struct CargoTool {
    /// The package's name, as in `cargo-fuzz`; its program has the same name.
    package: &'static str,
    /// The only version that serves.
    version: &'static str,
    /// A feature that its program needs and that is off by default.
    feature: Option<&'static str>,
    /// Crates of it that would be too slow without optimisation.
    optimized: &'static [&'static str],
}

impl CargoTool {
    /// The tool of this package, in this version, with its default features.
    pub const fn new(package: &'static str, version: &'static str) -> Self {
        Self { package, version, feature: None, optimized: &[] }
    }

    /// The same tool with one more feature.
    pub const fn with_feature(self, feature: &'static str) -> Self {
        Self { feature: Some(feature), ..self }
    }

    /// The same tool with some of its crates optimised.
    pub const fn with_optimized(self, crates: &'static [&'static str]) -> Self {
        Self { optimized: crates, ..self }
    }

    /// A cargo that has this subcommand, which is made first if it isn't there.
    ///
    /// # Errors
    ///
    /// When it can't be had, or does not compile.
    pub fn cargo(&self) -> anyhow::Result<Command> {
        let programs = self.ensure_installed()?;
        let mut command = command::cargo();
        // Found by cargo as its own subcommand wherever it lies.
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = [programs].into_iter().chain(env::split_paths(&path));
        command.env("PATH", env::join_paths(folders)?);
        Ok(command)
    }

    /// The folder of its program.
    fn ensure_installed(&self) -> anyhow::Result<PathBuf> {
        let name = format!("{}-{}", self.package, self.version);
        let folder = workspace::target().join("tools").join(name);
        let programs = folder.join("bin");
        if self.runs(&programs) {
            return Ok(programs);
        }
        let mut install = command::cargo();
        // It runs for seconds: optimising all of it would take longer than that.
        install.env("CARGO_PROFILE_DEV_DEBUG", "false").args(["install", self.package]);
        install.args(["--version", self.version, "--locked", "--debug", "--force"]);
        if let Some(feature) = self.feature {
            install.args(["--features", feature]);
        }
        for name in self.optimized {
            install.arg("--config").arg(format!("profile.dev.package.{name}.opt-level=3"));
        }
        command::run(install.arg("--root").arg(&folder))?;
        if !self.runs(&programs) {
            bail!("{} was made but does not run", programs.join(self.package).display());
        }
        Ok(programs)
    }

    fn runs(&self, programs: &Path) -> bool {
        command::output(Command::new(programs.join(self.package)).arg("--version")).is_some()
    }
}
