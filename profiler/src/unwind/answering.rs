//! The process that unwinds.

use std::{cell::RefCell, collections::HashMap, fs::File, os::fd::AsFd, time::SystemTime};

use super::{
    Code, Content, Files, Method, MissingPages, StackCopy, Unwinder,
    wire::{Answer, KEPT, Part, Question, Stack},
};
use crate::{
    parser::{Broken, Channel},
    recording::ModuleId,
};

/// Files that are held: fewer than may be open.
const MAX_HELD: usize = 512;

/// Answers until nobody asks any more.
pub fn answer<S: AsFd>(channel: &mut Channel<S>) {
    let asking = Asking { channel: RefCell::new(channel), held: RefCell::new(HashMap::new()) };
    let mut codes: Vec<Vec<Code>> = vec![Vec::new(); KEPT];
    let mut unwinder: Option<(Method, Unwinder)> = None;
    while answer_one(&asking, &mut codes, &mut unwinder).is_ok() {}
}

fn answer_one<S: AsFd>(
    asking: &Asking<'_, S>,
    codes: &mut [Vec<Code>],
    unwinder: &mut Option<(Method, Unwinder)>,
) -> Result<(), Broken> {
    let question = asking.channel.borrow_mut().receive()?;
    match question {
        Question::Code { number, part, code } => {
            let known = codes.get_mut(number as usize).ok_or(Broken::Nonsense)?;
            if part == Part::First {
                known.clear();
            }
            known.extend(code);
            Ok(())
        }
        Question::Stacks { method, stacks } => {
            let kept = unwinder.take().filter(|(of, _)| *of == method);
            let (_, unwinder) = unwinder.insert(match kept {
                Some(kept) => kept,
                None => (method, Unwinder::new(method)),
            });
            for Stack { code, registers, bytes, missing } in stacks {
                let code = codes.get(code as usize).ok_or(Broken::Nonsense)?;
                let copy = StackCopy { registers, bytes: &bytes, missing: MissingPages(missing) };
                let unwound = unwinder.unwind(code, asking, &copy);
                // If nobody could be asked for a file, this fails as well.
                asking.channel.borrow_mut().send(&Answer::Unwound(unwound), &[])?;
            }
            Ok(())
        }
        Question::Content => Err(Broken::Nonsense),
    }
}

/// A file, and what it was when it was handed over.
struct Held {
    file: File,
    was: (u64, SystemTime),
}

impl Held {
    fn new(file: File) -> Option<Self> {
        let was = stamp(&file)?;
        Some(Self { file, was })
    }

    /// If it is still what it was.
    fn content(&self) -> Option<Content> {
        (stamp(&self.file)? == self.was).then(|| self.file.try_clone().ok().map(Content::File))?
    }
}

fn stamp(file: &File) -> Option<(u64, SystemTime)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// Who is asked for files, once for each.
struct Asking<'a, S> {
    channel: RefCell<&'a mut Channel<S>>,
    held: RefCell<HashMap<ModuleId, Held>>,
}

impl<S: AsFd> Asking<'_, S> {
    fn ask(&self, module: ModuleId) -> Result<Option<File>, Broken> {
        let mut channel = self.channel.borrow_mut();
        channel.send(&Answer::Wanted(module), &[])?;
        match channel.receive_with_files()? {
            (Question::Content, mut files) => Ok(files.pop().map(File::from)),
            _ => Err(Broken::Nonsense),
        }
    }
}

impl<S: AsFd> Files for Asking<'_, S> {
    fn content(&self, module: ModuleId) -> Option<Content> {
        let mut held = self.held.borrow_mut();
        if let Some(known) = held.get(&module) {
            return known.content();
        }
        let file = Held::new(self.ask(module).ok().flatten()?)?;
        let content = file.content();
        if held.len() == MAX_HELD {
            held.clear();
        }
        held.insert(module, file);
        content
    }
}
