//! The unwind data of one module.

use gimli::{BaseAddresses, DebugFrame, EhFrame, EndianSlice, LittleEndian, UnwindContext};

use super::{
    elf::Sections,
    entries::{Entries, Index},
    gopclntab,
    header::Header,
    rule::{Bytes, Rule},
};
use crate::recording::AddressKind;

/// What a module's sections say about unwinding.
pub(super) struct Tables {
    sections: Sections,
    bases: BaseAddresses,
    /// Of `.eh_frame`; none if it has a table of its own.
    eh_index: Option<Index>,
    debug_index: Option<Index>,
}

impl Tables {
    pub(super) fn new(sections: Sections) -> Self {
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

    /// What is to be done at an offset into the file.
    pub(super) fn rule(
        &self,
        offset: u64,
        kind: AddressKind,
        context: &mut UnwindContext<usize>,
    ) -> Rule {
        match self.covering(offset, kind, context) {
            Some(rule) => rule,
            // It may be covered by what could not be read.
            None if self.sections.is_partial => Rule::Unreadable,
            None => Rule::Uncovered,
        }
    }

    fn covering(
        &self,
        offset: u64,
        kind: AddressKind,
        context: &mut UnwindContext<usize>,
    ) -> Option<Rule> {
        let address = self.sections.layout.address(offset)?;
        if let Some(eh_frame) = self.eh_frame()
            && let Some(at) = self.eh_entry(address)
            && let Some(rule) = eh_frame.rule(at, address, context)
        {
            return Some(rule);
        }
        if let Some(gopclntab) = &self.sections.gopclntab
            && let Some(rule) = gopclntab::rule(gopclntab, address, kind)
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

    fn header(&self) -> Option<Header<'_>> {
        Header::of(self.sections.eh_frame_hdr.as_ref()?)
    }

    fn eh_frame(&self) -> Option<Entries<'_, EhFrame<Bytes<'_>>>> {
        let bytes = &self.sections.eh_frame.as_ref()?.bytes;
        let mut section = EhFrame::from(EndianSlice::new(bytes, LittleEndian));
        section.set_address_size(8);
        Some(Entries { section, bytes, bases: &self.bases })
    }

    fn debug_frame(&self) -> Option<Entries<'_, DebugFrame<Bytes<'_>>>> {
        let bytes = self.sections.debug_frame.as_ref()?;
        let mut section = DebugFrame::from(EndianSlice::new(bytes, LittleEndian));
        section.set_address_size(8);
        Some(Entries { section, bytes, bases: &self.bases })
    }

    pub(super) fn is_partial(&self) -> bool {
        self.sections.is_partial
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let Sections { eh_frame, eh_frame_hdr, debug_frame, gopclntab, .. } = &self.sections;
        let placed = [eh_frame, eh_frame_hdr].into_iter().flatten();
        let sections = placed.map(|placed| &placed.bytes).chain(debug_frame).chain(gopclntab);
        let indexes = [&self.eh_index, &self.debug_index].into_iter().flatten();
        sections.map(Vec::len).sum::<usize>() + indexes.map(Index::bytes).sum::<usize>()
    }
}
