//! The page's own code and style, and the library that it uses: files of this crate.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

/// Everything that does not change from report to report.
pub(super) struct Assets {
    pub(super) style: &'static str,
    /// A script of the old kind, which defines `dagre`.
    pub(super) library: String,
    /// One module.
    pub(super) code: String,
}

/// The modules, each after those that it imports.
const MODULES: [(&str, &str); 15] = [
    ("dom", include_str!("assets/dom.js")),
    ("words", include_str!("assets/words.js")),
    ("data", include_str!("assets/data.js")),
    ("search", include_str!("assets/search.js")),
    ("theme", include_str!("assets/theme.js")),
    ("head", include_str!("assets/head.js")),
    ("waits", include_str!("assets/waits.js")),
    ("flame", include_str!("assets/flame.js")),
    ("graph", include_str!("assets/graph.js")),
    ("lanes", include_str!("assets/lanes.js")),
    ("requests", include_str!("assets/requests.js")),
    ("timeline", include_str!("assets/timeline.js")),
    ("ledger", include_str!("assets/ledger.js")),
    ("keys", include_str!("assets/keys.js")),
    ("main", include_str!("assets/main.js")),
];

const LIBRARY: &str = include_str!("assets/vendor/dagre.min.js");
const LIBRARY_LICENCE: &str = include_str!("assets/vendor/dagre.LEGAL.txt");

impl Assets {
    pub(super) fn new() -> Self {
        // A browser's tools would look for the file that this names.
        let library = LIBRARY.split("//# sourceMappingURL").next().unwrap_or_default();
        Self {
            style: include_str!("assets/style.css"),
            library: format!("/* @dagrejs/dagre 3.1.3 */\n{LIBRARY_LICENCE}{library}"),
            code: MODULES.map(|(name, source)| inline_module(name, source)).concat(),
        }
    }
}

/// A module as a part of one: a function that is called at once and returns what it exports. What
/// it imports from another stands before it.
///
/// ```text
/// import { a } from './x.js';         const module_y = (() => {
/// export function b() {…}       →     const { a } = module_x;
///                                     function b() {…}
///                                     return { b };
///                                     })();
/// ```
fn inline_module(name: &str, source: &str) -> String {
    let mut code = format!("const module_{name} = (() => {{\n");
    let mut exports = Vec::new();
    for line in source.lines() {
        let import = line
            .strip_prefix("import ")
            .and_then(|line| line.strip_suffix(".js';")?.split_once(" from './"));
        if let Some((names, from)) = import {
            code.push_str(&format!("const {names} = module_{from};\n"));
            continue;
        }
        let line = match line.strip_prefix("export ") {
            Some(declaration) => {
                exports.extend(declared_name(declaration));
                declaration
            }
            None => line,
        };
        code.push_str(line);
        code.push('\n');
    }
    code.push_str(&format!("return {{ {} }};\n}})();\n", exports.join(", ")));
    code
}

/// `b` of `function b() {` and of `const b = 1;`
fn declared_name(declaration: &str) -> Option<&str> {
    let name = declaration.split_once(' ')?.1;
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
}

/// The name by which a page's policy allows a script or style:
/// <https://www.w3.org/TR/CSP3/#match-element-to-source-list>
pub(super) fn csp_hash(content: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(content)))
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha512};

    use super::{Assets, LIBRARY, STANDARD, inline_module};
    use base64::Engine as _;

    /// `npm pack @dagrejs/dagre@3.1.3`, whose own sum is in `assets/vendor/README.md`.
    #[test]
    fn the_library_is_what_was_published() {
        let sum = STANDARD.encode(Sha512::digest(LIBRARY));
        let noted = include_str!("assets/vendor/README.md");
        assert!(noted.contains(&format!("`sha512-{sum}`")), "{sum}");
    }

    #[test]
    fn modules_become_one() {
        let module = "import { a } from './x.js';\nexport function b() {\n  return a;\n}\n";
        let expected = "const module_y = (() => {\nconst { a } = module_x;\nfunction b() {\n  return a;\n}\nreturn { b };\n})();\n";
        assert_eq!(inline_module("y", module), expected);
    }

    /// A script would end there, and a page could ask for what is elsewhere.
    #[test]
    fn nothing_ends_a_script_or_names_another_file() {
        let Assets { style, library, code } = Assets::new();
        for text in [style, &library, &code] {
            assert!(!text.contains("</"));
            assert!(!text.contains("@import"));
            assert!(text.split("url(").skip(1).all(|target| target.starts_with('#')));
            assert!(!text.contains("sourceMappingURL"));
        }
        for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!code.contains(forbidden), "{forbidden}");
        }
        for left in ["\nimport ", "\nexport "] {
            assert!(!code.contains(left), "{left:?}");
        }
    }
}
