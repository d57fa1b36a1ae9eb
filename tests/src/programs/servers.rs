//! Servers as Debian builds them, which nobody asks anything.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::chown, net::UnixStream, process::CommandExt},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::Program;
use crate::{paths, wait_until::wait_until};

/// The socket of [`redis`] and [`nginx`], in their directories.
const SOCKET: &str = "socket";

/// redis-server on a socket of its own.
///
/// # Errors
///
/// When it can't be started, or does not answer.
pub fn redis() -> Result<Program> {
    let directory = paths::scratch_directory()?;
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"]);
    command.arg(directory.path()).arg("--unixsocket").arg(directory.path().join(SOCKET));
    command.args(["--logfile", "log"]);
    let redis = Program::start(&mut command, directory)?;
    answers(&redis, b"PING\r\n", b"+PONG")?;
    Ok(redis)
}

/// nginx, its one worker an ordinary user's.
///
/// # Errors
///
/// When it can't be started, or does not answer.
pub fn nginx() -> Result<Program> {
    let directory = paths::scratch_directory()?;
    let path = directory.path();
    let configuration = format!(
        "daemon off; worker_processes 1; pid {0}/pid; error_log {0}/log; events {{}}\n\
         http {{ access_log off; server {{ listen unix:{0}/{SOCKET}; return 204; }} }}\n",
        path.display()
    );
    fs::write(path.join("nginx.conf"), configuration)?;
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-p").arg(path).arg("-c").arg(path.join("nginx.conf"));
    command.arg("-e").arg(path.join("log"));
    let nginx = Program::start(&mut command, directory)?;
    answers(&nginx, b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.1 204")?;
    Ok(nginx)
}

fn answers(server: &Program, question: &[u8], answer: &[u8]) -> Result<()> {
    let socket = server.directory().join(SOCKET);
    let mut stream = wait_until("a server to listen", || Ok(UnixStream::connect(&socket).ok()))?;
    stream.write_all(question)?;
    let mut said = vec![0; answer.len()];
    stream.read_exact(&mut said)?;
    ensure!(said == answer, "it answers {:?}", String::from_utf8_lossy(&said));
    Ok(())
}

/// PostgreSQL with a database of its own, run as the user that Debian makes for it.
///
/// # Errors
///
/// When it can't be started, or does not answer.
pub fn postgres() -> Result<Program> {
    /// Debian keeps each version's programs in a folder of its own.
    const VERSIONS: &str = "/usr/lib/postgresql";
    let programs: PathBuf = fs::read_dir(VERSIONS)
        .with_context(|| format!("cannot read {VERSIONS}"))?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|folder| folder.join("initdb").exists())
        .max()
        .with_context(|| format!("no PostgreSQL in {VERSIONS}"))?;
    let id = |which| -> Result<u32> {
        let said = Command::new("id").args([which, "postgres"]).output()?.stdout;
        String::from_utf8_lossy(&said).trim().parse().context("there is no user postgres")
    };
    let (uid, gid) = (id("-u")?, id("-g")?);
    // The workspace may lie where that user can't look.
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let path = directory.path();
    chown(path, Some(uid), Some(gid))?;
    let command = |program: &str| {
        let mut command = Command::new(programs.join(program));
        command.uid(uid).gid(gid).current_dir(path);
        command
    };
    let data = path.join("data");
    let mut initdb = command("initdb");
    initdb.args(["--no-sync", "--auth=trust", "-D"]).arg(&data);
    let made = initdb.output().context("cannot run initdb")?;
    ensure!(made.status.success(), "{made:?}");
    let mut server = command("postgres");
    server.args(["-c", "listen_addresses=", "-c", "autovacuum_naptime=1d", "-k"]);
    server.arg(path).arg("-D").arg(&data).stderr(fs::File::create(path.join("log"))?);
    let postgres = Program::start(&mut server, directory)?;
    wait_until("postgres to be ready", || {
        // Its eighth line: https://github.com/postgres/postgres/blob/REL_15_0/src/include/utils/pidfile.h
        let state = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        Ok(state.lines().nth(7).filter(|line| line.trim() == "ready").map(drop))
    })?;
    Ok(postgres)
}

/// MariaDB with databases of its own, which knows no other user than its own and takes connections at
/// `socket` in its directory.
///
/// # Errors
///
/// When it can't be started, or does not answer.
pub fn mariadb() -> Result<Program> {
    let directory = paths::scratch_directory()?;
    let path = directory.path();
    let data = path.join("data");
    let data_option = format!("--datadir={}", data.display());
    let mut install = Command::new("mariadb-install-db");
    install.args(["--no-defaults", "--user=root", "--skip-test-db", &data_option]);
    let made = install.arg("--auth-root-authentication-method=normal").output();
    let made = made.context("cannot run mariadb-install-db")?;
    ensure!(made.status.success(), "{made:?}");
    let mut server = Command::new("/usr/sbin/mariadbd");
    server.args(["--no-defaults", "--user=root", "--skip-networking", &data_option]);
    server.arg(format!("--socket={}", path.join(SOCKET).display()));
    server.arg(format!("--pid-file={}", path.join("pid").display()));
    server.arg("--log-error=log");
    let mariadb = Program::start(&mut server, directory)?;
    let socket = mariadb.directory().join(SOCKET);
    // It greets whoever connects.
    wait_until("MariaDB to greet", || {
        let Ok(mut stream) = UnixStream::connect(&socket) else { return Ok(None) };
        Ok(stream.read_exact(&mut [0; 5]).ok())
    })?;
    Ok(mariadb)
}
