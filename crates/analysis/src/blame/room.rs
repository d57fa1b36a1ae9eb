//! Waits for room in a socket's buffer or in a pipe. Whoever ends one has read what was in the way, and
//! asks for nothing.
//!
//! ```text
//! server  --writes--+======== waits for room ========+--writes--
//! client  --reads--[ works on what it has read ]--reads--
//! ```
//!
//! A server that polls until its client reads would otherwise seem to wait for that client's next
//! request, with nothing to do.

use offwake_recording::{Recording, StackRef, StackTable, Wait};

use super::{
    cause::{kernel_frames, matches_any},
    frame_evidence::plain_name,
};

/// Kernel functions that wake who had found no room:
/// [`sk_stream_write_space`](https://github.com/torvalds/linux/blob/v6.12/net/core/stream.c#L30) for TCP,
/// [`pipe_read`](https://github.com/torvalds/linux/blob/v6.12/fs/pipe.c#L250), which has had two names since
/// 6.14.
const MAKE_ROOM: &[&str] =
    &["sk_stream_write_space", "pipe_read", "anon_pipe_read", "fifo_pipe_read"];

/// The one of Unix sockets wakes whoever polls for room, though there may have been some all along
/// ([`unix_write_space`](https://github.com/torvalds/linux/blob/v6.12/net/unix/af_unix.c#L543)): so do event
/// loops that are to be told of everything (`EPOLLET`).
const MAY_MAKE_ROOM: &[&str] = &["unix_write_space"];

/// What is in the names of functions that put something out: `secure_write` of PostgreSQL, `SSL_write`,
/// `ap_flush_conn`.
const PUT_OUT: &[&str] = &["write", "flush", "send"];

/// How many frames from the leaf such a function may be. What is further away called something else, which
/// waits for a reason of its own.
const MAX_DEPTH: usize = 8;

/// What a wake tells that its thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WokenFor {
    /// Room to put something out.
    Room,
    /// Anything else, or nothing tells.
    Anything,
}

impl WokenFor {
    /// Decides it for the waits of one pattern.
    pub(super) fn from_wait(recording: &Recording, wait: &Wait) -> Self {
        let Some(wake) = &wait.wake else { return Self::Anything };
        let stacks = &recording.stacks;
        let is_in = |names| {
            kernel_frames(stacks, wake.kernel_stack).any(|function| matches_any(names, function))
        };
        match is_in(MAKE_ROOM) || is_in(MAY_MAKE_ROOM) && puts_out(stacks, wait.user_stack) {
            true => Self::Room,
            false => Self::Anything,
        }
    }
}

/// Returns whether a program waits inside a function of its own, or of a library, that puts something out.
fn puts_out(stacks: &StackTable, user: StackRef) -> bool {
    let StackRef::Id(id) = user else { return false };
    let functions = stacks.frames_of(id).take(MAX_DEPTH).flat_map(|frame| &frame.functions);
    functions.map(|function| plain_name(&function.name).to_ascii_lowercase()).any(|name| {
        let name = name.rsplit("::").next().unwrap_or(&name);
        PUT_OUT.iter().any(|word| name.contains(word))
    })
}
