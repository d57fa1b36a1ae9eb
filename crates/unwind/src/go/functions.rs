//! Names, files and lines by address, from Go's own table of functions.

use std::ops::Range;

use super::table::{FunctionRecord, FunctionTable, TableVersion};

/// Steps in tables of values that are read for one program. A function has some hundred of them.
const MAX_STEPS: u64 = 100_000_000;
/// Bytes that a linker may leave free at the end of the code.
const MAX_PADDING: u64 = 64;
/// The table of a record that says of each pc what is inlined there.
///
/// <https://github.com/golang/go/blob/go1.22.0/src/internal/abi/symtab.go>
const INLINE_TREE: u32 = 2;

/// Whether files and lines are looked up too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineLookup {
    /// Both are looked up.
    Wanted,
    /// Only names are looked up.
    LeftOut,
}

/// The function at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoFunction<'a> {
    /// The name of the function.
    pub name: &'a [u8],
    /// The source file. None where another function is inlined: the line would be that one's.
    pub file: Option<&'a [u8]>,
    /// The line in that file.
    pub line: Option<u32>,
}

/// The functions of one program by their addresses.
#[derive(Debug)]
pub struct GoFunctions<'a> {
    table: FunctionTable<'a>,
    /// The address that entries are counted from.
    base: u64,
    steps_left: u64,
}

impl<'a> GoFunctions<'a> {
    /// Parses the header. `text` is the section of code, `text_start` what the loader will write
    /// into the header as the start of Go's own. None if there is no such table, or if it is of
    /// other code.
    #[must_use]
    pub fn parse(bytes: &'a [u8], text: Range<u64>, text_start: Option<u64>) -> Option<Self> {
        let table = FunctionTable::parse(bytes)?;
        let (start, end) = table.bounds()?;
        let base = match table.version {
            TableVersion::Go116 => 0,
            TableVersion::Go118 | TableVersion::Go120 => {
                // C code that was linked in lies before Go's. Without any, the start of the section
                // is that of Go's code.
                let written = Some(table.text_start).filter(|start| *start > 0).or(text_start);
                let is_all_go = text.end.checked_sub(text.start)?.checked_sub(end)? < MAX_PADDING;
                written.or(is_all_go.then_some(text.start))?
            }
        };
        let (start, end) = (base.checked_add(start)?, base.checked_add(end)?);
        let is_inside = text.start <= start && start <= end && end <= text.end;
        is_inside.then_some(Self { table, base, steps_left: MAX_STEPS })
    }

    /// The function at an address.
    pub fn find(&mut self, address: u64, lines: LineLookup) -> Option<GoFunction<'a>> {
        let pc = address.checked_sub(self.base)?;
        let record = self.table.function(pc)?;
        let name = self.table.name(record)?;
        let source = match lines {
            LineLookup::Wanted => self.source_line(record, pc),
            LineLookup::LeftOut => None,
        };
        let (file, line) = source.map_or((None, None), |(file, line)| (Some(file), line));
        Some(GoFunction { name, file, line })
    }

    /// The file and the line of a pc, or none if that pc is of an inlined function.
    fn source_line(&mut self, record: FunctionRecord, pc: u64) -> Option<(&'a [u8], Option<u32>)> {
        let tree = record.table(INLINE_TREE)?;
        if tree != 0 && self.value(tree, record, pc)? >= 0 {
            return None;
        }
        let number = self.value(record.field(5)?, record, pc)?;
        let line = self.value(record.field(6)?, record, pc)?;
        let file = self.table.file(record, u32::try_from(number).ok()?)?;
        Some((file, u32::try_from(line).ok().filter(|line| *line > 0)))
    }

    fn value(&mut self, table: u32, record: FunctionRecord, pc: u64) -> Option<i32> {
        self.table.value(table, record, pc, &mut self.steps_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::go::table::MAX_FUNCTION_STEPS;

    const TEXT: Range<u64> = 0x1000..0x1100;
    const VERSIONS: [TableVersion; 3] =
        [TableVersion::Go116, TableVersion::Go118, TableVersion::Go120];

    /// A table of two functions of 0x80 bytes: `a.F` on line 7 of `/f.go`, and `a.G`, the second
    /// half of which is an inlined function's.
    fn table(version: TableVersion, text_start: u64) -> Vec<u8> {
        let names = b"\0a.F\0a.G\0";
        let units = 0_u32.to_le_bytes();
        let files = b"/f.go\0";
        // -1 + 1 = file 0; -1 + 8 = line 7; nothing (a step of 0), then tree 0. Each up to 0x80.
        let values = [0, 2, 0x80, 1, 0, 16, 0x80, 1, 0, 0, 0x40, 2, 0x40, 0];
        let (file, line, tree) = (1_u32, 5_u32, 9_u32);
        let is_old = version == TableVersion::Go116;
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
            if version == TableVersion::Go120 {
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
            TableVersion::Go116 => 0xffff_fffa_u32,
            TableVersion::Go118 => 0xffff_fff0,
            TableVersion::Go120 => 0xffff_fff1,
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

    fn found<'a>(name: &'a str, place: Option<(&'a str, u32)>) -> Option<GoFunction<'a>> {
        Some(GoFunction {
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
            let mut table = GoFunctions::parse(&bytes, TEXT, None).unwrap();
            let mut find = |address| table.find(address, LineLookup::Wanted);
            assert_eq!(find(0x1000), found("a.F", line), "{version:?}");
            assert_eq!(find(0x107f), found("a.F", line), "{version:?}");
            assert_eq!(find(0x10bf), found("a.G", line), "{version:?}");
            assert_eq!(find(0x10c0), found("a.G", None), "{version:?}");
            assert_eq!((find(0xfff), find(0x1100), find(u64::MAX)), (None, None, None));
            assert_eq!(table.find(0x1000, LineLookup::LeftOut), found("a.F", None));
        }
    }

    #[test]
    fn where_the_code_begins_is_told_or_certain() {
        let bytes = table(TableVersion::Go118, 0);
        let start = |text, written| Some(GoFunctions::parse(&bytes, text, written)?.base);
        assert_eq!(start(0x1000..0x1110, None), Some(0x1000));
        // There is more in the section than Go's code, and nobody knows which part that is.
        assert_eq!(start(0x1000..0x2000, None), None);
        assert_eq!(start(0x1000..0x2000, Some(0x1800)), Some(0x1800));
        // The table would end behind the section.
        assert_eq!(start(0x1000..0x2000, Some(0x1f01)), None);
        assert_eq!(start(0x1000..0x10ff, None), None);
        assert_eq!(start(0x1000..0x2000, Some(u64::MAX)), None);
    }

    #[test]
    fn garbage_is_none() {
        let try_it = |bytes: &[u8]| {
            let Some(mut table) = GoFunctions::parse(bytes, TEXT, None) else { return };
            for address in TEXT {
                let _any = table.find(address, LineLookup::Wanted);
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
        let mut bytes = table(TableVersion::Go120, TEXT.start);
        // Values that go up for ever, and never reach the pc.
        let end = bytes.len() as u64;
        bytes[8 + 8 * 6..][..8].copy_from_slice(&end.to_le_bytes());
        bytes.push(0);
        bytes.extend([2, 0].repeat(1_000_000));
        let mut table = GoFunctions::parse(&bytes, TEXT, None).unwrap();
        table.steps_left = 3 * u64::from(MAX_FUNCTION_STEPS);
        assert_eq!(table.find(0x1000, LineLookup::Wanted), found("a.F", None));
        assert_eq!(table.steps_left, 2 * u64::from(MAX_FUNCTION_STEPS));
        for _ in 0..10 {
            assert_eq!(table.find(0x1000, LineLookup::Wanted), found("a.F", None));
        }
        assert_eq!(table.steps_left, 0);
    }
}
