//! Files that say, or do not say, that there is a CPython in them.

use std::process::Command;

use super::super::{
    image::{Image, NotFound},
    version::Version,
};

/// What a CPython exports.
const SOURCE: &str = "
    char _PyRuntime[64];
    const unsigned int Py_Version = 0x030b02f0;
    int PyCode_Type = 1;
    int _PyEval_EvalFrameDefault(int x) { return x + 1; }
";

fn compile(source: &str, flags: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("python.c"), folder.path().join("python"));
    std::fs::write(&input, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&output).arg(&input).args(flags);
    assert!(cc.status().unwrap().success());
    std::fs::read(output).unwrap()
}

#[test]
fn a_cpython_is_known_by_what_it_exports_whatever_its_name() {
    for flags in [&[][..], &["-s"]] {
        let file = compile(SOURCE, flags);
        let image = Image::read(file.as_slice(), "/opt/app").unwrap();
        assert_eq!(image.named, None);
        assert!(image.version.is_some() && image.code_type.is_some());
        let [evaluate] = image.evaluate.as_slice() else { panic!("{image:?}") };
        assert!(evaluate.start < evaluate.end && evaluate.end - evaluate.start < 64);
        let named = Image::read(file.as_slice(), "/usr/lib/libpython3.9.so.1.0").unwrap();
        assert_eq!(named.named, Some(Version::python3(9)));
    }
}

#[test]
fn a_file_without_symbols_is_a_cpython_by_its_name_alone() {
    let other = compile("int other;", &[]);
    for (path, error) in
        [("/usr/lib/libother.so", NotFound::NoPython), ("/usr/bin/python3.11", NotFound::NoSymbols)]
    {
        assert_eq!(Image::read(other.as_slice(), path), Err(error));
        assert_eq!(Image::read(&b"#!/bin/sh\n"[..], path), Err(error));
    }
}

#[test]
fn one_that_only_uses_a_cpython_is_none() {
    let user = compile("extern char _PyRuntime[]; char *use(void) { return _PyRuntime; }", &[]);
    assert_eq!(Image::read(user.as_slice(), "/app"), Err(NotFound::NoPython));
}

#[test]
fn a_file_that_was_tampered_with_does_no_harm() {
    let whole = compile(SOURCE, &["-s"]);
    for length in (0..whole.len()).step_by(61) {
        let _any = Image::read(&whole[..length], "python3.9");
    }
    for at in (0..whole.len()).step_by(13) {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Ok(image) = Image::read(bytes.as_slice(), "python3.9") {
                let _any = image.bias(u64::MAX, 0x1000);
            }
        }
    }
}
