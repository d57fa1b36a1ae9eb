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

use super::{demangle::demangle, mapping_symbols::Marks, names::NameTable};
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
    let marks = Marks::of_own_machine();
    let mut at_marks = Vec::new();
    for (wanted, symbol) in wanted.iter().zip(symbols) {
        // With kptr_restrict, all addresses are 0 and every symbol is far away.
        if let Some(symbol) = symbol.as_sym()
            && wanted.at >= FIRST_ADDRESS
            && symbol.offset < MAX_FUNCTION
        {
            match marks.is_some_and(|marks| marks.has_name(symbol.name.as_bytes())) {
                true => at_marks.push((wanted.at, wanted.frame)),
                false => {
                    let name = cut_name(&demangle(&symbol.name));
                    names.set(wanted.frame, vec![Function::named(name)]);
                }
            }
        }
    }
    if let Some(marks) = marks.filter(|_| !at_marks.is_empty())
        && let Ok(kallsyms) = File::open("/proc/kallsyms")
    {
        at_marks.sort_unstable();
        let addresses: Vec<u64> = at_marks.iter().map(|&(at, _)| at).collect();
        let found = find_functions(BufReader::new(kallsyms), marks, &addresses);
        for ((_, frame), name) in at_marks.into_iter().zip(found) {
            if let Some(name) = name {
                names.set(frame, vec![Function::named(cut_name(&demangle(&name)))]);
            }
        }
    }
}

/// Finds the functions at these addresses, which are sorted, without the marks that `kallsyms` lists among the
/// functions of modules
/// ([`module_get_kallsym`](https://github.com/torvalds/linux/blob/v6.12/kernel/module/kallsyms.c) leaves
/// none out).
fn find_functions(kallsyms: impl BufRead, marks: Marks, addresses: &[u64]) -> Vec<Option<String>> {
    // The last function at or before each address, and behind the address before it.
    let mut last: Vec<Option<(u64, String)>> = vec![None; addresses.len()];
    for line in kallsyms.lines().map_while(Result::ok) {
        let mut fields = line.split_ascii_whitespace();
        let (Some(begin), Some(_), Some(name)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let Ok(begin) = u64::from_str_radix(begin, 16) else { continue };
        let first = addresses.partition_point(|&address| address < begin);
        let Some(last) = last.get_mut(first) else { continue };
        let is_nearer = last.as_ref().is_none_or(|(known, _)| *known < begin);
        if is_nearer && !marks.has_name(name.as_bytes()) {
            *last = Some((begin, name.to_owned()));
        }
    }
    let mut nearest: Option<(u64, String)> = None;
    let find = |(last, &address): (Option<(u64, String)>, &u64)| {
        nearest = last.or(nearest.take());
        let (begin, name) = nearest.as_ref()?;
        (address - begin < MAX_FUNCTION as u64).then(|| name.clone())
    };
    last.into_iter().zip(addresses).map(find).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_s_function_is_named_across_the_marks_in_it() {
        let kallsyms = "ffff800080010000 T _stext\nffff800080020000 T schedule\n\
                        ffff80007a001000 t $x\t[nfs]\nffff80007a001000 t nfs_wait\t[nfs]\n\
                        ffff80007a001100 t $d\t[nfs]\nffff80007a001180 t $x.3\t[nfs]\n\
                        ffff80007a002000 t $x\t[nfs]\nffff80007a002000 t nfs_read\t[nfs]\n\
                        ffff80007a001080 d nfs_local\t[nfs]\nffff80007a002f00 d $d\t[nfs]\n";
        let find = |addresses: &[u64]| -> Vec<String> {
            let found = find_functions(kallsyms.as_bytes(), Marks::Arm64, addresses);
            found.into_iter().map(|name| name.unwrap_or_else(|| "-".to_owned())).collect()
        };
        let module = 0xffff_8000_7a00_0000;
        let addresses = [0xfff, 0x1000, 0x1050, 0x1104, 0x1184, 0x1fff, 0x2010, 0x2f10];
        let found = find(&addresses.map(|at| module + at));
        let local = ["nfs_local"; 3];
        let expected = [&["-", "nfs_wait", "nfs_wait"][..], &local, &["nfs_read"; 2]].concat();
        assert_eq!(found, expected);
        // Two frames at one address, and one far behind the last symbol.
        let addresses = [0x2010, 0x2010, 0x30_0000].map(|at| module + at);
        assert_eq!(find(&addresses), ["nfs_read", "nfs_read", "-"]);
    }
}
