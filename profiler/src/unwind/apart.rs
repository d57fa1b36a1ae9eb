//! Has stacks unwound by a process without rights.

use std::{
    borrow::Cow,
    os::fd::{AsFd as _, OwnedFd},
    rc::Rc,
};

use super::{
    Code, Content, Files, Method, StackCopy, Unwound,
    wire::{Answer, KEPT, MAPPINGS, Part, Question, STACK_BYTES, STACKS, Stack, is_possible},
};
use crate::{
    parser::{Broken, Channel, Parser, sealed_copy},
    recording::{
        ModuleId,
        loss::{Shortfalls, count},
    },
    units::Tgid,
};

/// Modules that one stack can want the bytes of, again and again: each return address may be one whose code
/// has to be followed, and each function on the way.
const MAX_WANTED: usize = 100_000;

/// A stack to unwind.
#[derive(Debug)]
pub struct Asked<'a> {
    /// All that its process has of executable mappings, sorted by address.
    pub code: Rc<[Code]>,
    /// The stack.
    pub copy: StackCopy<'a>,
}

/// Who unwinds, as who has it done.
pub struct UnwinderApart {
    parser: Parser,
    method: Method,
    /// What is known at the other end, by number, and when it was last used.
    sent: Vec<(Rc<[Code]>, u64)>,
    uses: u64,
}

impl UnwinderApart {
    /// By this process.
    #[must_use]
    pub fn new(method: Method, parser: Parser) -> Self {
        Self { parser, method, sent: Vec::new(), uses: 0 }
    }

    /// Whether this is the process that unwinds.
    #[must_use]
    pub fn is_own(&self, tgid: Tgid) -> bool {
        self.parser.id() == Some(tgid.0)
    }

    /// Unwinds stacks, and says of each what it is. None where there is no answer, which is counted.
    pub fn unwind(
        &mut self,
        asked: &[Asked<'_>],
        files: &impl Files,
        shortfalls: &mut Shortfalls,
    ) -> Vec<Option<Unwound>> {
        let Self { parser, method, sent, uses } = self;
        let mut answers = Vec::with_capacity(asked.len());
        while let Some(batch) = first_question(&asked[answers.len()..]) {
            let said = parser.talk(shortfalls, |channel| {
                if channel.is_new() {
                    sent.clear();
                }
                let mut stacks = Vec::with_capacity(batch.len());
                for Asked { code, copy } in batch {
                    *uses += 1;
                    stacks.push(Stack {
                        code: know(channel, sent, *uses, code)?,
                        registers: copy.registers,
                        bytes: Cow::Borrowed(copy.bytes),
                        missing: copy.missing.0,
                    });
                }
                channel.send(&Question::Stacks { method: *method, stacks }, &[])?;
                for asked in batch {
                    answers.push(Some(hear(channel, asked, files)?));
                }
                Ok(())
            });
            // Those behind it are asked for again.
            if said.is_err() {
                count(shortfalls, "parser_stacks_lost");
                answers.push(None);
            }
        }
        answers
    }
}

/// As many stacks as go into one question; none if there are none.
fn first_question<'a, 'b>(asked: &'a [Asked<'b>]) -> Option<&'a [Asked<'b>]> {
    let mut bytes = 0;
    let fits = |asked: &&Asked<'_>| {
        bytes += asked.copy.bytes.len();
        bytes <= STACK_BYTES
    };
    let fitting = asked.iter().take(STACKS).take_while(fits).count();
    asked.get(..fitting.max(1))
}

/// Whether these are one list, as it was read once.
pub(crate) fn is_same(one: &Rc<[Code]>, other: &Rc<[Code]>) -> bool {
    Rc::ptr_eq(one, other) || one.is_empty() && other.is_empty()
}

/// The number of a list of mappings at the other end, which is told of it if it is new there.
fn know(
    channel: &mut Channel<OwnedFd>,
    sent: &mut Vec<(Rc<[Code]>, u64)>,
    now: u64,
    code: &Rc<[Code]>,
) -> Result<u32, Broken> {
    let number = |index: usize| u32::try_from(index).map_err(|_too_many| Broken::Nonsense);
    // Held here, so that no other list comes to lie where it was.
    if let Some(index) = sent.iter().position(|(known, _)| is_same(known, code)) {
        sent[index].1 = now;
        return number(index);
    }
    let index = if sent.len() < KEPT {
        sent.push((Rc::clone(code), now));
        sent.len() - 1
    } else {
        let oldest = sent.iter().enumerate().min_by_key(|(_, (_, used))| *used);
        let index = oldest.map_or(0, |(index, _)| index);
        sent[index] = (Rc::clone(code), now);
        index
    };
    let mut part = Part::First;
    // Also of nothing there is a first part.
    for code in code.chunks(MAPPINGS).chain(code.is_empty().then_some(&[][..])) {
        channel.send(&Question::Code { number: number(index)?, part, code: code.to_vec() }, &[])?;
        part = Part::Further;
    }
    number(index)
}

/// What is answered to one, if it can be; hands over what is wanted meanwhile.
///
/// # Errors
///
/// If it breaks off, or can't be.
pub fn hear(
    channel: &mut Channel<OwnedFd>,
    Asked { code, copy }: &Asked<'_>,
    files: &impl Files,
) -> Result<Unwound, Broken> {
    for _ in 0..MAX_WANTED {
        match channel.receive()? {
            Answer::Wanted(module) => hand_over(channel, files, module)?,
            Answer::Unwound(unwound) if is_possible(&unwound, code, copy) => return Ok(unwound),
            Answer::Unwound(_) => break,
        }
    }
    Err(Broken::Nonsense)
}

fn hand_over(
    channel: &mut Channel<OwnedFd>,
    files: &impl Files,
    module: ModuleId,
) -> Result<(), Broken> {
    let file = match files.content(module) {
        Some(Content::File(file)) => Some(file),
        Some(Content::Image(image)) => sealed_copy(&*image).ok().map(|(file, _)| file),
        None => None,
    };
    let file = file.as_ref().map(|file| file.as_fd());
    channel.send(&Question::Content, file.as_slice())
}
