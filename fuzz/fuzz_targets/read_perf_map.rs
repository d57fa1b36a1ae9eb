//! Any perf map: names are no longer than names may be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::name_by_perf_map(input));
