//! Build ids: what a file's notes say, and nothing else of it.

use std::{
    cell::Cell,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use object::{
    Endianness, FileKind, ReadRef,
    elf::{ELF_NOTE_GNU, FileHeader32, FileHeader64, NT_GNU_BUILD_ID},
    read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader},
};

use crate::recording::BuildId;

/// Bytes that are read of one file. As many section headers as a file can have without an extended
/// count are 4 MiB; the notes are some 100 bytes, with those of probes some 100 KiB.
const MAX_READ: u64 = 8 << 20;

/// The build id of an ELF file, from its sections as `readelf` has it, or from its segments if it
/// has no sections. None if it is no such file or has none.
pub(super) fn of_elf<'data, R: ReadRef<'data>>(data: R) -> Option<BuildId> {
    let left = Cell::new(MAX_READ);
    let data = Limited { data, left: &left };
    // The last resort: no ELF file that we know of makes it panic.
    let attempt = catch_unwind(AssertUnwindSafe(|| match FileKind::parse(data).ok()? {
        FileKind::Elf32 => of_class::<FileHeader32<Endianness>, _>(data),
        FileKind::Elf64 => of_class::<FileHeader64<Endianness>, _>(data),
        _ => None,
    }));
    attempt.ok().flatten()
}

fn of_class<'data, Elf, R>(data: R) -> Option<BuildId>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.section_headers(endian, data).unwrap_or_default();
    let mut of_sections = sections.iter().filter_map(|section| section.notes(endian, data).ok()?);
    if !sections.is_empty() {
        return of_sections.find_map(|notes| in_notes(notes, endian));
    }
    let segments = header.program_headers(endian, data).unwrap_or_default();
    let mut of_segments = segments.iter().filter_map(|segment| segment.notes(endian, data).ok()?);
    of_segments.find_map(|notes| in_notes(notes, endian))
}

fn in_notes<Elf>(mut notes: NoteIterator<'_, Elf>, endian: Endianness) -> Option<BuildId>
where
    Elf: FileHeader<Endian = Endianness>,
{
    while let Ok(Some(note)) = notes.next() {
        if note.name() == ELF_NOTE_GNU
            && note.n_type(endian) == NT_GNU_BUILD_ID
            && let Some(build_id) = BuildId::new(note.desc())
        {
            return Some(build_id);
        }
    }
    None
}

/// The build id of the running kernel, from its own notes.
///
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/ksysfs.c>, `notes_read`
pub(super) fn of_kernel() -> Option<BuildId> {
    let notes = std::fs::read("/sys/kernel/notes").ok()?;
    let endian = Endianness::default();
    // Both classes of ELF have the same notes.
    in_notes(NoteIterator::<FileHeader64<Endianness>>::new(endian, 4, &notes).ok()?, endian)
}

/// Lets a file be read up to a limit: it claims whatever sizes it likes.
#[derive(Clone, Copy)]
struct Limited<'a, R> {
    data: R,
    left: &'a Cell<u64>,
}

impl<'data, R: ReadRef<'data>> ReadRef<'data> for Limited<'_, R> {
    fn len(self) -> Result<u64, ()> {
        self.data.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        self.data.read_bytes_at(offset, size)
    }

    /// Strings are not wanted.
    fn read_bytes_at_until(self, _range: Range<u64>, _delimiter: u8) -> Result<&'data [u8], ()> {
        Err(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit ELF file with one section of notes.
    fn file(notes: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0");
        file.extend([0; 16]);
        file.extend(64u64.to_le_bytes());
        file.extend(b"\0\0\0\0\x40\0\x38\0\0\0\x40\0\x01\0\0\0");
        file.extend([0, 0, 0, 0, 7, 0, 0, 0]);
        file.extend([0; 16]);
        file.extend(128u64.to_le_bytes());
        file.extend((notes.len() as u64).to_le_bytes());
        file.extend([0; 8]);
        file.extend(4u64.to_le_bytes());
        file.extend([0; 8]);
        file.extend(notes);
        file
    }

    fn note(kind: u8, name: &[u8; 4], contents: &[u8]) -> Vec<u8> {
        let length = u32::try_from(contents.len()).unwrap();
        let mut note = [[4, 0, 0, 0], length.to_le_bytes(), [kind, 0, 0, 0], *name].concat();
        note.extend(contents);
        note
    }

    #[test]
    fn the_note_is_found_among_others() {
        let notes = [
            note(3, b"Go\0\0", b"none"),
            note(1, b"GNU\0", b"abi!"),
            note(3, b"GNU\0", b"\0\0\0\0"),
            note(3, b"GNU\0", b"\xab\xcd\0\x01"),
        ];
        let build_id = of_elf(file(&notes.concat()).as_slice()).expect("a build id");
        assert_eq!(build_id.bytes(), b"\xab\xcd\0\x01");
        assert_eq!(build_id.to_string(), "abcd0001");
        assert_eq!(of_elf(file(&notes[..3].concat()).as_slice()), None);
    }

    #[test]
    fn what_is_too_large_is_none() {
        assert!(of_elf(file(&note(3, b"GNU\0", &[7; 64])).as_slice()).is_some());
        assert_eq!(of_elf(file(&note(3, b"GNU\0", &[7; 68])).as_slice()), None);
        let mut long = note(1, b"GNU\0", &vec![0; 9 << 20]);
        long.extend(note(3, b"GNU\0", b"abcd"));
        assert_eq!(of_elf(file(&long).as_slice()), None);
    }

    #[test]
    fn garbage_is_none() {
        let whole = file(&note(3, b"GNU\0", b"abcd"));
        for length in 0..whole.len() {
            assert_eq!(of_elf(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _any = of_elf(bytes.as_slice());
            }
        }
    }

    #[test]
    fn the_kernel_has_one_if_it_shows_its_notes() {
        let shown = std::fs::exists("/sys/kernel/notes").unwrap();
        assert_eq!(of_kernel().is_some(), shown);
    }
}
