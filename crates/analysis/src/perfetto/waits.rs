//! The target's waits as slices on their threads' tracks, and an arrow from each waker.
//!
//! ```text
//! waiter  --[ futex: pthread_cond_wait ][ woken by worker ]---
//!                                       ^
//! worker  ------------------------------* wakes waiter -------
//! ```

use std::{collections::HashMap, io};

use offwake_recording::{Wait, units::Timestamp};

use crate::{
    blame::{
        IdleHint, WakeSource,
        cause::{WaitedOn, waited_on},
    },
    label::{Label, LabelFinder},
    report::wake_context,
    text,
    timeline::{BlockedInterval, RunnableSince, State, ThreadIndex, Track, WaitIndex},
    waited_on_entry as words,
};

use super::{
    LimitedTrace,
    packets::Packets,
    tracks::{self, Argument, Arrow, Mark, Tracks},
};

/// The most bytes of what was waited on: a path can be as long as its program likes.
const MAX_TEXT_BYTES: usize = 256;

pub(super) fn write(
    trace: LimitedTrace<'_>,
    tracks: &mut Tracks<'_>,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let recording = trace.blame.recording();
    let mut best_fit = LabelFinder::new(&recording.stacks);
    let mut things: HashMap<WaitedOn, String> = HashMap::new();
    for (index, _, place) in trace.shown_waits() {
        let Some(wait) = recording.waits.get(index.0 as usize) else { continue };
        let cause = trace.blame.cause(index);
        let label = best_fit.wait_label(cause, wait.user_stack, wait.kernel_stack);
        let thing = waited_on(&wait, cause).map(|on| {
            let words = || {
                text::cut_bytes(&words::waited_on_entry(&recording.files, on).text, MAX_TEXT_BYTES)
            };
            &*things.entry(on).or_insert_with(words)
        });
        write_wait(
            &WaitSlice {
                trace,
                index,
                wait: &wait,
                place,
                label: label.as_ref(),
                waited_on: thing,
            },
            tracks,
            packets,
        )?;
    }
    Ok(())
}

/// A wait, and what is written of it.
struct WaitSlice<'a> {
    trace: LimitedTrace<'a>,
    index: WaitIndex,
    wait: &'a Wait,
    place: BlockedInterval,
    label: Option<&'a Label>,
    waited_on: Option<&'a String>,
}

fn write_wait(
    drawn: &WaitSlice<'_>,
    tracks: &mut Tracks<'_>,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let WaitSlice { trace, index, place, .. } = *drawn;
    let Some(track) = tracks.thread_track(place.thread, packets)? else { return Ok(()) };
    tracks::write_slice(track, (place.from, place.to), blocked_mark(drawn), packets)?;
    let Some(runnable) = runnable_after(trace, index) else { return Ok(()) };
    let timeline = trace.blame.timeline();
    let name = |index: ThreadIndex, at| -> Option<String> {
        let thread = timeline.thread(index)?;
        Some(format!("{} {}", thread.comm_at(at).unwrap_or_default(), thread.tid))
    };
    let mut woken = Mark {
        category: "wake",
        name: "runnable".to_owned(),
        arguments: Vec::new(),
        arrows: Vec::new(),
    };
    let context = drawn.wait.wake.and_then(|wake| wake_context::vector_name(wake.context));
    if let WakeSource::Task(task) = trace.blame.wake_source(index)
        && let Some(waker) = timeline.find_thread(task.tid, runnable.0)
        && let Some(waker_track) = tracks.thread_track(waker, packets)?
    {
        let arrow = u64::from(index.0) + 1;
        let wakes = Mark {
            category: "wake",
            name: format!("wakes {}", name(place.thread, runnable.0).unwrap_or_default()),
            arguments: Vec::new(),
            arrows: vec![Arrow::From(arrow)],
        };
        tracks::write_instant(waker_track, runnable.0, wakes, packets)?;
        woken.name = format!("woken by {}", name(waker, runnable.0).unwrap_or_default());
        woken.arrows.push(Arrow::To(arrow));
    } else if let Some(context) = &context {
        woken.name = format!("woken by {context}");
    }
    tracks::write_slice(track, runnable, woken, packets)
}

fn blocked_mark<'a>(drawn: &WaitSlice<'a>) -> Mark<'a> {
    let cause = drawn.trace.blame.cause(drawn.index);
    let name = match drawn.label {
        Some(label) => format!("{}: {}", cause.name(), label.function),
        None => cause.name().to_owned(),
    };
    let mut arguments = vec![("cause", Argument::Text(cause.name()))];
    arguments.extend(drawn.waited_on.map(|thing| ("waited_on", Argument::Text(thing))));
    if drawn.trace.blame.idle_hint(drawn.index) == IdleHint::Idle {
        arguments.push(("idle", Argument::Text("waits for the next request")));
    }
    match drawn.trace.blame.wake_source(drawn.index) {
        WakeSource::Unknown(reason) | WakeSource::Interrupt(reason) => {
            arguments.push(("unattributed", Argument::Text(reason.name())));
        }
        WakeSource::External(external) => {
            arguments.push(("external", Argument::Text(external.name())));
        }
        WakeSource::Task(task) => {
            arguments.push(("waker_tid", Argument::Number(u64::from(task.tid.0))));
        }
    }
    Mark { category: "wait", name, arguments, arrows: Vec::new() }
}

/// Returns the time from the wake that ended a wait to the switch-in. None if no wake was seen.
fn runnable_after(trace: LimitedTrace<'_>, index: WaitIndex) -> Option<(Timestamp, Timestamp)> {
    let (track, place): (&Track, usize) = trace.blame.timeline().track_position(index)?;
    let next = track.get(place.checked_add(1)?)?;
    (next.state == State::Runnable(RunnableSince::Woken(index))).then_some((next.from, next.to))
}
