//! `/tmp/perf-PID.map`: what a JIT says that it wrote where.
//!
//! blazesym reads these too, but by path: it can't ask who owns the file that it opened, waits for
//! ever on a FIFO, follows a container's links out of it, and gives up on a half-written line.
//! Format: <https://github.com/torvalds/linux/blob/v6.12/tools/perf/Documentation/jit-interface.txt>

use std::{
    collections::HashMap,
    fs::File,
    ops::{ControlFlow, Range},
};

use super::{
    Shortfalls, backwards, count, cut,
    frames::Wanted,
    identify,
    names::Names,
    own_root::{LastLink, OwnRoot},
    process::now,
    script_names::{ScriptName, take_apart},
};
use crate::{
    recording::Function,
    units::{Nanos, Tgid, Timestamp},
};

/// Files held open at most.
const MAX_OPEN: usize = 1024;
/// Processes with code in memory at a time, those that ended and left a file among them.
const MAX_MAPS: usize = 65_536;
/// Bytes that are read of all files together: as many lines as fit into them take some 5 s.
const MAX_BYTES: u64 = 512 << 20;
/// The shortest time between two attempts to open one.
const RETRY: Nanos = Nanos(100_000_000);

/// Names a perf map, there or not. None is used twice: frames keep it.
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
    maps: HashMap<PerfMapId, PerfMap>,
    added: u32,
    /// Files that are held.
    open: usize,
    refused: u64,
    over_limit: u64,
}

/// What may be read of maps, so many in all.
pub(super) struct Budget {
    /// Maps that are still to be read.
    left: usize,
    /// Bytes that may still be read.
    unread: u64,
}

impl Budget {
    pub(super) fn of(maps: usize) -> Self {
        Self { left: maps, unread: MAX_BYTES }
    }

    /// What may be read of a map: of a longer one the end. None if it can't be read.
    pub(super) fn take(&mut self, file: &File) -> Option<Range<u64>> {
        // What one does not need is left to the others.
        let share = self.unread / self.left.max(1) as u64;
        self.left = self.left.saturating_sub(1);
        let size = file.metadata().ok()?.len();
        self.unread -= size.min(share);
        Some(size.saturating_sub(share)..size)
    }
}

/// Names addresses, in their order, by a range of a map. Where its lines overlap, the later line is right,
/// so it is read from its end: whatever is left unread can't take back a name.
pub(super) fn name(
    file: &File,
    range: Range<u64>,
    wanted: &[Wanted],
    shortfalls: &mut Shortfalls,
    names: &mut Names,
) {
    let is_cut = range.start > 0;
    let mut nameless = Nameless::new(wanted);
    // Of a file that became shorter no more is read: it is another one by now.
    let _shrunk = backwards::lines(file, range, |line| {
        if let Some((start, size, function)) = parse(line) {
            nameless.take(start, size, |wanted| {
                let text = cut(&String::from_utf8_lossy(function));
                let ScriptName { function, file, line } = take_apart(&text);
                let (name, file) = (function.to_owned(), file.and_then(|f| names.file(f)));
                names.set(wanted.frame, vec![Function { name, file, line }]);
            });
        }
        match nameless.left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    if is_cut && nameless.left > 0 {
        count(shortfalls, "symbols_perf_maps_cut");
    }
}

enum Attempt {
    Opened(File),
    Absent,
    Refused,
}

impl PerfMaps {
    pub(super) fn new() -> Self {
        Self { maps: HashMap::new(), added: 0, open: 0, refused: 0, over_limit: 0 }
    }

    /// Makes room for another one.
    pub(super) fn add(&mut self) -> Option<PerfMapId> {
        if self.maps.len() >= MAX_MAPS {
            self.over_limit += 1;
            return None;
        }
        self.added = self.added.checked_add(1)?;
        let id = PerfMapId(self.added);
        self.maps.insert(id, PerfMap::default());
        Some(id)
    }

    /// Its program has ended: what was not opened never will be.
    pub(super) fn end(&mut self, id: PerfMapId) {
        if self.maps.get(&id).is_some_and(|map| map.file.is_none()) {
            self.maps.remove(&id);
        }
    }

    /// Opens the file of a process, if that was not done or tried just now.
    pub(super) fn open(&mut self, id: PerfMapId, tgid: Tgid) {
        let tried = self.maps.get(&id).and_then(|map| map.tried);
        if tried.is_none_or(|tried| now().since(tried) >= RETRY) {
            self.open_now(id, tgid);
        }
    }

    /// Opens the file of a process, if that was not done.
    pub(super) fn open_now(&mut self, id: PerfMapId, tgid: Tgid) {
        let Some(map) = self.maps.get_mut(&id) else { return };
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
            Attempt::Refused => {
                map.refused = true;
                self.refused += 1;
            }
            Attempt::Absent => {}
        }
    }

    /// The file of a map, if there is one.
    pub(super) fn file(&self, id: PerfMapId) -> Option<File> {
        self.maps.get(&id)?.file.as_ref()?.try_clone().ok()
    }

    pub(super) fn add_shortfalls(&self, all: &mut Shortfalls) {
        let counted = [
            ("symbols_perf_maps_refused", self.refused),
            ("symbols_perf_maps_over_limit", self.over_limit),
        ];
        for (name, count) in counted.into_iter().filter(|(_, count)| *count > 0) {
            *all.entry(name).or_default() += count;
        }
    }
}

/// Addresses that have no name yet. Each is taken once, so that it does not matter how many lines
/// claim it.
struct Nameless<'a> {
    wanted: &'a [Wanted],
    /// For each its own index, or one on the way to the next that has no name.
    next: Vec<usize>,
    left: usize,
}

impl<'a> Nameless<'a> {
    /// All of these, which are in the order of their addresses.
    fn new(wanted: &'a [Wanted]) -> Self {
        Self { wanted, next: (0..=wanted.len()).collect(), left: wanted.len() }
    }

    /// Takes those in a range of addresses.
    fn take(&mut self, start: u64, size: u64, mut take: impl FnMut(&Wanted)) {
        let mut index = self.wanted.partition_point(|wanted| wanted.at < start);
        loop {
            index = self.nameless_from(index);
            let Some(wanted) = self.wanted.get(index) else { return };
            if wanted.at - start >= size {
                return;
            }
            take(wanted);
            self.next[index] = index + 1;
            self.left -= 1;
        }
    }

    fn nameless_from(&mut self, mut index: usize) -> usize {
        while self.next[index] != index {
            self.next[index] = self.next[self.next[index]];
            index = self.next[index];
        }
        index
    }
}

/// `START SIZE name`, numbers in hex.
fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut fields = line.trim_ascii().splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let text = std::str::from_utf8(fields.next()?).ok()?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = fields.next()?.trim_ascii();
    (!name.is_empty()).then_some((start, size, name))
}

/// Opens a process's map inside of its own root, if the process itself can have written it: anybody
/// can put a file of that name into `/tmp`.
fn attempt(tgid: Tgid) -> Attempt {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{tgid}/status")) else {
        return Attempt::Absent;
    };
    // The file is named after the number that the process knows itself by.
    let inner = field(&status, "NStgid:").and_then(|ids| ids.split_ascii_whitespace().next_back());
    let inner = inner.and_then(|id| id.parse().ok()).unwrap_or(tgid.0);

    let Ok(root) = OwnRoot::of(tgid) else { return Attempt::Absent };
    let held = match root.open(&format!("tmp/perf-{inner}.map"), LastLink::Kept) {
        Ok(held) => held,
        Err(rustix::io::Errno::NOENT) => return Attempt::Absent,
        Err(_) => return Attempt::Refused,
    };
    let Ok(stat) = rustix::fs::fstat(&held) else { return Attempt::Absent };
    let is_owned = stat.st_uid == 0 || effective_user(&status) == Some(stat.st_uid);
    // Writable by everybody says nothing about who wrote it.
    if !is_owned || stat.st_mode & 0o002 != 0 {
        return Attempt::Refused;
    }
    identify::open(&held).map_or(Attempt::Refused, Attempt::Opened)
}

/// A line of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// Whose files a process makes. Who has started a setuid program is another user.
fn effective_user(status: &str) -> Option<u32> {
    // Real, effective, saved and filesystem user.
    field(status, "Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, io::Write as _, time::Instant};

    use super::*;
    use crate::recording::FrameId;

    /// A perf map with this text.
    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    /// By all of a file.
    fn names_of(file: &File, addresses: &[u64]) -> Vec<String> {
        names_by(file, 0..file.metadata().unwrap().len(), addresses).0
    }

    fn names_by(file: &File, range: Range<u64>, addresses: &[u64]) -> (Vec<String>, Shortfalls) {
        let wanted: Vec<_> =
            (0..).map(FrameId).zip(addresses).map(|(frame, &at)| Wanted { frame, at }).collect();
        let (mut names, mut shortfalls) = (Names::new(), Shortfalls::new());
        name(file, range, &wanted, &mut shortfalls, &mut names);
        let mut of_all = vec![String::new(); addresses.len()];
        for (frame, functions) in names.into_vec() {
            let names: Vec<_> = functions.iter().map(|function| function.name.as_str()).collect();
            of_all[frame.0 as usize] = names.join(" ");
        }
        (of_all, shortfalls)
    }

    #[test]
    fn of_lines_that_overlap_the_later_is_right() {
        let text =
            "0 100 all\n10 20 old\n18 8 new\n30 0 nothing\nffffffffffffffff 8 last\n40 8 hal";
        let addresses = [0, 0xf, 0x10, 0x18, 0x1f, 0x20, 0x20, 0x30, 0x40, 0x100, u64::MAX];
        let names = names_of(&file(text), &addresses);
        let expected = ["all", "all", "old", "new", "new", "old", "old", "all", "all", "", "last"];
        assert_eq!(names, expected);
        assert_eq!(names_of(&file(text), &[]), [""; 0]);
    }

    #[test]
    fn lines_that_claim_everything_again_and_again_take_no_longer_than_others() {
        let mut text = String::from("0 ffffffffffffffff first\n");
        for n in 0..200_000 {
            let _infallible = writeln!(text, "1 fffffffffffffff0 {n}");
        }
        let file = file(&text);
        // The first one is named by the first line alone: all of them are read.
        let addresses: Vec<u64> = (0..50_000).collect();
        let began = Instant::now();
        let names = names_of(&file, &addresses);
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
        assert_eq!(names[0], "first");
        assert!(names[1..].iter().all(|name| name == "199999"));
    }

    #[test]
    fn of_a_file_that_is_too_long_the_end_is_read() {
        let text = format!("10 8 first\n{:1000}\n20 8 last\n", "");
        let cut = [("symbols_perf_maps_cut", 1)].into();
        let cases = [
            (1500, &[0x10, 0x20][..], &["", "last"][..], cut),
            // Nothing that is wanted is in what is left out.
            (1500, &[0x20], &["last"], Shortfalls::new()),
            (3300, &[0x10, 0x20], &["first", "last"], Shortfalls::new()),
        ];
        for (unread, addresses, expected, shortfalls) in cases {
            let (mut budget, file) = (Budget { unread, ..Budget::of(3) }, file(&text));
            let range = budget.take(&file).unwrap();
            assert_eq!(budget.unread, unread - (text.len() as u64).min(unread / 3));
            let (names, counted) = names_by(&file, range, addresses);
            assert_eq!(names, expected);
            assert_eq!(counted, shortfalls);
        }
    }

    #[test]
    fn the_owner_of_a_map_is_who_the_process_acts_for() {
        let status = "Name:\tUid: 7\nUid:\t1000\t33\t0\t1000\nGid:\t5\t5\t5\t5\n";
        assert_eq!(effective_user(status), Some(33));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }

    #[test]
    fn lines_are_read_and_garbage_is_not() {
        assert_eq!(
            parse(b"7f00aa10 2f py::main:/a b.py\n"),
            Some((0x7f00aa10, 0x2f, &b"py::main:/a b.py"[..]))
        );
        assert_eq!(parse(b"0x10 0x8 f\r\n"), Some((16, 8, &b"f"[..])));
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
