//! Names that interpreters and JITs give to the code that they write, with the source in them.
//!
//! ```text
//! JS:*onReply /srv/app/orders.js:10:5    V8     kind:tier name file:line:column
//! py::worker:/srv/app/jobs.py            Python       name:file
//! ```
//!
//! <https://github.com/nodejs/node/blob/v20.20.0/deps/v8/src/logging/log.cc>, `LinuxPerfBasicLogger`
//! and <https://github.com/python/cpython/blob/v3.12.0/Python/perf_trampoline.c>

/// The parts of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScriptName<'a> {
    pub function: &'a str,
    pub file: Option<&'a str>,
    /// Where the function begins.
    pub line: Option<u32>,
}

/// Splits a name into its parts. A name of another form is the function's name as it is.
pub(crate) fn parse_script_name(name: &str) -> ScriptName<'_> {
    let unchanged = ScriptName { function: name, file: None, line: None };
    python(name).or_else(|| javascript(name)).unwrap_or(unchanged)
}

fn python(name: &str) -> Option<ScriptName<'_>> {
    let (function, file) = name.strip_prefix("py::")?.split_once(':')?;
    let is_whole = !function.is_empty() && !file.is_empty();
    is_whole.then_some(ScriptName { function, file: Some(file), line: None })
}

fn javascript(name: &str) -> Option<ScriptName<'_>> {
    /// A function without a name, as V8's own profiles call it.
    const NAMELESS: &str = "(anonymous)";
    /// The marks of functions that were optimised, interpreted, and compiled in between.
    const TIERS: [char; 4] = ['*', '~', '^', '+'];
    /// What the name of a script begins with. Functions' names can have spaces, and paths too.
    const FILES: &[&str] = &[" /", " node:", " file:", " internal/", " evalmachine."];
    let kinds = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
    let rest = kinds.iter().find_map(|kind| name.strip_prefix(kind))?;
    let rest = rest.strip_prefix(TIERS).unwrap_or(rest);
    let (rest, column) = rest.rsplit_once(':')?;
    let (rest, line) = rest.rsplit_once(':')?;
    let (_, line): (u32, u32) = (column.parse().ok()?, line.parse().ok()?);
    let at = FILES.iter().filter_map(|file| rest.find(file)).min().or_else(|| rest.rfind(' '))?;
    let (function, file) = (rest.get(..at)?, rest.get(at + 1..)?);
    let function = if function.is_empty() { NAMELESS } else { function };
    let is_known = !file.is_empty();
    Some(ScriptName {
        function,
        file: is_known.then_some(file),
        line: (is_known && line > 0).then_some(line),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_lines_are_taken_out_of_names() {
        for (name, function, file, line) in [
            ("JS:*onReply /srv/app/t.js:2:150", "onReply", Some("/srv/app/t.js"), Some(2)),
            ("LazyCompile:~orders /srv/a b/o.js:10:5", "orders", Some("/srv/a b/o.js"), Some(10)),
            ("JS:^get size file:///srv/t.mjs:7:9", "get size", Some("file:///srv/t.mjs"), Some(7)),
            ("JS:+emit node:events:471:44", "emit", Some("node:events"), Some(471)),
            ("JS:~ /srv/t.js:1:1", "(anonymous)", Some("/srv/t.js"), Some(1)),
            (
                "Script:~ node:internal/main/x:1:1",
                "(anonymous)",
                Some("node:internal/main/x"),
                Some(1),
            ),
            ("Function:~f webpack-internal:3:1", "f", Some("webpack-internal"), Some(3)),
            ("py::main:/a b.py", "main", Some("/a b.py"), None),
            ("py::f.<locals>.g:<string>", "f.<locals>.g", Some("<string>"), None),
        ] {
            assert_eq!(parse_script_name(name), ScriptName { function, file, line }, "{name}");
        }
    }

    #[test]
    fn other_names_stay_as_they_are() {
        for name in [
            "Builtin:ArrayPrototypePush",
            "RegExp:a /b:1:2",
            "Ljava/lang/Thread;::run",
            "void java.lang.Thread.run()",
            "JS:",
            "JS:*",
            "JS:*f",
            "JS:*f /t.js",
            "JS:*f /t.js:x:1",
            "JS:*f:1:2",
            "JS:*f /t.js:4294967296:1",
            "py::",
            "py::f",
            "py::f:",
            "py:::f",
            "",
        ] {
            let unchanged = ScriptName { function: name, file: None, line: None };
            assert_eq!(parse_script_name(name), unchanged, "{name}");
        }
    }
}
