//! Functions of real files: where they begin, and where they are left.

use std::{collections::BTreeSet, fs};

use object::{Object as _, ObjectSymbol as _};

use crate::elf::probe_points::{PointKind, ProbePoint, ProbeQuery, ProbeRefusal, find_points};

fn find(file: &[u8], name: &str) -> Result<Vec<ProbePoint>, ProbeRefusal> {
    find_points(file, &ProbeQuery::Function(name.to_owned()))
}

/// The C library that this very test runs with.
fn libc() -> Vec<u8> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().find_map(|line| {
        let at = line.find('/')?;
        line.ends_with("/libc.so.6").then(|| &line[at..])
    });
    fs::read(path.unwrap()).unwrap()
}

#[test]
fn most_functions_of_a_library_are_left_at_instructions_that_are_known() {
    let file = libc();
    let parsed = object::File::parse(&*file).unwrap();
    let names: BTreeSet<&str> = (parsed.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    let (mut all, mut found) = (0, 0);
    for name in names.iter().step_by(7) {
        let points = match find(&file, name) {
            // Its symbol is that of a function that chooses one.
            Err(ProbeRefusal::NotFound) => continue,
            other => other,
        };
        all += 1;
        let Ok(points) = points else { continue };
        found += 1;
        assert!(points.iter().any(|point| point.kind == PointKind::Begin), "{name}: {points:?}");
        for point in points.iter().filter(|point| point.kind == PointKind::End) {
            let byte = file[point.offset as usize];
            // ret, jmp, jmp by a pointer, or one of these behind a prefix.
            let can_leave = [0xc3, 0xc2, 0xe9, 0xeb, 0xff, 0x3e, 0x41, 0xf2, 0xf3];
            assert!(can_leave.contains(&byte), "{name}: {byte:#x}");
        }
    }
    println!("{found} of {all} functions");
    assert!(found * 2 > all && all > 100, "{found} of {all} functions");
}

#[test]
fn what_a_file_does_not_have_is_said() {
    let file = libc();
    assert_eq!(find(&file, "no such function"), Err(ProbeRefusal::NotFound));
    assert_eq!(find(b"#!/bin/sh\n", "main"), Err(ProbeRefusal::NotElf));
    assert_eq!(find(&file[..100], "getpid"), Err(ProbeRefusal::Stripped));
    let usdt = ProbeQuery::Usdt { provider: "no such".to_owned(), name: "probe".to_owned() };
    assert!(matches!(
        find_points(&*file, &usdt),
        Err(ProbeRefusal::NoProbes | ProbeRefusal::NotFound)
    ));
}

/// A file may say anything of itself.
#[test]
fn a_file_that_lies_is_no_harm() {
    let whole = libc();
    let usdt = ProbeQuery::Usdt { provider: "libc".to_owned(), name: "setjmp".to_owned() };
    // Its headers and the first of its symbols, and the rest gone.
    for length in [64, 200, 1_000, 4_096, 100_000] {
        let _any = find(&whole[..length], "getpid");
        let _any = find_points(&whole[..length], &usdt);
    }
    let mut bytes = whole[..4_096].to_vec();
    for at in 0..bytes.len() {
        let was = std::mem::replace(&mut bytes[at], 0xff);
        if at < 64 || at % 13 == 0 {
            let _any = find(&bytes, "getpid");
        }
        bytes[at] = was;
    }
}
