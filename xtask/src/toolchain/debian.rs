//! Debian's own rustc. The packages whose names say `web` are those that keep up with browsers: in
//! stable releases too, rustc, cargo, the library's source and LLVM come as a matching set.

use super::Compiler;
use crate::apt;

const PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// Debian's rustc with the library's source, if it is installed.
pub fn installed() -> Option<Compiler> {
    // By full path: rustup's shims usually come first in PATH.
    Compiler::inspect("/usr/bin/cargo".into(), "/usr/bin/rustc".into()).ok()
}

/// Has apt install it.
///
/// # Errors
///
/// When apt can't, or what it has is too old.
pub fn install() -> anyhow::Result<Compiler> {
    apt::install_newest(&PACKAGES.map(str::to_owned))?;
    Compiler::inspect("/usr/bin/cargo".into(), "/usr/bin/rustc".into())
}
