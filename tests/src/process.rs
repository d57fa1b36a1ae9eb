//! Processes of ordinary programs, which play no role and hold no machine lock.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

use crate::wait_until::wait_until;

/// A process that is ended when this is dropped.
pub struct Process(pub Child);

impl Process {
    /// Starts a program that nobody hears. What reads its standard input waits until somebody writes.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn start(program: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Self(command.spawn().with_context(|| format!("cannot start {program}"))?))
    }

    /// The process's id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Writes to its standard input.
    ///
    /// # Errors
    ///
    /// When it has none, or does not read any more.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.stdin.as_mut().context("it has no input")?.write_all(bytes)?;
        Ok(())
    }

    /// Kills it, and does not wait for it: its end wakes nobody.
    ///
    /// # Errors
    ///
    /// When it can't be killed.
    pub fn kill(&mut self) -> Result<()> {
        Ok(self.0.kill()?)
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// When it can't be killed.
    pub fn end(&mut self) -> Result<()> {
        self.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.end());
    }
}

/// The processes that descend from one, as `/proc` tells at this moment, each with its name.
///
/// # Errors
///
/// When `/proc` can't be listed.
pub fn descendants(of_whom: u32) -> Result<BTreeMap<u32, String>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // A process that has ended meanwhile is nobody's descendant.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // A name may have parentheses in it.
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        let name = name.split_once('(').map_or("", |(_, name)| name).to_owned();
        let parent = rest.split(' ').nth(1).and_then(|parent| parent.parse::<u32>().ok());
        processes.extend(parent.map(|parent| (pid, parent, name)));
    }
    let mut found = BTreeMap::new();
    loop {
        let known = found.len();
        for (pid, parent, name) in &processes {
            if *parent == of_whom || found.contains_key(parent) {
                found.insert(*pid, name.clone());
            }
        }
        if found.len() == known {
            return Ok(found);
        }
    }
}

/// Waits until a process is in this state, by the letter that ps has for it.
///
/// # Errors
///
/// When it is gone, or is not by the deadline.
pub fn wait_for_state(pid: u32, wanted: char) -> Result<()> {
    wait_until(&format!("process {pid} to be in state {wanted}"), || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Ok(stat.contains(&format!(") {wanted} ")).then_some(()))
    })
}
