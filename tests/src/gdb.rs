//! What gdb says of a process: the frames of its threads, by an unwinder that is not ours.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::paths;

const SCRIPT: &str = include_str!("gdb.py");

/// A frame as gdb has it.
#[derive(Clone, Debug, Deserialize)]
pub struct Frame {
    /// The instruction that was at hand, or the one behind a call.
    pub address: u64,
    /// The function's name, if it has one.
    pub function: Option<String>,
}

/// A thread's frames, leaf first.
#[derive(Clone, Debug)]
pub struct Backtrace {
    /// All that it found. Functions that are inlined have none of their own.
    pub frames: Vec<Frame>,
    /// Why it went no further, unless that is where the thread began.
    pub gave_up: Option<String>,
}

/// The frames of every thread of a process, by thread id. The process is stopped for a moment.
///
/// # Errors
///
/// When there is no gdb, or it can't look.
pub fn backtraces(pid: u32) -> Result<BTreeMap<u32, Backtrace>> {
    let directory = paths::scratch_directory()?;
    let (script, answer) =
        (directory.path().join("backtraces.py"), directory.path().join("backtraces.json"));
    fs::write(&script, SCRIPT)?;
    let said = Command::new("gdb")
        // Nothing of the user's, nothing that the process's own files ask for, and no network.
        .args(["-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"])
        .args(["-p", &pid.to_string(), "-x"])
        .arg(&script)
        .env("OFFWAKE_BACKTRACES", &answer)
        .output()
        .context("cannot run gdb")?;
    let text =
        fs::read_to_string(&answer).with_context(|| format!("gdb did not look: {said:?}"))?;
    let threads: BTreeMap<u32, Vec<Frame>> = serde_json::from_str(&text)?;
    ensure!(!threads.is_empty(), "gdb saw no thread: {said:?}");
    threads.into_iter().map(|(tid, frames)| Ok((tid, Backtrace::new(frames)?))).collect()
}

impl Backtrace {
    /// The script puts the reason where the next frame would be.
    fn new(mut frames: Vec<Frame>) -> Result<Self> {
        let last = frames.pop_if(|frame| frame.address == 0);
        if frames.is_empty() {
            bail!("gdb found no frame: {last:?}");
        }
        Ok(Self { frames, gave_up: last.and_then(|frame| frame.function) })
    }
}
