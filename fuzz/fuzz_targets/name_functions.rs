//! Any file with names of functions: symbol tables, DWARF, Go's table.
#![no_main]

use std::panic;

use libfuzzer_sys::fuzz_target;
use offwake::fuzzing;

fuzz_target!(
    // blazesym may panic: that is caught, and counted as `symbols_symbolizer_panics`. A panic of our own
    // is not caught, and ends the run all the same.
    init: panic::set_hook(Box::new(|_| {})),
    |input: &[u8]| fuzzing::name_by_file(input)
);
