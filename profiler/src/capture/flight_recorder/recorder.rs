//! The recorder as a sink: retains slices, and hands snapshots to an output in a thread of its own.
//!
//! ```text
//! store ── slices, snapshots ──▶ offwake-write: files, in which every name is looked up first
//!
//! store ── slices, snapshots ──▶ offwake-view: a recording's bytes for a live view
//!          └─ pending names ──▶ offwake-names ─┘ names, as they are found
//! ```
//!
//! Names can take long: those of a compiler, say. A file waits for them. A live view does not: what
//! has no name yet shows its file and offset (`names.rs`).

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::JoinHandle,
};

use offwake_recording::{Frame, FrameId, Function, Module, ModuleId, units::StackId};

use super::{
    names::{self, TargetFrames, WantedNames},
    output::{FileOutput, FlightRecorderPlan, SnapshotOutput, ViewOutput, Viewer},
    retained::{RetainedSlices, Retention},
    snapshot::{FrameTables, RetainedSnapshot},
};
use crate::{
    capture::{
        messages::{FrameNames, SnapshotEnd, SnapshotReason},
        sink::{NewSlice, Sink},
    },
    own_threads::{self, OwnThread},
    parser::{Parser, ParserRole},
    symbols::{NamingRequest, ResolvedNames},
};

/// Snapshots that may wait to be written, the one that is being written included.
const MAX_WAITING_FILES: usize = 2;

/// What is said if the thread that writes snapshots is gone.
const OUTPUT_DIED: &str = "the thread that writes snapshots has died";

/// Something for the thread that has the output.
enum Message {
    /// Frames and modules that stacks refer to.
    Frames(Vec<(FrameId, Frame)>, Vec<(ModuleId, Module)>),
    /// Names that this thread is to look up.
    LookUpNames(NamingRequest),
    /// Names that were looked up beside the recording.
    LookedUpNames(ResolvedNames),
    /// Names that came with a snapshot.
    ResolvedNames(Vec<(FrameId, Vec<Function>)>),
    /// A snapshot to be written.
    Snapshot(Box<RetainedSnapshot>, SnapshotReason),
    /// The run is over: only names may still come, and nobody needs them any more.
    End,
}

/// How many snapshots wait for the output, and for how many there was no room.
#[derive(Default)]
struct Backlog {
    waiting: AtomicUsize,
    skipped: AtomicUsize,
}

/// Where pending names are looked up.
enum NameLookup {
    /// In the output's thread: no snapshot is written before its names are known.
    BeforeWriting,
    /// In a thread of their own: snapshots are written with the names that are known.
    Beside(Sender<WantedNames>, TargetFrames),
}

/// Retains the last slices of a recording, and writes them out when it is asked to.
pub struct FlightRecorder {
    retained: RetainedSlices,
    messages: Option<Sender<Message>>,
    output: Option<JoinHandle<io::Result<()>>>,
    names: NameLookup,
    backlog: Arc<Backlog>,
    max_waiting: usize,
}

impl FlightRecorder {
    /// A recorder that writes snapshots into files.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn to_files(plan: FlightRecorderPlan) -> io::Result<Self> {
        let retained = RetainedSlices::new(plan.retention, plan.max_memory);
        let output = FileOutput::new(plan);
        let (messages, backlog, output) = start_output(OwnThread::Write, output)?;
        Ok(Self {
            retained,
            messages: Some(messages),
            output: Some(output),
            names: NameLookup::BeforeWriting,
            backlog,
            max_waiting: MAX_WAITING_FILES,
        })
    }

    /// A recorder that hands snapshots to a viewer, in a thread of its own: nobody waits for it,
    /// and snapshots that are asked for too soon wait in a queue.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn to_viewer(retention: Retention, max_memory: usize, viewer: Viewer) -> io::Result<Self> {
        let (messages, backlog, output) = start_output(OwnThread::View, ViewOutput(viewer))?;
        let (pending, to_look_up) = mpsc::channel();
        let named = messages.clone();
        // This thread ends when nobody can ask any more, and nobody waits for that: it may be in
        // the middle of a long file.
        let _names = own_threads::spawn(OwnThread::ViewNames, move || {
            names::look_up(&to_look_up, &mut |found| {
                named.send(Message::LookedUpNames(found)).is_ok()
            });
        })?;
        Ok(Self {
            retained: RetainedSlices::new(retention, max_memory),
            messages: Some(messages),
            output: Some(output),
            names: NameLookup::Beside(pending, TargetFrames::default()),
            backlog,
            max_waiting: usize::MAX,
        })
    }

    /// Returns an error once the thread that writes has died: what is retained then would never be written, so
    /// the run must not go on in vain.
    fn ensure_output_lives(&self) -> io::Result<()> {
        match &self.output {
            Some(output) if output.is_finished() => Err(io::Error::other(OUTPUT_DIED)),
            _ => Ok(()),
        }
    }

    fn send(&self, message: Message) {
        if let Some(messages) = &self.messages {
            // The other end is gone only if its thread has died; that is noticed with the next slice.
            let _died = messages.send(message);
        }
    }

    fn send_names(&mut self, names: FrameNames) {
        match (names, &mut self.names) {
            (FrameNames::Pending(naming), NameLookup::BeforeWriting) => {
                self.send(Message::LookUpNames(naming));
            }
            (FrameNames::Pending(naming), NameLookup::Beside(pending, of_target)) => {
                let _died = pending.send((naming, of_target.drain()));
            }
            (FrameNames::Resolved(resolved), _) => {
                self.send(Message::ResolvedNames(resolved));
            }
        }
    }
}

impl Sink for FlightRecorder {
    fn begin(&mut self, _header: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn append(&mut self, mut slice: NewSlice<'_>) -> io::Result<()> {
        self.ensure_output_lives()?;
        let encoded = slice.encode()?;
        let content = slice.content();
        if !content.frames.is_empty() || !content.modules.is_empty() {
            self.send(Message::Frames(content.frames.clone(), content.modules.clone()));
        }
        if let NameLookup::Beside(_, of_target) = &mut self.names {
            of_target.add(content);
        }
        self.retained.append(encoded, content);
        Ok(())
    }

    fn end(&mut self, _mark: &[u8]) -> io::Result<()> {
        self.send(Message::End);
        self.messages = None;
        match self.output.take().map(JoinHandle::join) {
            Some(Ok(written)) => written,
            Some(Err(_panic)) => Err(io::Error::other(OUTPUT_DIED)),
            None => Ok(()),
        }
    }

    fn takes_snapshots(&self) -> bool {
        true
    }

    fn write_snapshot(&mut self, end: SnapshotEnd, names: FrameNames, reason: SnapshotReason) {
        self.send_names(names);
        if reason != SnapshotReason::End {
            if self.backlog.waiting.load(Ordering::Relaxed) >= self.max_waiting {
                self.backlog.skipped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.backlog.waiting.fetch_add(1, Ordering::Relaxed);
        }
        let snapshot = self.retained.snapshot(end);
        self.send(Message::Snapshot(Box::new(snapshot), reason));
    }

    fn take_dropped_stacks(&mut self) -> Vec<StackId> {
        self.retained.take_dropped_stacks()
    }
}

/// The channel to a started output, its backlog, and its thread.
type StartedOutput = (Sender<Message>, Arc<Backlog>, JoinHandle<io::Result<()>>);

fn start_output(thread: OwnThread, output: impl SnapshotOutput) -> io::Result<StartedOutput> {
    let backlog = Arc::new(Backlog::default());
    let (sender, messages) = mpsc::channel();
    let thread = {
        let backlog = Arc::clone(&backlog);
        own_threads::spawn(thread, move || write_snapshots(output, &messages, &backlog))?
    };
    Ok((sender, backlog, thread))
}

/// Runs until the end is sent, or nobody can send any more. An error if the last snapshot of all
/// could not be written.
fn write_snapshots(
    mut output: impl SnapshotOutput,
    messages: &Receiver<Message>,
    backlog: &Backlog,
) -> io::Result<()> {
    output.drop_rights();
    let mut parser = Parser::new(ParserRole::Names);
    let mut tables = FrameTables::default();
    let mut last = Ok(());
    for message in messages {
        own_threads::pass();
        match message {
            Message::Frames(frames, modules) => tables.add(frames, modules),
            Message::LookUpNames(naming) => {
                tables.names.resolve(naming, &mut parser, &mut |_done, _all| {});
            }
            Message::LookedUpNames(names) => tables.names.append(names),
            Message::ResolvedNames(names) => tables.names.add(names),
            Message::Snapshot(snapshot, SnapshotReason::End) => {
                last = output.write_last(*snapshot, &tables);
            }
            Message::Snapshot(snapshot, reason) => {
                output.write(*snapshot, &tables, reason);
                backlog.waiting.fetch_sub(1, Ordering::Relaxed);
                for _ in 0..backlog.skipped.swap(0, Ordering::Relaxed) {
                    output.report_skipped();
                }
            }
            Message::End => break,
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use offwake_recording::{
        stream::{Encoder, Slice},
        units::Nanos,
    };

    use super::*;

    fn append(recorder: &mut FlightRecorder) -> io::Result<()> {
        let mut encoder = Encoder::new().unwrap();
        recorder.append(NewSlice::new(&mut Slice::default(), &mut encoder))
    }

    fn recorder(viewer: Viewer) -> FlightRecorder {
        let retention = Retention::Time(Nanos(1_000_000_000));
        FlightRecorder::to_viewer(retention, 1 << 20, viewer).unwrap()
    }

    #[test]
    fn a_run_does_not_go_on_in_vain_when_the_thread_that_writes_has_died() {
        let mut recorder = recorder(Box::new(|_snapshot| panic!("injected")));
        append(&mut recorder).unwrap();
        let snapshot = recorder.retained.snapshot(SnapshotEnd::default());
        recorder.send(Message::Snapshot(Box::new(snapshot), SnapshotReason::View));
        let began = Instant::now();
        let error = loop {
            if let Err(error) = append(&mut recorder) {
                break error;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nobody noticed");
            thread::yield_now();
        };
        assert_eq!(error.to_string(), OUTPUT_DIED);
        assert_eq!(recorder.end(&[]).unwrap_err().to_string(), OUTPUT_DIED);
    }

    #[test]
    fn a_thread_that_writes_is_not_taken_for_dead() {
        let mut recorder = recorder(Box::new(|_snapshot| ()));
        for _ in 0..10 {
            append(&mut recorder).unwrap();
        }
        recorder.end(&[]).unwrap();
    }
}
