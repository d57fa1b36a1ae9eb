//! Each thread's samples and markers.

use std::{cmp::Reverse, collections::HashMap};

use offwake_recording::units::{Nanos, Tgid, Timestamp};

use crate::{
    blame::{Blame, BlameClass},
    container_labels::ContainerLabels,
    report::{BlameEntry, Report, WaitEntry, describe, wake_context::describe_waker},
    text,
    timeline::{NAMELESS, ThreadIndex},
};

use super::{
    category_index,
    file::{MarkerData, Markers, Milliseconds, Samples, Thread},
    tables::Tables,
};

/// The type of the markers of waits.
pub(super) const WAIT: &str = "Wait";

/// The most parts of a wait that its marker names.
const NAMED_PARTS: usize = 4;
/// The most bytes of what was waited for: a path can be as long as its program likes.
const MAX_TEXT_BYTES: usize = 200;

/// A part of a wait's time. Without a stack, none is shown.
#[derive(Clone, Copy)]
pub(super) struct DrawnPart {
    pub(super) stack: Option<u32>,
    pub(super) time: Nanos,
}

/// A wait of one thread.
struct DrawnWait {
    from: Milliseconds,
    to: Milliseconds,
    parts: Vec<DrawnPart>,
    /// The text of the marker's name.
    name: u32,
    category: u8,
    data: MarkerData,
}

/// The target's threads, and their waits so far.
pub(super) struct Threads<'a> {
    blame: &'a Blame<'a>,
    report: &'a Report,
    waits: HashMap<ThreadIndex, Vec<DrawnWait>>,
}

impl<'a> Threads<'a> {
    pub(super) fn new(blame: &'a Blame<'a>, report: &'a Report) -> Self {
        Self { blame, report, waits: HashMap::new() }
    }

    /// Returns a moment, from the window's beginning.
    fn since_start(&self, at: Timestamp) -> Milliseconds {
        Milliseconds(at.since(self.report.window.start_ns).0)
    }

    /// Adds a wait.
    pub(super) fn add(
        &mut self,
        thread: ThreadIndex,
        (from, to): (Timestamp, Timestamp),
        parts: &[DrawnPart],
        entry: &WaitEntry,
        tables: &mut Tables,
    ) {
        let on = entry.waited_on.as_ref().map_or("", |on| &on.text);
        let on = describe::waited_on(entry.cause.name(), &text::cut_bytes(on, MAX_TEXT_BYTES));
        let class = entry.blame.first().map_or(BlameClass::Unattributed, BlameEntry::class);
        let ranges = (!entry.markers.is_empty()).then(|| entry.markers.join(" \u{203a} "));
        let data = MarkerData {
            r#type: WAIT,
            on: tables.text(&on),
            place: entry.label.as_ref().map(|label| tables.text(&label.function)),
            woken_by: tables.text(&describe_waker(entry)),
            spent_on: tables.text(&describe_parts(entry)),
            ranges: ranges.map(|ranges| tables.text(&ranges)),
        };
        let wait = DrawnWait {
            from: self.since_start(from),
            to: self.since_start(to),
            parts: parts.to_vec(),
            name: tables.text(entry.cause.name()),
            category: category_index(class),
            data,
        };
        self.waits.entry(thread).or_default().push(wait);
    }

    /// Returns the threads, those of a process beside each other, the process that waited longest while it
    /// had something to do first; and how many without a wait there is no room for.
    pub(super) fn finish(mut self, without_waits: usize) -> (Vec<Thread>, u64) {
        let timeline = self.blame.timeline();
        let mut busy: HashMap<Tgid, Nanos> = HashMap::new();
        for process in &self.report.processes {
            let ledger = &process.ledger;
            busy.insert(process.tgid, ledger.blocked_ns - ledger.idle_ns);
        }
        let of_target = (timeline.threads.iter().zip(0..)).filter(|(thread, _)| thread.in_target);
        let mut threads: Vec<_> = of_target.map(|(thread, n)| (thread, ThreadIndex(n))).collect();
        threads.sort_by_key(|&(thread, index)| {
            let busy = busy.get(&thread.tgid).copied().unwrap_or_default();
            (Reverse(busy), thread.tgid, thread.tid.0 != thread.tgid.0, index)
        });
        let (mut room, mut left_out) = (without_waits, 0);
        threads.retain(|(_, index)| {
            if self.waits.contains_key(index) {
                return true;
            }
            let fits = room > 0;
            room = room.saturating_sub(1);
            left_out += u64::from(!fits);
            fits
        });
        let labels = ContainerLabels::new(self.blame.recording());
        let comms: HashMap<Tgid, &str> = (self.report.processes.iter())
            .map(|process| (process.tgid, process.comm.as_str()))
            .collect();
        let drawn = threads.into_iter().map(|(thread, index)| {
            let waits = self.waits.remove(&index).unwrap_or_default();
            let (samples, markers) = samples_and_markers(waits);
            let process = comms.get(&thread.tgid).copied().unwrap_or(NAMELESS);
            let container = labels.for_thread(thread);
            let begun = self.since_start(thread.from);
            let is_over = thread.until < self.report.window.end_ns;
            let ended = is_over.then(|| self.since_start(thread.until));
            Thread {
                process_type: "default",
                process_startup_time: Milliseconds(0),
                process_shutdown_time: None,
                register_time: begun,
                unregister_time: ended,
                paused_ranges: [],
                show_markers_in_timeline: true,
                name: text::plain(thread.last_comm()),
                is_main_thread: thread.tid.0 == thread.tgid.0,
                process_name: text::plain(&match container {
                    Some(container) => format!("{process} in {container}"),
                    None => process.to_owned(),
                }),
                pid: thread.tgid.to_string(),
                tid: thread.tid.0,
                samples,
                markers,
            }
        });
        (drawn.collect(), left_out)
    }
}

/// `work of db 77 80%, db 77 slept 20%`
fn describe_parts(entry: &WaitEntry) -> String {
    let describe_part = |part: &BlameEntry| {
        let thread = part.chain.last().map(|hop| &hop.thread);
        let thread =
            thread.map(|one| describe::thread(&one.comm, one.tid, one.container.as_deref()));
        let holder = part.holder.as_ref();
        let holder =
            holder.map(|one| describe::thread(&one.comm, one.tid, one.container.as_deref()));
        let idle = if part.idle { " (idle)" } else { "" };
        let what = describe::blame(part.kind, part.reason, thread, holder);
        format!("{what} {}{idle}", part.ns)
    };
    let mut words: Vec<String> = entry.blame.iter().take(NAMED_PARTS).map(describe_part).collect();
    if entry.blame.len() > NAMED_PARTS {
        words.push(format!("{} more", entry.blame.len() - NAMED_PARTS));
    }
    words.join(", ")
}

fn samples_and_markers(mut waits: Vec<DrawnWait>) -> (Samples, Markers) {
    waits.sort_by_key(|wait| wait.from);
    let mut samples = Samples { weight_type: "tracing-ms", ..Samples::default() };
    let mut markers = Markers::default();
    for DrawnWait { from, to, parts, name, category, data } in waits {
        let mut push = |stack, at, weight| {
            samples.stack.push(stack);
            samples.time.push(at);
            samples.weight.push(Milliseconds(weight));
        };
        // Without one at each end, the track would be filled from the middle of the time before.
        push(None, from, 0);
        let mut at = from.0;
        for DrawnPart { stack, time } in parts {
            let end = at.saturating_add(time.0).min(to.0);
            push(stack, Milliseconds(at), if stack.is_some() { time.0 } else { 0 });
            push(stack, Milliseconds(end), 0);
            at = end;
        }
        push(None, to, 0);
        markers.data.push(data);
        markers.name.push(name);
        markers.start_time.push(from);
        markers.end_time.push(to);
        markers.phase.push(1);
        markers.category.push(category);
    }
    samples.length = samples.time.len();
    markers.length = markers.name.len();
    (samples, markers)
}
