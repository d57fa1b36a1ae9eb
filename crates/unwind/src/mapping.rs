//! The code that a process has mapped, and the files behind it.

use std::{fs::File, sync::Arc};

use offwake_recording::ModuleId;
use serde::{Deserialize, Serialize};

/// An executable mapping of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeMapping {
    /// The first address of the mapping.
    pub start: u64,
    /// The first address behind the mapping.
    pub end: u64,
    /// Where in the file the mapping begins, in bytes.
    pub offset: u64,
    /// What is mapped.
    pub backing: CodeBacking,
}

/// What is behind an executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CodeBacking {
    /// A file, or the vDSO.
    File(ModuleId),
    /// Code that was made at run time.
    Memory,
}

/// The bytes of a module.
#[derive(Debug)]
pub enum FileContent {
    /// An open file. It is read and never mapped: a file that is cut short while it is mapped kills
    /// the process that reads it.
    File(File),
    /// The bytes themselves.
    Image(Arc<[u8]>),
}

/// Where the bytes of modules come from.
pub trait ModuleFiles {
    /// The bytes of a module, or none if they can't be had. The unwinder calls this when it wants a
    /// module's unwind data and does not have it, and once more for a return address that this data
    /// does not cover.
    fn content(&self, module: ModuleId) -> Option<FileContent>;
}

/// Finds the mapping that contains an address. `code` is sorted by address.
#[must_use]
pub fn find_mapping(code: &[CodeMapping], address: u64) -> Option<&CodeMapping> {
    let behind = code.partition_point(|mapping| mapping.start <= address);
    code.get(behind.checked_sub(1)?).filter(|mapping| address < mapping.end)
}
