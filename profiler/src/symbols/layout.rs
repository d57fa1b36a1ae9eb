//! Where in memory a file wants its code: from offsets in the file to the addresses that its symbols
//! have.

use object::{
    ReadRef,
    elf::{PF_X, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS},
};

use super::headers::{self, Headers, Segment};

/// The smallest page of any machine: a mapping keeps what is below it.
const PAGE: u64 = 4096;

/// The code of a file.
pub(super) struct Layout {
    code: Vec<Segment>,
}

impl Layout {
    /// What a file says of itself. None if it is no ELF file, or does not say it: what
    /// `objcopy --only-keep-debug` writes has lost its code, and says where that would be in itself,
    /// not where it was.
    pub(super) fn of<'data, R: ReadRef<'data>>(data: R) -> Option<Self> {
        let length = data.len().ok()?;
        let headers = headers::read(data, |headers, _| Some(headers))?;
        let is_code_gone = (headers.sections.iter()).any(|section| {
            let flags = u64::from(SHF_ALLOC | SHF_EXECINSTR);
            section.kind == SHT_NOBITS && section.flags & flags == flags
        });
        let is_told = match is_code_gone {
            // `eu-strip` leaves the program headers as they were.
            true => is_whole(&headers),
            false => code(&headers).all(|segment| {
                segment.offset.checked_add(segment.file_size).is_some_and(|end| end <= length)
            }),
        };
        let code: Vec<_> = headers.segments.into_iter().filter(is_code).collect();
        (is_told && !code.is_empty()).then_some(Self { code })
    }

    /// The address of an offset into the file.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.code.iter().find_map(|segment| {
            let within = offset.checked_sub(segment.offset)?;
            (within < segment.file_size).then(|| segment.address.checked_add(within))?
        })
    }
}

fn is_code(segment: &Segment) -> bool {
    segment.kind == PT_LOAD && segment.flags & PF_X != 0
}

fn code(headers: &Headers) -> impl Iterator<Item = &Segment> {
    headers.segments.iter().filter(|segment| is_code(segment))
}

/// Whether the program headers are those of the file that had the code: all of it is in that file,
/// at offsets that can be mapped, and no two segments share any of them.
fn is_whole(headers: &Headers) -> bool {
    let loads = headers.segments.iter().filter(|segment| segment.kind == PT_LOAD);
    let mut end = 0;
    for segment in loads {
        let can_be_mapped = segment.offset % PAGE == segment.address % PAGE;
        let lacks_code = is_code(segment) && segment.file_size != segment.memory_size;
        if !can_be_mapped || lacks_code || segment.offset < end {
            return false;
        }
        let Some(next) = segment.offset.checked_add(segment.file_size) else { return false };
        end = next;
    }
    true
}
