//! The process that parses, as it is believed: not at all.

use std::{
    io::{Read as _, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
};

use offwake_recording::{AddressSpace, Function, StackTable, loss::Diagnostics, units::StackId};
use proptest::prelude::*;

use super::{Seen, a_function_of_this_test, joined, own, processor, seen};
use crate::{
    parser::{Channel, ChannelError, MAX_MESSAGE, Parser, ThreadBody, decode},
    symbols::{
        clock::monotonic_now,
        name_limit::MAX_NAME,
        naming::{
            elf_names::MAX_INLINED,
            messages::{BatchBuilder, NameBatch, Reply, ReplyChecker, Request},
        },
        receive_names, serve,
    },
};

/// The names of a function of this test, by what answers so.
fn named_by(parser: &mut Parser) -> (Vec<Seen>, Diagnostics) {
    let mut stacks = processor();
    let address = a_function_of_this_test();
    let space = AddressSpace::Process(own());
    stacks.add_walked_stack(StackId(1), space, monotonic_now(), &[address]);
    let (new, names, diagnostics) = stacks.finish().resolve(parser, &mut |_, _| {});
    let mut table = StackTable::default();
    table.add(new);
    table.name(names);
    (seen(&table), diagnostics)
}

/// Reads a whole request, and then does this.
fn on_request(channel: &mut Channel<UnixStream>, then: fn(&mut Channel<UnixStream>)) {
    let Ok((Request::File { addresses: 1, .. }, _)) = channel.receive_with_files() else { return };
    let Ok(Request::Addresses(_)) = channel.receive() else { return };
    then(channel);
}

#[test]
fn what_breaks_off_costs_names_and_is_counted() {
    let cases: [(&str, ThreadBody); 6] = [
        ("parser_died", |channel| on_request(channel, |_| {})),
        ("parser_died", |_| {}),
        ("parser_nonsense", |channel| {
            on_request(channel, |channel| {
                let _gone = channel.send(&Reply::Done(vec![(77, 1)]), &[]);
            });
        }),
        ("parser_nonsense", |channel| {
            on_request(channel, |channel| {
                for _ in 0..2 {
                    let _gone = channel.send(&Reply::NeedsStored(vec![1]), &[]);
                    let _files = channel.receive_with_files::<Request>();
                }
            });
        }),
        ("parser_nonsense", |channel| {
            on_request(channel, |channel| {
                let mut batch = BatchBuilder::default();
                batch.add(1, &[Function::named("of no address that was asked about")]);
                let _gone = channel.send(&Reply::Names(batch.finish().unwrap()), &[]);
            });
        }),
        // Nothing, again and again.
        ("parser_nonsense", |channel| {
            on_request(channel, |channel| {
                while channel.send(&Reply::Names(NameBatch::default()), &[]).is_ok() {}
            });
        }),
    ];
    for (expected, body) in cases {
        let (frames, diagnostics) = named_by(&mut Parser::in_thread(body));
        assert!(frames[0].functions.is_empty(), "{frames:?}");
        let counted = [(expected, 1), ("parser_files_unread", 1)];
        assert_eq!(diagnostics, counted.into(), "{expected}");
    }
}

#[test]
fn it_is_started_again_a_few_times() {
    let mut parser = Parser::in_thread(|_| {});
    let counted: Vec<Diagnostics> = (0..7).map(|_| named_by(&mut parser).1).collect();
    let of = |name| counted.iter().filter(|counted| counted.contains_key(name)).count();
    assert_eq!((of("parser_died"), of("parser_not_started")), (5, 2), "{counted:?}");
    assert_eq!(of("parser_files_unread"), 7);
}

#[test]
fn what_follows_a_failure_is_named() {
    fn once(channel: &mut Channel<UnixStream>) {
        static FAILED: std::sync::Once = std::sync::Once::new();
        let mut fails = false;
        FAILED.call_once(|| fails = true);
        if !fails {
            serve(channel);
        }
    }
    let mut parser = Parser::in_thread(once);
    assert!(named_by(&mut parser).0[0].functions.is_empty());
    let (frames, diagnostics) = named_by(&mut parser);
    assert!(joined(&frames[0]).contains("a_function_of_this_test"), "{diagnostics:?}");
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z:<>]{0,20}", Just("é".repeat(MAX_NAME / 2)), Just(String::new())]
}

prop_compose! {
    fn function()(
        name in texts(), file in prop::option::of(texts()), line in prop::option::of(1..u32::MAX),
    ) -> Function {
        Function { name, file: file.map(Into::into), line }
    }
}

/// By the number of their address, each once.
fn functions() -> impl Strategy<Value = Vec<Vec<Function>>> {
    let of_one = prop_oneof![
        9 => prop::collection::vec(function(), 1..4),
        1 => prop::collection::vec(function(), 1..=MAX_INLINED + 1),
    ];
    prop::collection::vec(of_one, 0..40)
}

proptest! {
    #[test]
    fn names_arrive_as_they_were_sent_in_messages_that_are_not_too_long(sent in functions()) {
        let mut batch = BatchBuilder::default();
        let mut messages = Vec::new();
        for (number, functions) in (0..).zip(&sent) {
            messages.extend(batch.add(number, functions));
        }
        messages.extend(batch.finish());
        let (mut arrived, mut checker) = (Vec::new(), ReplyChecker::new(sent.len()));
        for message in messages {
            let bytes = postcard::to_allocvec(&Reply::Names(message)).unwrap();
            prop_assert!(bytes.len() <= MAX_MESSAGE);
            let Ok(Reply::Names(names)) = decode(&bytes) else { panic!("no names") };
            arrived.extend(checker.check_names(names, |file| Some(Arc::from(file))).unwrap());
        }
        prop_assert!(arrived.iter().map(|(number, _)| *number).eq(0..sent.len()));
        prop_assert!(arrived.into_iter().map(|(_, functions)| functions).eq(sent));
    }

    #[test]
    fn any_bytes_are_names_of_what_was_asked_or_none(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6),
    ) {
        let (ours, mut its) = UnixStream::pair().unwrap();
        for message in &messages {
            its.write_all(&u32::try_from(message.len()).unwrap().to_le_bytes()).unwrap();
            its.write_all(message).unwrap();
        }
        its.shutdown(std::net::Shutdown::Write).unwrap();
        if let Ok(names) = receive_names(&mut Channel::to_trusted(OwnedFd::from(ours)), 3) {
            prop_assert!(names.iter().all(|(frame, functions)| frame.0 < 3 && !functions.is_empty()));
        }
        // What was asked for is there, or not.
        let _questions = its.read_to_end(&mut Vec::new());
    }
}

#[test]
fn a_message_that_claims_to_be_too_long_is_refused_before_it_is_read() {
    let (ours, mut its) = UnixStream::pair().unwrap();
    its.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let received = receive_names(&mut Channel::to_trusted(OwnedFd::from(ours)), 1);
    assert_eq!(received, Err(ChannelError::InvalidMessage));
}

#[test]
fn files_that_come_with_an_answer_are_closed() {
    let (ours, its) = UnixStream::pair().unwrap();
    let (file, mut other_end) = UnixStream::pair().unwrap();
    let mut its = Channel::to_trusted(its);
    its.send(&Reply::Done(Vec::new()), &[std::os::fd::AsFd::as_fd(&file)]).unwrap();
    drop(file);
    assert_eq!(receive_names(&mut Channel::to_trusted(OwnedFd::from(ours)), 1), Ok(Vec::new()));
    // Nobody has the one that was sent.
    assert_eq!(other_end.read(&mut [0]).unwrap(), 0);
}
