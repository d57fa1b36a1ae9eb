//! What the program contains beside our own code, with the licences: `THIRD-PARTY-NOTICES` in each package.
//!
//! cargo-about finds the crates and their texts, by the licences that `deny.toml` accepts. The same
//! `Cargo.lock` gives the same file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use toml_edit::DocumentMut;
use xtask::{command, workspace};

use super::{Packages, VERSION, folder};
use crate::cargo_tool::CargoTool;

/// The file's name in each package.
pub const NAME: &str = "THIRD-PARTY-NOTICES";

/// Its comparison of texts takes minutes without optimisation.
const CARGO_ABOUT: CargoTool = CargoTool::new("cargo-about", "0.9.3")
    .with_feature("cli")
    .with_optimized(&["aho-corasick", "libmimalloc-sys", "memchr", "regex-automata", "spdx"]);

/// What is no crate of `Cargo.lock`, and the headings.
const HEAD: &str = include_str!("notices.txt");

/// The licence of the one file of others that is part of this repository.
const DAGRE: &str = "crates/analysis/src/report/html/assets/vendor/dagre.LEGAL.txt";

/// What the BPF programs are compiled for.
const BPF: &str = "bpfel-unknown-none";

/// Who holds the copyright of crates whose packages have neither a licence nor authors.
const HOLDERS: [(&str, &str); 1] = [
    // As each of its source files begins.
    ("iced-x86", "Copyright (C) 2018-present iced project and contributors"),
];

const RULE: &str = "----------------------------------------------------------------------------";

/// What cargo-about says, as far as it is used here.
#[derive(Deserialize)]
struct Listing {
    crates: Vec<LicensedCrate>,
    licenses: Vec<LicenseText>,
}

#[derive(Deserialize)]
struct LicensedCrate {
    package: Package,
    /// As the crate states it: `MIT OR Apache-2.0`.
    license: String,
}

/// A package as `cargo metadata` has it.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    #[serde(default)]
    authors: Vec<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// One text, which several crates may have in common.
#[derive(Deserialize)]
struct LicenseText {
    name: String,
    text: String,
    used_by: Vec<UsedBy>,
}

#[derive(Deserialize)]
struct UsedBy {
    #[serde(rename = "crate")]
    package: Package,
}

/// The notices, and the crates that they name.
pub struct Notices {
    text: String,
    crates: Vec<Package>,
}

impl Notices {
    /// Collects the notices of all crates that the program and its BPF programs are made of.
    ///
    /// # Errors
    ///
    /// When a crate has a licence that `deny.toml` does not accept, or cargo-about can't be had.
    pub fn collect() -> anyhow::Result<Self> {
        let mut listing = list_crates()?;
        listing.crates.sort_by_key(|licensed| licensed.package.to_string());
        let dagre = read(&workspace::root().join(DAGRE))?;
        let text = render(&listing, &dagre)?;
        let crates = listing.crates.into_iter().map(|licensed| licensed.package).collect();
        Ok(Self { text, crates })
    }

    /// The content of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks that each crate that a program has functions of is named.
    ///
    /// # Errors
    ///
    /// With the crates that are not, or when the program's functions can't be read.
    pub fn check_program(&self, program: &Path) -> anyhow::Result<()> {
        let symbols = command::output(Command::new("nm").arg(program))
            .with_context(|| format!("nm cannot read {}", program.display()))?;
        self.check_symbols(&symbols).with_context(|| program.display().to_string())
    }

    fn check_symbols(&self, symbols: &str) -> anyhow::Result<()> {
        let linked = linked_crates(symbols);
        let is_library = |target: &&Target| target.kind.iter().any(|kind| kind.contains("lib"));
        let named: BTreeSet<String> = self
            .crates
            .iter()
            .flat_map(|package| package.targets.iter().filter(is_library))
            .map(|library| library.name.replace('-', "_"))
            .collect();
        let missing: Vec<&str> = linked
            .iter()
            .map(String::as_str)
            .filter(|name| !named.contains(*name) && !is_ours_or_rusts(name))
            .collect();
        ensure!(missing.is_empty(), "the notices lack {}", missing.join(", "));
        // Otherwise nothing was compared.
        for name in ["aya", "blazesym", "btf_rs", "parquet"] {
            ensure!(linked.contains(name), "there is no function of {name}");
        }
        Ok(())
    }
}

/// Checks that the packages have the notices, the same in each. What is installed from the `.deb` and the
/// `.rpm` is checked where they are tried.
///
/// # Errors
///
/// With the package that has none, or others.
pub fn check_packages(packages: &Packages) -> anyhow::Result<()> {
    let text = read(&folder().join(NAME))?;
    ensure!(Notices::collect()?.text == text, "the notices differ when they are collected again");
    let installed = format!("usr/share/doc/offwake/{NAME}");
    let source = format!("offwake-{VERSION}/{NAME}");
    let layer = r#"tar -xOf "$1" layer.tar | tar -xO "$2""#;
    let plain = r#"tar -xOf "$1" "$2""#;
    let deb = r#"dpkg-deb --fsys-tarfile "$1" | tar -xO "./$2""#;
    let Packages { archive, deb: debian, image, source: sources, .. } = packages;
    for (package, script, member) in [
        (archive, plain, &installed),
        (debian, deb, &installed),
        (image, layer, &installed),
        (sources, plain, &source),
    ] {
        let mut sh = Command::new("sh");
        sh.args(["-euc", script, "sh"]).arg(package).arg(member);
        let packed = command::output(&mut sh);
        ensure!(
            packed.is_some_and(|packed| packed == text.trim()),
            "{} has no {member} as in {}",
            package.display(),
            folder().display()
        );
    }
    Ok(())
}

/// Whether a crate is of this repository, or of the standard library, which the notices describe in words.
fn is_ours_or_rusts(name: &str) -> bool {
    const RUSTS: [&str; 6] = ["alloc", "core", "panic_unwind", "proc_macro", "std", "test"];
    name.starts_with("offwake") || name == "profiler_ebpf" || RUSTS.contains(&name)
}

/// Returns the crates whose names begin symbols, as in `_ZN3aya4maps…`.
fn linked_crates(symbols: &str) -> BTreeSet<String> {
    let first_name = |symbol: &str| {
        let path = symbol.strip_prefix("_ZN")?;
        let digits = path.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = path[..digits].parse().ok()?;
        let name = path[digits..].get(..length)?;
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        // `_$LT$` begins a type, not a crate.
        (name.bytes().all(is_name) && name != "_").then(|| name.to_owned())
    };
    symbols.lines().filter_map(|line| first_name(line.split_whitespace().last()?)).collect()
}

/// Asks cargo-about, without a network: what it would find there changes without us.
fn list_crates() -> anyhow::Result<Listing> {
    let root = workspace::root();
    let content = about_settings(&read(&root.join("deny.toml"))?)?;
    let settings = folder().join("about.toml");
    fs::create_dir_all(folder())
        .and_then(|()| fs::write(&settings, content))
        .with_context(|| format!("cannot write {}", settings.display()))?;
    command::run_quietly(command::cargo().args(["fetch", "--locked"]).current_dir(&root))?;
    let mut about = CARGO_ABOUT.cargo()?;
    about.args(["about", "generate", "--frozen", "--fail", "--format", "json", "--config"]);
    about.arg(&settings).arg("--manifest-path").arg(root.join("profiler/Cargo.toml"));
    command::print(&about);
    let output = about.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "`cargo about` failed ({})", output.status);
    serde_json::from_slice(&output.stdout).context("cannot read what `cargo about` prints")
}

/// Returns the settings of cargo-about: the same licences as in `deny.toml`, and the same exceptions.
fn about_settings(deny: &str) -> anyhow::Result<String> {
    let deny: DocumentMut = deny.parse().context("cannot read deny.toml")?;
    let licenses = deny.get("licenses").context("deny.toml has no licenses")?;
    let mut settings = DocumentMut::new();
    settings["accepted"] = licenses.get("allow").context("deny.toml allows no licence")?.clone();
    let targets = [format!("{}-unknown-linux-gnu", std::env::consts::ARCH), BPF.to_owned()];
    settings["targets"] = toml_edit::value(targets.into_iter().collect::<toml_edit::Array>());
    // Deeper folders are looked through by `find_nested`: cargo-about would compare all source with all
    // licences, which takes minutes.
    settings["max-depth"] = toml_edit::value(1);
    settings["ignore-build-dependencies"] = toml_edit::value(true);
    settings["ignore-dev-dependencies"] = toml_edit::value(true);
    settings["private"]["ignore"] = toml_edit::value(true);
    let exceptions = licenses.get("exceptions").and_then(toml_edit::Item::as_array);
    for exception in exceptions.into_iter().flatten() {
        let exception = exception.as_inline_table().context("an exception is no table")?;
        let name = exception.get("crate").and_then(toml_edit::Value::as_str);
        let name = name.context("an exception names no crate")?;
        let allow = exception.get("allow").context("an exception allows nothing")?;
        settings[name]["accepted"] = toml_edit::value(allow.clone());
    }
    Ok(settings.to_string())
}

fn render(listing: &Listing, dagre: &str) -> anyhow::Result<String> {
    let mut text = HEAD.to_owned();
    for LicensedCrate { package, license } in &listing.crates {
        write!(text, "\n{package}, {license}")?;
        if let Some(holders) = package.copyright_holders() {
            write!(text, "; {holders}")?;
        }
        if let Some(repository) = &package.repository {
            write!(text, "\n    {repository}")?;
        }
    }
    writeln!(text, "\n\nTexts of the licences\n---------------------")?;
    for license in &listing.licenses {
        license.check_holders()?;
        let users = license.used_by.iter().map(|used| used.package.to_string());
        let users: Vec<String> = users.collect();
        add_section(&mut text, &license.name, &users.join(", "), &license.text)?;
    }
    add_section(&mut text, "MIT License", "dagre", dagre)?;
    for (notice, users) in find_notices(&listing.crates)? {
        add_section(&mut text, "Notice", &users.join(", "), &notice)?;
    }
    Ok(text)
}

fn add_section(text: &mut String, name: &str, users: &str, content: &str) -> anyhow::Result<()> {
    let content = content.replace("\r\n", "\n");
    writeln!(text, "\n{RULE}\n{name}, for {users}\n\n{}", content.trim_matches('\n'))?;
    Ok(())
}

/// Returns what crates pass on beside their own licences, each text with the packages that have it: the `NOTICE`
/// that Apache 2.0 wants passed on, and licences of code of others in folders of theirs, as of zstd's.
fn find_notices(crates: &[LicensedCrate]) -> anyhow::Result<BTreeMap<String, Vec<String>>> {
    let mut notices = BTreeMap::<String, Vec<String>>::new();
    for LicensedCrate { package, .. } in crates {
        let root = package.manifest_path.parent().context("a package without a folder")?;
        for path in find_nested(root)? {
            let inner = path.strip_prefix(root).unwrap_or(&path).display();
            notices.entry(read(&path)?).or_default().push(format!("{package} ({inner})"));
        }
    }
    Ok(notices)
}

/// Returns files called `NOTICE…` of a package, and `LICENSE…` below its root, where cargo-about does not look.
fn find_nested(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let (kind, name) = (entry.file_type()?, entry.file_name());
            let name = name.to_string_lossy();
            let is_license = name.starts_with("LICENSE") && folder != root;
            if kind.is_dir() && !name.starts_with('.') {
                folders.push(entry.path());
            } else if kind.is_file() && (is_license || name.starts_with("NOTICE")) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

impl LicenseText {
    /// Checks that somebody is named where the text has a blank for who holds the copyright, as the usual text
    /// has that stands in for one that a package lacks.
    fn check_holders(&self) -> anyhow::Result<()> {
        let is_blank = self.text.contains("<copyright holders>");
        let mut users = self.used_by.iter().map(|used| &used.package);
        let nameless = users.find(|package| is_blank && package.copyright_holders().is_none());
        if let Some(package) = nameless {
            bail!("nothing tells who holds the copyright of {package}: add it to HOLDERS");
        }
        Ok(())
    }
}

impl Package {
    /// Who holds the copyright, as the package or its repository says.
    fn copyright_holders(&self) -> Option<String> {
        let known = HOLDERS.into_iter().find(|(name, _)| *name == self.name);
        let known = known.map(|(_, holders)| holders.to_owned());
        known.or_else(|| (!self.authors.is_empty()).then(|| self.authors.join(", ")))
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deny_accepts_is_accepted_and_nothing_else() {
        let deny = r#"
[licenses]
# With a comment.
allow = ["Apache-2.0", "MIT"]
exceptions = [{ crate = "btf-rs", allow = ["LGPL-2.1-or-later"] }]
"#;
        let settings: DocumentMut = about_settings(deny).unwrap().parse().unwrap();
        let words = |item: &toml_edit::Item| {
            let values = item.as_array().unwrap().iter();
            values.map(|value| value.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(&settings["accepted"]), ["Apache-2.0", "MIT"]);
        assert_eq!(words(&settings["btf-rs"]["accepted"]), ["LGPL-2.1-or-later"]);
        assert!(about_settings("[licenses]").is_err());
    }

    #[test]
    fn the_settings_of_this_repository_can_be_made() {
        let deny = read(&workspace::root().join("deny.toml")).unwrap();
        let settings: DocumentMut = about_settings(&deny).unwrap().parse().unwrap();
        let btf_rs = settings["btf-rs"]["accepted"].to_string();
        assert!(btf_rs.contains("LGPL-2.1-or-later"), "{settings}");
    }

    #[test]
    fn symbols_tell_the_crates_of_their_functions() {
        let symbols = "\
0000000000101a30 t _ZN3aya4maps7MapData6create17h0123456789abcdefE
0000000000101a40 t _ZN98_$LT$btf_rs..Btf$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE
0000000000101a50 T ZSTD_compress
0000000000101a60 t _ZN7parquet5arrow17h0123456789abcdefE
                 U malloc
0000000000101a70 t _ZN999short17h0E
";
        assert_eq!(linked_crates(symbols).into_iter().collect::<Vec<_>>(), ["aya", "parquet"]);
    }

    fn package(name: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            authors: Vec::new(),
            repository: None,
            manifest_path: PathBuf::new(),
            targets: vec![Target { name: name.replace('-', "_"), kind: vec!["lib".to_owned()] }],
        }
    }

    fn notices(crates: &[&str]) -> Notices {
        Notices { text: String::new(), crates: crates.iter().map(|name| package(name)).collect() }
    }

    #[test]
    fn notices_and_licences_in_folders_are_found_and_hidden_files_and_the_packages_own_licence_not()
    -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        for folder in ["zstd", ".github"] {
            fs::create_dir(root.path().join(folder))?;
        }
        let files =
            ["LICENSE", "NOTICE.txt", "zstd/LICENSE", "zstd/license.rs", ".github/LICENSE.yml"];
        for file in files {
            fs::write(root.path().join(file), "")?;
        }
        let expected = ["NOTICE.txt", "zstd/LICENSE"].map(|name| root.path().join(name));
        assert_eq!(find_nested(root.path())?, expected);
        Ok(())
    }

    #[test]
    fn a_text_with_a_blank_needs_somebody_who_fills_it() {
        let license = |text: &str, package: Package| LicenseText {
            name: "MIT License".to_owned(),
            text: text.to_owned(),
            used_by: vec![UsedBy { package }],
        };
        let blank = "Copyright (c) <year> <copyright holders>";
        assert!(license(blank, package("nobodys")).check_holders().is_err());
        license("Copyright (c) 2020 A", package("nobodys")).check_holders().unwrap();
        license(blank, package("iced-x86")).check_holders().unwrap();
        let authors = vec!["A".to_owned()];
        license(blank, Package { authors, ..package("as") }).check_holders().unwrap();
    }

    #[test]
    fn a_crate_that_is_linked_and_not_named_is_missing() {
        let symbols: String = ["aya", "blazesym", "btf_rs", "core", "offwake", "parquet"]
            .map(|name| format!("0 t _ZN{}{name}1f17h0E\n", name.len()))
            .concat();
        let all = ["aya", "blazesym", "btf-rs", "parquet", "only-a-macro"];
        notices(&all).check_symbols(&symbols).unwrap();
        let error = notices(&all[1..]).check_symbols(&symbols).unwrap_err().to_string();
        assert_eq!(error, "the notices lack aya");
        // A program without symbols proves nothing.
        assert!(notices(&all).check_symbols("").is_err());
    }
}
