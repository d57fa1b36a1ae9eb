//! The sections of an ELF file that say how its code is unwound.

use std::{fs::File, io::Read, os::unix::fs::FileExt};

use flate2::read::ZlibDecoder;
use gimli::{BaseAddresses, EhFrameHdr, EndianSlice, LittleEndian, Pointer};
use object::{
    ReadCache,
    elf::{ELFCOMPRESS_ZLIB, PT_GNU_EH_FRAME, PT_LOAD, SHF_COMPRESSED, SHT_NOBITS},
};

use super::{
    headers::{self, Headers, ProgramHeader, SectionHeader},
    layout::{self, CodeLayout},
};
use crate::{go::table::SECTION_NAMES, mapping::FileContent};

/// Bytes of unwind data of one module, decompressed. Chromium's, the largest known, has some 20
/// MiB.
const MAX_BYTES: u64 = 32 << 20;
/// Bytes of the names of sections. Those of the kernel itself are 2 KiB.
const MAX_NAMES: u64 = 1 << 20;

/// Bytes that are mapped at an address, as the file has addresses.
pub(crate) struct PlacedSection {
    pub address: u64,
    pub bytes: Vec<u8>,
}

/// The sections of a file that are about unwinding. None of what they say need be true.
pub(crate) struct UnwindSections {
    /// `EM_…`: the machine that the code is for.
    pub machine: u16,
    pub layout: CodeLayout,
    pub eh_frame: Option<PlacedSection>,
    pub eh_frame_hdr: Option<PlacedSection>,
    pub debug_frame: Option<Vec<u8>>,
    /// Go's own table of its functions.
    pub gopclntab: Option<Vec<u8>>,
    /// Some sections could not be read, or were too long.
    pub is_partial: bool,
}

/// Reads the sections of a file. None if it is no ELF file with code.
pub(crate) fn read(content: &FileContent) -> Option<UnwindSections> {
    let headers = match content {
        FileContent::File(file) => headers::read(&ReadCache::new(file), |headers, _| Some(headers)),
        FileContent::Image(bytes) => headers::read(&bytes[..], |headers, _| Some(headers)),
    }?;
    let code: Vec<_> = layout::code_segments(&headers).collect();
    let layout = CodeLayout::from_segments(&code)?;
    let mut reader = LimitedReader { content, left: MAX_BYTES, is_partial: false };
    let eh_frame_hdr = (headers.segments.iter())
        .find(|segment| segment.kind == PT_GNU_EH_FRAME)
        .and_then(|segment| reader.segment(segment));
    let names = SectionNames::read(&headers, content);
    let eh_frame = match names.find(&headers, b".eh_frame") {
        Some(section) => reader.placed(section),
        None => eh_frame_hdr
            .as_ref()
            .and_then(eh_frame_address)
            .and_then(|address| reader.loaded_from(&headers, address)),
    };
    let debug_frame = match names.find(&headers, b".debug_frame") {
        Some(section) => reader.debug(section),
        None => names.find(&headers, b".zdebug_frame").and_then(|section| reader.zdebug(section)),
    };
    let gopclntab = (SECTION_NAMES.iter())
        .find_map(|name| names.find(&headers, name))
        .and_then(|section| reader.bytes(section.offset, section.size));
    let is_partial = reader.is_partial;
    let machine = headers.machine;
    Some(UnwindSections {
        machine,
        layout,
        eh_frame,
        eh_frame_hdr,
        debug_frame,
        gopclntab,
        is_partial,
    })
}

/// Where the header says that `.eh_frame` is.
fn eh_frame_address(hdr: &PlacedSection) -> Option<u64> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(hdr.address);
    let parsed = EhFrameHdr::from(EndianSlice::new(&hdr.bytes, LittleEndian)).parse(&bases, 8);
    match parsed.ok()?.eh_frame_ptr() {
        Pointer::Direct(address) => Some(address),
        Pointer::Indirect(_) => None,
    }
}

/// The names of all sections.
struct SectionNames(Vec<u8>);

impl SectionNames {
    fn read(headers: &Headers, content: &FileContent) -> Self {
        let section = headers.section_names.and_then(|index| headers.sections.get(index));
        let mut reader = LimitedReader { content, left: MAX_NAMES, is_partial: false };
        let names = section.and_then(|section| reader.bytes(section.offset, section.size));
        Self(names.unwrap_or_default())
    }

    /// The section of this name, if the file has its bytes.
    fn find<'a>(&self, headers: &'a Headers, name: &[u8]) -> Option<&'a SectionHeader> {
        headers.sections.iter().filter(|section| section.kind != SHT_NOBITS).find(|section| {
            let behind =
                self.0.get(section.name as usize..).and_then(|from| from.strip_prefix(name));
            behind.is_some_and(|behind| behind.first() == Some(&0))
        })
    }
}

/// Reads up to a limit: a file claims whatever sizes it likes.
struct LimitedReader<'a> {
    content: &'a FileContent,
    left: u64,
    /// Some bytes were asked for and could not be read.
    is_partial: bool,
}

impl LimitedReader<'_> {
    fn bytes(&mut self, offset: u64, size: u64) -> Option<Vec<u8>> {
        let bytes = self.left.checked_sub(size).and_then(|left| {
            let bytes = match self.content {
                FileContent::File(file) => pread(file, offset, size)?,
                FileContent::Image(image) => {
                    let from = image.get(usize::try_from(offset).ok()?..)?;
                    from.get(..usize::try_from(size).ok()?)?.to_vec()
                }
            };
            self.left = left;
            Some(bytes)
        });
        self.is_partial |= bytes.is_none();
        bytes
    }

    fn placed(&mut self, section: &SectionHeader) -> Option<PlacedSection> {
        let bytes = self.bytes(section.offset, section.size)?;
        Some(PlacedSection { address: section.address, bytes })
    }

    fn segment(&mut self, segment: &ProgramHeader) -> Option<PlacedSection> {
        let bytes = self.bytes(segment.offset, segment.file_size)?;
        Some(PlacedSection { address: segment.address, bytes })
    }

    /// The bytes that are loaded from an address on.
    fn loaded_from(&mut self, headers: &Headers, address: u64) -> Option<PlacedSection> {
        headers.segments.iter().filter(|segment| segment.kind == PT_LOAD).find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            let size = segment.file_size.checked_sub(within).filter(|&size| size > 0)?;
            // The program headers do not say how long the section is.
            let size = size.min(self.left);
            Some(PlacedSection {
                address,
                bytes: self.bytes(segment.offset.checked_add(within)?, size)?,
            })
        })
    }

    fn debug(&mut self, section: &SectionHeader) -> Option<Vec<u8>> {
        let bytes = self.bytes(section.offset, section.size)?;
        if section.flags & u64::from(SHF_COMPRESSED) == 0 {
            return Some(bytes);
        }
        // An `Elf64_Chdr`: 4 bytes for the kind, 4 of nothing, 8 each for the size and the
        // alignment.
        let compressed = bytes.split_first_chunk::<24>().and_then(|(header, compressed)| {
            let kind = u32::from_le_bytes(*header.first_chunk()?);
            (kind == ELFCOMPRESS_ZLIB).then_some(compressed)
        });
        self.decompressed(compressed)
    }

    /// A section that was compressed as before there was a flag for that: `ZLIB`, 8 bytes for the
    /// size.
    fn zdebug(&mut self, section: &SectionHeader) -> Option<Vec<u8>> {
        let bytes = self.bytes(section.offset, section.size)?;
        self.decompressed(bytes.strip_prefix(b"ZLIB").and_then(|bytes| bytes.get(8..)))
    }

    fn decompressed(&mut self, compressed: Option<&[u8]>) -> Option<Vec<u8>> {
        let bytes = compressed.and_then(|compressed| {
            let mut bytes = Vec::new();
            ZlibDecoder::new(compressed).take(self.left + 1).read_to_end(&mut bytes).ok()?;
            self.left = self.left.checked_sub(bytes.len() as u64)?;
            Some(bytes)
        });
        self.is_partial |= bytes.is_none();
        bytes
    }
}

fn pread(file: &File, offset: u64, size: u64) -> Option<Vec<u8>> {
    // Not more than the file has, so that a wrong size costs no memory.
    let end = offset.checked_add(size)?;
    if end > file.metadata().ok()?.len() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}
