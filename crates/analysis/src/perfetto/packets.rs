//! Writes the packets of a trace.

use std::io::{self, Write as _};

use flate2::{Compression, write::ZlibEncoder};

use offwake_recording::{Recording, units::Timestamp};
use prost::Message as _;

use super::messages::{Data, InternedData, SequenceFlags, Trace, TracePacket, TracePacketDefaults};

/// What writes packets. Ids of interned data are valid within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// The machine, its processes, its scheduler.
    Kernel = 1,
    /// Slices and counters.
    Tracks,
    /// Stacks of threads that ran.
    Samples,
    /// Stacks of threads that waited.
    Waits,
    /// Stacks of threads that woke others.
    Wakes,
}

/// Writes packets as they come, a batch of them as one packet that holds them compressed: what Perfetto's
/// own recorder writes with
/// [`COMPRESSION_TYPE_DEFLATE`](https://github.com/google/perfetto/blob/v51.0/protos/perfetto/config/trace_config.proto).
/// It makes a sixth of most traces.
///
/// A trace is one message with a field for each packet, and messages laid end to end are one message
/// (<https://protobuf.dev/programming-guides/encoding/#last-one-wins>): no more than a batch is kept.
pub(super) struct Packets<'a> {
    out: &'a mut dyn io::Write,
    /// How far `CLOCK_BOOTTIME` is ahead of `CLOCK_MONOTONIC`.
    ahead_ns: u64,
    /// The packets of the current batch.
    batch: Vec<u8>,
}

/// The bytes of packets that are compressed together: Perfetto's reader has each batch in memory.
const BATCH_BYTES: usize = 1 << 20;

impl<'a> Packets<'a> {
    pub(super) fn new(recording: &Recording, out: &'a mut dyn io::Write) -> Self {
        // One offset for all: a suspension adds to the boot's clock, and no thread has run in it.
        let ahead_ns = (recording.clocks.first())
            .map_or(0, |clocks| clocks.boottime_ns.saturating_sub(clocks.monotonic.0));
        Self { out, ahead_ns, batch: Vec::new() }
    }

    /// Returns a moment of the recording on the trace's clock, `CLOCK_BOOTTIME`.
    pub(super) fn boot_time(&self, at: Timestamp) -> u64 {
        // The reader keeps times as signed numbers.
        at.0.saturating_add(self.ahead_ns).min(i64::MAX as u64)
    }

    /// Begins a sequence: nothing that it refers to was said before.
    pub(super) fn begin(
        &mut self,
        sequence: Sequence,
        defaults: TracePacketDefaults,
    ) -> io::Result<()> {
        self.write_packet(
            sequence,
            TracePacket {
                sequence_flags: Some(SequenceFlags::IncrementalStateCleared as u32),
                trace_packet_defaults: Some(defaults),
                first_packet_on_sequence: Some(true),
                ..TracePacket::default()
            },
        )
    }

    /// Writes a packet that refers to no interned data.
    pub(super) fn send(&mut self, sequence: Sequence, at: Timestamp, data: Data) -> io::Result<()> {
        let timestamp = Some(self.boot_time(at));
        self.write_packet(
            sequence,
            TracePacket { timestamp, data: Some(data), ..TracePacket::default() },
        )
    }

    /// Writes a packet that refers to data that was interned before, or is in it.
    pub(super) fn send_with(
        &mut self,
        sequence: Sequence,
        at: Timestamp,
        data: Data,
        interned: Option<InternedData>,
    ) -> io::Result<()> {
        let packet = TracePacket {
            timestamp: Some(self.boot_time(at)),
            data: Some(data),
            interned_data: interned,
            sequence_flags: Some(SequenceFlags::NeedsIncrementalState as u32),
            ..TracePacket::default()
        };
        self.write_packet(sequence, packet)
    }

    fn write_packet(&mut self, sequence: Sequence, mut packet: TracePacket) -> io::Result<()> {
        packet.trusted_packet_sequence_id = Some(sequence as u32);
        let trace = Trace { packet: vec![packet] };
        trace.encode(&mut self.batch).map_err(io::Error::other)?;
        if self.batch.len() >= BATCH_BYTES { self.write_batch() } else { Ok(()) }
    }

    /// Writes the last batch.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write_batch()
    }

    fn write_batch(&mut self) -> io::Result<()> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.batch)?;
        self.batch.clear();
        let data = Some(Data::CompressedPackets(encoder.finish()?));
        let packet = TracePacket { data, ..TracePacket::default() };
        self.out.write_all(&Trace { packet: vec![packet] }.encode_to_vec())
    }
}
