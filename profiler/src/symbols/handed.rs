//! Files as they are read for their names: what others could still change is copied first.
//!
//! Nobody looks into a file here: that is for [who has no rights](crate::parser).

use std::{
    fs::File,
    io::{Read, Seek},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
};

use super::{
    identify::open,
    modules::{Content, Trust, is_unchanged},
};
use crate::parser::{self, sealed_copy};

/// A file is copied into memory up to this size; of a larger one nothing is named.
const MAX_COPY: u64 = 1 << 30;

/// A file that can be read, and that nobody changes meanwhile.
pub(super) struct Handed {
    pub file: File,
    /// Never [`Trust::Stranger`]: that is copied.
    pub trust: Trust,
}

impl Handed {
    /// A file that this process reads itself.
    ///
    /// # Errors
    ///
    /// The name of the shortfall.
    pub(super) fn here(file: File, trust: Trust) -> Result<Self, &'static str> {
        match trust {
            Trust::System | Trust::Own => Ok(Self { file, trust }),
            Trust::Stranger => Ok(Self { file: copy_of(file)?, trust: Trust::Own }),
        }
    }

    /// Bytes, as a file.
    ///
    /// # Errors
    ///
    /// The name of the shortfall.
    pub(super) fn image(image: &[u8]) -> Result<Self, &'static str> {
        let file = copy(image).ok_or("symbols_files_too_large")?;
        Ok(Self { file, trust: Trust::Own })
    }

    /// A file that the process reads that parses: as it is, if anybody could open it.
    ///
    /// # Errors
    ///
    /// The name of the shortfall.
    pub(super) fn apart(file: File, trust: Trust) -> Result<Self, &'static str> {
        if trust == Trust::System && anybody_reads(&file) {
            return Ok(Self { file, trust });
        }
        let trust = match trust {
            Trust::System => Trust::System,
            Trust::Own | Trust::Stranger => Trust::Own,
        };
        Ok(Self { file: copy_of(file)?, trust })
    }

    /// What a module has, for the process that parses. None if that is nothing.
    ///
    /// # Errors
    ///
    /// The name of the shortfall.
    pub(super) fn of_content(content: &Content) -> Result<Option<Self>, &'static str> {
        match content {
            Content::Missing => Ok(None),
            Content::Image(image) => Self::image(image).map(Some),
            Content::Held { file, identity, trust } => {
                // What is in it now is not what ran.
                if !is_unchanged(file, *identity) {
                    return Err("symbols_files_changed");
                }
                let opened = open(file).ok_or("symbols_files_unopened")?;
                Self::apart(opened, *trust).map(Some)
            }
        }
    }
}

/// Whether the process that parses can open it anew, as blazesym does with every file.
fn anybody_reads(file: &File) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let is_there = std::fs::read_link(link).is_ok_and(|path| path.starts_with(parser::READABLE));
    is_there && file.metadata().is_ok_and(|metadata| metadata.mode() & 0o004 != 0)
}

fn copy_of(mut file: File) -> Result<File, &'static str> {
    // It may have been read before, for its build id.
    file.rewind().map_err(|_error| "symbols_files_unopened")?;
    copy(file.take(MAX_COPY + 1)).ok_or("symbols_files_too_large")
}

/// None if it is larger than [`MAX_COPY`].
fn copy(from: impl Read) -> Option<File> {
    let (file, length) = sealed_copy(from).ok()?;
    (length <= MAX_COPY).then_some(file)
}
