//! What rows will take in memory, told before they are made.

use arrow_array::{Array as _, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;

/// A text's or a list's own part, the allocator's included.
const OWNED: usize = 40;
/// Memory for one byte of a number: a missing value has its flag, and a map's nodes can be half
/// empty.
const SPREAD: usize = 2;

/// Bytes that all rows of a slice take at most.
pub(super) fn measure_rows(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| measure_data(&column.to_data())).sum()
}

fn measure_data(data: &ArrayData) -> usize {
    let children = || data.child_data().iter().map(measure_data).sum::<usize>();
    match data.data_type() {
        DataType::Utf8 => data.len() * OWNED + data.buffers().get(1).map_or(0, |text| text.len()),
        DataType::List(_) => data.len() * OWNED + children(),
        DataType::Struct(_) | DataType::FixedSizeList(..) => children(),
        number => data.len() * number.primitive_width().unwrap_or(1) * SPREAD,
    }
}
