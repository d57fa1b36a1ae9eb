//! What rows will take in memory, told before they are made, and what texts will take in a slice.

use arrow_array::{Array as _, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::{slice::Slice, tables::Named};
use crate::{TagSet, memory::OWNED};

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

/// Rows of names that go into one slice.
const NAMES_IN_A_SLICE: usize = 50_000;
/// Bytes of them that go into one slice before they are compressed. Most slices of names have some
/// 5 MiB; readers take 512 MiB.
const NAME_BYTES_IN_A_SLICE: u64 = 64 << 20;

/// How many of these names go into one slice, from the first on: one at least, if there is one.
#[must_use]
pub fn count_fitting_names(names: &[Named]) -> usize {
    let mut bytes = 0;
    let fits = |named: &&Named| {
        bytes += measure_named(named);
        bytes <= NAME_BYTES_IN_A_SLICE
    };
    let fitting = names.iter().take(NAMES_IN_A_SLICE).take_while(fits).count();
    fitting.max(1).min(names.len())
}

/// Bytes that a frame's functions take in a slice. A source file is repeated for each of them.
fn measure_named((_, functions): &Named) -> u64 {
    let measure = |text: &str| (text.len() + size_of::<u32>()) as u64;
    let each = functions.iter().map(|function| {
        measure(&function.name) + measure(function.file.as_deref().unwrap_or_default()) + 4
    });
    16 + each.sum::<u64>()
}

/// Bytes of the texts of a slice that can be of any number and length: others say how long they are.
pub(super) fn measure_texts(slice: &Slice) -> u64 {
    let names: u64 = slice.names.iter().map(measure_named).sum();
    let arguments = slice.processes.iter().flat_map(|process| &process.arguments);
    let paths = slice.modules.iter().map(|(_, module)| &module.path);
    let tags = slice.tag_sets.iter().flat_map(TagSet::texts);
    let markers: usize =
        slice.markers.iter().map(|marker| marker.track.len() + marker.name.len()).sum();
    let texts = arguments.chain(paths).chain(tags).map(|text| text.len() as u64);
    markers as u64 + names + texts.sum::<u64>()
}
