//! A terminal of the test's own: a tmux server that nobody else talks to.

use std::{
    ffi::OsString,
    path::Path,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result, ensure};

use crate::{
    machine_lock::MachineLock,
    wait_until::{deadline, wait_at_most},
};

/// The number of the next server, so that tests of one process do not share one.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A terminal in which a shell runs. It is ended when this is dropped, with what runs in it.
pub struct Tmux {
    socket: String,
    _machine_lock: MachineLock,
}

impl Tmux {
    /// Starts one of this size, with a shell in `directory`, once the machine lock is acquired.
    ///
    /// # Errors
    ///
    /// When there is no tmux, or it can't be started.
    pub fn start(columns: u16, rows: u16, directory: &Path) -> Result<Self> {
        let machine_lock = MachineLock::acquire()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = format!("offwake-tests-{}-{number}", std::process::id());
        let tmux = Self { socket, _machine_lock: machine_lock };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        // Nobody's settings, and a shell without a history or colours of its own.
        let mut server = tmux.command();
        server.args(["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, "-c"]);
        server.arg(directory).args(["env", "-u", "NO_COLOR", "PS1=shell> ", "sh"]);
        run(&mut server)?;
        tmux.wait_for("shell>")?;
        Ok(tmux)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        // UTF-8, whatever the test's own environment says.
        command.args(["-u", "-L", &self.socket]).env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        command
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let output = run(self.command().args(arguments))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Types a line, and Enter.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn type_line(&self, line: &str) -> Result<()> {
        self.ask(&["send-keys", "-l", line])?;
        self.press("Enter")
    }

    /// Presses a key, by tmux's name of it.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn press(&self, key: &str) -> Result<()> {
        self.ask(&["send-keys", key]).map(drop)
    }

    /// Gives the terminal another size.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.ask(&["resize-window", "-x", &columns, "-y", &rows]).map(drop)
    }

    /// What is on screen.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn screen(&self) -> Result<String> {
        self.ask(&["capture-pane", "-p"])
    }

    /// What is on screen, each line as long as it was written.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn unwrapped_screen(&self) -> Result<String> {
        let screen = self.ask(&["capture-pane", "-J", "-p"])?;
        Ok(screen.lines().map(|line| format!("{}\n", line.trim_end())).collect())
    }

    /// The screen with its colours, as escape sequences.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn painted_screen(&self) -> Result<String> {
        self.ask(&["capture-pane", "-e", "-p"])
    }

    /// Whether a program has the alternate screen, or the cursor is hidden.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn is_alternate_screen(&self) -> Result<bool> {
        let state = self.ask(&["display-message", "-p", "#{alternate_on}#{?cursor_flag,0,1}"])?;
        Ok(state.contains('1'))
    }

    /// The shell's process.
    ///
    /// # Errors
    ///
    /// When the terminal is gone.
    pub fn shell(&self) -> Result<u32> {
        let pid = self.ask(&["display-message", "-p", "#{pane_pid}"])?;
        pid.trim().parse().with_context(|| format!("no process id: {pid:?}"))
    }

    /// Closes the terminal, as a connection that breaks does.
    ///
    /// # Errors
    ///
    /// When it is gone already.
    pub fn close(&self) -> Result<()> {
        self.ask(&["kill-server"]).map(drop)
    }

    /// Waits until this is on screen, and gives the screen.
    ///
    /// # Errors
    ///
    /// When it is not by the deadline, with what was there instead.
    pub fn wait_for(&self, text: &str) -> Result<String> {
        self.wait_until(text, |screen| screen.contains(text))
    }

    /// Waits until the screen is as it should be, and gives it.
    ///
    /// # Errors
    ///
    /// When it is not by the deadline, with what was there instead.
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> Result<String> {
        let mut last = String::new();
        wait_at_most(2 * deadline(), what, || {
            last = self.screen()?;
            Ok(is_so(&last).then(|| last.clone()))
        })
        .with_context(|| format!("on screen:\n{last}"))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // An error means that it has ended already. Its programs get SIGHUP.
        drop(self.command().arg("kill-server").output());
    }
}

fn run(command: &mut Command) -> Result<Output> {
    let output = command.output().context("cannot run tmux: install it")?;
    let words: Vec<OsString> = command.get_args().map(OsString::from).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tmux {words:?}: {said}");
    Ok(output)
}
