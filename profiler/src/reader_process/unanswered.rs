//! What did not answer, of all threads: in words for whoever records, and by place for the recording.

use std::{
    collections::{HashSet, hash_map::RandomState},
    hash::BuildHasher as _,
    os::fd::{AsRawFd as _, BorrowedFd},
    sync::{Mutex, PoisonError},
};

use offwake_recording::{Unanswered, UnansweredKind};

use super::messages::Subject;
use crate::cgroup2::{self, Mount};

/// How many are described in words.
const MAX_DESCRIBED: usize = 8;
/// How many places and processes are listed; all others are counted in a row of their own.
const MAX_LISTED: usize = 32;
/// Bytes of a path that are listed.
const MAX_PLACE: usize = 256;
/// How many are told apart; what comes later is counted each time.
const MAX_KNOWN: usize = 65_536;

static LIST: Mutex<Option<UnansweredList>> = Mutex::new(None);

/// What did not answer: a few in words, the others by place and number.
#[derive(Default)]
pub(super) struct UnansweredList {
    described: Vec<String>,
    rows: Vec<Unanswered>,
    /// What no row has room for.
    others: u64,
    /// Hashes of what is counted: several threads may have asked the same.
    known: HashSet<u64>,
    hasher: RandomState,
    count: u64,
}

impl UnansweredList {
    /// Adds what did not answer, once. `place` is where a file lies.
    pub(super) fn add(&mut self, subject: &Subject, words: String, place: String) {
        if self.is_known(subject) {
            return;
        }
        if self.known.len() < MAX_KNOWN {
            self.known.insert(self.hasher.hash_one(subject));
        }
        self.count += 1;
        if self.described.len() < MAX_DESCRIBED {
            self.described.push(words);
        }
        let (kind, tgid) = (kind_of(subject), subject.process());
        let place = if tgid.is_some() { String::new() } else { shorten(place) };
        let new = Unanswered { kind, place, tgid, count: 0 };
        let is_same =
            |row: &Unanswered| (row.kind, row.tgid, &row.place) == (new.kind, new.tgid, &new.place);
        match self.rows.iter().position(is_same) {
            Some(row) => self.rows[row].count += 1,
            None if self.rows.len() < MAX_LISTED => {
                self.rows.push(Unanswered { count: 1, ..new });
            }
            None => self.others += 1,
        }
    }

    fn is_known(&self, subject: &Subject) -> bool {
        self.known.contains(&self.hasher.hash_one(subject))
    }

    pub(super) fn describe(&self) -> Option<String> {
        let described = self.described.join(", ");
        match (described.is_empty(), self.count.saturating_sub(self.described.len() as u64)) {
            (true, _) => None,
            (false, 0) => Some(described),
            (false, more) => Some(format!("{described} and {more} more")),
        }
    }

    /// The rows of the recording's table.
    pub(super) fn rows(&self) -> Vec<Unanswered> {
        let (kind, place, tgid) = (UnansweredKind::Other, String::new(), None);
        let others = Unanswered { kind, place, tgid, count: self.others };
        let others = (self.others > 0).then_some(others);
        self.rows.iter().cloned().chain(others).collect()
    }
}

fn kind_of(subject: &Subject) -> UnansweredKind {
    match subject {
        Subject::Memory(_) => UnansweredKind::Memory,
        Subject::Mappings(_) => UnansweredKind::Mappings,
        Subject::Arguments(_) => UnansweredKind::Arguments,
        Subject::Root(_) => UnansweredKind::Root,
        Subject::Descriptor(_) => UnansweredKind::Descriptor,
        Subject::Directory(_) => UnansweredKind::Directory,
        Subject::File { .. } => UnansweredKind::File,
    }
}

/// A path that is cut has a mark at its end.
fn shorten(mut path: String) -> String {
    if path.len() > MAX_PLACE {
        let end = (0..=MAX_PLACE - '…'.len_utf8()).rev().find(|&end| path.is_char_boundary(end));
        path.truncate(end.unwrap_or(0));
        path.push('…');
    }
    path
}

/// Notes that something did not answer. Neither it nor its file system is asked for its name.
pub(super) fn note_unanswered(subject: &Subject, file: Option<BorrowedFd<'_>>) {
    // Whoever is asked for a thousand functions of one file comes here a thousand times, and the mounts are
    // read below.
    let is_known = |list: &UnansweredList| list.is_known(subject);
    if LIST.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(is_known) {
        return;
    }
    let path = file.filter(|_| matches!(subject, Subject::File { .. })).and_then(read_path);
    let place = match subject {
        Subject::File { device, .. } => {
            let mounts = cgroup2::parse_all_mounts(&cgroup2::read_mountinfo());
            find_place(*device, path.as_deref(), &mounts)
        }
        Subject::Directory(path) => path.clone(),
        _ => String::new(),
    };
    let words = path.unwrap_or_else(|| subject.to_string());
    log::warn!("not answered, and not asked again: {words}");
    let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    list.get_or_insert_default().add(subject, words, place);
}

/// The mount point of a file's device: the longest that its path begins with, if there is one. A file of
/// another mount namespace has a path that says nothing here.
pub(super) fn find_place(
    (major, minor): (u32, u32),
    path: Option<&str>,
    mounts: &[Mount],
) -> String {
    let device = (major << 20) | minor;
    let of_device = || mounts.iter().filter(|mount| mount.device == device);
    let is_below = |mount: &&Mount| {
        let rest = path.and_then(|path| path.strip_prefix(mount.mount_point.as_str()));
        rest.is_some_and(|rest| rest.starts_with('/') || mount.mount_point == "/")
    };
    let length = |mount: &&Mount| mount.mount_point.len();
    let found = of_device().filter(is_below).max_by_key(length);
    let found = found.or_else(|| of_device().min_by_key(length));
    found.map_or_else(|| format!("device {major}:{minor}"), |mount| mount.mount_point.clone())
}

/// The path of an open file, as the kernel knows it: its file system is not asked.
pub(crate) fn read_path(file: BorrowedFd<'_>) -> Option<String> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// Describes what did not answer until now; none if all did.
#[must_use]
pub fn describe_unanswered() -> Option<String> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.describe()
}

/// What did not answer until now, by place and process.
pub(crate) fn list_unanswered() -> Vec<Unanswered> {
    let list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    list.as_ref().map_or_else(Vec::new, UnansweredList::rows)
}
