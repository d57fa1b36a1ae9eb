//! Where a recording's bytes go.

use std::{collections::VecDeque, io};

use super::flight::{NewNames, Stretch, Why};
use crate::{
    recording::stream::{Encoder, Slice},
    units::{StackId, Timestamp},
};

/// Takes a recording as it comes.
pub trait Sink: Send + 'static {
    /// The window has opened. What was there before may go.
    ///
    /// # Errors
    ///
    /// If the header can't be written.
    fn begin(&mut self, header: &[u8]) -> io::Result<()>;

    /// A slice, whole. If that fails, the sink is as it was before, and so is the slice.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    fn append(&mut self, slice: NewSlice<'_>) -> io::Result<()>;

    /// Takes back the newest slice, to make room for what must come last. None if there is none
    /// that it could take back.
    ///
    /// # Errors
    ///
    /// If what was written can't be cut.
    fn take_back(&mut self) -> io::Result<Option<TakenBack>> {
        Ok(None)
    }

    /// Nothing comes any more.
    ///
    /// # Errors
    ///
    /// If the end can't be written.
    fn end(&mut self, mark: &[u8]) -> io::Result<()>;

    /// Whether it keeps no more than the last stretch, and is told what it needs to write that out.
    fn keeps_a_stretch(&self) -> bool {
        false
    }

    /// Writes out what it keeps, if that is a stretch. What becomes of it is the sink's to say.
    fn write_out(&mut self, _stretch: Stretch, _names: NewNames, _why: Why) {}

    /// Stacks that it has forgotten: if they come up again, they must be sent again.
    fn take_forgotten(&mut self) -> Vec<StackId> {
        Vec::new()
    }
}

/// A slice that was put together. Its bytes are made for a sink that wants them: that is a large part
/// of what recording costs on this side.
pub struct NewSlice<'a> {
    content: &'a mut Slice,
    encoder: &'a mut Encoder,
}

impl<'a> NewSlice<'a> {
    /// To be encoded by `encoder`, if at all.
    pub fn new(content: &'a mut Slice, encoder: &'a mut Encoder) -> Self {
        Self { content, encoder }
    }

    /// What is in it.
    #[must_use]
    pub fn content(&self) -> &Slice {
        self.content
    }

    /// As it is stored.
    ///
    /// # Errors
    ///
    /// If it is too large for the format.
    pub fn encode(&mut self) -> io::Result<Encoded> {
        let bytes = self.encoder.encode(self.content).map_err(io::Error::other)?;
        Ok(Encoded { bytes, about: About::of(self.content) })
    }

    /// The slice itself, for a sink that has nothing left that can fail.
    #[must_use]
    pub fn take(self) -> Slice {
        std::mem::take(self.content)
    }
}

/// A slice as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What is known of it.
    pub about: About,
}

/// What is known of a slice that was stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Everything before this moment is in it or before it.
    pub until: Timestamp,
    /// Waits, preemptions, samples, sightings and exits in it.
    pub records: u64,
}

impl About {
    /// What is known of this one.
    #[must_use]
    pub fn of(slice: &Slice) -> Self {
        let Slice { waits, preemptions, samples, sightings, exits, .. } = slice;
        let records =
            waits.len() + preemptions.len() + samples.len() + sightings.len() + exits.len();
        Self { until: slice.until, records: records as u64 }
    }
}

/// A slice that was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// The slice.
    pub slice: About,
    /// What the recording covers now.
    pub until: Timestamp,
}

/// Slices whose places are remembered, so that they can be taken back. Their size is some 200 KiB
/// when much happens, and names take a few MiB.
const REMEMBERED: usize = 256;

/// The places of the newest slices.
#[derive(Debug, Default)]
pub struct Places(VecDeque<(u64, About)>);

impl Places {
    /// A slice was written at `offset`.
    pub fn push(&mut self, offset: u64, about: About) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((offset, about));
    }

    /// Forgets the newest slice, and gives back where it lies. None if it is the only one that is
    /// remembered: the recording's first, or one before which nothing is known.
    pub fn pop(&mut self) -> Option<(u64, TakenBack)> {
        let [.., (_, before), _] = *self.0.make_contiguous() else { return None };
        let (offset, slice) = self.0.pop_back()?;
        Some((offset, TakenBack { slice, until: before.until }))
    }
}

/// A recording in memory.
#[derive(Debug, Default)]
pub struct Memory {
    /// Its bytes.
    pub bytes: Vec<u8>,
    places: Places,
}

impl Memory {
    pub(super) fn add(&mut self, slice: Encoded) {
        self.places.push(self.bytes.len() as u64, slice.about);
        self.bytes.extend(slice.bytes);
    }
}

impl Sink for Memory {
    fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        self.bytes = header.to_vec();
        Ok(())
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        self.add(slice.encode()?);
        Ok(())
    }

    fn take_back(&mut self) -> io::Result<Option<TakenBack>> {
        Ok(self.places.pop().map(|(offset, taken)| {
            self.bytes.truncate(usize::try_from(offset).unwrap_or(usize::MAX));
            taken
        }))
    }

    fn end(&mut self, mark: &[u8]) -> io::Result<()> {
        self.bytes.extend(mark);
        Ok(())
    }
}
