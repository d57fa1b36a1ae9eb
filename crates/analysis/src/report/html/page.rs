//! All data of a page, as JSON.

use serde::Serialize;

use crate::{
    findings::{Finding, FindingKind, FindingLine},
    report::{
        Report, first_screen, loss_line,
        printed_lines::{self, PrintedLine},
    },
    requests::Requests,
    text,
};

use super::{
    flame::{self, Flame, ReportBoxes},
    graph::{Graphs, ReportGraphs},
    lanes::Lanes,
    ledger::{self, PageLedgers},
    requests::{PageRequests, build_requests},
    texts::{TextId, Texts, sanitise},
    timeline::{self, PageTimeline},
    waits::{self, WaitTable},
};

/// The most bytes of all texts.
const MAX_TEXT_BYTES: usize = 1_500_000;
/// The most bytes of the table of waits, without its texts.
const MAX_WAIT_BYTES: usize = 1_500_000;
/// The most characters of a line of a finding.
const MAX_LINE_CHARS: usize = 300;

/// The page's data. Numbers that name a text are places in `texts`.
#[derive(Serialize)]
pub(super) struct Page<'a> {
    head: PageHead,
    findings: PageFindings,
    ledgers: PageLedgers,
    hops: Flame,
    flame: Flame,
    waits: WaitTable,
    graphs: Graphs,
    requests: PageRequests,
    timeline: PageTimeline<'a>,
    stacks: Vec<Vec<TextId>>,
    texts: Vec<String>,
    texts_left_out: u64,
}

/// What was recorded, and whether it can be believed.
#[derive(Serialize)]
struct PageHead {
    offwake: String,
    target: String,
    host: String,
    kernel: String,
    scope: &'static str,
    stacks: &'static str,
    duration_ns: u64,
    start_unix_ns: Option<i64>,
    closed_by: &'static str,
    own_cpu_ns: u64,
    /// What was lost, in words.
    loss: String,
    loss_relevance: LossRelevance,
    warnings: Vec<String>,
    /// What is summed up for want of room.
    limit: Option<String>,
    filter: Vec<String>,
    threads: u64,
    processes: u64,
    /// Of processes and their children, those that were forked or ended inside of the window.
    passing_processes: u64,
    samples: u64,
}

/// Whether what was lost could change the answer. If so it stands first, or else with the details.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum LossRelevance {
    CouldChangeTheAnswer,
    Irrelevant,
}

/// What holds the target up, as on every first screen.
#[derive(Serialize)]
struct PageFindings {
    /// That there was next to nothing to do, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<String>,
    list: Vec<PageFinding>,
    rest: String,
}

#[derive(Serialize)]
struct PageFinding {
    kind: FindingKind,
    /// What stands in front of its first line if it is still going on: `STILL WAITING ≥5.00 s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    leading: Option<String>,
    share: f64,
    ns: u64,
    /// How many threads that time is of.
    threads: u64,
    lines: Vec<PageLine>,
    /// What finds the waits of these threads.
    search: String,
}

/// A line of a finding, as [`crate::findings::FindingLine`] has it.
#[derive(Serialize)]
struct PageLine {
    depth: u16,
    text: String,
    detail: String,
    is_cause: bool,
    /// Its own share, and whether it is the cause.
    mark: String,
    /// Whether it is shown at a click: the terminal has no room for it either.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_folded: bool,
}

/// Builds the page's data from the report.
pub(super) fn build_page<'a>(
    report: &'a Report,
    lanes: &'a Lanes,
    requests: &Requests,
) -> Page<'a> {
    // What takes long needs no texts.
    let (graphs, boxes) =
        rayon::join(|| ReportGraphs::add_up(report), || ReportBoxes::add_up(report));
    let mut texts = Texts::with_size_limit(MAX_TEXT_BYTES);
    // What is told first finds room first.
    let waits = waits::list_waits(report, MAX_WAIT_BYTES, &mut texts);
    let graphs = graphs.into_graphs(&mut texts);
    let timeline = timeline::build_timeline(report, lanes, &mut texts);
    let ledgers = ledger::build_ledgers(report, &mut texts);
    let hops = flame::hop_boxes(report, &mut texts);
    let flame = boxes.into_flame(&mut texts);
    let (texts, stacks, texts_left_out) = texts.into_parts();
    Page {
        head: page_head(report),
        findings: page_findings(report),
        ledgers,
        hops,
        flame,
        waits,
        graphs,
        requests: build_requests(requests),
        timeline,
        stacks,
        texts,
        texts_left_out,
    }
}

fn page_head(report: &Report) -> PageHead {
    let meta = &report.meta;
    let (loss, loss_relevance) = match first_screen::relevant_loss(report) {
        Some(loss) => (format!("INCOMPLETE: {loss}"), LossRelevance::CouldChangeTheAnswer),
        None => {
            let loss = match loss_line::describe_loss(report) {
                Some(loss) => format!("no relevant loss ({loss})"),
                None => loss_line::loss_line(report),
            };
            (loss, LossRelevance::Irrelevant)
        }
    };
    PageHead {
        offwake: sanitise(&meta.offwake),
        target: match first_screen::target_program(report) {
            Some(program) => format!("{} {program}", sanitise(&meta.target)),
            None => sanitise(&meta.target),
        },
        host: sanitise(&meta.host),
        kernel: sanitise(&meta.kernel),
        scope: meta.scope,
        stacks: meta.stacks,
        duration_ns: report.window.duration_ns.0,
        start_unix_ns: report.window.start_unix_ns,
        closed_by: meta.closed_by,
        own_cpu_ns: meta.own_cpu_ns.0,
        loss,
        loss_relevance,
        warnings: report.warnings(),
        limit: report.limit_note(),
        filter: describe_filter(report),
        threads: report.threads.len() as u64,
        processes: report.processes.len() as u64,
        passing_processes: first_screen::passing_processes(report),
        samples: report.threads.iter().map(|thread| thread.samples).sum(),
    }
}

/// What the filter keeps, and what it left out; nothing if it is open.
fn describe_filter(report: &Report) -> Vec<String> {
    let filter = &report.filter;
    let mut words = Vec::new();
    words.extend(filter.min_ns.map(|min| format!("only waits of at least {min}")));
    words.extend(filter.max_ns.map(|max| format!("only waits of at most {max}")));
    if filter.kinds != "all" {
        words.push(format!("only {} threads", filter.kinds));
    }
    words.extend(filter.states.as_ref().map(|states| {
        format!("only states {}", states.iter().map(char::to_string).collect::<Vec<_>>().join(", "))
    }));
    words.extend(filter.band.as_ref().map(|band| format!("only waits of requests of {band}")));
    words.extend(filter.conditions.iter().map(|condition| format!("only {condition}")));
    if filter.hide_idle {
        words.push("idle waits hidden".to_owned());
    }
    if filter.left_out_count > 0 {
        let (count, time) = (filter.left_out_count, filter.left_out_ns);
        words.push(format!("{count} waits left out, {time}; the ledger has all"));
    }
    words
}

fn page_findings(report: &Report) -> PageFindings {
    let (shown, rest) = first_screen::split_findings(report);
    let list = (shown.iter())
        .enumerate()
        .map(|(n, finding)| PageFinding {
            kind: finding.kind,
            leading: leading_words(finding),
            share: finding.share,
            ns: finding.ns.0,
            threads: finding.threads,
            lines: (finding.lines.iter().zip(folded_lines(n, finding)))
                .map(|(line, is_folded)| PageLine {
                    depth: line.depth,
                    text: text::cut_chars(&line.whole_text(), MAX_LINE_CHARS),
                    detail: line.detail.clone(),
                    is_cause: line.is_cause,
                    mark: printed_lines::mark(line, finding).trim_start().to_owned(),
                    is_folded,
                })
                .collect(),
            search: (finding.chain.first()).map(|hop| sanitise(&hop.program)).unwrap_or_default(),
        })
        .collect();
    PageFindings {
        idle: first_screen::mostly_idle(report),
        list,
        rest: first_screen::describe_rest(report, &shown, &rest).join(" · "),
    }
}

/// `STILL WAITING ≥5.00 s`, as on the terminal.
fn leading_words(finding: &Finding) -> Option<String> {
    let word = printed_lines::leading_word(finding)?;
    let detail = finding.lines.first().map_or("", |line| &line.detail);
    Some(format!("{word} {detail}").trim_end().to_owned())
}

/// Returns for each line of a finding whether it is shown at a click only. Those that the terminal has are there at once.
fn folded_lines(n: usize, finding: &Finding) -> Vec<bool> {
    let whole = |line| PrintedLine { line, text: String::new() };
    let most = first_screen::most_lines(n, finding);
    let kept = printed_lines::fit(finding.lines.iter().map(whole).collect(), most);
    // What says how many hops are left out has a text.
    let is_kept = |line: &FindingLine| {
        kept.iter().any(|one| std::ptr::eq(one.line, line) && one.text.is_empty())
    };
    finding.lines.iter().map(|line| !is_kept(line)).collect()
}
