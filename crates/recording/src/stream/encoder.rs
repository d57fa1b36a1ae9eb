//! Slices → the bytes of a recording.

use arrow_ipc::{
    CompressionType, MetadataVersion,
    writer::{IpcWriteOptions, StreamEncoder},
};
use arrow_schema::{ArrowError, Schema, SchemaRef};

use super::{
    framing::{MAX_BODY, MAX_METADATA, parse_metadata},
    reader::{MAX_UNPACKED, unpacked_size},
    size,
    slice::{Slice, schema},
};

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
    schema: SchemaRef,
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
        Ok(Self { encoder, header, schema })
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
    /// If it is larger than readers take: 512 MiB, or 256 MiB when it is compressed.
    pub fn encode(&mut self, slice: &Slice) -> Result<Vec<u8>, ArrowError> {
        // Before the columns are made: those of more than 2 GiB would be a panic.
        if size::measure_texts(slice) > MAX_UNPACKED {
            return Err(too_large());
        }
        let bytes = join(&self.encoder.encode(&slice.to_batch()?)?);
        if is_readable(&bytes, &self.schema) { Ok(bytes) } else { Err(too_large()) }
    }
}

fn too_large() -> ArrowError {
    ArrowError::InvalidArgumentError("a slice is larger than readers take".to_owned())
}

/// Whether a message is within the limits of those who read it.
fn is_readable(message: &[u8], schema: &Schema) -> bool {
    let parts = || {
        let length = u32::from_le_bytes(*message.get(4..)?.first_chunk()?) as usize;
        message.get(8..)?.split_at_checked(length)
    };
    let Some((metadata, body)) = parts() else { return false };
    metadata.len() <= MAX_METADATA
        && body.len() <= MAX_BODY
        && parse_metadata(metadata)
            .is_some_and(|message| unpacked_size(message, body, schema).is_some())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameId, Function};

    /// A source file's path is repeated for each function.
    fn named(frames: u32, functions: usize, length: usize) -> Slice {
        let file = Some("f".repeat(length).into());
        let functions = vec![Function { file, ..Function::named("main") }; functions];
        let names = (0..frames).map(|id| (FrameId(id), functions.clone())).collect();
        Slice { names, ..Slice::default() }
    }

    /// What is larger than that compresses to next to nothing, and can't be read all the same.
    #[test]
    fn what_readers_would_reject_is_not_encoded() {
        let mut encoder = Encoder::new().unwrap();
        let fits = named(100, 128, 4096);
        let too_large = named(1100, 128, 4096);
        assert!(size::measure_texts(&fits) < MAX_UNPACKED);
        assert!(size::measure_texts(&too_large) > MAX_UNPACKED);
        let bytes = encoder.encode(&fits).unwrap();
        assert!(is_readable(&bytes, &encoder.schema));
        encoder.encode(&too_large).unwrap_err();
        // As for what is not measured before.
        let mut broken = bytes;
        broken.truncate(1000);
        assert!(!is_readable(&broken, &encoder.schema));
        assert!(!is_readable(&[], &encoder.schema));
        // It goes on all the same.
        encoder.encode(&Slice::default()).unwrap();
    }
}
