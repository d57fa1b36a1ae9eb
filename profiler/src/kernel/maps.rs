//! The rings of records, and the stacks that the kernel half has sent.

use aya::maps::{HashMap, MapData, RingBuf};
use offwake_recording::units::StackId;

use super::{Kernel, KernelError};

const SENT_STACKS: &str = "SENT_STACKS";

/// Bytes that the kernel puts before each record of a ring, and to multiples of which it rounds records up
/// ([`BPF_RINGBUF_HDR_SZ`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h#L6202)).
const RECORD_HEADER: u64 = 8;

/// The ring of one CPU, read from this side.
pub struct Ring {
    ring: RingBuf<MapData>,
    bytes: u32,
}

impl Ring {
    pub(super) fn new(ring: RingBuf<MapData>, bytes: u32) -> Self {
        Self { ring, bytes }
    }

    /// Calls `handle_record` with every record that is there, oldest first, and with those that come
    /// meanwhile, up to as many bytes as the ring has. Who drains more slowly than records come, on a
    /// machine without a free CPU, would otherwise never be done.
    pub fn drain(&mut self, mut handle_record: impl FnMut(&[u8])) {
        let mut budget = DrainBudget(self.bytes.into());
        while !budget.is_used_up()
            && let Some(record) = self.ring.next()
        {
            budget.subtract(record.len());
            handle_record(&record);
        }
    }
}

/// Bytes of a ring that may still be drained at once.
struct DrainBudget(u64);

impl DrainBudget {
    fn is_used_up(&self) -> bool {
        self.0 == 0
    }

    /// Subtracts what a record takes of a ring.
    fn subtract(&mut self, length: usize) {
        let taken = (length as u64).next_multiple_of(RECORD_HEADER) + RECORD_HEADER;
        self.0 = self.0.saturating_sub(taken);
    }
}

/// Keeps the memory of all rings from the children that this process starts from now on. A child that has the
/// memory keeps the maps in the kernel, until it becomes another program.
pub fn keep_rings_from_children() {
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, length) in mappings.lines().filter_map(parse_mapping_of_map) {
        let start = std::ptr::without_provenance_mut(start);
        // SAFETY: the kernel changes what children get of these pages, and nothing for this process.
        let kept = unsafe { libc::madvise(start, length, libc::MADV_DONTFORK) };
        if kept != 0 {
            let error = std::io::Error::last_os_error();
            log::info!("children may keep a map for a while: {error}");
        }
    }
}

/// The address and the length of what is mapped of a map:
/// `7f2a10000000-7f2a10003000 rw-s 00000000 00:0e 12 anon_inode:bpf-map`.
fn parse_mapping_of_map(line: &str) -> Option<(usize, usize)> {
    let range = line.strip_suffix("anon_inode:bpf-map")?.split(' ').next()?;
    let (start, end) = range.split_once('-')?;
    let [start, end] = [start, end].map(|address| usize::from_str_radix(address, 16).ok());
    Some((start?, end?.checked_sub(start?)?))
}

/// The stacks that the kernel half has sent, and does not send again.
pub struct SentStacks(HashMap<MapData, u64, u64>);

impl Kernel {
    /// Takes the map out of the loaded kernel half.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn take_sent_stacks(&mut self) -> Result<SentStacks, KernelError> {
        let map = self.ebpf.take_map(SENT_STACKS).ok_or(KernelError::Missing(SENT_STACKS))?;
        let map = HashMap::try_from(map)
            .map_err(|source| KernelError::Map { map: SENT_STACKS, source })?;
        Ok(SentStacks(map))
    }
}

impl SentStacks {
    /// Has each of these stacks sent again when it is seen again.
    pub fn forget(&mut self, stacks: &[StackId]) {
        for stack in stacks {
            // The kernel half itself has forgotten most of those that are old.
            let _absent = self.0.remove(&stack.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mappings_of_maps_are_told_from_all_others() {
        let ring =
            "7f2a10000000-7f2a10003000 rw-s 00000000 00:0e 12                 anon_inode:bpf-map";
        assert_eq!(parse_mapping_of_map(ring), Some((0x7f2a_1000_0000, 0x3000)));
        for other in [
            "7f2a10000000-7f2a10003000 r-xp 00000000 fe:00 12    /usr/lib/anon_inode:bpf-map.so",
            "7f2a10000000-7f2a10003000 rw-p 00000000 00:00 0 ",
            "7f2a10000000 anon_inode:bpf-map",
            "",
        ] {
            assert_eq!(parse_mapping_of_map(other), None, "{other}");
        }
    }

    #[test]
    fn as_much_is_drained_at_once_as_a_full_ring_has_and_no_more() {
        const SIZE: u32 = 4096;
        // 21 bytes take 32 of the ring, and so do 24.
        for length in [21, 24] {
            let mut budget = DrainBudget(SIZE.into());
            let mut drained = 0;
            while !budget.is_used_up() {
                budget.subtract(length);
                drained += 1;
            }
            assert_eq!(drained, SIZE / 32);
        }
    }
}
