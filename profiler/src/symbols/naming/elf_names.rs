//! Names of addresses in mapped files.
//!
//! The files are whatever somebody mapped, and blazesym trusts them and maps them itself:
//!
//! - a file that is cut short while it is mapped kills the reader (SIGBUS), so a file that others
//!   than root can write to is [copied](super::open_file) first;
//! - a debug link is any path, a FIFO's too, and opening one of those waits for ever, so links are
//!   followed from the system's own files alone;
//! - a compressed section claims whatever size it likes, which is allocated, so the sum is limited.

use std::{
    collections::HashSet,
    fs::File,
    os::fd::AsRawFd,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use blazesym::symbolize::{
    CodeInfo, Input, Sym, Symbolized, Symbolizer,
    source::{Elf, Source},
};
use object::{Object, ObjectSection, ReadCache};
use offwake_recording::{
    BuildId, FrameId, Function,
    loss::{Diagnostics, count},
};
use offwake_unwind::{
    elf::{build_id, layout::CodeLayout},
    go::table::SECTION_NAMES,
};

use super::{
    demangle::demangle,
    detail::{AddressForm, Detail, Knowledge},
    go,
    mapping_symbols::{Found, FunctionSymbols, Marks},
    names::NameTable,
    open_file::OpenFile,
    rust_paths,
};
use crate::symbols::{
    address_spaces::held_file::Trust, frame_table::UnnamedFrame, name_limit::cut_name,
};

/// Bytes that the sections of a file may have, decompressed, for its DWARF to be read. blazesym
/// needed 464 MiB for 2,000 addresses in 839 MiB of it.
const MAX_DWARF: u64 = 1 << 30;
/// Addresses for which one symbolizer lives, neighbours in the file: it keeps all that it has read
/// of the DWARF. 20,000 addresses in 260 MiB of DWARF took 417 MiB with one for all of them, 140
/// MiB with ten, and the same second.
const AT_ONCE: usize = 2_000;
/// Symbolizers for one file: each begins with a look over all of it.
const MAX_SYMBOLIZERS: usize = 64;
/// Inlined functions at one address.
pub(crate) const MAX_INLINED: usize = 128;

/// Whether DWARF is read, or the symbol table alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Dwarf,
    SymbolTable,
}

/// Which compiler made a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Toolchain {
    /// Go's: it has a table of functions besides the others, and names of its own kind.
    Go,
    Other,
}

/// What was seen of a file before it is read in earnest.
struct Overview {
    depth: Depth,
    knowledge: Knowledge,
    toolchain: Toolchain,
    marks: Option<Marks>,
}

/// A file that is safe to look up names in.
pub(crate) struct NameFile {
    file: File,
    overview: Overview,
}

/// Where files are that know more of a build than the file that was mapped.
pub(crate) trait DebugFiles {
    /// The files that are stored under a build id. They may be of another build.
    fn stored(&mut self, build_id: &BuildId) -> Vec<OpenFile>;
    /// The file that a server has of a build, if one may be asked.
    fn fetch(&mut self, build_id: &BuildId) -> Option<OpenFile>;
}

/// Names the frames `wanted` of a file that was mapped, by file offset.
pub(crate) fn name_frames(
    mapped: OpenFile,
    others: &mut impl DebugFiles,
    detail: Detail,
    wanted: &[UnnamedFrame],
    diagnostics: &mut Diagnostics,
    names: &mut NameTable,
) {
    match NameFile::new(mapped) {
        Ok(readable) => {
            if readable.knowledge() > detail.required_knowledge() {
                name_by_others(&readable, others, detail, wanted, diagnostics, names);
            }
            readable.name(detail, AddressForm::FileOffset, wanted, diagnostics, names);
        }
        Err(diagnostic) => count(diagnostics, diagnostic),
    }
}

/// Names frames by files of the same build that know more, which distributions package separately.
fn name_by_others(
    mapped: &NameFile,
    others: &mut impl DebugFiles,
    detail: Detail,
    wanted: &[UnnamedFrame],
    diagnostics: &mut Diagnostics,
    names: &mut NameTable,
) {
    let Some(build_id) = build_id::from_file(&ReadCache::new(&mapped.file)) else { return };
    let mut better = Vec::new();
    for stored in others.stored(&build_id) {
        match NameFile::new(stored) {
            Ok(other) if other.has_build_id(&build_id) => better.push(other),
            Ok(_) => {}
            Err(diagnostic) => count(diagnostics, diagnostic),
        }
    }
    better.retain(|other| other.knowledge() < mapped.knowledge());
    better.sort_by_key(NameFile::knowledge);
    if better.is_empty() {
        let fetched = others.fetch(&build_id).map(NameFile::new);
        better.extend(
            fetched.and_then(|fetched| {
                fetched.map_err(|diagnostic| count(diagnostics, diagnostic)).ok()
            }),
        );
    }
    if better.is_empty() {
        return;
    }
    let Some(layout) = CodeLayout::from_file(&ReadCache::new(&mapped.file)) else { return };
    // In one segment the addresses are in the order of the offsets, and segments are neighbours.
    let address =
        |wanted: &UnnamedFrame| Some(UnnamedFrame { at: layout.address(wanted.at)?, ..*wanted });
    let wanted: Vec<_> = wanted.iter().filter_map(address).collect();
    for other in better {
        other.name(detail, AddressForm::Address, &wanted, diagnostics, names);
    }
}

impl NameFile {
    /// # Errors
    ///
    /// The name of the diagnostic.
    pub(crate) fn new(OpenFile { file, trust }: OpenFile) -> Result<Self, &'static str> {
        let overview = overview(&file, trust).ok_or("symbols_files_not_elf")?;
        Ok(Self { file, overview })
    }

    /// Whether the file is of this build.
    pub(crate) fn has_build_id(&self, build_id: &BuildId) -> bool {
        build_id::from_file(&ReadCache::new(&self.file)).as_ref() == Some(build_id)
    }

    /// The file itself, or the copy.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn knowledge(&self) -> Knowledge {
        self.overview.knowledge
    }

    /// Names the frames `wanted` that have no name yet.
    pub(crate) fn name(
        &self,
        detail: Detail,
        form: AddressForm,
        wanted: &[UnnamedFrame],
        diagnostics: &mut Diagnostics,
        names: &mut NameTable,
    ) {
        let Overview { depth, knowledge, toolchain, marks } = self.overview;
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let mut run_lookup = |depth, form, wanted: &[UnnamedFrame], names: &mut NameTable| {
            let lookup = Lookup { path: &path, form, depth, detail, toolchain, marks };
            lookup.run(wanted, diagnostics, names)
        };
        if depth == Depth::Dwarf && detail > Detail::SymbolTable {
            // Whoever is at a mark is so in the symbol table, too, which is read below.
            run_lookup(Depth::Dwarf, form, wanted, names);
        }
        // It has more names than a file that was stripped, and lines besides.
        if toolchain == Toolchain::Go && knowledge > detail.required_knowledge() {
            go::name_frames(&self.file, detail, form, wanted, names);
        }
        // DWARF that can't be read must not cost the names that the symbol table has.
        let at_marks = run_lookup(Depth::SymbolTable, form, wanted, names);
        let Some(marks) = marks.filter(|_| !at_marks.is_empty()) else { return };
        let content = ReadCache::new(&self.file);
        let Some(functions) = FunctionSymbols::read(&content, marks) else { return };
        let found = |wanted: &UnnamedFrame| Some((wanted.frame, functions.find(wanted.at)?));
        let found: Vec<_> = at_marks.iter().filter_map(found).collect();
        // Where the functions begin, blazesym finds them, and makes their names readable.
        let begin =
            |(frame, found): &(FrameId, Found<'_>)| UnnamedFrame { frame: *frame, at: found.begin };
        let begins: Vec<_> = found.iter().map(begin).collect();
        let still: HashSet<_> =
            run_lookup(Depth::SymbolTable, AddressForm::Address, &begins, names)
                .iter()
                .map(|wanted| wanted.frame)
                .collect();
        // One that has the name of a mark, or begins at one and is of no known size.
        for (frame, function) in found.iter().filter(|(frame, _)| still.contains(frame)) {
            let name = cut_name(&String::from_utf8_lossy(function.name));
            names.set(*frame, vec![Function::named(name)]);
        }
    }
}

/// What is looked up by blazesym, and how.
struct Lookup<'a> {
    path: &'a Path,
    form: AddressForm,
    depth: Depth,
    detail: Detail,
    toolchain: Toolchain,
    marks: Option<Marks>,
}

impl Lookup<'_> {
    /// Names the frames that have no name yet, in the order of `wanted`, which is that of the file. Returns
    /// those at which there is a mark instead of a function, with their addresses.
    fn run(
        &self,
        wanted: &[UnnamedFrame],
        diagnostics: &mut Diagnostics,
        names: &mut NameTable,
    ) -> Vec<UnnamedFrame> {
        let mut at_marks = Vec::new();
        let nameless: Vec<_> = wanted.iter().filter(|wanted| !names.has(wanted.frame)).collect();
        let share = nameless.len().div_ceil(MAX_SYMBOLIZERS).max(AT_ONCE);
        for some in nameless.chunks(share) {
            // The last resort: no ELF file that we know of makes it panic.
            let symbolize = AssertUnwindSafe(|| self.symbolize(some, names, &mut at_marks));
            if catch_unwind(symbolize).is_err() {
                count(diagnostics, "symbols_symbolizer_panics");
                break;
            }
        }
        at_marks
    }

    fn symbolize(
        &self,
        wanted: &[&UnnamedFrame],
        names: &mut NameTable,
        at_marks: &mut Vec<UnnamedFrame>,
    ) {
        let mut source = Elf::new(self.path);
        source.debug_syms = self.depth == Depth::Dwarf;
        let source = Source::Elf(source);
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(self.depth == Depth::Dwarf)
            .enable_inlined_fns(self.depth == Depth::Dwarf)
            // See `demangle`.
            .enable_demangling(false)
            .build();
        for some in wanted.chunks(AT_ONCE) {
            let addresses: Vec<_> = some.iter().map(|wanted| wanted.at).collect();
            let input = match self.form {
                AddressForm::FileOffset => Input::FileOffset(addresses.as_slice()),
                AddressForm::Address => Input::VirtOffset(addresses.as_slice()),
            };
            let Ok(symbols) = symbolizer.symbolize(&source, input) else { return };
            for (wanted, symbol) in some.iter().zip(&symbols) {
                let Symbolized::Sym(symbol) = symbol else { continue };
                if self.marks.is_some_and(|marks| marks.has_name(symbol.name.as_bytes())) {
                    let at = symbol.addr.saturating_add(symbol.offset as u64);
                    at_marks.push(UnnamedFrame { frame: wanted.frame, at });
                } else {
                    let functions = self.functions(symbol, names);
                    names.set(wanted.frame, functions);
                }
            }
        }
    }

    /// What was found at one address, innermost first.
    fn functions(&self, symbol: &Sym<'_>, names: &mut NameTable) -> Vec<Function> {
        let mut function = |name: &str, place: Option<&CodeInfo<'_>>| {
            let source = || Some(place?.to_path().to_string_lossy().into_owned());
            let name = match self.toolchain {
                Toolchain::Go => cut_name(&go::readable_name(name)),
                Toolchain::Other => cut_name(&rust_paths::qualify(&demangle(name), source)),
            };
            let place = place.filter(|_| self.detail == Detail::Lines);
            Function {
                name,
                file: place
                    .and_then(|place| names.file(&cut_name(&place.to_path().to_string_lossy()))),
                line: place.and_then(|place| place.line).filter(|line| *line > 0),
            }
        };
        // blazesym has the outermost inlined function first.
        let inlined = symbol.inlined.iter().rev().take(MAX_INLINED);
        let mut functions: Vec<_> =
            inlined.map(|inlined| function(&inlined.name, inlined.code_info.as_ref())).collect();
        functions.push(function(&symbol.name, symbol.code_info.as_deref()));
        functions
    }
}

/// How much of a file is safe to read, and how much it knows; none if it is no ELF file or makes
/// absurd claims.
fn overview(file: &File, trust: Trust) -> Option<Overview> {
    let cache = ReadCache::new(file);
    let elf = object::File::parse(&cache).ok()?;
    if elf.format() != object::BinaryFormat::Elf {
        return None;
    }
    let mut compressed = 0u64;
    let mut dwarf = 0u64;
    let mut links = false;
    let mut toolchain = Toolchain::Other;
    let mut knowledge = Knowledge::Exports;
    for section in elf.sections() {
        let name = section.name_bytes().unwrap_or_default();
        links |= [&b".gnu_debuglink"[..], b".gnu_debugaltlink", b".debug_sup"].contains(&name);
        if SECTION_NAMES.contains(&name) {
            toolchain = Toolchain::Go;
        }
        knowledge = match name {
            b".debug_info" | b".zdebug_info" => Knowledge::Dwarf,
            b".symtab" => knowledge.min(Knowledge::Symbols),
            _ => knowledge,
        };
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
    let depth = match dwarf > MAX_DWARF || links && trust != Trust::System {
        true => Depth::SymbolTable,
        false => Depth::Dwarf,
    };
    if depth == Depth::SymbolTable {
        knowledge = knowledge.max(Knowledge::Symbols);
    }
    Some(Overview { depth, knowledge, toolchain, marks: Marks::of_file(&cache) })
}
