//! Any memory as that of a CPython, in which every word leads somewhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::read_python(input));
