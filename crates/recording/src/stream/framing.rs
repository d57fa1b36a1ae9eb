//! Bytes → messages, past whatever is broken.
//!
//! ```text
//! ff ff ff ff | length of the metadata | metadata, a flatbuffer | body      all padded to 8 bytes
//! ```
//!
//! <https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format>

use std::{fs::File, io, os::unix::fs::FileExt as _};

use arrow_ipc::{Message as ArrowMessage, MessageHeader, root_as_message_with_opts};
use flatbuffers::VerifierOptions;
use rustix::fs::SeekFrom;

/// Metadata of a slice takes some 10 KiB.
pub(super) const MAX_METADATA: usize = 1 << 20;
/// A writer's slices stay far below this, and the encoder makes no larger ones.
pub(super) const MAX_BODY: usize = 1 << 28;
/// Parts of a message's metadata: a schema has some 500, and parts that share their bytes could make
/// a small file a large one.
const MAX_PARTS: usize = 4096;
/// How many times in all what looks like a message may turn out to be none: each is read in vain.
const MAX_MISTAKES: u32 = 256;
/// How far in all a recording is searched for its next message when one is broken.
const MAX_SEARCH: u64 = 1 << 28;
/// How much is looked at in one step of the search.
const SEARCH_STEP: usize = 1 << 20;
const CONTINUATION: [u8; 4] = [0xff; 4];

/// Where a recording's bytes are.
pub trait Source {
    /// How many there are.
    ///
    /// # Errors
    ///
    /// If that can't be found out.
    fn size(&self) -> io::Result<u64>;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    ///
    /// If they can't be read, or there are fewer.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Where data begins, at `offset` or behind it; what lies between is all zeros.
    fn next_data(&self, offset: u64) -> u64 {
        offset
    }
}

impl Source for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }

    fn next_data(&self, offset: u64) -> u64 {
        match rustix::fs::seek(self, SeekFrom::Data(offset)) {
            Ok(data) => data.max(offset),
            // `lseek(2)`: there is none behind it.
            Err(rustix::io::Errno::NXIO) => u64::MAX,
            Err(_) => offset,
        }
    }
}

impl Source for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = offset.checked_add(into.len()).and_then(|end| self.get(offset..end));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A message, as far as it could be told without decoding it.
pub(super) struct Message {
    pub metadata: Vec<u8>,
    pub body: Vec<u8>,
}

/// What comes next.
pub(super) enum Next {
    Message(Message),
    /// The mark behind the last slice.
    End,
    /// Bytes that are no message, and how many; the next one, if any, comes behind them.
    Skipped(u64),
    /// The end of the stream.
    Nothing,
}

/// Goes through a recording's messages.
pub(super) struct Messages<'a, S: Source + ?Sized> {
    source: &'a S,
    size: u64,
    at: u64,
    searched: u64,
    mistakes: u32,
}

/// A message's metadata, if that is what it is.
pub(super) fn parse_metadata(bytes: &[u8]) -> Option<ArrowMessage<'_>> {
    let limits = VerifierOptions {
        max_depth: 32,
        max_tables: MAX_PARTS,
        max_apparent_size: 16 * MAX_METADATA,
        ..VerifierOptions::default()
    };
    root_as_message_with_opts(&limits, bytes).ok()
}

/// Where a message's parts lie, and its metadata.
struct Found {
    metadata: Vec<u8>,
    body_at: u64,
    body_size: usize,
}

impl<'a, S: Source + ?Sized> Messages<'a, S> {
    pub(super) fn new(source: &'a S) -> io::Result<Self> {
        Ok(Self { source, size: source.size()?, at: 0, searched: 0, mistakes: 0 })
    }

    /// The next message.
    ///
    /// # Errors
    ///
    /// If the source can't be read. What it holds is never an error.
    pub(super) fn next_one(&mut self) -> io::Result<Next> {
        let left = self.size.saturating_sub(self.at);
        if left == 0 {
            return Ok(Next::Nothing);
        }
        if left >= 8 {
            let mut prefix = [0; 8];
            self.source.read_at(self.at, &mut prefix)?;
            if prefix == super::END {
                self.at += 8;
                return Ok(Next::End);
            }
            if let Some(found) = self.message_at(self.at)? {
                let mut body = vec![0; found.body_size];
                self.source.read_at(found.body_at, &mut body)?;
                self.at = found.body_at + found.body_size as u64;
                return Ok(Next::Message(Message { metadata: found.metadata, body }));
            }
        }
        let from = self.at;
        self.at = self.search()?;
        Ok(Next::Skipped(self.at - from))
    }

    /// Whether a whole message that could be a slice or a schema begins here.
    fn message_at(&mut self, at: u64) -> io::Result<Option<Found>> {
        let mut prefix = [0; 8];
        if self.size.saturating_sub(at) < 8 {
            return Ok(None);
        }
        self.source.read_at(at, &mut prefix)?;
        let [.., a, b, c, d] = prefix;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if prefix[..4] != CONTINUATION || length == 0 || length > MAX_METADATA {
            return Ok(None);
        }
        let body_at = at + 8 + length as u64;
        if body_at > self.size || self.mistakes >= MAX_MISTAKES {
            return Ok(None);
        }
        let mut metadata = vec![0; length];
        self.source.read_at(at + 8, &mut metadata)?;
        let Some(message) = parse_metadata(&metadata) else {
            self.mistakes += 1;
            return Ok(None);
        };
        let is_ours =
            matches!(message.header_type(), MessageHeader::Schema | MessageHeader::RecordBatch);
        let Ok(body_size) = usize::try_from(message.bodyLength()) else { return Ok(None) };
        if !is_ours || body_size > MAX_BODY || body_at + body_size as u64 > self.size {
            self.mistakes += 1;
            return Ok(None);
        }
        Ok(Some(Found { metadata, body_at, body_size }))
    }

    /// Where the next message begins behind the one that is broken, or the file's end.
    fn search(&mut self) -> io::Result<u64> {
        let mut step = vec![0; SEARCH_STEP];
        // Messages begin at multiples of 8.
        let mut at = (self.at / 8 + 1) * 8;
        while at + 8 <= self.size && self.searched < MAX_SEARCH {
            let length =
                usize::try_from(self.size - at).map_or(SEARCH_STEP, |n| n.min(SEARCH_STEP));
            let step = &mut step[..length];
            self.source.read_at(at, step)?;
            self.searched += length as u64;
            for (index, word) in step.chunks_exact(8).enumerate() {
                let here = at + index as u64 * 8;
                if word.starts_with(&CONTINUATION)
                    && (*word == super::END && here + 8 == self.size
                        || self.message_at(here)?.is_some())
                {
                    return Ok(here);
                }
            }
            at += (length / 8 * 8) as u64;
            at = at.max(self.source.next_data(at).min(self.size) / 8 * 8);
        }
        Ok(self.size)
    }
}
