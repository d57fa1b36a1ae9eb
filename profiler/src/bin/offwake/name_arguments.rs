//! Arguments about the names of functions.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;
use clap::Args;
use offwake::symbols::{DebugDirectories, Debuginfod, Detail, Fetched, NameSources};

use crate::{output::on_one_line, terminal_thread::print_error};

/// How functions are named as they are recorded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names")]
pub struct NameArguments {
    /// Also show the source file and line of each frame, from debug information: name (file.c:123)
    #[arg(long, conflicts_with = "no_inline")]
    pub lines: bool,

    /// Read only symbol tables: takes a tenth of the time, but does not show inlined functions
    #[arg(long)]
    pub no_inline: bool,

    /// A directory with debug files, in addition to /usr/lib/debug
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,

    /// Ask the servers in DEBUGINFOD_URLS for missing debug files, and keep what they send. The
    /// servers learn the build ids of the programs that run here
    #[arg(long)]
    pub debuginfod: bool,
}

/// How functions are named that were recorded already.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names")]
pub struct NameAgainArguments {
    /// Also show the source file and line of each frame: name (file.c:123). They must have been
    /// recorded, or, with --resymbolize, debug information must be there
    #[arg(long, conflicts_with = "no_inline")]
    pub lines: bool,

    /// Look names up again, by the build ids in the recording: for a recording that was cut off, or
    /// after you added debug files
    #[arg(long)]
    pub resymbolize: bool,

    /// Read only symbol tables: takes a tenth of the time, but does not show inlined functions
    #[arg(long, requires = "resymbolize")]
    pub no_inline: bool,

    /// A directory with debug files, in addition to /usr/lib/debug
    #[arg(long, value_name = "DIR", requires = "resymbolize")]
    pub debug_dir: Vec<PathBuf>,

    /// Ask the servers in DEBUGINFOD_URLS for missing debug files, and keep what they send. The
    /// servers learn the build ids of the programs that run here
    #[arg(long, requires = "resymbolize")]
    pub debuginfod: bool,
}

impl NameArguments {
    /// Where names come from.
    pub fn sources(&self) -> anyhow::Result<NameSources> {
        let Self { lines, no_inline, debug_dir, debuginfod } = self;
        sources(detail(*lines, *no_inline), debug_dir, *debuginfod)
    }
}

impl NameAgainArguments {
    /// Where names come from.
    pub fn sources(&self) -> anyhow::Result<NameSources> {
        let Self { lines, resymbolize: _, no_inline, debug_dir, debuginfod } = self;
        sources(detail(*lines, *no_inline), debug_dir, *debuginfod)
    }
}

fn sources(
    detail: Detail,
    directories: &[PathBuf],
    debuginfod: bool,
) -> anyhow::Result<NameSources> {
    let servers = debuginfod.then(Debuginfod::from_environment).transpose();
    let servers = servers.context("--debuginfod can't be done")?;
    let debug_directories = DebugDirectories::new(directories.iter().cloned());
    Ok(NameSources { detail, debug_directories, debuginfod: servers.map(Arc::new) })
}

fn detail(lines: bool, no_inline: bool) -> Detail {
    match (lines, no_inline) {
        (true, _) => Detail::Lines,
        (false, false) => Detail::Inlined,
        (false, true) => Detail::SymbolTable,
    }
}

/// Prints on standard error which debug files servers have sent, if any were asked.
pub fn print_fetched(sources: &NameSources) {
    let Some(debuginfod) = &sources.debuginfod else { return };
    let Fetched { files, bytes, unknown, errors } = debuginfod.fetched();
    print_error(&format!(
        "debuginfod sent {files} debug files ({bytes} bytes), and does not have {unknown}"
    ));
    for error in errors {
        print_error(&format!("debuginfod: {}", on_one_line(&error)));
    }
}
