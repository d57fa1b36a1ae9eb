//! The recorder as a sink.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread::JoinHandle,
};

use super::{
    Event, Keep, Kept, Stretch, Unfinished, Why,
    frozen::Tables,
    writer::{Message, NewNames, Writer},
};
use crate::{
    capture::sink::{NewSlice, Sink},
    parser::{Parser, Role},
    units::StackId,
};

/// Stretches that may wait to be written, the one that is being written included.
const MAX_WAITING: usize = 2;

/// What a flight recorder is to do.
pub struct FlightPlan {
    /// Where the last stretch goes; snapshots get a number before the extension.
    pub path: PathBuf,
    /// How much is kept.
    pub keep: Keep,
    /// Bytes of memory that may be used for it.
    pub max_memory: usize,
    /// Snapshots of this run that stay.
    pub max_snapshots: usize,
    /// Is told what becomes of each stretch, by the thread that writes them.
    pub say: Box<dyn FnMut(Event) + Send>,
    /// The file that is half written, if one is.
    pub unfinished: Unfinished,
}

/// Keeps the last stretch of a recording.
pub struct Flight {
    kept: Kept,
    messages: Option<Sender<Message>>,
    writer: Option<JoinHandle<io::Result<()>>>,
    waiting: Arc<AtomicUsize>,
    /// Stretches for which there was no time.
    skipped: Arc<AtomicUsize>,
}

impl Flight {
    /// Nothing is kept yet.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn new(plan: FlightPlan) -> io::Result<Self> {
        let FlightPlan { path, keep, max_memory, max_snapshots, say, unfinished } = plan;
        let waiting = Arc::new(AtomicUsize::new(0));
        let skipped = Arc::new(AtomicUsize::new(0));
        let writer = Writer {
            path,
            max_snapshots,
            say,
            unfinished,
            waiting: Arc::clone(&waiting),
            skipped: Arc::clone(&skipped),
            tables: Tables::default(),
            parser: Parser::new(Role::Names),
            snapshots: 0,
            written: VecDeque::new(),
        };
        let (messages, receiver) = mpsc::channel();
        let writer = std::thread::Builder::new()
            .name("offwake-write".to_owned())
            .spawn(move || writer.run(&receiver))?;
        let kept = Kept::new(keep, max_memory);
        Ok(Self { kept, messages: Some(messages), writer: Some(writer), waiting, skipped })
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.messages {
            // The other end is gone only if its thread has died; that is noticed when it is joined.
            let _died = messages.send(message);
        }
    }
}

impl Sink for Flight {
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
        self.messages = None;
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(written)) => written,
            Some(Err(_panic)) => Err(io::Error::other("the thread that writes has died")),
            None => Ok(()),
        }
    }

    fn keeps_a_stretch(&self) -> bool {
        true
    }

    fn write_out(&mut self, stretch: Stretch, names: NewNames, why: Why) {
        self.send(Message::Names(names));
        if why != Why::End {
            if self.waiting.load(Ordering::Relaxed) >= MAX_WAITING {
                self.skipped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        let frozen = self.kept.freeze(stretch);
        self.send(Message::Write(Box::new(frozen), why));
    }

    fn take_forgotten(&mut self) -> Vec<StackId> {
        self.kept.take_forgotten()
    }
}
