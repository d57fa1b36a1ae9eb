//! The names that were found, up to a limit of memory.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use offwake_recording::{FrameId, Function, loss::Diagnostics};

/// Bytes of memory that names take at most. Who compiles a file says how long its names are.
const MAX_BYTES: usize = 1 << 30;

/// NameTable by frame.
pub(crate) struct NameTable {
    names: BTreeMap<FrameId, Vec<Function>>,
    /// The source files of functions. There are few, and each has many functions.
    files: HashSet<Arc<str>>,
    bytes_left: usize,
    over_limit: u64,
}

impl Default for NameTable {
    fn default() -> Self {
        Self::new()
    }
}

impl NameTable {
    pub(crate) fn new() -> Self {
        Self { names: BTreeMap::new(), files: HashSet::new(), bytes_left: MAX_BYTES, over_limit: 0 }
    }

    /// Sets the functions of a frame, innermost first. Replaces those that it had.
    pub(crate) fn set(&mut self, frame: FrameId, functions: Vec<Function>) {
        let old = self.names.get(&frame).map_or(0, |old| size(old));
        let Some(left) = (self.bytes_left + old).checked_sub(size(&functions)) else {
            self.over_limit += 1;
            return;
        };
        self.bytes_left = left;
        self.names.insert(frame, functions);
    }

    /// The source file of a function, interned. None if the limit is reached.
    pub(crate) fn file(&mut self, path: &str) -> Option<Arc<str>> {
        if let Some(known) = self.files.get(path) {
            return Some(Arc::clone(known));
        }
        let Some(left) = self.bytes_left.checked_sub(size_of_file(path)) else {
            self.over_limit += 1;
            return None;
        };
        self.bytes_left = left;
        let file: Arc<str> = path.into();
        self.files.insert(Arc::clone(&file));
        Some(file)
    }

    pub(crate) fn has(&self, frame: FrameId) -> bool {
        self.names.contains_key(&frame)
    }

    pub(crate) fn get(&self, frame: FrameId) -> Option<&[Function]> {
        self.names.get(&frame).map(Vec::as_slice)
    }

    pub(crate) fn add_diagnostics(&self, all: &mut Diagnostics) {
        if self.over_limit > 0 {
            *all.entry("symbols_names_over_limit").or_default() += self.over_limit;
        }
    }

    /// By frame, in the order of their ids.
    pub(crate) fn into_vec(self) -> Vec<(FrameId, Vec<Function>)> {
        self.names.into_iter().collect()
    }
}

/// Bytes that functions take without their source files, which others share.
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
        let mut names = NameTable { bytes_left: size_of_file("/a.c"), ..NameTable::new() };
        let [first, second] = [0, 1].map(|_| names.file("/a.c").unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!((names.bytes_left, names.file("/b.c"), names.over_limit), (0, None, 1));
    }

    #[test]
    fn names_over_the_limit_are_counted_and_what_is_replaced_is_free_again() {
        let name = |length| vec![Function::named("n".repeat(length))];
        let room = size(&name(100)) + size(&name(50));
        let mut names = NameTable { bytes_left: room, ..NameTable::new() };
        names.set(FrameId(1), name(100));
        names.set(FrameId(2), name(51));
        assert_eq!((names.over_limit, names.has(FrameId(2))), (1, false));
        names.set(FrameId(1), name(99));
        names.set(FrameId(2), name(51));
        assert_eq!(names.over_limit, 1);
        assert_eq!(names.into_vec(), [(FrameId(1), name(99)), (FrameId(2), name(51))]);
    }
}
