//! Both ends of what two processes talk over: pipes, a Unix socket, or TCP on the loopback.

use std::os::{
    fd::{AsRawFd, OwnedFd},
    unix::net::UnixStream,
};

use anyhow::{Context, Result};

use super::{connection::Connection, raw};

/// The two ends that one side has; for sockets they are the same.
pub(super) struct Line {
    pub(super) reads: OwnedFd,
    pub(super) writes: OwnedFd,
}

impl Line {
    fn both_ways(socket: OwnedFd) -> Result<Self> {
        let writes = socket.try_clone().context("cannot duplicate a socket")?;
        Ok(Self { reads: socket, writes })
    }

    /// Waits for a message; returns it, or none when nobody can write any more.
    pub(super) fn read(&self) -> Option<[u8; 8]> {
        let mut message = [0; 8];
        (raw::read(self.reads.as_raw_fd(), &mut message) == 8).then_some(message)
    }

    pub(super) fn write(&self, message: &[u8; 8]) {
        raw::write(self.writes.as_raw_fd(), message);
    }
}

/// A connection between a client and a server.
pub(super) struct Lines {
    pub(super) client: Line,
    pub(super) server: Line,
    /// The listening socket. As long as it is open, the kernel knows which end of a connection
    /// serves.
    _listener: Option<OwnedFd>,
}

impl Lines {
    /// As after a server that has closed its listener: nothing says which end serves.
    pub(super) fn stop_listening(self) -> Self {
        Self { _listener: None, ..self }
    }
}

pub(super) fn pipes() -> Result<Lines> {
    let (requests_out, requests_in) = std::io::pipe().context("cannot make a pipe")?;
    let (replies_out, replies_in) = std::io::pipe().context("cannot make a pipe")?;
    let client = Line { reads: replies_out.into(), writes: requests_in.into() };
    let server = Line { reads: requests_out.into(), writes: replies_in.into() };
    Ok(Lines { client, server, _listener: None })
}

pub(super) fn unix_sockets() -> Result<Lines> {
    let (client, server) = UnixStream::pair().context("cannot make a socket pair")?;
    let (client, server) = (Line::both_ways(client.into())?, Line::both_ways(server.into())?);
    Ok(Lines { client, server, _listener: None })
}

pub(super) fn loopback_tcp() -> Result<Lines> {
    let Connection { asking, serving, listener } = Connection::tcp()?;
    let (client, server) = (Line::both_ways(asking)?, Line::both_ways(serving)?);
    Ok(Lines { client, server, _listener: Some(listener) })
}
