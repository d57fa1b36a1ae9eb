//! Go's own table of its functions, which a program has even if it was stripped, as Go 1.16 to 1.25
//! write it. Frames are both named and unwound by it. Whoever made a file decides what is in it:
//! nothing is believed, and a lookup takes a limited time.
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

use crate::little_endian::{u32_at, u64_at};

/// The names of the table's section, in an executable at a fixed address and in others.
pub const SECTION_NAMES: [&[u8]; 2] = [b".gopclntab", b".data.rel.ro.gopclntab"];
/// Where in the table the start of the code is, for the loader to write.
pub const TEXT_START: u64 = 24;
/// Bytes of a text that are looked at.
const MAX_TEXT: usize = 4096;
/// Steps in the table of one function.
pub const MAX_FUNCTION_STEPS: u32 = 200_000;

/// How the table is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableVersion {
    /// Go 1.16 and 1.17.
    Go116,
    /// Go 1.18 and 1.19.
    Go118,
    /// Go 1.20 and later.
    Go120,
}

/// The table of one program, for machines with pointers of 64 bits in little-endian order.
#[derive(Clone, Copy, Debug)]
pub struct FunctionTable<'a> {
    /// How the table is laid out.
    pub version: TableVersion,
    /// How many bytes the steps of a pc stand for.
    quantum: u64,
    /// The number of functions.
    count: usize,
    /// The address that the header says entries are counted from; 0 if the loader is to write it.
    pub text_start: u64,
    names: &'a [u8],
    units: &'a [u8],
    files: &'a [u8],
    values: &'a [u8],
    /// The functab, and the records behind it.
    functions: &'a [u8],
}

/// A function's record.
#[derive(Clone, Copy, Debug)]
pub struct FunctionRecord<'a> {
    version: TableVersion,
    /// Where the function begins, counted as the table's entries are.
    pub entry: u64,
    bytes: &'a [u8],
}

impl<'a> FunctionTable<'a> {
    /// Parses the header. None if there is no such table.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let version = match u32_at(bytes, 0)? {
            0xffff_fffa => TableVersion::Go116,
            0xffff_fff0 => TableVersion::Go118,
            0xffff_fff1 => TableVersion::Go120,
            _ => return None,
        };
        let &[0, 0, quantum, 8] = bytes.get(4..8)? else { return None };
        let word = |n: usize| u64_at(bytes, 8 + 8 * n);
        let part = |n| bytes.get(usize::try_from(word(n)?).ok()?..);
        let (first, text_start) = match version {
            TableVersion::Go116 => (2, 0),
            TableVersion::Go118 | TableVersion::Go120 => (3, word(2)?),
        };
        Some(Self {
            version,
            quantum: quantum.into(),
            count: usize::try_from(word(0)?).ok()?,
            text_start,
            names: part(first)?,
            units: part(first + 1)?,
            files: part(first + 2)?,
            values: part(first + 3)?,
            functions: part(first + 4)?,
        })
    }

    /// Where the code begins and ends.
    #[must_use]
    pub fn bounds(&self) -> Option<(u64, u64)> {
        Some((self.entry(0)?, self.entry(self.count)?))
    }

    /// The function that a pc is in, counted as the table's entries are.
    #[must_use]
    pub fn function(&self, pc: u64) -> Option<FunctionRecord<'a>> {
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
        let bytes = self.functions.get(self.record(index)?..)?;
        Some(FunctionRecord { version: self.version, entry, bytes })
    }

    /// The name of a function.
    #[must_use]
    pub fn name(&self, record: FunctionRecord) -> Option<&'a [u8]> {
        text_at(self.names, record.field(1)?).filter(|name| !name.is_empty())
    }

    /// A file of the compilation unit of a function.
    #[must_use]
    pub fn file(&self, record: FunctionRecord, number: u32) -> Option<&'a [u8]> {
        let index = record.field(8)?.checked_add(number)?;
        let offset = u32_at(self.units, usize::try_from(index).ok()?.checked_mul(4)?)?;
        text_at(self.files, offset).filter(|file| !file.is_empty())
    }

    /// The value that a table of values has for a pc of a function. None also if no step is left of
    /// those that the lookup may take.
    pub fn value(
        &self,
        table: u32,
        record: FunctionRecord,
        pc: u64,
        steps_left: &mut u64,
    ) -> Option<i32> {
        let mut bytes = self.values.get(usize::try_from(table).ok()?..)?;
        let (mut value, mut until) = (-1_i32, record.entry);
        for step in 0..MAX_FUNCTION_STEPS {
            *steps_left = steps_left.checked_sub(1)?;
            let difference = read_varint(&mut bytes)?;
            if difference == 0 && step > 0 {
                return None;
            }
            // 0, -1, 1, -2, 2 and so on.
            let half = (difference >> 1).cast_signed();
            value = value.wrapping_add(if difference & 1 == 1 { !half } else { half });
            let length = u64::from(read_varint(&mut bytes)?).checked_mul(self.quantum)?;
            until = until.checked_add(length)?;
            if pc < until {
                return Some(value);
            }
        }
        None
    }

    /// Where a function begins, or behind the last one where the code ends.
    fn entry(&self, index: usize) -> Option<u64> {
        match self.version {
            TableVersion::Go116 => u64_at(self.functions, index.checked_mul(16)?),
            _ => u32_at(self.functions, index.checked_mul(8)?).map(u64::from),
        }
    }

    fn record(&self, index: usize) -> Option<usize> {
        match self.version {
            TableVersion::Go116 => {
                usize::try_from(u64_at(self.functions, index.checked_mul(16)?.checked_add(8)?)?)
                    .ok()
            }
            _ => {
                let at = index.checked_mul(8)?.checked_add(4)?;
                usize::try_from(u32_at(self.functions, at)?).ok()
            }
        }
    }
}

impl FunctionRecord<'_> {
    /// A field of the record by its number: number 1 is behind the function's entry.
    #[must_use]
    pub fn field(&self, n: u32) -> Option<u32> {
        u32_at(self.bytes, self.at(n)?)
    }

    /// The function's flags: the second of the four bytes behind the fields. None before Go 1.18:
    /// Go 1.16 has no flags, and the tables of 1.17 look the same.
    #[must_use]
    pub fn flags(&self) -> Option<u8> {
        (self.version > TableVersion::Go116).then_some(())?;
        self.bytes.get(self.at(self.fields().checked_add(1)?)?.checked_add(1)?).copied()
    }

    /// Where a table of values begins that is not one of the fields; 0 if there is none.
    #[must_use]
    pub fn table(&self, number: u32) -> Option<u32> {
        if self.field(7)? <= number {
            return Some(0);
        }
        // Behind the fields are the kind and the flags.
        self.field(self.fields().checked_add(2)?.checked_add(number)?)
    }

    fn fields(&self) -> u32 {
        if self.version == TableVersion::Go120 { 9 } else { 8 }
    }

    fn at(&self, n: u32) -> Option<usize> {
        let entry = if self.version == TableVersion::Go116 { 8 } else { 4 };
        usize::try_from(n.checked_sub(1)?).ok()?.checked_mul(4)?.checked_add(entry)
    }
}

/// Reads a text up to its zero.
fn text_at(bytes: &[u8], at: u32) -> Option<&[u8]> {
    let text = bytes.get(usize::try_from(at).ok()?..)?;
    let text = text.get(..MAX_TEXT).unwrap_or(text);
    text.iter().position(|&byte| byte == 0).and_then(|end| text.get(..end))
}

/// Reads a number off the front: seven bits in each byte, the lowest first.
fn read_varint(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
