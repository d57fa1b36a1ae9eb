//! The one rule by which every tool's stacks are judged: the function at the root.

/// Functions that nothing calls: where the kernel, libc or a runtime begins a thread.
///
/// glibc, musl, and Go's runtime, whose goroutines return to `runtime.goexit`; its scheduler has a stack
/// of its own, which `runtime.mcall` begins anew each time.
const ENTRY_POINTS: [&str; 13] = [
    "_start",
    "_dl_start_user",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "start_thread",
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.mcall",
    "runtime.mstart",
    "runtime.mstart.abi0",
    "runtime.rt0_go",
];

/// What `_start` calls; as `_start` of a stripped program has no name.
const CALLED_BY_START: [&str; 3] =
    ["__libc_start_main", "__libc_start_main_impl", "__libc_start_main_alias_2"];

/// Whether a stack reaches the entry point of its thread, by the names of its root and of what that
/// called; none for a frame that has no name.
pub fn is_whole(root: Option<&str>, called: Option<&str>) -> bool {
    match (root.map(plain), called.map(plain)) {
        (Some(root), _) => ENTRY_POINTS.contains(&root) || root.starts_with("runtime.rt0_go"),
        (None, Some(called)) => CALLED_BY_START.contains(&called),
        (None, None) => false,
    }
}

/// Strips a symbol's version and the offset in it, which some tools add.
fn plain(function: &str) -> &str {
    let function = function.split('@').next().unwrap_or(function);
    match function.rsplit_once('+') {
        Some((name, offset)) if offset.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => function,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_point_is_one_whatever_a_tool_adds_to_its_name() {
        for root in ["_start", "clone3+44", "clone3+0x2c", "runtime.goexit.abi0+1"] {
            assert!(is_whole(Some(root), None), "{root}");
        }
        for root in ["main", "__libc_start_main", "read", "clone_of_mine", "start"] {
            assert!(!is_whole(Some(root), Some("__libc_start_main")), "{root}");
        }
    }

    #[test]
    fn start_without_a_name_is_known_by_what_it_calls() {
        assert!(is_whole(None, Some("__libc_start_main@@GLIBC_2.34+133")));
        assert!(!is_whole(None, Some("main")) && !is_whole(None, None));
    }
}
