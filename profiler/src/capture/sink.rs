//! What takes a recording: the trait, and what it hands over.

use std::{collections::VecDeque, io};

use offwake_recording::{
    stream::{Encoder, Slice},
    units::{StackId, Timestamp},
};

use super::messages::{FrameNames, SnapshotEnd, SnapshotReason};

/// Takes a recording as it comes.
pub trait Sink: Send + 'static {
    /// Begins the recording: the window has opened. What was there before may go.
    ///
    /// # Errors
    ///
    /// If the header can't be written.
    fn begin(&mut self, header: &[u8]) -> io::Result<()>;

    /// Adds a slice, whole. If that fails, the sink is as it was before, and so is the slice.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    fn append(&mut self, slice: NewSlice<'_>) -> io::Result<()>;

    /// Removes the newest slice, to make room for what must come last. None if there is none
    /// that it could remove.
    ///
    /// # Errors
    ///
    /// If what was written can't be cut.
    fn remove_last(&mut self) -> io::Result<Option<RemovedSlice>> {
        Ok(None)
    }

    /// Ends the recording: nothing comes any more.
    ///
    /// # Errors
    ///
    /// If the end can't be written.
    fn end(&mut self, mark: &[u8]) -> io::Result<()>;

    /// Whether the sink retains the newest slices, and writes them out when
    /// [`Self::write_snapshot`] is called.
    fn takes_snapshots(&self) -> bool {
        false
    }

    /// Writes out what the sink retains, if it does. Whether that worked it reports on its own.
    fn write_snapshot(&mut self, _end: SnapshotEnd, _names: FrameNames, _reason: SnapshotReason) {}

    /// Stacks that the sink has dropped since the last call: if they come up again, the kernel half
    /// must send them again.
    fn take_dropped_stacks(&mut self) -> Vec<StackId> {
        Vec::new()
    }
}

/// A slice that was put together. Its bytes are made for a sink that wants them: that is a large
/// part of what recording costs on this side.
pub struct NewSlice<'a> {
    content: &'a mut Slice,
    encoder: &'a mut Encoder,
}

impl<'a> NewSlice<'a> {
    /// Wraps a slice that `encoder` is to encode, if anybody does.
    pub fn new(content: &'a mut Slice, encoder: &'a mut Encoder) -> Self {
        Self { content, encoder }
    }

    /// The slice's rows.
    #[must_use]
    pub fn content(&self) -> &Slice {
        self.content
    }

    /// Encodes the slice as it is stored.
    ///
    /// # Errors
    ///
    /// If it is too large for the format.
    pub fn encode(&mut self) -> io::Result<EncodedSlice> {
        let bytes = self.encoder.encode(self.content).map_err(io::Error::other)?;
        Ok(EncodedSlice { bytes, summary: SliceSummary::new(self.content) })
    }

    /// Returns the slice itself, for a sink that has nothing left to do that can fail.
    #[must_use]
    pub fn into_content(self) -> Slice {
        std::mem::take(self.content)
    }
}

/// A slice as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedSlice {
    /// The slice's bytes.
    pub bytes: Vec<u8>,
    /// What is remembered of the slice when its rows are gone.
    pub summary: SliceSummary,
}

/// What is remembered of a slice that was stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceSummary {
    /// Everything before this moment is in this slice or in those before it.
    pub until: Timestamp,
    /// How many waits, preemptions, sums of short ones, throttles, samples, thread events, exits, markers and
    /// events of file locks the slice has.
    pub records: u64,
}

impl SliceSummary {
    /// Sums a slice up.
    #[must_use]
    pub fn new(slice: &Slice) -> Self {
        let Slice { waits, preemptions, summed, throttles, .. } = slice;
        let Slice { samples, thread_events, exits, markers, .. } = slice;
        let off_cpu = waits.len() + preemptions.len() + summed.len() + throttles.len();
        let of_programs = markers.len() + slice.file_lock_events.len();
        let others = samples.len() + thread_events.len() + exits.len() + of_programs;
        let records = off_cpu + others;
        Self { until: slice.until, records: records as u64 }
    }
}

/// A slice that was removed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedSlice {
    /// The slice.
    pub slice: SliceSummary,
    /// The end of the time that the recording covers now.
    pub until: Timestamp,
}

/// Slices whose offsets are remembered, so that they can be removed. Their size is some 200 KiB
/// when much happens, and names take a few MiB.
const REMEMBERED: usize = 256;

/// Where the newest slices lie.
#[derive(Debug, Default)]
pub struct SliceOffsets(VecDeque<(u64, SliceSummary)>);

impl SliceOffsets {
    /// Remembers that a slice was written at `offset`.
    pub fn push(&mut self, offset: u64, summary: SliceSummary) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((offset, summary));
    }

    /// Forgets the newest slice, and returns where it lies. None if it is the only one that is
    /// remembered: the recording's first, or one before which nothing is known.
    pub fn pop(&mut self) -> Option<(u64, RemovedSlice)> {
        let [.., (_, before), _] = *self.0.make_contiguous() else { return None };
        let (offset, slice) = self.0.pop_back()?;
        Some((offset, RemovedSlice { slice, until: before.until }))
    }
}
