//! Whole outputs, byte for byte. `OFFWAKE_BLESS=1` writes them anew.

use std::{fs, io, path::Path};

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::{Filter, ThreadKinds},
    formats::json,
    report::{Report, flame::View, folded, summary, svg},
    timeline::Timeline,
};
use offwake_recording::{
    FileKind, OpenFile, PeerProcess, Recording, StackRef, TaskState, WakeContext, Window,
    units::{Nanos, Tgid, Timestamp},
};

use crate::{
    draw::{at, edit, live, lose, recording, ticks, wait},
    fixtures::{
        CLOCK_NANOSLEEP, FSYNC, FUTEX, READ, RECVFROM, file, kernel, packet_over, syscall, tcp,
        user,
    },
    flames::{all_frames, picture_in},
};

/// Three threads: `web` waits for a lock that `worker` holds, for a reply over TCP, for time; the
/// `worker` for its disk, and one record of it is lost. `idle;\x1b` waits for something that never
/// comes.
pub fn service() -> Recording {
    let mut r = recording(40);
    //                    |         |         |         |
    live(&mut r, 7, "###......rr##...r####.....##.......r####", 8);
    live(&mut r, 8, "######r########...######.####......r####", 60);
    live(&mut r, 9, "________________________________________", 60);
    live(&mut r, 60, "########################################", 7);
    for thread_event in &mut r.thread_events {
        (thread_event.tgid, thread_event.comm) = match thread_event.tid.0 {
            7 => (Tgid(7), "web".to_owned()),
            8 => (Tgid(7), "worker".to_owned()),
            9 => (Tgid(9), "idle;\u{1b}[2J\n".to_owned()),
            _ => (Tgid(60), "redis".to_owned()),
        };
    }
    let socket = tcp(&mut r, 600, "127.0.0.1:40000", "127.0.0.1:6379");
    let peer = PeerProcess { tgid: Tgid(60), comm: "redis".to_owned() };
    if let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket) {
        end.peers.push(peer);
    }
    let lock =
        user(&mut r, 7, &["libc.so.6 __lll_lock_wait", "web Mutex::lock<handle", "web main"]);
    let reply = user(&mut r, 7, &["libc.so.6 recv", "web +1f40", "web main"]);
    let unlock = user(&mut r, 7, &["libc.so.6 __lll_lock_wake", "web finish;job", "web main"]);
    let answer = user(&mut r, 60, &["libc.so.6 write", "redis reply", "redis main"]);
    let futex_wait = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    let futex_wake = kernel(&mut r, &["wake_up_q", "futex_wake", "do_futex"]);
    let receive = kernel(&mut r, &["schedule_timeout", "sk_wait_data", "tcp_recvmsg_locked"]);
    let sleep = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    let sync = kernel(&mut r, &["schedule", "jbd2_log_wait_commit", "ext4_sync_file"]);
    let deliver = packet_over(
        &mut r,
        &["do_softirq.part.0", "__local_bh_enable_ip", "__dev_queue_xmit", "tcp_sendmsg"],
    );
    edit(&mut r, |waits| {
        waits.iter_mut().for_each(|wait| {
            let wake = wait.wake.as_mut();
            match (wait.tid.0, wait.seq) {
                (7, 1 | 2) => {
                    wait.tgid = Tgid(7);
                    wait.syscall = syscall(FUTEX, [0x7f01, 128, 2, 0, 0, 0]);
                    (wait.user_stack, wait.kernel_stack) = (lock, futex_wait);
                    let wake = wake.unwrap();
                    (wake.user_stack, wake.kernel_stack) = (unlock, futex_wake);
                    wake.current.tgid = Tgid(7);
                }
                (7, 3) => {
                    wait.tgid = Tgid(7);
                    (wait.syscall, wait.file) =
                        (syscall(RECVFROM, [4, 0, 0, 0, 0, 0]), Some(socket));
                    (wait.user_stack, wait.kernel_stack) = (reply, receive);
                    let wake = wake.unwrap();
                    (wake.user_stack, wake.kernel_stack) = (answer, deliver);
                    wake.context = WakeContext::Softirq(3);
                    (wake.current.tid, wake.current.tgid) =
                        (offwake_recording::units::Tid(60), Tgid(60));
                }
                (7, _) => {
                    wait.tgid = Tgid(7);
                    wait.timeout = Some(ticks(7));
                    wait.syscall = syscall(CLOCK_NANOSLEEP, [1, 0, 0, 0, 0, 0]);
                    (wait.user_stack, wait.kernel_stack) = (StackRef::Failed, sleep);
                    wake.unwrap().context = WakeContext::Hrtimer;
                }
                (8, _) => {
                    wait.tgid = Tgid(7);
                    wait.state = TaskState(2);
                    wait.syscall = syscall(FSYNC, [9, 0, 0, 0, 0, 0]);
                    wait.file = Some(file(FileKind::Regular, 77));
                    wait.kernel_stack = sync;
                    wake.unwrap().context = WakeContext::Softirq(4);
                }
                _ => {
                    wait.syscall = syscall(READ, [0, 0, 0, 0, 0, 0]);
                    wait.file = Some(file(FileKind::Pipe, 12));
                }
            }
        })
    });
    for preemption in &mut r.preemptions {
        preemption.tgid = Tgid(7);
    }
    lose(&mut r, 8, 3);
    r.loss.records = 1;
    r.loss.counters.insert("ring_full_wait".to_owned(), 1);
    r.loss.ring_full = Some((at(24), at(24)));
    r.sort();
    r
}

pub fn report(recording: &Recording, filter: &Filter) -> Report {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    Report::new(&blame, filter)
}

pub type Writer = fn(&Report, &mut dyn io::Write) -> io::Result<()>;

/// Folded stacks as they are unless asked for otherwise.
pub fn folded(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    folded::write(report, &View::default(), out)
}

/// A picture as it is unless asked for otherwise.
pub fn picture(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    svg::write(report, &View::default(), out)
}

pub fn written(report: &Report, write: Writer) -> String {
    let mut bytes = Vec::new();
    write(report, &mut bytes).expect("a Vec takes everything");
    String::from_utf8(bytes).expect("UTF-8")
}

/// What is printed with `--verbose`.
pub fn summary_and_details(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    summary::write(report, out)?;
    writeln!(out)?;
    summary::write_details(report, out)
}

/// Compares with the golden file, and names the first line that differs.
pub fn golden(name: &str, is: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("OFFWAKE_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&path, is).expect("writing the golden file");
        return;
    }
    let shown = format!("profiler/tests/golden/{name}");
    let was = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{shown}: {e}; bless it"));
    let mut lines = (was.lines().map(Some).chain([None])).zip(is.lines().map(Some).chain([None]));
    if let Some(line) = lines.position(|(was, is)| was != is) {
        let nth = |text: &str| text.lines().nth(line).unwrap_or("(end of file)").to_owned();
        panic!("{shown}:{}\n  was {}\n  is  {}", line + 1, nth(&was), nth(is));
    }
    assert_eq!(was, is, "{shown}: the end of the file differs");
}

#[test]
fn json_is_as_blessed() {
    let text = written(&report(&service(), &Filter::default()), json::write);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for thread in value["threads"].as_array().expect("threads") {
        let ns = |key: &str| thread[key].as_u64().expect("a number");
        assert_eq!(ns("wall_ns"), ns("on_cpu_ns") + ns("runnable_ns") + ns("blocked_ns"));
        let parts = ns("attributed_ns") + ns("external_ns") + ns("unattributed_ns");
        assert_eq!(ns("blocked_ns"), parts);
    }
    golden("service.json", &text);
}

#[test]
fn full_json_is_as_blessed() {
    golden(
        "service-full.json",
        &written(&report(&service(), &Filter::default()), json::write_full),
    );
}

#[test]
fn folded_stacks_are_as_blessed() {
    let report = report(&service(), &Filter::default());
    let text = written(&report, folded);
    let values = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(values.sum::<u64>(), report.waits.iter().map(|wait| wait.blocked_ns.0).sum::<u64>());
    golden("service.folded", &text);
}

#[test]
fn the_picture_is_as_blessed() {
    golden("service.svg", &written(&report(&service(), &Filter::default()), picture));
}

#[test]
fn the_summary_is_as_blessed() {
    let text = written(&report(&service(), &Filter::default()), summary_and_details);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    golden("service.summary.txt", &text);
}

#[test]
fn a_report_of_nothing_is_one_all_the_same() {
    let report = report(&Recording::default(), &Filter::default());
    for write in [json::write, folded, picture, summary::write] as [Writer; 4] {
        written(&report, write);
    }
    assert!(written(&report, picture).contains("No wait to show"));
    assert!(written(&report, summary::write).contains("nothing holds it up"));
    assert!(written(&report, summary::write_details).contains("no waits"));
}

#[test]
fn times_that_no_recording_has_are_drawn_all_the_same() {
    let mut recording = recording(1);
    recording.meta.window = Window { start: at(0), end: Timestamp(u64::MAX) };
    for tid in [7, 8] {
        recording.waits.push(&wait(tid, 1, at(0), Timestamp(u64::MAX)));
    }
    recording.sort();
    let report = report(&recording, &Filter::default());
    assert!(picture_in(&report, &all_frames()).contains(" s, 50.0%"));
    written(&report, picture);
    written(&report, folded);
}

#[test]
fn a_name_that_begins_like_a_comment_keeps_its_time() {
    let mut recording = service();
    for thread_event in &mut recording.thread_events {
        thread_event.comm = "# web".to_owned();
    }
    let text = written(&report(&recording, &Filter::default()), folded);
    assert!(text.lines().all(|line| line.starts_with("? web-")), "{text}");
}

#[test]
fn the_filter_takes_from_the_waits_and_never_from_the_ledger() {
    let recording = service();
    let all = report(&recording, &Filter::default());
    for filter in [
        Filter { min: Some(ticks(6)), ..Filter::default() },
        Filter { max: Some(ticks(5)), ..Filter::default() },
        Filter { kinds: ThreadKinds::Kernel, ..Filter::default() },
        Filter { states: Some(vec!['D']), ..Filter::default() },
    ] {
        let some = report(&recording, &filter);
        assert_eq!(some.threads, all.threads);
        let sum = |report: &Report| report.waits.iter().map(|w| w.blocked_ns).sum::<Nanos>();
        assert!(some.filter.left_out_ns > Nanos(0), "{filter:?}");
        assert_eq!(sum(&some) + some.filter.left_out_ns, sum(&all), "{filter:?}");
        let count = |report: &Report| report.waits.iter().map(|w| w.count).sum::<u64>();
        assert_eq!(count(&some) + some.filter.left_out_count, count(&all), "{filter:?}");
    }
}
