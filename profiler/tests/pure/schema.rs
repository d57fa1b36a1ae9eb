//! The JSON schema of the report, as it is published. `tests/tests/readers.rs` validates reports by it.

use offwake_analysis::formats::json;

use crate::golden::golden;

/// `cargo xtask bless` writes it anew, or `OFFWAKE_BLESS=1 cargo test --package offwake golden_schema`.
#[test]
fn the_golden_schema_is_that_of_the_reports_type() {
    let text = serde_json::to_string_pretty(&json::schema()).unwrap() + "\n";
    golden("../../../docs/report.schema.json", &text);
}
