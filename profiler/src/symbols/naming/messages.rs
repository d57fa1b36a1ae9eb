//! The messages between offwake and the process that parses files with names.
//!
//! ```text
//! Request::File │ PerfMap, with the file ──▶
//! Request::Addresses, until all are sent ──▶
//!                                      ◀── Reply::NeedsStored │ NeedsFetched: a build id, each once at most
//! Request::DebugFiles, with the files ──▶
//!                                      ◀── Reply::Names, again and again, each with some
//!                                      ◀── Reply::Done
//! ```

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use offwake_recording::{BuildId, Function, loss::Diagnostics};
use serde::{Deserialize, Serialize};

use super::{detail::Detail, elf_names::MAX_INLINED};
use crate::{
    parser::{ChannelError, MAX_MESSAGE},
    symbols::{address_spaces::held_file::Trust, name_limit::MAX_NAME},
};

/// Addresses in one message at most: each takes ten bytes at most.
pub(crate) const MAX_ADDRESSES: usize = 100_000;
/// Bytes of names after which a message is sent.
const FULL: usize = 64 << 10;
/// Bytes of a text at most, with the mark of one that was cut.
const MAX_TEXT: usize = MAX_NAME + "…".len();
/// The highest count of one diagnostic that is believed: no file has so many parts.
const MAX_COUNT: u64 = 1 << 32;
/// The diagnostics that the server can count.
const SHORTFALLS: [&str; 6] = [
    "symbols_files_not_elf",
    "symbols_files_unopened",
    "symbols_names_over_limit",
    "symbols_perf_maps_cut",
    "symbols_symbolizer_panics",
    "symbols_shortfalls_unknown",
];

/// From offwake to the process that parses.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Asks for the functions at offsets in a file that was mapped.
    File { trust: Trust, detail: Detail, addresses: u32 },
    /// Asks for the functions at addresses, by this part of a perf map.
    PerfMap { start: u64, end: u64, addresses: u32 },
    /// Offsets or addresses, in their order.
    Addresses(Vec<u64>),
    /// The files that the server needs come with this message.
    DebugFiles(Vec<Trust>),
}

/// From the process that parses to offwake.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The server needs the files that are stored of a build.
    NeedsStored(Vec<u8>),
    /// The server needs the file that a debuginfod server has of a build.
    NeedsFetched(Vec<u8>),
    /// Some names.
    Names(NameBatch),
    /// The request is done. The diagnostics are counted by their number in [`SHORTFALLS`].
    Done(Vec<(u8, u64)>),
}

/// Names of some addresses.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameBatch {
    /// The source files of functions.
    files: Vec<String>,
    /// The functions by the number of the address in the request.
    functions: Vec<(u32, Vec<NamedFunction>)>,
}

/// A function.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NamedFunction {
    name: String,
    /// The number of the file in [`NameBatch::files`].
    file: Option<u32>,
    line: Option<u32>,
}

/// Checks replies: names are believed if they have the right form.
pub(crate) struct ReplyChecker {
    /// Which addresses have names already.
    named: Vec<bool>,
}

impl ReplyChecker {
    /// Checks the replies to a request with so many addresses.
    pub(crate) fn new(addresses: usize) -> Self {
        Self { named: vec![false; addresses] }
    }

    /// Checks the functions of addresses, which come by the addresses' numbers in the request.
    pub(crate) fn check_names(
        &mut self,
        NameBatch { files, functions }: NameBatch,
        file: impl FnMut(&str) -> Option<Arc<str>>,
    ) -> Result<Vec<(usize, Vec<Function>)>, ChannelError> {
        // Otherwise these could come without end.
        if functions.is_empty() || files.iter().any(|file| !is_text(file)) {
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
                .map(|NamedFunction { name, file, line }| {
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

/// Parses a build id that was sent.
pub(crate) fn parse_build_id(bytes: &[u8]) -> Result<BuildId, ChannelError> {
    BuildId::new(bytes).ok_or(ChannelError::InvalidMessage)
}

/// Parses diagnostics that were sent.
pub(crate) fn parse_diagnostics(counted: &[(u8, u64)]) -> Result<Diagnostics, ChannelError> {
    let mut diagnostics = Diagnostics::new();
    for &(number, count) in counted {
        let name = SHORTFALLS.get(usize::from(number)).ok_or(ChannelError::InvalidMessage)?;
        if !(1..=MAX_COUNT).contains(&count) || diagnostics.insert(name, count).is_some() {
            return Err(ChannelError::InvalidMessage);
        }
    }
    Ok(diagnostics)
}

/// Encodes diagnostics to be sent.
pub(crate) fn encode_diagnostics(diagnostics: &Diagnostics) -> Vec<(u8, u64)> {
    let mut counted = BTreeMap::<u8, u64>::new();
    for (name, count) in diagnostics {
        let number = SHORTFALLS.iter().position(|known| known == name);
        let number = number.unwrap_or(SHORTFALLS.len() - 1);
        *counted.entry(u8::try_from(number).unwrap_or(u8::MAX)).or_default() += count;
    }
    counted.into_iter().collect()
}

fn is_text(text: &str) -> bool {
    text.len() <= MAX_TEXT
}

/// Collects names into messages that are not too long.
#[derive(Default)]
pub(crate) struct BatchBuilder {
    names: NameBatch,
    file_numbers: HashMap<Arc<str>, u32>,
    bytes: usize,
}

impl BatchBuilder {
    /// Adds the functions of an address. Returns the batch if it is full.
    pub(crate) fn add(&mut self, number: u32, functions: &[Function]) -> Option<NameBatch> {
        let mut named = Vec::with_capacity(functions.len());
        for Function { name, file, line } in functions {
            let file = file.as_ref().map(|file| self.file_number(file));
            self.bytes += 32 + name.len();
            named.push(NamedFunction { name: name.clone(), file, line: *line });
        }
        self.names.functions.push((number, named));
        if self.bytes >= FULL { self.finish() } else { None }
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

    /// Returns what is left, if anything is, and starts anew.
    pub(crate) fn finish(&mut self) -> Option<NameBatch> {
        let Self { names, .. } = std::mem::take(self);
        (!names.functions.is_empty()).then_some(names)
    }
}

// The names of one address have so many bytes at most, and a batch is not full before they are
// added.
const _: () = assert!(FULL + (MAX_INLINED + 1) * 2 * (MAX_TEXT + 32) < MAX_MESSAGE);
