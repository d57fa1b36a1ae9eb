//! One CPU's ring, read from this side.

use aya::maps::{MapData, RingBuf};

/// A ring.
pub struct Ring {
    ring: RingBuf<MapData>,
}

impl Ring {
    pub(super) fn new(ring: RingBuf<MapData>) -> Self {
        Self { ring }
    }

    /// Hands over every record that is there, oldest first, and gives back how many.
    pub fn drain(&mut self, mut record: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while let Some(item) = self.ring.next() {
            record(&item);
            count += 1;
        }
        count
    }
}
