//! Build ids, which are in the notes of a file.

use object::{
    Endianness, ReadRef,
    elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PT_NOTE, SHT_NOTE},
    read::elf::NoteIterator,
};

use offwake_recording::BuildId;

use super::headers::{self, Headers};

/// The build id of an ELF file, from its sections as `readelf` has it, or from its segments if it
/// has no sections. None if it is no such file or has none.
pub fn from_file<'data, R: ReadRef<'data>>(data: R) -> Option<BuildId> {
    headers::read(data, |headers, data| from_headers(&headers, data))
}

/// The build id in the notes that these headers lead to.
pub fn from_headers<'data, R: ReadRef<'data>>(
    Headers { endian, sections, segments, .. }: &Headers,
    data: R,
) -> Option<BuildId> {
    let mut in_sections = (sections.iter())
        .filter(|section| section.kind == SHT_NOTE)
        .map(|section| (section.offset, section.size, section.alignment));
    let mut in_segments = (segments.iter())
        .filter(|segment| segment.kind == PT_NOTE)
        .map(|segment| (segment.offset, segment.file_size, segment.alignment));
    let read = |(offset, size, alignment)| {
        from_notes(data.read_bytes_at(offset, size).ok()?, *endian, alignment)
    };
    match sections.is_empty() {
        true => in_segments.find_map(read),
        false => in_sections.find_map(read),
    }
}

fn from_notes(notes: &[u8], endian: Endianness, alignment: u64) -> Option<BuildId> {
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

/// The build id in notes of this machine's byte order, as `/sys/kernel/notes` has them.
#[must_use]
pub fn from_native_notes(notes: &[u8]) -> Option<BuildId> {
    from_notes(notes, Endianness::default(), 4)
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

    fn build_note(kind: u8, name: &[u8; 4], contents: &[u8]) -> Vec<u8> {
        let length = u32::try_from(contents.len()).unwrap();
        let mut note = [[4, 0, 0, 0], length.to_le_bytes(), [kind, 0, 0, 0], *name].concat();
        note.extend(contents);
        note
    }

    #[test]
    fn the_note_is_found_among_others() {
        let notes = [
            build_note(3, b"Go\0\0", b"none"),
            build_note(1, b"GNU\0", b"abi!"),
            build_note(3, b"GNU\0", b"\0\0\0\0"),
            build_note(3, b"GNU\0", b"\xab\xcd\0\x01"),
        ];
        let build_id = from_file(file(&notes.concat()).as_slice()).expect("a build id");
        assert_eq!(build_id.bytes(), b"\xab\xcd\0\x01");
        assert_eq!(build_id.to_string(), "abcd0001");
        assert_eq!(from_file(file(&notes[..3].concat()).as_slice()), None);
    }

    #[test]
    fn what_is_too_large_is_none() {
        assert!(from_file(file(&build_note(3, b"GNU\0", &[7; 64])).as_slice()).is_some());
        assert_eq!(from_file(file(&build_note(3, b"GNU\0", &[7; 68])).as_slice()), None);
        let mut long = build_note(1, b"GNU\0", &vec![0; 9 << 20]);
        long.extend(build_note(3, b"GNU\0", b"abcd"));
        assert_eq!(from_file(file(&long).as_slice()), None);
    }

    #[test]
    fn garbage_is_none() {
        let whole = file(&build_note(3, b"GNU\0", b"abcd"));
        for length in 0..whole.len() {
            assert_eq!(from_file(&whole[..length]), None, "{length}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _any = from_file(bytes.as_slice());
            }
        }
    }
}
