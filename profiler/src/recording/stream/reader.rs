//! A recording's bytes → its slices, each either whole or said to be missing.

use std::{
    collections::HashMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::{
    Message as ArrowMessage, MessageHeader, convert::try_fb_to_schema, reader::read_record_batch,
    root_as_message,
};
use arrow_schema::SchemaRef;

use super::{
    Damage, FORMAT_KEY, FORMAT_VERSION, ReadError,
    framing::{Message, Messages, Next, Source},
    slice::{Slice, schema},
};

/// Bytes that the columns of one slice may have when they are decompressed.
const MAX_UNPACKED: u64 = 1 << 29;

/// Goes through a recording slice by slice.
pub struct Slices<'a, S: Source + ?Sized> {
    messages: Messages<'a, S>,
    schema: Option<SchemaRef>,
    /// The schema is this version's own, for want of the recording's.
    schema_is_assumed: bool,
    damage: Damage,
}

impl<'a, S: Source + ?Sized> Slices<'a, S> {
    /// Nothing is read yet.
    ///
    /// # Errors
    ///
    /// If the source has no size.
    pub fn new(source: &'a S) -> Result<Self, ReadError> {
        Ok(Self {
            messages: Messages::new(source)?,
            schema: None,
            schema_is_assumed: false,
            damage: Damage { cut_off: true, ..Damage::default() },
        })
    }

    /// The next slice that can be read; none behind the last.
    ///
    /// # Errors
    ///
    /// If the source can't be read, or holds no recording that this version knows.
    pub fn next_whole(&mut self) -> Result<Option<Slice>, ReadError> {
        loop {
            match self.messages.next_one()? {
                Next::Nothing => return Ok(None),
                Next::End => self.damage.cut_off = false,
                Next::Skipped(bytes) => self.damage.bytes_skipped += bytes,
                Next::Message(message) => {
                    if let Some(slice) = self.message(&message)? {
                        return Ok(Some(slice));
                    }
                }
            }
        }
    }

    /// What was wrong so far.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    fn message(&mut self, message: &Message) -> Result<Option<Slice>, ReadError> {
        let Ok(metadata) = root_as_message(&message.metadata) else { return Ok(None) };
        if metadata.header_type() == MessageHeader::Schema {
            if self.schema.is_none() || self.schema_is_assumed {
                self.take_schema(metadata)?;
            }
            return Ok(None);
        }
        let schema = match &self.schema {
            Some(schema) => schema.clone(),
            // Its schema is broken. The checksums tell whether this is the right one.
            None => {
                self.schema_is_assumed = true;
                self.damage.schema_missing = true;
                self.schema.insert(schema()?).clone()
            }
        };
        let batch = decode(metadata, &message.body, schema);
        let Some((slice, damage)) = batch.as_ref().and_then(Slice::from_batch) else {
            self.damage.slices_damaged += 1;
            return Ok(None);
        };
        self.damage.tables_damaged += damage.tables_damaged;
        self.damage.rows_unreadable += damage.rows_unreadable;
        self.damage.tables_missing.extend(damage.tables_missing);
        Ok(Some(slice))
    }

    fn take_schema(&mut self, message: ArrowMessage<'_>) -> Result<(), ReadError> {
        let schema = message.header_as_schema().and_then(|schema| {
            catch_unwind(AssertUnwindSafe(|| try_fb_to_schema(schema))).ok()?.ok()
        });
        // Broken: as if it were not there.
        let Some(schema) = schema else { return Ok(()) };
        let version = schema.metadata().get(FORMAT_KEY).ok_or(ReadError::NotARecording)?;
        match version.parse::<u32>() {
            Ok(version) if version > FORMAT_VERSION => Err(ReadError::Newer { version }),
            Ok(_) => {
                self.schema = Some(schema.into());
                self.schema_is_assumed = false;
                Ok(())
            }
            Err(_) => Err(ReadError::NotARecording),
        }
    }
}

/// A record batch, if its message says nothing that can't be.
fn decode(message: ArrowMessage<'_>, body: &[u8], schema: SchemaRef) -> Option<RecordBatch> {
    let batch = message.header_as_record_batch()?;
    let is_compressed = batch.compression().is_some();
    let mut unpacked = 0_u64;
    for buffer in batch.buffers()? {
        let offset = usize::try_from(buffer.offset()).ok()?;
        let length = usize::try_from(buffer.length()).ok()?;
        let bytes = body.get(offset..offset.checked_add(length)?)?;
        let claim = match bytes.first_chunk() {
            Some(claim) if is_compressed => i64::from_le_bytes(*claim),
            _ => -1,
        };
        let size = if claim == -1 { length as u64 } else { u64::try_from(claim).ok()? };
        unpacked = unpacked.checked_add(size)?;
    }
    // Checked before anything is allocated for it.
    if unpacked > MAX_UNPACKED {
        return None;
    }
    let body = Buffer::from(body);
    let version = message.version();
    // Everything in it is somebody else's; the library checks it, and this is in case it forgot.
    catch_unwind(AssertUnwindSafe(|| {
        read_record_batch(&body, batch, schema, &HashMap::new(), None, &version).ok()
    }))
    .ok()
    .flatten()
}

impl From<arrow_schema::ArrowError> for ReadError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self::Io(io::Error::other(error))
    }
}
