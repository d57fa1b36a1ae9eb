//! Has the process that parses name what is in files.

use std::{
    fs::File,
    os::fd::{AsFd as _, OwnedFd},
};

use super::{
    NameSources, Shortfalls, count,
    frames::Wanted,
    handed::Handed,
    modules::{Content, Trust},
    names::Names,
    perf_map::Budget,
    wire::{self, ADDRESSES, Answer, Checked, Question},
};
use crate::{
    parser::{Channel, ChannelError, MAX_FILES, Parser},
    recording::{FrameId, Function, loss::add_all},
};

/// Who asks, and what for.
pub(super) struct Asking<'a> {
    pub parser: &'a mut Parser,
    pub sources: &'a NameSources,
    pub shortfalls: &'a mut Shortfalls,
    pub names: &'a mut Names,
}

impl Asking<'_> {
    /// Names the frames `wanted` of one module, by file offset, in their order.
    pub(super) fn name_file(&mut self, content: &Content, wanted: &[Wanted]) {
        match Handed::of_content(content) {
            Ok(Some(Handed { file, trust })) => {
                let (detail, addresses) = (self.sources.detail, length(wanted));
                self.ask(&Question::File { trust, detail, addresses }, &file, wanted);
            }
            Ok(None) => {}
            Err(shortfall) => count(self.shortfalls, shortfall),
        }
    }

    /// Names the frames `wanted` by a perf map, by address, in their order.
    pub(super) fn name_by_map(&mut self, file: &File, budget: &mut Budget, wanted: &[Wanted]) {
        let Some(range) = budget.take(file) else { return };
        let (start, end, addresses) = (range.start, range.end, length(wanted));
        self.ask(&Question::PerfMap { start, end, addresses }, file, wanted);
    }

    fn ask(&mut self, question: &Question, file: &File, wanted: &[Wanted]) {
        let Self { parser, sources, shortfalls, names } = self;
        let mut of_answer = Shortfalls::new();
        let said = parser.exchange(shortfalls, |channel| {
            channel.send(question, &[file.as_fd()])?;
            for some in wanted.chunks(ADDRESSES) {
                let at = some.iter().map(|wanted| wanted.at).collect();
                channel.send(&Question::At(at), &[])?;
            }
            let mut hearing = Hearing { sources, shortfalls: &mut of_answer, names };
            hearing.listen(channel, wanted)
        });
        add_all(shortfalls, &of_answer);
        if said.is_err() {
            count(shortfalls, "parser_files_unread");
        }
    }
}

fn length(wanted: &[Wanted]) -> u32 {
    // There are no more frames than that.
    u32::try_from(wanted.len()).unwrap_or(u32::MAX)
}

/// Takes what is answered.
struct Hearing<'a> {
    sources: &'a NameSources,
    shortfalls: &'a mut Shortfalls,
    names: &'a mut Names,
}

impl Hearing<'_> {
    /// Until that was all. Hands over what is asked for meanwhile, which is no more than two times.
    fn listen(
        &mut self,
        channel: &mut Channel<OwnedFd>,
        wanted: &[Wanted],
    ) -> Result<(), ChannelError> {
        let mut checked = Checked::of(wanted.len());
        let (mut kept, mut fetched) = (false, false);
        let asked_before = |asked: &mut bool| std::mem::replace(asked, true);
        loop {
            match channel.receive()? {
                Answer::Kept(build_id) if !asked_before(&mut kept) => {
                    let files = self.sources.places.kept(&wire::build_id(&build_id)?);
                    self.hand_over(channel, files)?;
                }
                Answer::Fetched(build_id) if !asked_before(&mut fetched) => {
                    let file = self.sources.fetch(&wire::build_id(&build_id)?);
                    self.hand_over(channel, file.into_iter().collect())?;
                }
                Answer::Names(some) => {
                    for (number, functions) in checked.names(some, |file| self.names.file(file))? {
                        let frame = wanted.get(number).ok_or(ChannelError::InvalidMessage)?.frame;
                        self.names.set(frame, functions);
                    }
                }
                Answer::Done(counted) => {
                    add_all(self.shortfalls, &wire::shortfalls(&counted)?);
                    return Ok(());
                }
                Answer::Kept(_) | Answer::Fetched(_) => return Err(ChannelError::InvalidMessage),
            }
        }
    }

    fn hand_over(
        &mut self,
        channel: &mut Channel<OwnedFd>,
        files: Vec<(File, Trust)>,
    ) -> Result<(), ChannelError> {
        let mut ready = Vec::new();
        for (file, trust) in files.into_iter().take(MAX_FILES) {
            match Handed::apart(file, trust) {
                Ok(handed) => ready.push(handed),
                Err(shortfall) => count(self.shortfalls, shortfall),
            }
        }
        let trusts = ready.iter().map(|handed| handed.trust).collect();
        let files: Vec<_> = ready.iter().map(|handed| handed.file.as_fd()).collect();
        channel.send(&Question::Files(trusts), &files)
    }
}

/// What is believed of an answer to a question about so many addresses, whatever comes: the names, by the
/// number of the address as a frame's.
///
/// # Errors
///
/// If it breaks off, or is none.
pub fn receive_names(
    channel: &mut Channel<OwnedFd>,
    addresses: u32,
) -> Result<Vec<(FrameId, Vec<Function>)>, ChannelError> {
    let wanted: Vec<_> =
        (0..addresses).map(|n| Wanted { frame: FrameId(n), at: n.into() }).collect();
    let (mut shortfalls, mut names) = (Shortfalls::new(), Names::new());
    let sources = NameSources::default();
    let mut hearing = Hearing { sources: &sources, shortfalls: &mut shortfalls, names: &mut names };
    hearing.listen(channel, &wanted)?;
    Ok(names.into_vec())
}
