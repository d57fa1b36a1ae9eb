//! Stacks of threads that run: those that wake others, and those that the sampling clock finds.

use std::{process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use offwake_recording::{StackEnd, StackRef, WakeContext};
use offwake_tests::{
    paths,
    programs::{Compiled, Program, Source, redis},
    wait_until::wait_at_most,
};

use super::recorded::Recorded;

/// The part of the stacks that must be whole: a thread's first ones may be under way to where they are unwound.
const SHARE: f64 = 0.99;

fn nearly_all_are_whole(
    recorded: &Recorded,
    stacks: impl IntoIterator<Item = StackRef>,
    at_least: u32,
) -> Result<()> {
    let ends = recorded.ends(stacks);
    let whole = ends.get(&Some(StackEnd::EntryPoint)).copied().unwrap_or_default();
    let all: u32 = ends.values().sum();
    ensure!(all >= at_least, "too few to tell: {ends:?}");
    ensure!(f64::from(whole) >= SHARE * f64::from(all), "{ends:?}");
    Ok(())
}

#[test]
fn who_wakes_redis_is_whole() -> Result<()> {
    let redis = redis()?;
    let mut client = None;
    let recorded = Recorded::during(&redis, &[], || {
        let mut benchmark = Command::new("redis-benchmark");
        benchmark.arg("-s").arg(redis.directory().join("socket"));
        benchmark.args(["-t", "get", "-c", "1", "-n", "3000", "-q"]);
        let mut benchmark = Program::start(&mut benchmark, paths::scratch_directory()?)?;
        client = Some(benchmark.pid());
        wait_at_most(Duration::from_secs(60), "the client's end", || benchmark.check_ended())
    })?;
    let client = client.context("no client was started")?;
    let wakes = recorded.0.waits.iter().filter(|wait| wait.tgid.0 == redis.pid());
    let by_client = wakes
        .filter_map(|wait| wait.wake)
        .filter(|wake| wake.context == WakeContext::Task && wake.current.tgid.0 == client);
    nearly_all_are_whole(&recorded, by_client.map(|wake| wake.user_stack), 1000)
}

/// Compiled so, a thread that is sampled has whole stacks with the functions that it is in.
fn sampled_is_whole(flags: &[&str]) -> Result<()> {
    let source = Source { compiler: "cc", file: "spins.c", flags };
    let program = Compiled::compile_one(source)?.start("spins", &[])?;
    let recorded = Recorded::for_a_while(&["--sample", "99"])?;
    let own: Vec<_> = recorded.0.samples.iter().filter(|s| s.tgid.0 == program.pid()).collect();
    nearly_all_are_whole(&recorded, own.iter().map(|sample| sample.user_stack), 50)?;
    for sample in own {
        let Ok(stack) = recorded.stack(sample.user_stack) else { continue };
        let functions = recorded.functions(stack);
        let first = &functions[..functions.len().min(4)];
        ensure!(first == ["innermost", "middle", "outermost", "main"], "{functions:?}");
    }
    Ok(())
}

const FLAGS: [&str; 3] = ["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"];

#[test]
fn a_sampled_thread_without_frame_pointers_is_whole() -> Result<()> {
    sampled_is_whole(&FLAGS)
}

#[test]
fn a_sampled_thread_that_uses_the_red_zone_is_whole() -> Result<()> {
    let [optimized, without_fp, with_calls] = FLAGS;
    sampled_is_whole(&[optimized, without_fp, with_calls, "-DIN_RED_ZONE"])
}
