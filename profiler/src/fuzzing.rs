//! Every parser of what other programs and users make, over any bytes: what `fuzz/` calls. The parsers
//! themselves are no part of the library's face.

use offwake_unwind::elf::probe_points::{self, ProbeQuery};

use crate::{
    awaited_children, cgroup2, containers, file_locks, files, fuse_servers, lock_owners,
    pipe_holders, processes,
    symbols::{
        address_spaces::{description::ModuleDescription, proc_maps},
        naming, python, tags,
    },
    thread_call::ThreadCall,
};

/// Parses bytes as files of `/proc` and of cgroups.
pub fn parse_proc_files(bytes: &[u8]) {
    proc_maps::parse_hostile(bytes);
    processes::parse_hostile(bytes);
    cgroup2::parse_hostile(bytes);
    files::parse_hostile(bytes);
    let text = String::from_utf8_lossy(bytes);
    file_locks::parse_hostile(&text);
    fuse_servers::parse_hostile(&text);
    lock_owners::parse_hostile(&text);
    pipe_holders::parse_hostile(&text);
    awaited_children::parse_hostile(&text);
    let _call = ThreadCall::parse(&text);
}

/// Parses bytes as what engines say of containers.
pub fn parse_containers(bytes: &[u8]) {
    containers::parse_hostile(bytes);
}

/// Reads the headers and notes of a file, and where in it CPython keeps its state and threads their
/// tags, and functions and probes are; and the bytes as what a process calls its labels.
pub fn read_headers(bytes: &[u8]) {
    let described = ModuleDescription::read(bytes);
    assert!(described.left_out == 0 || !described.segments.is_empty());
    for path in ["/usr/bin/python3.11", "/srv/app"] {
        let _image = python::hostile::read_image(bytes, path);
    }
    tags::parse_hostile(bytes);
    for query in [
        ProbeQuery::Function("main".to_owned()),
        ProbeQuery::Usdt { provider: "shop".to_owned(), name: "pay".to_owned() },
    ] {
        let _points = probe_points::find_points(bytes, &query);
    }
}

/// Names offsets in a file.
pub fn name_by_file(bytes: &[u8]) {
    naming::hostile::name_by_file(bytes);
}

/// Names addresses by a perf map.
pub fn name_by_perf_map(bytes: &[u8]) {
    naming::hostile::name_by_perf_map(bytes);
}

/// Reads memory as that of a CPython.
pub fn read_python(bytes: &[u8]) {
    let _too_short = python::hostile::read(bytes);
}
