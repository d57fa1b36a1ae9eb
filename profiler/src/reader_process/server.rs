//! What the reader does: system calls that may never return, and next to no parsing.

use std::{
    borrow::Cow,
    fs::{self, File},
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::FileExt as _},
    },
};

use object::ReadCache;
use offwake_recording::units::Tgid;
use offwake_unwind::elf::{
    goroutine_labels::GoroutineLabels,
    probe_points,
    tls_symbol::{TlsQuery, TlsSymbol},
};
use rustix::{
    fs::{CWD, Mode, OFlags},
    io::Errno,
};
use serde::Serialize;

use super::messages::{
    Described, FileStat, How, MAX_INLINE, MAX_PAGES, MappedLine, Mappings, PAGE, Reply, Request,
};
use crate::{
    parser::{self, Channel, sealed_copy},
    symbols::address_spaces::{
        description::ModuleDescription,
        held_file::{self, FileIdentity},
        proc_maps::{self, MapsLine},
        process_root::ProcessRoot,
    },
};

/// Answers requests until the client is gone.
pub fn serve<S: std::os::fd::AsFd>(channel: &mut Channel<S>) {
    while let Ok((request, files)) = channel.receive_with_files() {
        let (reply, file) = answer(request, files);
        let file = file.as_ref().map(OwnedFd::as_fd);
        if channel.send(&reply, file.as_slice()).is_err() {
            return;
        }
    }
}

/// A reply, and the file that comes with it.
pub(super) type Answer = (Reply<'static>, Option<OwnedFd>);

/// Does what is asked. The files are those that came with the request.
pub(super) fn answer(request: Request, files: Vec<OwnedFd>) -> Answer {
    try_to_answer(request, files)
        .unwrap_or_else(|error| (Reply::Failed(error.raw_os_error()), None))
}

fn try_to_answer(request: Request, files: Vec<OwnedFd>) -> Result<Answer, Errno> {
    let mut files = files.into_iter();
    let mut handed = || files.next().ok_or(Errno::BADF);
    match request {
        Request::Open { path, how } => {
            let flags = match how {
                How::Read => OFlags::RDONLY,
                How::Name => OFlags::PATH,
                How::OwnName => OFlags::PATH | OFlags::NOFOLLOW,
            };
            with_stat(rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())?)
        }
        Request::ListDirectories { path, limit } => {
            in_message_or_memory(list_directories(&path, limit as usize)?)
        }
        Request::OpenBelow { tgid, path, last } => {
            // A process that is gone, or that we may not look into, is not a path that is refused.
            let root = ProcessRoot::open_of(tgid).map_err(|_error| Errno::SRCH)?;
            with_stat(root.open(&path, last)?)
        }
        Request::OpenHeld => {
            let opened = held_file::open_directly(&handed()?)?;
            check_that_it_answers(&opened)?;
            let stat = FileStat::new(&held_file::stat(&opened, "")?);
            // It is closed here before the reply: that can take for ever, too.
            let boxed = parser::box_file(opened).map_err(errno)?;
            Ok((Reply::File(stat), Some(boxed)))
        }
        Request::ReadEntry { name, limit } => {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let entry = rustix::fs::openat(handed()?, name, flags, Mode::empty())?;
            let mut bytes = Vec::new();
            File::from(entry).take(limit.into()).read_to_end(&mut bytes).map_err(errno)?;
            in_message_or_memory(bytes)
        }
        Request::ReadMemory { address, length } => {
            Ok(bytes(read_prefix(&handed()?.into(), address, length as usize)))
        }
        Request::ReadResident { address, length } => {
            let (memory, pagemap) = (handed()?.into(), handed()?.into());
            let read = read_resident(&memory, &pagemap, address, length as usize);
            read.map(bytes).ok_or(Errno::FAULT)
        }
        Request::ReadPages { pages } => Ok((read_pages(&handed()?.into(), &pages), None)),
        Request::ReadMappings { tgid } => in_message_or_memory(encode(&read_mappings(tgid)?)?),
        Request::Describe { identity } => {
            Ok((Reply::Description(describe(&handed()?, identity)), None))
        }
        Request::FindTlsSymbols { identity, queries } => {
            let symbols = find_tls_symbols(&handed()?, identity, &queries);
            Ok((Reply::TlsSymbols(symbols.unwrap_or_default()), None))
        }
        Request::FindGoroutineLabels { identity } => {
            Ok((Reply::GoroutineLabels(find_goroutine_labels(&handed()?, identity)), None))
        }
        Request::FindProbePoints { query } => {
            let file = held_file::open_directly(&handed()?)?;
            let points = probe_points::find_points(&ReadCache::new(file), &query);
            Ok((Reply::ProbePoints(points), None))
        }
        Request::FindNamedMapping { tgid, beginnings } => {
            let found = proc_maps::find_named(tgid, &beginnings).map_err(errno)?;
            Ok((Reply::NamedMapping(found), None))
        }
        Request::Copy { limit } => {
            let file = held_file::open_directly(&handed()?)?;
            let (copy, length) = sealed_copy(file.take(limit.saturating_add(1))).map_err(errno)?;
            if length > limit {
                return Err(Errno::FBIG);
            }
            Ok((Reply::LongBytes(length), Some(copy.into())))
        }
    }
}

/// The names of the directories in a directory, without those that links lead to.
fn list_directories(path: &str, limit: usize) -> Result<Vec<u8>, Errno> {
    let entries = fs::read_dir(path).map_err(errno)?.flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut names = Vec::new();
    for entry in entries.filter(is_directory).take(limit) {
        names.push(0);
        names.extend_from_slice(entry.file_name().as_bytes());
    }
    Ok(names)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn bytes(bytes: Vec<u8>) -> Answer {
    (Reply::Bytes(Cow::Owned(bytes)), None)
}

fn with_stat(file: OwnedFd) -> Result<Answer, Errno> {
    let stat = FileStat::new(&held_file::stat(&file, "")?);
    Ok((Reply::File(stat), Some(file)))
}

fn in_message_or_memory(content: Vec<u8>) -> Result<Answer, Errno> {
    if content.len() <= MAX_INLINE {
        return Ok(bytes(content));
    }
    let (file, length) = sealed_copy(content.as_slice()).map_err(errno)?;
    Ok((Reply::LongBytes(length), Some(file.into())))
}

fn encode(message: &impl Serialize) -> Result<Vec<u8>, Errno> {
    postcard::to_extend(message, Vec::new()).map_err(|_error| Errno::NOMEM)
}

/// Reads the first and the last byte: a server that has gone answers for neither. Who parses the
/// file then waits for no server, unless it goes in between.
fn check_that_it_answers(file: &File) -> Result<(), Errno> {
    let length = file.metadata().map_err(errno)?.len();
    for at in [0, length.saturating_sub(1)] {
        file.read_at(&mut [0], at).map_err(errno)?;
    }
    Ok(())
}

/// Reads up to the first page that can't be read.
fn read_prefix(memory: &File, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length.min(MAX_INLINE)];
    let mut read = 0;
    while read < bytes.len() {
        let Some(at) = address.checked_add(read as u64) else { break };
        let rest_of_page = PAGE - (at % PAGE as u64) as usize;
        let end = (read + rest_of_page).min(bytes.len());
        let Some(page) = bytes.get_mut(read..end) else { break };
        if memory.read_exact_at(page, at).is_err() {
            break;
        }
        read = end;
    }
    bytes.truncate(read);
    bytes
}

/// The bit of an entry of `pagemap` that says that the page is in memory
/// ([pagemap.rst](https://github.com/torvalds/linux/blob/v6.12/Documentation/admin-guide/mm/pagemap.rst)).
const PRESENT: u64 = 1 << 63;

/// Reads what is in memory: no page fault has to be served, by that process itself or by anybody else.
fn read_resident(memory: &File, pagemap: &File, address: u64, length: usize) -> Option<Vec<u8>> {
    // An entry covers one of the system's own pages.
    let page = rustix::param::page_size() as u64;
    let mut bytes = vec![0; length.min(MAX_INLINE)];
    let last = address.checked_add((bytes.len() as u64).checked_sub(1)?)?;
    for page in address / page..=last / page {
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, page.checked_mul(8)?).ok()?;
        if u64::from_le_bytes(entry) & PRESENT == 0 {
            return None;
        }
    }
    memory.read_exact_at(&mut bytes, address).ok()?;
    Some(bytes)
}

fn read_pages(memory: &File, pages: &[u64]) -> Reply<'static> {
    let (mut is_there, mut bytes) = (Vec::new(), Vec::new());
    for page in pages.iter().take(MAX_PAGES) {
        let begin = bytes.len();
        bytes.resize(begin + PAGE, 0);
        let read = page
            .checked_mul(PAGE as u64)
            .zip(bytes.get_mut(begin..))
            .is_some_and(|(at, into)| memory.read_exact_at(into, at).is_ok());
        is_there.push(read);
        if !read {
            bytes.truncate(begin);
        }
    }
    Reply::Pages { is_there, bytes: Cow::Owned(bytes) }
}

fn read_mappings(tgid: Tgid) -> Result<Mappings, Errno> {
    let (lines, more) = proc_maps::read(tgid).map_err(errno)?;
    let vdso = lines.iter().find(|line| line.name == "[vdso]");
    let vdso = vdso.and_then(|line| proc_maps::read_vdso(tgid, line));
    let lines = lines.into_iter().map(|line| add_file(tgid, line)).collect();
    Ok(Mappings { lines, more, vdso })
}

/// Adds which file is mapped.
fn add_file(tgid: Tgid, line: MapsLine) -> MappedLine {
    let MapsLine { start, end, offset, name } = line;
    let link = map_link(tgid, start, end);
    let file = name.starts_with('/').then(|| held_file::stat(CWD, &link).ok()).flatten();
    let file = file.map(|stat| FileIdentity::from_stat(&stat));
    let is_elf = proc_maps::is_in_memory_file(&name) && starts_as_elf(&link);
    MappedLine { start, end, offset, name, file, is_elf }
}

/// The link to the file that a process has mapped between these addresses.
pub(super) fn map_link(tgid: Tgid, start: u64, end: u64) -> String {
    format!("/proc/{tgid}/map_files/{start:x}-{end:x}")
}

/// Programs are run from a memfd, and JITs map one twice: only the former begin as ELF files do.
fn starts_as_elf(link: &str) -> bool {
    // The code segment begins behind the header: the file itself has it.
    let mut magic = [0; 4];
    File::open(link)
        .is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF")
}

fn find_tls_symbols(
    held: &OwnedFd,
    identity: FileIdentity,
    queries: &[TlsQuery],
) -> Option<Vec<(usize, TlsSymbol)>> {
    let file = held_file::open_directly(held).ok()?;
    let symbols = TlsSymbol::find_all(&ReadCache::new(file), queries);
    held_file::is_unchanged(held, identity).then_some(symbols)
}

fn find_goroutine_labels(held: &OwnedFd, identity: FileIdentity) -> Option<GoroutineLabels> {
    let file = held_file::open_directly(held).ok()?;
    let labels = GoroutineLabels::find(&ReadCache::new(file))?;
    held_file::is_unchanged(held, identity).then_some(labels)
}

fn describe(held: &OwnedFd, identity: FileIdentity) -> Option<Described> {
    let file = held_file::open_directly(held).ok()?;
    let description = ModuleDescription::read(&ReadCache::new(file));
    // This is checked last, so that what was read is what ran.
    held_file::is_unchanged(held, identity).then(|| description.into())
}
