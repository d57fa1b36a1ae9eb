//! `/tmp/perf-PID.map`: what a JIT says that it wrote where.
//!
//! blazesym reads these too, but by path: it can't ask who owns the file that it opened, waits for
//! ever on a FIFO, follows a container's links out of it, and gives up on a half-written line.
//! Format: <https://github.com/torvalds/linux/blob/v6.12/tools/perf/Documentation/jit-interface.txt>

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::FileExt as _,
};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

use super::{Shortfalls, count, cut, frames::Wanted, names::Names, process::now};
use crate::units::{Nanos, Tgid, Timestamp};

/// Files held open at most.
const MAX_OPEN: usize = 1024;
/// Processes with code in memory at most.
const MAX_MAPS: usize = 65_536;
/// Bytes of a file that are read.
const MAX_BYTES: u64 = 1 << 30;
/// Bytes of a line that are kept.
const MAX_LINE: usize = 64 << 10;
/// The shortest time between two attempts to open one.
const RETRY: Nanos = Nanos(100_000_000);

/// Index of a perf map, there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PerfMapId(u32);

#[derive(Default)]
struct PerfMap {
    file: Option<File>,
    tried: Option<Timestamp>,
    refused: bool,
}

/// The perf maps of the processes that ran code in memory.
pub(super) struct PerfMaps {
    maps: Vec<PerfMap>,
    open: usize,
    over_limit: u64,
}

enum Attempt {
    Opened(File),
    Absent,
    Refused,
}

impl PerfMaps {
    pub(super) fn new() -> Self {
        Self { maps: Vec::new(), open: 0, over_limit: 0 }
    }

    /// Makes room for another one.
    pub(super) fn add(&mut self) -> Option<PerfMapId> {
        if self.maps.len() >= MAX_MAPS {
            self.over_limit += 1;
            return None;
        }
        self.maps.push(PerfMap::default());
        Some(PerfMapId(u32::try_from(self.maps.len() - 1).ok()?))
    }

    /// Opens the file of a process, if that was not done or tried just now.
    pub(super) fn open(&mut self, id: PerfMapId, tgid: Tgid) {
        let tried = self.maps.get(id.0 as usize).and_then(|map| map.tried);
        if tried.is_none_or(|tried| now().since(tried) >= RETRY) {
            self.open_now(id, tgid);
        }
    }

    /// Opens the file of a process, if that was not done.
    pub(super) fn open_now(&mut self, id: PerfMapId, tgid: Tgid) {
        let Some(map) = self.maps.get_mut(id.0 as usize) else { return };
        if map.file.is_some() || map.refused {
            return;
        }
        map.tried = Some(now());
        if self.open >= MAX_OPEN {
            self.over_limit += 1;
            return;
        }
        match attempt(tgid) {
            Attempt::Opened(file) => {
                map.file = Some(file);
                self.open += 1;
            }
            Attempt::Refused => map.refused = true,
            Attempt::Absent => {}
        }
    }

    /// The file of a map, if there is one.
    pub(super) fn file(&self, id: PerfMapId) -> Option<File> {
        self.maps.get(id.0 as usize)?.file.as_ref()?.try_clone().ok()
    }

    pub(super) fn add_shortfalls(&self, all: &mut Shortfalls) {
        for _ in self.maps.iter().filter(|map| map.refused) {
            count(all, "symbols_perf_maps_refused");
        }
        if self.over_limit > 0 {
            *all.entry("symbols_perf_maps_over_limit").or_default() += self.over_limit;
        }
    }
}

/// Reads a file from its beginning, whoever else reads it.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Names addresses by a map. Where its lines overlap, the later line is right.
pub(super) fn name(file: &File, wanted: &[Wanted], names: &mut Names) {
    let mut sorted: Vec<&Wanted> = wanted.iter().collect();
    sorted.sort_by_key(|wanted| wanted.at);
    let mut reader = BufReader::new(FromStart { file, at: 0 }.take(MAX_BYTES));
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(MAX_LINE as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') && reader.skip_until(b'\n').is_err() {
            return;
        }
        let Some((start, size, function)) = parse(&line) else { continue };
        let from = sorted.partition_point(|wanted| wanted.at < start);
        for wanted in sorted[from..].iter().take_while(|wanted| wanted.at - start < size) {
            names.set(wanted.frame, vec![cut(&function)]);
        }
    }
}

/// `START SIZE name`, numbers in hex.
fn parse(line: &[u8]) -> Option<(u64, u64, String)> {
    let mut fields = line.trim_ascii().splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let text = std::str::from_utf8(fields.next()?).ok()?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = String::from_utf8_lossy(fields.next()?.trim_ascii()).into_owned();
    (!name.is_empty()).then_some((start, size, name))
}

/// Opens a process's map inside of its own root, if the process itself can have written it: anybody
/// can put a file of that name into `/tmp`.
fn attempt(tgid: Tgid) -> Attempt {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{tgid}/status")) else {
        return Attempt::Absent;
    };
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // The file is named after the number that the process knows itself by.
    let inner = field("NStgid:").and_then(|ids| ids.split_ascii_whitespace().next_back());
    let inner = inner.and_then(|id| id.parse().ok()).unwrap_or(tgid.0);
    // Real, effective, saved and filesystem user.
    let users = field("Uid:").unwrap_or_default();
    let users: Vec<u32> = users.split_ascii_whitespace().flat_map(str::parse).collect();

    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(root) = rustix::fs::openat(CWD, format!("/proc/{tgid}/root"), directory, Mode::empty())
    else {
        return Attempt::Absent;
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let name = format!("tmp/perf-{inner}.map");
    let file = match rustix::fs::openat2(root, name, flags, Mode::empty(), resolve) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Attempt::Absent,
        Err(_) => return Attempt::Refused,
    };
    let Ok(stat) = rustix::fs::fstat(&file) else { return Attempt::Absent };
    let owned = stat.st_uid == 0 || users.contains(&stat.st_uid);
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // Writable by everybody says nothing about who wrote it.
    if !owned || !regular || stat.st_mode & 0o002 != 0 {
        return Attempt::Refused;
    }
    Attempt::Opened(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_are_read_and_garbage_is_not() {
        assert_eq!(
            parse(b"7f00aa10 2f py::main:/a b.py\n"),
            Some((0x7f00aa10, 0x2f, "py::main:/a b.py".to_owned()))
        );
        assert_eq!(parse(b"0x10 0x8 f\r\n"), Some((16, 8, "f".to_owned())));
        for garbage in [
            &b""[..],
            b"\n",
            b"10",
            b"10 8",
            b"10 8 ",
            b"x y z",
            b"\xff\xff 1 a",
            b"1ffffffffffffffff 1 a",
        ] {
            assert_eq!(parse(garbage), None, "{garbage:?}");
        }
    }
}
