//! The entries of `.eh_frame` or `.debug_frame`: one for each function.

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, Error, UnwindContext, UnwindOffset,
    UnwindSection,
};

use crate::rule::{Bytes, FrameRule, UnwindRule};

/// Bytes of a function's entry: its instructions are gone through for each address that is new.
/// GCC's largest functions have some KiB.
const MAX_ENTRY: u32 = 256 << 10;
/// Bytes of what entries have in common, which is gone through for each of them. It has some 30.
const MAX_COMMON: u32 = 4096;

/// Where an entry begins in its section, by the first address that it covers, sorted.
pub(crate) struct EntryIndex(Vec<(u64, usize)>);

impl EntryIndex {
    /// Where the entry for an address begins, if any covers it.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let behind = self.0.partition_point(|&(start, _)| start <= address);
        self.0.get(behind.checked_sub(1)?).map(|&(_, at)| at)
    }

    /// Bytes that the index takes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

/// The entries of a section.
pub(crate) struct FrameEntries<'a, S> {
    pub section: S,
    pub bytes: &'a [u8],
    pub bases: &'a BaseAddresses,
}

impl<'a, S: UnwindSection<Bytes<'a>>> FrameEntries<'a, S> {
    /// Indexes the entries, up to the first that can't be read.
    pub(crate) fn index(&self) -> EntryIndex {
        let mut index = Vec::new();
        let mut entries = self.section.entries(self.bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(entry) = entry else { continue };
            let Ok(entry) = entry.parse(|_, _, at| self.common(at)) else { continue };
            // Linkers set the addresses of functions that they left out to 0.
            if entry.initial_address() != 0 {
                index.push((entry.initial_address(), entry.offset()));
            }
        }
        index.sort_unstable();
        index.shrink_to_fit();
        EntryIndex(index)
    }

    /// What the entry at an offset says of an address, or none if the entry does not cover it.
    pub(crate) fn rule(
        &self,
        at: usize,
        address: u64,
        context: &mut UnwindContext<usize>,
    ) -> Option<UnwindRule> {
        if self.is_longer(at, MAX_ENTRY) {
            return Some(UnwindRule::Unreadable);
        }
        let at = S::Offset::from(at);
        let entry = self.section.fde_from_offset(self.bases, at, |_, _, at| self.common(at));
        let Ok(entry) = entry else { return Some(UnwindRule::Unreadable) };
        if !entry.contains(address) {
            return None;
        }
        let row = entry.unwind_info_for_address(&self.section, self.bases, context, address);
        let frame = row.ok().and_then(|row| FrameRule::from_row(&self.section, &entry, row));
        Some(frame.map_or(UnwindRule::Unreadable, |frame| UnwindRule::Frame(frame.into())))
    }

    /// Reads what some entries have in common.
    fn common(&self, at: S::Offset) -> Result<CommonInformationEntry<Bytes<'a>>, Error> {
        let offset: usize = UnwindOffset::into(at);
        if self.is_longer(offset, MAX_COMMON) {
            return Err(Error::OffsetOutOfBounds(offset as u64));
        }
        self.section.cie_from_offset(self.bases, at)
    }

    /// Whether an entry claims to be longer than `limit`. Its length is in front of it: a length of
    /// more than 32 bits begins with ones alone.
    fn is_longer(&self, at: usize, limit: u32) -> bool {
        let length = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        length.is_none_or(|length| u32::from_le_bytes(*length) > limit)
    }
}
