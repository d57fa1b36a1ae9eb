//! Which line an instruction is of.

use super::offsets::LineFormat;

/// The lines of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    /// Where a line begins, in bytes of the code, and which it is. Instructions that a compiler
    /// added are of none.
    begins: Vec<(u32, Option<u32>)>,
    /// Where the last one ends.
    end: u32,
}

impl Lines {
    /// Reads a table of lines. What is no table gives some lines or none, as CPython itself would.
    pub(super) fn read(table: &[u8], format: LineFormat, first: u32) -> Self {
        let mut lines = Self::default();
        match format {
            LineFormat::Lnotab => lines.read_lnotab(table, first),
            LineFormat::Ranges => lines.read_ranges(table, first),
            LineFormat::Locations => lines.read_locations(table, first),
        }
        lines.begins.shrink_to_fit();
        lines
    }

    /// The line of the instruction at a byte of the code.
    pub(super) fn at(&self, byte: u32) -> Option<u32> {
        let after = self.begins.partition_point(|&(begin, _)| begin <= byte);
        let (_, line) = self.begins.get(after.checked_sub(1)?)?;
        line.filter(|_| byte < self.end)
    }

    /// Bytes of memory that it takes.
    pub(super) fn size(&self) -> usize {
        self.begins.len() * size_of::<(u32, Option<u32>)>()
    }

    fn begin(&mut self, line: Option<u32>) {
        // What was empty is of no line.
        if self.begins.last().is_some_and(|&(begin, _)| begin == self.end) {
            self.begins.pop();
        }
        if self.begins.last().is_none_or(|&(_, last)| last != line) {
            self.begins.push((self.end, line));
        }
    }

    fn extend(&mut self, bytes: u32) {
        self.end = self.end.saturating_add(bytes);
    }

    /// Pairs: so many bytes further there begins a line so many lines further.
    fn read_lnotab(&mut self, table: &[u8], mut line: u32) {
        self.begin(Some(line));
        for &[bytes, lines] in table.as_chunks().0 {
            self.extend(bytes.into());
            line = line.wrapping_add_signed(i8::from_le_bytes([lines]).into());
            self.begin(Some(line));
        }
        // The last line goes on to the end of the code.
        self.end = u32::MAX;
    }

    /// Pairs: so many bytes are of the line so many lines further, or of none.
    fn read_ranges(&mut self, table: &[u8], mut line: u32) {
        for &[bytes, lines] in table.as_chunks().0 {
            match i8::from_le_bytes([lines]) {
                i8::MIN => self.begin(None),
                lines => {
                    line = line.wrapping_add_signed(lines.into());
                    self.begin(Some(line));
                }
            }
            self.extend(bytes.into());
        }
    }

    /// Entries of some bytes each, the first one with its highest bit set, the others without: a
    /// code of four bits, and a length of three, in code units less one.
    fn read_locations(&mut self, table: &[u8], mut line: u32) {
        let mut rest = table;
        while let Some((&first, behind)) = rest.split_first() {
            let length = behind.iter().take_while(|&&byte| byte & 0x80 == 0).count();
            let (entry, next) = behind.split_at(length);
            rest = next;
            let lines = match first >> 3 & 0b1111 {
                15 => None,
                13 | 14 => Some(signed(entry)),
                code @ 10..13 => Some(i32::from(code) - 10),
                _ => Some(0),
            };
            line = line.wrapping_add_signed(lines.unwrap_or(0));
            self.begin(lines.map(|_| line));
            self.extend(2 * (u32::from(first & 0b111) + 1));
        }
    }
}

/// A number of six bits a byte, the lowest first; the seventh bit says that more follow. The lowest
/// bit of all is the sign.
fn signed(bytes: &[u8]) -> i32 {
    let mut number = 0u32;
    for (index, &byte) in (0u32..).zip(bytes) {
        let bits = u32::from(byte & 0x3f);
        number |= bits.checked_shl(6 * index).unwrap_or(0);
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = (number >> 1).cast_signed();
    if number & 1 == 1 { -magnitude } else { magnitude }
}
