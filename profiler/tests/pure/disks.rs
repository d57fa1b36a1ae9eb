//! Which disk a wait is for, and who else waits for that one.

use offwake_analysis::{
    filter::Filter,
    findings::{Finding, FindingDisk},
};
use offwake_recording::{
    DiskUse, FileId, FileKind, Filesystem, OpenFile, Recording, StackRef, ThreadKind, WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{kernel, syscall, user},
    golden::report as build_report,
};

pub const FSYNC: u32 = 74;
const IO_URING_ENTER: u32 = 426;

pub fn file(device: u32) -> FileId {
    FileId { device, inode: 5, kind: FileKind::Regular }
}

/// Thread 7 waits 3 s in fsync for a disk, and so do 60, 61 and 62, programs of their own. `devices`
/// says which device's file each of them has; none for a file that is not known.
pub fn writers(devices: [Option<u32>; 4]) -> Recording {
    let mut r = recording(3_000);
    let all = [7, 60, 61, 62];
    for thread in all {
        live(&mut r, thread, &format!("#{}r#", ".".repeat(2_997)), 0);
    }
    let stacks: Vec<StackRef> = (all.iter())
        .map(|&thread| user(&mut r, thread, &["libc.so.6 fsync", "app commit", "app main"]))
        .collect();
    let waits = kernel(&mut r, &["io_schedule", "folio_wait_bit_common", "ext4_sync_file"]);
    edit(&mut r, |rows| {
        for row in rows {
            let place = all.iter().position(|&thread| thread == row.tid.0).unwrap();
            row.syscall = syscall(FSYNC, [3, 0, 0, 0, 0, 0]);
            row.file = devices[place].map(file);
            (row.user_stack, row.kernel_stack) = (stacks[place], waits);
            row.wake.as_mut().unwrap().context = WakeContext::Softirq(4);
        }
    });
    r.files.files.insert(file(1), OpenFile::Named("/srv/ledger".to_owned()));
    r
}

pub fn filesystem(device: u32, mount_point: &str, block_device: &str, disks: &str) -> Filesystem {
    Filesystem {
        device,
        kind: "ext4".to_owned(),
        mount_point: mount_point.to_owned(),
        block_device: block_device.to_owned(),
        disks: disks.to_owned(),
        server: String::new(),
    }
}

pub fn first_finding(mut r: Recording, filesystems: &[Filesystem]) -> Finding {
    r.filesystems = filesystems.iter().map(|known| (known.device, known.clone())).collect();
    r.sort();
    build_report(&r, &Filter::default()).findings.list.remove(0)
}

pub fn others(finding: &Finding) -> Vec<(&str, Option<&str>)> {
    let disk = finding.disk.as_ref().unwrap();
    disk.others.iter().map(|user| (user.program.as_str(), user.device.as_deref())).collect()
}

#[test]
fn a_wait_for_a_disk_names_it_its_filesystem_and_the_file() {
    let found = first_finding(writers([Some(1); 4]), &[filesystem(1, "/srv", "sda1", "sda")]);
    assert!(found.text.contains("waits for the disk sda1 (ext4, /srv)"), "{found:#?}");
    let FindingDisk { device, filesystem, mount_point, disks, file, .. } =
        found.disk.clone().unwrap();
    assert_eq!((device.as_str(), filesystem.as_str()), ("sda1", "ext4"));
    assert_eq!((mount_point.as_str(), disks), ("/srv", vec!["sda".to_owned()]));
    assert_eq!(file.as_deref(), Some("/srv/ledger"));
    assert_eq!(
        found.lines.last().unwrap().text,
        "others waited for this disk too: thread60 60 (3.00 s), thread61 61 (3.00 s); file \
         /srv/ledger"
    );
}

#[test]
fn who_waits_for_another_disk_is_no_neighbour() {
    let filesystems = [
        filesystem(1, "/srv", "sda1", "sda"),
        filesystem(2, "/home", "sda2", "sda"),
        filesystem(3, "/data", "sdb1", "sdb"),
        // Nobody knows what it lies on.
        filesystem(4, "/image", "loop0", ""),
    ];
    let found = first_finding(writers([Some(1), Some(3), Some(2), Some(4)]), &filesystems);
    assert_eq!(others(&found), [("thread61", Some("sda2"))], "{found:#?}");
    assert!(found.lines.last().unwrap().text.contains("thread61 61 on sda2"), "{found:#?}");
    // A device is one with itself, whatever it lies on.
    let found = first_finding(writers([Some(4), Some(3), Some(2), Some(4)]), &filesystems);
    assert_eq!(others(&found), [("thread62", None)], "{found:#?}");
    // The file of the neighbour is not known: it may be on any disk.
    let found = first_finding(writers([Some(1), None, Some(3), None]), &filesystems);
    assert_eq!(others(&found), [], "{found:#?}");
}

#[test]
fn a_disk_that_is_not_known_is_not_guessed() {
    for devices in [[None, Some(1), Some(1), Some(1)], [Some(9), Some(1), Some(1), Some(1)]] {
        let found = first_finding(writers(devices), &[filesystem(1, "/srv", "sda1", "sda")]);
        assert_eq!(found.disk, None, "{found:#?}");
        assert!(found.text.contains("waits for the disk in"), "{found:#?}");
        let last = &found.lines.last().unwrap().text;
        assert!(last.starts_with("which disk is not known; others waited for disks too"), "{last}");
    }
}

/// Who waits for changes of others to be written before it may change anything waits for the journal; who syncs,
/// for the disk.
#[test]
fn a_wait_for_a_journal_is_told_from_a_sync() {
    for (functions, said) in [
        (
            ["wait_transaction_locked", "start_this_handle", "ext4_create"],
            "the journal of the disk sda1",
        ),
        (["jbd2_log_wait_commit", "ext4_sync_file", "do_fsync"], "the disk sda1"),
    ] {
        let mut r = writers([Some(1); 4]);
        let stack = kernel(&mut r, &["schedule", functions[0], functions[1], functions[2]]);
        edit(&mut r, |rows| {
            for row in rows.iter_mut().filter(|row| row.tid.0 == 7) {
                row.kernel_stack = stack;
            }
        });
        let found = first_finding(r, &[filesystem(1, "/srv", "sda1", "sda")]);
        assert!(found.text.contains(&format!("waits for {said} (ext4, /srv)")), "{found:#?}");
    }
}

/// A page of a file on NFS is read in by nobody's disk either.
#[test]
fn a_page_of_a_file_on_a_server_is_waited_for_there() {
    let server = Filesystem {
        device: 1,
        kind: "cifs".to_owned(),
        mount_point: "/srv".to_owned(),
        server: "//files/share".to_owned(),
        ..Filesystem::default()
    };
    let found = first_finding(writers([Some(1); 4]), &[server]);
    assert!(
        found.text.contains("waits for the file server //files/share (cifs, /srv)"),
        "{found:#?}"
    );
}

/// Thread 7 waits for a thread of the kernel of this name, which waits for a disk.
fn waits_for_kernel_thread(name: &str, filesystems: &[Filesystem]) -> Option<String> {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r#", ".".repeat(97)), 60);
    live(&mut r, 60, &format!("#{}r##", ".".repeat(96)), 0);
    let stack = user(&mut r, 7, &["libc.so.6 rename", "app publish", "app main"]);
    let waits = kernel(&mut r, &["schedule", "jbd2_log_wait_commit", "ext4_sync_file"]);
    let writes = kernel(&mut r, &["io_schedule", "bit_wait_io", "kthread"]);
    edit(&mut r, |rows| {
        for row in rows {
            if row.tid.0 == 7 {
                row.syscall = syscall(82, [0; 6]);
                (row.user_stack, row.kernel_stack) = (stack, waits);
                row.wake.as_mut().unwrap().current_kind = ThreadKind::Kernel;
            } else {
                (row.kind, row.kernel_stack) = (ThreadKind::Kernel, writes);
                row.wake.as_mut().unwrap().context = WakeContext::Softirq(4);
            }
        }
    });
    for event in r.thread_events.iter_mut().filter(|event| event.tid.0 == 60) {
        (event.kind, event.comm) = (ThreadKind::Kernel, name.to_owned());
    }
    first_finding(r, filesystems).disk.map(|disk| disk.device)
}

#[test]
fn a_journal_says_which_disk_it_is_on() {
    let filesystems = [
        filesystem(1, "/", "dm-0", "sda"),
        filesystem(2, "/a", "nvme0n1p1", "nvme0n1"),
        filesystem(3, "/b", "nvme0n1p120", "nvme0n1"),
        filesystem(4, "/c", "nvme0n1p121", "nvme0n1"),
    ];
    let disk = |name| waits_for_kernel_thread(name, &filesystems);
    assert_eq!(disk("jbd2/dm-0-8").as_deref(), Some("dm-0"));
    assert_eq!(disk("xfsaild/dm-0").as_deref(), Some("dm-0"));
    assert_eq!(disk("jbd2/nvme0n1p1-").as_deref(), Some("nvme0n1p1"));
    // The kernel has cut the name: it may be of either.
    assert_eq!(disk("jbd2/nvme0n1p12"), None);
    for other in ["jbd2/dm-1-8", "jbd2/", "kworker/0:1", "jbd2/dm-0-8x"] {
        assert_eq!(disk(other), None, "{other}");
    }
}

/// What a process did with a device, in megabytes.
pub fn used(
    process: u32,
    device: u32,
    (block_device, disks): (&str, &str),
    mb: [u64; 3],
) -> DiskUse {
    let [read, submitted, dirtied] = mb.map(|mb| mb * 1_000_000);
    DiskUse {
        tgid: Tgid(process),
        comm: format!("thread{process}"),
        device,
        block_device: block_device.to_owned(),
        disks: disks.to_owned(),
        read_bytes: read,
        submitted_bytes: submitted,
        dirtied_bytes: dirtied,
    }
}

/// 7 alone waits for a disk. The others use disks.
fn beside_users(uses: Vec<DiskUse>, filesystems: &[Filesystem]) -> Finding {
    let mut r = writers([Some(1); 4]);
    edit(&mut r, |rows| rows.retain(|row| row.tid == Tid(7)));
    for user in [60, 61, 62] {
        live(&mut r, user, &"#".repeat(3_000), 0);
    }
    r.disk_uses = uses;
    first_finding(r, filesystems)
}

#[test]
fn who_uses_a_disk_without_waiting_for_it_is_named_with_how_much() {
    let filesystems = [
        filesystem(1, "/srv", "sda1", "sda"),
        filesystem(2, "/home", "sda2", "sda"),
        filesystem(3, "/data", "sdb1", "sdb"),
    ];
    let sda1 = ("sda1", "sda");
    let uses = vec![
        used(7, 1, sda1, [0, 3, 3]),
        // What it made dirty it has also submitted, in part.
        used(60, 1, sda1, [40, 400, 1_234]),
        // On another disk.
        used(61, 3, ("sdb1", "sdb"), [9_000, 0, 0]),
        used(62, 2, ("sda2", "sda"), [600, 0, 0]),
    ];
    let found = beside_users(uses, &filesystems);
    assert_eq!(others(&found), [("thread60", None), ("thread62", Some("sda2"))], "{found:#?}");
    assert_eq!(
        found.lines.last().unwrap().text,
        "others used this disk too: thread60 60 wrote 1.2 GB, thread62 62 on sda2 read 600 MB; file \
         /srv/ledger"
    );
    let of_60 = &found.disk.as_ref().unwrap().others[0];
    assert_eq!((of_60.read_bytes, of_60.written_bytes), (Some(40_000_000), Some(1_234_000_000)));
}

#[test]
fn who_hardly_uses_a_disk_is_not_named() {
    let filesystems = [filesystem(1, "/srv", "sda1", "sda")];
    let sda1 = ("sda1", "sda");
    // Less than a tenth of all, and less than a megabyte.
    let uses = vec![used(7, 1, sda1, [0, 0, 100]), used(60, 1, sda1, [9, 0, 0])];
    assert_eq!(others(&beside_users(uses, &filesystems)), []);
    let uses = vec![DiskUse { read_bytes: 900_000, ..used(60, 1, sda1, [0, 0, 0]) }];
    assert_eq!(others(&beside_users(uses, &filesystems)), []);
}

#[test]
fn what_goes_through_a_mapped_device_counts_once() {
    let filesystems = [filesystem(1, "/srv", "dm-0", "sda,sdb")];
    let uses = vec![
        used(60, 1, ("dm-0", "sda,sdb"), [0, 0, 800]),
        used(60, 8, ("sda", "sda"), [0, 900, 0]),
        // This one is below the filesystem alone.
        used(61, 9, ("sdb", "sdb"), [300, 0, 0]),
    ];
    let found = beside_users(uses, &filesystems);
    let text = &found.lines.last().unwrap().text;
    assert!(
        text.starts_with(
            "others used this disk too: thread60 60 wrote 800 MB, thread61 61 on sdb read 300 MB"
        ),
        "{text}"
    );
}

/// A page fault, or a call with a path, names no file.
#[test]
fn a_wait_is_for_the_only_disk_that_its_process_used() {
    let filesystems = [filesystem(1, "/srv", "dm-0", "sda"), filesystem(2, "/data", "sdb1", "sdb")];
    let text = |uses: &[DiskUse]| {
        let mut r = writers([None, Some(1), Some(2), Some(2)]);
        r.disk_uses = uses.to_vec();
        first_finding(r, &filesystems).text
    };
    let (dm, sda) = (used(7, 1, ("dm-0", "sda"), [5, 0, 0]), used(7, 8, ("sda", "sda"), [5, 0, 0]));
    let other = used(7, 2, ("sdb1", "sdb"), [1, 0, 0]);
    let swap = used(7, 17, ("sdb2", "sdb"), [1, 0, 0]);
    assert!(text(&[dm.clone(), sda.clone()]).contains("waits for the disk dm-0 (ext4, /srv)"));
    assert!(text(std::slice::from_ref(&other)).contains("waits for the disk sdb1 (ext4, /data)"));
    for several in [vec![], vec![dm.clone(), other], vec![dm, sda.clone(), swap], vec![sda]] {
        assert!(text(&several).contains("waits for the disk in"), "{}", text(&several));
    }
}

/// The call names the ring, and not the file that it reads.
#[test]
fn a_wait_at_an_io_uring_that_a_disk_ended_is_for_the_only_disk_that_its_process_used() {
    let filesystems = [filesystem(1, "/srv", "sda1", "sda"), filesystem(2, "/data", "sdb1", "sdb")];
    let text = |uses: &[DiskUse], context: WakeContext| {
        let mut r = writers([None; 4]);
        let ring = kernel(&mut r, &["io_cqring_wait", "__do_sys_io_uring_enter"]);
        edit(&mut r, |rows| {
            let row = rows.iter_mut().find(|row| row.tid == Tid(7)).unwrap();
            row.syscall = syscall(IO_URING_ENTER, [4, 0, 1, 1, 0, 0]);
            row.file = Some(FileId { device: 14, inode: 8, kind: FileKind::Anonymous });
            row.kernel_stack = ring;
            row.wake.as_mut().unwrap().context = context;
        });
        r.disk_uses = uses.to_vec();
        let findings = {
            r.filesystems = filesystems.iter().map(|known| (known.device, known.clone())).collect();
            r.sort();
            build_report(&r, &Filter::default()).findings.list
        };
        let of_7 = findings.into_iter().find(|finding| finding.text.starts_with("thread7"));
        of_7.expect("a finding of 7").text
    };
    let sda = used(7, 1, ("sda1", "sda"), [5, 0, 0]);
    let both = [sda.clone(), used(7, 2, ("sdb1", "sdb"), [1, 0, 0])];
    let disk = WakeContext::Softirq(4);
    assert!(text(std::slice::from_ref(&sda), disk).contains("the disk sda1 (ext4, /srv)"));
    assert!(!text(&both, disk).contains("sda1"));
    // A packet did not come from the disk.
    let packet = WakeContext::Softirq(3);
    assert!(!text(std::slice::from_ref(&sda), packet).contains("disk"));
}
