//! Objects in the heap of a JVM: their classes, and where these have their fields.
//!
//! ```text
//! object ──_klass──▶ InstanceKlass ──_super──▶ InstanceKlass "…/AbstractOwnableSynchronizer"
//!                                                  └── fields: "exclusiveOwnerThread" at 12
//! ```
//!
//! What is read is believed by its names alone: of a pointer that may have 32 bits or 64, the one counts
//! that leads to a class of the wanted name.

use crate::symbols::python::memory::Memory;

use super::structs::{FieldTable, HeapStructs, NarrowPointers, ThreadObject};

/// Classes above another that are looked at.
const MAX_SUPERCLASSES: usize = 32;
/// Fields of a class that are looked at.
const MAX_FIELDS: u64 = 512;
/// Bytes of the packed description of a class's fields.
const MAX_STREAM: usize = 8 << 10;
/// No object that is read here is longer.
const MAX_OBJECT: u64 = 4 << 10;

/// How an object has a pointer to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PointerForm {
    /// In 32 bits (`UseCompressedOops`).
    Narrow,
    /// In 64.
    Wide,
}

impl PointerForm {
    /// Returns how many bytes such a pointer has.
    pub(super) fn size(self) -> u64 {
        match self {
            Self::Narrow => 4,
            Self::Wide => 8,
        }
    }
}

/// Reads objects of a JVM.
pub(super) struct Heap<'a, M> {
    pub(super) structs: &'a HeapStructs,
    pub(super) memory: &'a M,
}

impl<M: Memory> Heap<'_, M> {
    fn word_at(&self, base: u64, offset: u64) -> Option<u64> {
        self.memory.word(base.checked_add(offset)?)
    }

    fn quarter_at(&self, base: u64, offset: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        self.memory.read(base.checked_add(offset)?, &mut bytes)?;
        Some(u16::from_le_bytes(bytes))
    }

    /// Returns the object that a `JavaThread` is for the program.
    pub(super) fn object_of_thread(&self, thread: u64) -> Option<u64> {
        let object = match self.structs.thread_object {
            ThreadObject::Address(offset) => self.word_at(thread, offset)?,
            ThreadObject::Handle { handle } => self.memory.word(self.word_at(thread, handle)?)?,
        };
        (object != 0).then_some(object)
    }

    /// Reads a pointer to an object; none for null.
    pub(super) fn pointer(&self, address: u64, form: PointerForm) -> Option<u64> {
        let pointer = match form {
            PointerForm::Wide => self.memory.word(address)?,
            PointerForm::Narrow => match self.memory.half(address)? {
                0 => 0,
                narrow => self.widen(narrow, self.structs.narrow_objects)?,
            },
        };
        (pointer != 0).then_some(pointer)
    }

    fn widen(&self, narrow: u32, NarrowPointers { base, shift }: NarrowPointers) -> Option<u64> {
        let shift = self.memory.half(shift)?;
        let offset = u64::from(narrow).checked_shl(shift).filter(|_| shift < 32)?;
        self.memory.word(base)?.checked_add(offset)
    }

    /// Finds the class of a name among that of an object and those above it.
    pub(super) fn find_class(&self, object: u64, name: &str) -> Option<u64> {
        let place = object.checked_add(self.structs.class)?;
        let narrow = || self.widen(self.memory.half(place)?, self.structs.narrow_classes);
        let of = |class: Option<u64>| self.find_superclass(class?, name);
        of(narrow()).or_else(|| of(self.memory.word(place)))
    }

    fn find_superclass(&self, class: u64, name: &str) -> Option<u64> {
        std::iter::successors(Some(class), |&class| self.word_at(class, self.structs.superclass))
            .take_while(|&class| class != 0)
            .take(MAX_SUPERCLASSES)
            .find(|&class| {
                let symbol = self.word_at(class, self.structs.class_name);
                symbol.is_some_and(|symbol| self.is_named(symbol, name))
            })
    }

    fn is_named(&self, symbol: u64, name: &str) -> bool {
        let length = self.quarter_at(symbol, self.structs.name_length);
        if length.map(usize::from) != Some(name.len()) {
            return false;
        }
        let mut text = vec![0; name.len()];
        let place = symbol.checked_add(self.structs.name_text);
        place.and_then(|place| self.memory.read(place, &mut text)).is_some()
            && text == name.as_bytes()
    }

    /// Finds where the objects of a class have a field that this class declares.
    pub(super) fn find_field(&self, class: u64, name: &str) -> Option<u64> {
        let constants = self.word_at(class, self.structs.constants)?;
        let is_named = |index: u64| {
            let place = index.checked_mul(8)?.checked_add(self.structs.first_constant)?;
            Some(self.is_named(self.word_at(constants, place)?, name))
        };
        let offset = match self.structs.fields {
            FieldTable::Array { fields, count, data } => {
                let fields = self.word_at(class, fields)?.checked_add(data)?;
                let count = u64::from(self.quarter_at(class, count)?).min(MAX_FIELDS);
                self.find_in_array(fields, count, is_named)?
            }
            FieldTable::Stream { stream, data } => {
                let array = self.word_at(class, stream)?;
                let length = self.memory.half(array.checked_add(self.structs.array_length)?)?;
                let length = usize::try_from(length).ok().filter(|&it| it <= MAX_STREAM)?;
                let mut bytes = vec![0; length];
                self.memory.read(array.checked_add(data)?, &mut bytes)?;
                find_in_stream(&bytes, is_named)?
            }
        };
        (offset < MAX_OBJECT).then_some(offset)
    }

    /// Finds the offset of a field in an array of six numbers for each: flags, name, signature, value, and
    /// the offset in two, above two bits that say that it is one
    /// ([`FieldInfo`](https://github.com/openjdk/jdk17u/blob/jdk-17.0.15%2B6/src/hotspot/share/oops/fieldInfo.hpp)).
    fn find_in_array(
        &self,
        fields: u64,
        count: u64,
        is_named: impl Fn(u64) -> Option<bool>,
    ) -> Option<u64> {
        /// The field is the JVM's own, and its name no constant of the class.
        const INTERNAL: u16 = 0x400;
        const TAG_BITS: u32 = 2;
        const TAG: u16 = 3;
        const IS_OFFSET: u16 = 1;

        for index in 0..count {
            let at = |number: u64| self.quarter_at(fields, 12 * index + 2 * number);
            let (flags, name, low, high) = (at(0)?, at(1)?, at(4)?, at(5)?);
            if flags & INTERNAL == 0 && low & TAG == IS_OFFSET && is_named(u64::from(name))? {
                return Some((u64::from(high) << 16 | u64::from(low)) >> TAG_BITS);
            }
        }
        None
    }
}

/// Finds the offset of a field in packed numbers: how many fields there are and how many of the JVM's own,
/// and for each its name, signature, offset, flags and kinds, and what the kinds say that there is besides
/// ([`FieldInfoReader`](https://github.com/openjdk/jdk25u/blob/jdk-25%2B36/src/hotspot/share/oops/fieldInfo.inline.hpp)).
fn find_in_stream(bytes: &[u8], is_named: impl Fn(u64) -> Option<bool>) -> Option<u64> {
    /// The kinds of fields with one more number each: with a value, with a generic signature, contended.
    const WITH_MORE: [u32; 3] = [1, 4, 16];

    let mut numbers = PackedNumbers(bytes);
    let (count, _of_jvm) = (numbers.next()?, numbers.next()?);
    for _ in 0..u64::from(count).min(MAX_FIELDS) {
        let name = numbers.next()?;
        let (_signature, offset, _flags, kinds) =
            (numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?);
        for _ in WITH_MORE.iter().filter(|&&kind| kinds & kind != 0) {
            numbers.next()?;
        }
        if is_named(u64::from(name))? {
            return Some(u64::from(offset));
        }
    }
    None
}

/// Numbers of one to five bytes
/// ([`UNSIGNED5`](https://github.com/openjdk/jdk25u/blob/jdk-25%2B36/src/hotspot/share/utilities/unsigned5.hpp)).
struct PackedNumbers<'a>(&'a [u8]);

impl Iterator for PackedNumbers<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        /// No byte is zero.
        const EXCLUDED: u32 = 1;
        /// A byte below this is the last one.
        const LOW: u32 = 191;
        const BITS: u32 = 6;
        const MAX_BYTES: u32 = 5;

        let mut sum = 0_u32;
        for place in 0..MAX_BYTES {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let digit = u32::from(byte).checked_sub(EXCLUDED)?;
            sum = sum.wrapping_add(digit.wrapping_shl(BITS * place));
            if digit < LOW {
                break;
            }
        }
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::{PackedNumbers, find_in_stream};

    #[test]
    fn numbers_are_packed_with_six_more_bits_in_each_byte() {
        let unpack = |bytes: &[u8]| PackedNumbers(bytes).collect::<Vec<_>>();
        assert_eq!(unpack(&[1, 2, 191]), [0, 1, 190]);
        // 191 = 191 + 0 * 64, 255 = 191 + 1 * 64.
        assert_eq!(unpack(&[192, 1]), [191]);
        assert_eq!(unpack(&[192, 2, 6]), [255, 5]);
        assert_eq!(unpack(&[255, 255, 2]), [254 + (254 << 6) + (1 << 12)]);
        assert_eq!(unpack(&[255; 5]).len(), 1);
        for torn in [&[0_u8][..], &[192], &[255; 4]] {
            assert_eq!(unpack(torn), [0_u32; 0]);
        }
    }

    #[test]
    fn a_field_is_found_behind_fields_that_say_more() {
        let pack = |numbers: &[u8]| numbers.iter().map(|number| number + 1).collect::<Vec<u8>>();
        let fields = [
            &[3, 1][..],
            // Name, signature, offset, flags, kinds; with a value, a generic signature, and a group.
            &[10, 1, 100, 2, 1 | 4 | 16, 7, 8, 9],
            &[11, 1, 104, 2, 8],
            &[12, 1, 108, 2, 0],
        ]
        .concat();
        let find = |bytes: &[u8], wanted: u64| find_in_stream(bytes, |name| Some(name == wanted));
        let packed = pack(&fields);
        assert_eq!([10, 11, 12].map(|name| find(&packed, name)), [100, 104, 108].map(Some));
        assert_eq!(find(&packed, 100), None);
        for end in 0..packed.len() - 5 {
            assert_eq!(find(&packed[..end], 12), None, "{end}");
        }
    }
}
