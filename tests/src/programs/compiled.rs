//! Programs of `tests/programs`, compiled as others would.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::Program;
use crate::paths;

/// What is compiled, and how.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// `cc`, `musl-gcc`, `c++` …
    pub compiler: &'a str,
    /// A file of `tests/programs`.
    pub file: &'a str,
    /// What else the compiler is told.
    pub flags: &'a [&'a str],
}

impl<'a> Source<'a> {
    /// What its program is called, if nobody says otherwise.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.file.split('.').next().unwrap_or_default()
    }
}

/// A program that was compiled, in a directory of its own.
pub struct Compiled {
    directory: TempDir,
}

impl Compiled {
    /// A directory for programs.
    ///
    /// # Errors
    ///
    /// When it can't be made.
    pub fn empty() -> Result<Self> {
        Ok(Self { directory: paths::scratch_directory()? })
    }

    /// A program, called as its source.
    ///
    /// # Errors
    ///
    /// When it does not compile.
    pub fn compile_one(source: Source) -> Result<Self> {
        let compiled = Self::empty()?;
        compiled.compile(source.name(), source)?;
        Ok(compiled)
    }

    /// Compiles one more, by this name.
    ///
    /// # Errors
    ///
    /// When it does not compile.
    pub fn compile(&self, name: &str, source: Source) -> Result<PathBuf> {
        let program = self.directory.path().join(name);
        let mut command = Command::new(source.compiler);
        if source.compiler == "go" {
            // A cache of its own, as the user may have no home; nothing is fetched.
            command.env("GOCACHE", self.directory.path().join("cache")).env("GOPROXY", "off");
            command.env("GOFLAGS", "-mod=mod").arg("build");
        }
        command.args(source.flags).arg("-o").arg(&program);
        command.arg(paths::programs_directory().join(source.file));
        let said = command.output().with_context(|| format!("cannot run {}", source.compiler))?;
        ensure!(said.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said.stderr));
        Ok(program)
    }

    /// The path of one of them.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts one of them, and waits until it says `ready`.
    ///
    /// # Errors
    ///
    /// As [`Program::start_and_wait`].
    pub fn start(self, name: &str, arguments: &[&Path]) -> Result<Program> {
        let mut command = Command::new(self.path(name));
        Program::start_and_wait(command.args(arguments), self.directory)
    }
}
