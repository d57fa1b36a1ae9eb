//! Where names come from.

use std::{fs::File, sync::Arc};

use offwake_recording::BuildId;

use super::{debug_files::DebugDirectories, debuginfod::Debuginfod, detail::Detail};
use crate::symbols::address_spaces::held_file::Trust;

/// Where names come from, and how much is wanted of them.
#[derive(Clone, Debug, Default)]
pub struct NameSources {
    /// How much is wanted.
    pub detail: Detail,
    /// Where files with names are, besides those that were mapped.
    pub debug_directories: DebugDirectories,
    /// Servers that are asked for files that are nowhere else, if any are to be asked.
    pub debuginfod: Option<Arc<Debuginfod>>,
}

impl NameSources {
    /// Fetches the debug file that a server has of a build. Its content is a stranger's, whoever
    /// owns the file.
    pub(crate) fn fetch(&self, build_id: &BuildId) -> Option<(File, Trust)> {
        Some((self.debuginfod.as_ref()?.find(build_id)?, Trust::Own))
    }
}
