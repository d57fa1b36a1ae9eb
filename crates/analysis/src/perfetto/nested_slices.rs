//! Slices below a thread's own track, each inside the one below it or behind all of them: Perfetto
//! knows no other slices on one track. What overlaps gets a further track.

use std::io;

use offwake_recording::units::Timestamp;

use crate::timeline::ThreadIndex;

use super::{
    packets::Packets,
    tracks::{self, TrackId, Tracks},
};

/// A track whose slices are nested or apart.
struct Lane {
    track: TrackId,
    /// Ends of the slices that are open, the innermost last.
    open: Vec<Timestamp>,
}

impl Lane {
    /// Ends the slices that have ended by `at`.
    fn close_until(&mut self, at: Timestamp, packets: &mut Packets<'_>) -> io::Result<()> {
        while let Some(end) = self.open.pop_if(|end| *end <= at) {
            tracks::end_slice(self.track, end, packets)?;
        }
        Ok(())
    }

    /// Returns whether a slice that ends at `until` lies inside all open ones.
    fn can_hold(&self, until: Timestamp) -> bool {
        self.open.last().is_none_or(|&end| until <= end)
    }
}

/// The tracks of one thread that have one name.
pub(super) struct NestedSlices<'n> {
    name: &'n str,
    lanes: Vec<Lane>,
}

impl<'n> NestedSlices<'n> {
    /// There is no track yet.
    pub fn new(name: &'n str) -> Self {
        Self { name, lanes: Vec::new() }
    }

    /// Returns the track for a slice that is begun next; it is ended in time. Slices come in the
    /// order of their beginnings, the longer one first. A new track gets the number of `numbered`.
    /// None if there is no such thread.
    pub fn find_track(
        &mut self,
        thread: ThreadIndex,
        (from, to): (Timestamp, Timestamp),
        (tracks, number): (&mut Tracks<'_>, &mut u32),
        packets: &mut Packets<'_>,
    ) -> io::Result<Option<TrackId>> {
        for lane in &mut self.lanes {
            lane.close_until(from, packets)?;
        }
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.can_hold(to)) {
            lane.open.push(to);
            return Ok(Some(lane.track));
        }
        let Some(parent) = tracks.thread_track(thread, packets)? else { return Ok(None) };
        let track = TrackId::numbered(*number);
        *number += 1;
        tracks::describe_child_track(track, parent, self.name, from, packets)?;
        self.lanes.push(Lane { track, open: vec![to] });
        Ok(Some(track))
    }

    /// Ends all slices that are open.
    pub fn close_all(&mut self, packets: &mut Packets<'_>) -> io::Result<()> {
        for lane in &mut self.lanes {
            lane.close_until(Timestamp(u64::MAX), packets)?;
        }
        Ok(())
    }
}
