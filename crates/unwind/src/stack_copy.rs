//! The copy of the top of a stack.

use serde::{Deserialize, Serialize};

use crate::stack::Stop;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The registers that a thread is unwound from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    /// `rip`
    pub ip: u64,
    /// `rsp`
    pub sp: u64,
    /// `rbp`
    pub fp: u64,
}

/// Pages of a stack copy that were not in memory, a bit each: the page that the stack pointer
/// points into is the lowest.
///
/// A function can reserve more room than it touches, and the kernel has no page yet where nobody
/// has touched any:
///
/// ```text
///  sp
///  | frames | a buffer, touched … | not yet …        | frames |
///  |  page 0      |  page 1       |  page 2: missing |  page 3
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingPages(pub u32);

impl MissingPages {
    /// Whether the byte at an address is in a missing page. The address is not below the stack
    /// pointer.
    #[must_use]
    pub fn contains(self, sp: u64, address: u64) -> bool {
        let page = (address / PAGE).saturating_sub(sp / PAGE);
        u32::try_from(page).ok().and_then(|page| self.0.checked_shr(page)).unwrap_or(0) & 1 == 1
    }
}

/// The top of a thread's stack, as it was at one moment.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// The thread's registers at that moment.
    pub registers: Registers,
    /// The bytes right below `registers.sp`, in which a leaf function may keep data: the red zone.
    /// Empty if they are not known.
    pub red_zone: &'a [u8],
    /// The stack from `registers.sp` upwards.
    pub bytes: &'a [u8],
    /// The pages of the copy that were not in memory, whose content is not known.
    pub missing: MissingPages,
}

impl StackCopy<'_> {
    /// How far above the beginning of the copy an address lies.
    pub(crate) fn offset(&self, address: u64) -> Result<u64, Stop> {
        address.checked_sub(self.registers.sp).ok_or(Stop::BeforeCopy)
    }

    /// The word at an address, above the stack pointer or in the red zone.
    pub(crate) fn word(&self, address: u64) -> Result<u64, Stop> {
        if let Some(below @ 1..) = self.registers.sp.checked_sub(address) {
            let begin = usize::try_from(below).ok();
            let begin = begin.and_then(|below| self.red_zone.len().checked_sub(below));
            let word = begin.and_then(|begin| self.red_zone.get(begin..)?.first_chunk());
            return word.map(|&word| u64::from_le_bytes(word)).ok_or(Stop::BeforeCopy);
        }
        let offset = usize::try_from(self.offset(address)?).map_err(|_| Stop::BehindCopy)?;
        let word = self.bytes.get(offset..).and_then(|bytes| bytes.first_chunk());
        let word = word.map(|&word| u64::from_le_bytes(word)).ok_or(Stop::BehindCopy)?;
        let is_missing = |address| self.missing.contains(self.registers.sp, address);
        match is_missing(address) || is_missing(address.saturating_add(7)) {
            true => Err(Stop::PageMissing),
            false => Ok(word),
        }
    }

    /// The word at an address that is to be a return address, and where in the copy it lies.
    pub(crate) fn return_address(&self, address: u64) -> Result<(u64, Option<u32>), Stop> {
        let word = self.word(address)?;
        let offset = self.offset(address)?;
        // Compilers and the ABI keep the stack pointer at a multiple of 8.
        match (u32::try_from(offset), offset % 8) {
            (Ok(offset), 0) => Ok((word, Some(offset))),
            _ => Err(Stop::Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MissingPages, Registers, StackCopy};
    use crate::stack::Stop;

    #[test]
    fn a_word_in_the_red_zone_is_known_if_all_of_it_was_copied() {
        let registers = Registers { ip: 0, sp: 0x1000, fp: 0 };
        let red_zone: Vec<u8> = (1..=128).collect();
        let copy =
            StackCopy { registers, red_zone: &red_zone, bytes: &[9; 8], missing: MissingPages(0) };
        let word = |first: u8| Ok(u64::from_le_bytes(std::array::from_fn(|n| first + n as u8)));
        assert_eq!((copy.word(0x1000 - 8), copy.word(0x1000 - 128)), (word(121), word(1)));
        assert_eq!(copy.word(0x1000), Ok(0x0909_0909_0909_0909));
        // Further below, or with a part above the stack pointer, which nobody reads.
        assert_eq!(copy.word(0x1000 - 129), Err(Stop::BeforeCopy));
        assert_eq!(copy.word(0x1000 - 7), Err(Stop::BeforeCopy));
        assert_eq!(StackCopy { red_zone: &[], ..copy }.word(0x1000 - 8), Err(Stop::BeforeCopy));
    }

    #[test]
    fn pages_are_counted_from_the_one_with_the_stack_pointer() {
        let (sp, missing) = (0x7fff_0000_0ff8, MissingPages(0b110));
        let is_missing = |address| missing.contains(sp, address);
        assert!(!is_missing(sp) && !is_missing(0x7fff_0000_0fff));
        assert!(is_missing(0x7fff_0000_1000) && is_missing(0x7fff_0000_2fff));
        assert!(!is_missing(0x7fff_0000_3000) && !is_missing(u64::MAX));
    }
}
