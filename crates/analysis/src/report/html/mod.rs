//! One page that holds everything: no network, no other file.
//!
//! ```text
//! Report ── worst, ledgers, flame, waits, graphs ──┐
//! Blame ─┬─ Lanes ── timeline ─────────────────────┼─▶ JSON ─┐
//!        └─ Requests ─────────────────────────────┘         │
//! assets/*.js, *.css ────────────────────────────────────────┴─▶ one file
//! ```
//!
//! Everything is added up and limited here; the page only draws. `docs/html.md` has the limits. Names
//! from other programs are in the JSON alone, which can't end its element, and the page makes text
//! nodes of them.

mod assets;
mod box_sums;
mod chain_tree;
mod class;
mod flame;
mod graph;
mod lanes;
mod ledger;
mod page;
mod requests;
mod texts;
mod timeline;
mod waits;

use std::io;

use assets::{Assets, csp_hash};
pub(crate) use lanes::LanePlan;
pub use lanes::Lanes;

use super::Report;
use crate::requests::Requests;

/// Bytes that a page never exceeds, whatever was recorded.
pub const MAX_PAGE_BYTES: usize = 8_000_000;

/// Writes the page. The lanes and the requests have to be of the report's recording.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    report: &Report,
    lanes: &Lanes,
    requests: &Requests,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let Assets { style, library, code } = Assets::new();
    // In a script element nothing but `<` can begin its end.
    let data =
        serde_json::to_string(&page::build_page(report, lanes, requests))?.replace('<', "\\u003c");
    let policy = format!(
        "default-src 'none'; script-src {} {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        csp_hash(&library),
        csp_hash(&code),
        csp_hash(style),
    );
    let shell = include_str!("assets/page.html");
    let parts = [
        ("{{policy}}", policy.as_str()),
        ("{{style}}", style),
        ("{{data}}", &data),
        ("{{library}}", &library),
        ("{{code}}", &code),
    ];
    let mut rest = shell;
    for (mark, content) in parts {
        let Some((before, after)) = rest.split_once(mark) else {
            return Err(io::Error::other(format!("the page has no {mark}")));
        };
        out.write_all(before.as_bytes())?;
        out.write_all(content.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}
