//! The JSON schema of the report, as it is published. `tests/tests/readers.rs` validates reports by it.

use offwake_analysis::{formats::json, requests::Requests};

use crate::golden::golden;

/// `cargo xtask bless` writes it anew, or `OFFWAKE_BLESS=1 cargo test --package offwake golden_schema`.
#[test]
fn the_golden_schemas_are_those_of_the_reports_types() {
    for (name, schema) in [
        ("report.schema.json", json::schema()),
        ("report-full.schema.json", json::full_schema()),
        ("requests.schema.json", Requests::json_schema_root()),
    ] {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        golden(&format!("../../../docs/{name}"), &text);
    }
}
