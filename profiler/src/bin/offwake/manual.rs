//! `offwake completions` and `offwake man`: the command line as shells and `man` describe it.

use std::{fs, io, path::Path};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::{
    cli::{Cli, CompletionsCommand, ManCommand},
    console::Terminal,
    outcome::Outcome,
    output::ignore_broken_pipe,
};

/// Prints the completions for a shell.
pub fn completions(arguments: &CompletionsCommand) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "offwake", &mut script);
    print(&script)?;
    Ok(Outcome::Done)
}

/// Prints the first manual page, or writes one for each command into a directory.
pub fn pages(arguments: &ManCommand) -> anyhow::Result<Outcome> {
    let Some(directory) = &arguments.output else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command_with_usages()).render(&mut page)?;
        print(&page)?;
        return Ok(Outcome::Done);
    };
    write_pages(directory).with_context(|| format!("cannot write to {}", directory.display()))?;
    Terminal::messages().line(&format!("wrote the manual to {}", directory.display()))?;
    Ok(Outcome::Done)
}

fn write_pages(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command_with_usages(), directory)
}

/// Returns the command line with the usage of `--help` as each page's synopsis. A list of all
/// options would fill the first screen.
fn command_with_usages() -> clap::Command {
    // Only then do commands know their whole names, as in `offwake report`.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    fix_usages(command)
}

fn fix_usages(mut command: clap::Command) -> clap::Command {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    command.override_usage(usage).mut_subcommands(fix_usages)
}

fn print(text: &[u8]) -> anyhow::Result<()> {
    ignore_broken_pipe(io::Write::write_all(&mut io::stdout(), text))
        .context("cannot write to standard output")
}
