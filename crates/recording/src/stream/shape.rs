//! Whether a record batch has what its schema says, told before any of it is decoded: the library
//! that decodes it panics at some of what a broken file can say.

use arrow_ipc::{FieldNode, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

/// Lists in tables in a list: no field of this format lies deeper.
const MAX_DEPTH: usize = 4;

/// Whether a field has one of the types that this format is made of. Others could claim lengths that
/// no bytes stand for.
pub(super) fn is_known(field: &Field, depth: usize) -> bool {
    use DataType::{
        Boolean, FixedSizeList, Int64, List, Struct, UInt8, UInt16, UInt32, UInt64, Utf8,
    };
    if depth > MAX_DEPTH {
        return false;
    }
    match field.data_type() {
        Boolean | UInt8 | UInt16 | UInt32 | UInt64 | Int64 | Utf8 => true,
        List(item) => is_known(item, depth + 1),
        FixedSizeList(item, size) => *size > 0 && is_known(item, depth + 1),
        Struct(fields) => {
            !fields.is_empty() && fields.iter().all(|field| is_known(field, depth + 1))
        }
        _ => false,
    }
}

/// Bytes that each buffer of a record batch has when it is decompressed. None if it says what can't
/// be.
pub(super) fn buffer_sizes(batch: RecordBatch<'_>, body: &[u8]) -> Option<Vec<u64>> {
    let is_compressed = batch.compression().is_some();
    let size = |buffer: &arrow_ipc::Buffer| {
        let offset = usize::try_from(buffer.offset()).ok()?;
        let length = usize::try_from(buffer.length()).ok()?;
        let bytes = body.get(offset..offset.checked_add(length)?)?;
        if !is_compressed || bytes.is_empty() {
            return Some(length as u64);
        }
        // <https://arrow.apache.org/docs/format/Columnar.html#compression>
        const AS_IT_IS: i64 = -1;
        match i64::from_le_bytes(*bytes.first_chunk()?) {
            AS_IT_IS => Some(length as u64 - 8),
            claim => u64::try_from(claim).ok(),
        }
    };
    batch.buffers()?.iter().map(size).collect()
}

/// Whether a record batch has all the parts that the schema wants, each large enough.
pub(super) fn fits(schema: &Schema, batch: RecordBatch<'_>, sizes: &[u64]) -> bool {
    let Some(nodes) = batch.nodes() else { return false };
    let mut parts = Parts { nodes: nodes.iter(), sizes: sizes.iter().copied() };
    schema.fields().iter().all(|field| parts.admit_field(field).is_some())
}

/// The parts of a record batch in the order of the schema, each field's own before its children's.
struct Parts<N, S> {
    nodes: N,
    sizes: S,
}

impl<'a, N: Iterator<Item = &'a FieldNode>, S: Iterator<Item = u64>> Parts<N, S> {
    /// Takes those of a field. None if they don't fit.
    fn admit_field(&mut self, field: &Field) -> Option<()> {
        let node = self.nodes.next()?;
        let rows = u64::try_from(node.length()).ok()?;
        let nulls = u64::try_from(node.null_count()).ok().filter(|nulls| *nulls <= rows)?;
        self.at_least(if nulls > 0 { rows.div_ceil(8) } else { 0 })?;
        match field.data_type() {
            DataType::Boolean => self.at_least(rows.div_ceil(8)).map(drop),
            DataType::Utf8 => {
                self.offsets(rows)?;
                self.at_least(0).map(drop)
            }
            DataType::List(item) => {
                self.offsets(rows)?;
                self.admit_field(item)
            }
            DataType::FixedSizeList(item, _) => self.admit_field(item),
            DataType::Struct(fields) => fields.iter().try_for_each(|field| self.admit_field(field)),
            number => {
                let width = number.primitive_width()? as u64;
                let size = self.at_least(rows.checked_mul(width)?)?;
                size.is_multiple_of(width).then_some(())
            }
        }
    }

    fn offsets(&mut self, rows: u64) -> Option<()> {
        const WIDTH: u64 = size_of::<i32>() as u64;
        let needed = if rows == 0 { 0 } else { rows.checked_add(1)?.checked_mul(WIDTH)? };
        self.at_least(needed)?.is_multiple_of(WIDTH).then_some(())
    }

    fn at_least(&mut self, needed: u64) -> Option<u64> {
        self.sizes.next().filter(|size| *size >= needed)
    }
}
