//! That the names in `docs/glossary.md` exist, and stand in the files that it gives for them.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use xtask::workspace;

/// Where the glossary's rows have names and files, counted from 0.
const NAMES: usize = 2;
const FILES: usize = 3;

/// Checks every row of the glossary.
///
/// # Errors
///
/// When a file does not exist, or a name is in none of its row's files: all of them.
pub fn check() -> anyhow::Result<()> {
    let root = workspace::root();
    let path = root.join("docs/glossary.md");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows = parse_rows(&text);
    if rows.is_empty() {
        bail!("{} has no rows", path.display());
    }
    let mut wrong = Vec::new();
    for row in &rows {
        wrong.extend(find_errors(&root, row)?);
    }
    if !wrong.is_empty() {
        bail!("docs/glossary.md is out of date:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// What a row of the glossary says about the source.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    names: Vec<String>,
    files: Vec<String>,
}

/// The rows of all tables, without their headings.
fn parse_rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut column = 0;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::TableRow) => {
                rows.push(Row::default());
                column = 0;
            }
            Event::End(TagEnd::TableCell) => column += 1,
            Event::Code(code) => {
                let Some(row) = rows.last_mut() else { continue };
                match column {
                    NAMES => row.names.push(code.into_string()),
                    FILES => row.files.push(code.into_string()),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    rows
}

fn find_errors(root: &Path, row: &Row) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut source = String::new();
    for file in &row.files {
        let path = root.join(file);
        if path.is_dir() {
            for file in workspace::find_files(&path, "rs")? {
                source.push_str(&fs::read_to_string(file)?);
            }
        } else {
            match fs::read_to_string(&path) {
                Ok(text) => source.push_str(&text),
                Err(error) => wrong.push(format!("{file}: {error}")),
            }
        }
    }
    for name in &row.names {
        // Of `Blame::is_retry`, the last part is what is defined.
        let identifier = name.rsplit("::").next().unwrap_or(name);
        if !source.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == identifier)
        {
            wrong.push(format!("`{name}` is not in {}", row.files.join(" or ")));
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(names: &[&str], files: &[&str]) -> Vec<String> {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let row = Row { names: own(names), files: own(files) };
        find_errors(&workspace::root(), &row).unwrap()
    }

    #[test]
    fn names_and_files_are_those_of_the_third_and_fourth_column() {
        let text = "| term | meaning | name | file | x |\n|---|---|---|---|---|\n\
                    | a `b` | `c` | `D`, `E::f` | `g.rs` | `h` |\n";
        let row =
            Row { names: vec!["D".to_owned(), "E::f".to_owned()], files: vec!["g.rs".to_owned()] };
        assert_eq!(parse_rows(text), [row]);
    }

    #[test]
    fn a_name_has_to_stand_in_its_file_as_a_word() {
        assert_eq!(errors(&["check", "Row::names"], &["xtask/src/glossary.rs"]).len(), 0);
        assert_eq!(errors(&["Row"], &["xtask/src"]).len(), 0);
        // `find_error` is only the beginning of a word.
        assert_eq!(errors(&["find_error"], &["xtask/src/links.rs"]).len(), 1);
        assert_eq!(errors(&[], &["xtask/src/no_such_file.rs"]).len(), 1);
    }
}
