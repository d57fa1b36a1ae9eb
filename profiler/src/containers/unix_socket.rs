//! HTTP over a Unix socket: `ureq` with a connector of its own.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt::socket_peercred,
};
use ureq::{
    Agent, Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport},
    },
};

/// Makes a client of the server that listens at `path`, if one of these users runs it.
pub(super) fn agent(path: PathBuf, listeners: &[u32], timeout: Duration) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .proxy(None)
        .max_redirects(0)
        .user_agent(concat!("offwake/", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::with_parts(config, UnixConnector { path, listeners: listeners.to_vec() }, NoResolver)
}

#[derive(Debug)]
struct UnixConnector {
    path: PathBuf,
    listeners: Vec<u32>,
}

impl Connector for UnixConnector {
    type Out = UnixTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _chained: Option<()>,
    ) -> Result<Option<UnixTransport>, Error> {
        let address = SocketAddrUnix::new(&self.path).map_err(io::Error::from)?;
        // A listener whose queue is full would be waited for without end.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(io::Error::from)?;
        rustix::net::connect(&socket, &address).map_err(io::Error::from)?;
        let listener = socket_peercred(&socket).map_err(io::Error::from)?.uid;
        if !self.listeners.contains(&listener.as_raw()) {
            let why = "another user listens there";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why).into());
        }
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(UnixTransport { stream, buffers }))
    }
}

#[derive(Debug)]
struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|time| *time))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|error| to_timeout(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|time| *time))?;
        let amount = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| to_timeout(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // Each request has a connection of its own.
        false
    }
}

/// Makes the error of a socket whose time is up, which is that it would block, a timeout.
fn to_timeout(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

/// The path is the address: the URI's host stands for nothing.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        let mut addresses = ResolvedSocketAddrs::from_fn(|_| nowhere);
        addresses.push(nowhere);
        Ok(addresses)
    }
}
