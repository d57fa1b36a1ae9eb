//! Where the functions of a module begin, and where its code is.

use object::{
    ReadCache, ReadRef,
    elf::{SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC},
};

use crate::{
    little_endian::{u32_at, u64_at},
    recording::Segment,
    symbols::{
        headers::{self, Headers, Limited, Section},
        layout,
    },
    unwind::Content,
};

/// Bytes of a symbol of 64 bits.
const SYMBOL: usize = 24;
/// Bytes of a name that are looked at.
const MAX_NAME: usize = 4096;

/// Offsets in the file.
#[derive(Debug, Default)]
pub(super) struct Functions {
    code: Vec<Segment>,
    entry: Option<u64>,
    /// Sorted by where they begin. An end is that of the begin for what has no size.
    functions: Vec<(u64, u64)>,
}

impl Functions {
    /// None if it is no ELF file with code.
    pub(super) fn read(content: &Content) -> Option<Self> {
        match content {
            Content::File(file) => headers::read(&ReadCache::new(file), Self::of),
            Content::Image(bytes) => headers::read(&bytes[..], Self::of),
        }
    }

    fn of<'data, R: ReadRef<'data>>(headers: Headers, data: Limited<'_, R>) -> Option<Self> {
        let code: Vec<_> = layout::code(&headers).collect();
        let mut found = Self { code, entry: None, functions: Vec::new() };
        // `e_entry`
        let entry = data.read_bytes_at(24, 8).ok().and_then(|bytes| u64_at(bytes, 0));
        found.entry = entry.and_then(|entry| found.offset(entry));
        for section in &headers.sections {
            if matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM) {
                found.add(section, &headers, data);
            }
        }
        found.functions.sort_unstable();
        // Of what begins at one place, the longest.
        found.functions.reverse();
        found.functions.dedup_by_key(|(begin, _)| *begin);
        found.functions.reverse();
        found.functions.shrink_to_fit();
        Some(found)
    }

    fn add<'data, R: ReadRef<'data>>(
        &mut self,
        section: &Section,
        headers: &Headers,
        data: Limited<'_, R>,
    ) -> Option<()> {
        let names = headers.sections.get(usize::try_from(section.link).ok()?)?;
        let symbols = data.read_bytes_at(section.offset, section.size).ok()?;
        let names = data.read_bytes_at(names.offset, names.size).ok()?;
        for symbol in symbols.as_chunks::<SYMBOL>().0 {
            let is_function = matches!(symbol[4] & 0xf, STT_FUNC | STT_GNU_IFUNC);
            let Some(name) = u32_at(symbol, 0).and_then(|at| names.get(at as usize..)) else {
                continue;
            };
            if !is_function || is_split_off(name) {
                continue;
            }
            let (Some(address), Some(size)) = (u64_at(symbol, 8), u64_at(symbol, 16)) else {
                continue;
            };
            // What is not defined here has the address 0.
            let Some(begin) = self.offset(address).filter(|_| address != 0) else { continue };
            self.functions.push((begin, begin.checked_add(size)?));
        }
        Some(())
    }

    fn offset(&self, address: u64) -> Option<u64> {
        self.code.iter().find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.size).then(|| segment.offset.checked_add(within))?
        })
    }

    /// Where the function begins that an offset is in, as symbols have it.
    pub(super) fn begin(&self, offset: u64) -> Option<u64> {
        let behind = self.functions.partition_point(|&(begin, _)| begin <= offset);
        let &(begin, end) = self.functions.get(behind.checked_sub(1)?)?;
        (begin == end || offset < end).then_some(begin)
    }

    /// The program's first instruction.
    pub(super) fn entry(&self) -> Option<u64> {
        self.entry
    }

    /// The code that an offset is in.
    pub(super) fn segment(&self, offset: u64) -> Option<&Segment> {
        (self.code.iter())
            .find(|code| offset.checked_sub(code.offset).is_some_and(|within| within < code.size))
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(u64, u64)> {
        self.functions.clone()
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.functions.len() * size_of::<(u64, u64)>()
    }
}

/// Whether a symbol is that of a part of a function, which is jumped to in the middle of things.
///
/// <https://gcc.gnu.org/onlinedocs/gcc-12.2.0/gcc/Optimize-Options.html>, `-freorder-blocks-and-partition`
fn is_split_off(name: &[u8]) -> bool {
    let name = name.get(..MAX_NAME).unwrap_or(name);
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    name.windows(5).any(|part| part == b".cold")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_function_are_no_functions() {
        for name in ["f.cold\0", "f.cold.1\0g", "f.cold"] {
            assert!(is_split_off(name.as_bytes()), "{name}");
        }
        for name in ["f\0g.cold\0", "f.part.0\0", "", "\0"] {
            assert!(!is_split_off(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn an_offset_is_in_the_function_that_begins_last() {
        let functions = vec![(0x10, 0x20), (0x20, 0x20), (0x40, 0x48)];
        let functions = Functions { functions, ..Functions::default() };
        let begins = [0, 0x10, 0x1f, 0x20, 0x3f, 0x40, 0x47, 0x48].map(|at| functions.begin(at));
        let (first, second, third) = (Some(0x10), Some(0x20), Some(0x40));
        assert_eq!(begins, [None, first, first, second, second, third, third, None]);
    }
}
