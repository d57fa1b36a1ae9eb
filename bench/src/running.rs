//! A program that runs beside others, from the moment it is ready until it is told to stop.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, ensure};

use xtask::signal;

/// How a program is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The program stops when its standard input ends.
    EndOfInput,
    /// The program stops on the signal that Ctrl-C sends.
    Interrupt,
}

/// A program that runs. It is killed when this is dropped.
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    stop: Stop,
}

impl Running {
    /// Starts the program and waits until it says `ready`. It is given that word as input: a
    /// recorder that runs `cat` for as long as it records says it too, and no sooner than it records.
    ///
    /// # Errors
    ///
    /// When it can't be started, or ends before.
    pub fn start(command: &mut Command, stop: Stop) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {name}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.context("its output is not piped")?);
        // From here on it is killed on every way out.
        let mut running = Self { child, input, output, stop };
        if let Some(input) = &mut running.input {
            // One that has ended already is noticed below.
            drop(input.write_all(b"ready\n"));
        }
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            ensure!(running.output.read_line(&mut line)? > 0, "{name} ended before it was ready");
        }
        Ok(running)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop; it may take its time to.
    ///
    /// # Errors
    ///
    /// When it has ended already.
    pub fn ask_to_stop(&mut self) -> anyhow::Result<()> {
        if self.stop == Stop::Interrupt {
            signal::send_interrupt(&self.child)?;
        }
        drop(self.input.take());
        Ok(())
    }

    /// Whether it still runs.
    ///
    /// # Errors
    ///
    /// When the kernel does not tell.
    pub fn still_runs(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Stops it, waits for its end, and gives back what else it said.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn stop(mut self) -> anyhow::Result<String> {
        self.ask_to_stop()?;
        self.end()
    }

    /// Waits for its end, once it has been asked to stop.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn end(mut self) -> anyhow::Result<String> {
        let mut said = String::new();
        self.output.read_to_string(&mut said).context("cannot read its output")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "a program failed: {status}; it said {said:?}");
        Ok(said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
