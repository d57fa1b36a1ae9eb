use std::{
    fs::{self, File},
    io::{Read as _, Seek as _},
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::net::UnixStream,
    },
};

use offwake_recording::{Unanswered, UnansweredKind, units::Tgid};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use super::{
    PAGE,
    client::{self, Silence},
    messages::Subject,
    open_held, open_memory, read_entry, read_memory, read_pages, read_resident, serve,
    unanswered::{UnansweredList, find_place},
    use_process,
};
use crate::{
    cgroup2,
    parser::{Channel, Parser, unbox_file},
};

fn own() -> Tgid {
    Tgid(std::process::id())
}

/// Has a thread answer what this one asks, over a socket, as the process does.
fn ask_a_server() {
    use_process(Parser::in_thread(serve));
}

fn hold(path: &std::path::Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn content(file: impl Into<File>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = file.into();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn memory_is_read_up_to_where_there_is_none() {
    ask_a_server();
    let memory = open_memory(own()).unwrap();
    let there = vec![7_u8; 3 * PAGE];
    let address = there.as_ptr() as u64;
    assert_eq!(read_memory(own(), &memory, address, there.len()), there);
    assert!(read_memory(own(), &memory, 8, 8).is_empty());
    assert!(read_memory(own(), &memory, u64::MAX - 3, 8).is_empty());
    let pages = read_pages(own(), &memory, &[0, address / PAGE as u64 + 1, u64::MAX]);
    assert_eq!(pages.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(pages[1].as_deref(), Some(&[7; PAGE][..]));
}

#[test]
fn memory_that_nobody_has_touched_is_not_resident() {
    ask_a_server();
    let length = 4 * PAGE;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which is nobody's memory.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    // SAFETY: within the mapping.
    unsafe { mapped.cast::<u8>().write(5) };
    let (memory, address) = (open_memory(own()).unwrap(), mapped as u64);
    let pagemap = client::open_pagemap(own()).unwrap();
    let read = |at, length| read_resident(own(), &memory, &pagemap, at, length);
    assert_eq!(read(address, 2).unwrap(), [5, 0]);
    assert_eq!(read(address + PAGE as u64, 1), Err(Errno::FAULT));
    // A part of it is not.
    assert_eq!(read(address + PAGE as u64 - 1, 2), Err(Errno::FAULT));
    // SAFETY: nothing refers to it any more.
    unsafe { libc::munmap(mapped, length) };
}

#[test]
fn a_file_comes_in_a_box_that_can_be_unpacked_again_and_again() {
    ask_a_server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, b"content").unwrap();
    let boxed = open_held(hold(&path)).unwrap();
    // Who holds the box does not have the file open.
    let link = |fd: &OwnedFd| fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    assert!(link(&boxed).to_str().unwrap().starts_with("socket:"));
    for _ in 0..2 {
        let file = unbox_file(boxed.try_clone().unwrap()).unwrap();
        assert_eq!(link(&file), path);
        assert_eq!(content(file), b"content");
    }
}

#[test]
fn what_is_no_box_is_the_file_itself() {
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    let number = file.as_raw_fd();
    assert_eq!(unbox_file(file).unwrap().as_raw_fd(), number);
    let held = hold("/".as_ref());
    let number = held.as_raw_fd();
    assert_eq!(unbox_file(held).unwrap().as_raw_fd(), number);
    let (empty, _other) = UnixStream::pair().unwrap();
    assert!(unbox_file(empty.into()).is_err());
}

#[test]
fn a_copy_is_whole_and_no_longer_than_allowed() {
    ask_a_server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, [3; 100]).unwrap();
    let copy = client::copy_file(hold(&path), 100).unwrap();
    assert_eq!(content(copy), [3; 100]);
    assert_eq!(client::copy_file(hold(&path), 99).unwrap_err(), Errno::FBIG);
    assert_eq!(open_held(hold(directory.path())).unwrap_err(), Errno::INVAL);
}

#[test]
fn an_entry_of_proc_is_cut_to_its_limit() {
    ask_a_server();
    let directory = hold(format!("/proc/{}", own()).as_ref());
    let whole = fs::read("/proc/self/cmdline").unwrap();
    let read = |limit| read_entry(own(), &directory, "cmdline", limit);
    assert_eq!(read(1 << 20).unwrap(), whole);
    assert_eq!(read(3).unwrap(), whole[..3]);
    assert_eq!(read_entry(own(), &directory, "absent", 3), Err(Errno::NOENT));
}

fn die_at_once(channel: &mut Channel<UnixStream>) {
    let _request = channel.receive::<()>();
}

#[test]
fn a_server_that_dies_costs_the_answer_and_ends_nobody() {
    use_process(Parser::in_thread(die_at_once));
    for _ in 0..20 {
        assert_eq!(open_memory(own()).unwrap_err(), Errno::IO);
    }
}

#[test]
fn what_did_not_answer_is_not_asked_again_and_of_a_device_no_more_than_a_few() {
    let mut silence = Silence::default();
    let file = |inode| Subject::File { device: (0, 7), inode };
    let other = Subject::File { device: (0, 8), inode: 1 };
    silence.add(&file(1));
    assert!(silence.has(&file(1)) && !silence.has(&file(2)));
    silence.add(&file(2));
    assert!(silence.has(&file(3)) && !silence.has(&other));

    let (memory, mappings) = (Subject::Memory(Tgid(7)), Subject::Mappings(Tgid(7)));
    silence.add(&memory);
    assert!(silence.has(&memory) && !silence.has(&mappings));
    assert!(!silence.has(&Subject::Memory(Tgid(8))));
    // It is another program now, or another process.
    silence.forget(Tgid(7));
    assert!(!silence.has(&memory) && silence.has(&file(3)));
}

#[test]
fn what_did_not_answer_is_named_once_and_counted_beyond_a_few() {
    let file = |inode| Subject::File { device: (0, 52), inode };
    let mut list = UnansweredList::default();
    assert_eq!((list.describe(), list.rows()), (None, Vec::new()));
    for (inode, words) in [(100, "a"), (100, "a"), (0, "0"), (1, "1")] {
        list.add(&file(inode), words.to_owned(), "/mnt/nfs".to_owned());
    }
    assert_eq!(list.describe().as_deref(), Some("a, 0, 1"));
    list.add(&Subject::Memory(Tgid(7)), "its memory".to_owned(), String::new());
    let row =
        |kind, place: &str, tgid, count| Unanswered { kind, place: place.to_owned(), tgid, count };
    let files = row(UnansweredKind::File, "/mnt/nfs", None, 3);
    let memory = row(UnansweredKind::Memory, "", Some(Tgid(7)), 1);
    assert_eq!(list.rows(), [files.clone(), memory.clone()]);

    // Whoever can make many of them takes 33 rows of 256 bytes, whatever they are called.
    let long = "/é".repeat(4096);
    for number in 0..1000 {
        let place = format!("{number}{long}");
        list.add(&Subject::Directory(place.clone()), place.clone(), place);
    }
    let rows = list.rows();
    assert_eq!((rows.len(), &rows[..2]), (33, &[files, memory][..]));
    assert_eq!(rows[32], row(UnansweredKind::Other, "", None, 970));
    assert!(rows.iter().all(|row| row.place.len() <= 256), "{rows:?}");
    assert!(rows[2].place.ends_with('…'), "{rows:?}");
    assert!(list.describe().unwrap().ends_with(" and 996 more"));
}

/// A path of another mount namespace may be that of another file here.
#[test]
fn a_file_lies_where_its_device_is_mounted() {
    let mounts = cgroup2::parse_all_mounts(
        b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
          22 21 0:52 / /mnt/nfs rw - nfs4 files:/export rw\n\
          23 21 0:52 /deep /mnt/nfs-deep rw - nfs4 files:/export rw\n",
    );
    let place = |device, path| find_place(device, path, &mounts);
    assert_eq!(place((0, 52), Some("/mnt/nfs/file")), "/mnt/nfs");
    assert_eq!(place((0, 52), Some("/mnt/nfs-deep/file")), "/mnt/nfs-deep");
    assert_eq!(place((0, 52), Some("/file")), "/mnt/nfs");
    assert_eq!(place((0, 52), None), "/mnt/nfs");
    assert_eq!(place((0, 53), Some("/file")), "device 0:53");
    assert_eq!(place((8, 1), Some("/usr/bin/cat")), "/");
}

/// A file must not be told from a box by what the other end says: the kernel does.
#[test]
fn files_of_a_message_are_unpacked_where_they_are_read() {
    let (ours, its) = UnixStream::pair().unwrap();
    let file = tempfile::tempfile().unwrap();
    let boxed = crate::parser::box_file(&file).unwrap();
    Channel::to_trusted(ours).send(&3_u32, &[file.as_fd(), boxed.as_fd()]).unwrap();
    let (message, files) = Channel::to_trusted(its).receive_with_files::<u32>().unwrap();
    assert_eq!(message, 3);
    let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
    let expected = rustix::fs::fstat(&file).unwrap().st_ino;
    assert_eq!(files.iter().map(inode).collect::<Vec<_>>(), [expected, expected]);
}
