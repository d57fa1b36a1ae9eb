//! What a recording says of a file, so that names can be found without it.

use object::ReadRef;
use offwake_recording::{BuildId, Module, Segment, loss::Diagnostics};
use offwake_unwind::elf::{build_id, headers, layout};

/// Segments of code that are kept of a file. Linkers make one, or two.
const MAX_SEGMENTS: usize = 16;

/// Which build a file is of, and where its code is. A file that is no ELF file has neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleDescription {
    pub build_id: Option<BuildId>,
    pub segments: Vec<Segment>,
    /// The number of segments over the limit.
    pub left_out: usize,
}

impl ModuleDescription {
    /// Reads the headers and notes of a file.
    pub(crate) fn read<'data, R: ReadRef<'data>>(data: R) -> Self {
        let described = headers::read(data, |headers, data| {
            let mut code = layout::code_segments(&headers);
            let segments = code.by_ref().take(MAX_SEGMENTS).collect();
            let left_out = code.count();
            Some(Self { build_id: build_id::from_headers(&headers, data), segments, left_out })
        });
        described.unwrap_or_default()
    }

    /// The module that this describes.
    pub(crate) fn into_module(self, path: String, diagnostics: &mut Diagnostics) -> Module {
        if self.left_out > 0 {
            *diagnostics.entry("symbols_segments_over_limit").or_default() += self.left_out as u64;
        }
        Module { path, build_id: self.build_id, segments: self.segments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 64-bit ELF file of program headers alone: `PF_…`, and three numbers that count up.
    fn file(flags: &[u8]) -> Vec<u8> {
        let count = u8::try_from(flags.len()).unwrap();
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        file.extend([0; 8]);
        file.extend(64u64.to_le_bytes());
        file.extend([0; 12]);
        file.extend([64, 0, 56, 0, count, 0, 64, 0, 0, 0, 0, 0]);
        for (n, &flags) in (0u64..).zip(flags) {
            file.extend([1, 0, 0, 0, flags, 0, 0, 0]);
            for number in [n << 32, n + 2, 0, n + 1, n + 1, 4096] {
                file.extend(number.to_le_bytes());
            }
        }
        file
    }

    #[test]
    fn segments_of_code_are_kept_up_to_a_limit() {
        let of = |flags: &[u8]| ModuleDescription::read(file(flags).as_slice());
        // Read and execute, read and write, execute alone.
        let segment = |n: u64| Segment { offset: n << 32, address: n + 2, size: n + 1 };
        assert_eq!(of(&[5, 6, 1]).segments, [segment(0), segment(2)]);
        let many = of(&[5; 30]);
        assert_eq!(many.segments, (0..16).map(segment).collect::<Vec<_>>());
        assert_eq!(many.left_out, 14);
        assert_eq!(ModuleDescription::read(&b"#!/bin/sh\n"[..]), ModuleDescription::default());
    }

    #[test]
    fn garbage_does_no_harm() {
        let whole = file(&[5, 5]);
        for length in 0..whole.len() {
            assert_eq!(ModuleDescription::read(&whole[..length]).segments, [], "{length}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let segments = ModuleDescription::read(bytes.as_slice()).segments;
                let _any = layout::CodeLayout::from_segments(&segments).map(|code| code.address(1));
            }
        }
    }
}
