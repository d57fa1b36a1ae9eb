//! Processes whose code changes while they are recorded.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use offwake_recording::{StackEnd, units::Nanos};
use offwake_tests::{
    programs::{Compiled, Program, Source},
    wait_until::wait_until,
};

use super::recorded::Recorded;

/// How long the first function of a pair waits, and how long the second one, as both are compiled.
const FIRST_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 3_000_000;

/// Two builds of one source, which differ in the name of the function and in a number: what is the
/// one's is at the same place in the other.
fn pair(compiled: &Compiled, file: &str, flags: &[&str]) -> Result<[PathBuf; 2]> {
    let build = |name: &str, length: u64| {
        let (function, length) =
            (format!("-DWAITS={name}_waits"), format!("-DNANOSECONDS={length}"));
        let flags = [flags, &[&function, &length]].concat();
        compiled.compile(name, Source { compiler: "cc", file, flags: &flags })
    };
    Ok([build("first", FIRST_NS)?, build("second", SECOND_NS)?])
}

/// Whether the stacks of a program's waits have the function that waits so long.
#[derive(Debug, Default)]
struct StackCheck {
    right: u32,
    /// Waits without a stack to judge.
    not: u32,
    wrong: Vec<String>,
}

impl StackCheck {
    fn check(program: &Program, recorded: &Recorded) -> Self {
        let mut told = Self::default();
        for wait in recorded.0.waits.iter().filter(|wait| wait.tgid.0 == program.pid()) {
            let (right, wrong) = match wait.timeout {
                Some(Nanos(FIRST_NS)) => ("first_waits", "second_waits"),
                Some(Nanos(SECOND_NS)) => ("second_waits", "first_waits"),
                _ => continue,
            };
            let Ok(stack) = recorded.stack(wait.user_stack) else {
                told.not += 1;
                continue;
            };
            let functions = recorded.functions(stack);
            if functions.contains(&wrong) {
                told.wrong.push(functions.join(";"));
            } else if functions.contains(&right) && stack.end == StackEnd::EntryPoint {
                told.right += 1;
            } else {
                told.not += 1;
            }
        }
        told
    }

    fn none_is_wrong(&self) -> Result<()> {
        ensure!(self.right + self.not >= 100, "too few to tell: {self:?}");
        ensure!(self.wrong.is_empty(), "{self:?}");
        Ok(())
    }

    fn nearly_all_are_right(&self) -> Result<()> {
        self.none_is_wrong()?;
        ensure!(self.right >= 9 * self.not, "{self:?}");
        Ok(())
    }
}

/// A program that loads these libraries by turns.
fn plugins(names: &[&str]) -> Result<StackCheck> {
    let compiled = Compiled::empty()?;
    let flags = &["-O2", "-fomit-frame-pointer", "-shared", "-fPIC"];
    pair(&compiled, "plugin.c", flags)?;
    compiled.compile("plugins", Source { compiler: "cc", file: "plugins.c", flags: &["-O2"] })?;
    let libraries: Vec<_> = names.iter().map(|name| compiled.path(name)).collect();
    let paths: Vec<_> = libraries.iter().map(PathBuf::as_path).collect();
    let program = compiled.start("plugins", &paths)?;
    let recorded = Recorded::during(&program, &[], || {
        program.signal(libc::SIGUSR1)?;
        wait_until("it to sleep often", || {
            Ok(program.sleeping_threads()?.values().all(|sleeps| sleeps.count >= 300).then_some(()))
        })
    })?;
    Ok(StackCheck::check(&program, &recorded))
}

#[test]
fn a_library_that_is_loaded_meanwhile_is_whole() -> Result<()> {
    plugins(&["first"])?.nearly_all_are_right()
}

#[test]
fn a_library_that_takes_the_place_of_another_is_noticed() -> Result<()> {
    plugins(&["first", "second"])?.none_is_wrong()
}

/// Demands that the stacks of a program that waits in few places are whole, and recognised.
fn is_recognised(source: Source, arguments: &[&Path]) -> Result<()> {
    let compiled = Compiled::compile_one(source)?;
    let program = compiled.start(source.name(), arguments)?;
    let recorded = Recorded::during(&program, &[], || {
        let slept: u64 = program.sleeping_threads()?.values().map(|sleeps| sleeps.count).sum();
        wait_until("it to sleep often", || {
            let now: u64 = program.sleeping_threads()?.values().map(|sleeps| sleeps.count).sum();
            Ok((now >= slept + 2000).then_some(()))
        })
    })?;
    let own = recorded.0.waits.iter().filter(|wait| wait.tgid.0 == program.pid());
    let ends = recorded.ends(own.map(|wait| wait.user_stack));
    let whole = ends.get(&Some(StackEnd::EntryPoint)).copied().unwrap_or_default();
    ensure!(whole >= 9 * ends.values().sum::<u32>() / 10, "{ends:?}");
    let user = recorded.0.profiler_cost.stacks.user;
    ensure!(user.recognised > 4 * user.taken, "{user:?}");
    Ok(())
}

/// A database's data, say: code stays where it is. Each mapping would have all stacks copied anew.
#[test]
fn data_that_is_mapped_all_the_time_makes_no_stack_unknown() -> Result<()> {
    let flags = &["-O2", "-pthread"];
    is_recognised(Source { compiler: "cc", file: "maps.c", flags }, &[Path::new("shared")])
}

/// It would be another place each time.
#[test]
fn data_in_the_register_of_the_frame_pointer_makes_no_stack_unknown() -> Result<()> {
    let flags = &["-O2", "-fomit-frame-pointer", "-pthread"];
    is_recognised(Source { compiler: "cc", file: "data_in_rbp.c", flags }, &[])
}

fn becomes(flags: &[&str]) -> Result<StackCheck> {
    let compiled = Compiled::empty()?;
    let [first, second] = pair(&compiled, "becomes.c", flags)?;
    let program = compiled.start("first", &[&first, &second])?;
    let recorded = Recorded::for_a_while(&["-p", &program.pid().to_string()])?;
    Ok(StackCheck::check(&program, &recorded))
}

#[test]
fn a_process_that_becomes_another_program_is_noticed() -> Result<()> {
    becomes(&["-O2", "-fomit-frame-pointer"])?.nearly_all_are_right()
}

/// Until the exec is known, the addresses of the one program are taken to be the other's: so many
/// stacks can't be told.
#[test]
fn a_program_in_the_place_of_another_is_never_taken_for_it() -> Result<()> {
    becomes(&["-O2", "-fomit-frame-pointer", "-no-pie"])?.none_is_wrong()
}

#[test]
fn a_program_that_is_deleted_while_it_runs_is_whole() -> Result<()> {
    let flags = &["-O2", "-fomit-frame-pointer"];
    let compiled = Compiled::compile_one(Source { compiler: "cc", file: "blocked.c", flags })?;
    let path = compiled.path("blocked");
    let program = compiled.start("blocked", &[])?;
    fs::remove_file(&path).context("cannot delete the program")?;
    program.wait_until_asleep()?;
    let recorded = Recorded::while_asleep(&program, "auto")?;
    let main =
        recorded.last_waits().remove(&program.pid()).context("no wait of its first thread")?;
    let stack = recorded.stack(main.user_stack)?;
    let functions = recorded.functions(stack);
    ensure!(stack.end == StackEnd::EntryPoint, "{:?}: {functions:?}", stack.end);
    ensure!(functions.contains(&"blocks_in_read") && functions.contains(&"main"), "{functions:?}");
    Ok(())
}
