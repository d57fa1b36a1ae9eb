//! Memory made by hand, and interpreters in it.

use super::super::{interpreter::Interpreter, memory::Memory, offsets::Offsets, version::Version};

/// Pieces of memory, each with its address. The ones that were written last come first.
#[derive(Default)]
pub(super) struct FakeMemory(Vec<(u64, Vec<u8>)>);

impl FakeMemory {
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) {
        self.0.insert(0, (address, bytes.to_vec()));
    }

    pub(super) fn write_word(&mut self, address: u64, word: u64) {
        self.write(address, &word.to_le_bytes());
    }
}

impl Memory for FakeMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        for (index, byte) in (0..).zip(into) {
            let address = address.checked_add(index)?;
            *byte = self.0.iter().find_map(|(begin, bytes)| {
                let within = usize::try_from(address.checked_sub(*begin)?).ok()?;
                bytes.get(within).copied()
            })?;
        }
        Some(())
    }
}

/// Where the fake interpreter has its state.
pub(super) const RUNTIME: u64 = 0x10_0000;

/// A version whose offsets are in a table.
pub(super) fn interpreter(minor: u8) -> Interpreter {
    let version = Version::python3(minor);
    let offsets = Offsets::for_version(version).unwrap();
    Interpreter::with(RUNTIME, offsets).unwrap()
}
