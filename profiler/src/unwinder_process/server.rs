//! The process that unwinds: it answers requests, and asks for the files that it needs.

use std::{cell::RefCell, collections::HashMap, fs::File, os::fd::AsFd, time::SystemTime};

use offwake_recording::ModuleId;
use offwake_unwind::{
    CodeMapping, FileContent, Method, MissingPages, ModuleFiles, StackCopy, Unwinder,
};

use super::messages::{CopiedStack, ListPart, MAX_LISTS, Reply, Request};
use crate::parser::{Channel, ChannelError};

/// Files that are held open: fewer than may be open.
const MAX_HELD: usize = 512;

/// Answers requests until the client is gone.
pub fn serve<S: AsFd>(channel: &mut Channel<S>) {
    let files =
        RequestedFiles { channel: RefCell::new(channel), held: RefCell::new(HashMap::new()) };
    let mut lists: Vec<Vec<CodeMapping>> = vec![Vec::new(); MAX_LISTS];
    let mut unwinder: Option<(Method, Unwinder)> = None;
    while answer_request(&files, &mut lists, &mut unwinder).is_ok() {}
}

fn answer_request<S: AsFd>(
    files: &RequestedFiles<'_, S>,
    lists: &mut [Vec<CodeMapping>],
    unwinder: &mut Option<(Method, Unwinder)>,
) -> Result<(), ChannelError> {
    let request = files.channel.borrow_mut().receive()?;
    match request {
        Request::Mappings { number, part, code } => {
            let list = lists.get_mut(number as usize).ok_or(ChannelError::InvalidMessage)?;
            if part == ListPart::First {
                list.clear();
            }
            list.extend(code);
            Ok(())
        }
        Request::Stacks { method, stacks } => {
            let retained = unwinder.take().filter(|(of, _)| *of == method);
            let (_, unwinder) =
                unwinder.insert(retained.unwrap_or_else(|| (method, Unwinder::new(method))));
            let mut unwound = Vec::with_capacity(stacks.len());
            for CopiedStack { code, registers, red_zone, bytes, missing } in stacks {
                let code = lists.get(code as usize).ok_or(ChannelError::InvalidMessage)?;
                let copy = StackCopy {
                    registers,
                    red_zone: &red_zone,
                    bytes: &bytes,
                    missing: MissingPages(missing),
                };
                unwound.push(unwinder.unwind(code, files, &copy));
            }
            // If the client did not answer a request for a file, this fails as well.
            files.channel.borrow_mut().send(&Reply::Unwound(unwound), &[])
        }
        Request::File => Err(ChannelError::InvalidMessage),
    }
}

/// A file, and its length and time when it was handed over.
struct HeldFile {
    file: File,
    stamp: (u64, SystemTime),
}

impl HeldFile {
    fn new(file: File) -> Option<Self> {
        let stamp = stamp(&file)?;
        Some(Self { file, stamp })
    }

    /// The file, if it has not changed since.
    fn content(&self) -> Option<FileContent> {
        let is_unchanged = stamp(&self.file)? == self.stamp;
        is_unchanged.then(|| self.file.try_clone().ok().map(FileContent::File))?
    }
}

fn stamp(file: &File) -> Option<(u64, SystemTime)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// The files of modules, each of which the client is asked for once.
struct RequestedFiles<'a, S> {
    channel: RefCell<&'a mut Channel<S>>,
    held: RefCell<HashMap<ModuleId, HeldFile>>,
}

impl<S: AsFd> RequestedFiles<'_, S> {
    fn request(&self, module: ModuleId) -> Result<Option<File>, ChannelError> {
        let mut channel = self.channel.borrow_mut();
        channel.send(&Reply::NeedsFile(module), &[])?;
        match channel.receive_with_files()? {
            (Request::File, mut files) => Ok(files.pop().map(File::from)),
            _ => Err(ChannelError::InvalidMessage),
        }
    }
}

impl<S: AsFd> ModuleFiles for RequestedFiles<'_, S> {
    fn content(&self, module: ModuleId) -> Option<FileContent> {
        let mut held = self.held.borrow_mut();
        if let Some(known) = held.get(&module) {
            return known.content();
        }
        let file = HeldFile::new(self.request(module).ok().flatten()?)?;
        let content = file.content();
        if held.len() == MAX_HELD {
            held.clear();
        }
        held.insert(module, file);
        content
    }
}
