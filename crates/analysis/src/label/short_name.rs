//! Shortens a function's name for narrow columns. The label keeps the whole name.

use super::{Label, function_owner};
use crate::text;

impl Label {
    /// Returns the function's name, sanitised for a terminal and cut to `width` characters: first
    /// its arguments go, then its beginning. Python's and JavaScript's names end with their file,
    /// and lose that.
    pub fn short_name(&self, width: usize) -> String {
        let name = text::terminal(&self.function);
        if name.chars().count() <= width {
            return name;
        }
        if function_owner::ends_with_file(&name) {
            return text::cut_chars(&name, width);
        }
        let name = without_arguments(&name);
        let length = name.chars().count();
        if length <= width {
            return name;
        }
        ['…'].into_iter().chain(name.chars().skip((length + 1).saturating_sub(width))).collect()
    }
}

/// `Map<u8, Vec<u8>>::get(u8)` → `Map<…>::get(…)`. The outer brackets of `<Type as Trait>::function`
/// stay, and those of `(*Type).method` and of `(anonymous namespace)`, which are no arguments.
fn without_arguments(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let (mut open, mut previous) = (0_u32, ' ');
    let shown = u32::from(name.starts_with('<'));
    for c in name.chars() {
        match c {
            '>' if previous != '-' => open = open.saturating_sub(1),
            '(' if open == 0 && !matches!(previous, '.' | ':' | ' ') => {
                short.push_str("(…)");
                break;
            }
            _ => {}
        }
        if open <= shown {
            short.push(c);
        }
        if c == '<' {
            open += 1;
            if open == shown + 1 {
                short.push('…');
            }
        }
        previous = c;
    }
    short
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Label;
    use crate::label::CodeOwner;

    #[test]
    fn short_names_keep_what_tells_functions_apart() {
        for (name, short) in [
            ("demo::take_lock", "demo::take_lock"),
            (
                "web::routes::orders::Orders<alloc::vec::Vec<u8>, alloc::string::String>::insert",
                "web::routes::orders::Orders<…>::insert",
            ),
            (
                "<web::pool::Pool<web::db::Connection> as core::ops::Drop>::drop",
                "<web::pool::Pool<…> as core::ops::Drop>::drop",
            ),
            (
                "std::vector<int> app::sorted<int>(std::vector<int> const&, std::less<int>)",
                "std::vector<…> app::sorted<…>(…)",
            ),
            (
                "github.com/somebody/something/internal/server.(*Server).handle",
                "…body/something/internal/server.(*Server).handle",
            ),
            (
                "py::worker:/home/somebody/projects/application/source/jobs.py",
                "py::worker:/home/somebody/projects/application/…",
            ),
        ] {
            let label =
                Label { function: Arc::from(name), module: None, whose: CodeOwner::Program };
            assert_eq!(label.short_name(48), short);
        }
    }
}
