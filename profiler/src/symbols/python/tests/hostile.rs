//! Memory that holds anything.

use offwake_recording::units::{Tgid, Tid};
use proptest::prelude::*;

use super::{
    super::{
        code::{CodeNames, Named},
        debug_offsets,
        image::NotFound,
        interpreter::Captured,
        memory::Memory,
        threads::{Tasks, thread_states},
        version::Version,
    },
    fake::{FakeMemory, RUNTIME, interpreter},
};

/// Every byte of it is readable, and is what a seed makes of its address.
struct Noise(u64);

impl Memory for Noise {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        for (index, byte) in (0..).zip(into) {
            let mixed = address.wrapping_add(index).wrapping_mul(self.0 | 1);
            *byte = (mixed >> 56) as u8;
        }
        Some(())
    }
}

/// The same word, everywhere.
struct Constant(u64);

impl Memory for Constant {
    fn read(&self, _address: u64, into: &mut [u8]) -> Option<()> {
        let bytes = self.0.to_le_bytes();
        into.iter_mut().zip(bytes.iter().cycle()).for_each(|(byte, other)| *byte = *other);
        Some(())
    }
}

fn check(memory: &impl Memory, frame: Captured) {
    let tasks: Tasks = (0..256).map(|own| (own, Tid(own))).collect();
    for minor in 9..13 {
        let interpreter = interpreter(minor);
        let _any = thread_states(&interpreter, memory, &tasks);
        let mut names = CodeNames::default();
        for _ in 0..2 {
            let _any = names.name(Tgid(1), &interpreter, memory, &frame);
        }
    }
    for minor in [13, 14, 15] {
        let version = Version::python3(minor);
        assert!(debug_offsets::read(memory, RUNTIME, version).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_that_memory_holds_does_harm(
        seed in any::<u64>(),
        word in prop_oneof![0..4096_u64, any::<u64>()],
        code in any::<u64>(),
        instruction in any::<u64>(),
        marks in any::<u64>(),
    ) {
        let frame = Captured { code, instruction, marks };
        check(&Noise(seed), frame);
        check(&Constant(word), frame);
    }

    #[test]
    fn a_table_of_offsets_is_used_only_if_it_can_be(
        words in prop::collection::vec(
            prop_oneof![0..128_u64, 0..5000_u64, any::<u64>()],
            128,
        ),
        minor in 13..=14_u8,
    ) {
        let mut memory = FakeMemory::default();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.write(RUNTIME, &bytes);
        memory.write(RUNTIME, b"xdebugpy");
        memory.write_word(RUNTIME + 8, u64::from(minor) << 16 | 0x0300_00f0);
        memory.write_word(RUNTIME + 16, 0);
        let version = Version::python3(minor);
        match debug_offsets::read(&memory, RUNTIME, version) {
            Ok(offsets) => {
                if let Some(layout) = offsets.layout() {
                    let words = [layout.previous, layout.code, layout.instruction, layout.marks];
                    prop_assert!(words.iter().all(|&word| word < layout.frame_words));
                    prop_assert!(layout.frame_words <= 16);
                }
            }
            Err(error) => prop_assert_eq!(error, NotFound::BadLayout(version)),
        }
        memory.write_word(RUNTIME + 16, 1);
        let error = debug_offsets::read(&memory, RUNTIME, version);
        prop_assert_eq!(error, Err(NotFound::FreeThreaded(version)));
    }
}

#[test]
fn what_is_no_code_object_has_no_name() {
    let interpreter = interpreter(11);
    let mut memory = FakeMemory::default();
    let frame = Captured { code: 0x5000, instruction: 0x5000 + 184, marks: 0 };
    let name = |memory: &FakeMemory, frame: &Captured| {
        CodeNames::default().name(Tgid(1), &interpreter, memory, frame)
    };
    assert_eq!(name(&memory, &frame), Named::Unknown);
    // Of ten code units, the first of them the function's own.
    memory.write(0x5000, &[0; 256]);
    memory.write_word(0x5000 + 16, 10);
    memory.write_word(0x5000 + 112, 0x6000);
    memory.write_word(0x5000 + 128, 0x6000);
    memory.write(0x6000, &[0; 48]);
    memory.write(0x6000 + 32, &(1_u32 << 2 | 1 << 5 | 1 << 6).to_le_bytes());
    memory.write_word(0x6000 + 16, 1);
    memory.write(0x6000 + 48, b"f");
    assert!(matches!(name(&memory, &frame), Named::Function(found) if found.name == "f"));
    // Behind its end, and before its beginning.
    for instruction in [frame.instruction + 20, frame.instruction - 4, 0] {
        assert_eq!(name(&memory, &Captured { instruction, ..frame }), Named::Unknown);
    }
    let begins = Captured { instruction: frame.instruction - 2, ..frame };
    assert_eq!(name(&memory, &begins), Named::NotShown);
}
