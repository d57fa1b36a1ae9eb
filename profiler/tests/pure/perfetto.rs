//! Traces for Perfetto: what is in them, packet by packet. `tests/tests/readers.rs` asks Perfetto
//! itself what it makes of them.

use std::{collections::BTreeMap, io::Read as _};

use flate2::read::ZlibDecoder;
use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    perfetto::{
        self, LeftOutOfTrace, TraceInput, TraceLimits,
        messages::{Data, Event, FtraceEvent, Trace, TracePacket},
    },
    spans::SpanLimits,
    timeline::Timeline,
};
use offwake_recording::{
    Function, Marker, MarkerKind, Recording, Sample, StackRef,
    units::{Cpu, Tgid, Tid},
};
use proptest::prelude::*;
use prost::Message as _;
use regex::Regex;

use crate::{
    corruption::corruption,
    draw::{at, live, recording},
    golden::{golden, service},
    simulator::{self, Migration, scenario},
    spans::find_with,
};

fn bytes(recording: &Recording) -> Vec<u8> {
    written(recording, TraceLimits::NONE).0
}

/// A trace within limits, and what it has no room for.
pub fn written(recording: &Recording, limits: TraceLimits) -> (Vec<u8>, LeftOutOfTrace) {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    let filter = Filter::default();
    let spans = find_with(recording, &filter, SpanLimits::default());
    let mut bytes = Vec::new();
    let trace = TraceInput { blame: &blame, filter: &filter, spans: &spans, limits };
    let left_out = perfetto::write(trace, &mut bytes).unwrap();
    (bytes, left_out)
}

/// The packets of a trace, those in compressed batches too.
fn packets(recording: &Recording) -> Trace {
    unpack(&bytes(recording))
}

fn unpack(bytes: &[u8]) -> Trace {
    let mut trace = Trace::default();
    for batch in Trace::decode(bytes).expect("a trace").packet {
        let Some(Data::CompressedPackets(compressed)) = batch.data else {
            panic!("a packet outside of any batch: {batch:?}");
        };
        let mut bytes = Vec::new();
        ZlibDecoder::new(&compressed[..]).read_to_end(&mut bytes).expect("a whole batch");
        trace.merge(&bytes[..]).expect("a trace");
    }
    trace
}

/// Writes a trace out, with a line for each packet and each event in it, and without what is not set.
fn text(trace: &Trace) -> String {
    let unset = Regex::new(r"\b[a-z_#]+: (None|\[\])(, )?").unwrap();
    let lines = trace.packet.iter().map(|packet| {
        let line = unset
            .replace_all(&format!("{packet:?}"), "")
            .replace(", }", " }")
            .replace(",  }", " }");
        line.replace("FtraceEvent {", "\n    FtraceEvent {") + "\n"
    });
    lines.collect()
}

/// The scheduler's events with their CPUs, in order.
fn events(trace: &Trace) -> Vec<(u32, &FtraceEvent)> {
    let bundles = trace.packet.iter().filter_map(|packet| match &packet.data {
        Some(Data::FtraceEvents(bundle)) => Some(bundle),
        _ => None,
    });
    bundles.flat_map(|bundle| bundle.event.iter().map(|event| (bundle.cpu(), event))).collect()
}

#[test]
fn the_trace_is_golden() {
    golden("service.pftrace.txt", &text(&packets(&service())));
}

#[test]
fn the_same_recording_gives_the_same_bytes() {
    let recording = service();
    assert!(bytes(&recording) == bytes(&recording));
}

#[test]
fn nothing_recorded_is_a_trace_all_the_same() {
    assert!(events(&packets(&Recording::default())).is_empty());
}

/// Each CPU goes from one thread to the next, and forward in time.
fn check_cpus(trace: &Trace) -> usize {
    let mut now = BTreeMap::new();
    let mut switches = 0;
    for (cpu, event) in events(trace) {
        if let Some(Event::SchedSwitch(switch)) = &event.event {
            let before = now.insert(cpu, (event.timestamp(), switch.next_pid()));
            let (at, running) = before.unwrap_or((0, 0));
            assert!(at <= event.timestamp(), "CPU {cpu}: {switch:?}");
            assert_eq!(running, switch.prev_pid(), "CPU {cpu}: {switch:?}");
            switches += 1;
        }
    }
    switches
}

#[test]
fn each_cpu_goes_from_one_thread_to_the_next() {
    assert!(check_cpus(&packets(&service())) > 10);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_recording_is_a_trace(scenario in scenario(Migration::On), corruption in corruption()) {
        let mut recording = simulator::run(&scenario).recording;
        corruption.apply(&mut recording);
        check_cpus(&packets(&recording));
    }
}

#[test]
fn an_interrupts_wake_is_laid_to_the_idle_task() {
    const IN_INTERRUPT: u32 = 0x18;
    let trace = packets(&service());
    let mut seen = [false; 2];
    for (_, event) in events(&trace) {
        if let Some(Event::SchedWaking(_)) = event.event {
            let in_interrupt = event.common_flags() & IN_INTERRUPT != 0;
            assert_eq!(in_interrupt, event.pid() == 0, "{event:?}");
            seen[usize::from(in_interrupt)] = true;
        }
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn names_of_other_programs_are_harmless() {
    let mut recording = service();
    for thread_event in &mut recording.thread_events {
        thread_event.comm = "\u{1b}[31m<b>\n\u{202e}".to_owned();
    }
    for frame in recording.stacks.frames.values_mut() {
        frame.functions = vec![Function::named("\u{1b}]0;x\u{7}\u{2028}f")];
    }
    let text = text(&packets(&recording));
    assert!(text.contains("?[31m<b>??") && text.contains("?]0;x??f"));
    // What is not printable would be written so.
    assert!(!text.contains("\\u{") && !text.contains("\\n"), "{text}");
}

fn event_texts(trace: &Trace) -> Vec<(u32, String)> {
    events(trace).into_iter().map(|(cpu, event)| (cpu, format!("{event:?}"))).collect()
}

#[test]
fn the_longest_waits_keep_their_slices_and_all_keep_their_events() {
    let recording = service();
    let whole = packets(&recording);
    let count = |trace: &Trace, category: &str| {
        let is_it = |packet: &&TracePacket| match &packet.data {
            Some(Data::TrackEvent(event)) => event.categories.iter().any(|one| one == category),
            _ => false,
        };
        trace.packet.iter().filter(is_it).count() as u64
    };
    let all = count(&whole, "wait");
    assert!(all > 4);
    let within =
        |most: u64| TraceLimits { waits: usize::try_from(most).unwrap(), ..TraceLimits::NONE };
    let nothing = LeftOutOfTrace::default();
    assert_eq!(written(&recording, within(all)), (bytes(&recording), nothing));
    for most in 0..all {
        let (bytes, left_out) = written(&recording, within(most));
        let left_out = left_out.waits;
        let trace = unpack(&bytes);
        let kept = count(&trace, "wait");
        // Waits of the same length are treated alike.
        assert!(kept <= most && kept + left_out == all, "{kept} and {left_out} of {all}");
        assert_eq!(event_texts(&trace), event_texts(&whole));
        let text = text(&trace);
        assert!(text.contains("short waits without slices"), "{most}");
    }
}

/// Whatever there is no room for, what is there is whole: a thread some of whose events are not would seem to go on
/// with what it did last.
#[test]
fn of_too_many_events_the_last_are_there_without_a_hole() {
    let recording = service();
    let texts = |trace: &Trace| -> Vec<(Option<u64>, String)> {
        let text = |event: &FtraceEvent| {
            let mut event = event.clone();
            // Functions are numbered in the order in which they are met.
            if let Some(Event::SchedBlockedReason(reason)) = &mut event.event {
                reason.caller = None;
            }
            format!("{event:?}")
        };
        events(trace).into_iter().map(|(_, event)| (event.timestamp, text(event))).collect()
    };
    // Others are written with these.
    let count = |events: &[(Option<u64>, String)]| {
        let is_counted = |text: &str| text.contains("SchedSwitch") || text.contains("SchedWaking");
        events.iter().filter(|(_, text)| is_counted(text)).count()
    };
    let whole = texts(&packets(&recording));
    let all = count(&whole);
    assert!(all > 10);
    let within = |events: usize| TraceLimits { events, ..TraceLimits::NONE };
    assert_eq!(written(&recording, within(all)), (bytes(&recording), LeftOutOfTrace::default()));
    for most in 0..all {
        let (bytes, left_out) = written(&recording, within(most));
        let trace = unpack(&bytes);
        let kept = texts(&trace);
        assert!(count(&kept) <= most, "{most}: {}", count(&kept));
        assert_eq!(count(&kept) as u64 + left_out.events, all as u64, "{most}");
        // From the first one on there are all.
        let first = kept.iter().filter_map(|(at, _)| *at).min();
        let later: Vec<_> =
            whole.iter().filter(|(at, _)| first.is_some() && *at >= first).cloned().collect();
        assert_eq!(later, kept, "{most}");
        let text = text(&trace);
        assert!(text.contains("events of the scheduler left out"), "{most}");
    }
}

#[test]
fn samples_and_requests_have_limits_that_are_told() {
    let mut recording = service();
    let samples = (1..6).map(|n| Sample {
        at: at(n),
        cpu: Cpu(0),
        tid: Tid(7),
        tgid: Tgid(7),
        seq: None,
        user_stack: StackRef::NotTaken,
        kernel_stack: StackRef::NotTaken,
    });
    recording.samples = samples.collect();
    let (trace, left_out) = written(&recording, TraceLimits { samples: 2, ..TraceLimits::NONE });
    // Each third.
    assert_eq!(left_out, LeftOutOfTrace { samples: 3, ..LeftOutOfTrace::default() });
    assert!(text(&unpack(&trace)).contains("samples left out (--full"));
    let (trace, left_out) = written(&recording, TraceLimits { requests: 0, ..TraceLimits::NONE });
    assert!(left_out.requests > 0, "{left_out:?}");
    assert!(text(&unpack(&trace)).contains("short requests left out"));
    // All that fits is there.
    let (_, left_out) = written(&recording, TraceLimits::USABLE);
    assert_eq!(left_out, LeftOutOfTrace::default());
}

/// Nested ranges are on one track; one that overlaps is on another of the same name, and an instant on a third.
#[test]
fn marked_ranges_are_slices_on_tracks_of_their_own() {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}#", ".".repeat(98)), 0);
    let markers = [
        (10, MarkerKind::Begin, "outer"),
        (20, MarkerKind::Begin, "inner"),
        (30, MarkerKind::End, "inner"),
        (35, MarkerKind::Begin, "beside"),
        (37, MarkerKind::Instant, "now"),
        (40, MarkerKind::End, "outer"),
        (50, MarkerKind::End, "beside"),
    ];
    r.markers.extend(markers.map(|(tick, kind, name)| Marker {
        at: at(tick),
        tid: Tid(7),
        tgid: Tgid(7),
        kind,
        track: "Work".into(),
        name: name.into(),
    }));
    let mut tracks = Vec::new();
    let mut events = Vec::new();
    for packet in packets(&r).packet {
        match packet.data {
            Some(Data::TrackDescriptor(track)) if track.name.as_deref() == Some("Work") => {
                tracks.push(track.uuid);
            }
            Some(Data::TrackEvent(event)) if tracks.contains(&event.track_uuid) => {
                let track = tracks.iter().position(|track| *track == event.track_uuid);
                events.push((
                    track.unwrap(),
                    event.r#type.unwrap(),
                    event.name.unwrap_or_default(),
                ));
            }
            _ => {}
        }
    }
    // 1 begins a slice, 2 ends one, 3 is an instant.
    let event = |track, kind, name: &str| (track, kind, name.to_owned());
    assert_eq!(
        events,
        [
            event(0, 1, "outer"),
            event(0, 1, "inner"),
            event(0, 2, ""),
            event(1, 1, "beside"),
            event(0, 2, ""),
            event(1, 2, ""),
            event(2, 3, "now"),
        ]
    );
}
