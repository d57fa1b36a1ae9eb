//! Where a Go program keeps the labels of its goroutines (`runtime/pprof`), as far as its file
//! tells.
//!
//! ```text
//!  .go.buildinfo   which version of Go compiled it: where in the runtime's structures what is
//!  .gopclntab      whether it has the function that sets labels: most programs do not
//!  PT_TLS, symbol  where each thread has the pointer to what it runs (`g`)
//! ```
//!
//! <https://github.com/golang/go/blob/go1.22.0/src/debug/buildinfo/buildinfo.go>,
//! <https://github.com/golang/go/blob/go1.22.0/src/runtime/proflabel.go>

use object::{
    Endianness, ReadRef,
    elf::{EM_X86_64, PT_DYNAMIC, PT_INTERP, PT_TLS, SHT_SYMTAB, STT_TLS},
};
use serde::{Deserialize, Serialize};

use super::{
    headers::{self, Headers, LimitedFile, find_section},
    tls_symbol::TlsSymbol,
};
use crate::{
    go::table::SECTION_NAMES,
    little_endian::{u32_at, u64_at},
};

/// Bytes that are read of one file: the names of all functions of a large program are some 10 MiB.
const MAX_READ: u64 = 64 << 20;
/// What sets the labels of a goroutine. The linker leaves it out where nothing calls it.
const SETTER: &[u8] = b"runtime/pprof.runtime_setProfLabel";
/// The variable of each thread that points to what it runs.
const CURRENT: &[u8] = b"runtime.tlsg\0";
/// Bytes of a pointer.
const POINTER: u64 = 8;

/// Bytes of an entry of a 64-bit symbol table.
const SYMBOL: usize = 24;

/// `.go.buildinfo`: what it begins with, where its flags are, and where the version is.
const MAGIC: &[u8] = b"\xff Go buildinf:";
const FLAGS_AT: usize = 15;
const VERSION_AT: usize = 32;
/// The version is here, and not a pointer to it: since Go 1.18.
const IS_INLINE: u8 = 2;
/// Bytes of a version that are looked at.
const MAX_VERSION: usize = 64;

/// A Go program that can label its goroutines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoroutineLabels {
    /// The Go that compiled it, as `1.24` is (1, 24). None if that is not a release.
    pub version: Option<(u8, u8)>,
    /// The variable of each thread that points to what it runs. None if nothing tells where it is.
    pub current: Option<TlsSymbol>,
}

impl GoroutineLabels {
    /// What a file for x86_64 says. None if it is none, or labels nothing.
    pub fn find<'data, R: ReadRef<'data>>(data: R) -> Option<Self> {
        headers::read_within(data, MAX_READ, |headers, data| Self::read(&headers, data))
    }

    fn read<'data, R: ReadRef<'data>>(headers: &Headers, data: LimitedFile<'_, R>) -> Option<Self> {
        if headers.machine != EM_X86_64 || headers.endian != Endianness::Little {
            return None;
        }
        let info = find_section(headers, data, b".go.buildinfo")?;
        if !has_setter(headers, data)? {
            return None;
        }
        let length = info.size.min((VERSION_AT + 1 + MAX_VERSION) as u64);
        let info = data.read_bytes_at(info.offset, length).ok()?;
        Some(Self { version: parse_build_info(info), current: find_current(headers, data) })
    }
}

/// Whether the program has the function that sets labels, by the names of its functions.
fn has_setter<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
) -> Option<bool> {
    /// As far as the header says where the names are.
    const HEADER: u64 = 48;
    let sections = SECTION_NAMES.iter();
    let table = sections.into_iter().find_map(|name| find_section(headers, data, name))?;
    let header = data.read_bytes_at(table.offset, HEADER.min(table.size)).ok()?;
    // Go 1.18 and later: the magic, six numbers, of which the fourth and fifth are where names
    // begin and end.
    if !matches!(u32_at(header, 0)?, 0xffff_fff0 | 0xffff_fff1) {
        return None;
    }
    let (from, to) = (u64_at(header, 32)?, u64_at(header, 40)?);
    let length = to.checked_sub(from).filter(|_| to <= table.size)?;
    let names = data.read_bytes_at(table.offset.checked_add(from)?, length).ok()?;
    Some(names.split(|byte| *byte == 0).any(|name| name == SETTER))
}

/// The version in a `.go.buildinfo`.
fn parse_build_info(info: &[u8]) -> Option<(u8, u8)> {
    if !info.starts_with(MAGIC) || info.get(FLAGS_AT)? & IS_INLINE == 0 {
        return None;
    }
    let (&length, text) = info.get(VERSION_AT..)?.split_first()?;
    parse_version(text.get(..usize::from(length).min(MAX_VERSION))?)
}

/// `go1.24.3` is (1, 24), whatever its distributor says behind that. What is not released yet is
/// none: `go1.24rc1`, `devel go1.25-…`.
fn parse_version(text: &[u8]) -> Option<(u8, u8)> {
    let text = std::str::from_utf8(text).ok()?.strip_prefix("go")?;
    let (major, rest) = text.split_once('.')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (minor, behind) = rest.split_at_checked(digits)?;
    let is_release = behind.chars().next().is_none_or(|next| ['.', ' ', '-', '+'].contains(&next));
    is_release.then_some((major.parse().ok()?, minor.parse().ok()?))
}

/// Where threads have the pointer to what they run.
///
/// A program without C has nothing else there, and need not even say that it has this: the runtime
/// puts it right below the thread pointer. With C, the symbol tells.
fn find_current<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
) -> Option<TlsSymbol> {
    let storage = headers.segments.iter().find(|segment| segment.kind == PT_TLS);
    let Some(storage) = storage else {
        // A library would have a place for it.
        return Some(TlsSymbol::of_program(headers, 0, POINTER, POINTER));
    };
    // A library's part is elsewhere in each process.
    let has = |kind| headers.segments.iter().any(|segment| segment.kind == kind);
    let is_program = has(PT_INTERP) || !has(PT_DYNAMIC);
    if !is_program || storage.address.checked_rem(storage.alignment.max(1)) != Some(0) {
        return None;
    }
    let value = match storage.memory_size {
        POINTER => 0,
        _ => find_symbol(headers, data)?,
    };
    let alignment = storage.alignment.max(1);
    Some(TlsSymbol::of_program(headers, value, storage.memory_size, alignment))
}

/// The value of the variable by the symbols that a program has for debuggers.
fn find_symbol<'data, R: ReadRef<'data>>(
    headers: &Headers,
    data: LimitedFile<'_, R>,
) -> Option<u64> {
    let table = headers.sections.iter().find(|section| section.kind == SHT_SYMTAB)?;
    let names = headers.sections.get(table.link as usize)?;
    let symbols = data.read_bytes_at(table.offset, table.size).ok()?;
    symbols
        .chunks_exact(SYMBOL)
        .filter(|entry| entry.get(4).is_some_and(|it| it & 0xf == STT_TLS))
        .find_map(|entry| {
            let at = names.offset.checked_add(u32_at(entry, 0)?.into())?;
            let name = data.read_bytes_at(at, CURRENT.len() as u64).ok()?;
            (name == CURRENT).then(|| u64_at(entry, 8))?
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_a_version_whoever_distributes_them() {
        for (text, version) in [
            ("go1.19.8", Some((1, 19))),
            ("go1.24", Some((1, 24))),
            ("go1.22.2 X:boringcrypto", Some((1, 22))),
            ("go1.25.1-vendor", Some((1, 25))),
            ("go1.24rc1", None),
            ("devel go1.25-abcdef", None),
            ("go1.", None),
            ("go1.999", None),
            ("", None),
        ] {
            assert_eq!(parse_version(text.as_bytes()), version, "{text}");
        }
    }

    #[test]
    fn a_version_that_is_elsewhere_or_cut_off_is_none() {
        let mut info = MAGIC.to_vec();
        info.resize(VERSION_AT, 0);
        info[FLAGS_AT] = IS_INLINE;
        info.push(8);
        info.extend(b"go1.19.8");
        assert_eq!(parse_build_info(&info), Some((1, 19)));
        for length in 0..info.len() {
            assert_eq!(parse_build_info(&info[..length]), None);
        }
        info[FLAGS_AT] = 0;
        assert_eq!(parse_build_info(&info), None);
    }
}
