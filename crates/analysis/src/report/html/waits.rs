//! The table of the worst waits, each with its chain and the stacks of every hop.

use serde::Serialize;

use crate::report::{
    BlameEntry, HopEntry, Label, Report, WaitEntry, WakerEntry, WakerKind, flame::leaf_name, waker,
    worst,
};
use offwake_recording::units::Nanos;

use super::{
    class::Class,
    texts::{StackTextId, TextId, Texts, thread},
};

/// The most waits that are listed, as far as the size limit allows.
const LISTED: usize = 2_000;
/// The most parts that are listed of one wait.
const PARTS: usize = 24;

/// The worst waits first.
#[derive(Serialize)]
pub(super) struct Waits {
    list: Vec<Wait>,
    left_out: u64,
    left_out_ns: u64,
}

#[derive(Serialize)]
struct Wait {
    thread: TextId,
    process: u32,
    cause: TextId,
    on: Option<TextId>,
    label: Option<TextId>,
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
    parts: Vec<Part>,
    parts_left_out: u64,
    parts_left_out_ns: u64,
}

#[derive(Serialize)]
struct Part {
    /// The name of the leaf, as in the flame graph: `[work]`.
    leaf: TextId,
    class: Class,
    ns: u64,
    label: Option<TextId>,
    holder: Option<TextId>,
    stack: StackTextId,
    chain: Vec<(TextId, Option<TextId>, StackTextId)>,
}

/// Describes who made a wake.
pub(super) fn waker_words(waker: Option<&WakerEntry>) -> String {
    let Some(waker) = waker else { return "nobody seen".to_owned() };
    match (waker.kind, &waker.comm, waker.tid) {
        (WakerKind::Task, Some(comm), Some(tid)) => thread(comm, tid, waker.container.as_deref()),
        _ => waker::interrupt(waker),
    }
}

/// Lists the report's waits until the next would exceed `bytes`.
pub(super) fn list<'a>(report: &'a Report, bytes: usize, texts: &mut Texts<'a>) -> Waits {
    let mut list = Vec::new();
    let mut bytes_left = bytes;
    for wait in report.waits.iter().take(LISTED) {
        let cost = 320 + wait.blame.iter().take(PARTS).map(cost).sum::<usize>();
        if cost > bytes_left || texts.bytes_left() == 0 {
            break;
        }
        bytes_left -= cost;
        list.push(entry(wait, report.window.duration_ns, texts));
    }
    let rest = report.waits.get(list.len()..).unwrap_or_default();
    Waits {
        left_out: rest.iter().map(|wait| wait.count).fold(0, u64::saturating_add),
        left_out_ns: rest.iter().map(|wait| wait.blocked_ns.0).fold(0, u64::saturating_add),
        list,
    }
}

/// Estimates the bytes of a part as JSON, for numbers of eight digits.
fn cost(part: &BlameEntry) -> usize {
    120 + 24 * part.chain.len()
}

fn entry<'a>(wait: &'a WaitEntry, window: Nanos, texts: &mut Texts<'a>) -> Wait {
    let rest = wait.blame.get(PARTS..).unwrap_or_default();
    Wait {
        thread: texts.thread(&wait.comm, wait.tid, wait.container.as_deref()),
        process: wait.tgid.0,
        cause: texts.id(wait.cause.name()),
        on: wait.waited_on.as_ref().map(|on| texts.id(&on.text)),
        label: label(wait.label.as_ref(), texts),
        syscall: wait.syscall.map(|name| texts.id(name)),
        timeout_ns: wait.timeout_ns.map(|timeout| timeout.0),
        state: wait.state,
        count: wait.count,
        retries: wait.retries,
        ns: wait.blocked_ns.0,
        quiet_ns: match worst::sleeps_through(wait, window) {
            true => wait.blocked_ns.0,
            false => wait.idle_ns.0,
        },
        longest_ns: wait.longest_ns.0,
        stack: texts.stack(&wait.stack),
        ended_by: texts.id(&waker_words(wait.waker.as_ref())),
        ended_in: wait.waker_call.as_ref().map(|call| {
            let on = call.file.as_ref().or(call.futex_address.as_ref());
            texts.id(&on.map_or(call.syscall.to_owned(), |on| format!("{} {on}", call.syscall)))
        }),
        parts: (wait.blame.iter().take(PARTS))
            .map(|blame| part(blame, Class::of(wait, blame, window), texts))
            .collect(),
        parts_left_out: rest.len() as u64,
        parts_left_out_ns: rest.iter().map(|blame| blame.ns.0).fold(0, u64::saturating_add),
    }
}

fn part<'a>(blame: &'a BlameEntry, class: Class, texts: &mut Texts<'a>) -> Part {
    Part {
        leaf: texts.id(&leaf_name(blame)),
        class,
        ns: blame.ns.0,
        label: label(blame.label.as_ref(), texts),
        holder: blame
            .holder
            .as_ref()
            .map(|holder| texts.thread(&holder.comm, holder.tid, holder.container.as_deref())),
        stack: texts.stack(&blame.stack),
        chain: blame.chain.iter().map(|hop| self::hop(hop, texts)).collect(),
    }
}

fn hop<'a>(hop: &'a HopEntry, texts: &mut Texts<'a>) -> (TextId, Option<TextId>, StackTextId) {
    let HopEntry { thread, label, stack } = hop;
    let name = texts.thread(&thread.comm, thread.tid, thread.container.as_deref());
    (name, self::label(label.as_ref(), texts), texts.stack(stack))
}

fn label(label: Option<&Label>, texts: &mut Texts<'_>) -> Option<TextId> {
    label.map(|label| texts.id(&label.function))
}
