//! What stands first on every screen: who is looked at, and what leads, in which order.

use offwake_analysis::{
    filter::Filter,
    findings::{Finding, FindingKind},
    report::{Report, summary},
};
use offwake_recording::{
    OpenFile, PeerProcess, ProcessInfo, Recording, ThreadKind, WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::{at, edit, live, recording},
    fixtures::{FUTEX, RECVFROM, kernel, syscall, tcp, user},
    golden::{report as build_report, written},
};

fn report(recording: &mut Recording) -> Report {
    recording.sort();
    build_report(recording, &Filter::default())
}

fn screen(report: &Report) -> String {
    written(report, summary::write)
}

/// Thread 7 could run for so many of 100 ticks, while 60 has the CPU, and then waits for 61 for 60 ticks.
fn queued_for(ticks: usize) -> Vec<Finding> {
    let mut r = recording(100);
    let rest = 100 - 4 - ticks - 61;
    let (queued, blocked) = ("r".repeat(ticks), ".".repeat(60));
    live(&mut r, 7, &format!("##{queued}##{blocked}r{}", "#".repeat(rest)), 61);
    live(&mut r, 60, &format!("rr{}{}", "#".repeat(ticks), "_".repeat(98 - ticks)), 0);
    live(&mut r, 61, &"#".repeat(100), 0);
    let lock = user(&mut r, 7, &["libc.so.6 __lll_lock_wait", "app take", "app main"]);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 7) {
            (wait.user_stack, wait.syscall) = (lock, syscall(FUTEX, [1, 0, 0, 0, 0, 0]));
        }
    });
    report(&mut r).findings.list
}

/// Whoever lacks CPUs finds that first, whatever else takes longer: waits are longer for that as well.
#[test]
fn starvation_leads_from_the_share_on_from_which_it_is_called_so() {
    let found = queued_for(30);
    assert_eq!(found[0].kind, FindingKind::CpuStarvation, "{found:#?}");
    assert!(found[0].share >= 0.25 && found[0].share < 0.5, "{found:#?}");
    assert!(found[1].kind == FindingKind::Wait && found[1].share > found[0].share, "{found:#?}");
    // Below a quarter it is a wait as others are, in the order of time.
    let found = queued_for(20);
    assert!(found.iter().all(|finding| finding.kind != FindingKind::CpuStarvation), "{found:#?}");
    assert!(found[0].cause.kind == "work" && found[0].kind == FindingKind::Wait, "{found:#?}");
    assert!(found.iter().skip(1).any(|finding| finding.cause.kind == "cpu_queue"), "{found:#?}");
}

/// Nobody had the CPU that it could have run on: it was idle, and slow to begin. More CPUs are no help.
#[test]
fn who_waits_for_an_idle_cpu_does_not_lack_cpus() {
    let queued_while_60_runs_for = |ticks: usize| {
        let mut r = recording(100);
        live(&mut r, 7, &format!("##{}{}", "r".repeat(40), "#".repeat(58)), 61);
        let (before, after) = ("_".repeat(42 - ticks), "_".repeat(58));
        live(&mut r, 60, &format!("{before}{}{after}", "#".repeat(ticks)), 0);
        report(&mut r).findings.list
    };
    assert_eq!(queued_while_60_runs_for(30)[0].kind, FindingKind::CpuStarvation);
    let found = queued_while_60_runs_for(15);
    assert_eq!(found[0].kind, FindingKind::OnCpu, "{found:#?}");
    assert!(found[1].text.contains("held by thread60 (38% of it)"), "{found:#?}");
}

/// Thread 7 wakes 61 and loses its CPU to it for 40 of 100 ticks. Then it waits for `awaited`.
fn preempted_by_61(awaited: u32) -> Vec<Finding> {
    let mut r = recording(100);
    live(
        &mut r,
        7,
        &format!("##{}{}r#{}", "r".repeat(40), ".".repeat(20), "#".repeat(36)),
        awaited,
    );
    live(&mut r, 61, &format!("..{}", "#".repeat(98)), 7);
    live(&mut r, 62, &"#".repeat(100), 0);
    for preemption in &mut r.preemptions {
        preemption.next = Tid(61);
    }
    report(&mut r).findings.list
}

/// With another CPU it would have waited for that thread all along: that is no lack of CPUs.
#[test]
fn who_lost_its_cpu_to_the_thread_that_it_waits_for_does_not_lack_cpus() {
    let is_starved =
        |found: &[Finding]| found.iter().any(|finding| finding.kind == FindingKind::CpuStarvation);
    let found = preempted_by_61(61);
    assert!(!is_starved(&found), "{found:#?}");
    assert!(found.iter().all(|finding| finding.cause.kind != "cpu_queue"), "{found:#?}");
    // It waits for somebody else: another CPU would have helped.
    let found = preempted_by_61(62);
    assert!(is_starved(&found), "{found:#?}");
}

fn process(tgid: u32, arguments: &[&str]) -> ProcessInfo {
    ProcessInfo {
        tgid: Tgid(tgid),
        at: at(0),
        parent: None,
        executable: Some(format!("/usr/bin/{}", arguments[0])),
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        cgroup: None,
        pid_in_container: None,
        uid: None,
    }
}

/// The first line of a screen about processes that run these commands.
fn headline(commands: &[&[&str]]) -> String {
    let mut r = recording(100);
    for (command, tid) in commands.iter().zip(7..) {
        live(&mut r, tid, &"#".repeat(100), 0);
        if !command.is_empty() {
            r.processes.push(process(tid, command));
        }
    }
    screen(&report(&mut r)).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_first_line_names_what_an_interpreter_runs() {
    for (command, said) in [
        (&["python3", "/srv/web2.py", "--port", "80"][..], "pid 7 python3 web2.py · "),
        (&["node", "--max-old-space-size=64", "app.js"][..], "pid 7 node app.js · "),
        (&["ruby", "/srv/worker.rb"][..], "pid 7 ruby worker.rb · "),
        (&["redis-server", "*:6379"][..], "pid 7 redis-server · "),
        (&["python3", "-c", "pass"][..], "pid 7 python3 · "),
        // Nobody has read its command line.
        (&[][..], "pid 7 thread7 · "),
    ] {
        let line = headline(&[command]);
        assert!(line.starts_with(said), "{line}");
    }
    let line = headline(&[&["python3", "a.py"], &["python3", "b.py"]]);
    assert!(line.starts_with("pid 7 (2 processes, 2 threads)"), "{line}");
    let hostile = headline(&[&["python3", "a\u{1b}[31m.py"]]);
    assert!(!hostile.contains('\u{1b}'), "{hostile}");
}

/// The whole machine: a program that waits for another one, and two of the kernel's threads. `kworker` has such a life,
/// and `waker` ends the program's wait.
fn whole_machine(kworker: &str, waker: u32) -> Report {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r{}", ".".repeat(80), "#".repeat(18)), waker);
    if waker == 8 {
        live(&mut r, 8, &"#".repeat(100), 0);
    }
    live(&mut r, 17, &"_".repeat(100), 0);
    live(&mut r, 18, kworker, 0);
    let ask = user(&mut r, 7, &["libc.so.6 read", "app load", "app main"]);
    let flush = kernel(&mut r, &["schedule", "wait_for_completion", "__flush_work"]);
    let parked = kernel(&mut r, &["schedule", "smpboot_thread_fn", "kthread"]);
    let idle = kernel(&mut r, &["schedule", "worker_thread", "kthread"]);
    edit(&mut r, |waits| {
        for wait in waits {
            match wait.tid.0 {
                7 => (wait.user_stack, wait.kernel_stack) = (ask, flush),
                17 => (wait.kind, wait.kernel_stack) = (ThreadKind::Kernel, parked),
                _ => {
                    (wait.kind, wait.kernel_stack) = (ThreadKind::Kernel, idle);
                    if let Some(wake) = &mut wait.wake {
                        wake.context = WakeContext::Softirq(1);
                    }
                }
            }
            if wait.tid.0 == 7
                && let Some(wake) = wait.wake.as_mut().filter(|_| waker == 18)
            {
                wake.current_kind = ThreadKind::Kernel;
            }
        }
    });
    for event in &mut r.thread_events {
        match event.tid.0 {
            17 => (event.kind, event.comm) = (ThreadKind::Kernel, "migration/1".to_owned()),
            18 => (event.kind, event.comm) = (ThreadKind::Kernel, "kworker/0:1-eve".to_owned()),
            _ => {}
        }
    }
    r.meta.target = "all threads".to_owned();
    report(&mut r)
}

/// They sleep through all of the time, or are woken by a timer now and then, and are more than anything else.
#[test]
fn a_thread_of_the_kernel_that_has_nothing_to_do_leads_nowhere() {
    let idle = format!("#{}", format!("{}r#", ".".repeat(31)).repeat(3));
    let report = whole_machine(&idle[..100], 8);
    let [first, second, ..] = report.findings.list.as_slice() else { panic!("two findings") };
    let leading = [&first.chain[0].program, &second.chain[0].program];
    assert_eq!(leading, ["thread8", "thread7"], "{first:#?} {second:#?}");
    let text = screen(&report);
    let findings: Vec<_> =
        text.lines().take_while(|line| !line.contains("relevant loss")).collect();
    for name in ["migration", "kworker"] {
        assert!(!findings.concat().contains(name), "{text}");
    }
    assert!(report.findings.activity.idle_threads >= 1, "{:?}", report.findings.activity);
}

#[test]
fn a_thread_of_the_kernel_that_holds_somebody_up_is_the_cause() {
    let works = format!("{}r#{}", ".".repeat(8), "#".repeat(90));
    let report = whole_machine(&works, 18);
    let first = &report.findings.list[0];
    assert_eq!(first.chain[0].program, "thread7", "{first:#?}");
    let cause = first.chain.last().expect("a chain");
    assert_eq!((cause.program.as_str(), first.cause.kind), ("kworker", "work"), "{first:#?}");
    assert!(first.cause.share > 0.2, "{first:#?}");
    let text = screen(&report);
    let marked = text.lines().find(|line| line.contains("← cause")).unwrap_or_default();
    assert!(marked.contains("kworker"), "{text}");
    assert!(!text.contains("migration"), "{text}");
}

/// Thread 8 computes, then sends what 7 waits for; the kernel leaves the delivery to `ksoftirqd`.
#[test]
fn who_delivers_a_packet_is_no_hop_of_its_own() {
    let mut r = recording(100);
    let file = tcp(&mut r, 5, "127.0.0.1:40000", "127.0.0.1:80");
    if let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&file) {
        end.peers = vec![PeerProcess { tgid: Tgid(8), comm: "thread8".to_owned() }];
    }
    let delivered = [
        "sock_def_readable",
        "tcp_v4_rcv",
        "process_backlog",
        "net_rx_action",
        "handle_softirqs",
        "run_ksoftirqd",
        "smpboot_thread_fn",
    ];
    let delivered = kernel(&mut r, &delivered);
    let parked = kernel(&mut r, &["schedule", "smpboot_thread_fn", "kthread"]);
    live(&mut r, 7, &format!("#{}r{}", ".".repeat(80), "#".repeat(18)), 60);
    live(&mut r, 60, &format!("{}r{}", ".".repeat(70), "#".repeat(29)), 8);
    live(&mut r, 8, &"#".repeat(100), 9);
    edit(&mut r, |waits| {
        for wait in waits {
            let wake = wait.wake.as_mut().expect("woken");
            if wait.tid == Tid(7) {
                (wait.syscall, wait.file) = (syscall(RECVFROM, [5, 0, 0, 0, 0, 0]), Some(file));
                (wake.context, wake.kernel_stack) = (WakeContext::Softirq(3), delivered);
                wake.current_kind = ThreadKind::Kernel;
            } else {
                (wait.kind, wait.kernel_stack) = (ThreadKind::Kernel, parked);
            }
        }
    });
    for event in r.thread_events.iter_mut().filter(|event| event.tid == Tid(60)) {
        (event.kind, event.comm) = (ThreadKind::Kernel, "ksoftirqd/1".to_owned());
    }
    let report = report(&mut r);
    let chains: Vec<Vec<&str>> = (report.findings.list.iter())
        .map(|finding| finding.chain.iter().map(|hop| &*hop.program).collect())
        .collect();
    assert!(chains.contains(&vec!["thread7", "thread8"]), "{chains:?}");
    let text = screen(&report);
    assert!(!text.contains("ksoftirqd 60 waits for"), "{text}");
}
