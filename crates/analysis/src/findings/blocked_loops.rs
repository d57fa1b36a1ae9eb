//! Threads of event loops that wait in the middle of a task: nothing else of their loop goes on meanwhile.
//!
//! ```text
//! leaf                                                                       root
//! nanosleep   std::thread::sleep  checkout  task::raw::poll  worker::run     blocked
//! epoll_wait  mio::poll           Driver::park               worker::run     waits for events
//! ```

use std::collections::HashMap;

use offwake_recording::{Function, StackRef, StackTable, units::StackId};
use schemars::JsonSchema;
use serde::Serialize;

use crate::blame::{FrameEvidence, LockName, cause::Cause, python_name};

/// Whose event loop it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventLoop {
    /// Tokio's: a worker of its multi-threaded scheduler, or the thread of the other one.
    Tokio,
    /// Node's, and that of others who use libuv.
    Libuv,
    /// Python's `asyncio`.
    Asyncio,
}

impl EventLoop {
    /// What is said of a thread that blocks it, in the words of those who write for it.
    pub(super) fn describe_blocked(self) -> &'static str {
        match self {
            Self::Tokio => "async worker blocked",
            Self::Libuv | Self::Asyncio => "event loop blocked",
        }
    }
}

/// What one function of a stack tells, the functions nearer to the leaf being known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameRole {
    /// The loop waits for events here, or has handed its tasks over to another thread.
    IsFree,
    /// The loop waits for events here, or calls back whoever waits for them.
    PollsOrCallsBack,
    /// The loop runs a task here.
    RunsTask(EventLoop),
}

/// Finds the event loops that stacks block, each stack once.
#[derive(Default)]
pub(super) struct BlockedLoopFinder {
    known: HashMap<StackId, Option<EventLoop>, foldhash::fast::RandomState>,
}

impl BlockedLoopFinder {
    /// Returns whose event loop is blocked by a wait with this cause, of a thread with this user stack.
    pub(super) fn find(
        &mut self,
        stacks: &StackTable,
        user: StackRef,
        cause: Cause,
        evidence: FrameEvidence,
    ) -> Option<EventLoop> {
        let StackRef::Id(id) = user else { return None };
        // These hold up whatever the thread does. No other call than this one would have helped.
        let is_of_call = !matches!(
            cause,
            Cause::Throttled
                | Cause::Stopped
                | Cause::PageFault
                | Cause::Memory
                | Cause::KernelLock
        );
        let is_interpreters =
            matches!(evidence, FrameEvidence::Lock(lock) if LockName::is_of_interpreter(lock));
        if !is_of_call || is_interpreters {
            return None;
        }
        *self.known.entry(id).or_insert_with(|| {
            find_blocked_loop(stacks.frames_of(id).flat_map(|frame| frame.functions.iter()))
        })
    }
}

/// Returns whose event loop is blocked, by the functions of a stack from the leaf on.
fn find_blocked_loop<'a>(mut functions: impl Iterator<Item = &'a Function>) -> Option<EventLoop> {
    let mut has_called_back = false;
    loop {
        let function = functions.next()?;
        match find_role(function) {
            Some(FrameRole::IsFree) => return None,
            Some(FrameRole::RunsTask(event_loop)) => return Some(event_loop),
            Some(FrameRole::PollsOrCallsBack) => {
                let is_blocked = has_called_back || functions.any(runs_nested_loop);
                return is_blocked.then_some(EventLoop::Libuv);
            }
            None => has_called_back |= !is_call_to_poll(&function.name),
        }
    }
}

/// Returns whether a function is of the C library, between a loop and the kernel: `epoll_pwait`, `__syscall_cancel`.
fn is_call_to_poll(name: &str) -> bool {
    name.contains("epoll") || name.contains("syscall")
}

fn find_role(function: &Function) -> Option<FrameRole> {
    let name = function.name.trim_start_matches('<');
    let file = function.file.as_deref().unwrap_or_default();
    match name.strip_prefix("tokio::runtime::") {
        // `Context::park`, `Driver::park_internal`, `Parker::park`: all of it waits for events.
        Some(inner) if inner.contains("::park") || inner.contains("::block_in_place") => {
            Some(FrameRole::IsFree)
        }
        Some(inner)
            if inner.starts_with("scheduler::multi_thread::worker::")
                || inner.starts_with("scheduler::current_thread::") =>
        {
            Some(FrameRole::RunsTask(EventLoop::Tokio))
        }
        // Jobs of the pool that is made for calls that block.
        Some(inner) if inner.starts_with("blocking::pool::") => Some(FrameRole::IsFree),
        Some(_) => None,
        None if name == "uv__io_poll" => Some(FrameRole::PollsOrCallsBack),
        None if name == "uv_run" => Some(FrameRole::RunsTask(EventLoop::Libuv)),
        None if python_name(name) == "_run" && file.ends_with("asyncio/events.py") => {
            Some(FrameRole::RunsTask(EventLoop::Asyncio))
        }
        None if python_name(name) == "_run_once" && file.ends_with("asyncio/base_events.py") => {
            Some(FrameRole::IsFree)
        }
        None => None,
    }
}

/// Returns whether a function runs a loop of its own until a child has ended: `execSync`
/// (<https://github.com/nodejs/node/blob/v20.20.0/src/spawn_sync.cc>).
fn runs_nested_loop(function: &Function) -> bool {
    function.name.starts_with("node::SyncProcessRunner::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(stack: &[&str]) -> Option<EventLoop> {
        let functions: Vec<Function> = (stack.iter())
            .map(|text| {
                let (name, file) = text.split_once(" @").unwrap_or((text, ""));
                let file = Some(file).filter(|file| !file.is_empty()).map(Into::into);
                Function { name: name.into(), file, ..Function::named("") }
            })
            .collect();
        find_blocked_loop(functions.iter())
    }

    const WORKER: [&str; 5] = [
        "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
        "tokio::runtime::scheduler::multi_thread::worker::Context::run",
        "tokio::runtime::task::raw::poll",
        "tokio::runtime::blocking::pool::Inner::run",
        "start_thread",
    ];

    fn in_worker(leaf: &[&'static str]) -> Option<EventLoop> {
        find(&[leaf, &WORKER].concat())
    }

    #[test]
    fn a_task_of_tokios_that_calls_what_blocks_blocks_its_worker() {
        let call = ["clock_nanosleep", "std::thread::sleep", "shop::checkout"];
        assert_eq!(in_worker(&call), Some(EventLoop::Tokio));
        let current = "tokio::runtime::scheduler::current_thread::Context::run_task";
        assert_eq!(find(&["read", "shop::load", current]), Some(EventLoop::Tokio));
    }

    #[test]
    fn a_worker_of_tokios_that_waits_for_events_is_not_blocked() {
        let driver = ["epoll_wait", "tokio::runtime::io::driver::Driver::turn"];
        let park = "tokio::runtime::scheduler::multi_thread::worker::Context::park_timeout";
        assert_eq!(in_worker(&[driver[0], driver[1], park]), None);
        let condvar = "tokio::runtime::scheduler::multi_thread::park::Inner::park_condvar";
        assert_eq!(in_worker(&["syscall", condvar]), None);
    }

    /// Another thread runs the worker's tasks meanwhile.
    #[test]
    fn calls_that_tokio_is_told_of_block_no_worker() {
        let told = "tokio::runtime::scheduler::multi_thread::worker::block_in_place::{closure#0}";
        assert_eq!(in_worker(&["read", "shop::load", told]), None);
        let job = ["read", "shop::load", "tokio::runtime::task::raw::poll", WORKER[3]];
        assert_eq!(find(&job), None);
    }

    #[test]
    fn a_callback_of_nodes_that_waits_blocks_its_loop() {
        assert_eq!(find(&["fsync", "uv__fs_work", "uv_run"]), Some(EventLoop::Libuv));
        let in_callback = ["fsync", "uv__fs_work", "uv__stream_io", "uv__io_poll"];
        assert_eq!(find(&in_callback), Some(EventLoop::Libuv));
        assert_eq!(find(&["epoll_pwait", "uv__io_poll", "uv_run"]), None);
        // `execSync` waits in a loop of its own.
        let nested =
            ["epoll_pwait", "uv__io_poll", "uv_run", "node::SyncProcessRunner::Spawn", "uv_run"];
        assert_eq!(find(&nested), Some(EventLoop::Libuv));
    }

    #[test]
    fn a_coroutine_of_pythons_that_waits_blocks_its_loop() {
        let [run, once] = [
            "Handle._run @/usr/lib/python3.11/asyncio/events.py",
            "BaseEventLoop._run_once @/usr/lib/python3.11/asyncio/base_events.py",
        ];
        let select = "select @/usr/lib/python3.11/selectors.py";
        assert_eq!(find(&["read", "handle @/srv/web.py", run, once]), Some(EventLoop::Asyncio));
        assert_eq!(find(&["epoll_wait", select, once]), None);
        // `subprocess.run` in a coroutine polls as well.
        assert_eq!(
            find(&["poll", select, "handle @/srv/web.py", run, once]),
            Some(EventLoop::Asyncio)
        );
        // A thread that has no loop.
        assert_eq!(find(&["poll", select, "main @/srv/web.py"]), None);
    }
}
