//! Names the very thing that the waits of a finding were on: a connection, a FIFO, a file.
//!
//! ```text
//! files of the waits     tcp 10.0.0.2:5432   3.1 s     in words   on tcp 10.0.0.2:5432
//!                        tcp 10.0.0.2:5432   0.9 s
//! ```
//!
//! Only what was looked up while it was open has a name. Where that is less than nearly all of the time, the part is
//! told as well.

use std::{cmp::Reverse, collections::BTreeMap};

use offwake_recording::{FileId, FileKind, OpenFile, PeerProcess, Recording, units::Nanos};

use crate::{
    blame::{FrameEvidence, cause::Cause},
    text,
    waited_on_entry::connection_text,
};

use super::{
    meaning::SleepMeaning,
    root::{RootKey, WaitRoot},
};

/// What the waits were on for at least this part of the time of which that is known is named.
const MAIN_THING: f64 = 0.8;
/// The time of which it is known has to be at least this part of all.
const MIN_KNOWN: f64 = 0.1;
/// The most characters of an address or a path.
const MAX_NAME: usize = 64;

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ThingKind {
    Connection,
    Fifo,
    File,
}

/// The thing that waits were on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AwaitedThing {
    pub(super) kind: ThingKind,
    /// `tcp 10.0.0.2:5432`, `/srv/jobs`, as it was recorded.
    pub(super) name: String,
    /// The only process at the other end of the connection.
    pub(super) process: Option<PeerProcess>,
    /// The part of the time of which it is known, where that is not nearly all.
    known: Option<f64>,
}

impl AwaitedThing {
    /// Finds the thing that the waits of a root were on; none if it has no name, or they were on several. Where a
    /// disk is waited for, the finding names the file with the disk.
    pub(super) fn find(
        (_, meaning): &RootKey,
        root: &WaitRoot,
        recording: &Recording,
    ) -> Option<Self> {
        if meaning.cause == Cause::Disk {
            return None;
        }
        let mut times: BTreeMap<(ThingKind, String), (Nanos, FileId)> = BTreeMap::new();
        for (&file, &time) in &root.files {
            if let Some(thing) = name_file(recording, file) {
                times.entry(thing).or_insert((Nanos(0), file)).0 += time;
            }
        }
        let named: Nanos = times.values().map(|&(time, _)| time).sum();
        let ((kind, name), (most, file)) =
            times.into_iter().min_by_key(|&(_, (time, _))| Reverse(time))?;
        let part = |time: Nanos, of: Nanos| time.0 as f64 / of.0.max(1) as f64;
        let known = part(most, root.node.time);
        let is_main = part(most, named) >= MAIN_THING && known >= MIN_KNOWN;
        let process = recording.files.socket(file).and_then(|socket| match &*socket.peers {
            [only] => Some(only.clone()),
            _ => None,
        });
        let known = (known < MAIN_THING).then_some(known);
        is_main.then_some(Self { kind, name, process, known })
    }

    /// Returns whether what threads did says the thing already, in words.
    pub(super) fn is_in_words_of(&self, meaning: &SleepMeaning) -> bool {
        match self.kind {
            ThingKind::Connection => meaning.evidence == FrameEvidence::NameLookup,
            ThingKind::Fifo => meaning.cause == Cause::Pipe,
            ThingKind::File => false,
        }
    }

    /// `tcp 10.0.0.2:5432`, `/srv/jobs (21% of it)`
    pub(super) fn describe(&self) -> String {
        let name = text::cut_chars(&text::terminal(&self.name), MAX_NAME);
        match self.known {
            Some(part) => format!("{name} ({:.0}% of it)", part * 100.0),
            None => name,
        }
    }

    /// Describes the address of a connection, without its protocol.
    pub(super) fn describe_address(&self) -> String {
        let whole = self.describe();
        whole.split_once(' ').map(|(_, address)| address.to_owned()).unwrap_or(whole)
    }
}

/// Names a file that was looked up while it was open.
fn name_file(recording: &Recording, file: FileId) -> Option<(ThingKind, String)> {
    match recording.files.files.get(&file)? {
        OpenFile::Socket(socket) => {
            connection_text(socket).map(|name| (ThingKind::Connection, name))
        }
        OpenFile::Named(path) if path.starts_with('/') => {
            let kind = match file.kind {
                FileKind::Pipe => ThingKind::Fifo,
                _ => ThingKind::File,
            };
            Some((kind, path.clone()))
        }
        OpenFile::Named(_) => None,
    }
}
