//! Build ids: what a file's notes say, and nothing else of it.

use object::{
    Endianness, ReadRef,
    elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PT_NOTE, SHT_NOTE},
    read::elf::NoteIterator,
};

use super::headers::{self, Headers};
use crate::recording::BuildId;

/// The build id of an ELF file, from its sections as `readelf` has it, or from its segments if it
/// has no sections. None if it is no such file or has none.
pub(super) fn of_elf<'data, R: ReadRef<'data>>(data: R) -> Option<BuildId> {
    headers::read(data, |headers, data| of_headers(&headers, data))
}

/// The build id that these headers lead to.
pub(super) fn of_headers<'data, R: ReadRef<'data>>(
    Headers { endian, sections, segments, .. }: &Headers,
    data: R,
) -> Option<BuildId> {
    let mut of_sections = (sections.iter())
        .filter(|section| section.kind == SHT_NOTE)
        .map(|section| (section.offset, section.size, section.alignment));
    let mut of_segments = (segments.iter())
        .filter(|segment| segment.kind == PT_NOTE)
        .map(|segment| (segment.offset, segment.file_size, segment.alignment));
    let read = |(offset, size, alignment)| {
        in_notes(data.read_bytes_at(offset, size).ok()?, *endian, alignment)
    };
    match sections.is_empty() {
        true => of_segments.find_map(read),
        false => of_sections.find_map(read),
    }
}

fn in_notes(notes: &[u8], endian: Endianness, alignment: u64) -> Option<BuildId> {
    // Both classes of ELF have the same notes.
    let mut notes = NoteIterator::<FileHeader64<_>>::new(endian, alignment, notes).ok()?;
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
    in_notes(&std::fs::read("/sys/kernel/notes").ok()?, Endianness::default(), 4)
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
