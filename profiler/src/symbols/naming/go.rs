//! Names in Go programs: from the table that the runtime itself walks stacks by, which is there
//! however much was stripped, and as Go's own tracebacks write them.

use std::{borrow::Cow, fs::File, ops::Range};

use object::{
    Endianness, Object, ObjectSection, ReadCache, RelocationTarget, elf::FileHeader64,
    read::elf::ElfFile,
};

use offwake_recording::Function;
use offwake_unwind::{
    elf::layout::CodeLayout,
    go::{
        functions::{GoFunctions, LineLookup},
        table::{SECTION_NAMES, TEXT_START},
    },
};

use super::{
    detail::{AddressForm, Detail},
    names::NameTable,
};
use crate::symbols::{frame_table::UnnamedFrame, name_limit::cut_name};

/// Bytes that the table may have. The largest programs that are known have some 100 MiB.
const MAX_TABLE: u64 = 256 << 20;

/// Names the frames `wanted` that have no name yet by the runtime's table.
pub(crate) fn name_frames(
    file: &File,
    detail: Detail,
    form: AddressForm,
    wanted: &[UnnamedFrame],
    names: &mut NameTable,
) {
    let cache = ReadCache::new(file);
    let Some(table) = TableBytes::read(&cache) else { return };
    let functions = GoFunctions::parse(&table.bytes, table.text, table.text_start);
    let Some(mut functions) = functions else { return };
    let layout = match form {
        AddressForm::Address => None,
        AddressForm::FileOffset => match CodeLayout::from_file(&cache) {
            Some(layout) => Some(layout),
            None => return,
        },
    };
    let lines = if detail == Detail::Lines { LineLookup::Wanted } else { LineLookup::LeftOut };
    for wanted in wanted {
        if names.has(wanted.frame) {
            continue;
        }
        let address = layout.as_ref().map_or(Some(wanted.at), |layout| layout.address(wanted.at));
        let Some(found) = address.and_then(|address| functions.find(address, lines)) else {
            continue;
        };
        let file =
            found.file.and_then(|file| names.file(&cut_name(&String::from_utf8_lossy(file))));
        let name = cut_name(&readable_name(&String::from_utf8_lossy(found.name)));
        let line = found.line.filter(|_| file.is_some());
        names.set(wanted.frame, vec![Function { name, file, line }]);
    }
}

/// The table of a file, and what it refers to.
struct TableBytes<'data> {
    bytes: Cow<'data, [u8]>,
    /// Where the section of code is.
    text: Range<u64>,
    /// What the linker left to the loader to write into the table.
    text_start: Option<u64>,
}

impl<'data> TableBytes<'data> {
    fn read(cache: &'data ReadCache<&File>) -> Option<Self> {
        let elf = ElfFile::<FileHeader64<Endianness>, _>::parse(cache).ok()?;
        let named = |names: &[&[u8]]| {
            elf.sections().find(|section| names.contains(&section.name_bytes().unwrap_or_default()))
        };
        let (section, text) = (named(&SECTION_NAMES)?, named(&[b".text"])?);
        if section.size() > MAX_TABLE {
            return None;
        }
        let bytes = section.data().ok()?.into();
        let text = text.address()..text.address().checked_add(text.size())?;
        let at = section.address().checked_add(TEXT_START)?;
        let relocated = elf.dynamic_relocations().into_iter().flatten().find(|&(of, _)| of == at);
        let text_start = relocated.and_then(|(_, relocation)| match relocation.target() {
            RelocationTarget::Absolute => u64::try_from(relocation.addend()).ok(),
            _ => None,
        });
        Some(Self { bytes, text, text_start })
    }
}

/// A symbol as Go's own tracebacks have it: import paths without their escapes, and `[...]` for the
/// types that a generic function was made for.
///
/// <https://github.com/golang/go/blob/go1.22.0/src/cmd/internal/objabi/path.go> and
/// <https://github.com/golang/go/blob/go1.22.0/src/runtime/symtab.go>, `funcNameForPrint`
pub(crate) fn readable_name(symbol: &str) -> String {
    let name = match (symbol.find('['), symbol.rfind(']')) {
        (Some(open), Some(close)) if open < close => {
            let before = symbol.get(..open).unwrap_or_default();
            format!("{before}[...]{}", symbol.get(close + 1..).unwrap_or_default())
        }
        _ => symbol.to_owned(),
    };
    // Assembly and old compilers write these two, since theirs mean something else to them.
    unescaped(&name.replace('·', ".").replace('∕', "/"))
}

/// `gopkg.in/yaml%2ev3` → `gopkg.in/yaml.v3`
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| byte == b'%').and_then(hex);
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let is_hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(is_hex))?;
    u8::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::readable_name;

    #[test]
    fn symbols_are_written_as_go_people_write_them() {
        for (symbol, name) in [
            ("main.(*Server).Serve", "main.(*Server).Serve"),
            ("net/http.HandlerFunc.ServeHTTP", "net/http.HandlerFunc.ServeHTTP"),
            ("gopkg.in/yaml%2ev3.(*parser).parse", "gopkg.in/yaml.v3.(*parser).parse"),
            ("main.Map[go.shape.int_0]", "main.Map[...]"),
            ("main.(*List[go.shape.[]uint8]).Push.func1", "main.(*List[...]).Push.func1"),
            ("a.F[example.com/b%2ec.T]", "a.F[...]"),
            ("sync∕atomic·AddInt32", "sync/atomic.AddInt32"),
            ("example.com/%c3%a9.F", "example.com/é.F"),
            ("f%", "f%"),
            ("f%2", "f%2"),
            ("f%2E%zz%é", "f%2E%zz%é"),
            ("]f[", "]f["),
            ("", ""),
        ] {
            assert_eq!(readable_name(symbol), name);
        }
    }
}
