//! `.eh_frame_hdr`: the entries of `.eh_frame`, sorted.
//!
//! gimli is not used for this: [`EhHdrTable::lookup`](gimli::EhHdrTable::lookup) trusts the number
//! of entries and multiplies it (0.34.0).
//!
//! <https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html>

use gimli::constants::{DW_EH_PE_datarel, DW_EH_PE_pcrel, DW_EH_PE_sdata4, DW_EH_PE_udata4};

use crate::elf::unwind_sections::PlacedSection;

/// A table in the one form that linkers write.
pub(crate) struct EhFrameHdr<'a> {
    /// The address that the table's addresses are relative to.
    address: u64,
    /// The first address that an entry covers, and where the entry is: four bytes each.
    rows: &'a [[u8; 8]],
}

impl<'a> EhFrameHdr<'a> {
    /// Parses the section. None if it has no table, or one of another form.
    pub(crate) fn parse(hdr: &'a PlacedSection) -> Option<Self> {
        const FORM: [u8; 4] = [
            1,
            DW_EH_PE_pcrel.0 | DW_EH_PE_sdata4.0,
            DW_EH_PE_udata4.0,
            DW_EH_PE_datarel.0 | DW_EH_PE_sdata4.0,
        ];
        let (form, rest) = hdr.bytes.split_first_chunk()?;
        let (_eh_frame, rest) = rest.split_first_chunk::<4>()?;
        let (count, rest) = rest.split_first_chunk()?;
        let rows = rest.as_chunks().0.get(..u32::from_le_bytes(*count) as usize)?;
        (*form == FORM).then_some(Self { address: hdr.address, rows })
    }

    /// The address of the entry that covers this one, if any does.
    pub(crate) fn entry(&self, address: u64) -> Option<u64> {
        let behind = self.rows.partition_point(|row| self.absolute(row, 0) <= address);
        Some(self.absolute(self.rows.get(behind.checked_sub(1)?)?, 4))
    }

    /// The address at an offset into a row.
    fn absolute(&self, row: &[u8; 8], offset: usize) -> u64 {
        let relative = row[offset..].first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        self.address.wrapping_add_signed(relative.into())
    }
}
