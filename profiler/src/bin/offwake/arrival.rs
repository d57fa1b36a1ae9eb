//! A container that is followed and does not run yet.

use std::time::Duration;

use anyhow::Context as _;
use offwake::{
    containers::FindError,
    target::{HeldCommand, Request, Target, TargetError},
};
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::{
    output::on_one_line,
    session::{any, interrupts},
};

/// How often it is looked for: engines are asked each time.
const SEARCH: Duration = Duration::from_millis(250);
/// How often it may be found between running and not, one after the other.
const MOST_BETWEEN: u32 = 8;

/// What was waited for did not come.
#[derive(Debug, Error)]
#[error("nothing was recorded: {what} {over}")]
pub struct NeverCame {
    what: String,
    over: Over,
}

/// What ended the time that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum Over {
    #[error("did not start in time")]
    Duration,
    #[error("had not started when a signal came")]
    Signal,
    #[error("had not started when the command ended")]
    Command,
}

/// Waits for the container that `request` means, which is not there for this reason, for as long as the
/// recording may take. A command that only says how long that is runs meanwhile: it may be what starts it.
///
/// # Errors
///
/// [`NeverCame`], or if it can't be found.
pub fn wait(
    request: &Request,
    why: &TargetError,
    deadline: Option<Instant>,
    command: Option<&mut HeldCommand>,
) -> anyhow::Result<Target> {
    let what = match request {
        Request::Container(wanted, _) => wanted.to_string(),
        _ => "the target".to_owned(),
    };
    eprintln!("offwake: {}", on_one_line(&format!("waiting for {what} to start: {why}")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(arrival(request, what, deadline, command))
}

async fn arrival(
    request: &Request,
    what: String,
    deadline: Option<Instant>,
    mut command: Option<&mut HeldCommand>,
) -> anyhow::Result<Target> {
    let mut interrupts = interrupts()?;
    if let Some(command) = &mut command {
        command.release()?;
    }
    let mut searches = interval(SEARCH);
    searches.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // tokio knows no "never"; the deadline's branch is off without one.
    let at = deadline.unwrap_or_else(Instant::now);
    let mut between = 0;
    let over = loop {
        let over = tokio::select! {
            () = any(&mut interrupts) => break Over::Signal,
            () = sleep_until(at), if deadline.is_some() => Some(Over::Duration),
            _ = searches.tick() => {
                command.as_ref().is_some_and(|command| command.has_ended()).then_some(Over::Command)
            }
        };
        match Target::find(request.clone()) {
            Err(error) if error.may_pass() => between = 0,
            // Its cgroup is not there yet, or not any more.
            Err(
                TargetError::Container(FindError::NoCgroup(_)) | TargetError::NotACgroup { .. },
            ) if between < MOST_BETWEEN => between += 1,
            found => return Ok(found?),
        }
        if let Some(over) = over {
            break over;
        }
    };
    if let (Over::Duration | Over::Signal, Some(command)) = (over, command) {
        // It would run on with nobody watching.
        command.terminate();
    }
    Err(NeverCame { what, over }.into())
}
