//! Waits and blame as every text for people has them.

use crate::blame::Reason;
use offwake_recording::units::Tid;

use super::{BlameWord, text};

/// `socket: tcp 127.0.0.1:6379 (redis-server 812)`; the cause alone if nothing else is known.
pub fn waited_on(cause: &str, on: &str) -> String {
    match on {
        "" => cause.to_owned(),
        // A futex's name begins with its cause.
        on if on.starts_with(cause) => text::terminal(on),
        on => format!("{cause}: {}", text::terminal(on)),
    }
}

/// `db 77`, `db 77 in web`; the container is what it is called.
pub fn thread(comm: &str, tid: Tid, container: Option<&str>) -> String {
    format!("{} {tid}{}", text::terminal(comm), in_container(container))
}

/// ` in web`; nothing of a thread that lives in none.
pub fn in_container(container: Option<&str>) -> String {
    container.map(|name| format!(" in {}", text::terminal(name))).unwrap_or_default()
}

/// `work of db 77`, `disk behind db 77`; `thread` is in words already, `holder` a name as it was recorded.
pub fn blamed(
    kind: BlameWord,
    reason: Option<Reason>,
    thread: Option<String>,
    holder: Option<&str>,
) -> String {
    let what = reason.map_or(kind.name(), Reason::name);
    let Some(thread) = thread else { return what.to_owned() };
    match (kind, holder.map(text::terminal)) {
        (BlameWord::Work, _) => format!("work of {thread}"),
        (BlameWord::CpuQueue, Some(holder)) => format!("{thread} queued behind {holder}"),
        (BlameWord::CpuQueue, None) => format!("{thread} queued for a CPU"),
        _ => format!("{what} behind {thread}"),
    }
}
