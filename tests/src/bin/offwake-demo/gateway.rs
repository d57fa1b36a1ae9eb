//! The front: clients that make the load, and the threads that serve them.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr, unix::net::UnixStream},
    process,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::{CLIENTS, process as role, wire};

/// From one request of a client to its next: four clients make 200 requests a second.
const PERIOD: Duration = Duration::from_millis(20);

pub fn serve() -> anyhow::Result<()> {
    role::name(c"gateway")?;
    let (mut store, address) = role::start(&["store"])?;
    // An abstract socket leaves no file behind.
    let socket = format!("offwake-demo-{}", process::id());
    let (mut worker, _ready) = role::start(&["worker", &socket, &address])?;

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    for number in 1..=CLIENTS {
        let client = TcpStream::connect(listener.local_addr()?).context("cannot connect")?;
        client.set_nodelay(true)?;
        let (server, _) = listener.accept().context("cannot accept")?;
        server.set_nodelay(true)?;
        let address = SocketAddr::from_abstract_name(&socket)?;
        let worker = UnixStream::connect_addr(&address).context("cannot connect to the worker")?;
        role::thread(format!("gateway-{number}"), move || serve_client(server, worker))?;
        role::thread(format!("client-{number}"), move || make_load(client, number))?;
    }

    let (worker_pid, store_pid) = (worker.id(), store.id());
    writeln!(io::stdout(), "gateway={} worker={worker_pid} store={store_pid}", process::id())?;
    wait_for_the_end_of_input();
    role::STOPPING.store(true, Ordering::SeqCst);
    worker.kill()?;
    store.kill()?;
    worker.wait()?;
    store.wait()?;
    Ok(())
}

#[inline(never)]
fn wait_for_the_end_of_input() {
    let mut ignored = [0; 64];
    while io::stdin().read(&mut ignored).is_ok_and(|read| read > 0) {}
}

#[inline(never)]
fn serve_client(mut client: TcpStream, mut worker: UnixStream) -> anyhow::Result<()> {
    while let Some(request) = await_request(&mut client)? {
        let reply = ask_worker(&mut worker, request)?;
        wire::send(&mut client, reply)?;
    }
    Ok(())
}

#[inline(never)]
fn await_request(client: &mut TcpStream) -> anyhow::Result<Option<u64>> {
    wire::receive_unless_closed(client)
}

#[inline(never)]
fn ask_worker(worker: &mut UnixStream, request: u64) -> anyhow::Result<u64> {
    wire::send(worker, request)?;
    wire::receive(worker)
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
    wire::receive(server)
}

#[inline(never)]
fn pause_until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}
