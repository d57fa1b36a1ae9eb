//! Where in memory a file wants its code: from offsets in the file to the addresses that its symbols
//! have.

use object::{
    ReadRef,
    elf::{PF_X, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS},
};

use super::headers::{self, Headers};
use crate::recording::Segment;

/// The smallest page of any machine: a mapping keeps what is below it.
const PAGE: u64 = 4096;

/// The code of a file, in the order of the offsets, nothing twice.
pub(crate) struct Layout {
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
            false => code(&headers).all(|segment| end(&segment).is_some_and(|end| end <= length)),
        };
        let code: Vec<_> = code(&headers).collect();
        is_told.then(|| Self::of_segments(&code)).flatten()
    }

    /// What was recorded of a file. None if that is nothing, or if it can't be: an offset that is in
    /// two segments has no one address.
    pub(crate) fn of_segments(segments: &[Segment]) -> Option<Self> {
        let mut code = segments.to_vec();
        code.sort_unstable();
        let ends: Option<Vec<u64>> = code.iter().map(end).collect();
        let is_apart = ends?.iter().zip(code.iter().skip(1)).all(|(&end, next)| end <= next.offset);
        (is_apart && !code.is_empty()).then_some(Self { code })
    }

    /// The address of an offset into the file.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        let behind = self.code.partition_point(|segment| segment.offset <= offset);
        let segment = self.code.get(behind.checked_sub(1)?)?;
        let within = offset - segment.offset;
        (within < segment.size).then(|| segment.address.checked_add(within))?
    }
}

/// Where a segment ends in the file; none if no file is that large.
fn end(segment: &Segment) -> Option<u64> {
    segment.offset.checked_add(segment.size)
}

fn is_code(segment: &headers::Segment) -> bool {
    segment.kind == PT_LOAD && segment.flags & PF_X != 0
}

/// The segments of a file that hold code, and have any of it in the file.
pub(crate) fn code(headers: &Headers) -> impl Iterator<Item = Segment> {
    let code = headers.segments.iter().filter(|segment| is_code(segment) && segment.file_size > 0);
    code.map(|&headers::Segment { offset, address, file_size: size, .. }| Segment {
        offset,
        address,
        size,
    })
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
