//! Go's table of functions, files and lines by program counter, as Go 1.16 to 1.25 write it. Who made a
//! file says what is in it: nothing is believed, and a look-up takes a limited time.
//!
//! ```text
//! header  magic, size of a pointer, counts, the start of the code, where the other parts are
//! names   texts, each with a zero behind it        functab  (entry, where its record is), by entry
//! files   texts                                    record   name, tables of values by pc, …
//! cutab   of each unit of compilation, its files   pctab    (value's step, pc's step), as varints
//! ```
//!
//! <https://github.com/golang/go/blob/go1.22.0/src/debug/gosym/pclntab.go> and
//! <https://github.com/golang/go/blob/go1.22.0/src/runtime/runtime2.go>, `_func`

use std::ops::Range;

use crate::go_numbers::{u32_at, u64_at, varint};

/// Where in the table the start of the code is, for the loader to write.
pub(super) const TEXT_START: u64 = 24;
/// Bytes of a text that are looked at.
const MAX_TEXT: usize = 4096;
/// Steps in tables of values that are taken for one program. A function has some hundred of them.
const MAX_STEPS: u64 = 100_000_000;
/// Steps in the table of one function.
const MAX_FUNCTION_STEPS: u32 = 200_000;
/// Bytes that a linker may leave free at the end of the code.
const MAX_PADDING: u64 = 64;
/// The table of a record that says of each pc what is inlined there.
///
/// <https://github.com/golang/go/blob/go1.22.0/src/internal/abi/symtab.go>
const INLINE_TREE: u32 = 2;

/// How the table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go116,
    Go118,
    Go120,
}

/// Whether files and lines are looked up too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    Wanted,
    LeftOut,
}

/// What was found at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub name: &'a [u8],
    /// None where another function is inlined: the line would be that one's.
    pub file: Option<&'a [u8]>,
    pub line: Option<u32>,
}

/// The table of one program, for machines with pointers of 64 bits in little-endian order.
#[derive(Debug)]
pub(super) struct Table<'a> {
    version: Version,
    /// How many bytes the steps of a pc stand for.
    quantum: u64,
    /// Functions.
    count: usize,
    /// What entries are counted from.
    base: u64,
    names: &'a [u8],
    units: &'a [u8],
    files: &'a [u8],
    values: &'a [u8],
    /// The functab, and the records behind it.
    functions: &'a [u8],
    steps_left: u64,
}

impl<'a> Table<'a> {
    /// Reads the header. `text` is the section of code, `text_start` what the loader will write into the
    /// header as the start of Go's own. None if there is no such table, or if it is of other code.
    pub(super) fn parse(
        bytes: &'a [u8],
        text: Range<u64>,
        text_start: Option<u64>,
    ) -> Option<Self> {
        let version = match u32_at(bytes, 0)? {
            0xffff_fffa => Version::Go116,
            0xffff_fff0 => Version::Go118,
            0xffff_fff1 => Version::Go120,
            _ => return None,
        };
        let &[0, 0, quantum, 8] = bytes.get(4..8)? else { return None };
        let word = |n: usize| u64_at(bytes, 8 + 8 * n);
        let part = |n| bytes.get(usize::try_from(word(n)?).ok()?..);
        let count = usize::try_from(word(0)?).ok()?;
        let first = match version {
            Version::Go116 => 2,
            Version::Go118 | Version::Go120 => 3,
        };
        let mut table = Self {
            version,
            quantum: quantum.into(),
            count,
            base: 0,
            names: part(first)?,
            units: part(first + 1)?,
            files: part(first + 2)?,
            values: part(first + 3)?,
            functions: part(first + 4)?,
            steps_left: MAX_STEPS,
        };
        let (start, end) = (table.entry(0)?, table.entry(count)?);
        if version > Version::Go116 {
            // What C code was linked in lies before Go's; the section's own start would do without.
            let written = Some(word(2)?).filter(|start| *start > 0).or(text_start);
            let is_all_go = text.end.checked_sub(text.start)?.checked_sub(end)? < MAX_PADDING;
            table.base = written.or(is_all_go.then_some(text.start))?;
        }
        let start = table.base.checked_add(start)?;
        let end = table.base.checked_add(end)?;
        (text.start <= start && start <= end && end <= text.end).then_some(table)
    }

    /// The function at an address.
    pub(super) fn find(&mut self, address: u64, lines: Lines) -> Option<Found<'a>> {
        let pc = address.checked_sub(self.base)?;
        let (mut low, mut high) = (0, self.count);
        // The last entry at or before the pc. The one behind the last is where the code ends.
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? <= pc {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let index = low.checked_sub(1)?;
        let entry = self.entry(index)?;
        if !(entry..self.entry(index + 1)?).contains(&pc) {
            return None;
        }
        let record = self.functions.get(self.record(index)?..)?;
        let name = text_at(self.names, self.field(record, 1)?).filter(|name| !name.is_empty())?;
        let nameless = Found { name, file: None, line: None };
        if lines == Lines::LeftOut {
            return Some(nameless);
        }
        let place = self.place(record, entry, pc);
        Some(place.map_or(nameless, |(file, line)| Found { name, file: Some(file), line }))
    }

    /// The file and the line of a pc; none if it is of an inlined function.
    fn place(&mut self, record: &[u8], entry: u64, pc: u64) -> Option<(&'a [u8], Option<u32>)> {
        if self.is_inlined(record, entry, pc)? {
            return None;
        }
        let number = self.value(self.field(record, 5)?, entry, pc)?;
        let line = self.value(self.field(record, 6)?, entry, pc)?;
        let of_unit = self.field(record, 8)?.checked_add(u32::try_from(number).ok()?)?;
        let offset = u32_at(self.units, usize::try_from(of_unit).ok()?.checked_mul(4)?)?;
        let file = text_at(self.files, offset).filter(|file| !file.is_empty())?;
        Some((file, u32::try_from(line).ok().filter(|line| *line > 0)))
    }

    fn is_inlined(&mut self, record: &[u8], entry: u64, pc: u64) -> Option<bool> {
        if self.field(record, 7)? <= INLINE_TREE {
            return Some(false);
        }
        // Behind the fields are four bytes of flags, then where each table of values begins.
        let fields = if self.version == Version::Go120 { 9 } else { 8 };
        match self.field(record, fields + 2 + INLINE_TREE)? {
            0 => Some(false),
            table => Some(self.value(table, entry, pc)? >= 0),
        }
    }

    /// Where a function begins, or behind the last one where the code ends.
    fn entry(&self, index: usize) -> Option<u64> {
        match self.version {
            Version::Go116 => u64_at(self.functions, index.checked_mul(16)?),
            _ => u32_at(self.functions, index.checked_mul(8)?).map(u64::from),
        }
    }

    fn record(&self, index: usize) -> Option<usize> {
        match self.version {
            Version::Go116 => {
                usize::try_from(u64_at(self.functions, index.checked_mul(16)?.checked_add(8)?)?)
                    .ok()
            }
            _ => {
                let at = index.checked_mul(8)?.checked_add(4)?;
                usize::try_from(u32_at(self.functions, at)?).ok()
            }
        }
    }

    /// A field of a record: the first is behind the function's entry.
    fn field(&self, record: &[u8], n: u32) -> Option<u32> {
        let entry = if self.version == Version::Go116 { 8 } else { 4 };
        u32_at(record, entry + 4 * usize::try_from(n.checked_sub(1)?).ok()?)
    }

    /// The value that a table has for a pc.
    fn value(&mut self, table: u32, entry: u64, pc: u64) -> Option<i32> {
        let mut bytes = self.values.get(usize::try_from(table).ok()?..)?;
        let (mut value, mut until) = (-1_i32, entry);
        for step in 0..MAX_FUNCTION_STEPS {
            self.steps_left = self.steps_left.checked_sub(1)?;
            let difference = varint(&mut bytes)?;
            if difference == 0 && step > 0 {
                return None;
            }
            let half = (difference >> 1).cast_signed();
            value = value.wrapping_add(if difference & 1 == 1 { !half } else { half });
            let length = u64::from(varint(&mut bytes)?).checked_mul(self.quantum)?;
            until = until.checked_add(length)?;
            if pc < until {
                return Some(value);
            }
        }
        None
    }
}

/// A text up to its zero.
fn text_at(bytes: &[u8], at: u32) -> Option<&[u8]> {
    let text = bytes.get(usize::try_from(at).ok()?..)?;
    let text = text.get(..MAX_TEXT).unwrap_or(text);
    text.iter().position(|&byte| byte == 0).and_then(|end| text.get(..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Range<u64> = 0x1000..0x1100;
    const VERSIONS: [Version; 3] = [Version::Go116, Version::Go118, Version::Go120];

    /// A table of two functions of 0x80 bytes: `a.F` on line 7 of `/f.go`, and `a.G`, the second half of
    /// which is an inlined function's.
    fn table(version: Version, text_start: u64) -> Vec<u8> {
        let names = b"\0a.F\0a.G\0";
        let units = 0_u32.to_le_bytes();
        let files = b"/f.go\0";
        // -1 + 1 = file 0; -1 + 8 = line 7; nothing (a step of 0), then tree 0. Each up to 0x80.
        let values = [0, 2, 0x80, 1, 0, 16, 0x80, 1, 0, 0, 0x40, 2, 0x40, 0];
        let (file, line, tree) = (1_u32, 5_u32, 9_u32);
        let is_old = version == Version::Go116;
        let entry = |index: u64| match is_old {
            true => (TEXT.start + 0x80 * index).to_le_bytes().to_vec(),
            false => (0x80 * index as u32).to_le_bytes().to_vec(),
        };
        let word = |value: u64| match is_old {
            true => value.to_le_bytes().to_vec(),
            false => (value as u32).to_le_bytes().to_vec(),
        };
        let record = |index: u64, name: u32| {
            let mut record = entry(index);
            for field in [name, 0, 0, 0, file, line, 3, 0] {
                record.extend(field.to_le_bytes());
            }
            if version == Version::Go120 {
                record.extend(7_u32.to_le_bytes());
            }
            record.extend([0; 12]);
            record.extend(if index == 1 { tree } else { 0 }.to_le_bytes());
            record
        };
        let of_functab = if is_old { 5 * 8 } else { 5 * 4 };
        let records = [record(0, 1), record(1, 5)];
        let mut functions = [entry(0), word(of_functab)].concat();
        functions.extend([entry(1), word(of_functab + records[0].len() as u64), entry(2)].concat());
        functions.extend(records.concat());

        let magic = match version {
            Version::Go116 => 0xffff_fffa_u32,
            Version::Go118 => 0xffff_fff0,
            Version::Go120 => 0xffff_fff1,
        };
        let mut bytes = magic.to_le_bytes().to_vec();
        bytes.extend([0, 0, 1, 8]);
        let mut words = if is_old { vec![2, 1] } else { vec![2, 1, text_start] };
        let mut at = (8 + 8 * (words.len() + 5)) as u64;
        for part in [&names[..], &units, files, &values, &functions] {
            words.push(at);
            at += part.len() as u64;
        }
        bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        for part in [&names[..], &units, files, &values, &functions] {
            bytes.extend(part);
        }
        bytes
    }

    fn found<'a>(name: &'a str, place: Option<(&'a str, u32)>) -> Option<Found<'a>> {
        Some(Found {
            name: name.as_bytes(),
            file: place.map(|(file, _)| file.as_bytes()),
            line: place.map(|(_, line)| line),
        })
    }

    #[test]
    fn each_version_is_read() {
        let line = Some(("/f.go", 7));
        for version in VERSIONS {
            let bytes = table(version, TEXT.start);
            let mut table = Table::parse(&bytes, TEXT, None).unwrap();
            let mut find = |address| table.find(address, Lines::Wanted);
            assert_eq!(find(0x1000), found("a.F", line), "{version:?}");
            assert_eq!(find(0x107f), found("a.F", line), "{version:?}");
            assert_eq!(find(0x10bf), found("a.G", line), "{version:?}");
            assert_eq!(find(0x10c0), found("a.G", None), "{version:?}");
            assert_eq!((find(0xfff), find(0x1100), find(u64::MAX)), (None, None, None));
            assert_eq!(table.find(0x1000, Lines::LeftOut), found("a.F", None));
        }
    }

    #[test]
    fn where_the_code_begins_is_told_or_certain() {
        let bytes = table(Version::Go118, 0);
        let start = |text, written| Some(Table::parse(&bytes, text, written)?.base);
        assert_eq!(start(0x1000..0x1110, None), Some(0x1000));
        // There is more in the section than Go's code, and nobody knows which part that is.
        assert_eq!(start(0x1000..0x2000, None), None);
        assert_eq!(start(0x1000..0x2000, Some(0x1800)), Some(0x1800));
        // It would lie outside.
        assert_eq!(start(0x1000..0x2000, Some(0x1f01)), None);
        assert_eq!(start(0x1000..0x10ff, None), None);
        assert_eq!(start(0x1000..0x2000, Some(u64::MAX)), None);
    }

    #[test]
    fn garbage_is_none() {
        let try_it = |bytes: &[u8]| {
            let Some(mut table) = Table::parse(bytes, TEXT, None) else { return };
            for address in TEXT {
                let _any = table.find(address, Lines::Wanted);
            }
        };
        for version in VERSIONS {
            let whole = table(version, TEXT.start);
            for length in 0..whole.len() {
                try_it(&whole[..length]);
            }
            for at in 0..whole.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[at] = value;
                    try_it(&bytes);
                }
            }
        }
    }

    #[test]
    fn a_table_without_an_end_is_left_after_a_while() {
        let mut bytes = table(Version::Go120, TEXT.start);
        // Values that go up for ever, and never reach the pc.
        let end = bytes.len() as u64;
        bytes[8 + 8 * 6..][..8].copy_from_slice(&end.to_le_bytes());
        bytes.push(0);
        bytes.extend([2, 0].repeat(1_000_000));
        let mut table = Table::parse(&bytes, TEXT, None).unwrap();
        table.steps_left = 3 * u64::from(MAX_FUNCTION_STEPS);
        assert_eq!(table.find(0x1000, Lines::Wanted), found("a.F", None));
        assert_eq!(table.steps_left, 2 * u64::from(MAX_FUNCTION_STEPS));
        for _ in 0..10 {
            assert_eq!(table.find(0x1000, Lines::Wanted), found("a.F", None));
        }
        assert_eq!(table.steps_left, 0);
    }
}
