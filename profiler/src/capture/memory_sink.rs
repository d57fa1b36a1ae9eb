//! Recordings in memory: as bytes, or put together while slices come.

use std::io;

use offwake_recording::{
    Recording,
    stream::{Assembly, Damage},
};

use super::sink::{EncodedSlice, NewSlice, RemovedSlice, Sink, SliceOffsets};

/// A recording's bytes in memory.
#[derive(Debug, Default)]
pub struct MemorySink {
    /// The bytes.
    pub bytes: Vec<u8>,
    offsets: SliceOffsets,
}

impl MemorySink {
    fn add(&mut self, slice: EncodedSlice) {
        self.offsets.push(self.bytes.len() as u64, slice.summary);
        self.bytes.extend(slice.bytes);
    }
}

impl Sink for MemorySink {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        self.bytes = header.to_vec();
        Ok(())
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        self.add(slice.encode()?);
        Ok(())
    }

    fn remove_last(&mut self) -> io::Result<Option<RemovedSlice>> {
        Ok(self.offsets.pop().map(|(offset, removed)| {
            self.bytes.truncate(usize::try_from(offset).unwrap_or(usize::MAX));
            removed
        }))
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.bytes.extend(mark);
        Ok(())
    }
}

/// Puts a recording together from the slices themselves, by the code that also reads recordings:
/// nothing is left to be read when the window has closed.
#[derive(Default)]
pub struct AssemblingSink {
    assembly: Assembly,
    bytes: Option<MemorySink>,
}

impl AssemblingSink {
    /// Keeps the recording's bytes as well, for those who want to write these too.
    #[must_use]
    pub fn with_bytes() -> Self {
        Self { bytes: Some(MemorySink::default()), ..Self::default() }
    }

    /// The recording, and its bytes if they were wanted.
    #[must_use]
    pub fn finish(self) -> (Recording, Option<Vec<u8>>) {
        let recording = self.assembly.finish(Damage::default());
        (recording, self.bytes.map(|memory| memory.bytes))
    }
}

impl Sink for AssemblingSink {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        self.assembly = Assembly::default();
        self.bytes.as_mut().map_or(Ok(()), |bytes| bytes.begin(header))
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        if let Some(bytes) = &mut self.bytes {
            bytes.add(slice.encode()?);
        }
        self.assembly.add(slice.into_content());
        Ok(())
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.bytes.as_mut().map_or(Ok(()), |bytes| bytes.end(mark))
    }
}
