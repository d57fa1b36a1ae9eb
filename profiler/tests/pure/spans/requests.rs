//! What is a request, one rule each.

use offwake_analysis::{blame::cause::syscalls, spans::LeftOut};
use offwake_recording::{
    FileKind, Scope, StackRef, WakeContext,
    units::{Tgid, Tid, Timestamp},
};

use super::{edit_wait, edit_wake, ended_by, find, nested, outline};
use crate::{
    draw::{at, edit, live, recording, ticks, wait, wake_by},
    fixtures::{CLOCK_NANOSLEEP, FUTEX, READ, file, kernel, syscall},
};

#[test]
fn a_request_is_a_clients_span_and_the_servers_in_it_and_so_on() {
    let spans = find(&mut nested());
    assert_eq!(
        outline(&spans),
        [
            "client 7 2..12: self 1, on 60",
            "  server 60 2..12: self 4, RequestedBy",
            "    client 60 3..9: self 1, on 61",
            "      server 61 3..9: self 4, RequestedBy",
            "        internal 61 5..7: self 0",
        ]
    );
    assert_eq!(spans.left_out, LeftOut::default());
    let [client, server, ..] = &spans.spans[..] else { panic!("{spans:?}") };
    assert_eq!(client.self_time() + client.wait_time(), ticks(10));
    assert_eq!(server.times.runnable, ticks(1));
    assert_eq!(server.parent_span_id, Some(client.span_id));
    assert_eq!(client.children, [server.span_id]);
    assert!(spans.spans.iter().all(|span| span.trace_id == client.trace_id));
}

#[test]
fn a_baton_of_threads_is_a_request_and_a_lock_is_none() {
    let hand_off = |expects| {
        let mut r = recording(10);
        live(&mut r, 7, "##......##", 60);
        live(&mut r, 60, ".#########", 7);
        edit(&mut r, |waits| {
            for wait in waits {
                wait.syscall = syscall(FUTEX, [0x7f01, 128, expects, 0, 0, 0]);
                wait.tgid = Tgid(7);
                wait.kernel_stack = StackRef::NotTaken;
            }
        });
        for thread_event in &mut r.thread_events {
            thread_event.tgid = Tgid(7);
        }
        let stack = kernel(&mut r, &["futex_do_wait", "futex_wait"]);
        edit(&mut r, |waits| waits.iter_mut().for_each(|wait| wait.kernel_stack = stack));
        outline(&find(&mut r))
    };
    // One process: no boundary, no link.
    assert_eq!(hand_off(0), ["client 7 1..8: self 1, on 60", "  server 60 1..8: self 7"]);
    // Contended locks of glibc, and of musl.
    for contended in [2, 0x8000_0010] {
        assert_eq!(
            hand_off(contended),
            ["internal 7 2..8: self 0, on 60, EndedBy", "internal 60 2..8: self 6"]
        );
    }
}

#[test]
fn who_was_not_asked_is_linked_and_no_child() {
    let mut r = recording(12);
    live(&mut r, 7, "##........##", 60);
    // Asks another meanwhile.
    live(&mut r, 60, "####....####", 61);
    live(&mut r, 61, "...######...", 60);
    let spans = find(&mut r);
    assert_eq!(
        outline(&spans),
        [
            "internal 7 2..10: self 0, on 60, EndedBy",
            "internal 60 2..10: self 4",
            "  client 60 3..8: self 1, on 61",
            "    server 61 3..8: self 5, RequestedBy",
        ]
    );
    let [waiting, ender, ..] = &spans.spans[..] else { panic!("{spans:?}") };
    assert_ne!(waiting.trace_id, ender.trace_id);
    let link = waiting.links[0];
    assert_eq!((link.trace_id, link.span_id), (ender.trace_id, ender.span_id));
}

#[test]
fn what_the_ender_was_in_already_is_shown_from_where_the_wait_begins() {
    let mut r = recording(14);
    live(&mut r, 7, "####.......###", 60);
    // Has asked another since 2, holding what 7 wants at 4.
    live(&mut r, 60, "##......######", 61);
    live(&mut r, 61, "..######......", 60);
    assert_eq!(
        outline(&find(&mut r)),
        [
            "internal 7 4..11: self 0, on 60, EndedBy",
            "internal 60 4..11: self 3",
            "  client 60 4..8: self 0, on 61",
            "    server 61 4..8: self 4, RequestedBy",
        ]
    );
    // What had ended by then is not a part of it.
    let mut r = recording(14);
    live(&mut r, 7, "########...###", 60);
    live(&mut r, 60, "##......######", 61);
    live(&mut r, 61, "..######......", 60);
    assert_eq!(
        outline(&find(&mut r)),
        ["internal 7 8..11: self 0, on 60, EndedBy", "internal 60 8..11: self 3"]
    );
}

#[test]
fn a_request_may_go_from_hand_to_hand() {
    let mut r = recording(14);
    live(&mut r, 7, "##........####", 61);
    live(&mut r, 60, ".####.........", 7);
    live(&mut r, 61, "....#######...", 60);
    assert_eq!(
        outline(&find(&mut r)),
        [
            "client 7 1..10: self 1, on 61",
            "  server 60 1..4: self 3, RequestedBy",
            "  server 61 4..10: self 6, RequestedBy, HandedOnBy",
        ]
    );
}

#[test]
fn who_was_handed_something_else_meanwhile_does_not_answer() {
    let draw = |descriptor: Option<u64>| {
        let mut r = recording(16);
        live(&mut r, 7, "##..........####", 60);
        // Asked by 7 at 1, and by 62 at 8.
        live(&mut r, 60, ".###....######..", 7);
        live(&mut r, 62, "################", 60);
        ended_by(&mut r, 60, 2, 62);
        if let Some(fd) = descriptor {
            let pipe = Some(file(FileKind::Socket, 3));
            edit_wake(&mut r, 60, 1, |asks| asks.syscall = syscall(1, [4, 0, 0, 0, 0, 0]));
            edit_wait(&mut r, 7, 1, |waits| {
                (waits.syscall, waits.file) = (syscall(READ, [fd, 0, 0, 0, 0, 0]), pipe);
            });
        }
        outline(&find(&mut r))[0].clone()
    };
    assert_eq!(draw(None), "internal 7 2..12: self 0, on 60, EndedBy");
    assert_eq!(draw(Some(5)), "internal 7 2..12: self 0, on 60, EndedBy");
    // Written to and read from one descriptor: it is the answer.
    assert_eq!(draw(Some(4)), "client 7 1..12: self 1, on 60");
}

#[test]
fn what_was_asked_before_another_wait_is_answered_if_nothing_came_between() {
    let draw = |of_60: &str, its_second: Option<u32>| {
        let mut r = recording(14);
        // Asks 60 at 1 and 61 at 2; waits for 61 first, then for 60.
        live(&mut r, 7, "###...#......#", 60);
        live(&mut r, 60, of_60, 7);
        live(&mut r, 61, "..####........", 7);
        ended_by(&mut r, 7, 1, 61);
        if let Some(waker) = its_second {
            ended_by(&mut r, 60, 2, waker);
        }
        let lines = outline(&find(&mut r));
        assert_eq!(
            lines[..2],
            ["client 7 2..6: self 1, on 61", "  server 61 2..6: self 4, RequestedBy"]
        );
        lines[2].clone()
    };
    assert_eq!(draw(".#############", None), "client 7 6..13: self 1, on 60");
    // It went to sleep and was woken by somebody else.
    assert_eq!(draw(".###...#######", Some(61)), "internal 7 7..13: self 0, on 60, EndedBy");
}

#[test]
fn who_is_awake_when_it_is_asked_is_not_woken() {
    let draw = |of_60: &str, second_fd: u64| {
        let mut r = recording(16);
        live(&mut r, 7, "##....##....####", 60);
        live(&mut r, 60, of_60, 7);
        for (seq, fd) in [(1, 4), (2, second_fd)] {
            edit_wait(&mut r, 7, seq, |wait| {
                wait.syscall = syscall(READ, [fd, 0, 8, 0, 0, 0]);
                wait.file = Some(file(FileKind::Pipe, fd));
            });
        }
        if r.waits.iter().any(|wait| (wait.tid, wait.seq) == (Tid(60), 2)) {
            edit_wake(&mut r, 60, 2, |wake| wake.context = WakeContext::Hrtimer);
        }
        outline(&find(&mut r))[2..].to_vec()
    };
    assert_eq!(
        draw(".###############", 4),
        ["client 7 8..12: self 0, on 60", "  server 60 8..12: self 4, RequestedBy"]
    );
    // Nothing that it ever answered through.
    assert_eq!(draw(".###############", 5)[0], "internal 7 8..12: self 0, on 60, EndedBy");
    // It had gone to sleep: it would have been woken.
    assert_eq!(draw(".######..#######", 4)[0], "internal 7 8..12: self 0, on 60, EndedBy");
}

#[test]
fn a_wait_in_pieces_is_one() {
    let mut r = recording(12);
    let (off, on) = (at(2), at(10));
    live(&mut r, 7, "##........##", 60);
    live(&mut r, 60, ".###########", 7);
    // Woken for a moment at 4, and back to sleep.
    let glance = Timestamp(at(4).0 + 5_000);
    let mut first = wait(7, 1, off, at(4));
    first.wake = Some(wake_by(60, at(4)));
    let mut second = wait(7, 2, glance, on);
    second.wake = Some(wake_by(60, on));
    for piece in [&mut first, &mut second] {
        piece.syscall = syscall(READ, [4, 0, 8, 0, 0, 0]);
        piece.file = Some(file(FileKind::Socket, 3));
    }
    r.waits.retain(|_, waiter| waiter.tid != Tid(7));
    r.waits.extend([&first, &second]);
    // It was woken for what was written: an answer, and then something unasked.
    assert_eq!(outline(&find(&mut r))[0], "client 7 1..4: self 1, on 60");
    // It was woken because 60 has read.
    edit_wake(&mut r, 7, 1, |wake| wake.syscall = syscall(READ, [3, 0, 8, 0, 0, 0]));
    assert_eq!(
        outline(&find(&mut r)),
        ["client 7 1..10: self 1, on 60", "  server 60 1..10: self 9, RequestedBy"]
    );
    // It did not go back to the same.
    edit_wait(&mut r, 7, 2, |wait| wait.syscall = syscall(READ, [5, 0, 8, 0, 0, 0]));
    assert_eq!(outline(&find(&mut r))[0], "client 7 1..4: self 1, on 60");
}

#[test]
fn what_was_not_recorded_is_not_made_up() {
    let mut r = nested();
    r.meta.scope = Scope::Target;
    let spans = find(&mut r);
    assert_eq!(outline(&spans), ["client 7 2..12: self 1, on 60"]);
    assert_eq!(spans.left_out, LeftOut { not_recorded: 1, ..LeftOut::default() });
}

#[test]
fn a_sleep_begins_no_trace() {
    let mut r = recording(10);
    live(&mut r, 7, "##......##", 60);
    edit_wait(&mut r, 7, 1, |wait| {
        wait.syscall = syscall(CLOCK_NANOSLEEP, [1, 0, 0, 0, 0, 0]);
        assert_eq!(wait.syscall.as_ref().and_then(syscalls::name), Some("clock_nanosleep"));
    });
    edit_wake(&mut r, 7, 1, |wake| wake.context = WakeContext::Hrtimer);
    assert_eq!(find(&mut r).spans, []);
}
