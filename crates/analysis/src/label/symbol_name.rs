//! Parses symbol names for the part that tells their owner. All of it takes time linear in the
//! name's length, since names come from whoever compiled the file.

/// Returns the crate or the outermost namespace of a demangled Rust or C++ name, if it has one.
///
/// ```text
/// std::sync::Mutex<T>::lock                                  std
/// <demo::Job as core::future::future::Future>::poll          demo
/// <F as futures_util::fns::FnOnce1<A>>::call_once            futures_util
/// std::vector<int> demo::sorted(std::vector<int> const&)     demo
/// ```
pub(super) fn namespace(name: &str) -> Option<&str> {
    if let Some(of_type) = name.strip_prefix('<') {
        return if is_builtin_type(of_type) { Some("core") } else { first_crate(name) };
    }
    let (first, _) = qualified_name(name).split_once("::")?;
    (!first.is_empty() && first.chars().all(is_part_of_word)).then_some(first)
}

/// Whether a method is one that Rust itself gives to a type of its own, in which a crate's type may
/// be: `<u64>::wrapping_mul`, `<[demo::Job]>::len`, and not `<[demo::Job] as demo::Queue>::next`.
fn is_builtin_type(of_type: &str) -> bool {
    let bytes = of_type.as_bytes();
    let (mut depth, mut previous) = (0_u32, b' ');
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'>' if previous == b'-' => {}
            b'>' if depth == 0 => {
                let of_type = of_type.get(..at).unwrap_or(of_type);
                return of_type.starts_with(['[', '*', '&', '(']) || !of_type.contains("::");
            }
            b' ' if depth == 0 && bytes.get(at..).is_some_and(|r| r.starts_with(b" as ")) => {
                return false;
            }
            b'<' | b'(' | b'[' => depth += 1,
            b'>' | b')' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        previous = byte;
    }
    false
}

/// Returns the first crate in an `impl`: that of the type, or of the trait if the type has none.
fn first_crate(name: &str) -> Option<&str> {
    name.match_indices("::").find_map(|(at, _)| {
        let before = name.get(..at)?;
        let start = before.char_indices().rev().find(|&(_, c)| !is_part_of_word(c));
        let word = before.get(start.map_or(0, |(at, c)| at + c.len_utf8())..)?;
        (!word.is_empty()).then_some(word)
    })
}

fn is_part_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Strips what C++ and Java write before a name: `int T.compute(int)` → `T.compute(int)`.
///
/// The name begins after the last space outside of all brackets; what comes after the arguments'
/// bracket is not looked at.
pub(super) fn qualified_name(name: &str) -> &str {
    let bytes = name.as_bytes();
    let goes_on = |at, with: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(with));
    let (mut start, mut depth, mut previous) = (0, 0_u32, b' ');
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            // `Fn() -> T`
            b'>' if previous == b'-' => {}
            b'(' if depth == 0
                && at > start
                && previous != b':'
                && !is_decltype(bytes, start, at) =>
            {
                break;
            }
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            // `operator new`, `operator<`
            b'o' if depth == 0 && (at == start || previous == b':') && goes_on(at, b"operator") => {
                break;
            }
            b' ' if depth == 0 && goes_on(at, b" [clone") => break,
            b' ' if depth == 0 => start = at + 1,
            _ => {}
        }
        previous = byte;
    }
    name.get(start..).unwrap_or(name)
}

fn is_decltype(bytes: &[u8], start: usize, at: usize) -> bool {
    bytes.get(start..at) == Some(b"decltype")
}

#[cfg(test)]
mod tests {
    use super::{namespace, qualified_name};

    #[test]
    fn namespaces_are_found_behind_what_is_written_before_them() {
        for (name, expected) in [
            ("std::rt::lang_start", Some("std")),
            ("<std::sync::Mutex<T>>::lock", Some("std")),
            ("<&dyn core::ops::function::Fn<(), Output = i32> as demo::Job>::run", Some("core")),
            ("<F as futures_util::fns::FnOnce1<A>>::call_once", Some("futures_util")),
            ("<(demo::A, u8) as core::fmt::Debug>::fmt", Some("demo")),
            ("std::panic::catch_unwind::<&dyn core::ops::Fn() -> demo::A, i32>", Some("std")),
            ("run(std::vector<int>)", None),
            ("sorted<std::less<int> >::run()", None),
            ("unsigned long app::count(std::string const&)", Some("app")),
            ("decltype (fp()) app::call<std::less<int> >(int)", Some("app")),
            ("bool operator< <std::less<int> >(app::A, app::A)", None),
            ("app::A::operator->() const", Some("app")),
            ("app::run() [clone .cold]", Some("app")),
            ("run", None),
            ("<u64>::wrapping_mul", Some("core")),
            ("<[demo::A]>::len", Some("core")),
            ("<*const demo::A>::add", Some("core")),
            ("<[demo::A] as demo::Queue>::next", Some("demo")),
            ("<demo::A<fn() -> u8>>::next", Some("demo")),
            ("<::", None),
            ("", None),
        ] {
            assert_eq!(namespace(name), expected, "{name}");
        }
        assert_eq!(qualified_name("int T.compute(int)"), "T.compute(int)");
        assert_eq!(qualified_name("void T.<init>(a.B)"), "T.<init>(a.B)");
    }
}
