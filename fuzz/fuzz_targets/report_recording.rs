//! A recording whose bytes are as they should be, and whose content is whatever can be written.
#![no_main]

use std::cell::RefCell;

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use offwake_fuzz::content::slices;
use offwake_recording::stream::{self, END, Encoder};

thread_local! {
    /// Making one takes longer than all the rest.
    static ENCODER: RefCell<Encoder> =
        RefCell::new(Encoder::new().expect("the schema is always the same"));
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(slices) = slices(&mut Unstructured::new(bytes)) else { return };
    let recording = ENCODER.with_borrow_mut(|encoder| {
        let mut recording = encoder.header().to_vec();
        for slice in &slices {
            recording.extend(encoder.encode(slice).expect("no slice is that large"));
        }
        recording.extend(END);
        recording
    });
    let recording = stream::read(&recording[..], offwake_fuzz::MEMORY).expect("it is whole");
    assert_eq!(recording.damage.tables_damaged, 0);
    offwake_fuzz::report(&recording);
});
