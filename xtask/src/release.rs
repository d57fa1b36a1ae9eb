//! `cargo xtask release`: the files of a release, if version, changelog, tag and tree agree.
//!
//! ```text
//! target/package/
//!   …                  what `cargo xtask package` makes
//!   SHA256SUMS
//!   RELEASE-NOTES.md   the version's part of CHANGELOG.md
//! ```
//!
//! Nothing is sent anywhere. `.github/workflows/release.yml` calls this, and gives the files to the forge's
//! own tool.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail, ensure};
use xtask::{command, workspace};

use crate::package::{self, Packages, VERSION};

/// Where the text of the release is, beside the packages.
const NOTES: &str = "RELEASE-NOTES.md";

/// What a release depends on.
#[derive(Clone)]
struct State {
    /// The version of all crates, and so of the packages.
    version: String,
    /// Where the release will be; `cargo binstall` starts from it.
    repository: Option<String>,
    /// What git says has changed since the commit.
    changed: Vec<String>,
    /// The tags of the commit.
    tags: Vec<String>,
    changelog: String,
}

/// Makes the files of a release, tried on bare systems.
///
/// # Errors
///
/// With all that is not ready; when a file can't be made, or a package does not work.
pub fn release() -> anyhow::Result<()> {
    let problems = State::read(&workspace::root())?.problems();
    if !problems.is_empty() {
        bail!("this is no release of {VERSION}:\n  {}", problems.join("\n  "));
    }
    finish(&package::test_packages()?)
}

/// Makes the files of a release, whether everything is ready for it or not.
///
/// # Errors
///
/// When a file can't be made.
pub fn rehearse() -> anyhow::Result<()> {
    for problem in State::read(&workspace::root())?.problems() {
        eprintln!("xtask: a release would be refused: {problem}");
    }
    finish(&package::build_packages()?)
}

/// Checks the packages against their sums, and writes the text of the release beside them.
///
/// # Errors
///
/// When a sum is wrong or missing, or the changelog has no such version.
pub fn finish(packages: &Packages) -> anyhow::Result<()> {
    let folder = package::folder();
    check_sums(&folder, &packages.all())?;
    let changelog = State::read(&workspace::root())?.changelog;
    let section = Section::find(&changelog, VERSION);
    let section = section.with_context(|| format!("CHANGELOG.md has no {VERSION}"))?;
    fs::write(folder.join(NOTES), section.text).context("cannot write the release notes")?;
    eprintln!("xtask: the files of release {VERSION} are in {}", folder.display());
    Ok(())
}

/// Checks every file against `SHA256SUMS`, as those who download them do.
fn check_sums(folder: &Path, files: &[&Path]) -> anyhow::Result<()> {
    let mut sha256sum = Command::new("sha256sum");
    sha256sum.args(["--check", "--strict", "SHA256SUMS"]).current_dir(folder);
    let checked = command::output(&mut sha256sum).context("SHA256SUMS and the packages differ")?;
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("{name}: OK");
        ensure!(checked.lines().any(|checked| checked == line), "SHA256SUMS lacks {name}");
    }
    Ok(())
}

impl State {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let mut metadata = command::cargo();
        metadata.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]);
        let metadata = command::output(metadata.current_dir(workspace::root()))
            .context("`cargo metadata --locked` failed: is Cargo.lock up to date?")?;
        let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let offwake = packages.find(|package| package["name"] == "offwake");
        let offwake = offwake.context("there is no package offwake")?;
        let text = |key: &str| offwake[key].as_str().map(str::to_owned);
        Ok(Self {
            version: text("version").context("offwake has no version")?,
            repository: text("repository"),
            changed: git_lines(root, &["status", "--porcelain"])?,
            tags: git_lines(root, &["tag", "--points-at", "HEAD"])?,
            changelog: fs::read_to_string(root.join("CHANGELOG.md"))
                .context("cannot read CHANGELOG.md")?,
        })
    }

    /// Everything that is not ready, in words.
    fn problems(&self) -> Vec<String> {
        let Self { version, repository, changed, tags, changelog } = self;
        let mut problems = Vec::new();
        if !changed.is_empty() {
            problems.push(format!("not committed: {}", changed.join(", ")));
        }
        let wanted = format!("v{version}");
        if !tags.contains(&wanted) {
            let others = if tags.is_empty() { "none".to_owned() } else { tags.join(", ") };
            problems.push(format!("the commit has no tag {wanted} (its tags: {others})"));
        }
        match Section::find(changelog, version) {
            None => problems.push(format!("CHANGELOG.md has no {version}")),
            Some(section) if !section.is_dated() => {
                problems.push(format!("CHANGELOG.md has no date for {version}"));
            }
            Some(section) if section.text.is_empty() => {
                problems.push(format!("CHANGELOG.md says nothing about {version}"));
            }
            Some(_) => (),
        }
        if Section::find(changelog, "Unreleased").is_some_and(|section| !section.text.is_empty()) {
            problems.push("CHANGELOG.md has changes that are in no version".to_owned());
        }
        if repository.is_none() {
            let manifest = "Cargo.toml states no repository";
            problems.push(format!("{manifest}: cargo binstall would not find the release"));
        }
        problems
    }
}

/// A version's part of the changelog.
struct Section<'c> {
    /// What the heading has behind the version: `- 2026-12-01`.
    rest: &'c str,
    text: &'c str,
}

impl<'c> Section<'c> {
    /// Finds the part below `## [NAME]`.
    fn find(changelog: &'c str, name: &str) -> Option<Self> {
        let heading = format!("## [{name}]");
        let begins_line = |&start: &usize| start == 0 || changelog[..start].ends_with('\n');
        let mut starts = changelog.match_indices(&heading).map(|(start, _)| start);
        let start = starts.find(begins_line)?;
        let after = &changelog[start + heading.len()..];
        let (rest, after) = after.split_once('\n').unwrap_or((after, ""));
        let end = if after.starts_with("## ") { Some(0) } else { after.find("\n## ") };
        Some(Self { rest: rest.trim(), text: after[..end.unwrap_or(after.len())].trim() })
    }

    /// Whether the heading has a date, as in `- 2026-12-01`.
    fn is_dated(&self) -> bool {
        let Some(date) = self.rest.strip_prefix("- ") else { return false };
        let is_number = |part: &str, length| {
            part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let parts: Vec<&str> = date.split('-').collect();
        matches!(parts[..], [year, month, day]
            if is_number(year, 4) && is_number(month, 2) && is_number(day, 2))
    }
}

fn git_lines(root: &Path, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let output = command::output(Command::new("git").args(arguments).current_dir(root));
    let output = output.with_context(|| format!("`git {}` failed", arguments.join(" ")))?;
    Ok(output.lines().map(|line| line.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> State {
        State {
            version: "1.2.3".to_owned(),
            repository: Some("https://example.org/offwake".to_owned()),
            changed: Vec::new(),
            tags: vec!["v1.2.3".to_owned()],
            changelog: "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-12-01\n\nIt works.\n\n## [1.2.2] - 2026-11-01\n\nOld.\n".to_owned(),
        }
    }

    #[test]
    fn a_release_is_ready_if_version_tag_changelog_and_tree_agree() {
        assert_eq!(ready().problems(), Vec::<String>::new());
        assert_eq!(Section::find(&ready().changelog, "1.2.3").unwrap().text, "It works.");
    }

    #[test]
    fn each_disagreement_is_a_problem_of_its_own() {
        let changelog = |from: &str, to: &str| {
            let ready = ready();
            State { changelog: ready.changelog.replace(from, to), ..ready }
        };
        let cases = [
            (
                State { changed: vec!["M README.md".to_owned()], ..ready() },
                "not committed: M README.md",
            ),
            (
                State { tags: Vec::new(), ..ready() },
                "the commit has no tag v1.2.3 (its tags: none)",
            ),
            (
                State { tags: vec!["v1.2.2".to_owned()], ..ready() },
                "the commit has no tag v1.2.3 (its tags: v1.2.2)",
            ),
            (changelog("[1.2.3]", "[1.2.4]"), "CHANGELOG.md has no 1.2.3"),
            (changelog("2026-12-01", "unreleased"), "CHANGELOG.md has no date for 1.2.3"),
            (changelog("It works.\n", ""), "CHANGELOG.md says nothing about 1.2.3"),
            (
                changelog("[Unreleased]\n", "[Unreleased]\n\nMore.\n"),
                "CHANGELOG.md has changes that are in no version",
            ),
            (
                State { repository: None, ..ready() },
                "Cargo.toml states no repository: cargo binstall would not find the release",
            ),
        ];
        for (state, problem) in cases {
            assert_eq!(state.problems(), [problem]);
        }
    }

    #[test]
    fn the_tree_and_the_tags_are_those_of_git() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let root = folder.path();
        let git = |arguments: &[&str]| {
            let who = ["-c", "user.name=A", "-c", "user.email=a@example.org"];
            command::output(Command::new("git").args(who).args(arguments).current_dir(root))
                .with_context(|| format!("git {arguments:?} failed"))
        };
        git(&["init", "--quiet"])?;
        fs::write(root.join("CHANGELOG.md"), ready().changelog)?;
        git(&["add", "."])?;
        git(&["commit", "--quiet", "--message", "First"])?;
        git(&["tag", "v1.2.3"])?;
        let state = State::read(root)?;
        assert_eq!((state.changed, state.tags), (Vec::new(), vec!["v1.2.3".to_owned()]));
        fs::write(root.join("new.txt"), "")?;
        assert_eq!(State::read(root)?.changed, ["?? new.txt"]);
        Ok(())
    }

    #[test]
    fn a_package_that_is_changed_or_has_no_sum_is_no_part_of_a_release() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let [one, other] = ["one.deb", "other.rpm"].map(|name| folder.path().join(name));
        fs::write(&one, "one")?;
        fs::write(&other, "other")?;
        let sums = command::output(Command::new("sha256sum").arg("one.deb").current_dir(&folder));
        fs::write(folder.path().join("SHA256SUMS"), sums.context("no sha256sum")? + "\n")?;
        check_sums(folder.path(), &[&one])?;
        assert!(check_sums(folder.path(), &[&one, &other]).is_err());
        fs::write(&one, "changed")?;
        assert!(check_sums(folder.path(), &[&one]).is_err());
        Ok(())
    }

    #[test]
    fn this_repositorys_changelog_has_the_version_of_its_packages() -> anyhow::Result<()> {
        let State { version, changelog, .. } = State::read(&workspace::root())?;
        assert_eq!(version, VERSION);
        assert!(Section::find(&changelog, VERSION).is_some_and(|section| !section.text.is_empty()));
        assert!(Section::find(&changelog, "Unreleased").is_some());
        Ok(())
    }
}
