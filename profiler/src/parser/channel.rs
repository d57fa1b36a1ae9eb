//! Messages and open files, from one process to another.
//!
//! ```text
//! length of the rest: 4 bytes, little-endian, and with them the open files │ the message, by postcard
//! ```
//!
//! The one end is ours, and the other may be in anybody's hands: a message is as long as it may be at most, or
//! refused; open files are taken from who starts the other alone; and who is silent for too long is as
//! good as dead.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg,
    },
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Broken,
    watch::{PACE, Watch},
};

/// Bytes of a message at most. What is longer is sent in parts.
pub const MAX_MESSAGE: usize = 2 << 20;
/// Files that go with one message at most.
pub const MAX_FILES: usize = 32;

/// One end of a connection.
pub struct Channel<S> {
    socket: S,
    /// Of the other end: none if that is trusted, and may take as long as it likes.
    watch: Option<Watch>,
    is_new: bool,
}

impl<S: AsFd> Channel<S> {
    /// To who is trusted, and hands over files.
    pub fn to_trusted(socket: S) -> Self {
        Self { socket, watch: None, is_new: true }
    }

    /// To who is not.
    pub(super) fn watched(socket: S, watch: Watch) -> Self {
        Self { socket, watch: Some(watch), is_new: true }
    }

    /// Whether nothing was sent by it yet.
    pub fn is_new(&self) -> bool {
        self.is_new
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
    ) -> Result<(), Broken> {
        self.is_new = false;
        let mut bytes = vec![0; 4];
        bytes = postcard::to_extend(message, bytes).map_err(|_error| Broken::Nonsense)?;
        let length = bytes.len() - 4;
        if length > MAX_MESSAGE || files.len() > MAX_FILES {
            return Err(Broken::Nonsense);
        }
        let length = u32::try_from(length).map_err(|_too_long| Broken::Nonsense)?;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let mut files = Some(files).filter(|files| !files.is_empty());
        let mut rest = bytes.as_slice();
        if let Some(watch) = &mut self.watch {
            watch.begin();
        }
        while !rest.is_empty() {
            match send_some(self.socket.as_fd(), rest, files) {
                Ok(sent) => {
                    // They went with the first byte.
                    files = None;
                    rest = rest.get(sent..).unwrap_or_default();
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken::Died),
            }
        }
        Ok(())
    }

    /// The next message, from who may hand over files.
    ///
    /// # Errors
    ///
    /// If the other end is gone, or sends what is no such message.
    pub fn receive_with_files<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), Broken> {
        let mut files = Vec::new();
        let mut length = [0; 4];
        self.fill(&mut length, Some(&mut files))?;
        Ok((self.body(length)?, files))
    }

    /// The next message. Files that come with it are closed.
    ///
    /// # Errors
    ///
    /// If the other end is gone, sends what is no such message, or nothing for too long.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Broken> {
        if let Some(watch) = &mut self.watch {
            watch.begin();
        }
        let mut length = [0; 4];
        self.fill(&mut length, None)?;
        self.body(length)
    }

    fn body<T: DeserializeOwned>(&mut self, length: [u8; 4]) -> Result<T, Broken> {
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_MESSAGE {
            return Err(Broken::Nonsense);
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes, None)?;
        decode(&bytes)
    }

    fn fill(
        &mut self,
        mut into: &mut [u8],
        mut files: Option<&mut Vec<OwnedFd>>,
    ) -> Result<(), Broken> {
        while !into.is_empty() {
            let received = match &mut files {
                Some(files) => receive_some(self.socket.as_fd(), into, files),
                None => recv(&self.socket, &mut *into, RecvFlags::DONTWAIT).map(|(_, n)| n),
            };
            match received {
                Ok(0) => return Err(Broken::Died),
                Ok(received) => into = into.get_mut(received..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken::Died),
            }
        }
        Ok(())
    }

    /// Until it can go on.
    fn wait(&mut self, what: PollFlags) -> Result<(), Broken> {
        let pace = self
            .watch
            .as_ref()
            .map(|_| Timespec { tv_sec: 0, tv_nsec: PACE.subsec_nanos().into() });
        loop {
            let mut socket = [PollFd::new(&self.socket, what)];
            match poll(&mut socket, pace.as_ref()) {
                Ok(0) => {
                    if let Some(watch) = &mut self.watch {
                        watch.look()?;
                    }
                }
                // An end that is gone is found when it is read from or written to.
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken::Died),
            }
        }
    }
}

/// A message, and nothing behind it.
///
/// # Errors
///
/// [`Broken::Nonsense`] if it is none.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Broken> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) | Err(_) => Err(Broken::Nonsense),
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
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    Ok(received.bytes)
}
