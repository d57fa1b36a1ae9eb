//! Debian's archive, whatever system this is: an apt of our own that installs nothing and needs no root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::release::Release;
use xtask::command;

/// Debian's name for the keys that its archive is signed with.
pub const PACKAGE: &str = "debian-archive-keyring";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What has cloud kernels that this project is tested with. Security updates come first: the archive
/// proper has what was there at the last point release.
const SUITES: [(&str, &str); 6] = [
    ("debian-security", "trixie-security"),
    ("debian-security", "bookworm-security"),
    ("debian-security", "bullseye-security"),
    ("debian", "trixie-backports"),
    ("debian", "bookworm"),
    ("debian", "bullseye"),
];

/// Debian's name for a kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// Packages for an architecture.
pub struct Archive {
    architecture: Architecture,
    folder: PathBuf,
}

impl Archive {
    /// Reads the lists of packages anew.
    ///
    /// # Errors
    ///
    /// When there is no apt, or the archive is out of reach.
    pub fn read(architecture: Architecture, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join(architecture.name());
        let archive = Self { architecture, folder };
        for name in ["lists/partial", "cache/archives/partial"] {
            let path = archive.folder.join(name);
            fs::create_dir_all(&path)
                .with_context(|| format!("cannot create {}", path.display()))?;
        }
        let sources: String = SUITES
            .iter()
            .map(|(archive, suite)| {
                format!("deb [signed-by={KEYS}] http://deb.debian.org/{archive} {suite} main\n")
            })
            .collect();
        archive.write("sources.list", &sources)?;
        let setting = |name: &str, path: &str| {
            format!("{name} \"{}\";\n", archive.folder.join(path).display())
        };
        let settings = [
            setting("Dir::Etc::sourcelist", "sources.list"),
            setting("Dir::State::lists", "lists"),
            setting("Dir::Cache", "cache"),
            "Dir::Etc::sourceparts \"/dev/null\";\n".to_owned(),
            "Acquire::Languages \"none\";\n".to_owned(),
            // Descriptions of desktop programs are as large as the lists themselves.
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n".to_owned(),
            format!("APT::Architecture \"{}\";\n", architecture.name()),
            format!("APT::Architectures {{ \"{}\"; }};\n", architecture.name()),
            // As root, apt would read what it downloads as a user that may not look in here.
            "APT::Sandbox::User \"root\";\n".to_owned(),
        ];
        archive.write("apt.conf", &settings.concat())?;
        command::run(archive.apt("apt-get").args(["--quiet", "update"]))
            .context("Debian's archive is out of reach")?;
        Ok(archive)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn apt(&self, program: &str) -> Command {
        let mut apt = Command::new(program);
        apt.env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C");
        apt
    }

    /// The cloud kernels of a release, the newest first.
    ///
    /// # Errors
    ///
    /// When apt can't be asked.
    pub fn kernels(&self, release: Release) -> anyhow::Result<Vec<String>> {
        let pattern = format!(
            r"^linux-image-{}\.[0-9].*-cloud-{}(-unsigned)?$",
            release.to_string().replace('.', r"\."),
            self.architecture.name()
        );
        let mut search = self.apt("apt-cache");
        let text = command::output(search.args(["search", "--names-only", &pattern]))
            .context("apt-cache can't be asked")?;
        let names = text.lines().filter_map(|line| line.split_whitespace().next());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort_by_key(|name| std::cmp::Reverse(numbers(name)));
        names.dedup();
        Ok(names)
    }

    /// The packages that a kernel of this name is divided into beside the one of that name; none before
    /// 6.19.
    ///
    /// # Errors
    ///
    /// When apt can't be asked.
    pub fn parts(&self, kernel: &str) -> anyhow::Result<Vec<String>> {
        let Some(version) = kernel.strip_prefix("linux-image-") else { return Ok(Vec::new()) };
        let parts = ["binary", "modules"].map(|part| format!("linux-{part}-{version}"));
        let mut there = Vec::new();
        for part in parts {
            let mut names = self.apt("apt-cache");
            let names = command::output(names.args(["pkgnames", &part]))
                .context("apt-cache can't be asked")?;
            there.extend(names.lines().any(|name| name == part).then_some(part));
        }
        Ok(there)
    }

    /// Downloads a package, and says where it is. apt checks it against the archive's signature.
    ///
    /// # Errors
    ///
    /// When the archive does not have it: lists may name what is gone.
    pub fn download(&self, package: &str) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join("packages");
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let mut apt = self.apt("apt-get");
        command::run(apt.current_dir(&folder).args(["--quiet", "download", package]))?;
        let prefix = format!("{package}_");
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(&prefix) && name.ends_with(".deb") {
                return Ok(path);
            }
        }
        bail!("apt downloaded no {package}")
    }
}

/// The numbers in a name up to the architecture's: newer kernels have greater ones.
fn numbers(name: &str) -> Vec<u64> {
    let version = name.split_once("-cloud-").map_or(name, |(version, _)| version);
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn newer_kernels_come_after_older_ones() {
        let image = |version: &str| numbers(&format!("linux-image-{version}-cloud-amd64-unsigned"));
        assert!(image("6.1.0-9") < image("6.1.0-56"));
        assert!(image("6.12.115+deb13") < image("6.12.115+deb13.1"));
        assert!(image("6.12.115+deb13.1") < image("6.12.117+deb12"));
        // A backport to an older Debian.
        assert!(image("6.1.0-0.deb11.52") < image("6.1.0-9"));
    }
}
