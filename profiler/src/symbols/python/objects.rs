//! Objects of CPython that hold texts and bytes.

use super::{
    memory::Memory,
    offsets::{BYTES, SIZE, Text},
};
use crate::symbols::name_limit::{MAX_NAME, cut_name};

/// The beginning of a string, as large as any version's.
const HEADER: usize = 72;

/// A string, cut to a length; none if it is none that is in one piece, as names always are.
///
/// <https://peps.python.org/pep-0393/>
pub(super) fn text(memory: &impl Memory, address: u64, offsets: &Text) -> Option<String> {
    let mut header = [0; HEADER];
    memory.read(address, &mut header[..(offsets.ascii as usize).min(HEADER)])?;
    let field = |offset: u32| header.get(offset as usize..);
    let length = u64::from_le_bytes(*field(offsets.length)?.first_chunk()?);
    let state = State(u32::from_le_bytes(*field(offsets.state)?.first_chunk()?));
    if !state.is_compact() {
        return None;
    }
    // One more than is kept, so that the cut is seen.
    let length = usize::try_from(length).ok()?.min(MAX_NAME + 1);
    let begin = if state.is_ascii() { offsets.ascii } else { offsets.compact };
    let mut bytes = vec![0; length.checked_mul(state.kind())?];
    memory.read(address.wrapping_add(u64::from(begin)), &mut bytes)?;
    Some(cut_name(&decode(&bytes, state.kind())?))
}

/// `PyASCIIObject::state`: two bits of whether it is interned, three of the size of a character,
/// one each of whether it is in one piece and of whether it is ASCII.
#[derive(Clone, Copy)]
struct State(u32);

impl State {
    /// Bytes of a character.
    fn kind(self) -> usize {
        (self.0 >> 2 & 0b111) as usize
    }

    fn is_compact(self) -> bool {
        self.0 >> 5 & 1 == 1
    }

    fn is_ascii(self) -> bool {
        self.0 >> 6 & 1 == 1
    }
}

fn decode(bytes: &[u8], kind: usize) -> Option<String> {
    let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    Some(match kind {
        1 => bytes.iter().map(|&byte| char::from(byte)).collect(),
        2 => {
            let units = bytes.as_chunks().0.iter().map(|&unit| u16::from_le_bytes(unit));
            units.map(|unit| character(u32::from(unit))).collect()
        }
        4 => {
            let units = bytes.as_chunks().0.iter().map(|&unit| u32::from_le_bytes(unit));
            units.map(character).collect()
        }
        _ => return None,
    })
}

/// How long a bytes object is.
pub(super) fn length(memory: &impl Memory, address: u64) -> Option<u64> {
    memory.word(address.wrapping_add(u64::from(SIZE)))
}

/// A bytes object; none if it is longer than `limit`.
pub(super) fn bytes(memory: &impl Memory, address: u64, limit: u64) -> Option<Vec<u8>> {
    let length = length(memory, address).filter(|&length| length <= limit)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    memory.read(address.wrapping_add(u64::from(BYTES)), &mut bytes)?;
    Some(bytes)
}
