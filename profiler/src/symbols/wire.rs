//! What is asked of the process that parses, and what it answers.
//!
//! ```text
//! Question::File │ PerfMap, with the file ──▶
//! Question::At, addresses, until they are all there ──▶
//!                                              ◀── Answer::Kept │ Fetched: a build id, each once at most
//! Question::Files, with the files ──▶
//!                                              ◀── Answer::Names, again and again
//!                                              ◀── Answer::Done
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{Detail, MAX_NAME, Shortfalls, elf::MAX_INLINED, modules::Trust};
use crate::{
    parser::{ChannelError, MAX_MESSAGE},
    recording::{BuildId, Function},
};

/// Addresses that go into one message: ten bytes each at most.
pub(super) const ADDRESSES: usize = 100_000;
/// Bytes of names after which they are sent.
const FULL: usize = 64 << 10;
/// Bytes that a text has at most: it may have been cut, and says so.
const MAX_TEXT: usize = MAX_NAME + "…".len();
/// Times that one shortfall is counted at most: no file has so many parts.
const MAX_COUNT: u64 = 1 << 32;
/// What can't be done there, by name.
const SHORTFALLS: [&str; 6] = [
    "symbols_files_not_elf",
    "symbols_files_unopened",
    "symbols_names_over_limit",
    "symbols_perf_maps_cut",
    "symbols_symbolizer_panics",
    "symbols_shortfalls_unknown",
];

/// To the process that parses.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Question {
    /// Who is at these offsets into a file that was mapped?
    File { trust: Trust, detail: Detail, addresses: u32 },
    /// Who is at these addresses, by this part of a perf map?
    PerfMap { start: u64, end: u64, addresses: u32 },
    /// Offsets or addresses, in their order.
    At(Vec<u64>),
    /// Files that were asked for.
    Files(Vec<Trust>),
}

/// From it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It wants what is kept of a build.
    Kept(Vec<u8>),
    /// It wants what a server has of a build.
    Fetched(Vec<u8>),
    /// Some names.
    Names(Names),
    /// That was all. The shortfalls by their number in [`SHORTFALLS`].
    Done(Vec<(u8, u64)>),
}

/// Names of some addresses.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Names {
    /// The files that functions are written in.
    files: Vec<String>,
    /// By the number of the address in the question.
    functions: Vec<(u32, Vec<Named>)>,
}

/// A function.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    name: String,
    /// The number of the file in [`Names::files`].
    file: Option<u32>,
    line: Option<u32>,
}

/// What is believed of an answer: no more than that it has a certain form.
pub(super) struct Checked {
    /// Which addresses have names already.
    named: Vec<bool>,
}

impl Checked {
    /// Answers to a question about so many addresses.
    pub(super) fn of(addresses: usize) -> Self {
        Self { named: vec![false; addresses] }
    }

    /// The functions of addresses, by their number in the question.
    pub(super) fn names(
        &mut self,
        Names { files, functions }: Names,
        file: impl FnMut(&str) -> Option<Arc<str>>,
    ) -> Result<Vec<(usize, Vec<Function>)>, ChannelError> {
        if files.iter().any(|file| !is_text(file)) {
            return Err(ChannelError::InvalidMessage);
        }
        let files: Vec<_> = files.iter().map(String::as_str).map(file).collect();
        let mut checked = Vec::with_capacity(functions.len());
        for (number, functions) in functions {
            let named = self.named.get_mut(number as usize).ok_or(ChannelError::InvalidMessage)?;
            if std::mem::replace(named, true) || !(1..=MAX_INLINED + 1).contains(&functions.len()) {
                return Err(ChannelError::InvalidMessage);
            }
            let functions: Result<_, _> = functions
                .into_iter()
                .map(|Named { name, file, line }| {
                    let file = match file {
                        None => None,
                        Some(file) => {
                            files.get(file as usize).ok_or(ChannelError::InvalidMessage)?.clone()
                        }
                    };
                    match is_text(&name) && line != Some(0) {
                        true => Ok(Function { name, file, line }),
                        false => Err(ChannelError::InvalidMessage),
                    }
                })
                .collect();
            checked.push((number as usize, functions?));
        }
        Ok(checked)
    }
}

/// A build id that was sent.
pub(super) fn build_id(bytes: &[u8]) -> Result<BuildId, ChannelError> {
    BuildId::new(bytes).ok_or(ChannelError::InvalidMessage)
}

/// Shortfalls that were sent.
pub(super) fn shortfalls(counted: &[(u8, u64)]) -> Result<Shortfalls, ChannelError> {
    let mut shortfalls = Shortfalls::new();
    for &(number, count) in counted {
        let name = SHORTFALLS.get(usize::from(number)).ok_or(ChannelError::InvalidMessage)?;
        if !(1..=MAX_COUNT).contains(&count) || shortfalls.insert(name, count).is_some() {
            return Err(ChannelError::InvalidMessage);
        }
    }
    Ok(shortfalls)
}

/// Shortfalls as they are sent.
pub(super) fn counted(shortfalls: &Shortfalls) -> Vec<(u8, u64)> {
    let mut counted = BTreeMap::<u8, u64>::new();
    for (name, count) in shortfalls {
        let number = SHORTFALLS.iter().position(|known| known == name);
        let number = number.unwrap_or(SHORTFALLS.len() - 1);
        *counted.entry(u8::try_from(number).unwrap_or(u8::MAX)).or_default() += count;
    }
    counted.into_iter().collect()
}

fn is_text(text: &str) -> bool {
    text.len() <= MAX_TEXT
}

/// Names as they are sent, in messages that are not too long.
#[derive(Default)]
pub(super) struct Batch {
    names: Names,
    file_numbers: HashMap<Arc<str>, u32>,
    bytes: usize,
}

impl Batch {
    /// Adds the functions of an address. What is full by then comes back.
    pub(super) fn add(&mut self, number: u32, functions: &[Function]) -> Option<Names> {
        let mut named = Vec::with_capacity(functions.len());
        for Function { name, file, line } in functions {
            let file = file.as_ref().map(|file| self.file_number(file));
            self.bytes += 32 + name.len();
            named.push(Named { name: name.clone(), file, line: *line });
        }
        self.names.functions.push((number, named));
        (self.bytes >= FULL).then(|| self.take())
    }

    fn file_number(&mut self, file: &Arc<str>) -> u32 {
        if let Some(&known) = self.file_numbers.get(file) {
            return known;
        }
        // No message has so many.
        let number = u32::try_from(self.names.files.len()).unwrap_or(u32::MAX);
        self.bytes += 32 + file.len();
        self.names.files.push(file.to_string());
        self.file_numbers.insert(Arc::clone(file), number);
        number
    }

    /// What is left.
    pub(super) fn take(&mut self) -> Names {
        std::mem::take(self).names
    }
}

// An address has so much at most, and so does what was there before it.
const _: () = assert!(FULL + (MAX_INLINED + 1) * 2 * (MAX_TEXT + 32) < MAX_MESSAGE);
