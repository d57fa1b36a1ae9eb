//! Opens files that names are looked up in. What others could still change is copied first.
//!
//! The content of a file is not parsed here: [a process without rights](crate::parser) does that.

use std::{
    fs::File,
    io::{Read, Seek},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
};

use crate::{
    parser::{self, sealed_copy},
    symbols::address_spaces::{
        held_file::{Trust, is_unchanged, open_for_reading},
        modules::ModuleContent,
    },
};

/// A file is copied into memory up to this size; of a larger one nothing is named.
const MAX_COPY: u64 = 1 << 30;

/// A file that can be read, and that nobody changes meanwhile.
pub(crate) struct OpenFile {
    pub file: File,
    /// Never [`Trust::Stranger`]: that is copied.
    pub trust: Trust,
}

impl OpenFile {
    /// Opens a file that this process reads itself.
    ///
    /// # Errors
    ///
    /// The name of the diagnostic.
    pub(crate) fn for_own_reading(file: File, trust: Trust) -> Result<Self, &'static str> {
        match trust {
            Trust::System | Trust::Own => Ok(Self { file, trust }),
            Trust::Stranger => Ok(Self { file: copy_of(file)?, trust: Trust::Own }),
        }
    }

    /// Makes a file of bytes.
    ///
    /// # Errors
    ///
    /// The name of the diagnostic.
    pub(crate) fn from_image(image: &[u8]) -> Result<Self, &'static str> {
        let file = copy(image).ok_or("symbols_files_too_large")?;
        Ok(Self { file, trust: Trust::Own })
    }

    /// Opens a file for the process that parses: the file itself if anybody may read it, otherwise
    /// a copy.
    ///
    /// # Errors
    ///
    /// The name of the diagnostic.
    pub(crate) fn for_parser(file: File, trust: Trust) -> Result<Self, &'static str> {
        if trust == Trust::System && anybody_reads(&file) {
            return Ok(Self { file, trust });
        }
        let trust = match trust {
            Trust::System => Trust::System,
            Trust::Own | Trust::Stranger => Trust::Own,
        };
        Ok(Self { file: copy_of(file)?, trust })
    }

    /// Opens the file of a module for the process that parses. None if the module has no bytes.
    ///
    /// # Errors
    ///
    /// The name of the diagnostic.
    pub(crate) fn from_module(content: &ModuleContent) -> Result<Option<Self>, &'static str> {
        match content {
            ModuleContent::Missing => Ok(None),
            ModuleContent::Image(image) => Self::from_image(image).map(Some),
            ModuleContent::Held { file, identity, trust } => {
                // The content is not what ran any more.
                if !is_unchanged(file, *identity) {
                    return Err("symbols_files_changed");
                }
                let opened = open_for_reading(file).ok_or("symbols_files_unopened")?;
                Self::for_parser(opened, *trust).map(Some)
            }
        }
    }
}

/// Whether the process that parses can open the file anew, as blazesym does with every file.
fn anybody_reads(file: &File) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let is_there = std::fs::read_link(link).is_ok_and(|path| path.starts_with(parser::READABLE));
    is_there && file.metadata().is_ok_and(|metadata| metadata.mode() & 0o004 != 0)
}

fn copy_of(mut file: File) -> Result<File, &'static str> {
    // The file may have been read before, for its build id.
    file.rewind().map_err(|_error| "symbols_files_unopened")?;
    copy(file.take(MAX_COPY + 1)).ok_or("symbols_files_too_large")
}

/// None if it is larger than [`MAX_COPY`].
fn copy(from: impl Read) -> Option<File> {
    let (file, length) = sealed_copy(from).ok()?;
    (length <= MAX_COPY).then_some(file)
}
