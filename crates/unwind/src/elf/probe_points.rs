//! Where in a file the kernel can report that code runs: functions by name, and the probes that a
//! program's author has put into it (USDT).
//!
//! ```text
//!  .symtab, .dynsym    checkout        its address ─┐
//!  .note.stapsdt       shop:sold       its address ─┴─▶ offset in the file ──▶ a uprobe
//!                                      a counter    ───▶ offset in the file ──▶ counts who looks
//! ```
//!
//! A note has three addresses (the probe's, one that tells by how much a linker has moved the file
//! since, and the counter's), and then the provider's name, the probe's name and its arguments, each
//! with a closing NUL:
//! <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
};

use object::{
    Endianness, ReadRef,
    elf::{EM_AARCH64, EM_X86_64, PT_LOAD, SHN_UNDEF, SHT_DYNSYM, SHT_NOTE, SHT_SYMTAB, STT_FUNC},
};
use serde::{Deserialize, Serialize};

use super::{
    function_parts::{read_unwind_facts, split_off_parts},
    function_returns::{MAX_SIZE, Part, find_returns},
    headers::{self, Headers, LimitedFile, find_section, read_section},
    layout::code_segments,
};

/// Bytes that are read of one file: a browser's table of symbols, with their names, is 200 MB.
const MAX_READ: u64 = 512 << 20;
/// Bytes of an entry of a 64-bit symbol table.
const SYMBOL: usize = 24;
/// Places of one probe: inlining multiplies them.
const MAX_PLACES: usize = 256;
/// The kind of the notes, and whose they are.
const NT_STAPSDT: u32 = 3;
const OWNER: &[u8] = b"stapsdt\0";
/// The machine whose programs can be followed here.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };

/// What GCC and Clang add to the name of a function for a part of it that is seldom run.
const COLD: &[u8] = b".cold";
/// Where the linker's own stubs are, which jump to functions of other files.
const STUBS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];

/// What divides the name of a range from what says where the probe is, and the pairs of the latter:
/// PostgreSQL and Python have `start` and `done`, Java `begin` and `end`, `entry` and `return`.
const SEPARATORS: [&str; 2] = ["__", "_"];
const PAIRS: [(&str, &str); 7] = [
    ("start", "done"),
    ("begin", "end"),
    ("start", "end"),
    ("entry", "return"),
    ("enter", "exit"),
    ("begin", "done"),
    ("start", "stop"),
];

/// What is looked for in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeQuery {
    /// A function, by its symbol.
    Function(String),
    /// A probe, or two that are a range's begin and its end.
    Usdt {
        /// Whose the probe is.
        provider: String,
        /// The probe's name, or what the names of two probes begin with.
        name: String,
    },
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProbePoint {
    /// Where the instruction is.
    pub offset: u64,
    /// Where the counter is that tells the program that somebody looks; none if it has none.
    pub semaphore: Option<u64>,
    /// What is there.
    pub kind: PointKind,
}

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PointKind {
    /// A range begins.
    Begin,
    /// A range ends.
    End,
    /// Something happens.
    Instant,
}

/// Why a file has no such place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeRefusal {
    /// It is no ELF file, or none that can be read.
    NotElf,
    /// It is for another machine.
    OtherMachine,
    /// It has no symbols of functions at all.
    Stripped,
    /// It has no probes at all.
    NoProbes,
    /// It has none of that name.
    NotFound,
    /// It has none of that name, and these probes of that provider.
    OtherProbes(Vec<String>),
    /// A place is outside of the file's code.
    OutsideCode,
    /// There are too many.
    TooMany,
    /// It can't be told of all instructions of the function whether they leave it.
    UnknownReturns,
    /// It is written in Go.
    Go,
}

/// Finds the places of a function or a probe in a file.
///
/// # Errors
///
/// Why there are none.
pub fn find_points<'data, R: ReadRef<'data>>(
    data: R,
    query: &ProbeQuery,
) -> Result<Vec<ProbePoint>, ProbeRefusal> {
    headers::read_within(data, MAX_READ, |headers, data| Some(find(&headers, data, query)))
        .unwrap_or(Err(ProbeRefusal::NotElf))
}

fn find<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
    query: &ProbeQuery,
) -> Result<Vec<ProbePoint>, ProbeRefusal> {
    // What notes and symbol tables have is read as this machine's own programs have it.
    if headers.machine != MACHINE || headers.endian != Endianness::Little {
        return Err(ProbeRefusal::OtherMachine);
    }
    let mut points = match query {
        ProbeQuery::Function(name) => find_function(headers, data, name)?,
        ProbeQuery::Usdt { provider, name } => {
            choose(headers, &read_notes(headers, data, provider)?, name)?
        }
    };
    points.sort_unstable();
    points.dedup();
    if points.len() > MAX_PLACES {
        return Err(ProbeRefusal::TooMany);
    }
    // A goroutine goes from thread to thread, and others run on its thread meanwhile.
    let is_range = points.iter().any(|point| point.kind != PointKind::Instant);
    if is_range && is_go(headers, data) {
        return Err(ProbeRefusal::Go);
    }
    Ok(points)
}

/// A function of the file.
struct Function {
    /// Where its name begins in the names of its table.
    name: usize,
    address: u64,
    size: u64,
}

/// Where the functions of a name begin, and where each of them is left.
fn find_function<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
    name: &str,
) -> Result<Vec<ProbePoint>, ProbeRefusal> {
    let mut beginnings = HashSet::new();
    let (mut wanted, mut parts) = (BTreeMap::new(), BTreeSet::new());
    let tables = headers.sections.iter();
    for table in tables.filter(|section| matches!(section.kind, SHT_SYMTAB | SHT_DYNSYM)) {
        let names = headers.sections.get(table.link as usize);
        let Some(names) = names.and_then(|names| read_section(data, names)) else { continue };
        let Some(symbols) = read_section(data, table) else { continue };
        for function in symbols.chunks_exact(SYMBOL).filter_map(read_function) {
            let Function { name: at, address, size } = function;
            let behind = names.get(at..).and_then(|rest| rest.strip_prefix(name.as_bytes()));
            match behind {
                // Linkers add a version to some names: `name@@VERSION`.
                Some([0 | b'@', ..]) => {
                    wanted.insert(address, size);
                }
                Some(behind) if behind.starts_with(COLD) => {
                    parts.insert((address, size));
                    continue;
                }
                _ => {}
            }
            beginnings.insert(address);
        }
    }
    if wanted.is_empty() {
        let is_stripped = beginnings.is_empty();
        return Err(if is_stripped { ProbeRefusal::Stripped } else { ProbeRefusal::NotFound });
    }
    let stubs: Vec<Range<u64>> = STUBS
        .iter()
        .filter_map(|name| find_section(headers, data, name.as_bytes()))
        .map(|section| section.address..section.address.saturating_add(section.size))
        .collect();
    let addresses: Vec<u64> = wanted.keys().copied().collect();
    let facts = read_unwind_facts(headers, data, &addresses);
    let is_function = |address: u64| {
        beginnings.contains(&address)
            || facts.beginnings.contains(&address)
            || stubs.iter().any(|stubs| stubs.contains(&address))
    };
    let is_flat = |address: u64| facts.flat.iter().any(|range| range.contains(&address));
    let read_word = |address: u64| {
        let bytes = data.read_bytes_at(data_offset(headers, address)?, 8).ok()?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut points = Vec::new();
    for (&address, &size) in &wanted {
        if size == 0 || size > MAX_SIZE || headers.machine != EM_X86_64 {
            return Err(ProbeRefusal::UnknownReturns);
        }
        let mut of_function = vec![(address, size)];
        of_function.extend(&parts);
        let unnamed = split_off_parts(headers, data, address).into_iter();
        of_function.extend(unnamed.map(|part| (part.start, part.end.saturating_sub(part.start))));
        let read = |(address, size): (u64, u64)| {
            let offset = code_offset(headers, address)?;
            let code = data.read_bytes_at(offset, size.min(MAX_SIZE)).ok()?;
            Some(Part { address, code })
        };
        let code: Option<Vec<Part<'_>>> = of_function.into_iter().map(read).collect();
        let code = code.ok_or(ProbeRefusal::OutsideCode)?;
        let returns = find_returns(&code, is_function, is_flat, read_word)
            .ok_or(ProbeRefusal::UnknownReturns)?;
        let ends = returns.into_iter().map(|address| (address, PointKind::End));
        for (address, kind) in ends.chain([(address, PointKind::Begin)]) {
            let offset = code_offset(headers, address).ok_or(ProbeRefusal::OutsideCode)?;
            points.push(ProbePoint { offset, semaphore: None, kind });
        }
    }
    Ok(points)
}

/// A symbol, if it is a function of this file.
fn read_function(symbol: &[u8]) -> Option<Function> {
    let name = u32::from_le_bytes(symbol.get(..4)?.try_into().ok()?) as usize;
    let kind = symbol.get(4)? & 0xf;
    let section = u16::from_le_bytes(symbol.get(6..8)?.try_into().ok()?);
    let address = u64::from_le_bytes(symbol.get(8..16)?.try_into().ok()?);
    let size = u64::from_le_bytes(symbol.get(16..24)?.try_into().ok()?);
    (kind == STT_FUNC && section != SHN_UNDEF && address != 0).then_some(Function {
        name,
        address,
        size,
    })
}

/// A probe's name, its address, and that of its counter.
struct Note {
    name: String,
    address: u64,
    semaphore: u64,
}

/// The probes of a provider.
fn read_notes<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
    provider: &str,
) -> Result<Vec<Note>, ProbeRefusal> {
    let base = find_section(headers, data, b".stapsdt.base").map(|section| section.address);
    let notes = headers.sections.iter().filter(|section| section.kind == SHT_NOTE);
    let mut has_any = false;
    let mut found = Vec::new();
    for section in notes {
        let Some(mut rest) = read_section(data, section) else { continue };
        while let Some((ElfNote { kind, owner, content }, behind)) = split_note(rest) {
            rest = behind;
            if kind != NT_STAPSDT || owner != OWNER {
                continue;
            }
            has_any = true;
            let Some((note, of)) = read_note(content, base) else { continue };
            if of == provider.as_bytes() {
                found.push(note);
            }
        }
    }
    match (found.is_empty(), has_any) {
        (false, _) => Ok(found),
        (true, true) => Err(ProbeRefusal::NotFound),
        (true, false) => Err(ProbeRefusal::NoProbes),
    }
}

/// A note of an ELF file, of whatever kind.
struct ElfNote<'a> {
    kind: u32,
    owner: &'a [u8],
    content: &'a [u8],
}

/// The first note, and what is behind it.
fn split_note(bytes: &[u8]) -> Option<(ElfNote<'_>, &[u8])> {
    let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (owner_len, len, kind) = (half(0)? as usize, half(4)? as usize, half(8)?);
    let rest = bytes.get(12..)?;
    let (owner, rest) =
        (rest.get(..owner_len)?, rest.get(owner_len.checked_next_multiple_of(4)?..)?);
    // The last one may lack what aligns it.
    let behind = rest.get(len.checked_next_multiple_of(4)?..).unwrap_or_default();
    Some((ElfNote { kind, owner, content: rest.get(..len)? }, behind))
}

/// What a note says, and whose the probe is.
fn read_note(content: &[u8], base: Option<u64>) -> Option<(Note, &[u8])> {
    let word = |at: usize| Some(u64::from_le_bytes(content.get(at..at + 8)?.try_into().ok()?));
    let (address, was_base, semaphore) = (word(0)?, word(8)?, word(16)?);
    let mut texts = content.get(24..)?.split(|byte| *byte == 0);
    let (provider, name) = (texts.next()?, texts.next()?);
    let moved = base.filter(|_| was_base != 0).map_or(0, |base| base.wrapping_sub(was_base));
    let note = Note {
        name: String::from_utf8_lossy(name).into_owned(),
        address: address.wrapping_add(moved),
        semaphore: if semaphore == 0 { 0 } else { semaphore.wrapping_add(moved) },
    };
    Some((note, provider))
}

/// The places of the probe of a name; else of two that are a range of that name.
fn choose(headers: &Headers, notes: &[Note], name: &str) -> Result<Vec<ProbePoint>, ProbeRefusal> {
    // DTrace writes `query-start` of what the compiler writes as `query__start`.
    let name = name.replace('-', "__");
    let has = |wanted: &str| notes.iter().any(|note| note.name == wanted);
    let all = |wanted: &str, kind| {
        let of_name = notes.iter().filter(move |note| note.name == wanted);
        of_name.map(|note| to_point(headers, note, kind)).collect::<Result<Vec<_>, _>>()
    };
    if has(&name) {
        return all(&name, PointKind::Instant);
    }
    for separator in SEPARATORS {
        for (begin, end) in PAIRS {
            let begin = format!("{name}{separator}{begin}");
            let end = format!("{name}{separator}{end}");
            if has(&begin) && has(&end) {
                let mut points = all(&begin, PointKind::Begin)?;
                points.extend(all(&end, PointKind::End)?);
                return Ok(points);
            }
        }
    }
    let mut others: Vec<String> = notes.iter().map(|note| note.name.clone()).collect();
    others.sort_unstable();
    others.dedup();
    others.truncate(MAX_PLACES);
    Err(ProbeRefusal::OtherProbes(others))
}

fn to_point(headers: &Headers, note: &Note, kind: PointKind) -> Result<ProbePoint, ProbeRefusal> {
    let offset = code_offset(headers, note.address).ok_or(ProbeRefusal::OutsideCode)?;
    let semaphore = match note.semaphore {
        0 => None,
        address => Some(data_offset(headers, address).ok_or(ProbeRefusal::OutsideCode)?),
    };
    Ok(ProbePoint { offset, semaphore, kind })
}

/// Where in the file the code of this address is.
fn code_offset(headers: &Headers, address: u64) -> Option<u64> {
    code_segments(headers).find_map(|code| {
        let within = address.checked_sub(code.address).filter(|within| *within < code.size)?;
        code.offset.checked_add(within)
    })
}

/// Where in the file the data of this address is, as the kernel counts: also behind the end of what
/// a segment has in the file.
fn data_offset(headers: &Headers, address: u64) -> Option<u64> {
    let loaded = headers.segments.iter().filter(|segment| segment.kind == PT_LOAD);
    loaded.into_iter().find_map(|segment| {
        let within = address.checked_sub(segment.address)?;
        (within < segment.memory_size).then(|| segment.offset.checked_add(within))?
    })
}

/// Whether the program, or a part of it, is written in Go.
fn is_go<'data, R: ReadRef<'data>>(headers: &Headers, data: LimitedFile<'_, R>) -> bool {
    [".gopclntab", ".go.buildinfo", ".note.go.buildid", ".data.rel.ro.gopclntab"]
        .iter()
        .any(|name| find_section(headers, data, name.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, words: [u64; 3], texts: &[u8]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        let content: Vec<u8> = words.chain(texts.iter().copied()).collect();
        let mut bytes = Vec::new();
        bytes.extend((owner.len() as u32).to_le_bytes());
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(owner);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn named(name: &str) -> Note {
        Note { name: name.to_owned(), address: 0x40, semaphore: 0 }
    }

    /// The headers of a file whose code is at these addresses, further on than in the file.
    fn headers() -> Headers {
        let segment = headers::ProgramHeader {
            kind: PT_LOAD,
            flags: object::elf::PF_X,
            offset: 0x1000,
            address: 0,
            file_size: 0x100,
            memory_size: 0x100,
            alignment: 0,
        };
        Headers {
            endian: Endianness::Little,
            machine: MACHINE,
            sections: Vec::new(),
            section_names: None,
            segments: vec![segment],
        }
    }

    fn kinds(notes: &[&str], name: &str) -> Result<Vec<PointKind>, ProbeRefusal> {
        let notes: Vec<Note> = notes.iter().map(|name| named(name)).collect();
        let points = choose(&headers(), &notes, name)?;
        assert!(points.iter().all(|point| point.offset == 0x1040));
        Ok(points.into_iter().map(|point| point.kind).collect())
    }

    #[test]
    fn a_note_has_addresses_and_names_and_a_file_may_have_been_moved() {
        let bytes = note(OWNER, NT_STAPSDT, [0x40, 0x90, 0x60], b"shop\0pay__start\0-4@%eax\0");
        let (ElfNote { kind, owner, content }, behind) = split_note(&bytes).unwrap();
        assert_eq!((kind, owner, behind), (NT_STAPSDT, OWNER, &[][..]));
        let (read, provider) = read_note(content, None).unwrap();
        assert_eq!((provider, read.name.as_str()), (&b"shop"[..], "pay__start"));
        assert_eq!((read.address, read.semaphore), (0x40, 0x60));
        let (read, _) = read_note(content, Some(0x1090)).unwrap();
        assert_eq!((read.address, read.semaphore), (0x1040, 0x1060));
        for length in 0..bytes.len() {
            if let Some((note, _)) = split_note(&bytes[..length]) {
                let _any = read_note(note.content, Some(0));
            }
        }
        assert!(split_note(&[0xff; 64]).is_none());
    }

    #[test]
    fn a_probe_of_the_very_name_comes_before_a_pair() {
        use PointKind::{Begin, End, Instant};
        let pair = ["gc__start", "gc__done"];
        assert_eq!(kinds(&pair, "gc"), Ok(vec![Begin, End]));
        assert_eq!(kinds(&pair, "gc-start"), Ok(vec![Instant]));
        assert_eq!(kinds(&["gc", "gc__start", "gc__done"], "gc"), Ok(vec![Instant]));
        assert_eq!(kinds(&["a_enter", "a_exit", "a_exit"], "a"), Ok(vec![Begin, End, End]));
        // One half alone is no range, and neither are two that were not made for each other.
        let others = |names: &[&str]| {
            Err(ProbeRefusal::OtherProbes(names.iter().map(|&name| name.to_owned()).collect()))
        };
        assert_eq!(kinds(&["gc__start"], "gc"), others(&["gc__start"]));
        assert_eq!(kinds(&["gc__start", "gc_done"], "gc"), others(&["gc__start", "gc_done"]));
    }

    #[test]
    fn a_place_outside_of_the_code_is_refused() {
        let note = Note { address: 0x100, ..named("gc") };
        assert_eq!(choose(&headers(), &[note], "gc"), Err(ProbeRefusal::OutsideCode));
        let counter = Note { semaphore: 0x100, ..named("gc") };
        assert_eq!(choose(&headers(), &[counter], "gc"), Err(ProbeRefusal::OutsideCode));
    }
}
