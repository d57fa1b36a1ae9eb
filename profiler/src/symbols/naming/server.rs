//! The process that parses: it names frames by the files that it is sent.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
};

use offwake_recording::{BuildId, FrameId, loss::Diagnostics};

use super::{
    elf_names::{self, DebugFiles},
    messages::{BatchBuilder, Reply, Request, encode_diagnostics},
    names::NameTable,
    open_file::OpenFile,
    perf_map,
};
use crate::{
    parser::{Channel, ChannelError},
    symbols::frame_table::UnnamedFrame,
};

/// Answers requests until the client is gone.
pub fn serve<S: AsFd>(channel: &mut Channel<S>) {
    while answer_request(channel).is_ok() {}
}

fn answer_request<S: AsFd>(channel: &mut Channel<S>) -> Result<(), ChannelError> {
    let (request, mut files) = channel.receive_with_files::<Request>()?;
    let file = files.pop().map(File::from);
    let (mut diagnostics, mut names) = (Diagnostics::new(), NameTable::new());
    match (request, file) {
        (Request::File { trust, detail, addresses }, Some(file)) => {
            let wanted = receive_addresses(channel, addresses)?;
            let mut others = RequestedFiles { channel, broken: Ok(()) };
            let mapped = OpenFile { file, trust };
            elf_names::name_frames(
                mapped,
                &mut others,
                detail,
                &wanted,
                &mut diagnostics,
                &mut names,
            );
            others.broken?;
        }
        (Request::PerfMap { start, end, addresses }, Some(file)) => {
            let wanted = receive_addresses(channel, addresses)?;
            perf_map::name_frames(&file, start..end, &wanted, &mut diagnostics, &mut names);
        }
        _ => return Err(ChannelError::InvalidMessage),
    }
    names.add_diagnostics(&mut diagnostics);
    let mut batch = BatchBuilder::default();
    for (FrameId(number), functions) in names.into_vec() {
        if let Some(full) = batch.add(number, &functions) {
            channel.send(&Reply::Names(full), &[])?;
        }
    }
    if let Some(rest) = batch.finish() {
        channel.send(&Reply::Names(rest), &[])?;
    }
    channel.send(&Reply::Done(encode_diagnostics(&diagnostics)), &[])
}

/// Receives the addresses of a request. Their frames have the numbers of the addresses in the
/// request.
fn receive_addresses<S: AsFd>(
    channel: &mut Channel<S>,
    count: u32,
) -> Result<Vec<UnnamedFrame>, ChannelError> {
    let mut wanted = Vec::new();
    while wanted.len() < count as usize {
        let Request::Addresses(some) = channel.receive()? else {
            return Err(ChannelError::InvalidMessage);
        };
        let numbers = (0..count).skip(wanted.len()).map(FrameId);
        wanted.extend(numbers.zip(some).map(|(frame, at)| UnnamedFrame { frame, at }));
    }
    Ok(wanted)
}

/// Debug files that the client is asked for.
struct RequestedFiles<'a, S> {
    channel: &'a mut Channel<S>,
    broken: Result<(), ChannelError>,
}

impl<S: AsFd> RequestedFiles<'_, S> {
    fn request(&mut self, what: &Reply) -> Vec<OpenFile> {
        let sent = self.channel.send(what, &[]);
        match sent.and_then(|()| self.channel.receive_with_files::<Request>()) {
            Ok((Request::DebugFiles(trusts), files)) if trusts.len() == files.len() => {
                let open = |(file, trust): (OwnedFd, _)| OpenFile { file: file.into(), trust };
                files.into_iter().zip(trusts).map(open).collect()
            }
            Ok(_) => {
                self.broken = Err(ChannelError::InvalidMessage);
                Vec::new()
            }
            Err(broken) => {
                self.broken = Err(broken);
                Vec::new()
            }
        }
    }
}

impl<S: AsFd> DebugFiles for RequestedFiles<'_, S> {
    fn stored(&mut self, build_id: &BuildId) -> Vec<OpenFile> {
        self.request(&Reply::NeedsStored(build_id.bytes().to_vec()))
    }

    fn fetch(&mut self, build_id: &BuildId) -> Option<OpenFile> {
        self.request(&Reply::NeedsFetched(build_id.bytes().to_vec())).pop()
    }
}
