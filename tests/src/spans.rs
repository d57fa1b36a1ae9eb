//! The spans as their contract has them. Keys that are not in the contract are passed over.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::intervals::Interval;

/// The schema that the contract is of.
pub const SCHEMA: &str = "offwake.spans/1";

/// All of them.
#[derive(Clone, Debug, Deserialize)]
pub struct Spans {
    /// [`SCHEMA`].
    pub schema: String,
    /// What is missing, by reason.
    pub left_out: BTreeMap<String, u64>,
    /// The spans.
    pub spans: Vec<Span>,
}

/// One span of the output.
#[derive(Clone, Debug, Deserialize)]
pub struct Span {
    /// The trace that the span belongs to.
    pub trace_id: String,
    /// The span's id.
    pub span_id: String,
    /// The span that it is a part of.
    pub parent_span_id: Option<String>,
    /// `client`, `server` or `internal`.
    pub kind: String,
    /// What it is best known by.
    pub name: String,
    /// `ok`, `exited`, …
    pub status: String,
    /// The exit code, if the span's end is `exited`.
    pub exit_code: Option<u8>,
    /// The signal, if the span's end is `crashed` or `killed`.
    pub signal: Option<u8>,
    /// The process of the span.
    pub pid: u32,
    /// The thread of the span.
    pub tid: u32,
    /// When it began, ns.
    pub started_at: u64,
    /// When it ended, ns.
    pub ended_at: u64,
    /// Time on a CPU.
    pub self_us: u64,
    /// The rest.
    pub wait_us: u64,
    /// The process that ended the wait.
    pub waiting_on_pid: Option<u32>,
    /// The spans that are a part of it.
    pub children: Vec<String>,
    /// Other ties.
    pub links: Vec<Link>,
}

/// A tie between spans.
#[derive(Clone, Debug, Deserialize)]
pub struct Link {
    /// The other one's name.
    pub span_id: String,
    /// What ties them.
    pub kind: String,
}

impl Spans {
    /// Reads them, and checks what holds for all spans: a parent is there and knows its children,
    /// which lie inside it.
    ///
    /// # Errors
    ///
    /// When it is no JSON of this schema, or something does not hold.
    pub fn parse(text: &str) -> Result<Self> {
        let spans: Self =
            serde_json::from_str(text).context("not the spans that the contract has")?;
        ensure!(spans.schema == SCHEMA, "not {SCHEMA}: {}", spans.schema);
        let by_id: BTreeMap<_, _> =
            spans.spans.iter().map(|span| (span.span_id.as_str(), span)).collect();
        ensure!(by_id.len() == spans.spans.len(), "ids are used twice");
        for span in &spans.spans {
            let all_us = (span.ended_at - span.started_at) / 1_000;
            let rounded = all_us - (span.self_us + span.wait_us);
            ensure!(rounded <= 1, "the parts of a span do not add up: {span:?}");
            let Some(parent) = &span.parent_span_id else { continue };
            let parent = by_id.get(parent.as_str()).context("a parent is missing")?;
            let knows_it = parent.children.contains(&span.span_id);
            let is_inside = span.interval().inside(parent.interval());
            ensure!(knows_it && is_inside, "{span:?} is no child of {parent:?}");
        }
        Ok(spans)
    }

    /// The children of a span.
    #[must_use]
    pub fn children(&self, span: &Span) -> Vec<&Span> {
        self.spans.iter().filter(|child| span.children.contains(&child.span_id)).collect()
    }

    /// The spans of a thread that begin a trace.
    pub fn roots(&self, tid: u32) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(move |span| span.tid == tid && span.parent_span_id.is_none())
    }
}

impl Span {
    /// From its beginning to its end.
    #[must_use]
    pub fn interval(&self) -> Interval {
        Interval::new(self.started_at, self.ended_at)
    }
}
