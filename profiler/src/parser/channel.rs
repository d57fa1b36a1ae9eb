//! Messages and open files, from one process to another.
//!
//! ```text
//! length of the rest: 4 bytes, little-endian, and with them the open files │ the message, by postcard
//! ```
//!
//! One end is ours, and the other may be in anybody's hands: a message that is too long is refused,
//! only the process that started the other hands files over, and an end that is silent for too long
//! is as good as dead.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
        socketpair,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    error::ChannelError,
    watchdog::{CHECK_INTERVAL, Watchdog},
};
use crate::own_threads;

/// How many bytes a message has at most. What is longer is sent in parts.
pub const MAX_MESSAGE: usize = 2 << 20;
/// How many files go with one message at most.
pub const MAX_FILES: usize = 32;

/// One end of a connection.
pub struct Channel<S> {
    socket: S,
    /// Watches the other end; none if that is trusted, and may take as long as it likes.
    watchdog: Option<Watchdog>,
    is_new: bool,
}

impl<S: AsFd> Channel<S> {
    /// Makes a channel to an end that is trusted, and hands over files.
    pub fn to_trusted(socket: S) -> Self {
        Self { socket, watchdog: None, is_new: true }
    }

    /// Makes a channel to an end that is not trusted.
    pub(super) fn watched(socket: S, watchdog: Watchdog) -> Self {
        Self { socket, watchdog: Some(watchdog), is_new: true }
    }

    /// Whether nothing was sent by this channel yet.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Starts the time that the answer to a question may take.
    pub(super) fn begin_question(&mut self, allowance: Duration) {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.begin_question(allowance);
        }
    }

    /// How long was waited since the question for a process that did nothing.
    pub(super) fn waited(&self) -> Duration {
        self.watchdog.as_ref().map_or(Duration::ZERO, Watchdog::waited)
    }

    /// Does what takes its time and is not the other end's doing.
    pub fn run_unclocked<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let before = Instant::now();
        let done = body();
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.extend_deadline(before.elapsed());
        }
        done
    }

    /// Sends a message, and hands over files with it.
    ///
    /// # Errors
    ///
    /// If the other end is gone, or takes nothing for too long.
    pub fn send<T: Serialize>(
        &mut self,
        message: &T,
        files: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        self.is_new = false;
        let mut bytes = vec![0; 4];
        bytes =
            postcard::to_extend(message, bytes).map_err(|_error| ChannelError::InvalidMessage)?;
        let length = bytes.len() - 4;
        if length > MAX_MESSAGE || files.len() > MAX_FILES {
            return Err(ChannelError::InvalidMessage);
        }
        let length = u32::try_from(length).map_err(|_too_long| ChannelError::InvalidMessage)?;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let mut files = Some(files).filter(|files| !files.is_empty());
        let mut rest = bytes.as_slice();
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.check_deadline()?;
            watchdog.begin_message();
        }
        while !rest.is_empty() {
            match send_some(self.socket.as_fd(), rest, files) {
                Ok(sent) => {
                    // The files went with the first byte.
                    files = None;
                    rest = rest.get(sent..).unwrap_or_default();
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(ChannelError::Died),
            }
        }
        Ok(())
    }

    /// Receives the next message from an end that may hand over files.
    ///
    /// # Errors
    ///
    /// If the other end is gone, or sends what is no such message.
    pub fn receive_with_files<T: DeserializeOwned>(
        &mut self,
    ) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        let (message, files) = self.receive_boxed()?;
        let files: io::Result<_> = files.into_iter().map(unbox_file).collect();
        Ok((message, files.map_err(|_error| ChannelError::InvalidMessage)?))
    }

    fn receive_boxed<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        let mut files = Vec::new();
        let mut length = [0; 4];
        self.fill(&mut length, Some(&mut files))?;
        Ok((self.receive_body(length)?, files))
    }

    /// Receives the next message from a process of ours that hands over files, in time. Boxes stay
    /// closed.
    ///
    /// # Errors
    ///
    /// If the other end is gone, sends what is no such message, or nothing for too long.
    pub(crate) fn receive_answer<T: DeserializeOwned>(
        &mut self,
    ) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.check_deadline()?;
            watchdog.begin_message();
        }
        self.receive_boxed()
    }

    /// Receives the next message. Files that come with it are closed.
    ///
    /// # Errors
    ///
    /// If the other end is gone, sends what is no such message, or nothing for too long.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, ChannelError> {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.check_deadline()?;
            watchdog.begin_message();
        }
        let mut length = [0; 4];
        self.fill(&mut length, None)?;
        self.receive_body(length)
    }

    fn receive_body<T: DeserializeOwned>(&mut self, length: [u8; 4]) -> Result<T, ChannelError> {
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_MESSAGE {
            return Err(ChannelError::InvalidMessage);
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes, None)?;
        own_threads::pass_helper();
        decode(&bytes)
    }

    fn fill(
        &mut self,
        mut into: &mut [u8],
        mut files: Option<&mut Vec<OwnedFd>>,
    ) -> Result<(), ChannelError> {
        while !into.is_empty() {
            let received = match &mut files {
                Some(files) => receive_some(self.socket.as_fd(), into, files, RecvFlags::empty()),
                None => recv(&self.socket, &mut *into, RecvFlags::DONTWAIT).map(|(_, n)| n),
            };
            match received {
                Ok(0) => return Err(ChannelError::Died),
                Ok(received) => into = into.get_mut(received..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(ChannelError::Died),
            }
        }
        Ok(())
    }

    /// Waits until the socket can be read from or written to.
    fn wait(&mut self, what: PollFlags) -> Result<(), ChannelError> {
        let interval = self
            .watchdog
            .as_ref()
            .map(|_| Timespec { tv_sec: 0, tv_nsec: CHECK_INTERVAL.subsec_nanos().into() });
        loop {
            let mut socket = [PollFd::new(&self.socket, what)];
            match poll(&mut socket, interval.as_ref()) {
                Ok(0) => {
                    if let Some(watchdog) = &mut self.watchdog {
                        watchdog.check()?;
                    }
                }
                // An end that is gone is found when it is read from or written to. One that sends a
                // byte at a time is never silent.
                Ok(_) => return self.watchdog.as_ref().map_or(Ok(()), Watchdog::check_deadline),
                Err(Errno::INTR) => {}
                Err(_) => return Err(ChannelError::Died),
            }
        }
    }
}

/// Decodes a message with nothing behind it.
///
/// # Errors
///
/// [`ChannelError::InvalidMessage`] if it is none.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ChannelError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) | Err(_) => Err(ChannelError::InvalidMessage),
    }
}

/// Makes a copy in memory that nobody can change any more, to be handed over in place of a file
/// that its owner could still change. Returns how many bytes it has, too.
pub(crate) fn sealed_copy(mut from: impl Read) -> io::Result<(File, u64)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("module", flags)?);
    let length = io::copy(&mut from, &mut file)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals)?;
    Ok((file, length))
}

/// Puts an open file into a box: a socket in which it waits to be received. Who holds the box passes
/// it on without ever having the file open itself. To close a file can take for ever: the kernel
/// waits for the server of a FUSE file with each close, and for as long as it holds the file no
/// process ends.
///
/// # Errors
///
/// If there are too many open files.
pub(crate) fn box_file(file: impl AsFd) -> io::Result<OwnedFd> {
    let (filled, sealed) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    send_some(filled.as_fd(), &[0], Some(&[file.as_fd()]))?;
    Ok(sealed)
}

/// Returns the file in a box, which stays in there too. What is no box is the file itself.
///
/// # Errors
///
/// If there are too many open files, or if the box has none.
pub(crate) fn unbox_file(boxed: OwnedFd) -> io::Result<OwnedFd> {
    let mut files = Vec::new();
    match receive_some(boxed.as_fd(), &mut [0], &mut files, RecvFlags::PEEK) {
        // What is held by its name alone can't be received from either.
        Err(Errno::NOTSOCK | Errno::BADF) => Ok(boxed),
        Err(error) => Err(error.into()),
        Ok(_) => files.pop().ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

fn send_some(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    files: Option<&[BorrowedFd<'_>]>,
) -> rustix::io::Result<usize> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let Some(files) = files else { return send(socket, bytes, flags) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::TOOMANYREFS);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

fn receive_some(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    files: &mut Vec<OwnedFd>,
    more: RecvFlags,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | more;
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    Ok(received.bytes)
}
