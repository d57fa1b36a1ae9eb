//! Waiting for a condition, never for a guessed time.

use std::{
    env,
    sync::LazyLock,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// How long anything may take that ought to happen at once. One for all: a noisy two-core machine
/// under load has been seen to need seconds, and only a failing test ever waits for the end.
///
/// An emulated machine is slower than any other: [`OFFWAKE_PATIENCE`] says how many times as long to wait.
#[must_use]
pub fn deadline() -> Duration {
    static PATIENCE: LazyLock<u32> = LazyLock::new(|| {
        let named = env::var(OFFWAKE_PATIENCE).ok().and_then(|text| text.parse().ok());
        named.unwrap_or(1)
    });
    Duration::from_secs(30) * *PATIENCE
}

/// A whole number; 1 without it.
pub const OFFWAKE_PATIENCE: &str = "OFFWAKE_PATIENCE";

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// Looks until `condition` gives a value, and returns it.
///
/// # Errors
///
/// When the [`deadline`] has passed, naming `what` was waited for; or the condition's own error.
pub fn wait_until<T>(what: &str, condition: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    wait_at_most(deadline(), what, condition)
}

/// Waits as [`wait_until`] does, with a deadline of its own.
///
/// # Errors
///
/// As [`wait_until`].
pub fn wait_at_most<T>(
    deadline: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if begin.elapsed() > deadline {
            bail!("waited {deadline:?} for {what}, in vain");
        }
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_comes_true_ends_the_wait() -> Result<()> {
        let mut looks = 0;
        let value = wait_until("the third look", || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        })?;
        assert_eq!(value, 3);
        Ok(())
    }

    #[test]
    fn a_deadline_that_passes_says_what_was_waited_for() {
        let result = wait_at_most(Duration::ZERO, "godot", || Ok(None::<()>));
        assert!(result.is_err_and(|error| error.to_string().contains("godot")));
    }
}
