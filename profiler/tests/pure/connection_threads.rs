//! Whom a loop asked whose server makes a thread, or a process, for each connection.
//!
//! The loop (20) connects, and that wakes the acceptor (30). It makes 31 for what the loop asks for A (7), and 32
//! for what it asks for B (40). Nobody looks at a connection before it is gone.

use std::collections::BTreeMap;

use offwake_recording::{FileId, FileKind, units::Tid};

use crate::{
    draw::edit,
    event_loops::{A, B, LOOP, Scene, U, V, ticks},
    fixtures::{CONNECT, EPOLL_WAIT, FUTEX, RECVFROM, file, syscall},
};

const ACCEPTOR: u32 = U;
const FOR_A: u32 = 31;
const FOR_B: u32 = 32;
const POOL: u32 = 33;
const ACCEPT: u32 = 43;

/// What the server makes for each connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Makes {
    Threads,
    Processes,
}

fn gone(inode: u32) -> FileId {
    file(FileKind::Socket, 900 + u64::from(inode))
}

/// A's first wait from tick 2 to 20, or as it is drawn. The loop's wakes of the acceptor are connections.
fn blame(mut scene: Scene, makes: Makes) -> BTreeMap<String, u64> {
    edit(&mut scene.recording, |waits| {
        for (wait, n) in waits.iter_mut().zip(50..) {
            let tid = wait.tid.0;
            let Some(wake) = &mut wait.wake else { continue };
            match (tid, wake.current.tid.0) {
                (ACCEPTOR, LOOP) => {
                    (wake.syscall, wake.file) = (syscall(CONNECT, [6; 6]), Some(gone(n)));
                }
                (LOOP, FOR_A | FOR_B) => wake.file = Some(gone(wake.current.tid.0)),
                (POOL, ACCEPTOR) => wake.syscall = syscall(FUTEX, [5, 1, 1, 0, 0, 0]),
                _ => {}
            }
        }
    });
    let of_server: &[u32] = match makes {
        Makes::Threads => &[ACCEPTOR, POOL, FOR_A, FOR_B],
        Makes::Processes => &[ACCEPTOR, POOL],
    };
    scene.in_process(ACCEPTOR, of_server).blame()
}

/// The loop asks for A at 3. B's request makes it awake from 16 on, and A is answered at 20.
fn answered_in_anothers_slice(life_of_acceptor: &str) -> Scene {
    Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##............########", &[A, B])
        .thread(B, RECVFROM, "################........", &[])
        .thread(ACCEPTOR, ACCEPT, life_of_acceptor, &[LOOP, LOOP])
}

#[test]
fn who_was_made_for_a_connection_is_who_was_asked() {
    for makes in [Makes::Threads, Makes::Processes] {
        let made = |life: &str| {
            let scene = answered_in_anothers_slice("...##...............##..");
            blame(scene.thread(FOR_A, RECVFROM, life, &[ACCEPTOR]), makes)
        };
        // The acceptor has it made by 4; it then waits for a CPU.
        let expected = [("work 20", 5), ("work 30", 1), ("cpu_queue 31", 1), ("work 31", 11)];
        assert_eq!(made("    r############       "), ticks(&expected), "{makes:?}");
        // It ended before the slice began in which A was answered: what A got came later.
        let nobodys = ticks(&[("work 20", 4), ("event_loop", 14)]);
        assert_eq!(made("    r######             "), nobodys, "{makes:?}");
    }
}

/// B's answer begins the slice in which A is answered. A's comes in it, and 31 ends.
#[test]
fn who_was_made_for_one_connection_does_not_answer_what_was_asked_through_another() {
    for makes in [Makes::Threads, Makes::Processes] {
        let scene = Scene::new(24)
            .thread(A, RECVFROM, "######..............####", &[LOOP])
            .thread(B, RECVFROM, "##...................###", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##..##........########", &[B, A, FOR_B])
            .thread(ACCEPTOR, ACCEPT, "...##..##...............", &[LOOP, LOOP])
            .thread(FOR_B, RECVFROM, "    r#############      ", &[ACCEPTOR])
            .thread(FOR_A, RECVFROM, "        r#########      ", &[ACCEPTOR]);
        let expected = [("work 20", 5), ("work 30", 1), ("cpu_queue 31", 1), ("work 31", 7)];
        assert_eq!(blame(scene, makes), ticks(&expected), "{makes:?}");
    }
}

/// With `maxconn 1`, HAProxy connects for A as it has B's answer: A waits for B's first.
#[test]
fn who_waits_for_the_only_connection_waits_for_whom_it_was_made_for_before() {
    for makes in [Makes::Threads, Makes::Processes] {
        let scene = Scene::new(24)
            .thread(A, RECVFROM, "###.................####", &[LOOP])
            .thread(B, RECVFROM, "#.........##############", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, ".###......##......######", &[B, FOR_B, FOR_A])
            .thread(ACCEPTOR, ACCEPT, "..##.......##...........", &[LOOP, LOOP])
            .thread(FOR_B, RECVFROM, "   r#######             ", &[ACCEPTOR])
            .thread(FOR_A, RECVFROM, "            r######     ", &[ACCEPTOR]);
        let expected = ticks(&[
            ("work 20", 3),
            ("work 30", 1),
            ("cpu_queue 32", 1),
            ("work 32", 6),
            ("cpu_queue 31", 1),
            ("work 31", 5),
        ]);
        assert_eq!(blame(scene, makes), expected, "{makes:?}");
    }
}

/// What is made for B's connection, in another slice of the acceptor's, is not for A's.
#[test]
fn who_was_made_in_another_slice_was_not_asked() {
    for makes in [Makes::Threads, Makes::Processes] {
        let scene = Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##......##....########", &[A, B, B])
            .thread(B, RECVFROM, "##########.#####........", &[LOOP])
            .thread(ACCEPTOR, ACCEPT, "...##.....##............", &[LOOP, LOOP])
            .thread(FOR_B, RECVFROM, "           r#####       ", &[ACCEPTOR]);
        let blamed = blame(scene, makes);
        assert_eq!(blamed.get("work 32"), None, "{makes:?}: {blamed:?}");
    }
}

/// The acceptor hands A's connection to a thread of a pool, and then makes another one.
#[test]
fn who_was_made_after_a_connection_was_handed_over_was_not_asked() {
    let scene = answered_in_anothers_slice("...###..................")
        .thread(POOL, FUTEX, "....##########..........", &[ACCEPTOR])
        .thread(FOR_B, RECVFROM, "     r###########       ", &[ACCEPTOR]);
    let blamed = blame(scene, Makes::Threads);
    assert_eq!(blamed.get("work 32"), None, "{blamed:?}");
}

/// 31 waits for the request that comes through its connection, which is no return from one: it got done at 17. V,
/// which was asked as well, did not.
#[test]
fn the_first_request_of_a_connection_is_a_part_of_what_was_asked() {
    let mut scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..######........########", &[A, B])
        .thread(B, RECVFROM, "################........", &[])
        .thread(V, RECVFROM, "....####################", &[LOOP])
        .thread(ACCEPTOR, ACCEPT, "...##...................", &[LOOP])
        .thread(FOR_A, RECVFROM, "    r#.##########.......", &[ACCEPTOR, LOOP]);
    let serving = scene.end_of(ACCEPTOR, LOOP);
    edit(&mut scene.recording, |waits| {
        waits
            .iter_mut()
            .filter(|wait| wait.tid == Tid(FOR_A))
            .for_each(|it| it.file = Some(serving));
    });
    let expected = [
        ("work 20", 5),
        ("work 30", 1),
        ("cpu_queue 31", 1),
        ("work 31", 10),
        // Until the loop sends the request.
        ("cycle", 1),
    ];
    assert_eq!(blame(scene, Makes::Threads), ticks(&expected));
}
