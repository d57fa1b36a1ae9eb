//! The back: computes, sleeps as a slow device would, and flushes a journal now and then.

use std::{
    env,
    fs::File,
    hint::black_box,
    io::{self, Seek as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;

use crate::{CLIENTS, process as role, wire};

const COMPUTE: Duration = Duration::from_millis(1);
const SEEK: Duration = Duration::from_millis(2);

/// Look-ups of one connection from one flush to the next.
const FLUSH_EVERY: u64 = 25;

/// The journal is written over and over, and never longer than this.
static JOURNAL: [u8; 64 * 1024] = [0x5a; 64 * 1024];

pub fn serve() -> anyhow::Result<()> {
    role::name(c"store")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    for number in 1..=CLIENTS {
        let (worker, _) = listener.accept().context("cannot accept")?;
        worker.set_nodelay(true)?;
        let journal = journal()?;
        role::thread(format!("store-{number}"), move || serve_worker(worker, journal))?;
    }
    loop {
        thread::park();
    }
}

/// A file without a name, beside this program: /tmp is in memory on many machines, where a flush
/// waits for nothing.
fn journal() -> anyhow::Result<File> {
    let this = env::current_exe().context("cannot tell this program's own path")?;
    let folder = this.parent().context("this program lies in no folder")?;
    tempfile::tempfile_in(folder)
        .with_context(|| format!("cannot create a file in {}", folder.display()))
}

#[inline(never)]
fn serve_worker(mut worker: TcpStream, mut journal: File) -> anyhow::Result<()> {
    let mut count = 0_u64;
    while let Some(key) = await_key(&mut worker)? {
        let row = compute_value(key);
        count += 1;
        if count.is_multiple_of(FLUSH_EVERY) {
            flush_journal(&mut journal)?;
        }
        wire::send(&mut worker, row)?;
    }
    Ok(())
}

#[inline(never)]
fn await_key(worker: &mut TcpStream) -> anyhow::Result<Option<u64>> {
    wire::receive_unless_closed(worker)
}

#[inline(never)]
fn compute_value(key: u64) -> u64 {
    black_box(compute_for(COMPUTE, key));
    wait_for_seek();
    wire::expected_reply(key)
}

/// Keeps the CPU busy for a time.
#[inline(never)]
pub fn compute_for(time: Duration, seed: u64) -> u64 {
    let start = Instant::now();
    let mut sum = seed;
    while start.elapsed() < time {
        for step in 0..500_u64 {
            sum = black_box(sum.rotate_left(5) ^ step.wrapping_mul(0x0100_0000_01b3));
        }
    }
    sum
}

#[inline(never)]
fn wait_for_seek() {
    thread::sleep(SEEK);
}

#[inline(never)]
fn flush_journal(journal: &mut File) -> anyhow::Result<()> {
    journal.rewind()?;
    journal.write_all(&JOURNAL).context("cannot write the journal")?;
    journal.sync_all().context("cannot flush the journal")
}
