//! A connection to a server that listens, within one process.

use std::{
    net::{TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
};

use anyhow::{Context, Result};

/// Both its ends. As long as the server listens, the kernel knows which end serves.
pub(super) struct Connection {
    pub(super) asking: OwnedFd,
    pub(super) serving: OwnedFd,
    pub(super) listener: OwnedFd,
}

impl Connection {
    /// Over the loopback.
    pub(super) fn tcp() -> Result<Self> {
        let listener =
            TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on the loopback")?;
        let address = listener.local_addr().context("cannot read the listener's address")?;
        let asking = TcpStream::connect(address).context("cannot connect to the listener")?;
        let (serving, _) = listener.accept().context("cannot accept the connection")?;
        for side in [&asking, &serving] {
            side.set_nodelay(true).context("cannot switch Nagle's algorithm off")?;
        }
        let (asking, serving) = (asking.into(), serving.into());
        Ok(Self { asking, serving, listener: listener.into() })
    }

    /// Over a Unix socket, bound to this path.
    pub(super) fn unix(path: &Path) -> Result<Self> {
        let listener = UnixListener::bind(path).context("cannot listen on a Unix socket")?;
        let asking = UnixStream::connect(path).context("cannot connect to the listener")?;
        let (serving, _) = listener.accept().context("cannot accept the connection")?;
        let (asking, serving) = (asking.into(), serving.into());
        Ok(Self { asking, serving, listener: listener.into() })
    }
}
