//! Waiting for a container that is followed and does not run yet.

use std::time::Duration;

use anyhow::Context as _;
use offwake::{
    containers::FindContainerError,
    target::{HeldCommand, Target, TargetError, TargetRequest},
};
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::{
    terminal_thread::print_error,
    {interrupts::Interrupts, output::on_one_line},
};

/// Time between two searches for the container, each of which asks the engines.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);
/// Searches in a row that may find the container without a cgroup, as it starts or stops.
const MAX_WITHOUT_CGROUP: u32 = 8;

/// The container did not start while it was waited for.
#[derive(Debug, Error)]
#[error("nothing was recorded: {what} {ended_by}")]
pub struct NotStarted {
    what: String,
    ended_by: EndedBy,
}

/// What ended the wait for the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum EndedBy {
    #[error("did not start in time")]
    Duration,
    #[error("had not started when a signal came")]
    Signal,
    #[error("had not started when the command ended")]
    Command,
}

/// Waits for the container that `request` means, which was not found because of `why`, for as long
/// as the recording may take. A command that only says how long that is runs meanwhile: it may be
/// what starts the container.
///
/// # Errors
///
/// [`NotStarted`], or whatever else goes wrong in a search.
pub fn wait_for_start(
    request: &TargetRequest,
    why: &TargetError,
    deadline: Option<Instant>,
    command: Option<&mut HeldCommand>,
) -> anyhow::Result<Target> {
    let what = match request {
        TargetRequest::Container(wanted, _) => wanted.to_string(),
        _ => "the target".to_owned(),
    };
    print_error(&on_one_line(&format!("waiting for {what} to start: {why}")));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(search_until_started(request, what, deadline, command))
}

async fn search_until_started(
    request: &TargetRequest,
    what: String,
    deadline: Option<Instant>,
    mut command: Option<&mut HeldCommand>,
) -> anyhow::Result<Target> {
    let mut interrupts = Interrupts::watch()?;
    if let Some(command) = &mut command {
        command.release()?;
    }
    let mut searches = interval(SEARCH_INTERVAL);
    searches.set_missed_tick_behavior(MissedTickBehavior::Skip);
    // tokio knows no "never"; the deadline's branch is off without one.
    let at = deadline.unwrap_or_else(Instant::now);
    let mut without_cgroup = 0;
    let ended_by = loop {
        let ended_by = tokio::select! {
            () = interrupts.recv() => break EndedBy::Signal,
            () = sleep_until(at), if deadline.is_some() => Some(EndedBy::Duration),
            _ = searches.tick() => {
                command.as_ref().is_some_and(|command| command.has_ended()).then_some(EndedBy::Command)
            }
        };
        match Target::find(request.clone()) {
            Err(error) if error.is_temporary() => without_cgroup = 0,
            // The container's cgroup does not exist yet, or not any more.
            Err(
                TargetError::Container(FindContainerError::NoCgroup(_))
                | TargetError::NotACgroup { .. },
            ) if without_cgroup < MAX_WITHOUT_CGROUP => without_cgroup += 1,
            found => return Ok(found?),
        }
        if let Some(ended_by) = ended_by {
            break ended_by;
        }
    };
    if let (EndedBy::Duration | EndedBy::Signal, Some(command)) = (ended_by, command) {
        // The command would run on with nobody watching.
        command.terminate();
    }
    Err(NotStarted { what, ended_by }.into())
}
