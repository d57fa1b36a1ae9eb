//! The stacks of sleeping threads that are offered, and read if somebody waits for those threads.

use std::{fs, io::Write as _, time::Duration};

use offwake_recording::{
    StackEnd,
    units::{StackId, Tgid, Tid},
};
use offwake_unwind::{Method, MissingPages};

use super::{PROGRAM, Running, compile, finish, joined};
use crate::{
    decode::{CodeEpoch, CopyPurpose, CopySize, UserStackCopy},
    parser::Parser,
    stacks::StackProcessor,
    symbols::clock::monotonic_now,
    unwinder_process::{UnwinderClient, serve},
};

const LONG: Duration = Duration::from_secs(60);
const OFFERED: StackId = StackId(7);

/// A program that sleeps until its input closes, in `die`.
fn start_sleeper(directory: &tempfile::TempDir) -> Running {
    let mut sleeper = Running::start(&compile(directory.path(), "sleeper", PROGRAM, &[]));
    sleeper.address();
    sleeper.address();
    sleeper
}

/// The offer of the stack of a program's only thread, once that sleeps in a syscall.
fn offer(tgid: Tgid) -> UserStackCopy<'static> {
    let registers = || {
        let call = fs::read_to_string(format!("/proc/{tgid}/syscall")).ok()?;
        let mut words = call.split_ascii_whitespace().rev();
        let mut register = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (ip, sp) = (register()?, register()?);
        Some((sp, ip))
    };
    let (sp, ip) = loop {
        if let Some(registers) = registers() {
            break registers;
        }
    };
    let status = fs::read_to_string(format!("/proc/{tgid}/status")).unwrap();
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let voluntary_switches = sleeps.unwrap().trim().parse().unwrap();
    UserStackCopy {
        id: OFFERED,
        call_site: None,
        cached_id: None,
        purpose: CopyPurpose::StillAsleep { voluntary_switches },
        copied: monotonic_now(),
        tgid,
        tid: Tid(tgid.0),
        ip,
        sp,
        fp: 0,
        python: None,
        size: CopySize::Long,
        red_zone: &[],
        bytes: &[],
        missing: MissingPages(0),
        code_epoch: CodeEpoch(0),
    }
}

/// A processor to which the stack of a program was offered.
fn processor_with_offer(sleeper: &Running) -> StackProcessor {
    let unwinder = UnwinderClient::new(Method::default(), Parser::in_thread(serve));
    let mut stacks = StackProcessor::new(unwinder, 16);
    stacks.observe_process(sleeper.tgid());
    assert!(stacks.process_copies(vec![offer(sleeper.tgid())]).is_empty());
    stacks
}

#[test]
fn an_offered_stack_is_read_if_it_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let sleeper = start_sleeper(&directory);
    let mut stacks = processor_with_offer(&sleeper);
    let (tid, stranger) = (Tid(sleeper.tgid().0), Tid(1));
    assert_eq!(stacks.read_sleepers(&[stranger, tid, tid], LONG), [(tid, OFFERED)]);
    let (table, diagnostics) = finish(stacks, &mut |_, _| {});
    let names: Vec<String> = table.frames_of(OFFERED).map(joined).collect();
    let named = names.iter().flat_map(|name| name.split(' '));
    assert_eq!(
        named.filter(|name| matches!(*name, "die" | "last" | "main")).count(),
        3,
        "{names:?}"
    );
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
}

#[test]
fn an_offered_stack_that_nobody_wants_is_in_no_recording() {
    let directory = tempfile::tempdir().unwrap();
    let sleeper = start_sleeper(&directory);
    let mut stacks = processor_with_offer(&sleeper);
    assert_eq!(stacks.read_sleepers(&[], LONG), []);
    let (table, _) = finish(stacks, &mut |_, _| {});
    assert!(table.stacks.is_empty());
}

#[test]
fn a_thread_that_has_woken_since_has_no_frames() {
    let directory = tempfile::tempdir().unwrap();
    let mut sleeper = start_sleeper(&directory);
    let mut stacks = processor_with_offer(&sleeper);
    let tid = Tid(sleeper.tgid().0);
    let woken = offer(sleeper.tgid()).purpose;
    // It reads a line, and sleeps in the same place again.
    sleeper.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    while offer(sleeper.tgid()).purpose == woken {}
    assert_eq!(stacks.read_sleepers(&[tid], LONG), [(tid, OFFERED)]);
    let (table, _) = finish(stacks, &mut |_, _| {});
    assert_eq!(table.stacks[&OFFERED].end, StackEnd::WaitOver);
    assert_eq!(table.frames_of(OFFERED).count(), 0);
}

#[test]
fn what_there_is_no_time_for_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let sleeper = start_sleeper(&directory);
    let mut stacks = processor_with_offer(&sleeper);
    let tid = Tid(sleeper.tgid().0);
    assert_eq!(stacks.read_sleepers(&[tid], Duration::ZERO), []);
    let (table, diagnostics) = finish(stacks, &mut |_, _| {});
    assert!(table.stacks.is_empty());
    assert_eq!(diagnostics["stacks_of_sleepers_unread"], 1);
}
