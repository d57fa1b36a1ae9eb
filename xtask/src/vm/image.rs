//! The root of a guest: offwake, the tests and what they load, in one archive that the kernel unpacks
//! into memory.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

use super::{archive::Architecture, task::Task};
use xtask::command;

/// Debian packages that it is made of and with.
pub const PACKAGES: [&str; 4] = ["binutils", "busybox-static", "cpio", "xz-utils"];

/// This machine's own shell for guests of its kind.
pub const BUSYBOX: &str = "/bin/busybox";

/// Where the packages for compiling for arm64 have that machine's libraries.
const ARM64_LIBRARIES: &str = "/usr/aarch64-linux-gnu/lib";

/// Empty folders that something is mounted on, or that programs want.
const FOLDERS: [&str; 9] = ["dev", "disk", "etc", "proc", "root", "scratch", "sys", "tests", "tmp"];

/// A root that grows file by file.
pub struct GuestRoot {
    architecture: Architecture,
    folder: PathBuf,
}

impl GuestRoot {
    /// An empty one, but for a shell.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn begin(
        architecture: Architecture,
        busybox: &Path,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        let root = Self { architecture, folder: folder.to_owned() };
        for name in FOLDERS {
            fs::create_dir_all(folder.join(name))
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        root.copy(busybox, "bin/busybox")?;
        root.write("init", include_str!("init.sh"))?;
        fs::set_permissions(folder.join("init"), fs::Permissions::from_mode(0o755))?;
        Ok(root)
    }

    /// Adds a program under that name, with the libraries that it loads where it looks for them.
    ///
    /// # Errors
    ///
    /// When one of them can't be read.
    pub fn add_program(&self, program: &Path, name: &str) -> anyhow::Result<()> {
        let to = self.copy(program, name)?;
        // Nobody reads it there, and all of it has to fit into memory. Names stay.
        let (strip, libraries) = match self.architecture {
            Architecture::Amd64 => ("strip", libraries(program)?),
            Architecture::Arm64 => ("aarch64-linux-gnu-strip", arm64_libraries(program)?),
        };
        command::run(Command::new(strip).arg("--strip-debug").arg(&to))?;
        for (library, name) in libraries {
            if !self.folder.join(&name).exists() {
                self.copy(&library, &name)?;
            }
        }
        Ok(())
    }

    fn copy(&self, from: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let to = self.folder.join(name);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(from, &to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        Ok(to)
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Packs it, with these modules to be loaded and these tasks to be done.
    ///
    /// # Errors
    ///
    /// When it can't be packed.
    pub fn pack(&self, modules: &[PathBuf], tasks: &[Task], image: &Path) -> anyhow::Result<()> {
        let lines: String = tasks.iter().map(Task::line).collect();
        self.write("tasks", &lines)?;
        for (number, module) in modules.iter().enumerate() {
            // Loaded in the order of their names.
            self.copy(module, &format!("modules/{number:02}.ko"))?;
        }
        let mut names = BTreeSet::new();
        collect(&self.folder, Path::new("."), &mut names)?;
        let archive =
            File::create(image).with_context(|| format!("cannot create {}", image.display()))?;
        let mut cpio = Command::new("cpio");
        cpio.args(["--create", "--format=newc", "--quiet", "--null", "--owner=+0:+0"])
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(archive);
        let mut cpio = cpio.spawn().context("cannot run `cpio`")?;
        let mut wanted = cpio.stdin.take().context("its input is not piped")?;
        for name in names {
            wanted.write_all(name.as_os_str().as_encoded_bytes())?;
            wanted.write_all(&[0])?;
        }
        drop(wanted);
        let status = cpio.wait()?;
        ensure!(status.success(), "`cpio` failed ({status})");
        Ok(())
    }
}

/// Everything in a folder, folders before what is in them.
fn collect(root: &Path, folder: &Path, names: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let path = root.join(folder);
    let entries = fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(root, &name, names)?;
        }
        names.insert(name);
    }
    Ok(())
}

/// The libraries that a program loads, its loader included, with the names in the guest at which it finds
/// them.
fn libraries(program: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let text = command::output(Command::new("ldd").env("LC_ALL", "C").arg(program))
        .with_context(|| format!("cannot tell what {} loads", program.display()))?;
    let name = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_string_lossy().into_owned();
    Ok(text.lines().filter_map(path_in).map(|path| (path.clone(), name(&path))).collect())
}

/// The same of a program for arm64. What these load is among them: there is no more than C's and the
/// compiler's own.
fn arm64_libraries(program: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut readelf = Command::new("aarch64-linux-gnu-readelf");
    let text = command::output(readelf.env("LC_ALL", "C").arg("--dynamic").arg(program))
        .with_context(|| format!("cannot tell what {} loads", program.display()))?;
    let needed = text.lines().filter_map(needed_in);
    let names = needed.chain(["ld-linux-aarch64.so.1", "libc.so.6"]);
    Ok(names.map(|name| (Path::new(ARM64_LIBRARIES).join(name), format!("lib/{name}"))).collect())
}

/// The name in a line of `readelf` about a library that is loaded.
fn needed_in(line: &str) -> Option<&str> {
    line.split_once("(NEEDED)")?.1.split_once('[')?.1.strip_suffix(']')
}

/// The path in a line of `ldd`; none for the library that the kernel brings.
fn path_in(line: &str) -> Option<PathBuf> {
    let words = line.split_whitespace().take_while(|word| !word.starts_with('('));
    words.last().filter(|word| word.starts_with('/')).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_what_readelf_says() {
        let line = " 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]";
        assert_eq!(needed_in(line), Some("libgcc_s.so.1"));
        let other = " 0x000000000000000e (SONAME)             Library soname: [libc.so.6]";
        assert_eq!(needed_in(other), None);
    }

    #[test]
    fn libraries_are_found_in_what_ldd_says() {
        let path = |line: &str| path_in(line).map(|path| path.display().to_string());
        let libc = "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1e9f400000)";
        assert_eq!(path(libc).as_deref(), Some("/lib/x86_64-linux-gnu/libc.so.6"));
        let loader = "\t/lib64/ld-linux-x86-64.so.2 (0x00007f1e9f800000)";
        assert_eq!(path(loader).as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007ffd3b5f2000)"), None);
    }
}
