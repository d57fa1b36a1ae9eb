//! That every relative link of the documents leads to something, headings included.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use xtask::workspace;

/// Checks every Markdown file of the repository. What lies on other hosts is not asked for.
///
/// # Errors
///
/// When a link leads nowhere: all of them, each with its document and line.
pub fn check() -> anyhow::Result<()> {
    let root = workspace::root();
    let mut broken = Vec::new();
    for path in workspace::find_files(&root, "md")? {
        for link in Document::read(&path)?.links {
            if let Err(reason) = follow(&root, &path, &link.target) {
                let document = path.strip_prefix(&root).unwrap_or(&path).display();
                broken.push(format!("{document}:{}: {}: {reason:#}", link.line, link.target));
            }
        }
    }
    if !broken.is_empty() {
        bail!("links lead nowhere:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

/// What a Markdown file links to, and what can be linked to in it.
struct Document {
    links: Vec<Link>,
    /// The fragments of its headings.
    headings: BTreeSet<String>,
}

struct Link {
    /// Counted from 1.
    line: usize,
    target: String,
}

impl Document {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut document = Self { links: Vec::new(), headings: BTreeSet::new() };
        let mut heading: Option<String> = None;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = 1 + text[..range.start].matches('\n').count();
                    document.links.push(Link { line, target: dest_url.into_string() });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let first = fragment(&heading.take().unwrap_or_default());
                    let numbered = (1..).map(|number| format!("{first}-{number}"));
                    let free = |name: &String| !document.headings.contains(name);
                    document
                        .headings
                        .extend([first.clone()].into_iter().chain(numbered).find(free));
                }
                _ => {}
            }
        }
        document
    }
}

/// What a heading is called in links, as GitHub makes it:
/// <https://docs.github.com/en/get-started/writing-on-github/getting-started-with-writing-and-formatting-on-github/basic-writing-and-formatting-syntax#section-links>.
fn fragment(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

fn follow(root: &Path, document: &Path, target: &str) -> anyhow::Result<()> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let file: PathBuf = if path.is_empty() {
        document.to_owned()
    } else {
        document.parent().unwrap_or(root).join(path)
    };
    let file = file.canonicalize().context("there is no such file")?;
    if !file.starts_with(root.canonicalize()?) {
        bail!("it leads out of the repository");
    }
    let is_document = file.extension().is_some_and(|extension| extension == "md");
    if !heading.is_empty() && is_document && !Document::read(&file)?.headings.contains(heading) {
        bail!("there is no such heading");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<(usize, String)> {
        Document::parse(text).links.into_iter().map(|link| (link.line, link.target)).collect()
    }

    #[test]
    fn links_are_found_in_text_tables_and_references_and_not_in_code() {
        let text = "[a](a.md)\n\n| [b](b.md#x) | |\n|---|---|\n| ![c](c.svg) | [d] |\n\n`[e](e.md)`\n\n    [f](f.md)\n\n[d]: d.md\n";
        let expected = [(1, "a.md"), (3, "b.md#x"), (5, "c.svg"), (5, "d.md")];
        assert_eq!(targets(text), expected.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn headings_are_called_as_github_calls_them() {
        let headings = Document::parse("# A `-o x`, or two?\n\n## Names\n\n## Names\n").headings;
        assert_eq!(headings.into_iter().collect::<Vec<_>>(), ["a--o-x-or-two", "names", "names-1"]);
    }

    #[test]
    fn a_link_leads_to_a_file_of_the_repository_and_a_heading_of_it() -> anyhow::Result<()> {
        let outside = tempfile::tempdir()?;
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("docs"))?;
        fs::write(outside.path().join("other.md"), "")?;
        let document = root.join("docs/a.md");
        fs::write(&document, "# Here\n")?;
        let leads = |target: &str| follow(&root, &document, target).is_ok();
        for target in ["a.md", "../docs/", "#here", "../docs/a.md#here", "https://example.org/x"] {
            assert!(leads(target), "{target}");
        }
        for target in ["b.md", "#there", "a.md#there", "../../other.md"] {
            assert!(!leads(target), "{target}");
        }
        Ok(())
    }
}
