//! Opens files that names are looked up in. What others could still change is copied first.
//!
//! The content of a file is not parsed here: [a process without rights](crate::parser) does that.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
};

use rustix::io::Errno;

use crate::{
    parser::{self, sealed_copy},
    reader_process,
    symbols::address_spaces::{
        held_file::{Trust, is_unchanged, stat},
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
            Trust::Stranger => Ok(Self { file: copy_of(&file)?, trust: Trust::Own }),
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
}

/// A file for the process that parses.
pub(crate) struct FileForParser {
    /// The file in a [box](parser::box_file), or a copy of it.
    pub file: OwnedFd,
    /// Never [`Trust::Stranger`]: that is copied.
    pub trust: Trust,
}

impl FileForParser {
    /// Opens a file that is held by its name alone: the file itself if anybody may read it, otherwise
    /// a copy.
    ///
    /// # Errors
    ///
    /// The name of the diagnostic.
    pub(crate) fn open(held: &OwnedFd, trust: Trust) -> Result<Self, &'static str> {
        if trust == Trust::System && anybody_reads(held) {
            let file =
                reader_process::open_held(held).map_err(|_error| "symbols_files_unopened")?;
            return Ok(Self { file, trust });
        }
        let trust = match trust {
            Trust::System => Trust::System,
            Trust::Own | Trust::Stranger => Trust::Own,
        };
        Ok(Self { file: copy_of(held)?.into(), trust })
    }

    /// Opens the file of a module. None if the module has no bytes.
    ///
    /// # Errors
    ///
    /// The name of the diagnostic.
    pub(crate) fn from_module(content: &ModuleContent) -> Result<Option<Self>, &'static str> {
        match content {
            ModuleContent::Missing => Ok(None),
            ModuleContent::Image(image) => {
                let OpenFile { file, trust } = OpenFile::from_image(image)?;
                Ok(Some(Self { file: file.into(), trust }))
            }
            ModuleContent::Held { file, identity, trust } => {
                // The content is not what ran any more.
                if !is_unchanged(file, *identity) {
                    return Err("symbols_files_changed");
                }
                Self::open(file, *trust).map(Some)
            }
        }
    }
}

/// Whether the process that parses can open the file anew, as blazesym does with every file.
fn anybody_reads(file: &OwnedFd) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let is_there = std::fs::read_link(link).is_ok_and(|path| path.starts_with(parser::READABLE));
    is_there && stat(file, "").is_ok_and(|stat| stat.stx_mode & 0o004 != 0)
}

fn copy_of(held: impl AsFd) -> Result<File, &'static str> {
    reader_process::copy_file(held, MAX_COPY).map_err(|error| match error {
        Errno::FBIG => "symbols_files_too_large",
        _ => "symbols_files_unopened",
    })
}

/// None if it is larger than [`MAX_COPY`].
fn copy(from: impl Read) -> Option<File> {
    let (file, length) = sealed_copy(from).ok()?;
    (length <= MAX_COPY).then_some(file)
}
