//! What is said on terminals and into pipes, and what shells are told.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn offwake_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offwake"));
    command.args(arguments).env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

fn recording(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    path.to_str().unwrap().to_owned()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn has_escapes(output: &Output) -> bool {
    output.stdout.contains(&0x1b) || output.stderr.contains(&0x1b)
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let demo = recording("demo.offwake");
    assert!(!has_escapes(&run(&mut offwake_command(&["report", &demo]))));
    assert!(has_escapes(&run(&mut offwake_command(&["report", &demo, "--color", "always"]))));
    assert!(!has_escapes(&run(&mut offwake_command(&["report", &demo, "--color", "never"]))));
    assert!(!has_escapes(&run(offwake_command(&["report", &demo]).env("NO_COLOR", "1"))));
}

#[test]
fn quiet_says_nothing_and_writes_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.folded");
    let demo = recording("demo.offwake");
    let output = run(&mut offwake_command(&["-q", "report", &demo, "-o", path.to_str().unwrap()]));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert!(path.metadata().unwrap().len() > 0);
    // What was asked for is no remark, and neither is what fails.
    let output =
        run(&mut offwake_command(&["report", &demo, "--quiet", "-o", "-", "--format", "folded"]));
    assert_eq!(output.stdout, std::fs::read(path).unwrap());
    let output = offwake_command(&["--quiet", "report", "/nonexistent"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(!output.stderr.is_empty());
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let demo = recording("demo.offwake");
    for arguments in [
        vec!["report", &demo],
        vec!["report", &demo, "-o", "-", "--format", "json"],
        vec!["completions", "bash"],
        vec!["man"],
    ] {
        let mut child = offwake_command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{arguments:?}: {status}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn every_command_has_a_page_and_is_completed() {
    let directory = tempfile::tempdir().unwrap();
    run(&mut offwake_command(&["man", "-o", directory.path().to_str().unwrap()]));
    let pages: Vec<PathBuf> =
        directory.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    for command in ["profile", "record", "report", "export", "doctor"] {
        let page = directory.path().join(format!("offwake-{command}.1"));
        assert!(pages.contains(&page), "{command}: {pages:?}");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(command), "{page}");
    }
    // On a terminal of 80 columns, name and synopsis take one line each.
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap().replace("\\fB", "").replace("\\fR", "");
        for section in [".SH NAME\n", ".SH SYNOPSIS\n"] {
            let (_, after) = text.split_once(section).unwrap();
            let (lines, _) = after.split_once(".SH").unwrap();
            let line = lines.trim_end().replace('\\', "");
            assert!(!line.contains('\n') && line.len() <= 71, "{}: {line}", page.display());
        }
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&mut offwake_command(&["completions", shell])).stdout;
        let script = String::from_utf8(script).unwrap();
        assert!(script.contains("profile") && script.contains("max-depth"), "{shell}");
    }
    let bash = run(&mut offwake_command(&["completions", "bash"])).stdout;
    let file = directory.path().join("offwake.bash");
    std::fs::write(&file, bash).unwrap();
    let ask = format!(
        "source {}; COMP_WORDS=(offwake rep); COMP_CWORD=1; _offwake offwake rep offwake; echo ${{COMPREPLY[@]}}",
        file.display()
    );
    let completed = run(Command::new("bash").args(["-c", &ask])).stdout;
    assert_eq!(String::from_utf8(completed).unwrap().trim(), "report");
}
