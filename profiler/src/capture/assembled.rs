//! A recording that is put together while it comes.

use std::io;

use super::sink::{Memory, NewSlice, Sink};
use crate::recording::{
    Recording,
    stream::{Assembly, Damage},
};

/// Takes the slices as they are, as whoever reads a recording does with what it has decoded: nothing
/// is left to be read when the window has closed.
#[derive(Default)]
pub struct Assembled {
    assembly: Assembly,
    bytes: Option<Memory>,
}

impl Assembled {
    /// With the recording's bytes beside it, for those who want to write these too.
    #[must_use]
    pub fn with_bytes() -> Self {
        Self { bytes: Some(Memory::default()), ..Self::default() }
    }

    /// The recording, and its bytes if they were wanted.
    #[must_use]
    pub fn finish(self) -> (Recording, Option<Vec<u8>>) {
        let recording = self.assembly.finish(Damage::default());
        (recording, self.bytes.map(|memory| memory.bytes))
    }
}

impl Sink for Assembled {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        self.assembly = Assembly::default();
        self.bytes.as_mut().map_or(Ok(()), |bytes| bytes.begin(header))
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        if let Some(bytes) = &mut self.bytes {
            bytes.add(slice.encode()?);
        }
        self.assembly.add(slice.take());
        Ok(())
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.bytes.as_mut().map_or(Ok(()), |bytes| bytes.end(mark))
    }
}
