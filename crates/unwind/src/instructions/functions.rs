//! Where the functions of a module begin, and where its code is.

use object::{
    ReadCache, ReadRef,
    elf::{SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC},
};

use offwake_recording::Segment;

use crate::{
    elf::{
        headers::{self, Headers, LimitedFile, SectionHeader},
        layout,
    },
    little_endian::{u32_at, u64_at},
    mapping::FileContent,
};

/// Bytes of an entry of a 64-bit symbol table.
const SYMBOL: usize = 24;
/// Bytes of a name that are read.
const MAX_NAME: usize = 4096;

/// The functions of a module and its code, by offsets in the file.
#[derive(Debug, Default)]
pub(super) struct FunctionTable {
    code: Vec<Segment>,
    entry: Option<u64>,
    /// Begin and end of each function, sorted by begin. Both are equal for a function without a
    /// size.
    functions: Vec<(u64, u64)>,
}

impl FunctionTable {
    /// Reads the symbol tables of a file. None if it is no ELF file with code.
    pub(super) fn read(content: &FileContent) -> Option<Self> {
        match content {
            FileContent::File(file) => headers::read(&ReadCache::new(file), Self::from_headers),
            FileContent::Image(bytes) => headers::read(&bytes[..], Self::from_headers),
        }
    }

    fn from_headers<'data, R: ReadRef<'data>>(
        headers: Headers,
        data: LimitedFile<'_, R>,
    ) -> Option<Self> {
        let code: Vec<_> = layout::code_segments(&headers).collect();
        let mut found = Self { code, entry: None, functions: Vec::new() };
        // `e_entry`
        let entry = data.read_bytes_at(24, 8).ok().and_then(|bytes| u64_at(bytes, 0));
        found.entry = entry.and_then(|entry| found.offset(entry));
        for section in &headers.sections {
            if matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM) {
                found.add_symbols(section, &headers, data);
            }
        }
        found.functions.sort_unstable();
        // Of functions that begin at the same offset, the longest stays.
        found.functions.reverse();
        found.functions.dedup_by_key(|(begin, _)| *begin);
        found.functions.reverse();
        found.functions.shrink_to_fit();
        Some(found)
    }

    fn add_symbols<'data, R: ReadRef<'data>>(
        &mut self,
        section: &SectionHeader,
        headers: &Headers,
        data: LimitedFile<'_, R>,
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
            // A symbol that is not defined in this file has the address 0.
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

    /// Where the function begins that contains an offset, as the symbols say.
    pub(super) fn begin(&self, offset: u64) -> Option<u64> {
        let behind = self.functions.partition_point(|&(begin, _)| begin <= offset);
        let &(begin, end) = self.functions.get(behind.checked_sub(1)?)?;
        (begin == end || offset < end).then_some(begin)
    }

    /// The offset of the program's first instruction.
    pub(super) fn entry(&self) -> Option<u64> {
        self.entry
    }

    /// The code segment that contains an offset.
    pub(super) fn segment(&self, offset: u64) -> Option<&Segment> {
        (self.code.iter())
            .find(|code| offset.checked_sub(code.offset).is_some_and(|within| within < code.size))
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(u64, u64)> {
        self.functions.clone()
    }

    /// Bytes that the table takes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.functions.len() * size_of::<(u64, u64)>()
    }
}

/// Whether a symbol names a part that the compiler split off a function, which is jumped to and not
/// called.
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
        let functions = FunctionTable { functions, ..FunctionTable::default() };
        let begins = [0, 0x10, 0x1f, 0x20, 0x3f, 0x40, 0x47, 0x48].map(|at| functions.begin(at));
        let (first, second, third) = (Some(0x10), Some(0x20), Some(0x40));
        assert_eq!(begins, [None, first, first, second, second, third, third, None]);
    }
}
