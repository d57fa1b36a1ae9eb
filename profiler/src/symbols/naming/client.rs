//! Has the process that parses name what is in files.

use std::os::fd::{AsFd as _, OwnedFd};

use offwake_recording::{
    FrameId, Function,
    loss::{Diagnostics, add_all, count},
};

use super::{
    messages::{MAX_ADDRESSES, Reply, ReplyChecker, Request, parse_build_id, parse_diagnostics},
    names::NameTable,
    open_file::FileForParser,
    perf_map::ReadBudget,
    sources::NameSources,
};
use crate::{
    parser::{Channel, ChannelError, MAX_FILES, Parser, end_deadline},
    reader_process,
    symbols::{
        address_spaces::{held_file::Trust, modules::ModuleContent},
        frame_table::UnnamedFrame,
    },
};

/// The process that parses, for whoever has frames named.
pub(crate) struct NameClient<'a> {
    pub parser: &'a mut Parser,
    pub sources: &'a NameSources,
    pub diagnostics: &'a mut Diagnostics,
    pub names: &'a mut NameTable,
}

impl NameClient<'_> {
    /// Names the frames `wanted` of one module, by file offset, in their order.
    pub(crate) fn name_file(&mut self, content: &ModuleContent, wanted: &[UnnamedFrame]) {
        if end_deadline::has_passed() {
            return match content {
                ModuleContent::Held { file, .. } => self.give_up(Some(file)),
                ModuleContent::Image(_) => self.give_up(None),
                ModuleContent::Missing => {}
            };
        }
        match FileForParser::from_module(content) {
            Ok(Some(FileForParser { file, trust })) => {
                let (detail, addresses) = (self.sources.detail, length(wanted));
                let asked = Request::File { trust, detail, addresses };
                if self.send_request(&asked, &file, wanted) == Err(ChannelError::OutOfTime) {
                    match content {
                        ModuleContent::Held { file, .. } => note_given_up(Some(file)),
                        _ => note_given_up(None),
                    }
                }
            }
            Ok(None) => {}
            Err(diagnostic) => count(self.diagnostics, diagnostic),
        }
    }

    /// Names the frames `wanted` by a perf map, by address, in their order.
    pub(crate) fn name_by_map(
        &mut self,
        held: &OwnedFd,
        budget: &mut ReadBudget,
        wanted: &[UnnamedFrame],
    ) {
        if end_deadline::has_passed() {
            return self.give_up(Some(held));
        }
        let Some(range) = budget.range(held) else { return };
        let Ok(file) = reader_process::open_held(held) else {
            return count(self.diagnostics, "symbols_files_unopened");
        };
        let (start, end, addresses) = (range.start, range.end, length(wanted));
        let asked = Request::PerfMap { start, end, addresses };
        if self.send_request(&asked, &file, wanted) == Err(ChannelError::OutOfTime) {
            note_given_up(Some(held));
        }
    }

    /// Counts and notes a file that nobody is asked about any more, since the run is to end.
    fn give_up(&mut self, held: Option<&OwnedFd>) {
        count(self.diagnostics, ChannelError::OutOfTime.diagnostic());
        count(self.diagnostics, "parser_files_unread");
        note_given_up(held);
    }

    fn send_request(
        &mut self,
        request: &Request,
        file: &OwnedFd,
        wanted: &[UnnamedFrame],
    ) -> Result<(), ChannelError> {
        let Self { parser, sources, diagnostics, names } = self;
        let mut counted = Diagnostics::new();
        let exchanged = parser.exchange(diagnostics, |channel| {
            channel.send(request, &[file.as_fd()])?;
            for some in wanted.chunks(MAX_ADDRESSES) {
                let at = some.iter().map(|wanted| wanted.at).collect();
                channel.send(&Request::Addresses(at), &[])?;
            }
            let mut receiver = ReplyReceiver { sources, diagnostics: &mut counted, names };
            receiver.receive_all(channel, wanted)
        });
        add_all(diagnostics, &counted);
        if exchanged.is_err() {
            count(diagnostics, "parser_files_unread");
        }
        exchanged
    }
}

fn note_given_up(held: Option<&OwnedFd>) {
    let path = held.and_then(|held| reader_process::read_path(held.as_fd()));
    let path = path.unwrap_or_else(|| "a file in memory".to_owned());
    end_deadline::note_given_up(format!("functions of {path}"));
}

fn length(wanted: &[UnnamedFrame]) -> u32 {
    // There are no more frames than that.
    u32::try_from(wanted.len()).unwrap_or(u32::MAX)
}

/// Receives the replies to one request.
struct ReplyReceiver<'a> {
    sources: &'a NameSources,
    diagnostics: &'a mut Diagnostics,
    names: &'a mut NameTable,
}

impl ReplyReceiver<'_> {
    /// Receives replies until the request is done. Meanwhile sends the files that the server needs,
    /// twice at most.
    fn receive_all(
        &mut self,
        channel: &mut Channel<OwnedFd>,
        wanted: &[UnnamedFrame],
    ) -> Result<(), ChannelError> {
        let mut checker = ReplyChecker::new(wanted.len());
        let (mut stored, mut fetched) = (false, false);
        let was_requested = |before: &mut bool| std::mem::replace(before, true);
        loop {
            match channel.receive()? {
                Reply::NeedsStored(build_id) if !was_requested(&mut stored) => {
                    let files = self.sources.debug_directories.stored(&parse_build_id(&build_id)?);
                    self.send_files(channel, files)?;
                }
                Reply::NeedsFetched(_) if end_deadline::has_passed() => {
                    return Err(ChannelError::OutOfTime);
                }
                Reply::NeedsFetched(build_id) if !was_requested(&mut fetched) => {
                    let build_id = parse_build_id(&build_id)?;
                    let file = channel.run_unclocked(|| self.sources.fetch(&build_id));
                    let file = file.map(|(file, trust)| (file.into(), trust));
                    self.send_files(channel, file.into_iter().collect())?;
                }
                Reply::Names(some) => {
                    for (number, functions) in
                        checker.check_names(some, |file| self.names.file(file))?
                    {
                        let frame = wanted.get(number).ok_or(ChannelError::InvalidMessage)?.frame;
                        self.names.set(frame, functions);
                    }
                }
                Reply::Done(counted) => {
                    add_all(self.diagnostics, &parse_diagnostics(&counted)?);
                    return Ok(());
                }
                Reply::NeedsStored(_) | Reply::NeedsFetched(_) => {
                    return Err(ChannelError::InvalidMessage);
                }
            }
        }
    }

    fn send_files(
        &mut self,
        channel: &mut Channel<OwnedFd>,
        files: Vec<(OwnedFd, Trust)>,
    ) -> Result<(), ChannelError> {
        let mut ready = Vec::new();
        for (file, trust) in files.into_iter().take(MAX_FILES) {
            match channel.run_unclocked(|| FileForParser::open(&file, trust)) {
                Ok(open) => ready.push(open),
                Err(diagnostic) => count(self.diagnostics, diagnostic),
            }
        }
        let trusts = ready.iter().map(|open| open.trust).collect();
        let files: Vec<_> = ready.iter().map(|open| open.file.as_fd()).collect();
        channel.send(&Request::DebugFiles(trusts), &files)
    }
}

/// Receives the replies to a request with so many addresses, whatever they contain. The frames of
/// the names have the numbers of the addresses in the request.
///
/// # Errors
///
/// If the channel breaks, or a reply is invalid.
pub fn receive_names(
    channel: &mut Channel<OwnedFd>,
    addresses: u32,
) -> Result<Vec<(FrameId, Vec<Function>)>, ChannelError> {
    let wanted: Vec<_> =
        (0..addresses).map(|n| UnnamedFrame { frame: FrameId(n), at: n.into() }).collect();
    let (mut diagnostics, mut names) = (Diagnostics::new(), NameTable::new());
    let sources = NameSources::default();
    let mut receiver =
        ReplyReceiver { sources: &sources, diagnostics: &mut diagnostics, names: &mut names };
    receiver.receive_all(channel, &wanted)?;
    Ok(names.into_vec())
}
