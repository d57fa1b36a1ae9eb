//! The recorder as a live view's source: each stretch that is asked for becomes a recording in memory.
//!
//! ```text
//! store    ── slices, stretches ──▶ offwake-view ── a recording's bytes ──▶ viewer
//!          └─ nameless frames ──▶ offwake-names ─┘ names, as they are found
//! ```
//!
//! Names can take long: those of a compiler, say. No stretch waits for them; what has none yet shows its file
//! and offset.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
    thread::JoinHandle,
};

use super::{Frozen, Keep, Kept, Stretch, Why, frozen::Tables, writer::NewNames};
use crate::{
    capture::sink::{NewSlice, Sink},
    parser::{Parser, Role},
    recording::{Frame, FrameId, Module, ModuleId},
    symbols::{NameBook, Naming},
    units::StackId,
};

/// Takes a stretch: the bytes of a recording, or why it can't be encoded.
pub type Viewer = Box<dyn FnMut(io::Result<Vec<u8>>, &Why) + Send>;

/// Something for the thread that makes recordings of stretches.
enum Message {
    /// Frames and modules that stacks refer to.
    Found(Vec<(FrameId, Frame)>, Vec<(ModuleId, Module)>),
    /// Names that were looked up.
    Named(NameBook),
    /// A stretch to be viewed.
    View(Box<Frozen>, Why),
    /// Nothing comes any more, but for names that nobody needs then.
    End,
}

/// Keeps the last stretch, and hands it to a viewer whenever somebody asks for it.
pub struct Live {
    kept: Kept,
    messages: Sender<Message>,
    nameless: Sender<Naming>,
    view: Option<JoinHandle<()>>,
}

impl Live {
    /// Keeps nothing yet; in at most about `max_memory` bytes. The viewer works in a thread of its own:
    /// nobody waits for it, and whoever asks too soon makes its stretches queue.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn new(keep: Keep, max_memory: usize, viewer: Viewer) -> io::Result<Self> {
        let (messages, to_view) = mpsc::channel();
        let (nameless, to_name) = mpsc::channel();
        let view = start("offwake-view", move || view(&to_view, viewer))?;
        let named = messages.clone();
        // Ends when nobody can ask any more, and nobody waits for that: it may be in the middle of a long file.
        let _names = start("offwake-names", move || name(&to_name, &named))?;
        let kept = Kept::new(keep, max_memory);
        Ok(Self { kept, messages, nameless, view: Some(view) })
    }

    fn send(&self, message: Message) {
        // The other end is gone only if its thread has ended; that is noticed when it is joined.
        let _ended = self.messages.send(message);
    }
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

fn view(messages: &Receiver<Message>, mut viewer: Viewer) {
    let mut tables = Tables::default();
    for message in messages {
        match message {
            Message::Found(frames, modules) => tables.add(frames, modules),
            Message::Named(names) => tables.book.append(names),
            Message::View(frozen, why) => {
                let mut bytes = Vec::new();
                let written = frozen.write(&tables, &mut bytes);
                viewer(written.map(|()| bytes), &why);
            }
            Message::End => return,
        }
    }
}

fn name(nameless: &Receiver<Naming>, named: &Sender<Message>) {
    let mut parser = Parser::new(Role::Names);
    for naming in nameless {
        let mut names = NameBook::default();
        names.look_up(naming, &mut parser, &mut |_done, _all| {});
        if named.send(Message::Named(names)).is_err() {
            return;
        }
    }
}

impl Sink for Live {
    fn begin(&mut self, _header: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        let encoded = slice.encode()?;
        let content = slice.content();
        if !content.frames.is_empty() || !content.modules.is_empty() {
            self.send(Message::Found(content.frames.clone(), content.modules.clone()));
        }
        self.kept.append(encoded, content);
        Ok(())
    }

    fn end(&mut self, _mark: &[u8]) -> io::Result<()> {
        self.send(Message::End);
        match self.view.take().map(JoinHandle::join) {
            Some(Err(_panic)) => Err(io::Error::other("the thread that makes the view has died")),
            Some(Ok(())) | None => Ok(()),
        }
    }

    fn keeps_a_stretch(&self) -> bool {
        true
    }

    fn write_out(&mut self, stretch: Stretch, names: NewNames, why: Why) {
        match names {
            NewNames::ToLookUp(naming) => {
                for part in naming.split() {
                    let _ended = self.nameless.send(part);
                }
            }
            NewNames::Found(found) => {
                let mut names = NameBook::default();
                names.add(found);
                self.send(Message::Named(names));
            }
        }
        self.send(Message::View(Box::new(self.kept.freeze(stretch)), why));
    }

    fn take_forgotten(&mut self) -> Vec<StackId> {
        self.kept.take_forgotten()
    }
}
