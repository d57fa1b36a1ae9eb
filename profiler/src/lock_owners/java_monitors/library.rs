//! A library of a process, in its memory: the dynamic symbols that it exports.

use offwake_unwind::elf::tls_symbol::gnu_hash;

use crate::symbols::python::memory::Memory;

/// The most program headers, entries of the dynamic section, and symbols of one hash that are read.
const MAX_SEGMENTS: u16 = 64;
const MAX_ENTRIES: u64 = 256;
const MAX_CHAIN: u32 = 1_024;
/// Bytes of a name at most.
const MAX_NAME: usize = 64;

const ELF64: [u8; 5] = *b"\x7fELF\x02";
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// `sizeof(Elf64_Phdr)`, `sizeof(Elf64_Dyn)`, `sizeof(Elf64_Sym)`.
const SEGMENT: u64 = 56;
const ENTRY: u64 = 16;
const SYMBOL: u64 = 24;

/// A library that is mapped from its first byte on.
pub(super) struct MappedLibrary<'m, M> {
    memory: &'m M,
    /// What is to be added to the file's own addresses.
    bias: u64,
    symbols: u64,
    strings: u64,
    hashes: HashTable,
}

/// Where a library has the hashes of its symbols' names.
#[derive(Clone, Copy)]
enum HashTable {
    /// `DT_GNU_HASH`
    Gnu(u64),
    /// `DT_HASH`, the only one in JDK 8 and 11 of those who build them with old tools.
    Elf(u64),
}

impl<'m, M: Memory> MappedLibrary<'m, M> {
    /// Reads the headers that are at `begin`; none if there are none, or no symbols with hashes
    /// ([`DT_GNU_HASH`, `DT_HASH`](https://sourceware.org/git/?p=glibc.git;a=blob;f=elf/dl-lookup.c;hb=glibc-2.36)).
    pub(super) fn find(memory: &'m M, begin: u64) -> Option<Self> {
        let mut magic = [0; 5];
        memory.read(begin, &mut magic)?;
        if magic != ELF64 {
            return None;
        }
        let at = |offset: u64| begin.checked_add(offset);
        let segments = memory.word(at(32)?)?;
        let count = memory.half(at(56)?)? as u16;
        let (mut bias, mut dynamic) = (None, None);
        for index in 0..u64::from(count.min(MAX_SEGMENTS)) {
            let header = at(segments.checked_add(index * SEGMENT)?)?;
            let (kind, offset) = (memory.half(header)?, memory.word(header.checked_add(8)?)?);
            let address = memory.word(header.checked_add(16)?)?;
            match kind {
                PT_LOAD if offset == 0 => bias = Some(begin.wrapping_sub(address)),
                PT_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let bias = bias?;
        let dynamic = dynamic?.wrapping_add(bias);
        let (mut symbols, mut strings) = (None, None);
        let (mut gnu_hashes, mut elf_hashes) = (None, None);
        for index in 0..MAX_ENTRIES {
            let entry = dynamic.checked_add(index * ENTRY)?;
            let value = memory.word(entry.checked_add(8)?)?;
            // Some loaders have replaced the address by where it is in memory.
            let place = if value >= begin { value } else { value.wrapping_add(bias) };
            match memory.word(entry)? {
                0 => break,
                DT_SYMTAB => symbols = Some(place),
                DT_STRTAB => strings = Some(place),
                DT_GNU_HASH => gnu_hashes = Some(HashTable::Gnu(place)),
                DT_HASH => elf_hashes = Some(HashTable::Elf(place)),
                _ => {}
            }
        }
        let hashes = gnu_hashes.or(elf_hashes)?;
        Some(Self { memory, bias, symbols: symbols?, strings: strings?, hashes })
    }

    /// Finds where an exported symbol is.
    pub(super) fn find_symbol(&self, name: &str) -> Option<u64> {
        match self.hashes {
            HashTable::Gnu(hashes) => self.find_by_gnu_hash(hashes, name),
            HashTable::Elf(hashes) => self.find_by_elf_hash(hashes, name),
        }
    }

    fn find_by_gnu_hash(&self, hashes: u64, name: &str) -> Option<u64> {
        let memory = self.memory;
        let at = |base: u64, offset: u64| base.checked_add(offset);
        let [buckets, first, words] =
            [0, 4, 8].map(|offset| at(hashes, offset).and_then(|place| memory.half(place)));
        let (buckets, first) = (buckets?, first?);
        let begin = at(at(hashes, 16)?, 8 * u64::from(words?))?;
        let hash = gnu_hash(name);
        let bucket = u64::from(hash.checked_rem(buckets)?);
        let mut symbol = memory.half(at(begin, 4 * bucket)?)?;
        let chain = at(begin, 4 * u64::from(buckets))?;
        for _ in 0..MAX_CHAIN {
            let place = u64::from(symbol.checked_sub(first)?);
            let other = memory.half(at(chain, 4 * place)?)?;
            if other | 1 == hash | 1
                && let Some(address) = self.address_if_named(symbol, name)
            {
                return Some(address);
            }
            // The last one of a chain has this bit.
            if other & 1 == 1 {
                return None;
            }
            symbol = symbol.checked_add(1)?;
        }
        None
    }

    /// Numbers of buckets and of symbols, then for each bucket its first symbol, and for each symbol the next
    /// one of its bucket.
    fn find_by_elf_hash(&self, hashes: u64, name: &str) -> Option<u64> {
        let memory = self.memory;
        let number = |index: u64| memory.half(hashes.checked_add(4 * index)?);
        let buckets = number(0)?;
        let bucket = elf_hash(name).checked_rem(buckets)?;
        let mut symbol = number(2 + u64::from(bucket))?;
        for _ in 0..MAX_CHAIN {
            if symbol == 0 {
                return None;
            }
            if let Some(address) = self.address_if_named(symbol, name) {
                return Some(address);
            }
            symbol = number(2 + u64::from(buckets) + u64::from(symbol))?;
        }
        None
    }

    fn address_if_named(&self, symbol: u32, name: &str) -> Option<u64> {
        let entry = self.symbols.checked_add(SYMBOL * u64::from(symbol))?;
        let address = self.memory.word(entry.checked_add(8)?)?.wrapping_add(self.bias);
        self.is_named(self.memory.half(entry)?, name).then_some(address)
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let place = self.strings.checked_add(u64::from(offset));
        place.is_some_and(|place| has_text(self.memory, place, name))
    }
}

/// Returns whether a text of C is at an address.
pub(super) fn has_text(memory: &impl Memory, address: u64, text: &str) -> bool {
    let mut bytes = [0xff; MAX_NAME];
    let Some(bytes) = bytes.get_mut(..=text.len()) else { return false };
    let is_read = memory.read(address, bytes).is_some();
    is_read && bytes.strip_suffix(&[0]) == Some(text.as_bytes())
}

/// [`_dl_elf_hash`](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/generic/dl-hash.h;hb=glibc-2.36)
fn elf_hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let sum = (hash << 4).wrapping_add(byte.into());
        let high = sum & 0xf000_0000;
        (sum ^ high >> 24) & !high
    })
}
