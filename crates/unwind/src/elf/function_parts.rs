//! The parts of a function that a compiler put elsewhere, in a file that has no names for them.
//!
//! GCC moves what it takes to be cold out of a function, and with some builds of CPython that is
//! most of the function that evaluates. Such a part is named `….cold`, but that name is the first
//! thing to be stripped. What stays is how it is unwound: the entry for a part follows that of its
//! function, and it begins in the middle of things, with a stack frame that the function has made
//! before.

use std::{collections::HashSet, iter, ops::Range};

use gimli::{
    BaseAddresses, CallFrameInstruction, CfaRule, CieOrFde, EhFrame, EhFrameHdr,
    FrameDescriptionEntry, LittleEndian, UnwindContext, UnwindSection, X86_64,
};
use object::{ReadRef, elf::PT_GNU_EH_FRAME};

use super::headers::{Headers, LimitedFile};

/// Parts of one function at most.
const MAX_PARTS: usize = 16;

type Slice<'data> = gimli::EndianSlice<'data, LittleEndian>;

/// Finds the other parts of the function that begins at `function`.
pub fn split_off_parts<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
    function: u64,
) -> Vec<Range<u64>> {
    parts_in_entries(headers, data, function).unwrap_or_default()
}

fn parts_in_entries<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
    function: u64,
) -> Option<Vec<Range<u64>>> {
    let (entries, bases) = find_eh_frame(headers, data)?;
    let mut parts = Vec::new();
    let mut is_behind = false;
    for entry in read_functions(&entries, &bases) {
        if is_behind {
            if parts.len() == MAX_PARTS || !begins_with_a_frame(&entry, &entries, &bases) {
                break;
            }
            parts.push(entry.initial_address()..entry.end_address());
        } else {
            is_behind = entry.initial_address() == function;
        }
    }
    Some(parts)
}

/// What unwind data says of a file's functions.
#[derive(Default)]
pub struct UnwindFacts {
    /// Where functions begin.
    pub beginnings: HashSet<u64>,
    /// Where, in some functions, the return address is what is on top of the stack, as it was when
    /// they were called.
    pub flat: Vec<Range<u64>>,
}

/// Reads what unwind data says of all functions of a file, and in more detail of those that begin at
/// some addresses.
pub fn read_unwind_facts<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
    of_interest: &[u64],
) -> UnwindFacts {
    let mut facts = UnwindFacts::default();
    let Some((entries, bases)) = find_eh_frame(headers, data) else { return facts };
    let mut context = UnwindContext::new();
    for entry in read_functions(&entries, &bases) {
        let begin = entry.initial_address();
        if !begins_with_a_frame(&entry, &entries, &bases) {
            facts.beginnings.insert(begin);
        }
        if of_interest.contains(&begin) {
            let Ok(mut rows) = entry.rows(&entries, &bases, &mut context) else { continue };
            while let Ok(Some(row)) = rows.next_row() {
                let called = CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 8 };
                if *row.cfa() == called {
                    facts.flat.push(row.start_address()..row.end_address());
                }
            }
        }
    }
    facts
}

/// Reads the entries of functions and their parts in their order, up to the first that can't be read.
fn read_functions<'data>(
    entries: &EhFrame<Slice<'data>>,
    bases: &BaseAddresses,
) -> impl Iterator<Item = FrameDescriptionEntry<Slice<'data>>> {
    let mut all = entries.entries(bases);
    iter::from_fn(move || {
        loop {
            if let CieOrFde::Fde(partial) = all.next().ok()?? {
                let parsed =
                    partial.parse(|_, bases, offset| entries.cie_from_offset(bases, offset));
                return parsed.ok();
            }
        }
    })
}

/// Finds `.eh_frame`, which its header leads to.
fn find_eh_frame<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
) -> Option<(EhFrame<Slice<'data>>, BaseAddresses)> {
    let header = headers.segments.iter().find(|segment| segment.kind == PT_GNU_EH_FRAME)?;
    let bytes = data.read_bytes_at(header.offset, header.file_size).ok()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let parsed = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
    let address = parsed.eh_frame_ptr().direct().ok()?;
    let section = headers.sections.iter().find(|section| section.address == address)?;
    let bytes = data.read_bytes_at(section.offset, section.size).ok()?;
    Some((EhFrame::new(bytes, LittleEndian), bases.set_eh_frame(address)))
}

/// Whether the entry describes a stack frame before the first instruction. A function begins as it
/// was called, which no entry needs to describe.
fn begins_with_a_frame(
    entry: &FrameDescriptionEntry<Slice<'_>>,
    entries: &EhFrame<Slice<'_>>,
    bases: &BaseAddresses,
) -> bool {
    let first = entry.instructions(entries, bases).next();
    matches!(
        first,
        Ok(Some(
            CallFrameInstruction::DefCfa { .. }
                | CallFrameInstruction::DefCfaRegister { .. }
                | CallFrameInstruction::DefCfaOffset { .. }
        ))
    )
}
