//! A document of figures: the prose is written by hand, the tables between markers by a benchmark.
//!
//! ```text
//! <!-- bench:NAME -->
//! | … |
//! <!-- /bench:NAME -->
//! ```

use std::fs;

use anyhow::{Context as _, ensure};

use xtask::workspace;

/// Puts each text between the markers of its name, in a document of the workspace.
///
/// # Errors
///
/// When the document can't be read or written, or lacks a marker.
pub fn write_tables(name: &str, texts: &[(&'static str, String)]) -> anyhow::Result<()> {
    let path = workspace::root().join(name);
    let mut document = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
    for (marker, text) in texts {
        document =
            replace_between_markers(&document, marker, text).with_context(|| name.to_owned())?;
    }
    fs::write(&path, document).with_context(|| format!("cannot write {name}"))
}

fn replace_between_markers(document: &str, name: &str, text: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- bench:{name} -->\n"), format!("<!-- /bench:{name} -->"));
    let (before, rest) = document
        .split_once(&begin)
        .with_context(|| format!("there is no line {}", begin.trim()))?;
    let (old, after) =
        rest.split_once(&end).with_context(|| format!("there is no {end} after it"))?;
    ensure!(!old.contains("<!-- bench:"), "there is no {end} before the next marker");
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "Prose.\n<!-- bench:a -->\nold\n<!-- /bench:a -->\nMore.\n";

    #[test]
    fn what_is_between_the_markers_is_replaced_and_nothing_else() -> anyhow::Result<()> {
        let new = "Prose.\n<!-- bench:a -->\nnew\n<!-- /bench:a -->\nMore.\n";
        assert_eq!(replace_between_markers(OLD, "a", "new\n")?, new);
        assert_eq!(replace_between_markers(new, "a", "old\n")?, OLD);
        Ok(())
    }

    #[test]
    fn a_marker_that_is_missing_or_never_ends_is_an_error() {
        assert!(replace_between_markers(OLD, "b", "new\n").is_err());
        assert!(replace_between_markers("<!-- bench:a -->\nold\n", "a", "new\n").is_err());
        let torn = format!("<!-- bench:a -->\nold\n<!-- bench:b -->\n{OLD}")
            .replacen("bench:b", "bench:c", 1);
        assert!(replace_between_markers(&torn, "a", "new\n").is_err());
    }
}
