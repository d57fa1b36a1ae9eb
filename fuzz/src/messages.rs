//! Messages of any content, from a process without rights.

use std::{
    io::Write as _,
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
};

use offwake::parser::Channel;

/// Bytes that fit into a socket that nobody reads from.
const MAX_INPUT: usize = 16 << 10;

/// A channel whose other end has sent these messages and closed it. Each message has two bytes for
/// its length in front.
#[must_use]
pub fn channel(input: &[u8]) -> Option<Channel<OwnedFd>> {
    let mut input = &input[..input.len().min(MAX_INPUT)];
    let (ours, mut its) = UnixStream::pair().ok()?;
    let mut messages = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (message, rest) = rest.split_at(length);
        messages.extend(u32::try_from(length).ok()?.to_le_bytes());
        messages.extend(message);
        input = rest;
    }
    its.write_all(&messages).ok()?;
    its.shutdown(Shutdown::Write).ok()?;
    Some(Channel::to_trusted(OwnedFd::from(ours)))
}
