//! redis-server on one CPU, its benchmark on another, over TCP on the loopback.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;

use super::{Workload, number_after, wait_until_it_answers};
use xtask::command;

const SERVER_CPU: &str = "0";
const CLIENT_CPU: &str = "1";

/// A server that keeps nothing, and how it is asked. It ends when this is dropped.
pub struct Redis {
    server: Child,
    port: String,
    clients: u32,
    requests: u32,
}

impl Redis {
    /// Starts the server, which may write into `directory`.
    ///
    /// # Errors
    ///
    /// When it can't be started, or does not answer.
    pub fn start(directory: &Path, clients: u32, requests: u32) -> anyhow::Result<Self> {
        let port = free_port()?.to_string();
        let server = Command::new("taskset")
            .args(["-c", SERVER_CPU, "redis-server", "--bind", "127.0.0.1", "--port", &port])
            .args(["--save", "", "--appendonly", "no"])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot run redis-server")?;
        // From here on it is ended on every way out.
        let redis = Self { server, port, clients, requests };
        wait_until_it_answers("redis-server", Duration::from_secs(10), || redis.answers())?;
        Ok(redis)
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// What asks it once, as long as that takes.
    pub fn benchmark(&self) -> Command {
        let mut benchmark = Command::new("taskset");
        benchmark
            .args(["-c", CLIENT_CPU, "redis-benchmark", "-p", &self.port, "-t", "get", "-q"])
            .args(["-c", &self.clients.to_string(), "-n", &self.requests.to_string()]);
        benchmark
    }

    fn answers(&self) -> bool {
        let mut ping = Command::new("redis-cli");
        command::output(ping.args(["-p", &self.port, "ping"])).is_some_and(|said| said == "PONG")
    }
}

impl Workload for Redis {
    fn run(&mut self) -> anyhow::Result<f64> {
        let said = command::output(&mut self.benchmark()).context("redis-benchmark failed")?;
        Ok(1.0 / number_after(&said, "GET: ")?)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It has nothing to save. An error means that it has ended already.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

/// A port that nobody listens on. Somebody may take it before redis does: then redis ends.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a port")?;
    Ok(listener.local_addr()?.port())
}
