//! Rules about the user half that no lint knows: who may name which crate, and which modules do no
//! input or output. Comments are read past; so is what only tests compile. What
//! is not shipped is not looked at: `tests/src/bin/offwake-yardsticks.rs` names aya as well.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};

use xtask::workspace;

/// Modules that work on values alone: the same recording gives the same bytes.
const PURE: [&str; 7] = ["timeline", "blame", "report", "export", "spans", "perfetto", "top"];

/// What a pure module does not name: modules and types by what they hold, so that a variant may be
/// called `File`; and other types, functions and macros.
const IMPURE_PATHS: [&str; 6] = ["File", "env", "fs", "net", "process", "thread"];
const IMPURE_NAMES: [&str; 8] =
    ["Instant", "SystemTime", "eprint", "eprintln", "print", "println", "stderr", "stdout"];

/// Checks every source file of the user half.
///
/// # Errors
///
/// When a rule is broken: all the places, each with its rule.
pub fn check() -> anyhow::Result<()> {
    let source = workspace::root().join("profiler/src");
    let files = workspace::find_files(&source, "rs")?;
    if files.is_empty() {
        bail!("there is no source in {}", source.display());
    }
    let mut broken = Vec::new();
    for file in files {
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let path = file.strip_prefix(&source).unwrap_or(&file);
        broken.extend(breaches(path, &text));
    }
    if !broken.is_empty() {
        bail!("rules are broken:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

/// The rules that a file breaks, as `path:line: rule`.
fn breaches(path: &Path, text: &str) -> Vec<String> {
    let module = path
        .components()
        .next()
        .map(|part| part.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned())
        .unwrap_or_default();
    let tests_alone = path.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        matches!(name.trim_end_matches(".rs"), "tests" | "golden")
    });
    if tests_alone {
        return Vec::new();
    }
    let mut broken = Vec::new();
    for (number, line) in without_tests(text) {
        let code = line.split("//").next().unwrap_or_default();
        let mut breach = |rule: String| {
            broken.push(format!("profiler/src/{}:{}: {rule}", path.display(), number + 1));
        };
        for (name, then) in names(code) {
            if module != "kernel" && (name == "aya" || name.starts_with("aya_")) {
                breach("only src/kernel may name aya".to_owned());
            }
            if module != "symbols" && name == "blazesym" {
                breach("only src/symbols may name blazesym".to_owned());
            }
            if !["top", "bin"].contains(&module.as_str()) && name == "ratatui" {
                breach("only src/top and the binary may name ratatui".to_owned());
            }
            let impure = IMPURE_NAMES.contains(&name)
                || (IMPURE_PATHS.contains(&name) && then.starts_with("::"));
            if PURE.contains(&module.as_str()) && impure {
                breach(format!("{module} is pure, and may not name {name}"));
            }
        }
    }
    broken
}

/// The lines that are compiled outside tests too, counted from 0. An item that is for tests alone
/// ends at a semicolon on its first line, or at a brace below its attribute, as rustfmt lays it.
fn without_tests(text: &str) -> Vec<(usize, &str)> {
    let mut kept = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push((number, line));
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut first = true;
        for (_, line) in lines.by_ref() {
            let one_line = first && line.ends_with(';');
            first &= line.trim_start().starts_with("#[");
            if one_line || line.strip_prefix(indent) == Some("}") {
                break;
            }
        }
    }
    kept
}

/// The identifiers of a line, each with what follows it.
fn names(code: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) = rest.find(is_part) {
        let from = &rest[start..];
        let end = from.find(|c| !is_part(c)).unwrap_or(from.len());
        found.push((&from[..end], &from[end..]));
        rest = &from[end..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> usize {
        breaches(Path::new(path), text).len()
    }

    #[test]
    fn the_owner_of_a_crate_may_name_it_and_nobody_else() {
        assert_eq!(broken("kernel/load.rs", "use aya::Ebpf;"), 0);
        assert_eq!(broken("recording/mod.rs", "use aya::Ebpf;"), 1);
        assert_eq!(broken("recording/mod.rs", "use aya_log::EbpfLogger;"), 1);
        assert_eq!(broken("symbols/mod.rs", "use blazesym::symbolize;"), 0);
        assert_eq!(broken("main.rs", "fn f(s: blazesym::Addr) {}"), 1);
        assert_eq!(broken("top/draw.rs", "use ratatui::Frame;"), 0);
        assert_eq!(broken("report/mod.rs", "use ratatui::Frame;"), 1);
    }

    #[test]
    fn words_that_only_look_alike_are_no_breach() {
        assert_eq!(broken("recording/mod.rs", "let playa = 1; // aya::Ebpf"), 0);
        assert_eq!(broken("timeline/mod.rs", "let env = 1; //! std::env::var"), 0);
        assert_eq!(broken("blame/mod.rs", "WaitedOn::File(inode) => {}"), 0);
        assert_eq!(broken("blame/mod.rs", "let file = File::open(path)?;"), 1);
    }

    #[test]
    fn pure_modules_do_no_input_or_output() {
        assert_eq!(broken("timeline/mod.rs", "let now = Instant::now();"), 1);
        assert_eq!(broken("report/json.rs", "std::fs::write(path, bytes)?;"), 1);
        assert_eq!(broken("blame/mod.rs", "println!(\"{x}\");"), 1);
        assert_eq!(broken("files/mod.rs", "std::fs::write(path, bytes)?;"), 0);
    }

    #[test]
    fn what_only_tests_compile_is_left_out_and_nothing_else() {
        let tests = "#[cfg(test)]\nmod tests {\n    use std::fs::read;\n}\n";
        assert_eq!(broken("report/json.rs", tests), 0);
        assert_eq!(broken("report/json.rs", &format!("{tests}use std::fs::read;")), 1);
        let named = "#[cfg(test)]\nmod tests;\nfn f() {\n    println!();\n}";
        assert_eq!(broken("report/json.rs", named), 1);
        assert_eq!(broken("report/tests.rs", "use std::fs::read;"), 0);
    }
}
