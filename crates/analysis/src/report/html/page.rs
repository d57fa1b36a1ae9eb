//! All data of a page, as JSON.

use offwake_recording::units::Nanos;
use serde::Serialize;

use crate::{
    blame::cause::Cause,
    report::{Report, summary, text, wait_groups},
};

use super::{
    flame::{self, Flame},
    graph::{self, Graphs},
    lanes::Lanes,
    ledger::{self, PageLedgers},
    texts::{TextId, Texts, describe_thread, sanitise},
    timeline::{self, PageTimeline},
    waits::{self, WaitTable},
};

/// The most bytes of all texts.
const MAX_TEXT_BYTES: usize = 1_500_000;
/// The most bytes of the table of waits, without its texts.
const MAX_WAIT_BYTES: usize = 1_500_000;
/// The most waits that are described in words.
const MAX_WORST_WAITS: usize = 5;
/// The most parts of each.
const MAX_PARTS: usize = 4;
/// The most threads named that slept all the time.
const MAX_ASLEEP_NAMES: usize = 12;

/// The page's data. Numbers that name a text are places in `texts`.
#[derive(Serialize)]
pub(super) struct Page<'a> {
    head: PageHead,
    worst: WorstWaits,
    ledgers: PageLedgers,
    flame: Flame,
    waits: WaitTable,
    graphs: Graphs,
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
    loss: String,
    is_lossless: bool,
    warnings: Vec<String>,
    filter: Vec<String>,
    threads: u64,
    processes: u64,
    samples: u64,
}

/// The worst waits in words, as in the summary. What is idle does not count; sleeps come last.
#[derive(Serialize)]
struct WorstWaits {
    list: Vec<WorstWait>,
    left_out: u64,
    left_out_ns: u64,
    /// The time of threads that slept on purpose.
    sleeping_ns: u64,
    asleep: u64,
    asleep_names: Vec<String>,
}

#[derive(Serialize)]
struct WorstWait {
    thread: String,
    ns: u64,
    idle_ns: u64,
    what: String,
    ended_by: String,
    spent_on: Vec<String>,
    more_parts: u64,
}

/// Builds the page's data from the report.
pub(super) fn build_page<'a>(report: &'a Report, lanes: &'a Lanes) -> Page<'a> {
    let mut texts = Texts::with_size_limit(MAX_TEXT_BYTES);
    // What is told first finds room first.
    let waits = waits::list_waits(report, MAX_WAIT_BYTES, &mut texts);
    let graphs = graph::build_graphs(report, &mut texts);
    let timeline = timeline::build_timeline(report, lanes, &mut texts);
    let ledgers = ledger::build_ledgers(report, &mut texts);
    let flame = flame::boxes(report, &mut texts);
    let (texts, stacks, texts_left_out) = texts.into_parts();
    Page {
        head: page_head(report),
        worst: worst_waits(report),
        ledgers,
        flame,
        waits,
        graphs,
        timeline,
        stacks,
        texts,
        texts_left_out,
    }
}

fn page_head(report: &Report) -> PageHead {
    let meta = &report.meta;
    let loss = summary::loss_line(report);
    PageHead {
        offwake: sanitise(&meta.offwake),
        target: sanitise(&meta.target),
        host: sanitise(&meta.host),
        kernel: sanitise(&meta.kernel),
        scope: meta.scope,
        stacks: meta.stacks,
        duration_ns: report.window.duration_ns.0,
        start_unix_ns: report.window.start_unix_ns,
        closed_by: meta.closed_by,
        own_cpu_ns: meta.own_cpu_ns.0,
        is_lossless: loss == summary::NOTHING_LOST,
        loss,
        warnings: report.warnings(),
        filter: describe_filter(report),
        threads: report.threads.len() as u64,
        processes: report.processes.len() as u64,
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
    if filter.hide_idle {
        words.push("idle waits hidden".to_owned());
    }
    if filter.left_out_count > 0 {
        let (count, time) = (filter.left_out_count, filter.left_out_ns);
        words.push(format!("{count} waits left out, {time}; the ledger has all"));
    }
    words
}

fn worst_waits(report: &Report) -> WorstWaits {
    let busy = |worst: &wait_groups::WaitGroup<'_>| worst.blocked - worst.idle;
    let (mut gathered, asleep) = wait_groups::group_waits(report, busy);
    // Who sleeps on purpose is held up by nobody. Whom it holds up comes before it.
    let sleeps = |(_, cause, ..): &wait_groups::WaitGroupKey<'_>| *cause == Cause::Timer.name();
    gathered.sort_by_key(|(key, _)| sleeps(key));
    let list = (gathered.iter().take(MAX_WORST_WAITS))
        .map(|(key, worst)| {
            let wait_groups::WaitGroupText { what, wakers, blame } =
                wait_groups::describe_group(*key, worst);
            let (tid, ..) = *key;
            WorstWait {
                thread: sanitise(&describe_thread(worst.comm, tid, worst.container)),
                ns: worst.blocked.0,
                idle_ns: worst.idle.0,
                what: text::cut_chars(&what, 400),
                ended_by: text::cut_chars(&wakers, 400),
                more_parts: blame.len().saturating_sub(MAX_PARTS) as u64,
                spent_on: blame
                    .iter()
                    .take(MAX_PARTS)
                    .map(|words| text::cut_chars(words, 200))
                    .collect(),
            }
        })
        .collect();
    let rest = gathered.get(MAX_WORST_WAITS..).unwrap_or_default();
    let sleeping = gathered.iter().filter(|(key, _)| sleeps(key));
    WorstWaits {
        sleeping_ns: sleeping.map(|(_, worst)| worst.blocked).sum::<Nanos>().0,
        list,
        left_out: rest.len() as u64,
        left_out_ns: rest.iter().map(|(_, worst)| worst.blocked).sum::<Nanos>().0,
        asleep: asleep.len() as u64,
        asleep_names: (asleep.iter().take(MAX_ASLEEP_NAMES))
            .map(|wait| sanitise(&describe_thread(&wait.comm, wait.tid, wait.container.as_deref())))
            .collect(),
    }
}
