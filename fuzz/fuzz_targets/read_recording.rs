//! Any bytes at all are read as a recording, and reported if they are one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offwake_recording::stream;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(recording) = stream::read(bytes, offwake_fuzz::MEMORY) {
        offwake_fuzz::report(&recording);
    }
});
