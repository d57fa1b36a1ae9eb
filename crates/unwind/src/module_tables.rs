//! The unwind data of one module.

use gimli::{BaseAddresses, DebugFrame, EhFrame, EndianSlice, LittleEndian, UnwindContext};

use offwake_recording::AddressKind;

use crate::{
    eh_frame_hdr::EhFrameHdr,
    elf::unwind_sections::UnwindSections,
    frame_entries::{EntryIndex, FrameEntries},
    go::unwind_rule,
    rule::{Bytes, UnwindRule},
};

/// The sections of a module that say how it is unwound, and indexes into them.
pub(crate) struct ModuleTables {
    sections: UnwindSections,
    bases: BaseAddresses,
    /// The index of `.eh_frame`, unless the file has a table for that.
    eh_index: Option<EntryIndex>,
    debug_index: Option<EntryIndex>,
}

impl ModuleTables {
    pub(crate) fn new(sections: UnwindSections) -> Self {
        let bases = match &sections.eh_frame {
            Some(eh_frame) => BaseAddresses::default().set_eh_frame(eh_frame.address),
            None => BaseAddresses::default(),
        };
        let mut tables = Self { sections, bases, eh_index: None, debug_index: None };
        if tables.header().is_none() {
            tables.eh_index = tables.eh_frame().map(|eh_frame| eh_frame.index());
        }
        tables.debug_index = tables.debug_frame().map(|debug_frame| debug_frame.index());
        tables
    }

    /// The rule for an offset in the file.
    pub(crate) fn rule(
        &self,
        offset: u64,
        kind: AddressKind,
        context: &mut UnwindContext<usize>,
    ) -> UnwindRule {
        match self.covering(offset, kind, context) {
            Some(rule) => rule,
            // It may be covered by what could not be read.
            None if self.sections.is_partial => UnwindRule::Unreadable,
            None => UnwindRule::Uncovered,
        }
    }

    fn covering(
        &self,
        offset: u64,
        kind: AddressKind,
        context: &mut UnwindContext<usize>,
    ) -> Option<UnwindRule> {
        let address = self.sections.layout.address(offset)?;
        if let Some(eh_frame) = self.eh_frame()
            && let Some(at) = self.eh_entry(address)
            && let Some(rule) = eh_frame.rule(at, address, context)
        {
            return Some(rule);
        }
        if let Some(gopclntab) = &self.sections.gopclntab
            && let Some(rule) = unwind_rule::rule(gopclntab, address, kind)
        {
            return Some(rule);
        }
        let at = self.debug_index.as_ref()?.find(address)?;
        self.debug_frame()?.rule(at, address, context)
    }

    /// Where the entry for an address is in `.eh_frame`, if any covers it.
    fn eh_entry(&self, address: u64) -> Option<usize> {
        if let Some(index) = &self.eh_index {
            return index.find(address);
        }
        let entry = self.header()?.entry(address)?;
        usize::try_from(entry.checked_sub(self.sections.eh_frame.as_ref()?.address)?).ok()
    }

    fn header(&self) -> Option<EhFrameHdr<'_>> {
        EhFrameHdr::parse(self.sections.eh_frame_hdr.as_ref()?)
    }

    fn eh_frame(&self) -> Option<FrameEntries<'_, EhFrame<Bytes<'_>>>> {
        let bytes = &self.sections.eh_frame.as_ref()?.bytes;
        let mut section = EhFrame::from(EndianSlice::new(bytes, LittleEndian));
        section.set_address_size(8);
        Some(FrameEntries { section, bytes, bases: &self.bases })
    }

    fn debug_frame(&self) -> Option<FrameEntries<'_, DebugFrame<Bytes<'_>>>> {
        let bytes = self.sections.debug_frame.as_ref()?;
        let mut section = DebugFrame::from(EndianSlice::new(bytes, LittleEndian));
        section.set_address_size(8);
        Some(FrameEntries { section, bytes, bases: &self.bases })
    }

    /// Whether some of the sections could not be read.
    pub(crate) fn is_partial(&self) -> bool {
        self.sections.is_partial
    }

    /// Bytes that the sections and their indexes take.
    pub(crate) fn memory(&self) -> usize {
        let UnwindSections { eh_frame, eh_frame_hdr, debug_frame, gopclntab, .. } = &self.sections;
        let placed = [eh_frame, eh_frame_hdr].into_iter().flatten();
        let sections = placed.map(|placed| &placed.bytes).chain(debug_frame).chain(gopclntab);
        let indexes = [&self.eh_index, &self.debug_index].into_iter().flatten();
        sections.map(Vec::len).sum::<usize>() + indexes.map(EntryIndex::memory).sum::<usize>()
    }
}
