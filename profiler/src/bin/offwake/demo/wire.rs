//! What travels: a request is a number, its reply is a number made from it.

use std::io::{
    self,
    ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof},
    Read, Write,
};

use anyhow::Context as _;

/// A bit of a request to the store: what is asked for lies in the archive.
pub const ARCHIVED: u64 = 1 << 63;

/// The reply that every request of this number must get.
pub fn expected_reply(request: u64) -> u64 {
    request.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (request >> 7)
}

/// Sends a number.
pub fn send(stream: &mut impl Write, number: u64) -> anyhow::Result<()> {
    stream.write_all(&number.to_le_bytes()).context("cannot send")
}

/// Waits for a number. Named as a wrapper is, so that findings name its caller.
pub fn wait_for(stream: &mut impl Read) -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).context("cannot receive")?;
    Ok(u64::from_le_bytes(bytes))
}

/// Whether something failed because the other side is gone.
pub fn is_hang_up(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref().map(io::Error::kind);
    matches!(kind, Some(BrokenPipe | ConnectionReset | UnexpectedEof))
}
