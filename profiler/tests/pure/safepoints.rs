//! The JVM stops all of its threads for a garbage collection: that is no sleep of theirs.

use offwake_analysis::{
    filter::Filter,
    findings::{Finding, FindingKind},
};
use offwake_recording::WakeContext;

use crate::{
    draw::{edit, live, recording},
    fixtures::{FUTEX, kernel, syscall, user},
    golden::report as build_report,
};

/// What is said of thread 7, which the VM's thread 8 wakes in this stack, or a timer.
fn finding(frames: &[&str], woken_by: Option<u32>) -> Finding {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r##", ".".repeat(96)), woken_by.unwrap_or(0));
    live(&mut r, 8, &"#".repeat(100), 0);
    let stack = user(&mut r, 7, frames);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    edit(&mut r, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid.0 == 7) {
            wait.syscall = syscall(FUTEX, [0x1000, 0, 0, 0, 0, 0]);
            (wait.user_stack, wait.kernel_stack) = (stack, futex);
            if woken_by.is_none() {
                wait.wake.as_mut().unwrap().context = WakeContext::Hrtimer;
            }
        }
    });
    r.sort();
    let found = build_report(&r, &Filter::default()).findings.list;
    found.into_iter().find(|found| found.kind != FindingKind::OnCpu).expect("a finding")
}

#[test]
fn who_sleeps_into_a_pause_of_the_jvm_waits_for_its_end() {
    let sleeps = ["libjvm.so JavaThread::sleep(long)", "libjvm.so JVM_Sleep", "app Shop.run"];
    let in_pause =
        ["libjvm.so LinuxWaitBarrier::wait(int)", "libjvm.so SafepointSynchronize::block"];
    let found = finding(&[&in_pause[..], &sleeps].concat(), Some(8));
    assert!(found.text.contains("waits until the JVM's pause is over (safepoint)"), "{found:#?}");
    assert_eq!(found.cause.kind, "work", "{found:#?}");

    let found = finding(&[&["libjvm.so os::PlatformMonitor::wait"][..], &sleeps].concat(), None);
    assert_eq!(found.kind, FindingKind::Sleep, "{found:#?}");
}
