//! Descriptions of waits, threads and blame for people, the same in every output.

use offwake_recording::units::Tid;

use crate::{
    blame::{BlameEntryKind, Reason},
    text, words,
};

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

/// Returns `work of db 77`, `db 77 slept`, `db 77 waited for a CPU, held by cc`. The thread and the
/// holder of its CPU are described already.
pub fn blame(
    kind: BlameEntryKind,
    reason: Option<Reason>,
    thread: Option<String>,
    holder: Option<String>,
) -> String {
    let why_unknown = || reason.map_or_else(|| kind.name().to_owned(), words::unknown);
    let Some(thread) = thread else { return why_unknown() };
    match kind {
        BlameEntryKind::Work => format!("work of {thread}"),
        BlameEntryKind::CpuQueue => {
            format!("{thread} waited {}", words::for_a_cpu(holder.as_deref()))
        }
        BlameEntryKind::Timer => format!("{thread} slept"),
        BlameEntryKind::Disk => format!("{thread} waited for the disk"),
        BlameEntryKind::Network => format!("{thread} waited for the network"),
        BlameEntryKind::Device => format!("{thread} waited for a device"),
        BlameEntryKind::Throttled => format!("{thread} was throttled"),
        BlameEntryKind::Unattributed => format!("{thread}: {}", why_unknown()),
    }
}

#[cfg(test)]
mod tests {
    use crate::blame::{BlameEntryKind, Reason};

    use super::blame;

    #[test]
    fn the_last_thread_of_a_chain_slept_worked_or_waited_for_something() {
        let words = |kind, reason| blame(kind, reason, Some("db 77".to_owned()), None);
        assert_eq!(words(BlameEntryKind::Work, None), "work of db 77");
        assert_eq!(words(BlameEntryKind::Timer, None), "db 77 slept");
        assert_eq!(words(BlameEntryKind::Disk, None), "db 77 waited for the disk");
        assert_eq!(words(BlameEntryKind::CpuQueue, None), "db 77 waited for a CPU");
        let holder = Some("cc".to_owned());
        assert_eq!(
            blame(BlameEntryKind::CpuQueue, None, Some("db 77".to_owned()), holder),
            "db 77 waited for a CPU, held by cc"
        );
        let still_blocked = Some(Reason::StillBlocked);
        assert_eq!(words(BlameEntryKind::Unattributed, still_blocked), "db 77: still waiting");
        assert_eq!(blame(BlameEntryKind::Timer, None, None, None), "timer");
        assert_eq!(blame(BlameEntryKind::Unattributed, still_blocked, None, None), "still waiting");
    }
}
