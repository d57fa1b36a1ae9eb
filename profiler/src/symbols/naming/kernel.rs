//! Names of kernel addresses, from `/proc/kallsyms`: BPF programs and modules are in it too.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    ops::Range,
};

use blazesym::{
    MaybeDefault,
    symbolize::{
        Input, Symbolizer,
        source::{Kernel, Source},
    },
};
use offwake_recording::{
    Function,
    loss::{Diagnostics, count},
};

use super::names::NameTable;
use crate::symbols::{
    address_spaces::kernel::FIRST_ADDRESS, frame_table::UnnamedFrame, name_limit::cut_name,
};

/// `kallsyms` has no sizes: an address far behind the last symbol before it is in none. The largest
/// kernel functions are some 100 KB.
const MAX_FUNCTION: usize = 1 << 20;

/// Names frames of the kernel.
pub(crate) fn name_frames(
    wanted: &[UnnamedFrame],
    diagnostics: &mut Diagnostics,
    names: &mut NameTable,
) {
    let source = Source::Kernel(Kernel {
        kallsyms: MaybeDefault::Default,
        // Reading a vmlinux's DWARF takes seconds and gigabytes.
        vmlinux: MaybeDefault::None,
        debug_syms: false,
        ..Kernel::default()
    });
    let addresses: Vec<u64> = wanted.iter().map(|wanted| wanted.at).collect();
    let symbolizer =
        Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false).build();
    let Ok(symbols) = symbolizer.symbolize(&source, Input::AbsAddr(&addresses)) else {
        return count(diagnostics, "symbols_kallsyms_unreadable");
    };
    for (wanted, symbol) in wanted.iter().zip(symbols) {
        // With kptr_restrict, all addresses are 0 and every symbol is far away.
        if let Some(symbol) = symbol.as_sym()
            && wanted.at >= FIRST_ADDRESS
            && symbol.offset < MAX_FUNCTION
        {
            names.set(wanted.frame, vec![Function::named(cut_name(&symbol.name))]);
        }
    }
}

/// Where the functions are that are in the kernel from boot on. Elsewhere a module or a BPF program
/// may have replaced another one.
pub(crate) fn built_in_range() -> Option<Range<u64>> {
    let (mut start, mut end) = (None, None);
    for line in BufReader::new(File::open("/proc/kallsyms").ok()?).lines() {
        let line = line.ok()?;
        let mut fields = line.split_ascii_whitespace();
        let (Some(address), _, Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        match name {
            "_stext" => start = u64::from_str_radix(address, 16).ok(),
            "_etext" => end = u64::from_str_radix(address, 16).ok(),
            _ => {}
        }
        // They come before the modules.
        if let (Some(start), Some(end)) = (start, end) {
            return Some(start..end);
        }
    }
    None
}
