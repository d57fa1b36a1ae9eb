//! The names that were found, within a limit.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::Shortfalls;
use crate::recording::{FrameId, Function};

/// Bytes of memory that names take at most. Who compiles a file says how long its names are.
const MAX_BYTES: usize = 1 << 30;

/// Names by frame.
pub(super) struct Names {
    names: BTreeMap<FrameId, Vec<Function>>,
    /// The files that functions are written in: few, each of many.
    files: HashSet<Arc<str>>,
    left: usize,
    over_limit: u64,
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

impl Names {
    pub(super) fn new() -> Self {
        Self { names: BTreeMap::new(), files: HashSet::new(), left: MAX_BYTES, over_limit: 0 }
    }

    /// The functions of a frame, innermost first. Replaces those that it had.
    pub(super) fn set(&mut self, frame: FrameId, functions: Vec<Function>) {
        let old = self.names.get(&frame).map_or(0, |old| size(old));
        let Some(left) = (self.left + old).checked_sub(size(&functions)) else {
            self.over_limit += 1;
            return;
        };
        self.left = left;
        self.names.insert(frame, functions);
    }

    /// The file that a function is written in, once for all of them; none if there is no room.
    pub(super) fn file(&mut self, path: &str) -> Option<Arc<str>> {
        if let Some(known) = self.files.get(path) {
            return Some(Arc::clone(known));
        }
        let Some(left) = self.left.checked_sub(size_of_file(path)) else {
            self.over_limit += 1;
            return None;
        };
        self.left = left;
        let file: Arc<str> = path.into();
        self.files.insert(Arc::clone(&file));
        Some(file)
    }

    pub(super) fn has(&self, frame: FrameId) -> bool {
        self.names.contains_key(&frame)
    }

    pub(super) fn get(&self, frame: FrameId) -> Option<&[Function]> {
        self.names.get(&frame).map(Vec::as_slice)
    }

    pub(super) fn add_shortfalls(&self, all: &mut Shortfalls) {
        if self.over_limit > 0 {
            *all.entry("symbols_names_over_limit").or_default() += self.over_limit;
        }
    }

    /// By frame, in the order of their ids.
    pub(super) fn into_vec(self) -> Vec<(FrameId, Vec<Function>)> {
        self.names.into_iter().collect()
    }
}

/// The files apart, which others share.
fn size(functions: &[Function]) -> usize {
    let each = functions.iter().map(|function| size_of::<Function>() + function.name.len());
    size_of::<(FrameId, Vec<Function>)>() + each.sum::<usize>()
}

fn size_of_file(path: &str) -> usize {
    2 * size_of::<Arc<str>>() + path.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_paid_for_once_and_only_if_there_is_room() {
        let mut names = Names { left: size_of_file("/a.c"), ..Names::new() };
        let [first, second] = [0, 1].map(|_| names.file("/a.c").unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!((names.left, names.file("/b.c"), names.over_limit), (0, None, 1));
    }

    #[test]
    fn names_over_the_limit_are_counted_and_what_is_replaced_is_free_again() {
        let name = |length| vec![Function::named("n".repeat(length))];
        let room = size(&name(100)) + size(&name(50));
        let mut names = Names { left: room, ..Names::new() };
        names.set(FrameId(1), name(100));
        names.set(FrameId(2), name(51));
        assert_eq!((names.over_limit, names.has(FrameId(2))), (1, false));
        names.set(FrameId(1), name(99));
        names.set(FrameId(2), name(51));
        assert_eq!(names.over_limit, 1);
        assert_eq!(names.into_vec(), [(FrameId(1), name(99)), (FrameId(2), name(51))]);
    }
}
