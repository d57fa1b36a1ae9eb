//! The unwind data of one module.

use std::mem::size_of;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, EndianSlice, LittleEndian,
    ParsedEhFrameHdr, Pointer, UnwindContext, UnwindSection,
};

use super::{
    elf::Sections,
    rule::{Bytes, Frame, Rule},
};

/// Bytes of one entry: its instructions are gone through for each address that is new. GCC's
/// largest functions have some KiB.
const MAX_ENTRY: usize = 256 << 10;

/// Where an entry begins in its section, by the first address that it covers, sorted.
type Index = Vec<(u64, usize)>;

/// What a module's sections say about unwinding.
pub(super) struct Tables {
    sections: Sections,
    /// Of `.eh_frame`; none if it has a table of its own.
    eh_index: Option<Index>,
    debug_index: Index,
    bases: BaseAddresses,
}

impl Tables {
    pub(super) fn new(sections: Sections) -> Self {
        let mut bases = BaseAddresses::default();
        if let Some(eh_frame) = &sections.eh_frame {
            bases = bases.set_eh_frame(eh_frame.address);
        }
        if let Some(hdr) = &sections.eh_frame_hdr {
            bases = bases.set_eh_frame_hdr(hdr.address);
        }
        let mut tables = Self { sections, eh_index: None, debug_index: Index::new(), bases };
        if tables.header().is_none_or(|header| header.table().is_none()) {
            tables.eh_index = tables.eh_frame().map(|eh_frame| index(&eh_frame, &tables.bases));
        }
        if let Some(debug_frame) = tables.debug_frame() {
            tables.debug_index = index(&debug_frame, &tables.bases);
        }
        tables
    }

    /// What is to be done at an offset into the file.
    pub(super) fn rule(&self, offset: u64, context: &mut UnwindContext<usize>) -> Rule {
        let Some(address) = self.sections.layout.address(offset) else { return Rule::Uncovered };
        if let (Some(section), Some(at)) = (self.eh_frame(), self.eh_entry(address)) {
            let rule = self.rule_of(&section, at, address, context);
            if !matches!(rule, Rule::Uncovered) {
                return rule;
            }
        }
        match (self.debug_frame(), entry_in(&self.debug_index, address)) {
            (Some(section), Some(at)) => self.rule_of(&section, at, address, context),
            _ => Rule::Uncovered,
        }
    }

    /// Where the entry for an address would be in `.eh_frame`.
    fn eh_entry(&self, address: u64) -> Option<usize> {
        if let Some(index) = &self.eh_index {
            return entry_in(index, address);
        }
        let header = self.header()?;
        let Pointer::Direct(entry) = header.table()?.lookup(address, &self.bases).ok()? else {
            return None;
        };
        usize::try_from(entry.checked_sub(self.sections.eh_frame.as_ref()?.address)?).ok()
    }

    /// What the entry at an offset into its section says of an address.
    fn rule_of<'a, S: UnwindSection<Bytes<'a>>>(
        &self,
        section: &S,
        at: usize,
        address: u64,
        context: &mut UnwindContext<usize>,
    ) -> Rule {
        let entry = section.fde_from_offset(&self.bases, S::Offset::from(at), S::cie_from_offset);
        let Ok(entry) = entry else { return Rule::Unreadable };
        if !entry.contains(address) {
            return Rule::Uncovered;
        }
        if entry.entry_len() > MAX_ENTRY || entry.cie().entry_len() > MAX_ENTRY {
            return Rule::Unreadable;
        }
        let row = entry.unwind_info_for_address(section, &self.bases, context, address);
        let frame = row.ok().and_then(|row| Frame::of(section, &entry, row));
        frame.map_or(Rule::Unreadable, |frame| Rule::Frame(frame.into()))
    }

    fn header(&self) -> Option<ParsedEhFrameHdr<Bytes<'_>>> {
        let hdr = self.sections.eh_frame_hdr.as_ref()?;
        EhFrameHdr::new(&hdr.bytes, LittleEndian).parse(&self.bases, 8).ok()
    }

    fn eh_frame(&self) -> Option<EhFrame<Bytes<'_>>> {
        let eh_frame = self.sections.eh_frame.as_ref()?;
        let mut section = EhFrame::from(EndianSlice::new(&eh_frame.bytes, LittleEndian));
        section.set_address_size(8);
        Some(section)
    }

    fn debug_frame(&self) -> Option<DebugFrame<Bytes<'_>>> {
        let debug_frame = self.sections.debug_frame.as_ref()?;
        let mut section = DebugFrame::from(EndianSlice::new(debug_frame, LittleEndian));
        section.set_address_size(8);
        Some(section)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.sections.is_cut
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let Sections { eh_frame, eh_frame_hdr, debug_frame, .. } = &self.sections;
        let placed = [eh_frame, eh_frame_hdr].into_iter().flatten();
        let sections = placed.map(|placed| &placed.bytes).chain(debug_frame);
        let indexed = self.eh_index.iter().chain([&self.debug_index]);
        sections.map(Vec::len).sum::<usize>()
            + indexed.map(|index| index.len() * size_of::<(u64, usize)>()).sum::<usize>()
    }
}

/// An index of all entries, up to the first that can't be read.
fn index<'a, S: UnwindSection<Bytes<'a>>>(section: &S, bases: &BaseAddresses) -> Index {
    let mut index = Index::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(entry) = entry else { continue };
        let Ok(entry) = entry.parse(S::cie_from_offset) else { continue };
        // Linkers set the addresses of functions that they left out to 0.
        if entry.initial_address() != 0 {
            index.push((entry.initial_address(), entry.offset()));
        }
    }
    index.sort_unstable();
    index.shrink_to_fit();
    index
}

fn entry_in(index: &Index, address: u64) -> Option<usize> {
    let behind = index.partition_point(|&(start, _)| start <= address);
    index.get(behind.checked_sub(1)?).map(|&(_, at)| at)
}
