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

use super::{process as role, service::CLIENTS, wire};

const COMPUTE: Duration = Duration::from_millis(1);
const SEEK: Duration = Duration::from_millis(2);
const READ_ARCHIVE: Duration = Duration::from_millis(50);

/// Look-ups of one connection from one flush to the next.
const FLUSH_EVERY: u64 = 25;

/// Where files outlive a restart, by the Filesystem Hierarchy Standard: /tmp is in memory on many
/// machines, where a flush waits for nothing.
const ON_DISK: &str = "/var/tmp";

/// The journal is written over and over, and never longer than this.
static JOURNAL: [u8; 64 * 1024] = [0x5a; 64 * 1024];

pub fn serve() -> anyhow::Result<()> {
    role::set_name(c"store")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    for number in 1..=CLIENTS {
        let (worker, _) = listener.accept().context("cannot accept")?;
        worker.set_nodelay(true)?;
        let journal = create_journal()?;
        role::spawn_thread(format!("store-{number}"), move || serve_worker(worker, journal))?;
    }
    loop {
        thread::park();
    }
}

/// A file without a name.
fn create_journal() -> anyhow::Result<File> {
    let folder = env::temp_dir();
    let journal = tempfile::tempfile_in(ON_DISK);
    journal
        .or_else(|_| tempfile::tempfile_in(&folder))
        .with_context(|| format!("cannot create a file in {ON_DISK} or {}", folder.display()))
}

#[inline(never)]
fn serve_worker(mut worker: TcpStream, mut journal: File) -> anyhow::Result<()> {
    let mut count = 0_u64;
    loop {
        let key = await_key(&mut worker)?;
        if key & wire::ARCHIVED == 0 {
            read_row();
        } else {
            read_archive();
        }
        let row = compute_value(key & !wire::ARCHIVED);
        count += 1;
        if count.is_multiple_of(FLUSH_EVERY) {
            flush_journal(&mut journal)?;
        }
        wire::send(&mut worker, row)?;
    }
}

#[inline(never)]
fn await_key(worker: &mut TcpStream) -> anyhow::Result<u64> {
    wire::wait_for(worker)
}

#[inline(never)]
fn compute_value(key: u64) -> u64 {
    black_box(compute_for(COMPUTE, key));
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
fn read_row() {
    sleep_for(SEEK);
}

#[inline(never)]
fn read_archive() {
    sleep_for(READ_ARCHIVE);
}

/// Sleeps as a slow device would. The function that calls it stays on the stack: what follows the
/// sleep there keeps the compiler from jumping out of it.
#[inline(always)]
fn sleep_for(time: Duration) {
    thread::sleep(time);
    black_box(());
}

#[inline(never)]
fn flush_journal(journal: &mut File) -> anyhow::Result<()> {
    journal.rewind()?;
    journal.write_all(&JOURNAL).context("cannot write the journal")?;
    journal.sync_all().context("cannot flush the journal")
}
