//! The process that parses: it names what it is asked for, by the files that it is handed.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
};

use super::{
    Shortfalls,
    elf::{self, DebugFiles},
    frames::Wanted,
    handed::Handed,
    names::Names,
    perf_map,
    wire::{self, Answer, Batch, Question},
};
use crate::{
    parser::{Channel, ChannelError},
    recording::{BuildId, FrameId},
};

/// Answers until nobody asks any more.
pub fn answer<S: AsFd>(channel: &mut Channel<S>) {
    while answer_one(channel).is_ok() {}
}

fn answer_one<S: AsFd>(channel: &mut Channel<S>) -> Result<(), ChannelError> {
    let (question, mut files) = channel.receive_with_files::<Question>()?;
    let file = files.pop().map(File::from);
    let (mut shortfalls, mut names) = (Shortfalls::new(), Names::new());
    match (question, file) {
        (Question::File { trust, detail, addresses }, Some(file)) => {
            let wanted = addresses_of(channel, addresses)?;
            let mut others = Asked { channel, broken: Ok(()) };
            let mapped = Handed { file, trust };
            elf::name(mapped, &mut others, detail, &wanted, &mut shortfalls, &mut names);
            others.broken?;
        }
        (Question::PerfMap { start, end, addresses }, Some(file)) => {
            let wanted = addresses_of(channel, addresses)?;
            perf_map::name(&file, start..end, &wanted, &mut shortfalls, &mut names);
        }
        _ => return Err(ChannelError::InvalidMessage),
    }
    names.add_shortfalls(&mut shortfalls);
    let mut batch = Batch::default();
    for (FrameId(number), functions) in names.into_vec() {
        if let Some(full) = batch.add(number, &functions) {
            channel.send(&Answer::Names(full), &[])?;
        }
    }
    channel.send(&Answer::Names(batch.take()), &[])?;
    channel.send(&Answer::Done(wire::counted(&shortfalls)), &[])
}

/// The addresses of a question: by their number in it, which they have as their frame's here.
fn addresses_of<S: AsFd>(
    channel: &mut Channel<S>,
    count: u32,
) -> Result<Vec<Wanted>, ChannelError> {
    let mut wanted = Vec::new();
    while wanted.len() < count as usize {
        let Question::At(some) = channel.receive()? else {
            return Err(ChannelError::InvalidMessage);
        };
        let numbers = (0..count).skip(wanted.len()).map(FrameId);
        wanted.extend(numbers.zip(some).map(|(frame, at)| Wanted { frame, at }));
    }
    Ok(wanted)
}

/// Files that are asked for.
struct Asked<'a, S> {
    channel: &'a mut Channel<S>,
    broken: Result<(), ChannelError>,
}

impl<S: AsFd> Asked<'_, S> {
    fn ask(&mut self, for_what: &Answer) -> Vec<Handed> {
        let asked = self.channel.send(for_what, &[]);
        match asked.and_then(|()| self.channel.receive_with_files::<Question>()) {
            Ok((Question::Files(trusts), files)) if trusts.len() == files.len() => {
                let handed = |(file, trust): (OwnedFd, _)| Handed { file: file.into(), trust };
                files.into_iter().zip(trusts).map(handed).collect()
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

impl<S: AsFd> DebugFiles for Asked<'_, S> {
    fn kept(&mut self, build_id: &BuildId) -> Vec<Handed> {
        self.ask(&Answer::Kept(build_id.bytes().to_vec()))
    }

    fn fetched(&mut self, build_id: &BuildId) -> Option<Handed> {
        self.ask(&Answer::Fetched(build_id.bytes().to_vec())).pop()
    }
}
