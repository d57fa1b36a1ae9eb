//! What the file of a module says of the CPython in it.

use std::ops::Range;

use object::{
    ReadRef,
    elf::{SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB},
};

use offwake_recording::Segment;
use offwake_unwind::elf::{
    function_parts::split_off_parts,
    headers::{self, Headers, LimitedFile},
    layout,
};

use super::version::Version;

/// Bytes of an entry of a 64-bit symbol table.
const SYMBOL: usize = 24;
/// Parts that compilers split the evaluating function into, at most.
const MAX_PARTS: usize = 64;

const RUNTIME: &[u8] = b"_PyRuntime";
const VERSION: &[u8] = b"Py_Version";
const CODE_TYPE: &[u8] = b"PyCode_Type";
const EVALUATE: &[u8] = b"_PyEval_EvalFrameDefault";

/// Why the Python frames of a process can't be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotFound {
    /// Nothing says that there is one.
    #[error("no CPython")]
    NoPython,
    /// By its name it is one, but it does not say where it keeps its state. An executable whose
    /// CPython is in a library of its own is one of these.
    #[error("a CPython without symbols")]
    NoSymbols,
    /// Neither it nor its name says which version it is.
    #[error("a CPython of unknown version")]
    NoVersion,
    /// A version that we do not know.
    #[error("CPython {0}, whose frames are not known here")]
    UnknownVersion(Version),
    /// Built without the global lock: its frames are laid out in another way.
    #[error("CPython {0} without its global lock, whose frames are not known here")]
    FreeThreaded(Version),
    /// What it says of its own layout can't be.
    #[error("CPython {0} with a layout that can't be")]
    BadLayout(Version),
    /// The memory of the process can't be read.
    #[error("a CPython whose memory can't be read")]
    Unreadable,
}

/// A CPython in a file. Addresses are those of the file's own headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// `_PyRuntime`
    pub(super) runtime: u64,
    /// `Py_Version`, from 3.11 on.
    pub(super) version: Option<u64>,
    /// What its name says.
    pub(super) named: Option<Version>,
    /// `PyCode_Type`
    pub(super) code_type: Option<u64>,
    /// `_PyEval_EvalFrameDefault`, in as many parts as it is in.
    pub(super) evaluate: Vec<Range<u64>>,
    code: Vec<Segment>,
}

impl Image {
    /// The CPython in a file, which `path` is the name of.
    ///
    /// # Errors
    ///
    /// When there is none, or its symbols are gone.
    pub(crate) fn read<'data, R: ReadRef<'data>>(data: R, path: &str) -> Result<Self, NotFound> {
        let named = Version::from_path(path);
        let nothing = if named.is_some() { NotFound::NoSymbols } else { NotFound::NoPython };
        let symbols = headers::read(data, |headers, data| {
            let symbols = Symbols::read(&headers, data);
            let split_off = match (symbols.runtime, symbols.evaluate.first()) {
                (Some(_), Some(whole)) => split_off_parts(&headers, data, whole.start),
                _ => Vec::new(),
            };
            Some((symbols, split_off, layout::code_segments(&headers).collect()))
        });
        let (symbols, split_off, code) = symbols.ok_or(nothing)?;
        let Symbols { runtime: Some(runtime), version, code_type, mut evaluate } = symbols else {
            return Err(nothing);
        };
        evaluate.extend(split_off);
        Ok(Self { runtime, version, named, code_type, evaluate, code })
    }

    /// What is to be added to the addresses here for those of a process that has the code mapped
    /// at `start`, from `offset` in the file on.
    pub(super) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        layout::find_bias(self.code.iter().copied(), start, offset)
    }
}

#[derive(Default)]
struct Symbols {
    runtime: Option<u64>,
    version: Option<u64>,
    code_type: Option<u64>,
    evaluate: Vec<Range<u64>>,
}

impl Symbols {
    fn read<'data, R: ReadRef<'data>>(headers: &Headers, data: LimitedFile<'_, R>) -> Self {
        let mut symbols = Self::default();
        // What other modules use is in the smaller table, and is enough; the larger one may be over
        // the limit of what is read of a file, or gone.
        for kind in [SHT_DYNSYM, SHT_SYMTAB] {
            for table in headers.sections.iter().filter(|section| section.kind == kind) {
                let names = headers.sections.get(table.link as usize);
                let Some(names) = names else { continue };
                let Ok(names) = data.read_bytes_at(names.offset, names.size) else { continue };
                let Ok(table) = data.read_bytes_at(table.offset, table.size) else { continue };
                symbols.read_table(table, names);
            }
        }
        symbols
    }

    fn read_table(&mut self, table: &[u8], names: &[u8]) {
        for entry in table.chunks_exact(SYMBOL) {
            let Some(symbol) = Symbol::parse(entry) else { continue };
            let Some(name) = symbol.name(names) else { continue };
            match name {
                RUNTIME => self.runtime = Some(symbol.address),
                VERSION => self.version = Some(symbol.address),
                CODE_TYPE => self.code_type = Some(symbol.address),
                _ if is_part(name) => self.add_part(&symbol),
                _ => {}
            }
        }
    }

    fn add_part(&mut self, symbol: &Symbol) {
        let range = symbol.address..symbol.address.saturating_add(symbol.size);
        if self.evaluate.len() < MAX_PARTS && !self.evaluate.contains(&range) {
            self.evaluate.push(range);
        }
    }
}

/// Whether it is the evaluating function or what a compiler split off: `….cold`, `….lto_priv.0`.
fn is_part(name: &[u8]) -> bool {
    name.strip_prefix(EVALUATE).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// An entry of a symbol table that is defined in this file.
struct Symbol {
    name: u32,
    address: u64,
    size: u64,
}

impl Symbol {
    /// `Elf64_Sym`
    fn parse(entry: &[u8]) -> Option<Self> {
        let (name, rest) = entry.split_first_chunk()?;
        let (section, rest) = rest.get(2..)?.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (size, _) = rest.split_first_chunk()?;
        (u16::from_le_bytes(*section) != SHN_UNDEF).then_some(Self {
            name: u32::from_le_bytes(*name),
            address: u64::from_le_bytes(*address),
            size: u64::from_le_bytes(*size),
        })
    }

    /// The name of the symbol, if it can be one that is searched for.
    fn name<'names>(&self, names: &'names [u8]) -> Option<&'names [u8]> {
        let name = names.get(self.name as usize..)?;
        // The longest of them, with what compilers put behind it.
        let name = name.get(..64).unwrap_or(name);
        if !name.starts_with(b"_Py") && !name.starts_with(b"Py") {
            return None;
        }
        name.get(..name.iter().position(|&byte| byte == 0)?)
    }
}
