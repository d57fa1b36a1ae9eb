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

use offwake_unwind::elf::build_id::from_native_notes;

use crate::recording::{BuildId, Function};

use super::{Shortfalls, cut, frames::Wanted, names::Names};

/// What the kernel is called where files are called by their paths.
pub(super) const MODULE: &str = "[kernel]";
/// The lowest address of the kernel's half on x86-64 and arm64.
pub(super) const HALF: u64 = 0xffff_0000_0000_0000;
/// `kallsyms` has no sizes: an address far behind the last symbol before it is in none. The largest
/// kernel functions are some 100 KB.
const MAX_FUNCTION: usize = 1 << 20;

pub(super) fn name(wanted: &[Wanted], shortfalls: &mut Shortfalls, names: &mut Names) {
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
        return super::count(shortfalls, "symbols_kallsyms_unreadable");
    };
    for (wanted, symbol) in wanted.iter().zip(symbols) {
        // With kptr_restrict, all addresses are 0 and every symbol is far away.
        if let Some(symbol) = symbol.as_sym()
            && wanted.at >= HALF
            && symbol.offset < MAX_FUNCTION
        {
            names.set(wanted.frame, vec![Function::named(cut(&symbol.name))]);
        }
    }
}

/// The build id of the running kernel, from its own notes.
///
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/ksysfs.c>, `notes_read`
pub(super) fn build_id() -> Option<BuildId> {
    from_native_notes(&std::fs::read("/sys/kernel/notes").ok()?)
}

/// Where the functions are that are in the kernel from boot on. Elsewhere a module or a BPF program
/// may have taken the place of another one.
pub(super) fn built_in() -> Option<Range<u64>> {
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_has_a_build_id_if_it_shows_its_notes() {
        let shown = std::fs::exists("/sys/kernel/notes").unwrap();
        assert_eq!(super::build_id().is_some(), shown);
    }
}
