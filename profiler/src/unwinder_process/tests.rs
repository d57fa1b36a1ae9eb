//! What is believed of the process that unwinds: no more than what the stack has.

use std::{
    io::Write as _,
    os::{fd::OwnedFd, unix::net::UnixStream},
    rc::Rc,
};

use offwake_recording::{AddressKind, ModuleId, loss::Diagnostics};
use offwake_unwind::{
    CodeBacking, CodeMapping, FileContent, Method, MissingPages, ModuleFiles, Registers, StackCopy,
    UnwindEnd, UnwoundFrame, UnwoundStack,
};
use proptest::prelude::*;

use super::{
    UnwindRequest, UnwinderClient,
    messages::{CopiedStack, MAX_STACKS, Reply, Request},
    receive_stacks, serve,
};
use crate::parser::{Channel, ChannelError, Parser, ThreadBody};
use live_process::{Process, capture_deep, check};

#[path = "../../../crates/unwind/src/tests/live_process.rs"]
mod live_process;

fn unwound_by(
    body: ThreadBody,
    times: usize,
) -> (Vec<Option<UnwoundStack>>, Diagnostics, Option<UnwoundStack>) {
    let own = capture_deep(20);
    let Process { code, .. } = &own.process;
    let code: Rc<[CodeMapping]> = code.as_slice().into();
    let copy = StackCopy {
        registers: own.registers,
        red_zone: &[],
        bytes: &own.bytes[..own.bytes.len().min(64 << 10)],
        missing: MissingPages::default(),
    };
    let mut unwinder = UnwinderClient::new(Method::Auto, Parser::in_thread(body));
    let mut diagnostics = Diagnostics::new();
    let requests: Vec<UnwindRequest> =
        (0..times).map(|_| UnwindRequest { code: Rc::clone(&code), copy }).collect();
    let by_server = unwinder.unwind(&requests, &own.process, &mut diagnostics);
    let by_us = own.unwind(Method::Auto);
    assert_eq!(by_us.frames.len(), own.truth.len());
    (by_server, diagnostics, Some(by_us))
}

#[test]
fn another_process_unwinds_as_this_one_does() {
    let (by_server, diagnostics, by_us) = unwound_by(serve, 3);
    assert!(by_server.iter().all(|by_server| *by_server == by_us), "{by_server:?}");
    assert!(by_us.is_some_and(|by_us| by_us.frames.len() > 21));
    assert_eq!(diagnostics, Diagnostics::new());
}

/// Says of every stack that it is the one frame, and something else.
fn reply_to_all(channel: &mut Channel<UnixStream>, more: &[UnwoundFrame]) {
    while let Ok((question, _)) = channel.receive_with_files() {
        let Request::Stacks { stacks, .. } = question else { continue };
        reply(channel, &stacks, more);
    }
}

fn reply(channel: &mut Channel<UnixStream>, stacks: &[CopiedStack], more: &[UnwoundFrame]) {
    let kind = AddressKind::Instruction;
    let unwound = stacks.iter().map(|stack| {
        let leaf = UnwoundFrame { address: stack.registers.ip, kind, stack_offset: None };
        UnwoundStack { frames: [&[leaf], more].concat(), end: UnwindEnd::EntryPoint }
    });
    let _gone = channel.send(&Reply::Unwound(unwound.collect()), &[]);
}

#[test]
fn frames_that_are_not_on_the_stack_or_in_no_code_are_refused() {
    let cases: [(ThreadBody, Option<&str>); 5] = [
        (|channel| reply_to_all(channel, &[]), None),
        (
            |channel| {
                let kind = AddressKind::Return;
                reply_to_all(
                    channel,
                    &[UnwoundFrame { address: 0x1234, kind, stack_offset: None }],
                );
            },
            Some("parser_nonsense"),
        ),
        (
            |channel| {
                let (address, kind) =
                    (reply_to_all as *const () as usize as u64, AddressKind::Return);
                reply_to_all(channel, &[UnwoundFrame { address, kind, stack_offset: Some(8) }]);
            },
            Some("parser_nonsense"),
        ),
        (
            |channel| {
                let _gone = channel.send(&Reply::NeedsFile(ModuleId(0)), &[]);
            },
            Some("parser_died"),
        ),
        (|_| {}, Some("parser_died")),
    ];
    for (body, expected) in cases {
        let (by_server, diagnostics, _) = unwound_by(body, 1);
        assert_eq!(by_server[0].is_some(), expected.is_none());
        let counted = expected.map(|name| [(name, 1), ("parser_stacks_lost", 1)]);
        assert_eq!(diagnostics, counted.into_iter().flatten().collect());
    }
}

#[test]
fn who_dies_of_a_stack_has_lost_that_one_alone() {
    let own = capture_deep(20);
    let Process { code, .. } = &own.process;
    let code: Rc<[CodeMapping]> = code.as_slice().into();
    let dies_of_four_bytes: ThreadBody = |channel| {
        while let Ok((question, _)) = channel.receive_with_files() {
            let Request::Stacks { stacks, .. } = question else { continue };
            if stacks.iter().any(|stack| stack.bytes.len() == 4) {
                return;
            }
            reply(channel, &stacks, &[]);
        }
    };
    let request = |bytes| UnwindRequest {
        code: Rc::clone(&code),
        copy: StackCopy {
            registers: own.registers,
            red_zone: &[],
            bytes,
            missing: MissingPages::default(),
        },
    };
    let deadly = [0; 4];
    let mut requests: Vec<UnwindRequest> = (0..8).map(|_| request(&[][..])).collect();
    requests[2] = request(&deadly);
    let mut unwinder = UnwinderClient::new(Method::Auto, Parser::in_thread(dies_of_four_bytes));
    let mut diagnostics = Diagnostics::new();
    let by_server = unwinder.unwind(&requests, &own.process, &mut diagnostics);
    let there: Vec<bool> = by_server.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, true, false, true, true, true, true, true]);
    // Once with the others, and once alone.
    let counted = [("parser_died", 2), ("parser_stacks_lost", 1)];
    assert_eq!(diagnostics, counted.into_iter().collect());
}

#[test]
fn a_reply_for_too_few_stacks_is_refused() {
    let answers_the_first: ThreadBody = |channel| {
        while let Ok((question, _)) = channel.receive_with_files() {
            let Request::Stacks { stacks, .. } = question else { continue };
            reply(channel, &stacks[..1], &[]);
        }
    };
    let (by_server, diagnostics, _) = unwound_by(answers_the_first, 2);
    // Each alone is answered in full.
    assert!(by_server.iter().all(Option::is_some));
    assert_eq!(diagnostics, [("parser_nonsense", 1)].into_iter().collect());
}

#[test]
fn more_stacks_than_one_question_has_are_all_answered() {
    let number = 3 * MAX_STACKS + 1;
    let (by_server, diagnostics, by_us) = unwound_by(serve, number);
    assert_eq!(by_server, vec![by_us; number]);
    assert_eq!(diagnostics, Diagnostics::new());
}

struct NoFiles;

impl ModuleFiles for NoFiles {
    fn content(&self, _module: ModuleId) -> Option<FileContent> {
        None
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_stack_that_can_be_or_none(
        messages in prop::collection::vec(prop::collection::vec(0..4_u8, 0..30), 0..4),
        stack in prop::collection::vec(0..4_u8, 0..64),
    ) {
        let (ours, mut its) = UnixStream::pair().unwrap();
        for message in &messages {
            its.write_all(&u32::try_from(message.len()).unwrap().to_le_bytes()).unwrap();
            its.write_all(message).unwrap();
        }
        its.shutdown(std::net::Shutdown::Write).unwrap();
        let code = [CodeMapping { start: 0, end: 1 << 40, offset: 0, backing: CodeBacking::Memory }];
        let registers = Registers { ip: 1, sp: 0x1000, fp: 0 };
        let copy = StackCopy { registers, red_zone: &[], bytes: &stack, missing: MissingPages::default() };
        let requests = UnwindRequest { code: code.into(), copy };
        let requests = std::slice::from_ref(&requests);
        match receive_stacks(&mut Channel::to_trusted(OwnedFd::from(ours)), requests, &NoFiles) {
            Ok(unwound) => unwound.iter().for_each(|unwound| check(unwound, &code, &copy)),
            Err(broken) => prop_assert!(matches!(broken, ChannelError::Died | ChannelError::InvalidMessage)),
        }
    }
}
