//! Any bytes as files of `/proc`: whatever a process is called, or has mapped.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake::fuzzing;

fuzz_target!(|input: &[u8]| fuzzing::parse_proc_files(input));
