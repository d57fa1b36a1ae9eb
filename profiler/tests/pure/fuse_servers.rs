//! Who serves a FUSE filesystem that does not answer.

use offwake_analysis::{
    blame::BlameClass,
    filter::Filter,
    findings::{Finding, FindingKind},
};
use offwake_recording::{
    FileId, FileKind, FuseServer, PeerProcess, Recording, SocketRole, StackRef,
    units::{Tgid, Timestamp},
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{CLOCK_NANOSLEEP, READ, RECVFROM, kernel, syscall, user},
    golden::report as build_report,
    open_waits::{asleep, change, in_process, mutex, sleeps_in, waits_at_socket},
};

const PAUSE: u32 = 34;
const OPENAT: u32 = 257;

fn findings(recording: &mut Recording) -> Vec<Finding> {
    recording.sort();
    build_report(recording, &Filter::default()).findings.list
}

fn server(device: Option<u32>, unanswered: Option<u32>, tgid: u32) -> FuseServer {
    let server = PeerProcess { tgid: Tgid(tgid), comm: format!("fs{tgid}") };
    FuseServer { device, unanswered, server }
}

/// Thread 7 reads a file on device 45 to the end. Process 60 has a thread in `fetch_object` since it
/// was asked, one that waits for requests, and one that waits for those two; process 61 sleeps too.
fn hung_reader() -> Recording {
    let mut r = recording(3_000);
    live(&mut r, 7, &format!("##{}", "_".repeat(2_998)), 0);
    live(&mut r, 60, &format!("#{}", "_".repeat(2_999)), 0);
    live(&mut r, 61, &format!("###{}", "_".repeat(2_997)), 0);
    live(&mut r, 62, &format!("###{}", "_".repeat(2_997)), 0);
    live(&mut r, 63, &format!("###{}", "_".repeat(2_997)), 0);
    let reads = user(&mut r, 7, &["libc.so.6 read", "app read_report", "app main"]);
    let joins = user(&mut r, 60, &["libc.so.6 pause", "fs run_pool", "fs main"]);
    let waits = user(&mut r, 60, &["libc.so.6 read", "fs next_request", "fs main"]);
    let fetches = user(&mut r, 60, &["libc.so.6 pause", "fs fetch_object", "fs main"]);
    let other = user(&mut r, 63, &["libc.so.6 pause", "other list_bucket", "other main"]);
    let asks = kernel(
        &mut r,
        &["schedule", "request_wait_answer", "__fuse_simple_request", "fuse_direct_io", "vfs_read"],
    );
    let serves = kernel(&mut r, &["schedule", "fuse_dev_do_read", "fuse_dev_read", "vfs_read"]);
    let pauses = kernel(&mut r, &["schedule", "__x64_sys_pause"]);
    edit(&mut r, |waits_of_all| {
        for wait in waits_of_all {
            wait.syscall = syscall(PAUSE, [0; 6]);
            wait.kernel_stack = pauses;
            match wait.tid.0 {
                7 => {
                    wait.syscall = syscall(READ, [3, 0, 0, 0, 0, 0]);
                    wait.file = Some(FileId { device: 45, inode: 2, kind: FileKind::Regular });
                    (wait.user_stack, wait.kernel_stack) = (reads, asks);
                }
                60 => (wait.tgid, wait.user_stack) = (Tgid(60), joins),
                61 => {
                    wait.syscall = syscall(READ, [4, 0, 0, 0, 0, 0]);
                    (wait.tgid, wait.user_stack, wait.kernel_stack) = (Tgid(60), waits, serves);
                }
                62 => (wait.tgid, wait.user_stack) = (Tgid(60), fetches),
                _ => wait.user_stack = other,
            }
        }
    });
    for event in &mut r.thread_events {
        if matches!(event.tid.0, 61 | 62) {
            event.tgid = Tgid(60);
        }
    }
    r.fuse_servers = vec![server(Some(45), Some(1), 60), server(Some(46), Some(0), 63)];
    r
}

#[test]
fn who_serves_a_filesystem_that_hangs_is_named_with_what_it_does_instead() {
    let finding = findings(&mut hung_reader()).remove(0);
    assert_eq!(finding.kind, FindingKind::StillWaiting);
    let cause: Vec<_> = finding.lines.iter().filter(|line| line.is_cause).collect();
    let [cause] = &cause[..] else { panic!("one cause: {finding:#?}") };
    assert!(cause.text.contains("60"), "{finding:#?}");
    assert_eq!(cause.function.as_deref(), Some("fetch_object"), "{finding:#?}");
    assert!(finding.cause.text.contains("fetch_object"), "{finding:#?}");
    // Who waits for the next request does nothing, and who serves another filesystem is innocent.
    let says = |word: &str| finding.lines.iter().any(|line| format!("{line:?}").contains(word));
    assert!(!says("next_request") && !says("list_bucket"), "{finding:#?}");
}

#[test]
fn a_picture_has_the_colour_of_what_the_server_does_instead() {
    let class = |recording: &mut Recording| {
        recording.sort();
        let boxes = build_report(recording, &Filter::default()).findings.hop_tree.boxes;
        BlameClass::ALL.into_iter().find(|&class| boxes[0].time.get(class) == boxes[0].time.sum())
    };
    let mut r = hung_reader();
    // What it waits for is not known.
    assert_eq!(class(&mut r), Some(BlameClass::Unattributed));
    let sleeps = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 62) {
            (wait.syscall, wait.kernel_stack) = (syscall(CLOCK_NANOSLEEP, [0; 6]), sleeps);
        }
    });
    assert_eq!(class(&mut r), Some(BlameClass::Timer));
}

#[test]
fn the_device_of_the_file_tells_which_server_it_is() {
    let mut r = hung_reader();
    edit(&mut r, |waits| {
        for wait in waits {
            wait.file = wait.file.map(|file| FileId { device: 46, ..file });
        }
    });
    let finding = findings(&mut r).remove(0);
    assert!(finding.cause.text.contains("list_bucket"), "{finding:#?}");
    // Nobody is accused of what another filesystem owes.
    r.fuse_servers.remove(1);
    let finding = findings(&mut r).remove(0);
    assert_eq!(finding.chain.len(), 1, "{finding:#?}");
    assert!(!finding.cause.text.contains("fetch_object"), "{finding:#?}");
}

#[test]
fn a_path_names_only_a_server_that_owes_answers_and_only_if_it_is_one() {
    let mut r = hung_reader();
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 7) {
            wait.syscall = syscall(OPENAT, [0; 6]);
            wait.file = None;
        }
    });
    let finding = findings(&mut r).remove(0);
    assert!(finding.cause.text.contains("fetch_object"), "{finding:#?}");
    r.fuse_servers[0].unanswered = Some(0);
    r.fuse_servers[1].unanswered = Some(2);
    let finding = findings(&mut r).remove(0);
    assert!(finding.cause.text.contains("list_bucket"), "{finding:#?}");
    for before_6_16 in [false, true] {
        for server in &mut r.fuse_servers {
            server.unanswered = None;
            server.device = server.device.filter(|_| !before_6_16);
        }
        let finding = findings(&mut r).remove(0);
        assert_eq!(finding.chain.len(), 1, "{finding:#?}");
        let says = |word: &str| finding.lines.iter().any(|line| line.text.contains(word));
        assert!(says("not known") && says("60") && says("63"), "{finding:#?}");
    }
    // A wait for something else has nothing to do with them.
    let socket = kernel(&mut r, &["schedule", "unix_stream_read_generic"]);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 7) {
            wait.kernel_stack = socket;
        }
    });
    let finding = findings(&mut r).remove(0);
    assert!(finding.lines.iter().all(|line| !line.text.contains("serves")), "{finding:#?}");
}

#[test]
fn a_server_that_reads_its_own_filesystem_is_in_a_deadlock() {
    let mut r = recording(3_000);
    live(&mut r, 7, &format!("##{}", "_".repeat(2_998)), 0);
    let reads = user(&mut r, 7, &["libc.so.6 read", "fs serve", "fs main"]);
    let asks = kernel(&mut r, &["schedule", "request_wait_answer", "fuse_direct_io"]);
    edit(&mut r, |waits| {
        waits[0].syscall = syscall(READ, [3, 0, 0, 0, 0, 0]);
        waits[0].file = Some(FileId { device: 45, inode: 2, kind: FileKind::Regular });
        (waits[0].user_stack, waits[0].kernel_stack) = (reads, asks);
    });
    r.fuse_servers = vec![server(Some(45), None, 7)];
    let finding = findings(&mut r).remove(0);
    assert_eq!(finding.kind, FindingKind::Deadlock, "{finding:#?}");
    let told = &finding.chain[0].what;
    assert_eq!(told, "waits for a FUSE filesystem that it serves itself", "{finding:#?}");
}

/// Has a thread read a file on this device.
fn reads_on(r: &mut Recording, tid: u32, device: u32) {
    let reads = user(r, tid, &["libc.so.6 read", "app read_report", "app main"]);
    let asks = kernel(r, &["schedule", "request_wait_answer", "fuse_direct_io", "vfs_read"]);
    change(r, tid, |wait| {
        wait.syscall = syscall(READ, [3, 0, 0, 0, 0, 0]);
        wait.file = Some(FileId { device, inode: 2, kind: FileKind::Regular });
        (wait.user_stack, wait.kernel_stack) = (reads, asks);
    });
}

fn told(finding: &Finding) -> Vec<(u32, &str)> {
    finding.chain.iter().map(|hop| (hop.tid.unwrap().0, &*hop.what)).collect()
}

/// Two filesystems, whose servers wait for two others: for a lock, and for an answer.
#[test]
fn what_the_server_of_a_filesystem_waits_for_is_followed() {
    for (device, server, holder) in [(45, 60, 62), (46, 61, 63)] {
        let mut r = asleep(&[7, 60, 61, 62, 63]);
        reads_on(&mut r, 7, device);
        mutex(&mut r, 60, 62, "open_object");
        waits_at_socket(&mut r, 61, RECVFROM, SocketRole::Asking, 63);
        sleeps_in(&mut r, 62, "export");
        sleeps_in(&mut r, 63, "compact");
        r.fuse_servers =
            vec![self::server(Some(45), Some(1), 60), self::server(Some(46), None, 61)];
        let found = findings(&mut r).remove(0);
        let waits = match server {
            60 => "still waits for a lock held by thread62 62",
            _ => "still waits for an answer of thread63 63",
        };
        let sleeps = if server == 60 { "sleeps" } else { "has not answered: sleeps" };
        let first = format!("waits for the FUSE server thread{server} {server}");
        assert_eq!(told(&found), [(7, &*first), (server, waits), (holder, sleeps)]);
        let last = found.lines.last().unwrap();
        assert!(last.is_cause && last.text.contains(&format!("thread{holder}")), "{found:#?}");
    }
}

/// The client has the lock that the server wants: neither goes on.
#[test]
fn a_client_and_the_server_of_its_filesystem_may_be_a_deadlock() {
    let mut r = asleep(&[7, 60]);
    reads_on(&mut r, 7, 45);
    mutex(&mut r, 60, 7, "open_object");
    r.fuse_servers = vec![server(Some(45), Some(1), 60)];
    let found = findings(&mut r).remove(0);
    assert_eq!(found.kind, FindingKind::Deadlock, "{found:#?}");
}

/// Of several threads, the one that has read requests and sleeps since this one has it: unless another one could.
#[test]
fn the_thread_of_a_server_that_has_the_request_is_told_where_it_is_the_only_one() {
    let hung = |worker: u32, idle: u32| {
        let mut r = recording(3_000);
        live(&mut r, 7, &format!("##{}", "_".repeat(2_998)), 0);
        live(&mut r, 60, &format!("#{}", "_".repeat(2_999)), 0);
        live(&mut r, worker, &format!("#.#{}", "_".repeat(2_997)), 7);
        live(&mut r, idle, &format!("#{}", "_".repeat(2_999)), 0);
        reads_on(&mut r, 7, 45);
        let waits = kernel(&mut r, &["schedule", "fuse_dev_do_read", "fuse_dev_read", "vfs_read"]);
        let fetches = user(&mut r, worker, &["libc.so.6 pause", "fs fetch_object", "fs main"]);
        let pauses = kernel(&mut r, &["schedule", "__x64_sys_pause"]);
        edit(&mut r, |all| {
            for wait in all.iter_mut().filter(|wait| wait.tid.0 >= 60) {
                let is_open = wait.end == offwake_recording::End::StillOff;
                (wait.syscall, wait.kernel_stack) = (syscall(READ, [4, 0, 0, 0, 0, 0]), waits);
                if is_open && wait.tid.0 == worker {
                    wait.user_stack = fetches;
                }
                if is_open && [60, worker].contains(&wait.tid.0) {
                    (wait.syscall, wait.kernel_stack) = (syscall(PAUSE, [0; 6]), pauses);
                }
            }
        });
        in_process(&mut r, 60, &[60, worker, idle]);
        r.fuse_servers = vec![server(Some(45), Some(1), 60)];
        r
    };
    for (worker, idle) in [(61, 62), (62, 61)] {
        let found = findings(&mut hung(worker, idle)).remove(0);
        let tids: Vec<u32> = told(&found).into_iter().map(|(tid, _)| tid).collect();
        assert_eq!(tids, [7, worker], "{found:#?}");
        assert!(found.cause.text.contains("has not answered"), "{found:#?}");
        assert!(found.cause.text.ends_with("in fetch_object"), "{found:#?}");
        // Another thread that was seen to read requests, and sleeps since.
        let mut r = hung(worker, idle);
        let pauses = kernel(&mut r, &["schedule", "__x64_sys_pause"]);
        live(&mut r, 63, &format!("##{}", "_".repeat(2_998)), 0);
        change(&mut r, 63, |wait| {
            (wait.syscall, wait.kernel_stack) = (syscall(PAUSE, [0; 6]), pauses);
        });
        in_process(&mut r, 60, &[63]);
        let found = findings(&mut r).remove(0);
        assert!(!found.cause.text.contains("has not answered"), "{found:#?}");
    }
}

/// Thread 7 waits for requests of the kernel's, or does something else in the kernel.
fn waits_in(function: &str) -> Vec<Finding> {
    let mut r = recording(3_000);
    live(&mut r, 7, &format!("#{}", "_".repeat(2_999)), 0);
    live(&mut r, 8, &"#".repeat(3_000), 0);
    let stack = kernel(&mut r, &["schedule", function, "fuse_dev_read", "vfs_read"]);
    edit(&mut r, |waits| {
        waits[0].syscall = syscall(READ, [3, 0, 0, 0, 0, 0]);
        waits[0].kernel_stack = stack;
        waits[0].user_stack = StackRef::NotTaken;
        assert_eq!(waits[0].begin, offwake_recording::Begin::Seen);
        assert!(waits[0].off > Timestamp(0));
    });
    findings(&mut r)
}

#[test]
fn a_server_that_waits_for_requests_is_idle_and_not_stuck() {
    let kinds = |found: Vec<Finding>| found.iter().map(|found| found.kind).collect::<Vec<_>>();
    assert_eq!(kinds(waits_in("fuse_dev_do_read")), [FindingKind::OnCpu]);
    assert_eq!(kinds(waits_in("fuse_lookup"))[0], FindingKind::StillWaiting);
}
