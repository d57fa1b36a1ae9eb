//! Processes and threads by number.

use std::{fs, io};

use offwake_recording::units::{Tgid, Tid};

use super::TargetError;

/// The process that a thread belongs to, and the letter of its state.
struct Status {
    tgid: Tgid,
    state: char,
}

fn read_status(number: u32) -> Result<Option<Status>, TargetError> {
    let failed = |source| TargetError::Proc { what: number.to_string(), source };
    let text = match fs::read_to_string(format!("/proc/{number}/status")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // The process ended between open and read.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let tgid = field("Tgid:").and_then(|tgid| tgid.parse().ok());
    let state = field("State:").and_then(|state| state.chars().next());
    match (tgid, state) {
        (Some(tgid), Some(state)) => Ok(Some(Status { tgid: Tgid(tgid), state })),
        _ => Err(failed(io::Error::from(io::ErrorKind::InvalidData))),
    }
}

/// Makes sure that a process is there and alive.
pub(super) fn check_process(process: Tgid) -> Result<(), TargetError> {
    // /proc also opens a thread's number, though it does not list it.
    let Some(status) = read_status(process.0)? else { return Err(TargetError::NoProcess(process)) };
    if status.tgid != process {
        return Err(TargetError::ThreadNotProcess { tid: Tid(process.0), tgid: status.tgid });
    }
    // A leader may be gone while its other threads live on.
    let threads = fs::read_dir(format!("/proc/{process}/task")).map_or(0, Iterator::count);
    if matches!(status.state, 'Z' | 'X') && threads <= 1 {
        return Err(TargetError::DeadProcess(process));
    }
    Ok(())
}

/// Makes sure that a thread is there.
pub(super) fn check_thread(thread: Tid) -> Result<(), TargetError> {
    match read_status(thread.0)? {
        Some(status) if !matches!(status.state, 'Z' | 'X') => Ok(()),
        _ => Err(TargetError::NoThread(thread)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn this_process_is_there() {
        check_process(Tgid(std::process::id())).unwrap();
        check_thread(Tid(std::process::id())).unwrap();
    }

    #[test]
    fn a_thread_is_not_a_process() {
        std::thread::spawn(|| {
            // SAFETY: the call has no preconditions.
            let tid = unsafe { libc::gettid() }.cast_unsigned();
            match check_process(Tgid(tid)) {
                Err(TargetError::ThreadNotProcess { tgid, .. }) => {
                    assert_eq!(tgid, Tgid(std::process::id()));
                }
                other => panic!("{other:?}"),
            }
            check_thread(Tid(tid)).unwrap();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_has_ended_is_not_there() {
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        let tgid = Tgid(child.id());
        child.wait().unwrap();
        assert!(matches!(check_process(tgid), Err(TargetError::NoProcess(_))));
        assert!(matches!(check_thread(Tid(tgid.0)), Err(TargetError::NoThread(_))));
    }
}
