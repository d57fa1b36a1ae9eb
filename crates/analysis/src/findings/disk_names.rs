//! What a disk is called in a finding.

use offwake_recording::{Filesystem, Recording};

use crate::text;

use super::programs::{Program, ProgramKind};

/// The most characters of a path.
const MAX_PATH: usize = 64;

/// Describes a disk, `the disk sda1 (ext4, /var/lib/postgresql)`, or a server:
/// `the file server files.example:/export (nfs4, /mnt)`.
pub(super) fn describe_disk(filesystem: &Filesystem) -> String {
    let Filesystem { kind, mount_point, block_device, server, .. } = filesystem;
    let (kind, path) = (text::terminal(kind), cut_path(mount_point));
    if filesystem.is_remote() {
        return format!("the file server {} ({kind}, {path})", cut_path(server));
    }
    match block_device.as_str() {
        "" => format!("the disk ({kind}, {path})"),
        name => format!("the disk {} ({kind}, {path})", text::terminal(name)),
    }
}

/// Describes a filesystem that nobody can change: `the frozen filesystem /srv (ext4, sda1)`.
pub(super) fn describe_frozen(filesystem: &Filesystem) -> String {
    let Filesystem { kind, mount_point, block_device, .. } = filesystem;
    let device = match block_device.as_str() {
        "" => String::new(),
        name => format!(", {}", text::terminal(name)),
    };
    format!("the frozen filesystem {} ({}{device})", cut_path(mount_point), text::terminal(kind))
}

/// Finds the filesystem whose journal or log a kernel thread writes: the thread has the name of the
/// block device, `jbd2/sda1-8`. The kernel cuts the names of threads to 15 bytes.
pub(super) fn filesystem_of_kernel_thread<'r>(
    recording: &'r Recording,
    program: Option<&Program>,
) -> Option<&'r Filesystem> {
    let program = program.filter(|program| program.kind == ProgramKind::Kernel)?;
    let is_cut = program.name.len() >= 15;
    let name = ["jbd2/", "xfsaild/"].iter().find_map(|start| program.name.strip_prefix(start))?;
    let with_name = |wanted: &str| {
        let mut all = recording.filesystems.values().filter(|it| it.block_device == wanted);
        all.next().filter(|_| all.next().is_none())
    };
    // An ext4 journal has its inode's number behind the device's name.
    let without_number = (name.rsplit_once('-'))
        .filter(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    let whole = without_number.and_then(|(device, _)| with_name(device));
    if is_cut {
        let mut all = (recording.filesystems.values())
            .filter(|it| format!("{}-8", it.block_device).starts_with(name));
        return all.next().filter(|_| all.next().is_none());
    }
    whole.or_else(|| with_name(name))
}

/// Cuts a path that is too long.
pub(super) fn cut_path(path: &str) -> String {
    text::cut_path(&text::terminal(path), MAX_PATH)
}
