//! Descriptions of waits, threads and blame for people, the same in every output.

use crate::blame::Reason;
use offwake_recording::units::Tid;

use super::{BlameEntryKind, text};

/// Returns `socket: tcp 127.0.0.1:6379 (redis-server 812)`, or the cause alone if `on` is empty.
pub fn waited_on(cause: &str, on: &str) -> String {
    match on {
        "" => cause.to_owned(),
        // A futex's name begins with its cause.
        on if on.starts_with(cause) => text::terminal(on),
        on => format!("{cause}: {}", text::terminal(on)),
    }
}

/// Returns `db 77`, or `db 77 in web` for a thread in a container with the label `web`.
pub fn thread(comm: &str, tid: Tid, container: Option<&str>) -> String {
    format!("{} {tid}{}", text::terminal(comm), container_suffix(container))
}

/// Returns ` in web`, or nothing for a thread in no container.
pub fn container_suffix(container: Option<&str>) -> String {
    container.map(|name| format!(" in {}", text::terminal(name))).unwrap_or_default()
}

/// Returns `work of db 77`, `disk behind db 77`. `thread` is described already; `holder` is a name
/// as it was recorded.
pub fn blame(
    kind: BlameEntryKind,
    reason: Option<Reason>,
    thread: Option<String>,
    holder: Option<&str>,
) -> String {
    let what = reason.map_or(kind.name(), Reason::name);
    let Some(thread) = thread else { return what.to_owned() };
    match (kind, holder.map(text::terminal)) {
        (BlameEntryKind::Work, _) => format!("work of {thread}"),
        (BlameEntryKind::CpuQueue, Some(holder)) => format!("{thread} queued behind {holder}"),
        (BlameEntryKind::CpuQueue, None) => format!("{thread} queued for a CPU"),
        _ => format!("{what} behind {thread}"),
    }
}
