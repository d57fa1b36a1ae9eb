//! `docs/format.md` says of every table what it has: no more, no less, and in this order.

use std::collections::BTreeMap;

use arrow_schema::{DataType, Field, Fields, TimeUnit};
use offwake_recording::{
    AddressKind, Begin, ClosedBy, DetailStep, DeviceKind, End, FileKind, FileLockEventKind,
    LockKind, MarkerKind, Phase, PipeEnds, Scope, SocketRole, StackEnd, StackMode, SystemVector,
    ThreadEventReason, ThreadKind, UnansweredKind,
    stream::{
        self,
        code::{Code, ContextKind},
    },
};

use super::Table;

const DOCUMENT: &str = include_str!("../../../../docs/format.md");

/// The rows of the tables below each heading, as cells without their backquotes.
fn documented() -> BTreeMap<&'static str, Vec<Vec<String>>> {
    let mut tables: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut heading = "";
    for line in DOCUMENT.lines() {
        if let Some(text) = line.strip_prefix("### ") {
            heading = text;
        } else if let Some(row) = line.strip_prefix("| `") {
            let cells = row.split('|').map(|cell| cell.trim().replace('`', "")).collect();
            tables.entry(heading).or_default().push(cells);
        }
    }
    tables
}

/// What the document should say of these columns.
fn expected(fields: &Fields) -> Vec<[String; 3]> {
    let nulls = |field: &Field| if field.is_nullable() { "yes" } else { "no" };
    (fields.iter())
        .map(|field| [field.name().clone(), type_of(field.data_type()), nulls(field).to_owned()])
        .collect()
}

fn type_of(kind: &DataType) -> String {
    let name = match kind {
        DataType::Boolean => "bool",
        DataType::UInt8 => "u8",
        DataType::UInt16 => "u16",
        DataType::UInt32 => "u32",
        DataType::UInt64 => "u64",
        DataType::Int64 => "i64",
        DataType::Utf8 => "text",
        DataType::Dictionary(_, texts) => return type_of(texts),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == "UTC" => "timestamp",
        DataType::FixedSizeList(item, length) => {
            return format!("{length} × {}", type_of(item.data_type()));
        }
        DataType::List(item) if matches!(item.data_type(), DataType::Struct(_)) => "rows",
        DataType::List(item) => return format!("list of {}", type_of(item.data_type())),
        other => panic!("a column of {other}"),
    };
    name.to_owned()
}

#[track_caller]
fn assert_documented(heading: &str, fields: &Fields) {
    let documented = documented();
    let rows = documented.get(heading).unwrap_or_else(|| panic!("no heading {heading}"));
    let said: Vec<_> = rows.iter().map(|row| [0, 1, 2].map(|n| row[n].clone())).collect();
    assert_eq!(said, expected(fields), "docs/format.md, {heading}");
}

#[test]
fn the_document_has_every_column_of_a_recording() {
    let schema = stream::schema().unwrap();
    assert_documented("Columns of a slice", schema.fields());
    let mut tables = 0;
    for field in schema.fields() {
        if let DataType::List(item) = field.data_type()
            && let DataType::Struct(columns) = item.data_type()
        {
            assert_documented(&format!("`{}`", field.name()), columns);
            tables += 1;
        }
    }
    let headings = documented().into_keys().filter(|heading| heading.starts_with('`')).count();
    assert_eq!(tables, headings, "a table is documented that is not there");
}

#[test]
fn the_document_has_every_column_of_the_export() {
    for table in Table::ALL {
        let heading = format!("Parquet `{}`", table.name());
        assert_documented(&heading, table.schema().unwrap().fields());
    }
    let headings = documented().into_keys().filter(|heading| heading.starts_with("Parquet "));
    assert_eq!(headings.count(), Table::ALL.len(), "a table is documented that is not there");
}

#[test]
fn the_document_has_every_code() {
    fn words<T: Code>(name: &str) -> Vec<String> {
        let words: Vec<_> = T::VARIANTS.iter().map(|value| value.text()).collect();
        vec![name.to_owned(), words.join(" ")]
    }
    let expected = [
        words::<ThreadKind>("thread_kind"),
        words::<Begin>("begin"),
        words::<End>("end"),
        words::<ContextKind>("wake_context"),
        words::<SystemVector>("system_vector"),
        words::<FileKind>("file_kind"),
        words::<SocketRole>("socket_role"),
        words::<DeviceKind>("device_kind"),
        words::<ThreadEventReason>("sighting_reason"),
        words::<Phase>("phase"),
        words::<Scope>("scope"),
        words::<StackMode>("stack_mode"),
        words::<StackEnd>("stack_end"),
        words::<DetailStep>("detail_step"),
        words::<ClosedBy>("closed_by"),
        words::<AddressKind>("address_kind"),
        words::<LockKind>("lock_kind"),
        words::<PipeEnds>("pipe_ends"),
        words::<UnansweredKind>("unanswered_kind"),
        words::<MarkerKind>("marker_kind"),
        words::<FileLockEventKind>("file_lock_event_kind"),
    ];
    let documented = documented();
    let said: Vec<_> = documented["Codes"].iter().map(|row| row[..2].to_vec()).collect();
    assert_eq!(said, expected);
}
