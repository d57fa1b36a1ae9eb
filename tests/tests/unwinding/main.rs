//! User stacks are those that gdb finds, in programs that nobody built to be looked at, and reach
//! the function that their thread began in.

mod by_gdb;
mod changing;
mod recorded;
mod running;

use anyhow::{Result, ensure};
use offwake::recording::StackEnd;
use offwake_tests::{
    places,
    programs::{Compiled, Program, Source, nginx, postgres, redis},
};

use by_gdb::Thread;
use recorded::Recorded;

/// Records a program whose threads all sleep, each being roused a few times, and puts each thread's
/// last stack beside what gdb says of it.
fn compared(program: &Program, method: &str) -> Result<Vec<Thread>> {
    program.wait_until_asleep()?;
    let recorded = Recorded::asleep(program, method)?;
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
    let directory = places::scratch()?;
    let fifo = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status()?;
    ensure!(made.success(), "cannot make a FIFO");
    all_are_whole(&Program::script(&places::node()?, "waits.js", &[&fifo])?)
}

#[test]
fn tokio_is_whole() -> Result<()> {
    let mut command = std::process::Command::new(places::tokio_program()?);
    all_are_whole(&Program::ready(command.arg("idle"), places::scratch()?)?)
}

/// Frame pointers and no `.eh_frame`; threads without a goroutine wait on the stack of the scheduler.
#[test]
fn go_is_whole() -> Result<()> {
    let go = Compiled::program(Source { compiler: "go", file: "goroutines.go", flags: &[] })?;
    all_are_whole(&go.start("goroutines", &[])?)
}

fn blocked(compiler: &str, flags: &[&str]) -> Result<Program> {
    Compiled::program(Source { compiler, file: "blocked.c", flags })?.start("blocked", &[])
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

/// What each thread of `blocked.c` alone calls.
const OWN_FUNCTIONS: [(&str, &str); 9] = [
    ("sleep", "sleeps"),
    ("poll", "polls"),
    ("select", "selects"),
    ("condition", "waits_for_a_condition"),
    ("lock", "waits_for_a_lock"),
    ("semaphore", "waits_for_a_semaphore"),
    ("called-back", "called_back"),
    ("any-size", "room_of_any_size"),
    ("large", "much_room"),
];

/// Debian's musl says nothing of its own frames, where gdb guesses. By frame pointers those that keep none are passed
/// over, but nobody is shown who is not there.
#[test]
fn a_static_program_with_musl_says_that_it_can_not_be_told() -> Result<()> {
    let threads = compared(&blocked("musl-gcc", &["-O2", "-static"])?, "auto")?;
    all(&threads, |thread| {
        let others = OWN_FUNCTIONS.iter().filter(|(name, _)| *name != thread.name);
        let mut functions = thread.functions();
        thread.end == StackEnd::NoUnwindInfo
            && functions.all(|function| others.clone().all(|(_, other)| function != *other))
    })
}
