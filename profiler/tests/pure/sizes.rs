//! How large files are of recordings with very many waits: no larger than what people can open and send.

use offwake_analysis::{
    analysis::{Analysis, AnalysisInput, AnalysisOptions, Extent},
    formats::{self, Written},
    perfetto::TraceLimits,
};
use offwake_recording::{
    Marker, MarkerKind, Preemption, Recording, Sample, StackRef, WakeContext,
    units::{Cpu, Tgid, Tid, Timestamp},
};

use crate::{
    draw::{TICK, at, preemption, recording, thread_event, wait, wake_by},
    fixtures::{FUTEX, RECVFROM, kernel, syscall, user},
    perfetto,
};

/// What files of a usable size have at most.
const USABLE: u64 = 20_000_000;

const THREADS: u32 = 400;
const PROCESSES: u32 = 20;
const STACKS: u32 = 300;
const CPUS: u64 = 16;

/// Numbers without a pattern that a compressor could find.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn process(tid: u32) -> Tgid {
    Tgid(1 + (tid - 1) % PROCESSES)
}

/// 400 threads of 20 programs, each with so many waits in 300 places, of which any thread may end any; and as many
/// samples and preemptions.
fn busy(waits_of_each: u64) -> Recording {
    let mut r = recording(usize::try_from(waits_of_each * 4 + 10).unwrap());
    let mut noise = Noise(1);
    let stacks: Vec<StackRef> = (0..STACKS)
        .map(|n| {
            let own: Vec<String> =
                (0..12).map(|depth| format!("app step_{}_of_{n}", depth * n % 31)).collect();
            let frames: Vec<&str> =
                ["libc.so.6 wait"].into_iter().chain(own.iter().map(String::as_str)).collect();
            user(&mut r, 1 + n % PROCESSES, &frames)
        })
        .collect();
    let sleeps = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    for tid in 1..=THREADS {
        let reason = offwake_recording::ThreadEventReason::Opening;
        let event = thread_event(tid, reason, at(0), Timestamp(u64::from(tid)));
        r.thread_events.push(offwake_recording::ThreadEvent {
            in_target: true,
            tgid: process(tid),
            phase: offwake_recording::Phase::OnCpu,
            comm: format!("worker-{tid}"),
            ..event
        });
        let mut now = at(1).0;
        for nth in 0..waits_of_each {
            let mut any_stack = || stacks[usize::try_from(noise.below(u64::from(STACKS))).unwrap()];
            let (waits_in, wakes_in, works_in) = (any_stack(), any_stack(), any_stack());
            let off = now + 100_000 + noise.below(TICK);
            let woken = off + 50_000 + noise.below(TICK);
            let on = woken + 1_000 + noise.below(100_000);
            let seq = u32::try_from(2 * nth).unwrap() + 1;
            let waker = 1 + u32::try_from(noise.below(u64::from(THREADS))).unwrap();
            let mut wake = wake_by(waker, Timestamp(woken));
            (wake.current.tgid, wake.user_stack) = (process(waker), wakes_in);
            if waker == tid {
                wake.context = WakeContext::Hrtimer;
            }
            let cpu = |noise: &mut Noise| Cpu(u16::try_from(noise.below(CPUS)).unwrap());
            let mut row = wait(tid, seq, Timestamp(off), Timestamp(on));
            (row.in_target, row.tgid, row.wake) = (true, process(tid), Some(wake));
            (row.off_cpu, row.on_cpu) = (cpu(&mut noise), cpu(&mut noise));
            (row.user_stack, row.kernel_stack) = (waits_in, sleeps);
            let call = if noise.below(2) == 0 { FUTEX } else { RECVFROM };
            row.syscall = syscall(call, [0x1000 + noise.below(64), 0, 0, 0, 0, 0]);
            r.waits.push(&row);
            let off = on + 10_000 + noise.below(TICK / 2);
            now = off + 5_000 + noise.below(TICK / 4);
            let row = preemption(tid, seq + 1, Timestamp(off), Timestamp(now));
            r.preemptions.push(Preemption { in_target: true, tgid: process(tid), ..row });
            r.samples.push(Sample {
                at: Timestamp(on + noise.below(10_000)),
                cpu: cpu(&mut noise),
                tid: Tid(tid),
                tgid: process(tid),
                seq: None,
                user_stack: works_in,
                kernel_stack: StackRef::NotTaken,
            });
        }
    }
    r.sort();
    r
}

/// The size of a file of this format, and what it says of what it leaves out.
fn size(analysis: &Analysis<'_>, format: &str) -> (u64, Option<String>) {
    let mut bytes = Vec::new();
    let written = formats::from_name(format).unwrap().write(analysis, &mut bytes).unwrap();
    let said = match written {
        Written::Limited(said) => Some(said),
        _ => None,
    };
    (bytes.len() as u64, said)
}

/// What does not fit is said.
#[test]
fn files_of_very_many_waits_have_a_usable_size() {
    let input = AnalysisInput::new(busy(30));
    let analysis = Analysis::new(&input, AnalysisOptions::default());
    for format in ["json", "folded", "firefox"] {
        let (bytes, said) = size(&analysis, format);
        assert!(bytes <= USABLE, "{format}: {bytes} bytes");
        assert!(said.is_some(), "{format} says nothing of what it leaves out");
    }
    // All of it would not have been usable.
    let options = AnalysisOptions { extent: Extent::Full, ..AnalysisOptions::default() };
    let (bytes, said) = size(&Analysis::new(&input, options), "folded");
    assert!(bytes > 2 * USABLE && said.is_none(), "{bytes} bytes, {said:?}");
}

/// Adds ranges with a name each.
fn mark_much(recording: &mut Recording) {
    let (start, length) = (recording.meta.window.start.0, recording.meta.window.length().0);
    let ranges = 8_000;
    for n in 0..ranges {
        for (kind, part) in [(MarkerKind::Begin, 0), (MarkerKind::End, 1)] {
            recording.markers.push(Marker {
                at: Timestamp(start + (2 * n + part) * length / (2 * ranges)),
                tid: Tid(1),
                tgid: process(1),
                kind,
                track: "Work".into(),
                name: format!("request {n}").into(),
            });
        }
    }
    recording.sort();
}

/// Of everything that a trace has a limit for, as much as there may be takes no more than that: by what each takes where
/// nothing is alike.
#[test]
fn a_trace_with_as_much_of_everything_as_there_may_be_has_a_usable_size() {
    let mut recording = busy(20);
    mark_much(&mut recording);
    let none = TraceLimits { waits: 0, events: 0, samples: 0, requests: 0, markers: 0 };
    let (nothing, all) = perfetto::written(&recording, none);
    let usable = TraceLimits::USABLE;
    let kinds = [
        (TraceLimits { waits: usize::MAX, ..none }, all.waits, usable.waits),
        (TraceLimits { events: usize::MAX, ..none }, all.events, usable.events),
        (TraceLimits { samples: usize::MAX, ..none }, all.samples, usable.samples),
        (TraceLimits { requests: usize::MAX, ..none }, all.requests, usable.requests),
        (TraceLimits { markers: usize::MAX, ..none }, all.markers, usable.markers),
    ];
    let mut sum = nothing.len() as u64;
    for (limits, count, most) in kinds {
        let bytes = (perfetto::written(&recording, limits).0.len() - nothing.len()) as u64;
        assert!(count > 5_000, "too few to tell: {limits:?}");
        sum += bytes * most as u64 / count;
    }
    assert!(sum <= USABLE, "{sum} bytes");
}

/// What needs no limit has none.
#[test]
fn files_of_few_waits_have_everything() {
    let input = AnalysisInput::new(busy(2));
    let analysis = Analysis::new(&input, AnalysisOptions::default());
    for format in ["json", "folded", "pftrace", "firefox"] {
        assert_eq!(size(&analysis, format).1, None, "{format}");
    }
}
