//! Any file: its headers and notes, and where in it CPython keeps its state.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::read_headers(input));
