//! Tables → Parquet.

use std::io;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, Encoding, ZstdLevel},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{WriterProperties, WriterPropertiesBuilder},
    },
    schema::types::ColumnPath,
};

use super::{Export, Partition, Table};

/// What of a file is in memory at a time, encoded.
const ROWS_OF_A_GROUP: usize = 128 * 1024;
const BYTES_OF_A_GROUP: usize = 128 << 20;

/// A group's distinct stacks take some MiB of text. Where they don't fit, each row has its own.
const BYTES_OF_A_DICTIONARY: usize = 16 << 20;

/// Says which version of the layout a file is of.
const LAYOUT_KEY: &str = "offwake.export";
const LAYOUT_VERSION: &str = "2";

/// Writes a part of a table as a Parquet file, and says how many rows it has.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    export: &Export<'_>,
    table: Table,
    part: &Partition,
    out: &mut (dyn io::Write + Send),
) -> io::Result<u64> {
    let schema = table.schema().map_err(arrow_error)?;
    write_batches(schema, export.batches(table, part), out)
}

/// Writes batches of rows as a Parquet file, and says how many rows it has.
pub(super) fn write_batches(
    schema: SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
    out: &mut (dyn io::Write + Send),
) -> io::Result<u64> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROWS_OF_A_GROUP))
        .set_max_row_group_bytes(Some(BYTES_OF_A_GROUP))
        .set_key_value_metadata(Some(vec![KeyValue::new(
            LAYOUT_KEY.to_owned(),
            LAYOUT_VERSION.to_owned(),
        )]));
    for field in schema.fields() {
        properties = encoded(properties, field.name(), field.data_type());
    }
    // Without it readers go by the columns' own types. With it some make of each text column one of
    // categories, which can't be put together with those of another file.
    let options = ArrowWriterOptions::new()
        .with_properties(properties.build())
        .with_skip_arrow_metadata(true);
    let mut writer =
        ArrowWriter::try_new_with_options(out, schema, options).map_err(parquet_error)?;
    let mut rows = 0;
    for batch in batches {
        let batch = batch.map_err(arrow_error)?;
        rows += batch.num_rows() as u64;
        writer.write(&batch).map_err(parquet_error)?;
    }
    writer.close().map_err(parquet_error)?;
    Ok(rows)
}

fn encoded(
    properties: WriterPropertiesBuilder,
    name: &str,
    kind: &DataType,
) -> WriterPropertiesBuilder {
    let column = ColumnPath::from(name);
    match kind {
        // Hardly any comes twice, and each lies near the one before.
        DataType::Int64 | DataType::Timestamp(..) => deltas(properties, column),
        // It counts up.
        _ if name == "seq" => deltas(properties, column),
        DataType::Dictionary(..) => {
            properties.set_column_dictionary_page_size_limit(column, BYTES_OF_A_DICTIONARY)
        }
        _ => properties,
    }
}

fn deltas(properties: WriterPropertiesBuilder, column: ColumnPath) -> WriterPropertiesBuilder {
    properties
        .set_column_dictionary_enabled(column.clone(), false)
        .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
}

fn arrow_error(error: ArrowError) -> io::Error {
    io::Error::other(error)
}

/// What was wrong with the output is said as its own error says it.
fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        error => io::Error::other(error),
    }
}
