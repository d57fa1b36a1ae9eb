//! Requests that end otherwise than by an answer.

use offwake_recording::{
    Recording,
    units::{Tgid, Tid},
};

use super::{EXIT_GROUP, edit_wake, find, outline};
use crate::{
    draw::{live, recording},
    fixtures::{kernel, syscall},
};

/// 60 is asked at 1, and ends at 6 with this status; 7 is woken by that.
fn ending(status: u32) -> Recording {
    let mut r = recording(10);
    live(&mut r, 7, "##....####", 60);
    live(&mut r, 60, ".######   ", 7);
    r.exits[0].status = status;
    let call = syscall(EXIT_GROUP, [0; 6]);
    edit_wake(&mut r, 7, 1, |wake| wake.syscall = call);
    r
}

#[test]
fn who_ends_instead_of_answering_ends_its_span_with_that_status() {
    for (status, word) in
        [(0, "exited 0"), (0x0300, "exited 3"), (0x8b, "crashed 11"), (9, "killed 9")]
    {
        assert_eq!(
            outline(&find(&mut ending(status))),
            [
                format!("client 7 1..6: self 1, on 60, {word}"),
                format!("  server 60 1..6: self 5, {word}, RequestedBy"),
            ]
        );
    }
    // A signal ends it in whatever syscall it is: the stack says so.
    let mut r = ending(9);
    let stack = kernel(&mut r, &["__wake_up", "pipe_release", "do_exit", "do_group_exit"]);
    edit_wake(&mut r, 7, 1, |wake| (wake.syscall, wake.kernel_stack) = (None, stack));
    assert_eq!(outline(&find(&mut r))[0], "client 7 1..6: self 1, on 60, killed 9");
    // Its end was lost.
    r.exits.clear();
    assert_eq!(outline(&find(&mut r))[0], "client 7 1..6: self 1, on 60, exited");
    // It answered first, and ended later.
    let mut r = ending(9);
    edit_wake(&mut r, 7, 1, |wake| wake.syscall = None);
    assert_eq!(outline(&find(&mut r))[0], "client 7 1..6: self 1, on 60");
}

#[test]
fn the_last_thread_of_a_process_ends_the_request_to_another_one() {
    let mut r = recording(10);
    live(&mut r, 7, "##.....###", 61);
    live(&mut r, 60, ".####     ", 7);
    live(&mut r, 61, "########  ", 9);
    for thread_event in r.thread_events.iter_mut().filter(|it| it.tid == Tid(61)) {
        thread_event.tgid = Tgid(60);
    }
    for exit in &mut r.exits {
        (exit.tgid, exit.status) = (Tgid(60), 11);
    }
    edit_wake(&mut r, 7, 1, |wake| {
        (wake.current.tgid, wake.syscall) = (Tgid(60), syscall(EXIT_GROUP, [0; 6]));
    });
    assert_eq!(
        outline(&find(&mut r)),
        [
            "client 7 1..7: self 1, on 61, crashed 11",
            "  server 60 1..5: self 4, crashed 11, RequestedBy",
        ]
    );
}

#[test]
fn what_the_window_cuts_off_is_unfinished() {
    let mut r = recording(10);
    live(&mut r, 7, "##........", 60);
    live(&mut r, 60, ".####.....", 7);
    assert_eq!(
        outline(&find(&mut r)),
        [
            "client 7 1..10: self 1, on 60, unfinished",
            "  server 60 1..10: self 4, unfinished, RequestedBy",
            "    internal 60 5..10: self 0, unfinished",
        ]
    );
    // It had woken two: not known which of them is to answer.
    live(&mut r, 61, ".#########", 7);
    assert_eq!(find(&mut r).spans, []);
    // It had not woken anybody since it came back.
    let mut r = recording(10);
    live(&mut r, 7, "##..##....", 61);
    live(&mut r, 60, ".####.....", 7);
    live(&mut r, 61, "##########", 7);
    assert_eq!(outline(&find(&mut r))[0], "internal 7 2..4: self 0, on 61, EndedBy");
}
