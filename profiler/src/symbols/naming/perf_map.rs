//! Names of code that a JIT wrote, by its perf map, `/tmp/perf-PID.map`.
//!
//! Format:
//! <https://github.com/torvalds/linux/blob/v6.12/tools/perf/Documentation/jit-interface.txt>

use std::{
    fs::File,
    ops::{ControlFlow, Range},
    os::fd::AsFd,
};

use offwake_recording::{
    Function,
    loss::{Diagnostics, count},
};

use super::{
    names::NameTable,
    reverse_lines,
    script_names::{ScriptName, parse_script_name},
};
use crate::symbols::{
    address_spaces::held_file::FileIdentity, frame_table::UnnamedFrame, name_limit::cut_name,
};

/// Bytes that are read of all files together: as many lines as fit into them take some 5 s.
const MAX_BYTES: u64 = 512 << 20;
/// How much may be read of the maps of one request.
pub(crate) struct ReadBudget {
    /// Maps that are still to be read.
    left: usize,
    /// Bytes that may still be read.
    unread: u64,
}

impl ReadBudget {
    pub(crate) fn for_maps(maps: usize) -> Self {
        Self { left: maps, unread: MAX_BYTES }
    }

    /// The part of a map that may be read: of a longer map its end. None if nothing is known of
    /// the file.
    pub(crate) fn range(&mut self, held: impl AsFd) -> Option<Range<u64>> {
        // What one map does not need is left to the others.
        let share = self.unread / self.left.max(1) as u64;
        self.left = self.left.saturating_sub(1);
        let size = FileIdentity::from_file(held).ok()?.size();
        self.unread -= size.min(share);
        Some(size.saturating_sub(share)..size)
    }
}

/// Names addresses, in their order, by a range of a map. Where its lines overlap, the later line is
/// right, so it is read from its end: whatever is left unread can't take back a name.
pub(crate) fn name_frames(
    file: &File,
    range: Range<u64>,
    wanted: &[UnnamedFrame],
    diagnostics: &mut Diagnostics,
    names: &mut NameTable,
) {
    let is_cut = range.start > 0;
    let mut nameless = Nameless::new(wanted);
    // A file that became shorter is not read further: it has other content by now.
    let _shrunk = reverse_lines::read(file, range, |line| {
        if let Some((start, size, function)) = parse(line) {
            nameless.name_range(start, size, |wanted| {
                let text = cut_name(&String::from_utf8_lossy(function));
                let ScriptName { function, file, line } = parse_script_name(&text);
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
        count(diagnostics, "symbols_perf_maps_cut");
    }
}

/// Addresses that have no name yet. Each is named once, so that it does not matter how many lines
/// claim it.
struct Nameless<'a> {
    wanted: &'a [UnnamedFrame],
    /// For each its own index, or one on the way to the next that has no name.
    next: Vec<usize>,
    left: usize,
}

impl<'a> Nameless<'a> {
    /// All of these, which are in the order of their addresses.
    fn new(wanted: &'a [UnnamedFrame]) -> Self {
        Self { wanted, next: (0..=wanted.len()).collect(), left: wanted.len() }
    }

    /// Names those in a range of addresses.
    fn name_range(&mut self, start: u64, size: u64, mut name: impl FnMut(&UnnamedFrame)) {
        let mut index = self.wanted.partition_point(|wanted| wanted.at < start);
        loop {
            index = self.nameless_from(index);
            let Some(wanted) = self.wanted.get(index) else { return };
            if wanted.at - start >= size {
                return;
            }
            name(wanted);
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

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, io::Write as _, time::Instant};

    use super::*;
    use offwake_recording::FrameId;

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

    fn names_by(file: &File, range: Range<u64>, addresses: &[u64]) -> (Vec<String>, Diagnostics) {
        let wanted: Vec<_> = (0..)
            .map(FrameId)
            .zip(addresses)
            .map(|(frame, &at)| UnnamedFrame { frame, at })
            .collect();
        let (mut names, mut diagnostics) = (NameTable::new(), Diagnostics::new());
        name_frames(file, range, &wanted, &mut diagnostics, &mut names);
        let mut of_all = vec![String::new(); addresses.len()];
        for (frame, functions) in names.into_vec() {
            let names: Vec<_> = functions.iter().map(|function| function.name.as_str()).collect();
            of_all[frame.0 as usize] = names.join(" ");
        }
        (of_all, diagnostics)
    }

    #[test]
    fn the_later_of_overlapping_lines_is_right() {
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
    fn the_end_of_a_file_that_is_too_long_is_read() {
        let text = format!("10 8 first\n{:1000}\n20 8 last\n", "");
        let cut = [("symbols_perf_maps_cut", 1)].into();
        let cases = [
            (1500, &[0x10, 0x20][..], &["", "last"][..], cut),
            // Nothing that is wanted is in what is left out.
            (1500, &[0x20], &["last"], Diagnostics::new()),
            (3300, &[0x10, 0x20], &["first", "last"], Diagnostics::new()),
        ];
        for (unread, addresses, expected, diagnostics) in cases {
            let (mut budget, file) =
                (ReadBudget { unread, ..ReadBudget::for_maps(3) }, file(&text));
            let range = budget.range(&file).unwrap();
            assert_eq!(budget.unread, unread - (text.len() as u64).min(unread / 3));
            let (names, counted) = names_by(&file, range, addresses);
            assert_eq!(names, expected);
            assert_eq!(counted, diagnostics);
        }
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
