//! The formats of spans, byte for byte. `OFFWAKE_BLESS=1` writes them anew.

use offwake_analysis::{
    filter::Filter,
    spans::{
        self, SpanLimits, Spans,
        otlp::{ExportClock, Exporter},
    },
    timeline::Timeline,
};
use offwake_recording::{
    Clocks, FileKind, ProcessInfo, Recording, TaskState, WakeContext,
    units::{Tgid, Tid, Timestamp},
};

use super::{EXIT_GROUP, OPEN, busy, check, find_with, outline};
use crate::{
    draw::{at, edit, live, recording},
    fixtures::{FUTEX, READ, file, kernel, syscall, tcp, user},
    golden::golden,
};

/// A web server asks its database over TCP, which waits for its disk; then it waits for a lock, and
/// for a helper that crashes.
fn service() -> Recording {
    let mut r = recording(40);
    r.meta.boot_id = "8f0c".to_owned();
    r.clocks.push(Clocks {
        monotonic: at(0),
        realtime_ns: 1_772_350_000_000_000_000,
        boottime_ns: at(0).0,
    });
    //                     |         |         |         |
    live(&mut r, 7, "###.........####.....#####......########", 60);
    live(&mut r, 8, "########################################", 60);
    live(&mut r, 60, "..##.....r##............................", 7);
    live(&mut r, 61, ".......................#########        ", 7);
    for thread_event in &mut r.thread_events {
        (thread_event.tgid, thread_event.comm) = match thread_event.tid.0 {
            7 => (Tgid(7), "web".to_owned()),
            8 => (Tgid(7), "web-worker".to_owned()),
            60 => (Tgid(60), "db;\u{1b}[2J\"\n".to_owned()),
            _ => (Tgid(61), "helper".to_owned()),
        };
    }
    for (tgid, executable, cgroup) in [
        (7, "/usr/bin/web", Some(format!("/system.slice/docker-{}.scope", "4f".repeat(32)))),
        (60, "/usr/lib/db/db", Some("/system.slice/db.service".to_owned())),
    ] {
        r.processes.push(ProcessInfo {
            tgid: Tgid(tgid),
            at: at(0),
            parent: Some(Tgid(1)),
            executable: Some(executable.to_owned()),
            arguments: Vec::new(),
            cgroup,
            pid_in_container: None,
            uid: None,
        });
    }
    let asking = user(&mut r, 7, &["libc.so.6 recv", "web ask_database", "web main"]);
    let locking = user(&mut r, 7, &["libc.so.6 __lll_lock_wait", "web with_cache", "web main"]);
    let waiting = user(&mut r, 7, &["libc.so.6 read", "web run_helper", "web main"]);
    let answering = user(&mut r, 60, &["libc.so.6 write", "db answer<reply", "db main"]);
    let unlocking = user(&mut r, 7, &["libc.so.6 __lll_lock_wake", "web refill", "web main"]);
    let receive = kernel(&mut r, &["schedule_timeout", "sk_wait_data", "tcp_recvmsg"]);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait"]);
    let pipe = kernel(&mut r, &["schedule", "anon_pipe_read"]);
    let disk = kernel(&mut r, &["io_schedule", "folio_wait_bit_common"]);
    let socket = tcp(&mut r, 600, "127.0.0.1:40000", "127.0.0.1:5432");
    edit(&mut r, |waits| {
        for wait in waits {
            let wake = wait.wake.as_mut();
            match (wait.tid.0, wait.seq) {
                (7, 1) => {
                    (wait.syscall, wait.file) = (syscall(READ, [4, 0, 0, 0, 0, 0]), Some(socket));
                    (wait.user_stack, wait.kernel_stack) = (asking, receive);
                    wake.expect("woken").user_stack = answering;
                }
                (7, 2) => {
                    wait.syscall = syscall(FUTEX, [0x7f01, 128, 2, 0, 0, 0]);
                    (wait.user_stack, wait.kernel_stack) = (locking, futex);
                    let wake = wake.expect("woken");
                    (wake.current.tid, wake.current.tgid) = (Tid(8), Tgid(7));
                    wake.user_stack = unlocking;
                }
                (7, _) => {
                    wait.syscall = syscall(READ, [5, 0, 0, 0, 0, 0]);
                    wait.file = Some(file(FileKind::Pipe, 12));
                    (wait.user_stack, wait.kernel_stack) = (waiting, pipe);
                    let wake = wake.expect("woken");
                    (wake.current.tid, wake.current.tgid) = (Tid(61), Tgid(61));
                    wake.syscall = syscall(EXIT_GROUP, [0; 6]);
                }
                (60, 2) => {
                    (wait.state, wait.kernel_stack) = (TaskState(2), disk);
                    wake.expect("woken").context = WakeContext::Softirq(4);
                }
                _ => {}
            }
        }
    });
    r.exits[0].status = 0x8b;
    r.sort();
    r
}

#[test]
fn both_formats_are_as_blessed() {
    let recording = service();
    let spans = find_with(&recording, &Filter::default(), SpanLimits::default());
    check(&recording, &spans);
    assert_eq!(
        outline(&spans),
        [
            "client 7 2..12: self 1, on 60",
            "  server 60 2..12: self 4, RequestedBy",
            "    internal 60 4..9: self 0",
            "internal 7 16..21: self 0, on 8, EndedBy",
            "internal 8 16..21: self 5",
            "client 7 23..32: self 3, on 61, crashed 11",
            "  server 61 23..32: self 9, crashed 11, RequestedBy",
        ]
    );
    let mut json = Vec::new();
    spans::json::write(&recording, &spans, &mut json).expect("a Vec takes everything");
    let json = String::from_utf8(json).expect("UTF-8");
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["schema"], "offwake.spans/1");
    for span in value["spans"].as_array().expect("spans") {
        for key in [
            "trace_id",
            "span_id",
            "parent_span_id",
            "tid",
            "pid",
            "started_at",
            "ended_at",
            "self_us",
            "wait_us",
            "waiting_on_pid",
            "children",
            "kind",
            "name",
        ] {
            assert!(span.get(key).is_some(), "{key}");
        }
    }
    golden("service.spans.json", &json);
    golden("service.otlp.json", &otlp(&recording, &spans));
}

/// Writes spans as OTLP, indented to be read.
fn otlp(recording: &Recording, spans: &Spans) -> String {
    let timeline = Timeline::build(recording);
    let mut bytes = Vec::new();
    Exporter::new(recording, &timeline, spans).write(&mut bytes).expect("a Vec takes everything");
    let value: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    serde_json::to_string_pretty(&value).expect("JSON") + "\n"
}

#[test]
fn batches_hold_every_span_once() {
    let recording = busy();
    let timeline = Timeline::build(&recording);
    let spans = find_with(&recording, &Filter::default(), OPEN);
    let exporter = Exporter::new(&recording, &timeline, &spans);
    let mut ids = Vec::new();
    for (of_batch, request) in exporter.batches(7) {
        let value = serde_json::to_value(&request).expect("JSON");
        let processes = value["resourceSpans"].as_array().expect("processes").iter();
        let of_request = processes
            .flat_map(|process| process["scopeSpans"][0]["spans"].as_array().expect("spans"))
            .map(|span| span["spanId"].as_str().expect("an id").to_owned());
        let before = ids.len();
        ids.extend(of_request);
        assert_eq!(ids.len() - before, of_batch.len());
        assert!(of_batch.len() <= 7);
    }
    ids.sort_unstable();
    let mut expected: Vec<_> = spans.spans.iter().map(|span| span.span_id.to_string()).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
}

#[test]
fn without_the_walls_clock_every_process_says_so() {
    let mut recording = service();
    recording.clocks.clear();
    let spans = find_with(&recording, &Filter::default(), SpanLimits::default());
    let timeline = Timeline::build(&recording);
    assert_eq!(Exporter::new(&recording, &timeline, &spans).clock(), ExportClock::Monotonic);
    let text = otlp(&recording, &spans);
    assert_eq!(text.matches("CLOCK_MONOTONIC").count(), 3);
    assert!(text.contains(&format!("\"startTimeUnixNano\": \"{}\"", at(2).0)));
}

#[test]
fn times_and_names_that_no_recording_has_are_written_all_the_same() {
    let mut r = service();
    r.meta.window.end = Timestamp(u64::MAX);
    r.clocks[0].realtime_ns = i64::MIN;
    edit(&mut r, |waits| {
        for wait in waits {
            wait.on = Timestamp(u64::MAX);
        }
    });
    r.sort();
    let spans = find_with(&r, &Filter::default(), OPEN);
    check(&r, &spans);
    otlp(&r, &spans);
    let nothing = find_with(&Recording::default(), &Filter::default(), OPEN);
    assert_eq!(nothing.spans, []);
    otlp(&Recording::default(), &nothing);
}
