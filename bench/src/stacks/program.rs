//! Programs that have something to do for as long as they are looked at.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use tempfile::TempDir;

use crate::overhead::workloads::{Postgres, Redis};
use xtask::{command, python, workloads, workspace};

/// The programs whose stacks are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgramKind {
    Redis,
    Postgres,
    Nginx,
    Python,
    Node,
    Tokio,
    Go,
    DeepCpp,
    StaticGlibc,
    StaticMusl,
    MapsData,
    MapsLibraries,
    NearCallers,
    FarCallers,
}

impl ProgramKind {
    /// The row of a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Redis => "redis-server, `redis-benchmark -c 1`",
            Self::Postgres => "PostgreSQL, pgbench",
            Self::Nginx => "nginx, one client",
            Self::Python => "python3: queue, lock, sleep",
            Self::Node => "node: http, fs, timers",
            Self::Tokio => "tokio: net, channels, timers",
            Self::Go => "Go: net/http, mutex, syscalls",
            Self::DeepCpp => "C++, 10 to 1,000 calls deep",
            Self::StaticGlibc => "C, static, glibc",
            Self::StaticMusl => "C, static, musl",
            Self::MapsData => "C, maps data before each wait",
            Self::MapsLibraries => "C, maps as loaders do before each wait",
            Self::NearCallers => "made to collide: callers next to the wait",
            Self::FarCallers => "made to collide: callers 24 frames up",
        }
    }

    /// Whether it is in no table but that of what is recognised.
    pub fn is_made_to_collide(self) -> bool {
        matches!(self, Self::NearCallers | Self::FarCallers)
    }
}

/// A program that has something to do. It ends when this is dropped.
pub struct BusyProgram {
    pid: u32,
    // In the order in which they end.
    _asks: Option<NginxClient>,
    _client: Option<ChildGuard>,
    _program: RunningProgram,
    _directory: TempDir,
}

enum RunningProgram {
    Redis(#[expect(dead_code, reason = "held, not read")] Redis),
    Postgres(#[expect(dead_code, reason = "held, not read")] Postgres),
    Other(#[expect(dead_code, reason = "held, not read")] ChildGuard),
}

impl BusyProgram {
    /// Starts the program, and a client for it if it is a server.
    ///
    /// # Errors
    ///
    /// When it can't be built or started.
    pub fn start(kind: ProgramKind) -> anyhow::Result<Self> {
        // What holds no more than the time that it takes to look.
        const REQUESTS: u32 = 100_000_000;
        const SECONDS: u32 = 3600;
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let path = directory.path();
        let (mut asks, mut client) = (None, None);
        let (pid, program) = match kind {
            ProgramKind::Redis => {
                let redis = Redis::start(path, 1, REQUESTS)?;
                client = Some(ChildGuard::start(redis.benchmark().stdout(Stdio::null()))?);
                (redis.pid(), RunningProgram::Redis(redis))
            }
            ProgramKind::Postgres => {
                let postgres = Postgres::start(&path.join("log"), SECONDS)?;
                client = Some(ChildGuard::start(postgres.benchmark().stdout(Stdio::null()))?);
                (postgres.pid(), RunningProgram::Postgres(postgres))
            }
            ProgramKind::Nginx => {
                let nginx = start_nginx(path)?;
                asks = Some(NginxClient::start(&path.join(SOCKET))?);
                (nginx.0.id(), RunningProgram::Other(nginx))
            }
            kind => {
                let (mut child, output) = ChildGuard::piped(&mut command_for(kind, path)?)?;
                // The workloads of the tests say who plays which role instead.
                if !kind.is_made_to_collide() {
                    ensure!(output.trim() == "ready", "{} says {output:?}", kind.title());
                }
                // What it says else is read by nobody.
                let rest = child.0.stdout.take();
                thread::spawn(move || rest.map(|mut rest| rest.read_to_end(&mut Vec::new())));
                (child.0.id(), RunningProgram::Other(child))
            }
        };
        let busy =
            Self { pid, _asks: asks, _client: client, _program: program, _directory: directory };
        busy.wait_for_processes()?;
        Ok(busy)
    }

    /// The process ids of the program and its descendants.
    ///
    /// # Errors
    ///
    /// When `/proc` can't be read.
    pub fn pids(&self) -> anyhow::Result<Vec<u32>> {
        let mut pids = vec![self.pid];
        let mut next = 0;
        while let Some(&pid) = pids.get(next) {
            // Each thread has children of its own.
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                pids.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
            }
            next += 1;
        }
        Ok(pids)
    }

    /// The process ids as options want them, separated by commas.
    pub fn pid_list(&self) -> anyhow::Result<String> {
        Ok(self.pids()?.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
    }

    /// Servers start a process for each client: until no new ones come.
    fn wait_for_processes(&self) -> anyhow::Result<()> {
        let mut before = 0;
        loop {
            thread::sleep(Duration::from_millis(500));
            let now = self.pids()?.len();
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }
}

fn command_for(kind: ProgramKind, directory: &Path) -> anyhow::Result<Command> {
    let source = |name: &str| workspace::root().join("tests/programs").join(name);
    let compiled = |compiler: &str, flags: &[&str], name: &str| -> anyhow::Result<Command> {
        let program = directory.join("program");
        let mut command = Command::new(compiler);
        command.args(flags).arg("-o").arg(&program).arg(source(name)).current_dir(directory);
        command.env("GOCACHE", directory.join("cache")).env("GOPROXY", "off");
        command::run_quietly(&mut command)?;
        Ok(Command::new(program))
    };
    let interpreted = |interpreter: PathBuf, name: &str| {
        let mut command = Command::new(interpreter);
        command.arg(source(name));
        command
    };
    let collides = |name: &str| -> anyhow::Result<Command> {
        let mut command = Command::new(workloads::build_test_workloads()?);
        command.arg(name).arg(directory);
        Ok(command)
    };
    match kind {
        ProgramKind::Python => Ok(interpreted("/usr/bin/python3".into(), "waits.py")),
        ProgramKind::Node => Ok(interpreted(python::node()?, "asks.js")),
        ProgramKind::Tokio => Ok(Command::new(workloads::build_tokio_program()?)),
        ProgramKind::Go => compiled("go", &["build"], "asks.go"),
        ProgramKind::DeepCpp => compiled("c++", &["-O2"], "deep.cc"),
        ProgramKind::StaticGlibc => compiled("cc", &["-O2", "-static"], "turns.c"),
        ProgramKind::StaticMusl => compiled("musl-gcc", &["-O2", "-static"], "turns.c"),
        ProgramKind::MapsData | ProgramKind::MapsLibraries => {
            let mut maps = compiled("cc", &["-O2"], "maps.c")?;
            maps.arg(if kind == ProgramKind::MapsData { "shared" } else { "private" });
            Ok(maps)
        }
        ProgramKind::NearCallers => collides("near-callers"),
        ProgramKind::FarCallers => collides("far-callers"),
        ProgramKind::Redis | ProgramKind::Postgres | ProgramKind::Nginx => {
            anyhow::bail!("a server has its own start")
        }
    }
}

/// The name of nginx's socket in its directory.
const SOCKET: &str = "socket";

fn start_nginx(path: &Path) -> anyhow::Result<ChildGuard> {
    // Its worker is an ordinary user's, and looks for the socket alone.
    let configuration = format!(
        "daemon off; worker_processes 1; pid {0}/pid; error_log {0}/log; events {{}}\n\
         http {{ access_log off; keepalive_requests 100000000;\n\
         server {{ listen unix:{0}/{SOCKET}; return 204; }} }}\n",
        path.display()
    );
    fs::write(path.join("nginx.conf"), configuration)?;
    let mut command = Command::new("/usr/sbin/nginx");
    command.arg("-p").arg(path).arg("-c").arg(path.join("nginx.conf"));
    ChildGuard::start(command.arg("-e").arg(path.join("log")).stdout(Stdio::null()))
}

/// A child that is ended when this is dropped.
struct ChildGuard(Child);

impl ChildGuard {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        Ok(Self(command.spawn().with_context(|| format!("cannot run {name}"))?))
    }

    /// Starts a child, and reads the first line that it prints.
    fn piped(command: &mut Command) -> anyhow::Result<(Self, String)> {
        let mut child = Self::start(command.stdout(Stdio::piped()))?;
        let mut output = BufReader::new(child.0.stdout.take().context("its output is not piped")?);
        let mut line = String::new();
        ensure!(output.read_line(&mut line)? > 0, "{command:?} ended before it was ready");
        child.0.stdout = Some(output.into_inner());
        Ok((child, line))
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // So that a server ends its own processes. An error means that it has ended already.
        let asked = libc::pid_t::try_from(self.0.id())
            // SAFETY: takes plain integers; the child has not been waited for, so the id is its own.
            .map(|pid| unsafe { libc::kill(pid, libc::SIGTERM) });
        let begin = Instant::now();
        while asked.is_ok() && begin.elapsed() < Duration::from_secs(2) {
            if self.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A client that asks and asks, until this is dropped.
struct NginxClient {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NginxClient {
    fn start(socket: &Path) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let mut stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if begin.elapsed() > Duration::from_secs(10) => {
                    return Err(error).context("a server does not listen");
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut answer = [0; 4096];
            while !ends.load(Ordering::Relaxed) {
                // A server that has ended is noticed by who looks at it.
                let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
                if asked.is_err() || !matches!(stream.read(&mut answer), Ok(1..)) {
                    return;
                }
            }
        });
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for NginxClient {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // It ends by itself when it has panicked.
        drop(self.thread.take().map(JoinHandle::join));
    }
}
