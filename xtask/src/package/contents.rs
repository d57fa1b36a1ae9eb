//! The files of the packages, below a folder that stands for `/`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use xtask::{command, workspace};

use super::{
    folder,
    notices::{self, Notices},
};

/// The files with the programs' debug information, beside the packages.
pub const DEBUG_FILE: &str = "offwake.debug";
pub const STATIC_DEBUG_FILE: &str = "offwake-static.debug";

/// The unit that SECURITY.md shows. No package enables or starts it.
const UNIT: &str = include_str!("../../../profiler/packaging/offwake.service");

const DOCUMENTS: [&str; 6] = [
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE-APACHE",
    "LICENSE-GPL-2.0",
    "LICENSE-MIT",
];

/// The completions of each shell, where Debian's shells look for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/offwake"),
    ("zsh", "usr/share/zsh/vendor-completions/_offwake"),
    ("fish", "usr/share/fish/vendor_completions.d/offwake.fish"),
];

/// Writes all files of a program that was built, and its debug information beside them, in a file of this
/// name.
///
/// # Errors
///
/// When a file can't be made.
pub fn write_files(
    root: &Path,
    built: &Path,
    debug: &str,
    notices: &Notices,
) -> anyhow::Result<()> {
    let program = root.join("usr/bin/offwake");
    make_parent(&program)?;
    split_program(built, &program, &folder().join(debug))?;
    for (shell, path) in COMPLETIONS {
        let script = capture_output(Command::new(&program).args(["completions", shell]))?;
        write_file(&root.join(path), &script)?;
    }
    write_manual(&program, &root.join("usr/share/man/man1"))?;
    write_file(&root.join("usr/lib/systemd/system/offwake.service"), UNIT.as_bytes())?;
    for name in DOCUMENTS {
        let content = fs::read(workspace::root().join(name))
            .with_context(|| format!("cannot read {name}"))?;
        write_file(&root.join("usr/share/doc/offwake").join(name), &content)?;
    }
    let path = root.join("usr/share/doc/offwake").join(notices::NAME);
    write_file(&path, notices.text().as_bytes())
}

/// Splits a program. The names of its functions stay in it: a backtrace and a
/// profile of offwake itself need them, and they take 5 MB. Line numbers go to the debug file.
fn split_program(built: &Path, program: &Path, debug: &Path) -> anyhow::Result<()> {
    let mut separate = Command::new("objcopy");
    separate.args(["--only-keep-debug", "--compress-debug-sections=zlib"]);
    command::run(separate.arg(built).arg(debug))?;
    let mut strip = Command::new("objcopy");
    // Debuggers find the debug file by this link, beside the program or below /usr/lib/debug.
    strip.arg("--strip-debug").arg(format!("--add-gnu-debuglink={}", debug.display()));
    command::run(strip.arg(built).arg(program))
}

fn write_manual(program: &Path, folder: &Path) -> anyhow::Result<()> {
    capture_output(Command::new(program).args(["--quiet", "man", "-o"]).arg(folder))?;
    for page in fs::read_dir(folder)? {
        let path = page?.path();
        // Without the name and date of the file: the same page gives the same archive.
        command::run_quietly(Command::new("gzip").args(["-9", "-n"]).arg(path))?;
    }
    Ok(())
}

fn capture_output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output =
        command.stderr(Stdio::inherit()).output().context("cannot run the packaged offwake")?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(output.stdout)
}

fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    make_parent(path)?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn make_parent(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().context("a file without a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packaged_unit_is_that_of_the_document() {
        let document = fs::read_to_string(workspace::root().join("SECURITY.md")).unwrap();
        let lines: Vec<String> = UNIT
            .lines()
            .map(|line| if line.is_empty() { String::new() } else { format!("    {line}") })
            .collect();
        assert!(document.contains(&lines.join("\n")), "{UNIT}");
    }
}
