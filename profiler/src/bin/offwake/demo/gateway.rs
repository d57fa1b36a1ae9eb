//! The front: clients that make the load, and the threads that serve them.

use std::{
    io::{self, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
    process, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{process as role, service::CLIENTS, wire};

/// From one request of a client to its next: four clients would make 200 requests a second.
const PERIOD: Duration = Duration::from_millis(20);

pub fn serve() -> anyhow::Result<()> {
    role::set_name(c"gateway")?;
    let (store, address) = role::start(&["store"])?;
    // An abstract socket leaves no file behind.
    let socket = format!("offwake-demo-{}", process::id());
    let (worker, _ready) = role::start(&["worker", &socket, &address])?;

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    for number in 1..=CLIENTS {
        let client = TcpStream::connect(listener.local_addr()?).context("cannot connect")?;
        client.set_nodelay(true)?;
        let (server, _) = listener.accept().context("cannot accept")?;
        server.set_nodelay(true)?;
        let address = SocketAddr::from_abstract_name(&socket)?;
        let worker = UnixStream::connect_addr(&address).context("cannot connect to the worker")?;
        role::spawn_thread(format!("gateway-{number}"), move || serve_client(server, worker))?;
        role::spawn_thread(format!("client-{number}"), move || make_load(client, number))?;
    }

    let (worker_pid, store_pid) = (worker.id(), store.id());
    writeln!(io::stdout(), "gateway={} worker={worker_pid} store={store_pid}", process::id())?;
    loop {
        thread::park();
    }
}

#[inline(never)]
fn serve_client(mut client: TcpStream, mut worker: UnixStream) -> anyhow::Result<()> {
    loop {
        let request = await_request(&mut client)?;
        let reply = ask_worker(&mut worker, request)?;
        wire::send(&mut client, reply)?;
    }
}

#[inline(never)]
fn await_request(client: &mut TcpStream) -> anyhow::Result<u64> {
    wire::wait_for(client)
}

#[inline(never)]
fn ask_worker(worker: &mut UnixStream, request: u64) -> anyhow::Result<u64> {
    wire::send(worker, request)?;
    wire::wait_for(worker)
}

/// One client: a request at every tick, and none before the last was answered.
#[inline(never)]
fn make_load(mut server: TcpStream, number: usize) -> anyhow::Result<()> {
    let mut next = Instant::now();
    for count in 0.. {
        let request = (count * CLIENTS + number) as u64;
        let reply = make_request(&mut server, request)?;
        if reply != wire::expected_reply(request) {
            bail!("request {request} got the wrong reply {reply}");
        }
        next = (next + PERIOD).max(Instant::now());
        pause_until(next);
    }
    Ok(())
}

#[inline(never)]
fn make_request(server: &mut TcpStream, request: u64) -> anyhow::Result<u64> {
    wire::send(server, request)?;
    wire::wait_for(server)
}

#[inline(never)]
fn pause_until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}
