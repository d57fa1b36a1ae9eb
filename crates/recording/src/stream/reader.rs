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
};
use arrow_schema::{Schema, SchemaRef};

use super::{
    Damage, FORMAT_KEY, FORMAT_VERSION, ReadError,
    framing::{Message, Messages, Next, Source, parse_metadata},
    shape, size,
    slice::{Slice, schema},
};
use crate::Wait;

/// Bytes that the columns of one slice may have when they are decompressed.
pub(super) const MAX_UNPACKED: u64 = 1 << 29;

/// Goes through a recording slice by slice.
pub struct Slices<'a, S: Source + ?Sized> {
    messages: Messages<'a, S>,
    schema: Option<SchemaRef>,
    /// The schema is this version's own, for want of the recording's.
    schema_is_assumed: bool,
    damage: Damage,
    memory: Memory,
}

/// What may be held in memory, and what is.
#[derive(Clone, Copy)]
struct Memory {
    limit: usize,
    taken: usize,
}

impl Memory {
    /// # Errors
    ///
    /// If there is not that much left.
    fn check(&self, more: usize) -> Result<(), ReadError> {
        let Self { limit, taken } = *self;
        let needed = taken.saturating_add(more);
        if needed > limit { Err(ReadError::TooLarge { limit, needed }) } else { Ok(()) }
    }
}

impl<'a, S: Source + ?Sized> Slices<'a, S> {
    /// Nothing is read yet. The rows of all slices may take about `max_memory` bytes; while a slice
    /// is read, its columns take up to as much again.
    ///
    /// # Errors
    ///
    /// If the source has no size.
    pub fn new(source: &'a S, max_memory: usize) -> Result<Self, ReadError> {
        Ok(Self {
            messages: Messages::new(source)?,
            schema: None,
            schema_is_assumed: false,
            damage: Damage { cut_off: true, ..Damage::default() },
            memory: Memory { limit: max_memory, taken: 0 },
        })
    }

    /// The next slice that can be read; none behind the last.
    ///
    /// # Errors
    ///
    /// If the source can't be read, holds no recording that this version knows, or takes more
    /// memory.
    pub fn next_whole(&mut self) -> Result<Option<Slice>, ReadError> {
        loop {
            match self.messages.next_one()? {
                Next::Nothing => return Ok(None),
                Next::End => self.damage.cut_off = false,
                Next::Skipped(bytes) => self.damage.bytes_skipped += bytes,
                Next::Message(message) => {
                    if let Some(slice) = self.message(message)? {
                        return Ok(Some(slice));
                    }
                }
            }
        }
    }

    /// Waits that came in slices are kept in `bytes` now, instead of as they came.
    pub(super) fn waits_packed(&mut self, waits: usize, bytes: usize) {
        let came_in = waits * size_of::<Wait>();
        self.memory.taken = self.memory.taken.saturating_sub(came_in).saturating_add(bytes);
    }

    /// What was wrong so far.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Whether it begins like a recording, though nothing may follow.
    pub(super) fn has_schema(&self) -> bool {
        self.schema.is_some()
    }

    fn message(&mut self, Message { metadata, body }: Message) -> Result<Option<Slice>, ReadError> {
        let Some(metadata) = parse_metadata(&metadata) else { return Ok(None) };
        if metadata.header_type() == MessageHeader::Schema {
            if self.schema.is_none() || self.schema_is_assumed {
                self.accept_schema(metadata)?;
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
        let unpacked = unpacked_size(metadata, &body, &schema);
        self.memory.check(unpacked.unwrap_or(0))?;
        let whole = unpacked.and_then(|_| decode(metadata, body, schema));
        // What is thrown away counts too: reading it takes its time.
        let rows = whole.as_ref().map_or(0, size::measure_rows).max(unpacked.unwrap_or(0));
        self.memory.check(rows)?;
        self.memory.taken += rows;
        let Some((slice, damage)) = whole.as_ref().and_then(Slice::from_batch) else {
            self.damage.slices_damaged += 1;
            return Ok(None);
        };
        self.damage.tables_damaged += damage.tables_damaged;
        self.damage.rows_unreadable += damage.rows_unreadable;
        self.damage.tables_missing.extend(damage.tables_missing);
        Ok(Some(slice))
    }

    fn accept_schema(&mut self, message: ArrowMessage<'_>) -> Result<(), ReadError> {
        let schema = message.header_as_schema().and_then(|schema| {
            catch_unwind(AssertUnwindSafe(|| try_fb_to_schema(schema))).ok()?.ok()
        });
        // Broken: as if it were not there.
        let Some(schema) = schema else { return Ok(()) };
        let version = schema.metadata().get(FORMAT_KEY).ok_or(ReadError::NotARecording)?;
        match version.parse::<u32>() {
            Ok(version) if version > FORMAT_VERSION => Err(ReadError::Newer { version }),
            // Whatever its fields are, this version's are not among them.
            Ok(_) if !(schema.fields().iter()).all(|field| shape::is_known(field, 0)) => Ok(()),
            Ok(_) => {
                self.schema = Some(schema.into());
                self.schema_is_assumed = false;
                Ok(())
            }
            Err(_) => Err(ReadError::NotARecording),
        }
    }
}

/// Bytes that a record batch's columns take when they are decompressed, before anything is allocated
/// for them. None if it can't be what the schema says.
pub(super) fn unpacked_size(
    message: ArrowMessage<'_>,
    body: &[u8],
    schema: &Schema,
) -> Option<usize> {
    let batch = message.header_as_record_batch()?;
    let sizes = shape::buffer_sizes(batch, body)?;
    let all = sizes.iter().try_fold(0_u64, |all, &size| all.checked_add(size))?;
    let fits = all <= MAX_UNPACKED && shape::fits(schema, batch, &sizes);
    usize::try_from(all).ok().filter(|_| fits)
}

/// A record batch whose [`unpacked_size`] is known.
fn decode(message: ArrowMessage<'_>, body: Vec<u8>, schema: SchemaRef) -> Option<RecordBatch> {
    let batch = message.header_as_record_batch()?;
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
