//! Where in memory a file wants its code: from offsets in the file to the addresses that its
//! symbols have.

use object::{
    ReadRef,
    elf::{PF_X, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS},
};

use offwake_recording::Segment;

use super::headers::{self, Headers, ProgramHeader};

/// The smallest page of any machine: a mapping keeps what is below it.
const PAGE: u64 = 4096;

/// The code of a file, in the order of the offsets, no offset twice.
pub struct CodeLayout {
    code: Vec<Segment>,
}

impl CodeLayout {
    /// Where a file says that its code is. None if it is no ELF file, or does not say that: a file
    /// that `objcopy --only-keep-debug` wrote has lost its code, and says where the code would be
    /// in that file, not where it was.
    pub fn from_file<'data, R: ReadRef<'data>>(data: R) -> Option<Self> {
        let length = data.len().ok()?;
        let headers = headers::read(data, |headers, _| Some(headers))?;
        let is_code_gone = (headers.sections.iter()).any(|section| {
            let flags = u64::from(SHF_ALLOC | SHF_EXECINSTR);
            section.kind == SHT_NOBITS && section.flags & flags == flags
        });
        let is_known = match is_code_gone {
            // `eu-strip` leaves the program headers as they were.
            true => is_whole(&headers),
            false => code_segments(&headers)
                .all(|segment| end(&segment).is_some_and(|end| end <= length)),
        };
        let code: Vec<_> = code_segments(&headers).collect();
        is_known.then(|| Self::from_segments(&code)).flatten()
    }

    /// The layout of a file with these segments. None if there are none, or if they overlap: an
    /// offset in two segments has no one address.
    #[must_use]
    pub fn from_segments(segments: &[Segment]) -> Option<Self> {
        let mut code = segments.to_vec();
        code.sort_unstable();
        let ends: Option<Vec<u64>> = code.iter().map(end).collect();
        let is_apart = ends?.iter().zip(code.iter().skip(1)).all(|(&end, next)| end <= next.offset);
        (is_apart && !code.is_empty()).then_some(Self { code })
    }

    /// The address of an offset in the file.
    #[must_use]
    pub fn address(&self, offset: u64) -> Option<u64> {
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

fn is_code(segment: &ProgramHeader) -> bool {
    segment.kind == PT_LOAD && segment.flags & PF_X != 0
}

/// What is to be added to the addresses of a file with these segments of code for those of a process
/// that has the code mapped at `start`, from `offset` in the file on.
pub fn find_bias(mut code: impl Iterator<Item = Segment>, start: u64, offset: u64) -> Option<u64> {
    let segment = code.find(|segment| {
        let begin = segment.offset - segment.offset % PAGE;
        offset >= begin && offset - begin < segment.size.saturating_add(PAGE)
    })?;
    let address = segment.address.wrapping_sub(segment.offset).wrapping_add(offset);
    Some(start.wrapping_sub(address))
}

/// The segments of a file that hold code, and have any of it in the file.
pub fn code_segments(headers: &Headers) -> impl Iterator<Item = Segment> {
    let code = headers.segments.iter().filter(|segment| is_code(segment) && segment.file_size > 0);
    code.map(|&ProgramHeader { offset, address, file_size: size, .. }| Segment {
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
