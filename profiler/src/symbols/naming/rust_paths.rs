//! Modules of Rust functions whose names have none.
//!
//! DWARF has the path of an inlined generic function as the tree that it stands in, and its name is
//! the last part alone: `default_read_exact<std::net::tcp::TcpStream>`. Such a name passes for one of
//! the program's own. Where its source is a file of a crate, the file tells the module:
//!
//! ```text
//! /rustc/59807616e1fa/library/std/src/io/mod.rs            std::io::default_read_exact<...>
//! .../lib/rustlib/src/rust/library/std/src/sync/mutex.rs   std::sync::mutex::lock<...>
//! .../registry/src/index.crates.io-1/tokio-1.40.0/src/runtime/park.rs
//!                                                          tokio::runtime::park::park<...>
//! ```
//!
//! A module that stands in its parent's file, and the type of a method, are left out.

use std::borrow::Cow;

/// Returns the name with the module that its source file tells, if it has none. Most names have one, and are
/// not asked for their source.
pub(super) fn qualify(name: &str, source: impl FnOnce() -> Option<String>) -> Cow<'_, str> {
    let own = name.split('<').next().unwrap_or(name);
    if own.is_empty() || own.contains("::") {
        return Cow::Borrowed(name);
    }
    match source().as_deref().and_then(module) {
        Some(module) => Cow::Owned(format!("{module}::{name}")),
        None => Cow::Borrowed(name),
    }
}

/// Returns the module that a source file of a crate is.
fn module(source: &str) -> Option<String> {
    let (krate, file) = of_standard_library(source).or_else(|| of_registry(source))?;
    let mut parts = vec![krate.replace('-', "_")];
    parts.extend(file.strip_suffix(".rs")?.split('/').map(str::to_owned));
    let stem = parts.last().map(String::as_str);
    if matches!(stem, Some("mod" | "lib")) {
        parts.pop();
    }
    let is_name = |part: &String| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    parts.iter().all(is_name).then(|| parts.join("::"))
}

/// Returns the crate of the standard library that a file is of, and its path in there.
fn of_standard_library(source: &str) -> Option<(&str, &str)> {
    let at_rustc = source.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/'));
    let below = match at_rustc {
        Some((_, below)) => below.strip_prefix("library/")?,
        None => source.split_once("/rustlib/src/rust/library/")?.1,
    };
    below.split_once("/src/")
}

/// Returns the crate of a registry that a file is of, and its path in there.
fn of_registry(source: &str) -> Option<(&str, &str)> {
    let (_, below) = source.split_once("/registry/src/")?;
    let (_, below) = below.split_once('/')?;
    let (package, file) = below.split_once("/src/")?;
    // The version begins at the first hyphen that a digit follows: `futures-util-0.3.31`.
    let version = package
        .match_indices('-')
        .map(|(at, _)| at)
        .find(|&at| package.as_bytes().get(at + 1).is_some_and(u8::is_ascii_digit))?;
    Some((package.get(..version)?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_crate_tells_the_module() {
        let std = "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/std/src/io/mod.rs";
        let toolchain =
            "/root/.rustup/toolchains/stable/lib/rustlib/src/rust/library/core/src/lib.rs";
        let registry =
            "/home/u/.cargo/registry/src/index.crates.io-1/futures-util-0.3.31/src/io/read.rs";
        for (name, source, expected) in [
            (
                "default_read_exact<std::net::tcp::TcpStream>",
                std,
                "std::io::default_read_exact<std::net::tcp::TcpStream>",
            ),
            ("panic", toolchain, "core::panic"),
            ("read<T>", registry, "futures_util::io::read::read<T>"),
        ] {
            assert_eq!(qualify(name, || Some(source.to_owned())), expected, "{source}");
        }
    }

    #[test]
    fn other_names_stay_as_they_are() {
        let std = "/rustc/5980/library/std/src/io/mod.rs";
        for (name, source) in [
            // It has one.
            ("std::io::read<T>", std),
            ("<T as std::io::Read>::read", std),
            // The program's own, and what is no Rust.
            ("lock", "/home/u/shop/src/stock.rs"),
            ("lock", "src/stock.rs"),
            ("wait", "/usr/include/c++/12/condition_variable"),
            // Files that anybody has called so.
            ("lock", "/rustc/5980/library/std/src/../../../x.rs"),
            ("lock", "/rustc/5980/library/std/src/a b.rs"),
            ("lock", "/x/registry/src/index/stock/src/lib.rs"),
            ("lock", "/rustc/"),
            ("", std),
        ] {
            assert_eq!(qualify(name, || Some(source.to_owned())), name, "{source}");
        }
    }
}
