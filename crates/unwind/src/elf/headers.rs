//! The headers of an ELF file, and nothing else of it.

use std::{
    cell::Cell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use object::{
    Endianness, FileKind, ReadRef,
    elf::{FileHeader32, FileHeader64, SHT_NOTE, SHT_PROGBITS},
    read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _},
};

/// Bytes that are read of one file. As many section headers as a file can have without an extended
/// count are 4 MiB; notes are some 100 bytes, with those of probes some 100 KiB.
const MAX_READ: u64 = 8 << 20;

/// A section header.
pub struct SectionHeader {
    /// Where the section's name begins in [`Headers::section_names`].
    pub name: u32,
    /// `SHT_…`.
    pub kind: u32,
    /// `SHF_…`.
    pub flags: u64,
    /// Where in the file the section begins.
    pub offset: u64,
    /// Where in memory the section is to be; 0 if nowhere.
    pub address: u64,
    /// Bytes of the section.
    pub size: u64,
    /// The index of another section that belongs to this one.
    pub link: u32,
    /// `sh_addralign`
    pub alignment: u64,
}

/// A program header.
pub struct ProgramHeader {
    /// `PT_…`.
    pub kind: u32,
    /// `PF_…`.
    pub flags: u32,
    /// Where in the file the segment begins.
    pub offset: u64,
    /// Where in memory the segment is to be.
    pub address: u64,
    /// Bytes of the segment in the file.
    pub file_size: u64,
    /// Bytes of the segment in memory.
    pub memory_size: u64,
    /// `p_align`
    pub alignment: u64,
}

/// What a file's headers say. None of it need be true.
pub struct Headers {
    /// The byte order of the file.
    pub endian: Endianness,
    /// `EM_…`: the machine that the code is for.
    pub machine: u16,
    /// The section headers.
    pub sections: Vec<SectionHeader>,
    /// The index of the section that holds the names of all sections.
    pub section_names: Option<usize>,
    /// The program headers.
    pub segments: Vec<ProgramHeader>,
}

/// Reads the headers of an ELF file, and lets `body` read more of the file, within a limit. None if
/// the file is no ELF file.
pub fn read<'data, R: ReadRef<'data>, T>(
    data: R,
    body: impl FnOnce(Headers, LimitedFile<'_, R>) -> Option<T>,
) -> Option<T> {
    read_within(data, MAX_READ, body)
}

/// The same with another limit, in bytes.
pub(super) fn read_within<'data, R: ReadRef<'data>, T>(
    data: R,
    limit: u64,
    body: impl FnOnce(Headers, LimitedFile<'_, R>) -> Option<T>,
) -> Option<T> {
    let left = Cell::new(limit);
    let data = LimitedFile { data, left: &left };
    // The last resort: no ELF file that we know of makes this panic.
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let headers = match FileKind::parse(data).ok()? {
            FileKind::Elf32 => parse_class::<FileHeader32<Endianness>, _>(data),
            FileKind::Elf64 => parse_class::<FileHeader64<Endianness>, _>(data),
            _ => None,
        };
        body(headers?, data)
    }));
    attempt.ok().flatten()
}

fn parse_class<'data, Elf, R>(data: R) -> Option<Headers>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.section_headers(endian, data).unwrap_or_default();
    let segments = header.program_headers(endian, data).unwrap_or_default();
    let section = |section: &Elf::SectionHeader| SectionHeader {
        name: section.sh_name(endian),
        kind: section.sh_type(endian),
        flags: section.sh_flags(endian).into(),
        offset: section.sh_offset(endian).into(),
        address: section.sh_addr(endian).into(),
        size: section.sh_size(endian).into(),
        link: section.sh_link(endian),
        alignment: section.sh_addralign(endian).into(),
    };
    let segment = |segment: &Elf::ProgramHeader| ProgramHeader {
        kind: segment.p_type(endian),
        flags: segment.p_flags(endian),
        offset: segment.p_offset(endian).into(),
        address: segment.p_vaddr(endian).into(),
        file_size: segment.p_filesz(endian).into(),
        memory_size: segment.p_memsz(endian).into(),
        alignment: segment.p_align(endian).into(),
    };
    Some(Headers {
        endian,
        machine: header.e_machine(endian),
        sections: sections.iter().map(section).collect(),
        section_names: header.shstrndx(endian, data).ok().map(|index| index as usize),
        segments: segments.iter().map(segment).collect(),
    })
}

/// The section of this name that is content or a note.
pub(super) fn find_section<'h, 'data, R: ReadRef<'data>>(
    headers: &'h Headers,
    data: LimitedFile<'_, R>,
    name: &[u8],
) -> Option<&'h SectionHeader> {
    let names = read_section(data, headers.sections.get(headers.section_names?)?)?;
    headers.sections.iter().find(|section| {
        let rest = names.get(section.name as usize..).unwrap_or_default();
        rest.strip_prefix(name).is_some_and(|behind| behind.first() == Some(&0))
            && (section.kind == SHT_PROGBITS || section.kind == SHT_NOTE)
    })
}

/// The bytes of a section.
pub(super) fn read_section<'data, R: ReadRef<'data>>(
    data: LimitedFile<'_, R>,
    section: &SectionHeader,
) -> Option<&'data [u8]> {
    data.read_bytes_at(section.offset, section.size).ok()
}

/// A file that can be read up to a limit: it claims whatever sizes it likes.
#[derive(Clone, Copy)]
pub struct LimitedFile<'a, R> {
    data: R,
    left: &'a Cell<u64>,
}

impl<'data, R: ReadRef<'data>> ReadRef<'data> for LimitedFile<'_, R> {
    fn len(self) -> Result<u64, ()> {
        self.data.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        self.data.read_bytes_at(offset, size)
    }

    /// Nobody reads strings by this, so it always fails.
    fn read_bytes_at_until(self, _range: Range<u64>, _delimiter: u8) -> Result<&'data [u8], ()> {
        Err(())
    }
}
