//! A real container engine of one's own.
//!
//! ```text
//! Engine: dockerd with its own data, socket and pid file in a scratch directory
//!   '- Container: removed when it is dropped; the engine after all of its containers
//! ```

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::{machine_lock::MachineLock, paths, wait_until::wait_until};

/// The image of every container here: a shell and the small tools of busybox, linked statically.
pub const IMAGE: &str = "offwake-busybox:1";

/// Two engines at once would share the cgroups of `/docker`.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// dockerd. It is ended by its own process id when this is dropped, and waited for.
pub struct Engine {
    daemon: Child,
    directory: TempDir,
    _one: MutexGuard<'static, ()>,
    _machine_lock: MachineLock,
}

/// A container; it is removed when this is dropped.
pub struct Container<'e> {
    engine: &'e Engine,
    name: String,
}

impl Engine {
    /// Starts one that can answer, and that has [`IMAGE`].
    ///
    /// # Errors
    ///
    /// When there is no engine: what it is for is not skipped.
    pub fn start() -> Result<Self> {
        let machine_lock = MachineLock::acquire()?;
        let one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = paths::scratch_directory()?;
        let at = |name: &str| directory.path().join(name);
        let log = File::create(at("log"))?;
        let daemon = Command::new("dockerd")
            .args(["--storage-driver", "vfs", "--bridge=none"])
            .args(["--iptables=false", "--ip6tables=false"])
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .arg("-H")
            .arg(format!("unix://{}", at("docker.sock").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("no container engine: `cargo xtask test` installs docker.io")?;
        let mut engine = Self { daemon, directory, _one: one, _machine_lock: machine_lock };
        wait_until("the container engine to answer", || {
            if let Some(status) = engine.daemon.try_wait()? {
                bail!("the container engine ended: {status}: {}", engine.log());
            }
            Ok(engine.docker(&["version"]).ok())
        })
        .with_context(|| format!("its log: {}", engine.log()))?;
        engine.import()?;
        Ok(engine)
    }

    /// The engine's address, for `DOCKER_HOST`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("unix://{}", self.directory.path().join("docker.sock").display())
    }

    /// Runs `docker` to its end, and gives back what it printed.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn docker(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new("docker")
            .args(["-H", &self.host()])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("no docker: `cargo xtask test` installs docker.io")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "docker {arguments:?}: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Runs a shell's script in a container that sees `volume` as `/volume`.
    ///
    /// # Errors
    ///
    /// When it can't be started.
    pub fn run(&self, name: &str, volume: &Path, script: &str) -> Result<Container<'_>> {
        let mount = format!("{}:/volume", volume.display());
        let container = Container { engine: self, name: name.to_owned() };
        self.docker(&[
            "run",
            "--detach",
            "--network=none",
            "--init=false",
            "--name",
            name,
            "--volume",
            &mount,
            IMAGE,
            "/bin/sh",
            "-c",
            script,
        ])?;
        Ok(container)
    }

    /// Makes a container that does not run.
    ///
    /// # Errors
    ///
    /// When it can't be made.
    pub fn create(&self, name: &str) -> Result<Container<'_>> {
        let container = Container { engine: self, name: name.to_owned() };
        self.docker(&["create", "--network=none", "--name", name, IMAGE, "/bin/sleep", "1"])?;
        Ok(container)
    }

    fn import(&self) -> Result<()> {
        let root = self.directory.path().join("root");
        fs::create_dir_all(root.join("bin"))?;
        fs::copy(busybox()?, root.join("bin/busybox"))?;
        for tool in ["sh", "sleep", "mkfifo", "cat"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(tool))?;
        }
        let archive = self.directory.path().join("root.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
        ensure!(tar.status().context("no tar")?.success(), "tar failed");
        self.docker(&["import", &archive.to_string_lossy(), IMAGE]).map(drop)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Ends it, and demands that it leaves nothing mounted.
    ///
    /// # Errors
    ///
    /// When it does not end, or does.
    pub fn end(mut self) -> Result<()> {
        self.stop()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let own = self.directory.path().to_string_lossy().into_owned();
        let left: Vec<_> = mounts.lines().filter(|line| line.contains(&own)).collect();
        ensure!(left.is_empty(), "still mounted: {left:?}");
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        if self.daemon.try_wait()?.is_none() {
            // SAFETY: takes plain integers; the process has not been reaped, so the id is still its.
            unsafe { libc::kill(self.daemon.id().cast_signed(), libc::SIGTERM) };
        }
        wait_until("the container engine's end", || Ok(self.daemon.try_wait()?)).map(drop)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("a container engine is left behind: {error}: {}", self.log());
        }
    }
}

impl Container<'_> {
    /// The process that it was started with, as the host has it.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn pid(&self) -> Result<u32> {
        let pid: u32 = self.inspect("{{.State.Pid}}")?.parse()?;
        ensure!(pid != 0, "{} does not run", self.name);
        Ok(pid)
    }

    /// The container's id, in full.
    ///
    /// # Errors
    ///
    /// When it is not there any more.
    pub fn id(&self) -> Result<String> {
        self.inspect("{{.Id}}")
    }

    fn inspect(&self, format: &str) -> Result<String> {
        self.engine.docker(&["inspect", "--format", format, &self.name])
    }

    /// Runs a script in it to its end.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub fn execute(&self, script: &str) -> Result<String> {
        self.engine.docker(&["exec", &self.name, "/bin/sh", "-c", script])
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.engine.docker(&["rm", "--force", &self.name]) {
            eprintln!("a container is left behind: {error}");
        }
    }
}

fn busybox() -> Result<PathBuf> {
    let path = PathBuf::from("/bin/busybox");
    ensure!(path.is_file(), "no busybox: `cargo xtask test` installs busybox-static");
    Ok(path)
}
