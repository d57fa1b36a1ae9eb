//! Mapping symbols: `$x` and `$d` in the symbol tables of arm64's files say that code or data begins there,
//! for disassemblers. They are no functions.
//!
//! blazesym takes them for some. Whatever lies behind one in the middle of a function is named by it, and so
//! is any code for whose address a section without any (`.debug_str`) has one. So whoever is named by a mark
//! is looked up here, where only functions are.

use object::{
    Endianness, FileKind, ReadRef, SectionIndex,
    elf::{
        EM_AARCH64, EM_ARM, EM_RISCV, FileHeader32, FileHeader64, SHF_EXECINSTR, SHT_DYNSYM,
        SHT_SYMTAB, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE,
    },
    read::elf::{FileHeader, SectionHeader as _, SectionTable, Sym as _},
};

/// The marks that the files of a machine have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    /// `$a` and `$t` begin instructions
    /// ([AAELF32](https://github.com/ARM-software/abi-aa/blob/2023Q3/aaelf32/aaelf32.rst#mapping-symbols)).
    Arm,
    /// `$x` begins instructions
    /// ([AAELF64](https://github.com/ARM-software/abi-aa/blob/2023Q3/aaelf64/aaelf64.rst#mapping-symbols)).
    Arm64,
    /// `$x` begins instructions, and `$xrv64gc` those of another set
    /// ([psABI](https://github.com/riscv-non-isa/riscv-elf-psabi-doc/blob/v1.0/riscv-elf.adoc#mapping-symbol)).
    RiscV,
}

impl Marks {
    /// Those of an ELF header's `e_machine`; none if that machine has none.
    fn of_machine(machine: u16) -> Option<Self> {
        match machine {
            EM_ARM => Some(Self::Arm),
            EM_AARCH64 => Some(Self::Arm64),
            EM_RISCV => Some(Self::RiscV),
            _ => None,
        }
    }

    /// Those of a file; none if it is no ELF file, or of a machine that has none.
    pub(super) fn of_file<'data>(data: impl ReadRef<'data>) -> Option<Self> {
        fn machine<'data, Elf: FileHeader<Endian = Endianness>>(
            data: impl ReadRef<'data>,
        ) -> object::Result<u16> {
            let header = Elf::parse(data)?;
            Ok(header.e_machine(header.endian()?))
        }
        let machine = match FileKind::parse(data).ok()? {
            FileKind::Elf32 => machine::<FileHeader32<Endianness>>(data),
            FileKind::Elf64 => machine::<FileHeader64<Endianness>>(data),
            _ => return None,
        };
        Self::of_machine(machine.ok()?)
    }

    /// Those of this machine's kernel.
    pub(super) fn of_own_machine() -> Option<Self> {
        match std::env::consts::ARCH {
            "arm" => Some(Self::Arm),
            "aarch64" => Some(Self::Arm64),
            "riscv32" | "riscv64" => Some(Self::RiscV),
            _ => None,
        }
    }

    /// Whether this is a mark's name, which a function can have too.
    pub(super) fn has_name(self, name: &[u8]) -> bool {
        let Some((&kind, rest)) = name.strip_prefix(b"$").and_then(<[u8]>::split_first) else {
            return false;
        };
        // Anything may follow a dot, which makes names different: `$d.12`.
        let is_short = rest.first().is_none_or(|&first| first == b'.');
        match (self, kind) {
            (_, b'd') => is_short,
            (Self::Arm, b'a' | b't') | (Self::Arm64 | Self::RiscV, b'x') if is_short => true,
            (Self::RiscV, b'x') => rest.starts_with(b"rv"),
            _ => false,
        }
    }
}

/// A symbol of code that is no mark.
struct Symbol {
    begin: u64,
    /// 0 if it is not known.
    size: u64,
    /// Where its name begins, in the table of names.
    name: usize,
}

/// How far functions reach whose size is not known.
#[derive(Clone, Copy)]
enum Sizeless {
    /// To the next symbol.
    ReachesNext,
    /// To nothing but their first byte: the table lacks most functions.
    ReachesNothing,
}

/// The functions of one symbol table.
struct SymbolTable<'data> {
    /// Sorted by begin; of those that begin at one address, the longest first.
    symbols: Vec<Symbol>,
    names: &'data [u8],
    sizeless: Sizeless,
}

impl<'data> SymbolTable<'data> {
    fn read<Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
        data: R,
        sections: &SectionTable<'data, Elf, R>,
        endian: Endianness,
        kind: u32,
        marks: Marks,
    ) -> object::Result<Self> {
        let table = sections.symbols(endian, data, kind)?;
        let names: &[u8] = match table.string_section() {
            SectionIndex(0) => &[],
            index => sections.section(index)?.data(endian, data)?,
        };
        let sizeless = match kind {
            SHT_DYNSYM => Sizeless::ReachesNothing,
            _ => Sizeless::ReachesNext,
        };
        let mut found = Self { symbols: Vec::new(), names, sizeless };
        for (index, symbol) in table.enumerate() {
            // Other sections have addresses of their own, which can be those of code.
            let section = table.symbol_section(endian, symbol, index).ok().flatten();
            let section = section.and_then(|index| sections.section(index).ok());
            let flags: Option<u64> = section.map(|section| section.sh_flags(endian).into());
            if flags.is_none_or(|flags| flags & u64::from(SHF_EXECINSTR) == 0) {
                continue;
            }
            let size: u64 = symbol.st_size(endian).into();
            let Ok(name) = usize::try_from(symbol.st_name(endian)) else { continue };
            let is_function = match symbol.st_type() {
                STT_FUNC | STT_GNU_IFUNC => true,
                // So is a mark.
                STT_NOTYPE => {
                    let is_local = symbol.st_bind() == STB_LOCAL && size == 0;
                    !(is_local && marks.has_name(found.name(name)))
                }
                _ => false,
            };
            if is_function && !found.name(name).is_empty() {
                found.symbols.push(Symbol { begin: symbol.st_value(endian).into(), size, name });
            }
        }
        found.symbols.sort_by_key(|symbol| (symbol.begin, u64::MAX - symbol.size));
        Ok(found)
    }

    fn name(&self, at: usize) -> &'data [u8] {
        let from = self.names.get(at..).unwrap_or_default();
        from.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    fn find(&self, address: u64) -> Option<Found<'data>> {
        let behind = self.symbols.partition_point(|symbol| symbol.begin <= address);
        let last = self.symbols.get(behind.checked_sub(1)?)?;
        let begin = last.begin;
        let first = self.symbols.partition_point(|symbol| symbol.begin < begin);
        // The longest, or else one that may be as long as it likes.
        let longest = self.symbols.get(first).filter(|longest| address - begin < longest.size);
        let symbol = longest.or_else(|| {
            let reaches = match self.sizeless {
                Sizeless::ReachesNext => true,
                Sizeless::ReachesNothing => address == begin,
            };
            (last.size == 0 && reaches).then_some(last)
        })?;
        Some(Found { begin, name: self.name(symbol.name) })
    }
}

/// A function that was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'data> {
    /// The address at which it begins.
    pub begin: u64,
    /// Its name in the symbol table.
    pub name: &'data [u8],
}

/// The functions of a file, without marks.
pub(super) struct FunctionSymbols<'data>([SymbolTable<'data>; 2]);

impl<'data> FunctionSymbols<'data> {
    /// Reads the symbol tables of a file. None if it is no ELF file.
    pub(super) fn read<R: ReadRef<'data>>(data: R, marks: Marks) -> Option<Self> {
        match FileKind::parse(data).ok()? {
            FileKind::Elf32 => Self::read_elf::<FileHeader32<Endianness>, R>(data, marks).ok(),
            FileKind::Elf64 => Self::read_elf::<FileHeader64<Endianness>, R>(data, marks).ok(),
            _ => None,
        }
    }

    fn read_elf<Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
        data: R,
        marks: Marks,
    ) -> object::Result<Self> {
        let header = Elf::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let table = |kind| SymbolTable::read(data, &sections, endian, kind, marks);
        Ok(Self([table(SHT_SYMTAB)?, table(SHT_DYNSYM)?]))
    }

    /// Finds the function at an address of the file.
    pub(super) fn find(&self, address: u64) -> Option<Found<'data>> {
        self.0.iter().find_map(|table| table.find(address))
    }
}

#[cfg(test)]
mod tests {
    use object::elf::{
        EM_X86_64, ET_DYN, PF_R, PF_X, PT_LOAD, SHF_ALLOC, SHT_PROGBITS, SHT_STRTAB,
    };
    use offwake_recording::{FrameId, Function, loss::Diagnostics};

    use super::*;
    use crate::symbols::{
        frame_table::UnnamedFrame,
        naming::{
            detail::Detail, elf_names, hostile::NoOthers, names::NameTable, open_file::OpenFile,
        },
    };

    /// The section with the code, and one without addresses.
    const CODE: u16 = 1;
    const DEBUG: u16 = 2;
    const LOCAL: u8 = 0;
    const GLOBAL: u8 = 1 << 4;
    /// Code is at this offset of the file, and at this address.
    const CODE_AT: u64 = 0x1000;

    #[derive(Clone, Copy)]
    struct Entry {
        name: &'static str,
        info: u8,
        section: u16,
        at: u64,
        size: u64,
    }

    fn entry(name: &'static str, info: u8, section: u16, at: u64, size: u64) -> Entry {
        Entry { name, info, section, at, size }
    }

    fn function(name: &'static str, at: u64, size: u64) -> Entry {
        entry(name, LOCAL | STT_FUNC, CODE, at, size)
    }

    fn mark(name: &'static str, at: u64) -> Entry {
        entry(name, LOCAL | STT_NOTYPE, CODE, at, 0)
    }

    /// An ELF file of 32 or 64 bits, byte by byte.
    struct Writer {
        bytes: Vec<u8>,
        is_64: bool,
    }

    impl Writer {
        fn half(&mut self, value: u16) {
            self.bytes.extend(value.to_le_bytes());
        }

        fn word(&mut self, value: u32) {
            self.bytes.extend(value.to_le_bytes());
        }

        /// An address, an offset, or a size.
        fn wide(&mut self, value: u64) {
            match self.is_64 {
                true => self.bytes.extend(value.to_le_bytes()),
                false => self.word(u32::try_from(value).unwrap()),
            }
        }

        fn choose(&self, narrow: u64, wide: u64) -> u64 {
            if self.is_64 { wide } else { narrow }
        }

        fn section(&mut self, name: u32, kind: u32, flags: u32, place: [u64; 4], entry: u64) {
            let [address, offset, size, link] = place;
            self.word(name);
            self.word(kind);
            self.wide(flags.into());
            self.wide(address);
            self.wide(offset);
            self.wide(size);
            self.word(u32::try_from(link).unwrap());
            self.word(0);
            self.wide(1);
            self.wide(entry);
        }
    }

    /// A library of this machine with one page of code, and these symbols.
    fn library(machine: u16, is_64: bool, symbols: &[Entry]) -> Vec<u8> {
        let mut file = Writer { bytes: Vec::new(), is_64 };
        let header = file.choose(52, 64);
        let [program_header, section_header, symbol] =
            [(32, 56), (40, 64), (16, 24)].map(|(narrow, wide)| file.choose(narrow, wide));
        let code_size = 0x1000;
        let symbols_at = CODE_AT + code_size;
        let symbols_size = symbol * (symbols.len() as u64 + 1);
        let mut names = vec![0];
        let mut name = |text: &str| {
            let at = u32::try_from(names.len()).unwrap();
            names.extend(text.as_bytes());
            names.push(0);
            at
        };
        let symbol_names: Vec<u32> = symbols.iter().map(|symbol| name(symbol.name)).collect();
        let section_names = [".text", ".debug_str", ".symtab", ".strtab"].map(&mut name);
        let names_at = symbols_at + symbols_size;
        let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
        file.bytes.extend([0x7f, b'E', b'L', b'F', if is_64 { 2 } else { 1 }, 1, 1]);
        file.bytes.resize(16, 0);
        file.half(ET_DYN);
        file.half(machine);
        file.word(1);
        file.wide(CODE_AT);
        file.wide(header);
        file.wide(sections_at);
        file.word(0);
        for half in [header, program_header, 1, section_header, 5, 4] {
            file.half(u16::try_from(half).unwrap());
        }
        file.word(PT_LOAD);
        if is_64 {
            file.word(PF_R | PF_X);
        }
        for wide in [CODE_AT, CODE_AT, CODE_AT, code_size, code_size] {
            file.wide(wide);
        }
        if !is_64 {
            file.word(PF_R | PF_X);
        }
        file.wide(0x1000);
        file.bytes.resize(usize::try_from(symbols_at + symbol).unwrap(), 0);
        for (symbol, name) in symbols.iter().zip(symbol_names) {
            file.word(name);
            if is_64 {
                file.bytes.extend([symbol.info, 0]);
                file.half(symbol.section);
            }
            file.wide(symbol.at);
            file.wide(symbol.size);
            if !is_64 {
                file.bytes.extend([symbol.info, 0]);
                file.half(symbol.section);
            }
        }
        file.bytes.extend(&names);
        file.bytes.resize(usize::try_from(sections_at).unwrap(), 0);
        file.section(0, 0, 0, [0; 4], 0);
        let [text, debug, symtab, strtab] = section_names;
        let code = SHF_ALLOC | SHF_EXECINSTR;
        file.section(text, SHT_PROGBITS, code, [CODE_AT, CODE_AT, code_size, 0], 0);
        file.section(debug, SHT_PROGBITS, 0, [0, CODE_AT, code_size, 0], 0);
        file.section(symtab, SHT_SYMTAB, 0, [0, symbols_at, symbols_size, 4], symbol);
        file.section(strtab, SHT_STRTAB, 0, [0, names_at, names.len() as u64, 0], 0);
        file.bytes
    }

    /// The names at these addresses, as offwake gives them.
    fn names(library: &[u8], addresses: &[u64]) -> Vec<String> {
        let ids = (0..).map(FrameId);
        // Code has the offset that it has as address.
        let wanted: Vec<_> =
            ids.zip(addresses).map(|(frame, &at)| UnnamedFrame { frame, at }).collect();
        let mut names = NameTable::new();
        elf_names::name_frames(
            OpenFile::from_image(library).unwrap(),
            &mut NoOthers,
            Detail::Lines,
            &wanted,
            &mut Diagnostics::new(),
            &mut names,
        );
        let name = |wanted: &UnnamedFrame| match names.get(wanted.frame) {
            Some([Function { name, .. }]) => name.clone(),
            None | Some([]) => "-".to_owned(),
            Some(more) => panic!("{more:?}"),
        };
        wanted.iter().map(name).collect()
    }

    #[test]
    fn code_behind_a_mark_has_the_name_of_its_function() {
        let symbols = [
            mark("$x", 0x1000),
            function("first", 0x1000, 0x100),
            mark("$d", 0x1040),
            mark("$x.1", 0x1080),
            function("_ZN4shop6secondEv", 0x1100, 0x100),
            mark("$d.realm", 0x1180),
            // One of no known size, and none of anybody's.
            mark("$x", 0x1200),
            mark("assembly", 0x1200),
            mark("$d", 0x1300),
            function("last", 0x1400, 0x10),
            mark("$x", 0x1410),
        ];
        for is_64 in [false, true] {
            let file = library(EM_AARCH64, is_64, &symbols);
            let addresses =
                [0x1010, 0x1050, 0x1090, 0x1110, 0x1190, 0x1210, 0x1310, 0x1404, 0x1420];
            let found = names(&file, &addresses);
            let assembly = ["assembly"; 2];
            let expected = [&["first"; 3][..], &["shop::second()"; 2], &assembly, &["last", "-"]];
            assert_eq!(found, expected.concat(), "64 bits: {is_64}");
        }
    }

    #[test]
    fn a_mark_in_a_section_without_addresses_is_nowhere() {
        let symbols = [
            function("waits", 0x1000, 0x200),
            entry("$d", LOCAL | STT_NOTYPE, DEBUG, 0x1100, 0),
            entry("label", LOCAL | STT_NOTYPE, DEBUG, 0x1180, 0),
        ];
        let file = library(EM_AARCH64, true, &symbols);
        assert_eq!(names(&file, &[0x1010, 0x1110]), ["waits", "waits"]);
    }

    #[test]
    fn a_function_with_the_name_of_a_mark_remains() {
        let symbols = [
            function("$x", 0x1000, 0x100),
            mark("$d", 0x1080),
            entry("$d", GLOBAL | STT_NOTYPE, CODE, 0x1100, 0),
            function("$xyz", 0x1200, 0x10),
        ];
        let file = library(EM_AARCH64, true, &symbols);
        assert_eq!(names(&file, &[0x1010, 0x1090, 0x1110, 0x1204]), ["$x", "$x", "$d", "$xyz"]);
    }

    #[test]
    fn other_machines_have_no_marks() {
        let symbols = [function("first", 0x1000, 0x100), mark("$x", 0x1100), mark("$d.1", 0x1200)];
        let addresses = [0x1010, 0x1110, 0x1210];
        let of_x86_64 = names(&library(EM_X86_64, true, &symbols), &addresses);
        assert_eq!(of_x86_64, ["first", "$x", "$d.1"]);
        let of_riscv = names(&library(EM_RISCV, true, &symbols), &addresses);
        assert_eq!(of_riscv, ["first", "-", "-"]);
        // `$x` is none of this machine's.
        let of_arm = names(&library(EM_ARM, false, &symbols), &addresses);
        assert_eq!(of_arm, ["first", "$x", "$x"]);
    }

    #[test]
    fn each_machine_has_its_marks() {
        let names = ["$a", "$t", "$d", "$x", "$x.foo", "$xrv64gc", "$dx", "$", "x", "$xyz"];
        let recognised = |marks: Marks| names.map(|name| marks.has_name(name.as_bytes()));
        let (y, n) = (true, false);
        assert_eq!(recognised(Marks::Arm), [y, y, y, n, n, n, n, n, n, n]);
        assert_eq!(recognised(Marks::Arm64), [n, n, y, y, y, n, n, n, n, n]);
        assert_eq!(recognised(Marks::RiscV), [n, n, y, y, y, y, n, n, n, n]);
    }
}
