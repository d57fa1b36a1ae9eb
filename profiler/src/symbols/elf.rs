//! Names of addresses in mapped files.
//!
//! The files are whatever somebody mapped, and blazesym believes them and maps them itself:
//!
//! - a file that is cut short while it is mapped kills the reader (SIGBUS), so a file that others
//!   than root can write to is copied first;
//! - a debug link is any path, a FIFO's too, and opening one of those waits for ever, so links are
//!   followed from the system's own files alone;
//! - a compressed section claims whatever size it likes, which is allocated, so the sum is limited.

use std::{
    fs::File,
    io::Read,
    os::fd::AsRawFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

use blazesym::symbolize::{
    Input, Symbolized, Symbolizer,
    source::{Elf, Source},
};
use object::{Object, ObjectSection, ReadCache};
use rustix::fs::MemfdFlags;

use super::{
    Shortfalls, count, cut,
    frames::Wanted,
    identify::open,
    modules::{Content, Module, Trust, is_unchanged},
    names::Names,
};

/// A stranger's file is copied into memory up to this size; a larger one is not named.
const MAX_COPY: u64 = 1 << 30;
/// Bytes that the sections of a file may have, decompressed, for its DWARF to be read. blazesym
/// needed 464 MiB for 2,000 addresses in 839 MiB of it.
const MAX_DWARF: u64 = 1 << 30;
/// Addresses that are looked up at a time: what is found of them takes some 300 bytes each.
const AT_ONCE: usize = 10_000;
/// Inlined functions at one address.
const MAX_INLINED: usize = 128;

/// Whether DWARF is read, or the symbol table alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Dwarf,
    SymbolTable,
}

/// Names the frames `wanted` of one module, by file offset.
pub(super) fn name(
    module: &Module,
    wanted: &[Wanted],
    shortfalls: &mut Shortfalls,
    names: &mut Names,
) {
    let (file, trust) = match &module.content {
        Content::Missing => return,
        Content::Image(image) => (copy(&mut image.as_slice()), Trust::Stranger),
        Content::Held { file, identity, trust } => {
            // What is in it now is not what ran.
            if !is_unchanged(file, *identity) {
                return count(shortfalls, "symbols_files_changed");
            }
            let Some(opened) = open(file) else {
                return count(shortfalls, "symbols_files_unopened");
            };
            match trust {
                Trust::System => (Some(opened), *trust),
                Trust::Stranger => (copy(&mut opened.take(MAX_COPY + 1)), *trust),
            }
        }
    };
    let Some(file) = file else { return count(shortfalls, "symbols_files_too_large") };
    let Some(depth) = depth(&file, trust) else {
        return count(shortfalls, "symbols_files_not_elf");
    };
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if depth == Depth::Dwarf {
        look_up(&path, Depth::Dwarf, wanted, shortfalls, names);
    }
    // DWARF that can't be read must not cost the names that the symbol table has.
    look_up(&path, Depth::SymbolTable, wanted, shortfalls, names);
}

/// Names those that have no name yet.
fn look_up(
    path: &PathBuf,
    depth: Depth,
    wanted: &[Wanted],
    shortfalls: &mut Shortfalls,
    names: &mut Names,
) {
    let nameless: Vec<_> = wanted.iter().filter(|wanted| !names.has(wanted.frame)).collect();
    let mut source = Elf::new(path);
    source.debug_syms = depth == Depth::Dwarf;
    let source = Source::Elf(source);
    // One for each file, so that the memory that a file took is free before the next one.
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(depth == Depth::Dwarf)
            .enable_inlined_fns(depth == Depth::Dwarf)
            .enable_demangling(true)
            .build();
        for some in nameless.chunks(AT_ONCE) {
            let offsets: Vec<_> = some.iter().map(|wanted| wanted.at).collect();
            let input = Input::FileOffset(offsets.as_slice());
            let Ok(symbols) = symbolizer.symbolize(&source, input) else { return };
            for (wanted, symbol) in some.iter().zip(&symbols) {
                if let Symbolized::Sym(symbol) = symbol {
                    // blazesym has the outermost inlined function first.
                    let inlined = symbol.inlined.iter().rev().take(MAX_INLINED);
                    let mut functions: Vec<_> = inlined.map(|inlined| cut(&inlined.name)).collect();
                    functions.push(cut(&symbol.name));
                    names.set(wanted.frame, functions);
                }
            }
        }
    }));
    // The last resort: no ELF file that we know of gets here.
    if attempt.is_err() {
        count(shortfalls, "symbols_symbolizer_panics");
    }
}

/// A copy that nobody else can reach; none if it is larger than [`MAX_COPY`].
fn copy(from: &mut dyn Read) -> Option<File> {
    let mut file = File::from(rustix::fs::memfd_create("module", MemfdFlags::CLOEXEC).ok()?);
    (std::io::copy(from, &mut file).ok()? <= MAX_COPY).then_some(file)
}

/// How much of a file is safe to read; none if it is no ELF file or makes absurd claims.
fn depth(file: &File, trust: Trust) -> Option<Depth> {
    let cache = ReadCache::new(file);
    let elf = object::File::parse(&cache).ok()?;
    if elf.format() != object::BinaryFormat::Elf {
        return None;
    }
    let mut compressed = 0u64;
    let mut dwarf = 0u64;
    let mut links = false;
    for section in elf.sections() {
        let name = section.name_bytes().unwrap_or_default();
        links |= [&b".gnu_debuglink"[..], b".gnu_debugaltlink", b".debug_sup"].contains(&name);
        let range = section.compressed_file_range().ok()?;
        if range.format != object::CompressionFormat::None {
            compressed = compressed.saturating_add(range.uncompressed_size);
        }
        if name.starts_with(b".debug_") || name.starts_with(b".zdebug_") {
            dwarf = dwarf.saturating_add(range.uncompressed_size);
        }
    }
    if compressed > MAX_DWARF {
        return None;
    }
    if dwarf > MAX_DWARF || links && trust == Trust::Stranger {
        return Some(Depth::SymbolTable);
    }
    Some(Depth::Dwarf)
}
