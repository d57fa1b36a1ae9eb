//! Readable names of C++ and Rust functions.
//!
//! ```text
//! _ZN4shop8checkoutEi                    shop::checkout(int)
//! _ZN4core3fmt5write17h0123456789abcdefE core::fmt::write
//! f                                      f, a function of C: not the type float
//! ```

use std::borrow::Cow;

/// How the mangled names of C++ begin: with up to four underscores, of which platforms add some.
/// <https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling-structure>
const OF_CPP: [&str; 3] = ["_Z", "__Z", "___Z"];

/// Makes a name readable if a compiler has mangled it.
///
/// blazesym asks cpp_demangle about every name, which takes one for the code of a type if it can: `f` for
/// `float`, `Pc` for `char*`.
pub(super) fn demangle(name: &str) -> Cow<'_, str> {
    if let Ok(of_rust) = rustc_demangle::try_demangle(name) {
        return Cow::Owned(format!("{of_rust:#}"));
    }
    if !OF_CPP.iter().any(|start| name.starts_with(start)) {
        return Cow::Borrowed(name);
    }
    let readable = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    readable.map_or(Cow::Borrowed(name), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_of_cpp_and_rust_are_readable() {
        for (name, readable) in [
            ("_ZN4shop8checkoutEi", "shop::checkout(int)"),
            ("_Z3foov", "foo()"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example"),
        ] {
            assert_eq!(demangle(name), readable, "{name}");
        }
    }

    #[test]
    fn what_no_compiler_mangled_stays_as_it_is() {
        for name in
            ["f", "g", "Pc", "Ss", "main", "_start", "_Zno", "_R", "", "main.main", "\u{e4}"]
        {
            assert_eq!(demangle(name), name);
        }
    }
}
