//! From a variable of a file to where the threads of one process have it.
//!
//! Its words are what the process's loader has filled in: glibc and musl for x86_64. glibc gives a
//! library that is loaded late a place at a fixed distance from the thread pointer while there is
//! room, and then the argument of a descriptor is that distance; else it points to the module and the
//! offset in its block
//! ([dl-tlsdesc.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/x86_64/dl-tlsdesc.h;hb=glibc-2.36)).

use offwake_unwind::elf::tls_symbol::{TlsReference, TlsSymbol};
use profiler_ebpf::tags::TagSource;

use crate::symbols::python::memory::Memory;

/// How far a variable can be from where it is counted from.
const MAX_DISTANCE: u64 = 1 << 20;
/// How many modules with such variables a process can have.
const MAX_MODULES: u64 = 1 << 16;
/// Bytes of a pointer, which is aligned.
const POINTER: u64 = 8;

/// The only version that is known of a convention that has versions.
const VERSION: u32 = 1;

/// Where the threads of the process with this memory have their variable. None if its loader has not
/// said yet, or says what can't be, or if the convention has another version.
pub(super) fn find_source(
    symbol: &TlsSymbol,
    bias: u64,
    memory: &impl Memory,
) -> Option<TagSource> {
    if let Some(address) = symbol.version {
        let mut version = [0; size_of::<u32>()];
        memory.read(bias.wrapping_add(address), &mut version)?;
        if u32::from_le_bytes(version) != VERSION {
            return None;
        }
    }
    let near = |mark_address, mark, distance| {
        let offset = to_near_distance(distance)?;
        Some(TagSource { mark_address, mark, offset, ..TagSource::default() })
    };
    match symbol.reference {
        None => {
            let mark_address = bias.wrapping_add(symbol.mark?);
            let mark = memory.word(mark_address)?;
            near(mark_address, mark, symbol.program_offset()?.cast_unsigned())
        }
        Some(TlsReference::Offset(address)) => {
            let mark_address = bias.wrapping_add(address);
            let mark = memory.word(mark_address)?;
            near(mark_address, mark, mark)
        }
        Some(TlsReference::Descriptor(address)) => {
            let mark_address = bias.wrapping_add(address).wrapping_add(POINTER);
            let mark = memory.word(mark_address)?;
            if let Some(source) = near(mark_address, mark, mark) {
                return Some(source);
            }
            let index = read_index(symbol, mark, memory)?;
            Some(TagSource { mark_address, mark, ..index })
        }
        Some(TlsReference::Index(address)) => {
            let address = bias.wrapping_add(address);
            let index = read_index(symbol, address, memory)?;
            Some(TagSource { mark_address: address, mark: index.module, ..index })
        }
    }
}

/// A distance from the thread pointer, which x86 has such variables below.
fn to_near_distance(word: u64) -> Option<i64> {
    let below = word.wrapping_neg();
    ((1..MAX_DISTANCE).contains(&below) && below.is_multiple_of(POINTER))
        .then(|| word.cast_signed())
}

/// A module and the offset in its block, which only glibc's table of blocks is read for.
fn read_index(symbol: &TlsSymbol, address: u64, memory: &impl Memory) -> Option<TagSource> {
    if !symbol.needs_glibc {
        return None;
    }
    let module = memory.word(address)?;
    let offset = memory.word(address.checked_add(POINTER)?)?;
    let is_possible = (1..MAX_MODULES).contains(&module)
        && offset < MAX_DISTANCE
        && offset.is_multiple_of(POINTER);
    is_possible.then(|| TagSource { offset: offset.cast_signed(), module, ..TagSource::default() })
}
