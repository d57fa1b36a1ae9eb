//! What is slowed down: ordinary programs that switch a lot, each set up as its row says.

mod messaging;
mod pipe;
mod postgres;
mod redis;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};

pub use pipe::{EndlessPipe, Pipe, run_pipe};
pub use postgres::Postgres;
pub use redis::Redis;

use super::setup::OverheadSetup;
use messaging::Messaging;

/// A workload that is ready to run any number of times.
pub trait Workload {
    /// Runs once. Seconds for each of its operations: the less, the better.
    ///
    /// # Errors
    ///
    /// When it can't be run, or what it says can't be made out.
    fn run(&mut self) -> anyhow::Result<f64>;
}

/// Which workloads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    Pipe,
    RedisOneClient,
    RedisManyClients,
    Messaging,
    Postgres,
}

impl WorkloadKind {
    pub const ALL: [Self; 5] =
        [Self::Pipe, Self::RedisOneClient, Self::RedisManyClients, Self::Messaging, Self::Postgres];

    /// The row of a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Pipe => "`perf bench sched pipe`, on one CPU",
            Self::RedisOneClient => "redis, one client, a CPU each",
            Self::RedisManyClients => "redis, 20 clients, a CPU each",
            Self::Messaging => "`perf bench sched messaging -g 10 -l 500`",
            Self::Postgres => "pgbench, 4 clients, fsync off",
        }
    }

    /// How many rounds: what is noisy gets more.
    pub fn repeats(self, setup: &OverheadSetup) -> u32 {
        match self {
            Self::Pipe => setup.effort.pick(7, 2),
            Self::RedisOneClient => setup.effort.pick(5, 1),
            Self::RedisManyClients => setup.effort.pick(15, 3),
            Self::Messaging => setup.effort.pick(7, 2),
            Self::Postgres => setup.effort.pick(9, 2),
        }
    }

    /// Starts what it needs.
    ///
    /// # Errors
    ///
    /// When that can't be started.
    pub fn set_up(self, setup: &OverheadSetup) -> anyhow::Result<Box<dyn Workload>> {
        Ok(match self {
            Self::Pipe => Box::new(Pipe),
            Self::RedisOneClient => Box::new(Redis::start(setup.directory(), 1, 60_000)?),
            Self::RedisManyClients => Box::new(Redis::start(setup.directory(), 20, 200_000)?),
            Self::Messaging => Box::new(Messaging),
            Self::Postgres => {
                let seconds = setup.effort.pick(3, 2);
                Box::new(Postgres::start(&setup.file("postgres.log"), seconds)?)
            }
        })
    }
}

/// The number that follows `key` in what a benchmark says.
fn number_after(text: &str, key: &str) -> anyhow::Result<f64> {
    let (_, rest) =
        text.rsplit_once(key).with_context(|| format!("no {key:?} in what it says: {text:?}"))?;
    let word = rest.split_whitespace().next().unwrap_or_default();
    word.parse().with_context(|| format!("{word:?} is no number"))
}

/// Asks a server that was just started until it answers, for so long.
fn wait_until_it_answers(
    server: &str,
    patience: Duration,
    answers: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !answers() {
        ensure!(begin.elapsed() < patience, "{server} does not answer");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_behind_the_key_counts() -> anyhow::Result<()> {
        let redis =
            "GET: rps=0.0\rGET: rps=512.0\rGET: 9213.12 requests per second, p50=0.095 msec";
        assert!((number_after(redis, "GET: ")? - 9213.12).abs() < 1e-9);
        assert!(number_after(redis, "SET: ").is_err());
        Ok(())
    }
}
