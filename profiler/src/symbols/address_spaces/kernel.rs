//! The kernel as a module of frames.

use offwake_recording::BuildId;
use offwake_unwind::elf::build_id::from_native_notes;

/// What the kernel is called where files are called by their paths.
pub(crate) const MODULE: &str = "[kernel]";
/// The lowest address of the kernel's half on x86-64 and arm64.
pub(crate) const FIRST_ADDRESS: u64 = 0xffff_0000_0000_0000;

/// The build id of the running kernel, from its own notes.
///
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/ksysfs.c>, `notes_read`
pub(crate) fn build_id() -> Option<BuildId> {
    from_native_notes(&std::fs::read("/sys/kernel/notes").ok()?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_has_a_build_id_if_it_shows_its_notes() {
        let shown = std::fs::exists("/sys/kernel/notes").unwrap();
        assert_eq!(super::build_id().is_some(), shown);
    }
}
