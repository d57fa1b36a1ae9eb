//! The table of the worst waits, each with its chain and the stacks of every hop.

use offwake_recording::units::Nanos;
use serde::Serialize;

use crate::{
    label::Label,
    report::{
        BlameEntry, HopEntry, Report, WaitEntry, WakerKind, flame::leaf_name, wait_groups,
        wake_context,
    },
};

use super::{
    class::PageClass,
    texts::{StackTextId, TextId, Texts, describe_thread},
};

/// The most waits that are listed, as far as the size limit allows.
const MAX_WAITS: usize = 2_000;
/// The most parts that are listed of one wait.
const MAX_PARTS: usize = 24;

/// The worst waits first.
#[derive(Serialize)]
pub(super) struct WaitTable {
    list: Vec<WaitRow>,
    left_out: u64,
    left_out_ns: u64,
}

#[derive(Serialize)]
struct WaitRow {
    thread: TextId,
    process: u32,
    cause: TextId,
    on: Option<TextId>,
    label: Option<TextId>,
    /// The ranges that its program marked, the outermost first.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<TextId>,
    syscall: Option<TextId>,
    timeout_ns: Option<u64>,
    state: char,
    count: u64,
    retries: u64,
    ns: u64,
    /// The idle time, or the whole wait if the thread never woke.
    quiet_ns: u64,
    longest_ns: u64,
    stack: StackTextId,
    ended_by: TextId,
    ended_in: Option<TextId>,
    parts: Vec<PartRow>,
    parts_left_out: u64,
    parts_left_out_ns: u64,
}

#[derive(Serialize)]
struct PartRow {
    /// The name of the leaf, as in the flame graph: `[work]`.
    leaf: TextId,
    class: PageClass,
    ns: u64,
    label: Option<TextId>,
    holder: Option<TextId>,
    stack: StackTextId,
    chain: Vec<(TextId, Option<TextId>, StackTextId)>,
}

/// Describes who woke the thread.
pub(super) fn describe_waker(wait: &WaitEntry) -> String {
    let Some(waker) = &wait.waker else {
        return wake_context::describe_no_waker(wait).to_owned();
    };
    match (waker.kind, &waker.comm, waker.tid) {
        (WakerKind::Task, Some(comm), Some(tid)) => {
            describe_thread(comm, tid, waker.container.as_deref())
        }
        _ => wake_context::describe_interrupt(waker),
    }
}

/// Lists the report's waits until the next would exceed `bytes`.
pub(super) fn list_waits<'a>(report: &'a Report, bytes: usize, texts: &mut Texts<'a>) -> WaitTable {
    let mut list = Vec::new();
    let mut bytes_left = bytes;
    for wait in report.waits.iter().take(MAX_WAITS) {
        let cost = 320 + wait.blame.iter().take(MAX_PARTS).map(json_size).sum::<usize>();
        if cost > bytes_left || texts.bytes_left() == 0 {
            break;
        }
        bytes_left -= cost;
        list.push(wait_row(wait, report.window.duration_ns, texts));
    }
    let rest = report.waits.get(list.len()..).unwrap_or_default();
    WaitTable {
        left_out: rest.iter().map(|wait| wait.count).fold(0, u64::saturating_add),
        left_out_ns: rest.iter().map(|wait| wait.blocked_ns.0).fold(0, u64::saturating_add),
        list,
    }
}

/// Estimates the bytes of a part as JSON, for numbers of eight digits.
fn json_size(part: &BlameEntry) -> usize {
    120 + 24 * part.chain.len()
}

fn wait_row<'a>(wait: &'a WaitEntry, window: Nanos, texts: &mut Texts<'a>) -> WaitRow {
    let rest = wait.blame.get(MAX_PARTS..).unwrap_or_default();
    WaitRow {
        thread: texts.thread(&wait.comm, wait.tid, wait.container.as_deref()),
        process: wait.tgid.0,
        cause: texts.id(wait.cause.name()),
        on: wait.waited_on.as_ref().map(|on| texts.id(&on.text)),
        label: label_text(wait.label.as_ref(), texts),
        ranges: (!wait.markers.is_empty()).then(|| texts.id(&wait.markers.join(" > "))),
        syscall: wait.syscall.map(|name| texts.id(name)),
        timeout_ns: wait.timeout_ns.map(|timeout| timeout.0),
        state: wait.state,
        count: wait.count,
        retries: wait.retries,
        ns: wait.blocked_ns.0,
        quiet_ns: match wait_groups::sleeps_through(wait, window) {
            true => wait.blocked_ns.0,
            false => wait.idle_ns.0,
        },
        longest_ns: wait.longest_ns.0,
        stack: texts.stack(&wait.stack),
        ended_by: texts.id(&describe_waker(wait)),
        ended_in: wait.waker_call.as_ref().map(|call| {
            let on = call.file.as_ref().or(call.futex_address.as_ref());
            texts.id(&on.map_or(call.syscall.to_owned(), |on| format!("{} {on}", call.syscall)))
        }),
        parts: (wait.blame.iter().take(MAX_PARTS))
            .map(|blame| part_row(blame, PageClass::classify(wait, blame, window), texts))
            .collect(),
        parts_left_out: rest.len() as u64,
        parts_left_out_ns: rest.iter().map(|blame| blame.ns.0).fold(0, u64::saturating_add),
    }
}

fn part_row<'a>(blame: &'a BlameEntry, class: PageClass, texts: &mut Texts<'a>) -> PartRow {
    PartRow {
        leaf: texts.id(&leaf_name(blame)),
        class,
        ns: blame.ns.0,
        label: label_text(blame.label.as_ref(), texts),
        holder: blame
            .holder
            .as_ref()
            .map(|holder| texts.thread(&holder.comm, holder.tid, holder.container.as_deref())),
        stack: texts.stack(&blame.stack),
        chain: blame.chain.iter().map(|hop| self::hop_row(hop, texts)).collect(),
    }
}

fn hop_row<'a>(hop: &'a HopEntry, texts: &mut Texts<'a>) -> (TextId, Option<TextId>, StackTextId) {
    let HopEntry { thread, label, stack, .. } = hop;
    let name = texts.thread(&thread.comm, thread.tid, thread.container.as_deref());
    (name, self::label_text(label.as_ref(), texts), texts.stack(stack))
}

fn label_text(label: Option<&Label>, texts: &mut Texts<'_>) -> Option<TextId> {
    label.map(|label| texts.id(&label.function))
}
