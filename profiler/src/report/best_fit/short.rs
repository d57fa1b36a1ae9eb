//! A function's name where there is little room. The whole of it stays in the label.

use super::{Label, names};
use crate::report::text;

/// Characters of a short name.
const WIDTH: usize = 48;

impl Label {
    /// The function's name, made harmless for a terminal, and cut to one part of a line: first its
    /// arguments go, then its beginning. Python's and JavaScript's names end with their file, and lose
    /// that.
    pub(crate) fn short(&self) -> String {
        let name = text::terminal(&self.function);
        if name.chars().count() <= WIDTH {
            return name;
        }
        if names::has_file(&name) {
            return text::cut(&name, WIDTH);
        }
        let name = without_arguments(&name);
        let length = name.chars().count();
        if length <= WIDTH {
            return name;
        }
        ['…'].into_iter().chain(name.chars().skip(length + 1 - WIDTH)).collect()
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
