//! Any bytes as what an engine says of its containers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::parse_containers(input));
