//! A client and a server in network namespaces of their own, with a virtual cable between them.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    raw,
    stage::{Role, Stage},
};
use crate::wait_until::wait_until;

const CLIENT: &str = "10.123.0.1";
const SERVER: &str = "10.123.0.2";
const PORT: u16 = 8080;

/// What the client computes before each request.
const PAUSE: Duration = Duration::from_millis(2);
/// What the server does for each request: it computes, and then it sleeps.
const SERVER_WORK: Duration = Duration::from_millis(3);
const SERVER_SLEEP: Duration = Duration::from_millis(6);

/// How long a server that hangs sleeps at a time.
const HANGING_SLEEP: Duration = Duration::from_millis(100);

const END: &[u8; 8] = b"theend!!";

/// What the two tell each other before there is a network.
struct Progress {
    clients_pid: &'static AtomicU32,
    is_listening: &'static AtomicU32,
}

/// All requests come over one connection.
pub(super) fn between(stage: &Stage) -> Result<()> {
    play(stage, serve, ask)
}

/// Each request has a connection of its own, on whose other end no thread ever waits.
pub(super) fn with_short_connections(stage: &Stage) -> Result<()> {
    play(stage, serve_each_connection, connect_for_each_request)
}

/// The server accepts the connection and sleeps until the end.
pub(super) fn with_a_hung_server(stage: &Stage) -> Result<()> {
    play(stage, accept_and_hang, wait_for_an_answer)
}

fn play(
    stage: &Stage,
    serve: fn(&Role, &AtomicU32, &Progress) -> Result<()>,
    ask: fn(&Role, &AtomicU32, &Progress) -> Result<()>,
) -> Result<()> {
    let (client, server) = (stage.role("client")?, stage.role("server")?);
    let progress = Progress { clients_pid: stage.word()?, is_listening: stage.word()? };
    let stopped = stage.stopped();
    stage.process(|| {
        let served = serve(server, stopped, &progress);
        assert!(served.is_ok(), "the server fails: {served:?}");
    })?;
    stage.process(|| {
        let asked = ask(client, stopped, &progress);
        assert!(asked.is_ok(), "the client fails: {asked:?}");
    })?;
    stage.play(|| ())
}

/// Listens at `address` in a namespace that a cable connects with the client's.
fn listen_at(address: &str, progress: &Progress) -> Result<TcpListener> {
    enter_new_namespace()?;
    let client = wait_until("the client's namespace", || {
        Ok(Some(progress.clients_pid.load(SeqCst)).filter(|&pid| pid != 0))
    })?;
    let there = client.to_string();
    ip(&["link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", &there])?;
    bring_up(SERVER)?;
    let listener = TcpListener::bind((address, PORT)).context("cannot listen")?;
    progress.is_listening.store(1, SeqCst);
    Ok(listener)
}

/// Connects the namespace of the client with the server's.
fn prepare_to_connect(progress: &Progress) -> Result<()> {
    enter_new_namespace()?;
    progress.clients_pid.store(std::process::id(), SeqCst);
    wait_until("the server to listen", || {
        Ok((progress.is_listening.load(SeqCst) != 0).then_some(()))
    })?;
    bring_up(CLIENT)
}

fn connect() -> Result<TcpStream> {
    let socket = wait_until("a connection", || Ok(TcpStream::connect((SERVER, PORT)).ok()))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn serve_each_connection(server: &Role, _: &AtomicU32, progress: &Progress) -> Result<()> {
    let listener = listen_at("0.0.0.0", progress)?;
    server.claim("ow-server");
    loop {
        let (mut socket, _) = server.waits(|| listener.accept())?;
        server.computes(SERVER_WORK);
        raw::nanosleep(SERVER_SLEEP);
        // The request is there by now.
        let mut request = [0; 8];
        socket.read_exact(&mut request)?;
        if &request == END {
            return Ok(());
        }
        socket.write_all(b"reply..!")?;
    }
}

fn connect_for_each_request(client: &Role, stopped: &AtomicU32, progress: &Progress) -> Result<()> {
    prepare_to_connect(progress)?;
    let mut socket = connect()?;
    client.claim("ow-client");
    while stopped.load(SeqCst) == 0 {
        client.computes(PAUSE);
        let fd = socket.as_raw_fd();
        raw::write(fd, b"request!");
        client.waits(|| raw::read(fd, &mut [0; 8]));
        socket = connect()?;
    }
    raw::write(socket.as_raw_fd(), END);
    Ok(())
}

fn accept_and_hang(server: &Role, stopped: &AtomicU32, progress: &Progress) -> Result<()> {
    let listener = listen_at("0.0.0.0", progress)?;
    let (mut socket, _) = listener.accept().context("nobody connects")?;
    server.claim("ow-server");
    sleep_with_the_request(stopped);
    socket.write_all(b"reply..!").context("nobody waits any more")
}

#[inline(never)]
fn sleep_with_the_request(stopped: &AtomicU32) {
    while stopped.load(SeqCst) == 0 {
        raw::nanosleep(HANGING_SLEEP);
    }
}

fn wait_for_an_answer(client: &Role, _: &AtomicU32, progress: &Progress) -> Result<()> {
    prepare_to_connect(progress)?;
    let mut socket = connect()?;
    client.claim("ow-client");
    socket.write_all(b"request!")?;
    socket.read_exact(&mut [0; 8]).context("no answer")
}

fn serve(server: &Role, _: &AtomicU32, progress: &Progress) -> Result<()> {
    let listener = listen_at(SERVER, progress)?;
    let (mut socket, _) = listener.accept().context("nobody connects")?;
    socket.set_nodelay(true)?;
    server.claim("ow-server");
    let mut request = [0; 8];
    loop {
        server.waits(|| socket.read_exact(&mut request))?;
        if &request == END {
            return Ok(());
        }
        server.computes(SERVER_WORK);
        raw::nanosleep(SERVER_SLEEP);
        socket.write_all(b"reply..!")?;
    }
}

fn ask(client: &Role, stopped: &AtomicU32, progress: &Progress) -> Result<()> {
    prepare_to_connect(progress)?;
    let socket = connect()?;
    client.claim("ow-client");
    let fd = socket.as_raw_fd();
    while stopped.load(SeqCst) == 0 {
        client.computes(PAUSE);
        raw::write(fd, b"request!");
        client.waits(|| raw::read(fd, &mut [0; 8]));
    }
    raw::write(fd, END);
    Ok(())
}

fn enter_new_namespace() -> Result<()> {
    // SAFETY: takes a plain integer; the process has one thread.
    let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    ensure!(made == 0, "cannot make a namespace: {}", std::io::Error::last_os_error());
    Ok(())
}

fn bring_up(address: &str) -> Result<()> {
    ip(&["address", "add", &format!("{address}/24"), "dev", "cable"])?;
    ip(&["link", "set", "cable", "up"])
}

fn ip(arguments: &[&str]) -> Result<()> {
    let said = Command::new("ip").args(arguments).output().context("cannot run ip")?;
    let error = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "ip {arguments:?}: {error}");
    Ok(())
}
