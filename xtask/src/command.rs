//! Running other programs: said on standard error before they run, with an environment of theirs.

use std::{
    env,
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::process_tree::end_process_tree;

/// Says the command, runs it, and wants it to succeed.
///
/// # Errors
///
/// When it can't be started or fails.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    print(command);
    run_quietly(command)
}

/// How often it is looked at whether a command has ended.
const INTERVAL: Duration = Duration::from_millis(100);

/// Says the command, runs it, and returns how it ended and what it printed on standard output, which
/// is shown as it comes. When it takes longer than `limit`, it is ended with everything that it has
/// started: what it printed says how far it got, where a run that never ended would say nothing.
///
/// # Errors
///
/// When it can't be started or takes too long.
pub fn run_within(limit: Duration, command: &mut Command) -> anyhow::Result<(ExitStatus, String)> {
    print(command);
    let name = short_name(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run `{name}`"))?;
    let output = child.stdout.take().context("no standard output")?;
    let (sender, lines) = mpsc::channel();
    // It ends with the last process that has the pipe open, which may outlive the child.
    thread::spawn(move || copy_lines(output, &sender));
    let start = Instant::now();
    let mut printed = String::new();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            end_process_tree(&mut child);
            bail!("`{name}` was ended: it took more than {} s", limit.as_secs());
        }
        match lines.recv_timeout(INTERVAL) {
            Ok(line) => printed.push_str(&line),
            Err(RecvTimeoutError::Timeout) => (),
            Err(RecvTimeoutError::Disconnected) => thread::sleep(INTERVAL),
        }
    };
    // What the child printed last is in the pipe.
    while let Ok(line) = lines.recv_timeout(Duration::from_secs(1)) {
        printed.push_str(&line);
    }
    Ok((status, printed))
}

/// Copies lines to standard output as they come, and sends each. Bytes that are no UTF-8 are replaced.
fn copy_lines(from: impl Read, to: &mpsc::Sender<String>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        let text = String::from_utf8_lossy(&line).into_owned();
        print!("{text}");
        if to.send(text).is_err() {
            break;
        }
        line.clear();
    }
}

/// Runs the command, its output shown, and wants it to succeed.
///
/// # Errors
///
/// When it can't be started or fails.
pub fn run_quietly(command: &mut Command) -> anyhow::Result<()> {
    let name = short_name(command);
    let status = command.status().with_context(|| format!("cannot run `{name}`"))?;
    ensure_success(&name, status)
}

fn ensure_success(name: &str, status: ExitStatus) -> anyhow::Result<()> {
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}

/// What a question put to another program answers on standard output; `None` if it can't.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Shows a command so that it could be pasted into a shell.
pub fn print(command: &Command) {
    let set = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={}", name.to_string_lossy(), shell_quote(value)))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(shell_quote);
    eprintln!("+ {}", set.chain(words).collect::<Vec<_>>().join(" "));
}

/// The program, found as a shell would.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The cargo that runs xtask, for the user half.
///
/// What `cargo run` sets for xtask alone is taken away again; what the user set, a toolchain and
/// flags included, stays.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let of_xtask = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        if of_xtask.iter().any(|prefix| text.starts_with(prefix)) || text == "LD_LIBRARY_PATH" {
            command.env_remove(&name);
        }
    }
    command.current_dir(crate::workspace::root());
    command
}

/// A cargo of a toolchain of its own, which sees nothing of the toolchain that runs xtask: where
/// the registry is and how it is reached is all that stays of the settings of rustc and cargo.
pub fn foreign_cargo(cargo: &Path, rustc: &Path) -> Command {
    let mut command = Command::new(cargo);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let ours = text.starts_with("CARGO") || text.starts_with("RUST");
        let stays = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        if (ours && !stays) || text == "LD_LIBRARY_PATH" {
            command.env_remove(&name);
        }
    }
    command.env("RUSTC", rustc).env("RUSTC_WRAPPER", "");
    command.current_dir(crate::workspace::root());
    command
}

/// The program and its first word, which says what it was to do.
fn short_name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program()).to_string_lossy();
    let words = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once(program).chain(words.take(1)).collect::<Vec<_>>().join(" ")
}

fn shell_quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else if word.chars().any(char::is_control) {
        let escaped: String = word
            .chars()
            .map(|c| match c {
                '\'' | '\\' => format!("\\{c}"),
                c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
                c => c.to_string(),
            })
            .collect();
        format!("$'{escaped}'")
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_is_ended() {
        let limit = Duration::from_millis(10);
        let error = run_within(limit, Command::new("sleep").arg("1000")).unwrap_err();
        assert!(error.to_string().contains("was ended"), "{error}");
        let hour = Duration::from_secs(3600);
        let (status, printed) = run_within(hour, Command::new("echo").arg("yes")).unwrap();
        assert!(status.success());
        assert_eq!(printed, "yes\n");
        let (status, _) = run_within(hour, &mut Command::new("false")).unwrap();
        assert!(!status.success());
    }

    #[test]
    fn a_said_command_can_be_pasted() {
        let shown = |word: &str| shell_quote(OsStr::new(word));
        assert_eq!(shown("--version=1.2"), "--version=1.2");
        assert_eq!(shown(""), "''");
        assert_eq!(shown("it's here"), r"'it'\''s here'");
        assert_eq!(shown("a\u{1f}'b"), r"$'a\x1f\'b'");
    }
}
