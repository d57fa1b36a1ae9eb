//! Requests and replies as spans, on workloads that know who asked whom.

use anyhow::{Context, Result, ensure};
use offwake_tests::{
    case::{SHARE, WINDOW, duration_argument},
    ground_truth::{Activity, Entry, GroundTruth},
    intervals::total_in,
    offwake::{Offwake, Outcome},
    report::Report,
    spans::{Span, Spans},
    workload::Workload,
};

/// What a server computes for a request must be seen if there is more of it than this, in ns: more
/// than a switch takes, and much less than it computes for each.
const SEEN_NS: u64 = 200_000;

/// What was found of a workload, and what is true.
struct Traced {
    outcome: Outcome,
    report: Report,
    spans: Spans,
    truth: GroundTruth,
}

/// Profiles the threads that play one role of a workload.
fn trace(workload: Workload, role: &str) -> Result<Traced> {
    let outcome = Offwake::profile()?
        .args(["-d", &duration_argument(WINDOW), "-t", &workload.role(role)?.tid.to_string()])
        .args(["-o", "x.json", "-o", "x.spans.json", "-o", "x.otlp.json"])
        .run()?;
    let report = outcome.report("x.json")?;
    let spans = Spans::parse(&outcome.text("x.spans.json")?)?;
    let truth = workload.stop()?;
    Ok(Traced { outcome, report, spans, truth })
}

impl Traced {
    /// The waits of the client that lie in the window.
    fn asked(&self) -> Vec<&Entry> {
        let window = self.report.interval();
        let waits = self.truth.roles["client"].entries_of(Activity::Wait);
        waits.filter(|wait| wait.interval().inside(window)).collect()
    }
}

/// Whether a span ends where the client's own wait does, as far as a busy machine lets it.
fn is_of(span: &Span, wait: &Entry) -> bool {
    span.interval().clipped(wait.interval()).is_some()
}

/// Demands that nearly all of `all` are as they should be: threads of a busy machine are late now and
/// then, and who is not asleep when it is asked is not woken.
fn nearly_all<T: std::fmt::Debug>(all: &[T], good: impl Fn(&T) -> bool) -> Result<()> {
    let bad: Vec<_> = all.iter().filter(|one| !good(one)).collect();
    let good = (all.len() - bad.len()) as f64;
    ensure!(
        all.len() > 20 && good >= SHARE * all.len() as f64,
        "{} of {}: {:?}",
        bad.len(),
        all.len(),
        bad.first()
    );
    Ok(())
}

fn one<'a>(spans: &[&'a Span], kind: &str, tid: u32) -> Option<&'a Span> {
    spans.iter().find(|span| span.kind == kind && span.tid == tid).copied()
}

#[test]
fn a_request_through_three_processes_is_one_trace() -> Result<()> {
    let workload = Workload::start("through-a-middle")?;
    let role = |role: &str| workload.role(role).cloned();
    let (client, middle, store) = (role("client")?, role("middle")?, role("store")?);
    let traced = trace(workload, "client")?;
    let spans = &traced.spans;
    let roots: Vec<_> = spans.roots(client.tid).filter(|span| span.kind == "client").collect();
    // client A > server B > client B > server C
    let is_nested = |root: &&Span| {
        let served = one(&spans.children(root), "server", middle.tid)?;
        let asked = one(&spans.children(served), "client", middle.tid)?;
        let stored = one(&spans.children(asked), "server", store.tid)?;
        let is_linked = |span: &Span, with: &Span| {
            span.links
                .iter()
                .any(|link| link.kind == "requested_by" && link.span_id == with.span_id)
        };
        let is_right = root.waiting_on_pid == Some(middle.pid)
            && asked.waiting_on_pid == Some(store.pid)
            && is_linked(served, root)
            && is_linked(stored, asked)
            && [*root, served, asked, stored].iter().all(|span| span.status == "ok");
        is_right.then_some(stored)
    };
    // A client that had no CPU between asking and sleeping may sleep when all has been done.
    let computed = traced.truth.roles["store"].intervals(Activity::Work);
    let computed_in = |span: &Span| total_in(computed.iter().copied(), span.interval());
    let waited_for_store: Vec<_> =
        roots.iter().copied().filter(|root| computed_in(root) > SEEN_NS).collect();
    nearly_all(&waited_for_store, |root| is_nested(root).is_some())?;
    let computed_ns: u64 = waited_for_store.iter().map(|root| computed_in(root)).sum();
    let shown_ns: u64 = waited_for_store.iter().filter_map(is_nested).map(computed_in).sum();
    ensure!(shown_ns as f64 >= SHARE * computed_ns as f64, "{shown_ns} of {computed_ns} ns");
    nearly_all(&traced.asked(), |wait| roots.iter().any(|root| is_of(root, wait)))?;
    let otlp: serde_json::Value = serde_json::from_str(&traced.outcome.text("x.otlp.json")?)?;
    let processes = otlp["resourceSpans"].as_array().context("no resourceSpans")?;
    ensure!(processes.len() >= 3, "spans of {} processes", processes.len());
    let count: usize = (processes.iter())
        .filter_map(|process| process["scopeSpans"][0]["spans"].as_array().map(Vec::len))
        .sum();
    ensure!(count == spans.spans.len(), "{count} spans of {}", spans.spans.len());
    Ok(())
}

#[test]
fn requests_over_everything_are_requests() -> Result<()> {
    for (name, asker, server) in [
        ("pipe", "client", "server"),
        ("unix-socket", "client", "server"),
        ("loopback-tcp", "client", "server"),
        ("futex-handoff", "waiter", "worker"),
    ] {
        let workload = Workload::start(name)?;
        let role = |role: &str| workload.role(role).cloned();
        let (asker, server) = (role(asker)?, role(server)?);
        let outcome = Offwake::profile()?
            .args([
                "-d",
                &duration_argument(WINDOW),
                "-t",
                &asker.tid.to_string(),
                "-o",
                "x.spans.json",
            ])
            .run()?;
        let spans = Spans::parse(&outcome.text("x.spans.json")?)?;
        workload.stop()?;
        let roots: Vec<_> = spans.roots(asker.tid).collect();
        nearly_all(&roots, |root| {
            root.kind == "client" && one(&spans.children(root), "server", server.tid).is_some()
        })
        .with_context(|| format!("in {name}"))?;
    }
    Ok(())
}

#[test]
fn who_is_killed_or_exits_instead_of_answering_ends_its_span_so() -> Result<()> {
    let traced = trace(Workload::start("servers-that-end")?, "client")?;
    let all: Vec<_> = traced.truth.roles["client"].entries_of(Activity::Wait).collect();
    let spans = &traced.spans;
    let window = traced.report.interval();
    let waits: Vec<_> =
        all.iter().enumerate().filter(|(_, wait)| wait.interval().inside(window)).collect();
    nearly_all(&waits, |(n, wait)| {
        let is_right = |span: &Span| match n % 2 {
            0 => (span.status.as_str(), span.exit_code) == ("exited", Some(7)),
            _ => (span.status.as_str(), span.signal) == ("killed", Some(9)),
        };
        spans.spans.iter().any(|span| {
            span.kind == "client"
                && span.waiting_on_pid == Some(wait.tied_to)
                && is_of(span, wait)
                && is_right(span)
                && spans.children(span).iter().any(|server| {
                    server.kind == "server" && server.pid == wait.tied_to && is_right(server)
                })
        })
    })
}
