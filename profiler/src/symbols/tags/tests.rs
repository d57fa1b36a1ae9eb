use std::collections::HashMap;

use offwake_unwind::elf::{
    goroutine_labels::GoroutineLabels,
    tls_symbol::{TlsReference, TlsSymbol},
};
use profiler_ebpf::tags::{TagSource, form};

use super::{convention::Carrier, place::find_source};
use crate::symbols::python::memory::Memory;

/// Memory of words.
struct Words(HashMap<u64, u64>);

impl Memory for Words {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let word = self.0.get(&address)?.to_le_bytes();
        into.copy_from_slice(word.get(..into.len())?);
        Some(())
    }
}

fn symbol(reference: Option<TlsReference>) -> TlsSymbol {
    TlsSymbol {
        value: 0x10,
        size: 0x24,
        alignment: 16,
        is_program: true,
        needs_glibc: true,
        mark: Some(40),
        version: None,
        reference,
        code: vec![],
    }
}

const BIAS: u64 = 0x5000;

fn find(symbol: &TlsSymbol, words: &[(u64, u64)]) -> Option<TagSource> {
    find_source(symbol, BIAS, &Words(words.iter().copied().collect()))
}

fn place(source: Option<TagSource>) -> Option<(i64, u64)> {
    source.map(|source| (source.offset, source.module))
}

fn negative(distance: u64) -> u64 {
    distance.wrapping_neg()
}

#[test]
fn the_variable_of_a_program_is_below_the_thread_pointer_by_its_size() {
    // 0x24 bytes aligned to 16 are 0x30.
    let found = find(&symbol(None), &[(BIAS + 40, 77)]);
    assert_eq!(place(found), Some((0x10 - 0x30, 0)));
    assert_eq!(found.map(|found| (found.mark_address, found.mark)), Some((BIAS + 40, 77)));
    // A library without a relocation says nothing, and neither does one that is not mapped.
    let library = TlsSymbol { is_program: false, ..symbol(None) };
    assert_eq!(find(&library, &[(BIAS + 40, 77)]), None);
    assert_eq!(find(&symbol(None), &[]), None);
}

#[test]
fn an_offset_is_what_the_loader_has_written() {
    let symbol = symbol(Some(TlsReference::Offset(8)));
    assert_eq!(place(find(&symbol, &[(BIAS + 8, negative(64))])), Some((-64, 0)));
    for other in [0, 64, negative(63), negative(1 << 21)] {
        assert_eq!(find(&symbol, &[(BIAS + 8, other)]), None, "{other:#x}");
    }
}

#[test]
fn a_descriptor_has_the_offset_or_leads_to_a_module() {
    let descriptor = symbol(Some(TlsReference::Descriptor(8)));
    let near = find(&descriptor, &[(BIAS + 16, negative(128))]);
    assert_eq!(place(near), Some((-128, 0)));
    let far = [(BIAS + 16, 0x9000), (0x9000, 3), (0x9008, 0x40)];
    assert_eq!(place(find(&descriptor, &far)), Some((0x40, 3)));
    // Not filled in yet; lazily bound, where it leads to a relocation; made for another C library.
    assert_eq!(find(&descriptor, &[(BIAS + 16, 0)]), None);
    let lazy = [(BIAS + 16, 0x9000), (0x9000, 0x12_3456), (0x9008, 0x40)];
    assert_eq!(find(&descriptor, &lazy), None);
    let other = TlsSymbol { needs_glibc: false, ..descriptor };
    assert_eq!(find(&other, &far), None);
}

#[test]
fn an_index_is_a_module_and_an_offset() {
    let index = symbol(Some(TlsReference::Index(8)));
    assert_eq!(place(find(&index, &[(BIAS + 8, 2), (BIAS + 16, 24)])), Some((24, 2)));
    assert_eq!(find(&index, &[(BIAS + 8, 0), (BIAS + 16, 24)]), None);
    assert_eq!(find(&index, &[(BIAS + 8, 2), (BIAS + 16, 25)]), None);
}

#[test]
fn another_version_of_a_convention_is_not_believed() {
    let versioned = TlsSymbol { version: Some(24), ..symbol(None) };
    let with = |version| place(find(&versioned, &[(BIAS + 40, 77), (BIAS + 24, version)]));
    assert_eq!(with(1), Some((0x10 - 0x30, 0)));
    // Four bytes alone count.
    assert_eq!(with(7 << 32 | 1), Some((0x10 - 0x30, 0)));
    assert_eq!((with(0), with(2)), (None, None));
    assert_eq!(find(&versioned, &[(BIAS + 40, 77)]), None);
}

#[test]
fn labels_of_a_go_that_keeps_them_nobody_knows_where_are_not_read() {
    let read = |version, current| {
        let carrier = Carrier::go(GoroutineLabels { version, current })?;
        let source = carrier.complete(TagSource { offset: -8, ..TagSource::default() });
        Some((source.form, source.offset, source.go.labels()))
    };
    let symbol = || Some(symbol(None));
    assert_eq!(read(Some((1, 19)), symbol()), Some((form::GO_MAP, -8, 360)));
    assert_eq!(read(Some((1, 24)), symbol()), Some((form::GO_LIST, -8, 352)));
    for version in [None, Some((1, 17)), Some((1, 28)), Some((2, 24))] {
        assert_eq!(read(version, symbol()), None, "{version:?}");
    }
    assert_eq!(read(Some((1, 24)), None), None);
}
