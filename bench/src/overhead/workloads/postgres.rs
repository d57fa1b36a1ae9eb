//! PostgreSQL on a Unix socket in a directory of its own, and pgbench's usual transactions.

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use tempfile::TempDir;

use super::{Workload, number_after, wait_until_it_answers};
use xtask::{command, signal};

/// Debian keeps each version's programs in a folder of its own.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The user that the server runs as: it refuses to run as root.
const USER: &str = "postgres";

const CLIENTS: &str = "4";

/// Branches of the bank: with fewer than clients they would wait for each other's row locks alone.
const SCALE: &str = "8";

/// A server that does not wait for the disk. It ends when this is dropped.
pub struct Postgres {
    server: Child,
    programs: Programs,
    seconds: u32,
    directory: TempDir,
}

/// The programs of one version, and who runs them.
struct Programs {
    folder: PathBuf,
    uid: u32,
    gid: u32,
}

impl Programs {
    fn find() -> anyhow::Result<Self> {
        let newest = fs::read_dir(VERSIONS)
            .with_context(|| format!("cannot read {VERSIONS}"))?
            .flatten()
            .map(|entry| entry.path().join("bin"))
            .filter(|folder| folder.join("initdb").exists() && folder.join("pgbench").exists())
            .max()
            .with_context(|| format!("there is no PostgreSQL in {VERSIONS}"))?;
        let id = |which| {
            command::output(Command::new("id").args([which, USER]))
                .and_then(|id| id.parse().ok())
                .with_context(|| format!("there is no user {USER}"))
        };
        Ok(Self { folder: newest, uid: id("-u")?, gid: id("-g")? })
    }

    fn command(&self, program: &str, directory: &Path) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.uid(self.uid).gid(self.gid).current_dir(directory).stdin(Stdio::null());
        command
    }
}

impl Postgres {
    /// Makes a database and starts its server, which writes to `log`. Each run takes `seconds`.
    ///
    /// # Errors
    ///
    /// When that can't be done.
    pub fn start(log: &Path, seconds: u32) -> anyhow::Result<Self> {
        let programs = Programs::find()?;
        // Not in the directory of the run, which is root's alone.
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let path = directory.path();
        chown(path, Some(programs.uid), Some(programs.gid))
            .with_context(|| format!("cannot give {} away", path.display()))?;
        let data = path.join("data");
        let mut initdb = programs.command("initdb", path);
        initdb.args(["--no-sync", "--auth=trust", "-D"]).arg(&data).stdout(Stdio::null());
        command::run_quietly(initdb.stderr(Stdio::null()))?;
        let log = fs::File::create(log)?;
        let mut server = programs.command("postgres", path);
        server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"]).arg(path).arg("-D");
        let server = server.arg(&data).stdout(log.try_clone()?).stderr(log);
        let server = server.spawn().context("cannot run postgres")?;
        // From here on it is ended on every way out.
        let postgres = Self { server, programs, seconds, directory };
        wait_until_it_answers("postgres", Duration::from_secs(20), || postgres.answers())?;
        let mut fill = postgres.pgbench();
        fill.args(["--initialize", "--quiet", "--scale", SCALE]).stdout(Stdio::null());
        command::run_quietly(fill.arg(USER).stderr(Stdio::null()))?;
        Ok(postgres)
    }

    /// The server's first process.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// What asks it once.
    pub fn benchmark(&self) -> Command {
        self.benchmark_with(CLIENTS)
    }

    /// What asks it once, with so many clients.
    pub fn benchmark_with(&self, clients: &str) -> Command {
        let mut pgbench = self.pgbench();
        pgbench.args(["--no-vacuum", "--client", clients, "--time", &self.seconds.to_string()]);
        pgbench.arg(USER);
        pgbench
    }

    fn answers(&self) -> bool {
        let mut question = self.programs.command("pg_isready", self.directory.path());
        command::output(question.arg("-h").arg(self.directory.path())).is_some()
    }

    fn pgbench(&self) -> Command {
        let mut pgbench = self.programs.command("pgbench", self.directory.path());
        pgbench.arg("-h").arg(self.directory.path());
        pgbench
    }
}

impl Workload for Postgres {
    fn run(&mut self) -> anyhow::Result<f64> {
        let said = command::output(&mut self.benchmark()).context("pgbench failed")?;
        Ok(1.0 / number_after(&said, "tps = ")?)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its fast shutdown: it ends its own processes and frees its shared memory.
        if signal::send_interrupt(&self.server).is_err() {
            drop(self.server.kill());
        }
        drop(self.server.wait());
    }
}
