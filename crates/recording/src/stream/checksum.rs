//! A checksum of a column's content.
//!
//! It is of what the column says, not of the bytes in the file: a reader computes it from what it
//! has decoded, so that nothing that went wrong on the way, in the file, in its metadata or in the
//! decompression, goes unseen.

use std::hash::Hasher as _;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, bit_chunk_iterator::BitChunks};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use twox_hash::XxHash3_64;

/// XXH3 of a column's name and content.
pub(super) fn checksum_column(name: &str, column: &ArrayRef) -> u64 {
    let mut hasher = XxHash3_64::with_seed(0);
    hasher.write(name.as_bytes());
    add(&column.to_data(), &mut hasher);
    hasher.finish()
}

fn add(data: &ArrayData, hasher: &mut XxHash3_64) {
    hasher.write(&(data.len() as u64).to_le_bytes());
    // A column without nulls may have a bitmap that says so, or none.
    if let Some(nulls) = data.nulls().filter(|nulls| nulls.null_count() > 0) {
        add_bits(nulls.inner(), hasher);
    }
    let (from, count) = (data.offset(), data.len());
    match data.data_type() {
        DataType::Boolean => {
            if let Some(values) = data.buffers().first() {
                add_bits(&BooleanBuffer::new(values.clone(), from, count), hasher);
            }
        }
        DataType::Utf8 | DataType::List(_) => {
            let offsets =
                data.buffers().first().map_or(&[][..], |buffer| buffer.typed_data::<i32>());
            let offsets = offsets.get(from..=from + count).unwrap_or_default();
            let first = offsets.first().copied().unwrap_or(0);
            for offset in offsets {
                hasher.write(&offset.wrapping_sub(first).to_le_bytes());
            }
            let last = offsets.last().copied().unwrap_or(0);
            let range = usize::try_from(first).unwrap_or(0)..usize::try_from(last).unwrap_or(0);
            if let Some(texts) = data.buffers().get(1) {
                hasher.write(texts.as_slice().get(range).unwrap_or_default());
            } else if let Some(items) = data.child_data().first()
                && range.start <= range.end
                && range.end <= items.len()
            {
                add(&items.slice(range.start, range.end - range.start), hasher);
            }
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            if let Some(items) = data.child_data().first()
                && (from + count) * size <= items.len()
            {
                add(&items.slice(from * size, count * size), hasher);
            }
        }
        DataType::Struct(_) => {
            for column in data.child_data() {
                if from + count <= column.len() {
                    add(&column.slice(from, count), hasher);
                }
            }
        }
        other => {
            let width = other.primitive_width().unwrap_or(0);
            if let Some(values) = data.buffers().first() {
                let bytes = values.as_slice().get(from * width..(from + count) * width);
                hasher.write(bytes.unwrap_or_default());
            }
        }
    }
}

fn add_bits(bits: &BooleanBuffer, hasher: &mut XxHash3_64) {
    let chunks = BitChunks::new(bits.values(), bits.offset(), bits.len());
    for chunk in chunks.iter_padded() {
        hasher.write(&chunk.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringArray, UInt32Array};

    use super::checksum_column;

    fn numbers(numbers: &[Option<u32>]) -> ArrayRef {
        Arc::new(UInt32Array::from(numbers.to_vec()))
    }

    #[test]
    fn every_part_of_a_column_counts() {
        let plain = checksum_column("a", &numbers(&[Some(1), Some(2)]));
        assert_eq!(plain, checksum_column("a", &numbers(&[Some(1), Some(2)])));
        assert_ne!(plain, checksum_column("b", &numbers(&[Some(1), Some(2)])));
        assert_ne!(plain, checksum_column("a", &numbers(&[Some(1), Some(3)])));
        assert_ne!(plain, checksum_column("a", &numbers(&[Some(1), None])));
        assert_ne!(plain, checksum_column("a", &numbers(&[Some(1)])));
        let texts = |texts: &[&str]| {
            checksum_column("a", &(Arc::new(StringArray::from(texts.to_vec())) as ArrayRef))
        };
        assert_ne!(texts(&["ab", "c"]), texts(&["a", "bc"]));
    }

    #[test]
    fn where_the_column_lies_in_memory_does_not_count() {
        let long = numbers(&[Some(7), None, Some(1), None, Some(2), Some(9)]);
        let part = numbers(&[Some(1), None, Some(2)]);
        assert_eq!(checksum_column("a", &long.slice(2, 3)), checksum_column("a", &part));
    }
}
