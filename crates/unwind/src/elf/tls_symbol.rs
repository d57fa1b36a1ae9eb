//! A variable that each thread has its own of, by name, and how code finds it.
//!
//! ```text
//!  executable   no relocation: the linker knew        x86: thread pointer - size of its storage + value
//!  library      R_X86_64_TPOFF64   one word, the offset from the thread pointer
//!               R_X86_64_TLSDESC   two words: a function, and its argument
//!               R_X86_64_DTPMOD64  two words: a module, and the offset in its block
//! ```
//!
//! The words are filled in by the process's own loader, and are to be read in its memory.
//! <https://www.akkadia.org/drepper/tls.pdf>, <https://www.fsfla.org/~lxoliva/writeups/TLS/RFC-TLSDESC-x86.txt>

use object::{
    Endianness, ReadRef,
    elf::{
        DT_NEEDED, EM_X86_64, PT_INTERP, PT_LOAD, PT_TLS, R_X86_64_DTPMOD64, R_X86_64_TLSDESC,
        R_X86_64_TPOFF64, SHN_UNDEF, SHT_DYNAMIC, SHT_DYNSYM, SHT_GNU_HASH, SHT_RELA, STT_OBJECT,
        STT_TLS,
    },
};
use offwake_recording::Segment;
use serde::{Deserialize, Serialize};

use super::{
    headers::{self, Headers, LimitedFile, SectionHeader},
    layout,
};

/// Bytes of an entry of a 64-bit symbol table, of relocations, and of the dynamic section.
const SYMBOL: u64 = 24;
const RELOCATION: usize = 24;
const DYNAMIC: usize = 16;
/// Symbols of one bucket that are looked at. Buckets have one or two.
const MAX_CHAIN: u32 = 1024;
/// Segments of code that are kept.
const MAX_SEGMENTS: usize = 16;
/// The smallest page of any machine: a mapping begins at a whole one.
const PAGE: u64 = 4096;
/// Where in an ELF header the offset of the section headers is: it differs from file to file.
const SECTION_HEADERS: u64 = 40;

/// Such a variable. Addresses are those of the file's own headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSymbol {
    /// Where in the file's part of each thread's storage it is.
    pub value: u64,
    /// Bytes of that part, and what they are aligned to.
    pub size: u64,
    /// See `size`.
    pub alignment: u64,
    /// Whether the file is a program, and no library.
    pub is_program: bool,
    /// Whether it is made for glibc.
    pub needs_glibc: bool,
    /// Where in memory the file's own header has what tells it from other files.
    pub mark: Option<u64>,
    /// Where the variable is that says which version this one has; none if nobody asked for it.
    pub version: Option<u64>,
    /// How code finds it; none if no relocation says that.
    pub reference: Option<TlsReference>,
    /// Offset, address and size of each segment of code.
    pub code: Vec<(u64, u64, u64)>,
}

/// What is looked for in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsQuery {
    /// The variable that each thread has.
    pub name: String,
    /// A variable that the process has, without which the other one is none.
    pub version: Option<String>,
}

/// Where code finds the place of such a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsReference {
    /// A word at this address: the offset from the thread pointer.
    Offset(u64),
    /// Two words: a function, and what it is called with.
    Descriptor(u64),
    /// Two words: the module, and the offset in its block.
    Index(u64),
}

impl TlsSymbol {
    /// The variables in a file for x86_64, each with the number of the query that asks for it.
    pub fn find_all<'data, R: ReadRef<'data>>(data: R, queries: &[TlsQuery]) -> Vec<(usize, Self)> {
        let read = |headers: Headers, data: LimitedFile<'_, R>| {
            let queries = queries.iter().enumerate();
            let found = queries
                .filter_map(|(at, query)| Some((at, Self::read(&headers, data, query)?)))
                .collect();
            Some(found)
        };
        headers::read(data, read).unwrap_or_default()
    }

    fn read<'data, R: ReadRef<'data>>(
        headers: &Headers,
        data: LimitedFile<'_, R>,
        query: &TlsQuery,
    ) -> Option<Self> {
        // What the symbol table has is read at the offsets of the 64-bit class.
        if headers.machine != EM_X86_64 || headers.endian != Endianness::Little {
            return None;
        }
        let storage = headers.segments.iter().find(|segment| segment.kind == PT_TLS)?;
        let (index, value) = find_symbol(headers, data, &query.name, STT_TLS)?;
        let version = match &query.version {
            Some(name) => Some(find_symbol(headers, data, name, STT_OBJECT)?.1),
            None => None,
        };
        let begins_aligned = storage.address.checked_rem(storage.alignment.max(1)) == Some(0);
        Some(Self {
            value,
            size: storage.memory_size,
            // Where it does not, nobody can tell what the linker made of it.
            alignment: if begins_aligned { storage.alignment.max(1) } else { 0 },
            is_program: headers.segments.iter().any(|segment| segment.kind == PT_INTERP),
            needs_glibc: needs_glibc(headers, data),
            mark: find_mark(headers),
            version,
            reference: find_reference(headers, data, index, value),
            code: read_code(headers),
        })
    }

    /// A variable of a program, in a part of so many bytes.
    pub(super) fn of_program(headers: &Headers, value: u64, size: u64, alignment: u64) -> Self {
        Self {
            value,
            size,
            alignment,
            is_program: true,
            needs_glibc: false,
            mark: find_mark(headers),
            version: None,
            reference: None,
            code: read_code(headers),
        }
    }

    /// What is to be added to the addresses here for those of a process that has the code mapped
    /// at `start`, from `offset` in the file on.
    #[must_use]
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let segments = self.code.iter();
        let segments = segments.map(|&(offset, address, size)| Segment { offset, address, size });
        layout::find_bias(segments, start, offset)
    }

    /// How far the variable is from the thread pointer in a process whose program this is.
    #[must_use]
    pub fn program_offset(&self) -> Option<i64> {
        if !self.is_program || self.alignment == 0 {
            return None;
        }
        let size = self.size.checked_next_multiple_of(self.alignment)?;
        i64::try_from(self.value).ok()?.checked_sub(i64::try_from(size).ok()?)
    }
}

/// See [`TlsSymbol::mark`].
fn find_mark(headers: &Headers) -> Option<u64> {
    let first = headers.segments.iter().find(|segment| {
        segment.kind == PT_LOAD && segment.offset == 0 && segment.file_size > SECTION_HEADERS
    });
    first?.address.checked_add(SECTION_HEADERS)
}

/// See [`TlsSymbol::code`].
fn read_code(headers: &Headers) -> Vec<(u64, u64, u64)> {
    let code = layout::code_segments(headers).take(MAX_SEGMENTS);
    code.map(|code| (code.offset, code.address, code.size)).collect()
}

fn section(headers: &Headers, kind: u32) -> Option<&SectionHeader> {
    headers.sections.iter().find(|section| section.kind == kind)
}

/// The symbol of this name and kind that the file defines, as its index and its value.
fn find_symbol<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
    name: &str,
    kind: u8,
) -> Option<(u32, u64)> {
    let symbols = section(headers, SHT_DYNSYM)?;
    let names = headers.sections.get(symbols.link as usize)?;
    let hashes = section(headers, SHT_GNU_HASH)?;
    let word = |at: u64| read_word(data, hashes.offset.checked_add(at)?);
    // <https://sourceware.org/gnu-gabi/program-loading-and-dynamic-linking.txt>
    let (buckets, first, filters) = (word(0)?, word(4)?, word(8)?);
    let hash = gnu_hash(name);
    let bucket_at = 16 + u64::from(filters) * 8;
    let bucket = word(bucket_at + u64::from(hash.checked_rem(buckets)?) * 4)?;
    let chain_at = bucket_at + u64::from(buckets) * 4;
    for index in bucket..bucket.saturating_add(MAX_CHAIN) {
        let chained = word(chain_at + u64::from(index.checked_sub(first)?) * 4)?;
        if chained | 1 == hash | 1
            && let Some(value) = read_if_named(data, symbols, names, index, (name, kind))
        {
            return Some((index, value));
        }
        if chained & 1 == 1 {
            break;
        }
    }
    None
}

/// The value of a symbol, if it is of that name and kind, and defined.
fn read_if_named<'data, R: ReadRef<'data>>(
    data: LimitedFile<'_, R>,
    symbols: &SectionHeader,
    names: &SectionHeader,
    index: u32,
    (name, wanted): (&str, u8),
) -> Option<u64> {
    let at = symbols.offset.checked_add(u64::from(index) * SYMBOL)?;
    let entry = data.read_bytes_at(at, SYMBOL).ok()?;
    let number = u32::from_le_bytes(entry.get(..4)?.try_into().ok()?);
    let kind = entry.get(4)? & 0xf;
    let section = u16::from_le_bytes(entry.get(6..8)?.try_into().ok()?);
    let value = u64::from_le_bytes(entry.get(8..16)?.try_into().ok()?);
    let name_at = names.offset.checked_add(u64::from(number))?;
    let named = data.read_bytes_at(name_at, name.len() as u64 + 1).ok()?;
    let is_it = named.split_last() == Some((&0, name.as_bytes()));
    (is_it && kind == wanted && section != SHN_UNDEF).then_some(value)
}

fn read_word<'data, R: ReadRef<'data>>(data: LimitedFile<'_, R>, at: u64) -> Option<u32> {
    Some(u32::from_le_bytes(data.read_bytes_at(at, 4).ok()?.try_into().ok()?))
}

/// Returns what a `DT_GNU_HASH` table has a symbol's name by
/// ([`dl_new_hash`](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/generic/dl-new-hash.h;hb=glibc-2.36)).
#[must_use]
pub fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

/// The relocation that is of a variable: by its symbol or, where that is hidden, by its value.
fn find_reference<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
    index: u32,
    value: u64,
) -> Option<TlsReference> {
    let mut found = None;
    for table in headers.sections.iter().filter(|section| section.kind == SHT_RELA) {
        let Ok(table) = data.read_bytes_at(table.offset, table.size) else { continue };
        for entry in table.chunks_exact(RELOCATION) {
            let word = |at: usize| -> Option<u64> {
                Some(u64::from_le_bytes(entry.get(at..at + 8)?.try_into().ok()?))
            };
            let (place, info, addend) = (word(0)?, word(8)?, word(16)?);
            let (symbol, kind) = ((info >> 32) as u32, info as u32);
            let is_named = symbol == index && addend == 0;
            let is_hidden = symbol == 0 && addend == value;
            let reference = match kind {
                R_X86_64_TPOFF64 if is_named || is_hidden => TlsReference::Offset(place),
                R_X86_64_TLSDESC if is_named || is_hidden => TlsReference::Descriptor(place),
                R_X86_64_DTPMOD64 if is_named => TlsReference::Index(place),
                _ => continue,
            };
            // One word is better than two, of which one may lead further.
            if matches!(reference, TlsReference::Offset(_)) {
                return Some(reference);
            }
            found = found.or(Some(reference));
        }
    }
    found
}

/// Whether the file asks for the C library of glibc.
fn needs_glibc<'data, R: ReadRef<'data>>(headers: &Headers, data: LimitedFile<'_, R>) -> bool {
    const LIBRARY: &[u8] = b"libc.so.6\0";
    let Some(dynamic) = section(headers, SHT_DYNAMIC) else { return false };
    let Some(names) = headers.sections.get(dynamic.link as usize) else { return false };
    let Ok(entries) = data.read_bytes_at(dynamic.offset, dynamic.size.min(64 * PAGE)) else {
        return false;
    };
    entries.chunks_exact(DYNAMIC).any(|entry| {
        let (tag, value) = entry.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        number(tag) == DT_NEEDED.cast_unsigned()
            && names.offset.checked_add(number(value)).is_some_and(|at| {
                data.read_bytes_at(at, LIBRARY.len() as u64).is_ok_and(|name| name == LIBRARY)
            })
    })
}
