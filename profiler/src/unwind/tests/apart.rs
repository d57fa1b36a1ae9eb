//! The process that unwinds, as it is believed: as far as the stack goes.

use std::{
    io::Write as _,
    os::{fd::OwnedFd, unix::net::UnixStream},
    rc::Rc,
};

use proptest::prelude::*;

use super::{
    own::deep,
    process::Process,
    wire::{Answer, Question, STACKS, Stack},
    *,
};
use crate::{
    parser::{Body, Broken, Channel, Parser},
    recording::loss::Shortfalls,
};

fn unwound_by(body: Body, times: usize) -> (Vec<Option<Unwound>>, Shortfalls, Option<Unwound>) {
    let own = deep(20);
    let Process { code, .. } = &own.process;
    let code: Rc<[Code]> = code.as_slice().into();
    let copy = StackCopy {
        registers: own.registers,
        bytes: &own.bytes[..own.bytes.len().min(64 << 10)],
        missing: MissingPages::default(),
    };
    let mut unwinder = UnwinderApart::new(Method::Auto, Parser::in_thread(body));
    let mut shortfalls = Shortfalls::new();
    let asked: Vec<Asked> = (0..times).map(|_| Asked { code: Rc::clone(&code), copy }).collect();
    let by_others = unwinder.unwind(&asked, &own.process, &mut shortfalls);
    let by_us = Unwinder::new(Method::Auto).unwind(&code, &own.process, &copy);
    (by_others, shortfalls, Some(by_us))
}

#[test]
fn another_process_unwinds_as_this_one_does() {
    let (by_others, shortfalls, by_us) = unwound_by(answer, 3);
    assert!(by_others.iter().all(|by_other| *by_other == by_us), "{by_others:?}");
    assert!(by_us.is_some_and(|by_us| by_us.frames.len() > 21));
    assert_eq!(shortfalls, Shortfalls::new());
}

/// Says of every stack that it is the one frame, and something else.
fn says(channel: &mut Channel<UnixStream>, more: &[UnwoundFrame]) {
    while let Ok((question, _)) = channel.receive_with_files() {
        let Question::Stacks { stacks, .. } = question else { continue };
        for Stack { registers, .. } in stacks {
            say(channel, registers, more);
        }
    }
}

fn say(channel: &mut Channel<UnixStream>, registers: Registers, more: &[UnwoundFrame]) {
    let kind = AddressKind::Instruction;
    let leaf = UnwoundFrame { address: registers.ip, kind, at: None };
    let frames = [&[leaf], more].concat();
    let _gone = channel.send(&Answer::Unwound(Unwound { frames, end: End::EntryPoint }), &[]);
}

#[test]
fn frames_that_are_not_on_the_stack_or_in_no_code_are_refused() {
    let cases: [(Body, Option<&str>); 5] = [
        (|channel| says(channel, &[]), None),
        (
            |channel| {
                let kind = AddressKind::Return;
                says(channel, &[UnwoundFrame { address: 0x1234, kind, at: None }]);
            },
            Some("parser_nonsense"),
        ),
        (
            |channel| {
                let (address, kind) = (says as *const () as usize as u64, AddressKind::Return);
                says(channel, &[UnwoundFrame { address, kind, at: Some(8) }]);
            },
            Some("parser_nonsense"),
        ),
        (
            |channel| {
                let _gone = channel.send(&Answer::Wanted(ModuleId(0)), &[]);
            },
            Some("parser_died"),
        ),
        (|_| {}, Some("parser_died")),
    ];
    for (body, expected) in cases {
        let (by_others, shortfalls, _) = unwound_by(body, 1);
        assert_eq!(by_others[0].is_some(), expected.is_none());
        let counted = expected.map(|name| [(name, 1), ("parser_stacks_lost", 1)]);
        assert_eq!(shortfalls, counted.into_iter().flatten().collect());
    }
}

#[test]
fn who_dies_of_a_stack_has_lost_that_one_alone() {
    let dies_of_the_third: Body = |channel| {
        let mut answered = 0;
        while let Ok((question, _)) = channel.receive_with_files() {
            let Question::Stacks { stacks, .. } = question else { continue };
            for Stack { registers, .. } in stacks {
                if answered == 2 {
                    return;
                }
                say(channel, registers, &[]);
                answered += 1;
            }
        }
    };
    let (by_others, shortfalls, _) = unwound_by(dies_of_the_third, 8);
    let there: Vec<bool> = by_others.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, true, false, true, true, false, true, true]);
    let counted = [("parser_died", 2), ("parser_stacks_lost", 2)];
    assert_eq!(shortfalls, counted.into_iter().collect());
}

#[test]
fn more_stacks_than_one_question_has_are_all_answered() {
    let number = 3 * STACKS + 1;
    let (by_others, shortfalls, by_us) = unwound_by(answer, number);
    assert_eq!(by_others, vec![by_us; number]);
    assert_eq!(shortfalls, Shortfalls::new());
}

struct NoFiles;

impl Files for NoFiles {
    fn content(&self, _module: ModuleId) -> Option<Content> {
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
        let code = [Code { start: 0, end: 1 << 40, offset: 0, file: CodeFile::Memory }];
        let registers = Registers { ip: 1, sp: 0x1000, fp: 0 };
        let copy = StackCopy { registers, bytes: &stack, missing: MissingPages::default() };
        let asked = Asked { code: code.into(), copy };
        match hear(&mut Channel::to_trusted(OwnedFd::from(ours)), &asked, &NoFiles) {
            Ok(unwound) => check(&unwound, &code, &copy),
            Err(broken) => prop_assert!(matches!(broken, Broken::Died | Broken::Nonsense)),
        }
    }
}
