//! The threads that locks name, looked up in `/proc`.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read as _},
    ops::Range,
};

use offwake_recording::{
    ThreadRef,
    units::{Tgid, Tid},
};

use super::{
    candidates::{FutexWait, Sharing},
    layouts::NamedTid,
};
use crate::thread_call::ThreadCall;

/// The most threads of a process that are searched for one number of its namespace.
const MAX_THREADS: usize = 4_096;
/// The most bytes of `maps` that are read.
const MAX_MAPS: u64 = 4 << 20;

/// Finds the thread that a lock of process `waiter` names: one of its own, or where processes share
/// the lock, one of another process that maps the same memory.
pub(super) fn find_thread(waiter: Tgid, named: NamedTid, futex: &FutexWait) -> Option<ThreadRef> {
    let numbers = read_numbers(&format!("/proc/{waiter}/status"))?;
    let is_in_own_namespace = numbers.in_namespaces.len() > 1;
    let own = match is_in_own_namespace {
        false => has_thread(waiter, Tid(named.0)).then_some(Tid(named.0)),
        true => find_in_namespace(waiter, named),
    };
    if let Some(tid) = own {
        return Some(ThreadRef { tid, tgid: waiter });
    }
    // A number of another namespace could be anybody's.
    if futex.sharing == Sharing::Private || is_in_own_namespace {
        return None;
    }
    let owner = read_numbers(&format!("/proc/{}/status", named.0))?;
    let is_comparable = owner.in_namespaces == [named.0];
    let shares = || {
        let (here, there) = (read_maps(waiter)?, read_maps(owner.tgid)?);
        SharedPage::find(&here, futex.address)?.is_in(&there).then_some(())
    };
    (is_comparable && shares().is_some())
        .then_some(ThreadRef { tid: Tid(named.0), tgid: owner.tgid })
}

/// Reads a thread's name; it is empty if the thread has gone.
pub(super) fn read_name(thread: ThreadRef) -> String {
    let name = fs::read(format!("/proc/{}/task/{}/comm", thread.tgid, thread.tid));
    String::from_utf8_lossy(&name.unwrap_or_default()).trim_end_matches('\n').to_owned()
}

/// Returns whether a thread is in this very call.
pub(super) fn is_waiting(tgid: Tgid, tid: Tid, futex: &FutexWait) -> bool {
    ThreadCall::read(tgid, tid).is_some_and(|call| is_call(call, futex))
}

/// Returns whether a call is this wait for a futex.
pub(super) fn is_call(ThreadCall { number, arguments }: ThreadCall, futex: &FutexWait) -> bool {
    let [address, op, value] = arguments;
    i64::from(number) == libc::SYS_futex
        && (address, op as u32, value as u32) == (futex.address, futex.op, futex.value)
}

fn has_thread(tgid: Tgid, tid: Tid) -> bool {
    fs::metadata(format!("/proc/{tgid}/task/{tid}")).is_ok()
}

/// Finds the thread of a process that has this number in its own PID namespace.
fn find_in_namespace(tgid: Tgid, named: NamedTid) -> Option<Tid> {
    let threads = fs::read_dir(format!("/proc/{tgid}/task")).ok()?;
    threads.map_while(Result::ok).take(MAX_THREADS).find_map(|entry| {
        let tid = entry.file_name().to_str()?.parse().ok()?;
        let numbers = read_numbers(&format!("/proc/{tgid}/task/{tid}/status"))?;
        (numbers.in_namespaces.last() == Some(&named.0)).then_some(Tid(tid))
    })
}

/// The numbers of a thread.
struct Numbers {
    tgid: Tgid,
    /// Its own number in each PID namespace, from that of `/proc` downwards.
    in_namespaces: Vec<u32>,
}

fn read_numbers(path: &str) -> Option<Numbers> {
    parse_numbers(BufReader::new(File::open(path).ok()?))
}

fn parse_numbers(status: impl BufRead) -> Option<Numbers> {
    let (mut tgid, mut in_namespaces) = (None, Vec::new());
    for line in status.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("Tgid:") => tgid = words.next()?.parse().ok(),
            Some("NSpid:") => in_namespaces = words.map_while(|word| word.parse().ok()).collect(),
            _ => continue,
        }
        if !in_namespaces.is_empty() {
            break;
        }
    }
    Some(Numbers { tgid: Tgid(tgid?), in_namespaces })
}

fn read_maps(tgid: Tgid) -> Option<String> {
    let mut bytes = Vec::new();
    let maps = File::open(format!("/proc/{tgid}/maps")).ok()?;
    maps.take(MAX_MAPS).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A place in memory that processes can share: a file, and an offset in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SharedPage<'m> {
    device: &'m str,
    inode: &'m str,
    offset: u64,
}

impl<'m> SharedPage<'m> {
    /// Finds what a process maps at an address, if it is shared.
    pub(super) fn find(maps: &'m str, address: u64) -> Option<Self> {
        maps.lines().filter_map(SharedMapping::parse).find_map(|mapping| {
            mapping.addresses.contains(&address).then(|| Self {
                device: mapping.device,
                inode: mapping.inode,
                offset: mapping.offset + (address - mapping.addresses.start),
            })
        })
    }

    /// Returns whether another process maps it too.
    pub(super) fn is_in(&self, maps: &str) -> bool {
        maps.lines().filter_map(SharedMapping::parse).any(|mapping| {
            let length = mapping.addresses.end - mapping.addresses.start;
            let place = self.offset.checked_sub(mapping.offset);
            (mapping.device, mapping.inode) == (self.device, self.inode)
                && place.is_some_and(|place| place < length)
        })
    }
}

/// A shared mapping: `7f0c1000-7f0c2000 rw-s 00000000 00:01 1027 /dev/zero (deleted)`.
struct SharedMapping<'m> {
    addresses: Range<u64>,
    offset: u64,
    device: &'m str,
    inode: &'m str,
}

impl<'m> SharedMapping<'m> {
    fn parse(line: &'m str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        let is_shared = words.next()?.ends_with('s');
        let offset = hex(words.next()?)?;
        let (device, inode) = (words.next()?, words.next()?);
        (is_shared && start < end).then_some(Self { addresses: start..end, offset, device, inode })
    }
}

/// Parses any text as each of the files that are read here, for the fuzzer.
pub(super) fn parse_hostile(text: &str) {
    let _numbers = parse_numbers(text.as_bytes());
    for address in [0, 0x7f0c_1000, u64::MAX] {
        let page = SharedPage::find(text, address);
        let _shared = page.map(|page| page.is_in(text));
    }
}
