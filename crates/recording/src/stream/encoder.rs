//! Slices → the bytes of a recording.

use arrow_ipc::{
    CompressionType, MetadataVersion,
    writer::{IpcWriteOptions, StreamEncoder},
};
use arrow_schema::{ArrowError, SchemaRef};

use super::slice::{Slice, schema};

/// What follows the last slice of a recording that was closed.
pub const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// On the pipe benchmark's waits: 13.0 bytes and 295 ns a wait; level 3 has 12.5 bytes and 306 ns,
/// LZ4 28.3 bytes and 210 ns (`docs/decisions/0004-recordings.md`).
const ZSTD_LEVEL: i32 = 1;

/// Encodes one recording.
///
/// ```text
/// header | slice | slice | … | slice | END
/// ```
///
/// Each slice is a message of its own, which depends on none before it: any of them may be left out.
pub struct Encoder {
    encoder: StreamEncoder,
    header: Vec<u8>,
}

impl Encoder {
    /// For one recording.
    ///
    /// # Errors
    ///
    /// If the schema can't be put into the format.
    pub fn new() -> Result<Self, ArrowError> {
        let schema = schema()?;
        let mut encoder = stream(&schema)?;
        let header = join(&encoder.encode(&Slice::default().to_batch()?)?);
        let first = join(&encoder.encode(&Slice::default().to_batch()?)?);
        // The first message comes with the schema before it, the second without.
        let header = header[..header.len().saturating_sub(first.len())].to_vec();
        Ok(Self { encoder, header })
    }

    /// What a recording begins with.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// A slice's bytes.
    ///
    /// # Errors
    ///
    /// If it is too large for the format: 2 GiB of one column.
    pub fn encode(&mut self, slice: &Slice) -> Result<Vec<u8>, ArrowError> {
        Ok(join(&self.encoder.encode(&slice.to_batch()?)?))
    }
}

fn stream(schema: &SchemaRef) -> Result<StreamEncoder, ArrowError> {
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?
        .try_with_compression(Some(CompressionType::ZSTD))?
        .try_with_compression_level(Some(ZSTD_LEVEL))?;
    StreamEncoder::try_new_with_options(schema, options)
}

fn join(buffers: &[arrow_buffer::Buffer]) -> Vec<u8> {
    buffers.iter().map(|buffer| buffer.as_slice()).collect::<Vec<_>>().concat()
}
