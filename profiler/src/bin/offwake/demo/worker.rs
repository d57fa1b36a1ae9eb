//! The middle: threads that share one cache behind one lock.

use std::{
    hint::black_box,
    io::{self, Write as _},
    net::{SocketAddr, TcpStream},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream},
    },
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Context as _;

use super::{process as role, service::CLIENTS, store, wire};

/// Jobs from one that keeps the lock while the store works to the next.
const REFILL_EVERY: u64 = 5;

/// What it takes to search the cache.
const SEARCH: Duration = Duration::from_micros(300);

/// What the lock protects.
#[derive(Default)]
struct Cache {
    jobs: u64,
    checksum: u64,
}

pub fn serve(socket: &str, store: SocketAddr) -> anyhow::Result<()> {
    role::set_name(c"worker")?;
    let listener = UnixListener::bind_addr(&UnixAddress::from_abstract_name(socket)?)
        .context("cannot listen")?;
    writeln!(io::stdout(), "ready")?;
    let cache = Arc::new(Mutex::new(Cache::default()));
    for number in 1..=CLIENTS {
        let (gateway, _) = listener.accept().context("cannot accept")?;
        let store = TcpStream::connect(store).context("cannot connect to the store")?;
        store.set_nodelay(true)?;
        let cache = Arc::clone(&cache);
        role::spawn_thread(format!("worker-{number}"), move || {
            serve_gateway(gateway, store, &cache)
        })?;
    }
    loop {
        thread::park();
    }
}

#[inline(never)]
fn serve_gateway(
    mut gateway: UnixStream,
    mut store: TcpStream,
    cache: &Mutex<Cache>,
) -> anyhow::Result<()> {
    loop {
        let job = await_job(&mut gateway)?;
        let reply = do_job(job, &mut store, cache)?;
        wire::send(&mut gateway, reply)?;
    }
}

#[inline(never)]
fn await_job(gateway: &mut UnixStream) -> anyhow::Result<u64> {
    black_box(wire::wait_for(gateway))
}

#[inline(never)]
fn do_job(job: u64, store: &mut TcpStream, cache: &Mutex<Cache>) -> anyhow::Result<u64> {
    match query_cache(job, store, cache)? {
        Some(refilled) => Ok(refilled),
        None => ask_store(store, job),
    }
}

/// Under the lock, and now and then far too long: the fault that the findings should name.
#[inline(never)]
fn query_cache(
    job: u64,
    store: &mut TcpStream,
    cache: &Mutex<Cache>,
) -> anyhow::Result<Option<u64>> {
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    cache.checksum ^= store::compute_for(SEARCH, job);
    cache.jobs += 1;
    if cache.jobs.is_multiple_of(REFILL_EVERY) {
        refill_cache(job, store).map(Some)
    } else {
        Ok(None)
    }
}

#[inline(never)]
fn refill_cache(job: u64, store: &mut TcpStream) -> anyhow::Result<u64> {
    // What is done with the answer keeps this function on the stack: a call that comes last is a jump.
    black_box(ask_store(store, job | wire::ARCHIVED))
}

#[inline(never)]
fn ask_store(store: &mut TcpStream, key: u64) -> anyhow::Result<u64> {
    wire::send(store, key)?;
    black_box(wire::wait_for(store))
}
