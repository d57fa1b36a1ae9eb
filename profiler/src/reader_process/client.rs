//! Has other processes' memory and files read, by whoever reads for this thread.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{HashMap, HashSet},
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Seek as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use offwake_recording::{loss::Diagnostics, units::Tgid};
use offwake_unwind::elf::{
    goroutine_labels::GoroutineLabels,
    probe_points::{ProbePoint, ProbeQuery, ProbeRefusal},
    tls_symbol::{TlsQuery, TlsSymbol},
};
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::{
    messages::{FileStat, How, MAX_PAGES, Mappings, PAGE, Reply, Request, Subject},
    server::{self, Answer},
    slow, unanswered,
};
use crate::{
    parser::{self, ChannelError, Parser, ParserRole, end_deadline},
    symbols::address_spaces::{
        description::ModuleDescription, held_file::FileIdentity, process_root::LastLink,
    },
};

/// Files of one device that may not answer before none of that device is asked for any more.
const MAX_SILENT_OF_DEVICE: u32 = 2;
/// Subjects that are remembered because they did not answer.
const MAX_SILENT: usize = 65_536;

/// Questions that had no answer, and those that were not asked for that reason, of all threads.
static UNANSWERED_FILES: AtomicU64 = AtomicU64::new(0);
static UNANSWERED_PROCESSES: AtomicU64 = AtomicU64::new(0);
static NOT_ASKED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
/// Questions that had no answer since the time for the end of the run was over.
static OUT_OF_TIME: AtomicU64 = AtomicU64::new(0);
/// Files that were not copied, since the budget of bytes was used up.
static COPIES_OVER_BUDGET: AtomicU64 = AtomicU64::new(0);
/// Whether no thread reads by itself.
static BY_PROCESS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static READER: RefCell<Reader> = RefCell::new(Reader::default());
}

/// Who reads for a thread.
#[derive(Default)]
struct Reader {
    /// None if it was not started yet, or if the thread reads by itself.
    process: Option<Parser>,
    silence: Silence,
}

/// What did not answer, and is not asked again.
#[derive(Default)]
pub(super) struct Silence {
    subjects: HashSet<Subject>,
    files_of_devices: HashMap<(u32, u32), u32>,
}

impl Silence {
    pub(super) fn add(&mut self, subject: &Subject) {
        if let Subject::File { device, .. } = subject {
            *self.files_of_devices.entry(*device).or_default() += 1;
        }
        if self.subjects.len() < MAX_SILENT {
            self.subjects.insert(subject.clone());
        }
    }

    pub(super) fn has(&self, subject: &Subject) -> bool {
        let is_silent = |device| {
            let silent = self.files_of_devices.get(device);
            silent.is_some_and(|silent| *silent >= MAX_SILENT_OF_DEVICE)
        };
        self.subjects.contains(subject)
            || matches!(subject, Subject::File { device, .. } if is_silent(device))
    }

    pub(super) fn forget(&mut self, tgid: Tgid) {
        if !self.subjects.is_empty() {
            self.subjects.retain(|subject| subject.process() != Some(tgid));
        }
    }
}

impl Reader {
    fn ask(
        &mut self,
        subject: &Subject,
        request: Request,
        files: &[BorrowedFd<'_>],
    ) -> rustix::io::Result<Answer> {
        if self.process.is_none() && BY_PROCESS.load(Ordering::Acquire) {
            self.process = Some(Parser::new(ParserRole::Reader));
        }
        let Some(process) = &mut self.process else {
            let files = files.iter().map(BorrowedFd::try_clone_to_owned).collect();
            let files: Vec<OwnedFd> = io::Result::<_>::map_err(files, |_error| Errno::MFILE)?;
            return Ok(server::answer(request, files));
        };
        let file = files.first().copied();
        if end_deadline::has_passed() {
            return Err(give_up(subject, file));
        }
        let allowance = match self.silence.has(subject) {
            true => None,
            false => slow::allowance(subject, process.allowance()),
        };
        let Some(allowance) = allowance else {
            NOT_ASKED.fetch_add(1, Ordering::Relaxed);
            unanswered::note_unanswered(subject, file);
            return Err(Errno::TIMEDOUT);
        };
        // These are counted below, by what they cost.
        let mut counted = Diagnostics::new();
        let exchanged = process.exchange_within(allowance, &mut counted, |channel| {
            channel.send(&request, files)?;
            channel.receive_answer()
        });
        slow::spend(subject, process.waited());
        match exchanged {
            Ok((reply, files)) => Ok((reply, files.into_iter().next())),
            Err(ChannelError::TimedOut) => {
                self.remember_silent(subject, file);
                Err(Errno::TIMEDOUT)
            }
            Err(ChannelError::OutOfTime) => Err(give_up(subject, file)),
            Err(_) => {
                FAILED.fetch_add(1, Ordering::Relaxed);
                Err(Errno::IO)
            }
        }
    }

    fn remember_silent(&mut self, subject: &Subject, file: Option<BorrowedFd<'_>>) {
        let counter = match subject {
            Subject::File { .. } | Subject::Directory(_) => &UNANSWERED_FILES,
            _ => &UNANSWERED_PROCESSES,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.silence.add(subject);
        unanswered::note_unanswered(subject, file);
    }
}

/// Notes what is not asked about any more, since the run is to end.
fn give_up(subject: &Subject, file: Option<BorrowedFd<'_>>) -> Errno {
    OUT_OF_TIME.fetch_add(1, Ordering::Relaxed);
    let path = file.filter(|_| matches!(subject, Subject::File { .. }));
    let path = path.and_then(unanswered::read_path);
    end_deadline::note_given_up(path.unwrap_or_else(|| subject.to_string()));
    Errno::TIMEDOUT
}

fn ask(
    subject: &Subject,
    request: Request,
    files: &[BorrowedFd<'_>],
) -> rustix::io::Result<Answer> {
    match READER.with_borrow_mut(|reader| reader.ask(subject, request, files))? {
        (Reply::Failed(error), _) => Err(Errno::from_raw_os_error(error)),
        answer => Ok(answer),
    }
}

/// Has this process read for this thread from now on.
pub(crate) fn use_process(process: Parser) {
    READER.with_borrow_mut(|reader| reader.process = Some(process));
}

/// Has each thread use a process of its own from now on: this process is about to hold descriptors
/// that must not outlive it.
pub(crate) fn use_processes() {
    BY_PROCESS.store(true, Ordering::Release);
}

/// Starts this thread's reader, if it is to have one, and waits until it answers.
pub(crate) fn start() {
    let _opened = open_path(Path::new("/"));
}

/// Forgets that a process did not answer: it has ended, or runs another program.
pub(crate) fn forget_process(tgid: Tgid) {
    READER.with_borrow_mut(|reader| reader.silence.forget(tgid));
    slow::forget(tgid);
}

/// Adds what had no answer, in all threads.
pub(crate) fn add_diagnostics(all: &mut Diagnostics) {
    for (name, counter) in [
        ("reader_files_unanswered", &UNANSWERED_FILES),
        ("reader_processes_unanswered", &UNANSWERED_PROCESSES),
        ("reader_not_asked_again", &NOT_ASKED),
        ("reader_failed", &FAILED),
        ("reader_out_of_time", &OUT_OF_TIME),
        ("reader_copies_over_budget", &COPIES_OVER_BUDGET),
    ] {
        let counted = counter.load(Ordering::Relaxed);
        if counted > 0 {
            all.insert(name, counted);
        }
    }
}

/// Opens `/proc/PID/mem`.
pub(crate) fn open_memory(tgid: Tgid) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/{tgid}/mem");
    file_of(ask(&Subject::Memory(tgid), Request::Open { path, how: How::Read }, &[])?)
        .map(|(file, _)| file)
}

/// Reads memory up to the first page that can't be read.
pub(crate) fn read_memory(tgid: Tgid, memory: &OwnedFd, address: u64, length: usize) -> Vec<u8> {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let request = Request::ReadMemory { address, length };
    let answer = ask(&Subject::Memory(tgid), request, &[memory.as_fd()]);
    answer.and_then(bytes_of).unwrap_or_default()
}

/// Opens `/proc/PID/pagemap`.
pub(crate) fn open_pagemap(tgid: Tgid) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/{tgid}/pagemap");
    file_of(ask(&Subject::Memory(tgid), Request::Open { path, how: How::Read }, &[])?)
        .map(|(file, _)| file)
}

/// Reads memory if all of it is in memory.
pub(crate) fn read_resident(
    tgid: Tgid,
    memory: &OwnedFd,
    pagemap: &OwnedFd,
    address: u64,
    length: usize,
) -> rustix::io::Result<Vec<u8>> {
    let length = u32::try_from(length).map_err(|_too_long| Errno::INVAL)?;
    let request = Request::ReadResident { address, length };
    bytes_of(ask(&Subject::Memory(tgid), request, &[memory.as_fd(), pagemap.as_fd()])?)
}

/// Reads pages of memory. None for each that can't be read.
pub(crate) fn read_pages(tgid: Tgid, memory: &OwnedFd, pages: &[u64]) -> Vec<Option<Box<[u8]>>> {
    let mut read = Vec::with_capacity(pages.len());
    for some in pages.chunks(MAX_PAGES) {
        let request = Request::ReadPages { pages: some.to_vec() };
        let answer = ask(&Subject::Memory(tgid), request, &[memory.as_fd()]);
        let Ok((Reply::Pages { is_there, bytes }, _)) = answer else { break };
        let mut bytes = bytes.chunks_exact(PAGE);
        read.extend(is_there.into_iter().map(|there| there.then(|| bytes.next())?.map(Box::from)));
    }
    read.resize(pages.len(), None);
    read
}

/// Reads the executable mappings of a process. [`Errno::NOENT`] or [`Errno::SRCH`] if it is gone.
pub(crate) fn read_mappings(tgid: Tgid) -> rustix::io::Result<Mappings> {
    // Most processes of a shell script have ended by now. This is one system call; a question takes
    // 100 us of two processes' CPU time. `/proc` would not do: with `hidepid`, it hides most
    // processes from a thread without CAP_SYS_PTRACE.
    let pid = i32::try_from(tgid.0).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return Err(Errno::SRCH);
    }
    let answer = ask(&Subject::Mappings(tgid), Request::ReadMappings { tgid }, &[])?;
    parser::decode(&bytes_of(answer)?).map_err(|_error| Errno::IO)
}

/// Opens what a process has mapped between these addresses, as a name alone.
pub(crate) fn open_mapped(
    tgid: Tgid,
    start: u64,
    end: u64,
) -> rustix::io::Result<(OwnedFd, FileStat)> {
    let path = server::map_link(tgid, start, end);
    file_of(ask(&Subject::Mappings(tgid), Request::Open { path, how: How::Name }, &[])?)
}

/// Opens what a descriptor of a process stands for, as a name alone.
pub(crate) fn open_descriptor(tgid: Tgid, descriptor: u32) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/{tgid}/fd/{descriptor}");
    file_of(ask(&Subject::Descriptor(tgid), Request::Open { path, how: How::Name }, &[])?)
        .map(|(file, _)| file)
}

/// Opens a path inside of the root of a process, as a name alone.
pub(crate) fn open_below(
    tgid: Tgid,
    path: &str,
    last: LastLink,
) -> rustix::io::Result<(OwnedFd, FileStat)> {
    let request = Request::OpenBelow { tgid, path: path.to_owned(), last };
    file_of(ask(&Subject::Root(tgid), request, &[])?)
}

/// Opens a path of this machine, as a name alone.
pub(crate) fn open_path(path: &Path) -> rustix::io::Result<(OwnedFd, FileStat)> {
    open_in_directory(path, How::Name)
}

/// The same, without following a link that is the last part of it.
pub(crate) fn open_path_itself(path: &Path) -> rustix::io::Result<(OwnedFd, FileStat)> {
    open_in_directory(path, How::OwnName)
}

fn open_in_directory(path: &Path, how: How) -> rustix::io::Result<(OwnedFd, FileStat)> {
    let path = path.to_str().ok_or(Errno::ILSEQ)?.to_owned();
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let subject = Subject::Directory(directory.to_owned());
    file_of(ask(&subject, Request::Open { path, how }, &[])?)
}

/// Lists the directories in a directory of this machine, so many at most, without those that links lead to.
pub(crate) fn list_directories(path: &Path, limit: usize) -> rustix::io::Result<Vec<PathBuf>> {
    let name = path.to_str().ok_or(Errno::ILSEQ)?.to_owned();
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let subject = Subject::Directory(name.clone());
    let names = bytes_of(ask(&subject, Request::ListDirectories { path: name, limit }, &[])?)?;
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| path.join(OsStr::from_bytes(name))).collect())
}

/// Opens a held file for reading, if it is a regular file that answers. It comes in a
/// [box](parser::box_file), for another process to unpack.
pub(crate) fn open_held(held: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let identity = FileIdentity::from_file(&held)?;
    let answer = ask(&identity.into(), Request::OpenHeld, &[held.as_fd()])?;
    file_of(answer).map(|(boxed, _)| boxed)
}

/// Describes a held file. None if it is not the one that was mapped.
pub(crate) fn describe(held: &OwnedFd, identity: FileIdentity) -> Option<ModuleDescription> {
    let request = Request::Describe { identity };
    match ask(&identity.into(), request, &[held.as_fd()]) {
        Ok((Reply::Description(described), _)) => described.map(ModuleDescription::from),
        _ => None,
    }
}

/// Finds variables of threads in a held file, each with the number of the query that asks for it.
/// None are found if it is not the one that was mapped.
pub(crate) fn find_tls_symbols(
    held: &OwnedFd,
    identity: FileIdentity,
    queries: Vec<TlsQuery>,
) -> Vec<(usize, TlsSymbol)> {
    let request = Request::FindTlsSymbols { identity, queries };
    match ask(&identity.into(), request, &[held.as_fd()]) {
        Ok((Reply::TlsSymbols(symbols), _)) => symbols,
        _ => Vec::new(),
    }
}

/// Finds where a held program keeps the labels of goroutines. None if it is not in Go, labels
/// nothing, or is not the one that was mapped.
pub(crate) fn find_goroutine_labels(
    held: &OwnedFd,
    identity: FileIdentity,
) -> Option<GoroutineLabels> {
    let request = Request::FindGoroutineLabels { identity };
    match ask(&identity.into(), request, &[held.as_fd()]) {
        Ok((Reply::GoroutineLabels(labels), _)) => labels,
        _ => None,
    }
}

/// Finds the places of a function or a probe in a held file.
pub(crate) fn find_probe_points(
    held: &OwnedFd,
    query: &ProbeQuery,
) -> rustix::io::Result<Result<Vec<ProbePoint>, ProbeRefusal>> {
    let identity = FileIdentity::from_file(held)?;
    let request = Request::FindProbePoints { query: query.clone() };
    match ask(&identity.into(), request, &[held.as_fd()])? {
        (Reply::ProbePoints(points), _) => Ok(points),
        _ => Err(Errno::IO),
    }
}

/// Finds where a process has the first mapping whose name begins with one of these.
pub(crate) fn find_named_mapping(tgid: Tgid, beginnings: &[&str]) -> Option<u64> {
    let beginnings = beginnings.iter().map(|&text| text.to_owned()).collect();
    let request = Request::FindNamedMapping { tgid, beginnings };
    match ask(&Subject::Mappings(tgid), request, &[]) {
        Ok((Reply::NamedMapping(found), _)) => found,
        _ => None,
    }
}

/// Copies a held file into memory, where nobody can change it.
pub(crate) fn copy_file(held: impl AsFd, limit: u64) -> rustix::io::Result<File> {
    let identity = FileIdentity::from_file(&held)?;
    let left = slow::bytes_to_copy();
    if identity.size().min(limit) > left {
        COPIES_OVER_BUDGET.fetch_add(1, Ordering::Relaxed);
        return Err(Errno::DQUOT);
    }
    let request = Request::Copy { limit: limit.min(left) };
    match ask(&identity.into(), request, &[held.as_fd()])? {
        (Reply::LongBytes(length), Some(copy)) => {
            slow::add_copied(length);
            Ok(File::from(copy))
        }
        _ => Err(Errno::IO),
    }
}

/// Reads an entry of the directory of a process in `/proc` that may wait for its memory.
pub(crate) fn read_entry(
    tgid: Tgid,
    directory: &OwnedFd,
    name: &str,
    limit: u32,
) -> rustix::io::Result<Vec<u8>> {
    let request = Request::ReadEntry { name: name.to_owned(), limit };
    bytes_of(ask(&Subject::Arguments(tgid), request, &[directory.as_fd()])?)
}

fn file_of((reply, file): Answer) -> rustix::io::Result<(OwnedFd, FileStat)> {
    match (reply, file) {
        (Reply::File(stat), Some(file)) => Ok((file, stat)),
        _ => Err(Errno::IO),
    }
}

fn bytes_of((reply, file): Answer) -> rustix::io::Result<Vec<u8>> {
    match (reply, file) {
        (Reply::Bytes(bytes), _) => Ok(Cow::into_owned(bytes)),
        (Reply::LongBytes(length), Some(file)) => {
            let mut file = File::from(file);
            let mut bytes = Vec::new();
            let read = file.rewind().and_then(|()| file.take(length).read_to_end(&mut bytes));
            read.map(|_length| bytes).map_err(|_error| Errno::IO)
        }
        _ => Err(Errno::IO),
    }
}
