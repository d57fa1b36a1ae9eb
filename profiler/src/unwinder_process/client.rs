//! Has stacks unwound by a process without rights.

use std::{
    borrow::Cow,
    iter,
    os::fd::{AsFd as _, OwnedFd},
    rc::Rc,
    slice,
};

use offwake_recording::{
    ModuleId,
    loss::{Diagnostics, count},
    units::Tgid,
};
use offwake_unwind::{CodeMapping, FileContent, Method, ModuleFiles, StackCopy, UnwoundStack};

use super::messages::{
    CopiedStack, ListPart, MAX_LISTS, MAX_MAPPINGS, MAX_STACK_BYTES, MAX_STACKS, Reply, Request,
    is_possible,
};
use crate::parser::{Channel, ChannelError, Parser, end_deadline, sealed_copy};

/// How often the server may ask for a file because of the stacks of one request. Each return address
/// may be one whose code has to be followed, and so may each function on the way.
const MAX_FILE_REQUESTS: usize = 100_000;

/// A stack to unwind.
#[derive(Debug)]
pub struct UnwindRequest<'a> {
    /// All that the process has of executable mappings, sorted by address.
    pub code: Rc<[CodeMapping]>,
    /// The copy of the stack.
    pub copy: StackCopy<'a>,
}

/// The process that unwinds, for whoever has stacks unwound.
pub struct UnwinderClient {
    parser: Parser,
    method: Method,
    /// The lists of mappings that the server has, by their numbers there, each with the number of
    /// the stack that used it last.
    sent: Vec<(Rc<[CodeMapping]>, u64)>,
    /// Stacks so far.
    stacks: u64,
}

impl UnwinderClient {
    /// A client of this process, which unwinds by `method`.
    #[must_use]
    pub fn new(method: Method, parser: Parser) -> Self {
        Self { parser, method, sent: Vec::new(), stacks: 0 }
    }

    /// Whether `tgid` is the process that unwinds.
    #[must_use]
    pub fn is_own(&self, tgid: Tgid) -> bool {
        self.parser.pid() == Some(tgid.0)
    }

    /// Unwinds stacks. None for each of which there is no answer, which is counted.
    pub fn unwind(
        &mut self,
        requests: &[UnwindRequest<'_>],
        files: &impl ModuleFiles,
        diagnostics: &mut Diagnostics,
    ) -> Vec<Option<UnwoundStack>> {
        let mut unwound = Vec::with_capacity(requests.len());
        while let Some(batch) = first_batch(&requests[unwound.len()..]) {
            match self.unwind_batch(batch, files, diagnostics) {
                Ok(stacks) => {
                    unwound.extend(stacks.into_iter().map(Some));
                    continue;
                }
                // Nobody is to blame, and nobody is asked any more.
                Err(ChannelError::OutOfTime) => {
                    end_deadline::note_given_up("stacks".to_owned());
                    unwound.extend(batch.iter().map(|_stack| None));
                    for _stack in batch {
                        count(diagnostics, "parser_stacks_lost");
                    }
                    continue;
                }
                Err(_) => {}
            }
            // The one that there is no answer to is among these. It is to cost itself alone.
            let mut rest = batch;
            while let Some((request, further)) = rest.split_first() {
                rest = further;
                let stack = match batch.len() {
                    1 => None,
                    _ => self.unwind_batch(slice::from_ref(request), files, diagnostics).ok(),
                };
                if stack.is_none() {
                    count(diagnostics, "parser_stacks_lost");
                }
                unwound.push(stack.and_then(|mut stack| stack.pop()));
            }
        }
        unwound
    }

    /// Unwinds stacks that go into one request.
    fn unwind_batch(
        &mut self,
        batch: &[UnwindRequest<'_>],
        files: &impl ModuleFiles,
        diagnostics: &mut Diagnostics,
    ) -> Result<Vec<UnwoundStack>, ChannelError> {
        let Self { parser, method, sent, stacks: number } = self;
        parser.exchange(diagnostics, |channel| {
            if channel.is_new() {
                sent.clear();
            }
            let mut stacks = Vec::with_capacity(batch.len());
            for UnwindRequest { code, copy } in batch {
                *number += 1;
                stacks.push(CopiedStack {
                    code: send_mappings(channel, sent, *number, code)?,
                    registers: copy.registers,
                    red_zone: Cow::Borrowed(copy.red_zone),
                    bytes: Cow::Borrowed(copy.bytes),
                    missing: copy.missing.0,
                });
            }
            channel.send(&Request::Stacks { method: *method, stacks }, &[])?;
            receive_stacks(channel, batch, files)
        })
    }
}

/// The first stacks, as many as go into one request. None if there are none.
fn first_batch<'a, 'b>(requests: &'a [UnwindRequest<'b>]) -> Option<&'a [UnwindRequest<'b>]> {
    let mut bytes = 0;
    let fits = |request: &&UnwindRequest<'_>| {
        bytes += request.copy.bytes.len();
        bytes <= MAX_STACK_BYTES
    };
    let fitting = requests.iter().take(MAX_STACKS).take_while(fits).count();
    requests.get(..fitting.max(1))
}

/// Whether these are one list of mappings, which was read once.
#[must_use]
pub fn is_same_code(one: &Rc<[CodeMapping]>, other: &Rc<[CodeMapping]>) -> bool {
    Rc::ptr_eq(one, other) || one.is_empty() && other.is_empty()
}

/// Sends a list of mappings unless the server has it, and returns its number there.
fn send_mappings(
    channel: &mut Channel<OwnedFd>,
    sent: &mut Vec<(Rc<[CodeMapping]>, u64)>,
    now: u64,
    code: &Rc<[CodeMapping]>,
) -> Result<u32, ChannelError> {
    let number =
        |index: usize| u32::try_from(index).map_err(|_too_many| ChannelError::InvalidMessage);
    // The lists are held here, so that no other one comes to lie at the same address.
    if let Some(index) = sent.iter().position(|(known, _)| is_same_code(known, code)) {
        sent[index].1 = now;
        return number(index);
    }
    let index = if sent.len() < MAX_LISTS {
        sent.push((Rc::clone(code), now));
        sent.len() - 1
    } else {
        let oldest = sent.iter().enumerate().min_by_key(|(_, (_, used))| *used);
        let index = oldest.map_or(0, |(index, _)| index);
        sent[index] = (Rc::clone(code), now);
        index
    };
    let mut part = ListPart::First;
    // An empty list has a first part too.
    for code in code.chunks(MAX_MAPPINGS).chain(code.is_empty().then_some(&[][..])) {
        let code = code.to_vec();
        channel.send(&Request::Mappings { number: number(index)?, part, code }, &[])?;
        part = ListPart::Further;
    }
    number(index)
}

/// Receives the frames of the stacks of one request, and meanwhile hands over the files that the
/// server asks for.
///
/// # Errors
///
/// If the channel breaks, or the frames are not possible for these stacks.
pub fn receive_stacks(
    channel: &mut Channel<OwnedFd>,
    requests: &[UnwindRequest<'_>],
    files: &impl ModuleFiles,
) -> Result<Vec<UnwoundStack>, ChannelError> {
    for _ in 0..MAX_FILE_REQUESTS {
        match channel.receive()? {
            Reply::NeedsFile(module) => send_file(channel, files, module)?,
            Reply::Unwound(unwound) if are_possible(&unwound, requests) => return Ok(unwound),
            Reply::Unwound(_) => break,
        }
    }
    Err(ChannelError::InvalidMessage)
}

/// Whether these can be the frames of these stacks.
fn are_possible(unwound: &[UnwoundStack], requests: &[UnwindRequest<'_>]) -> bool {
    let is_possible =
        |(unwound, UnwindRequest { code, copy }): (&_, &_)| is_possible(unwound, code, copy);
    unwound.len() == requests.len() && iter::zip(unwound, requests).all(is_possible)
}

fn send_file(
    channel: &mut Channel<OwnedFd>,
    files: &impl ModuleFiles,
    module: ModuleId,
) -> Result<(), ChannelError> {
    let file = match files.content(module) {
        Some(FileContent::File(file)) => Some(file),
        Some(FileContent::Image(image)) => sealed_copy(&*image).ok().map(|(file, _)| file),
        None => None,
    };
    let file = file.as_ref().map(|file| file.as_fd());
    channel.send(&Request::File, file.as_slice())
}
