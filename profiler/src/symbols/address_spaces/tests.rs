//! What this process had mapped, and when.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use offwake_recording::{
    loss::Diagnostics,
    units::{Tgid, Timestamp},
};

use super::{
    AddressSpaces, LookupTime, MAX_PROCESSES, ProgramChange,
    modules::Modules,
    process::{MappedCode, Moment, Process},
};
use crate::{decode::CodeEpoch, symbols::clock::monotonic_now};

fn own() -> Tgid {
    Tgid(std::process::id())
}

#[inline(never)]
fn a_function_of_this_test() -> u64 {
    std::hint::black_box(a_function_of_this_test as fn() -> u64 as usize as u64)
}

#[test]
fn a_stack_belongs_to_the_program_that_ran_when_it_was_taken() {
    let (mut modules, mut diagnostics) = (Modules::new(), Diagnostics::new());
    let mut process = Process::default();
    process.begin(Timestamp(0));
    assert!(process.read_mappings(own(), None, &mut modules, &mut diagnostics));
    let exec = Timestamp(monotonic_now().0 + 1000);
    assert!(process.exec(exec));
    let address = a_function_of_this_test();
    assert!(matches!(
        process.find(Moment::at(Timestamp(exec.0 - 1)), address),
        MappedCode::Mapping(_)
    ));
    assert!(matches!(process.find(Moment::at(exec), address), MappedCode::Nothing));
    // An exec that is heard of after the mappings were read: they are the new program's.
    let mut process = Process::default();
    process.begin(Timestamp(0));
    assert!(process.read_mappings(own(), None, &mut modules, &mut diagnostics));
    assert!(!process.exec(Timestamp(5)));
    assert!(matches!(process.find(Moment::at(Timestamp(4)), address), MappedCode::Nothing));
    assert!(matches!(process.find(Moment::at(Timestamp(5)), address), MappedCode::Mapping(_)));
}

/// What was mapped in one epoch says nothing about a stack of another one.
#[test]
fn a_stack_is_looked_up_in_what_was_mapped_in_its_epoch() {
    let epoch = Arc::new(AtomicU32::new(7));
    let epochs = Arc::clone(&epoch);
    let mut spaces = AddressSpaces::new();
    spaces.set_code_epochs(Box::new(move |_| Some(CodeEpoch(epochs.load(Ordering::Relaxed)))));
    spaces.observe_process(own());
    let mut modules_in = |taken, code_epoch| {
        let moment = Moment { taken, code_epoch: Some(CodeEpoch(code_epoch)) };
        spaces.update_mappings(own(), moment, &[a_function_of_this_test()]);
        let process = &spaces.processes[&own()];
        matches!(process.find(moment, a_function_of_this_test()), MappedCode::Mapping(_))
    };
    let before = Timestamp(monotonic_now().0 - 1);
    assert!(modules_in(before, 7));
    assert!(!modules_in(before, 6));
    epoch.store(8, Ordering::Relaxed);
    // It is read again, and has not changed: what is the same before and after was there all along.
    assert!(modules_in(monotonic_now(), 8) && modules_in(before, 7));
    epoch.store(10, Ordering::Relaxed);
    assert!(modules_in(monotonic_now(), 10) && modules_in(before, 9));
}

#[test]
fn processes_beyond_their_number_are_counted_and_those_before_stay() {
    let mut spaces = AddressSpaces::new();
    for tgid in 0..u32::try_from(MAX_PROCESSES).unwrap() {
        spaces.processes.entry(Tgid(1_000_000 + tgid)).or_default().begin(Timestamp(0));
    }
    spaces.observe_process(own());
    spaces.observe_exec(own(), Timestamp(1), LookupTime::Now);
    assert_eq!(spaces.processes.len(), MAX_PROCESSES);
    let mut diagnostics = Diagnostics::new();
    spaces.add_diagnostics(&mut diagnostics);
    assert_eq!(diagnostics.get("symbols_processes_over_limit"), Some(&2));
}

#[test]
fn a_program_that_is_looked_up_later_is_read_with_its_first_stack_or_when_its_time_has_come() {
    let address = a_function_of_this_test();
    let is_read = |spaces: &AddressSpaces| {
        let process = &spaces.processes[&own()];
        matches!(process.find(Moment::at(monotonic_now()), address), MappedCode::Mapping(_))
    };
    let exec = || {
        let mut spaces = AddressSpaces::new();
        spaces.observe_exec(own(), Timestamp(1), LookupTime::Later);
        assert!(!is_read(&spaces));
        spaces
    };
    let mut spaces = exec();
    spaces.update_mappings(own(), Moment::at(monotonic_now()), &[address]);
    assert!(is_read(&spaces));
    let mut spaces = exec();
    spaces.read_unread_mappings(own());
    assert!(is_read(&spaces));
    let changes = spaces.drain_changes().len();
    spaces.read_unread_mappings(own());
    assert_eq!((changes, spaces.drain_changes().len()), (2, 0));
}

/// A shell script's programs end before their last stacks come: 10,500 of 10,700 questions in 3 s
/// were about processes that were gone.
#[test]
fn a_process_that_is_gone_is_not_asked_about_with_each_of_its_stacks() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let gone = Tgid(child.id());
    child.wait().unwrap();
    let mut spaces = AddressSpaces::new();
    let address = a_function_of_this_test();
    for _ in 0..3 {
        spaces.update_mappings(gone, Moment::at(monotonic_now()), &[address]);
    }
    let readings = spaces.drain_changes();
    assert_eq!(readings, [ProgramChange::Mapped(gone)]);
    let mut diagnostics = Diagnostics::new();
    spaces.add_diagnostics(&mut diagnostics);
    assert_eq!(diagnostics.get("symbols_processes_gone"), Some(&1));
}
