//! User stacks are those that gdb finds, in programs that nobody built to be looked at, and reach
//! the function that their thread began in.

mod by_gdb;
mod changing;
mod recorded;
mod running;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use offwake_recording::StackEnd;
use offwake_tests::{
    paths,
    programs::{Compiled, Program, Source, nginx, postgres, redis},
};

use by_gdb::Thread;
use recorded::Recorded;

/// Records a program whose threads all sleep, each being roused a few times, and puts each thread's
/// last stack beside what gdb says of it.
fn compared(program: &Program, method: &str) -> Result<Vec<Thread>> {
    program.wait_until_asleep()?;
    let recorded = Recorded::while_asleep(program, method)?;
    by_gdb::compared(program, &recorded)
}

/// Says all that is wrong, not only what comes first.
fn all(threads: &[Thread], hold: impl Fn(&Thread) -> bool) -> Result<()> {
    let wrong: Vec<_> =
        threads.iter().filter(|thread| !hold(thread)).map(Thread::to_string).collect();
    ensure!(
        wrong.is_empty(),
        "{} of {} threads:\n{}",
        wrong.len(),
        threads.len(),
        wrong.join("\n")
    );
    Ok(())
}

/// Every thread's stack is gdb's, to the last frame, and ends where the thread began.
fn all_are_whole(program: &Program) -> Result<()> {
    all(&compared(program, "auto")?, Thread::is_whole)
}

#[test]
fn redis_is_whole() -> Result<()> {
    all_are_whole(&redis()?)
}

#[test]
fn postgres_is_whole() -> Result<()> {
    all_are_whole(&postgres()?)
}

#[test]
fn nginx_is_whole() -> Result<()> {
    all_are_whole(&nginx()?)
}

#[test]
fn python_is_whole() -> Result<()> {
    let python = Program::script("/usr/bin/python3".as_ref(), "threads.py", &[])?;
    let threads = compared(&python, "auto")?;
    all(&threads, Thread::is_whole)?;
    let functions: Vec<_> = threads.iter().flat_map(Thread::functions).collect();
    for waits in PYTHON_FUNCTIONS {
        ensure!(functions.contains(&waits), "no {waits} among {functions:?}");
    }
    Ok(())
}

/// Where the threads of `threads.py` wait, as Python has it.
const PYTHON_FUNCTIONS: [&str; 8] = [
    "takes_a_lock",
    "takes_from_a_queue",
    "waits_for_a_condition",
    "sleeps",
    "selects",
    "reads",
    "waits_for_a_child",
    "sorts",
];

#[test]
fn node_is_whole() -> Result<()> {
    let directory = paths::scratch_directory()?;
    let fifo = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status()?;
    ensure!(made.success(), "cannot make a FIFO");
    all_are_whole(&Program::script(&paths::node_binary()?, "waits.js", &[&fifo])?)
}

#[test]
fn tokio_is_whole() -> Result<()> {
    let mut command = std::process::Command::new(paths::tokio_program()?);
    all_are_whole(&Program::start_and_wait(command.arg("idle"), paths::scratch_directory()?)?)
}

/// Frame pointers and no `.eh_frame`; threads without a goroutine wait on the stack of the scheduler.
#[test]
fn go_is_whole() -> Result<()> {
    let go = Compiled::compile_one(Source { compiler: "go", file: "goroutines.go", flags: &[] })?;
    all_are_whole(&go.start("goroutines", &[])?)
}

/// libc starts the threads of a program with C code. Go's linker leaves nothing of how C's frames are
/// unwound, and gdb takes what is on the stack there for return addresses.
fn go_is_whole_down_to_c(flags: &[&str]) -> Result<()> {
    let source = Source { compiler: "go", file: "threads_of_c.go", flags };
    let threads = compared(&Compiled::compile_one(source)?.start("threads_of_c", &[])?, "auto")?;
    all(&threads, |thread| thread.end == StackEnd::EntryPoint)?;
    let of_c = |thread: &Thread| {
        let functions: Vec<_> = thread.functions().map(str::to_owned).collect();
        let behind = functions.iter().position(|function| function.starts_with("runtime.mstart"));
        let behind = functions.get(behind?..)?;
        Some(behind.iter().skip_while(|of| of.starts_with("runtime.")).cloned().collect::<Vec<_>>())
    };
    let all_of_c: Vec<_> = threads.iter().filter_map(of_c).collect();
    ensure!(!all_of_c.is_empty(), "no thread was started by C: {threads:?}");
    for of_c in all_of_c {
        let [crosses, entry, start, clone] = of_c.as_slice() else { anyhow::bail!("{of_c:?}") };
        // Go's own linker has one symbol more for each of its parts.
        let is_of_cgo = |function: &str, name: &str| {
            function.starts_with(name) || function == "runtime/cgo(.text)"
        };
        ensure!(is_of_cgo(crosses, "crosscall") && is_of_cgo(entry, "threadentry"), "{of_c:?}");
        ensure!(start == "start_thread" && clone.contains("clone"), "{of_c:?}");
    }
    Ok(())
}

#[test]
fn go_is_whole_down_to_the_c_that_started_it() -> Result<()> {
    go_is_whole_down_to_c(&[])
}

#[test]
fn go_that_c_s_linker_made_is_whole_down_to_c() -> Result<()> {
    go_is_whole_down_to_c(&["-ldflags=-linkmode=external"])
}

/// Nothing tells where C's functions begin: a stack is Go's alone.
#[test]
fn go_without_symbols_is_whole_as_far_as_it_is_go() -> Result<()> {
    let source = Source { compiler: "go", file: "threads_of_c.go", flags: &["-ldflags=-s -w"] };
    let threads = compared(&Compiled::compile_one(source)?.start("threads_of_c", &[])?, "auto")?;
    all(&threads, |thread| {
        thread.end == StackEnd::EntryPoint
            && thread.functions().all(|of| !of.contains("start_thread"))
    })?;
    let is_of_mstart = |thread: &&Thread| thread.functions().last() == Some("runtime.mstart");
    ensure!(threads.iter().any(|thread| is_of_mstart(&thread)), "{threads:?}");
    Ok(())
}

fn blocked(compiler: &str, flags: &[&str]) -> Result<Program> {
    Compiled::compile_one(Source { compiler, file: "blocked.c", flags })?.start("blocked", &[])
}

/// What a handler with a stack of its own interrupted is not in the copy of its stack.
const OTHER_STACK: &str = "other-stack";

fn whole_but_for_other_stacks(program: &Program, method: &str) -> Result<()> {
    let threads = compared(program, method)?;
    let (other, own): (Vec<_>, Vec<_>) =
        threads.into_iter().partition(|thread| thread.name == OTHER_STACK);
    all(&own, Thread::is_whole)?;
    ensure!(other.len() == 1, "{other:?}");
    // It lies far above the copy.
    let ends = [StackEnd::OtherStack, StackEnd::CopyTooShort];
    all(&other, |thread| ends.contains(&thread.end) && thread.is_the_beginning_of_gdbs())
}

#[test]
fn every_way_to_block_is_whole_without_frame_pointers() -> Result<()> {
    whole_but_for_other_stacks(&blocked("cc", &["-O2", "-fomit-frame-pointer"])?, "auto")
}

#[test]
fn call_frame_information_alone_is_enough_for_what_has_it() -> Result<()> {
    whole_but_for_other_stacks(&blocked("cc", &["-O2", "-fomit-frame-pointer"])?, "dwarf")
}

#[test]
fn a_static_program_with_glibc_is_whole() -> Result<()> {
    whole_but_for_other_stacks(&blocked("cc", &["-O2", "-static"])?, "auto")
}

#[test]
fn a_static_program_that_lies_anywhere_is_whole() -> Result<()> {
    whole_but_for_other_stacks(&blocked("cc", &["-O2", "-static-pie"])?, "auto")
}

/// What the threads of `blocked.c` call, from the first on, up to what is libc's again.
fn own_functions(thread: &str) -> Vec<&'static str> {
    let below = |first, calls| {
        let recursive = std::iter::repeat_n("recursive", calls);
        [first].into_iter().chain(recursive).chain(["blocks_in_read"]).collect()
    };
    match thread {
        "read" => vec!["blocks_in_read"],
        "sleep" => vec!["sleeps"],
        "poll" => vec!["polls"],
        "select" => vec!["selects"],
        "condition" => vec!["waits_for_a_condition"],
        "lock" => vec!["waits_for_a_lock"],
        "semaphore" => vec!["waits_for_a_semaphore"],
        "deep" => below("below_100_calls", 101),
        "deeper" => below("below_900_calls", 901),
        "called-back" => vec!["called_back", "compares", "blocks_in_read"],
        "any-size" => vec!["room_of_any_size", "blocks_in_read"],
        "large" => vec!["much_room", "blocks_in_read"],
        "handler" => vec!["in_a_signal_handler", "handler", "blocks_in_read"],
        "interrupted" => vec!["computes", "handler", "blocks_in_read"],
        _ => vec![],
    }
}

/// Whether the thread's functions that belong to `blocked.c` are the expected ones.
fn are_own(thread: &Thread) -> bool {
    let of_any: BTreeSet<_> = WAYS.iter().flat_map(|way| own_functions(way)).collect();
    let mut own: Vec<_> = thread.functions().filter(|function| of_any.contains(function)).collect();
    own.reverse();
    own == own_functions(&thread.name)
}

/// How the threads of `blocked.c` call themselves, but for [`OTHER_STACK`].
const WAYS: [&str; 14] = [
    "read",
    "sleep",
    "poll",
    "select",
    "condition",
    "lock",
    "semaphore",
    "deep",
    "deeper",
    "called-back",
    "any-size",
    "large",
    "handler",
    "interrupted",
];

fn by_name(threads: Vec<Thread>) -> BTreeMap<String, Thread> {
    threads.into_iter().map(|thread| (thread.name.clone(), thread)).collect()
}

/// Debian's musl says nothing of its own frames, where gdb guesses: they follow from its code.
#[test]
fn a_static_program_with_musl_is_whole() -> Result<()> {
    let threads = by_name(compared(&blocked("musl-gcc", &["-O2", "-static"])?, "auto")?);
    for way in WAYS {
        let thread = threads.get(way).with_context(|| format!("no thread {way}"))?;
        ensure!(are_own(thread) && thread.end == StackEnd::EntryPoint, "{thread}");
        let functions: Vec<_> = thread.functions().collect();
        ensure!(functions.ends_with(&["thread", "start", "__clone"]), "{thread}");
    }
    let main = threads.get("blocked").context("no main thread")?;
    let functions: Vec<_> = main.functions().collect();
    // `_start_c` jumps to what it has to do last.
    let begins = ["main", "libc_start_main_stage2", "_start"];
    ensure!(main.end == StackEnd::EntryPoint && functions.ends_with(&begins), "{main}");
    Ok(())
}

/// It exports its functions' names alone. What starts a thread has none, and is called by an address.
#[test]
fn a_program_with_a_shared_musl_is_whole_up_to_what_has_no_name() -> Result<()> {
    let threads = by_name(compared(&blocked("musl-gcc", &["-O2"])?, "auto")?);
    for way in WAYS {
        let thread = threads.get(way).with_context(|| format!("no thread {way}"))?;
        ensure!(are_own(thread) && thread.end == StackEnd::NoUnwindInfo, "{thread}");
        ensure!(thread.functions().any(|function| function == "thread"), "{thread}");
    }
    Ok(())
}
