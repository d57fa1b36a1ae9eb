//! What the command line says about the names of functions.

use std::path::PathBuf;

use clap::Args;
use offwake::symbols::{DebugPlaces, Detail, NameSources};

/// How functions are named as they are recorded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names")]
pub struct NameArguments {
    /// Read the source file and line of each frame too, from debug information: name (file.c:123)
    #[arg(long, conflicts_with = "no_inline")]
    pub lines: bool,

    /// Read symbol tables alone: a tenth of the time, but inlined functions are not told apart
    #[arg(long)]
    pub no_inline: bool,

    /// A directory with debug files, beside /usr/lib/debug
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,
}

/// The same, for what was recorded already.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names")]
pub struct NameAgainArguments {
    /// Say the source file and line of each frame too, where they were recorded or, with
    /// --resymbolize, where there is debug information: name (file.c:123)
    #[arg(long, conflicts_with = "no_inline")]
    pub lines: bool,

    /// Look names up again, by the build ids in the recording: for a recording that was cut off, or
    /// when debug files have come since
    #[arg(long)]
    pub resymbolize: bool,

    /// Read symbol tables alone: a tenth of the time, but inlined functions are not told apart
    #[arg(long, requires = "resymbolize")]
    pub no_inline: bool,

    /// A directory with debug files, beside /usr/lib/debug
    #[arg(long, value_name = "DIR", requires = "resymbolize")]
    pub debug_dir: Vec<PathBuf>,
}

impl NameArguments {
    /// Where names come from.
    pub fn sources(&self) -> NameSources {
        let Self { lines, no_inline, debug_dir } = self;
        sources(detail(*lines, *no_inline), debug_dir)
    }
}

impl NameAgainArguments {
    /// Where names come from.
    pub fn sources(&self) -> NameSources {
        let Self { lines, resymbolize: _, no_inline, debug_dir } = self;
        sources(detail(*lines, *no_inline), debug_dir)
    }
}

fn sources(detail: Detail, directories: &[PathBuf]) -> NameSources {
    NameSources { detail, places: DebugPlaces::new(directories.iter().cloned()) }
}

fn detail(lines: bool, no_inline: bool) -> Detail {
    match (lines, no_inline) {
        (true, _) => Detail::Lines,
        (false, false) => Detail::Inlined,
        (false, true) => Detail::SymbolTable,
    }
}
