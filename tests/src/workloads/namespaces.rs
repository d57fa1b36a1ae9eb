//! A client and a server in network namespaces of their own: with a virtual cable between them, or
//! with a host that has a bridge.
//!
//! ```text
//! client 10.123.0.1 --cable-- 10.123.0.2 server
//!
//! client 10.123.0.1 --+                            +-- 10.123.0.2 server
//!                     +-- bridge 10.123.0.254 -----+
//!                         10.96.0.1:80 leads to the server
//! ```

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
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
const HOST: &str = "10.123.0.254";
/// What the host translates to the server's address.
const SERVICE: &str = "10.96.0.1";
const SERVICE_PORT: u16 = 80;

/// What the client computes before each request.
const PAUSE: Duration = Duration::from_millis(2);
/// What the server does for each request: it computes, and then it sleeps.
const SERVER_WORK: Duration = Duration::from_millis(3);
const SERVER_SLEEP: Duration = Duration::from_millis(6);

/// How long a server that hangs sleeps at a time.
const HANGING_SLEEP: Duration = Duration::from_millis(100);

const END: &[u8; 8] = b"theend!!";

/// What is between the two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    Cable,
    Bridge,
    /// A bridge; the client knows the server by an address that the host translates. The server sees
    /// the host's address instead of the client's.
    Translated,
}

/// What the two tell each other before there is a network.
struct Progress {
    network: Network,
    clients_pid: &'static AtomicU32,
    servers_pid: &'static AtomicU32,
    is_built: &'static AtomicU32,
    is_listening: &'static AtomicU32,
    /// How many of client and server have ended.
    finished: &'static AtomicU32,
}

impl Progress {
    /// Where the client finds the server.
    fn address(&self) -> (&'static str, u16) {
        match self.network {
            Network::Cable | Network::Bridge => (SERVER, PORT),
            Network::Translated => (SERVICE, SERVICE_PORT),
        }
    }
}

type Serve = fn(&Role, &AtomicU32, &Progress) -> Result<()>;
type Ask = fn(&Role, &AtomicU32, &Progress) -> Result<()>;

/// All requests come over one connection.
pub(super) fn between(stage: &Stage) -> Result<()> {
    play(stage, Network::Cable, serve, ask)
}

/// Each request has a connection of its own, on whose other end no thread ever waits.
pub(super) fn with_short_connections(stage: &Stage) -> Result<()> {
    play(stage, Network::Cable, serve_each_connection, connect_for_each_request)
}

/// The server accepts the connection and sleeps until the end.
pub(super) fn with_a_hung_server(stage: &Stage) -> Result<()> {
    play(stage, Network::Cable, accept_and_hang, wait_for_an_answer)
}

/// All requests come over one connection, and through a bridge.
pub(super) fn bridged(stage: &Stage) -> Result<()> {
    play(stage, Network::Bridge, serve, ask)
}

/// The connection's addresses are translated.
pub(super) fn translated(stage: &Stage) -> Result<()> {
    play(stage, Network::Translated, serve, ask)
}

/// The same, with a connection for each request.
pub(super) fn translated_short(stage: &Stage) -> Result<()> {
    play(stage, Network::Translated, serve_each_connection, connect_for_each_request)
}

/// The same, with a server that accepts the connection and sleeps until the end.
pub(super) fn translated_hung(stage: &Stage) -> Result<()> {
    play(stage, Network::Translated, accept_and_hang, wait_for_an_answer)
}

/// Requests and answers are datagrams. The server has one socket for all clients.
pub(super) fn datagrams(stage: &Stage) -> Result<()> {
    play(stage, Network::Bridge, serve_datagrams, ask_by_datagrams)
}

/// The datagrams' addresses are translated.
pub(super) fn translated_datagrams(stage: &Stage) -> Result<()> {
    play(stage, Network::Translated, serve_datagrams, ask_by_datagrams)
}

/// The server receives a datagram and sleeps until the end.
pub(super) fn datagrams_hung(stage: &Stage) -> Result<()> {
    play(stage, Network::Bridge, receive_and_hang, wait_for_a_datagram)
}

fn play(stage: &Stage, network: Network, serve: Serve, ask: Ask) -> Result<()> {
    let (client, server) = (stage.role("client")?, stage.role("server")?);
    let progress = Progress {
        network,
        clients_pid: stage.word()?,
        servers_pid: stage.word()?,
        is_built: stage.word()?,
        is_listening: stage.word()?,
        finished: stage.word()?,
    };
    let stopped = stage.stopped();
    stage.process(|| {
        let served = serve(server, stopped, &progress);
        progress.finished.fetch_add(1, SeqCst);
        assert!(served.is_ok(), "the server fails: {served:?}");
    })?;
    stage.process(|| {
        let asked = ask(client, stopped, &progress);
        progress.finished.fetch_add(1, SeqCst);
        assert!(asked.is_ok(), "the client fails: {asked:?}");
    })?;
    if network != Network::Cable {
        stage.process(|| {
            let built = be_the_host(&progress);
            assert!(built.is_ok(), "the host fails: {built:?}");
        })?;
    }
    stage.play(|| ())
}

fn wait_for_pid(of: &AtomicU32) -> Result<u32> {
    wait_until("another's namespace", || Ok(Some(of.load(SeqCst)).filter(|&pid| pid != 0)))
}

/// Builds the bridge, and is there until client and server have ended: the bridge goes with the last
/// process of its namespace, and the server's last answer with it.
fn be_the_host(progress: &Progress) -> Result<()> {
    enter_new_namespace()?;
    ip(&["link", "add", "bridge", "type", "bridge"])?;
    for (cable, pid) in [("client", progress.clients_pid), ("server", progress.servers_pid)] {
        let there = wait_for_pid(pid)?.to_string();
        ip(&["link", "add", cable, "type", "veth", "peer", "name", "cable", "netns", &there])?;
        ip(&["link", "set", cable, "master", "bridge", "up"])?;
    }
    bring_up(HOST, "bridge")?;
    if progress.network == Network::Translated {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot forward")?;
        let (port, to) = (SERVICE_PORT.to_string(), format!("{SERVER}:{PORT}"));
        for protocol in ["tcp", "udp"] {
            let service = ["-d", SERVICE, "-p", protocol, "--dport", &port];
            let lead = ["-j", "DNAT", "--to-destination", &to];
            let table = ["-w", "-t", "nat", "-A", "PREROUTING"];
            run("iptables", &[&table[..], &service, &lead].concat())?;
        }
        // Else the server would answer the client without the host's knowledge.
        run("iptables", &["-w", "-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE"])?;
    }
    progress.is_built.store(1, SeqCst);
    while progress.finished.load(SeqCst) < 2 {
        raw::nanosleep(HANGING_SLEEP);
    }
    Ok(())
}

/// Connects a new namespace, as that of the server.
fn prepare_to_serve(progress: &Progress) -> Result<()> {
    enter_new_namespace()?;
    progress.servers_pid.store(std::process::id(), SeqCst);
    if progress.network == Network::Cable {
        let there = wait_for_pid(progress.clients_pid)?.to_string();
        ip(&["link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", &there])?;
    } else {
        wait_until_built(progress)?;
    }
    bring_up(SERVER, "cable")
}

fn wait_until_built(progress: &Progress) -> Result<()> {
    wait_until("the bridge", || Ok((progress.is_built.load(SeqCst) != 0).then_some(())))
}

/// Listens at `address` in a namespace that is connected with the client's.
fn listen_at(address: &str, progress: &Progress) -> Result<TcpListener> {
    prepare_to_serve(progress)?;
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
    bring_up(CLIENT, "cable")?;
    if progress.network == Network::Translated {
        ip(&["route", "add", "default", "via", HOST])?;
    }
    Ok(())
}

fn receive_at(address: &str, progress: &Progress) -> Result<UdpSocket> {
    prepare_to_serve(progress)?;
    let socket = UdpSocket::bind((address, PORT)).context("cannot bind")?;
    progress.is_listening.store(1, SeqCst);
    Ok(socket)
}

fn serve_datagrams(server: &Role, _: &AtomicU32, progress: &Progress) -> Result<()> {
    let socket = receive_at("0.0.0.0", progress)?;
    server.claim("ow-server");
    let mut request = [0; 8];
    loop {
        let (_, client) = server.waits(|| socket.recv_from(&mut request))?;
        if &request == END {
            return Ok(());
        }
        server.computes(SERVER_WORK);
        raw::nanosleep(SERVER_SLEEP);
        socket.send_to(b"reply..!", client)?;
    }
}

fn ask_by_datagrams(client: &Role, stopped: &AtomicU32, progress: &Progress) -> Result<()> {
    let socket = connect_datagrams(progress)?;
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

fn receive_and_hang(server: &Role, stopped: &AtomicU32, progress: &Progress) -> Result<()> {
    let socket = receive_at(SERVER, progress)?;
    let (_, client) = socket.recv_from(&mut [0; 8]).context("nobody asks")?;
    server.claim("ow-server");
    sleep_with_the_request(stopped);
    socket.send_to(b"reply..!", client).map(drop).context("nobody waits any more")
}

fn wait_for_a_datagram(client: &Role, _: &AtomicU32, progress: &Progress) -> Result<()> {
    let socket = connect_datagrams(progress)?;
    client.claim("ow-client");
    socket.send(b"request!")?;
    socket.recv(&mut [0; 8]).map(drop).context("no answer")
}

fn connect_datagrams(progress: &Progress) -> Result<UdpSocket> {
    prepare_to_connect(progress)?;
    let socket = UdpSocket::bind(("0.0.0.0", 0)).context("cannot bind")?;
    socket.connect(progress.address())?;
    Ok(socket)
}

fn connect(progress: &Progress) -> Result<TcpStream> {
    let socket = wait_until("a connection", || Ok(TcpStream::connect(progress.address()).ok()))?;
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
    let mut socket = connect(progress)?;
    client.claim("ow-client");
    while stopped.load(SeqCst) == 0 {
        client.computes(PAUSE);
        let fd = socket.as_raw_fd();
        raw::write(fd, b"request!");
        client.waits(|| raw::read(fd, &mut [0; 8]));
        socket = connect(progress)?;
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
    let mut socket = connect(progress)?;
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
    let socket = connect(progress)?;
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

fn bring_up(address: &str, device: &str) -> Result<()> {
    ip(&["address", "add", &format!("{address}/24"), "dev", device])?;
    ip(&["link", "set", device, "up"])
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let said = Command::new(program).args(arguments).output();
    let said = said.with_context(|| format!("cannot run {program}"))?;
    let error = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{program} {arguments:?}: {error}");
    Ok(())
}
