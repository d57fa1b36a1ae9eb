//! What travels: a request is a number, its reply is a number made from it.

use std::io::{
    ErrorKind::{ConnectionReset, UnexpectedEof},
    Read, Write,
};

use anyhow::Context as _;

/// The reply that every request of this number must get.
pub fn expected_reply(request: u64) -> u64 {
    request.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (request >> 7)
}

/// Sends a number.
pub fn send(stream: &mut impl Write, number: u64) -> anyhow::Result<()> {
    stream.write_all(&number.to_le_bytes()).context("cannot send")
}

/// Waits for a number.
pub fn receive(stream: &mut impl Read) -> anyhow::Result<u64> {
    receive_unless_closed(stream)?.context("the other side hung up")
}

/// Waits for a number; `None` once the other side is gone.
pub fn receive_unless_closed(stream: &mut impl Read) -> anyhow::Result<Option<u64>> {
    let mut bytes = [0; 8];
    match stream.read_exact(&mut bytes) {
        Ok(()) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset) => Ok(None),
        Err(error) => Err(error).context("cannot receive"),
    }
}
