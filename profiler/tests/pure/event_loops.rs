//! Whose time it is that passes before a thread answers which serves several others.
//!
//! Client A (7) asks the loop (20) for what the loop has to ask its server U (30) for, or a timer;
//! B (40) is another client, which has nothing to do with it.

use std::collections::BTreeMap;

use offwake_analysis::{
    blame::{Blame, BlameKind, ChainLimits},
    timeline::{Timeline, WaitIndex},
};
use offwake_recording::{
    FileId, FileKind, OpenFile, Recording, SocketRole, StackRef, ThreadKind, Wait, WakeContext,
    units::{Nanos, Tgid, Tid},
};

use crate::{
    draw::{TICK, edit, live, recording},
    fixtures::{
        CLOCK_NANOSLEEP, EPOLL_WAIT, FUTEX, POLL, RECVFROM, file, kernel, syscall, tcp, user,
    },
};

pub const A: u32 = 7;
pub const LOOP: u32 = 20;
pub const U: u32 = 30;
pub const B: u32 = 40;
/// The server that the loop asks for B.
pub const V: u32 = 50;
pub const TIMER: u32 = 0;
const SENDTO: u32 = 44;

const A_TO_LOOP: u64 = 71;
const LOOP_TO_A: u64 = 72;
const LOOP_TO_U: u64 = 73;
const U_TO_LOOP: u64 = 74;
const B_TO_LOOP: u64 = 75;
const LOOP_TO_B: u64 = 76;
const LOOP_TO_V: u64 = 77;
const V_TO_LOOP: u64 = 78;

/// A scene under construction: threads' lives, and who woke whom through which socket.
pub struct Scene {
    pub recording: Recording,
    /// The end of a connection that a thread wakes another through.
    through: BTreeMap<(u32, u32), FileId>,
}

impl Scene {
    pub fn new(length: usize) -> Self {
        let mut recording = recording(length);
        let mut end = |inode, local, remote, role| {
            let id = tcp(&mut recording, inode, local, remote);
            if let Some(OpenFile::Socket(socket)) = recording.files.files.get_mut(&id) {
                socket.role = role;
            }
            id
        };
        let (asking, serving) = (Some(SocketRole::Asking), Some(SocketRole::Serving));
        let through = BTreeMap::from([
            ((A, LOOP), end(A_TO_LOOP, "127.0.0.1:4001", "127.0.0.1:80", asking)),
            ((LOOP, A), end(LOOP_TO_A, "127.0.0.1:80", "127.0.0.1:4001", serving)),
            ((LOOP, U), end(LOOP_TO_U, "127.0.0.1:4002", "127.0.0.1:90", asking)),
            ((U, LOOP), end(U_TO_LOOP, "127.0.0.1:90", "127.0.0.1:4002", serving)),
            ((B, LOOP), end(B_TO_LOOP, "127.0.0.1:4003", "127.0.0.1:80", asking)),
            ((LOOP, B), end(LOOP_TO_B, "127.0.0.1:80", "127.0.0.1:4003", serving)),
            ((LOOP, V), end(LOOP_TO_V, "127.0.0.1:4005", "127.0.0.1:91", asking)),
            ((V, LOOP), end(V_TO_LOOP, "127.0.0.1:91", "127.0.0.1:4005", serving)),
        ]);
        Self { recording, through }
    }

    /// Lets nothing tell which end of a connection is the server's.
    fn forget_roles(mut self) -> Self {
        for file in self.recording.files.files.values_mut() {
            if let OpenFile::Socket(socket) = file {
                socket.role = None;
                socket.protocol = "unix".to_owned();
                (socket.local, socket.remote) = (String::new(), String::new());
            }
        }
        self
    }

    /// A thread that waits in a syscall; each wait is ended by the next of `wakers`.
    pub fn thread(mut self, tid: u32, call: u32, life: &str, wakers: &[u32]) -> Self {
        live(&mut self.recording, tid, life, 9);
        let through = &self.through;
        edit(&mut self.recording, |waits| {
            let own = waits.iter_mut().filter(|wait| wait.tid == Tid(tid));
            for (n, wait) in own.enumerate() {
                // Without a timeout: -1, of epoll_wait the fourth argument, of poll the third.
                wait.syscall = syscall(call, [5, 1, u64::MAX, u64::MAX, 0, 0]);
                let waker = wakers.get(n).copied().unwrap_or(TIMER);
                let Some(wake) = &mut wait.wake else {
                    // It waits for the loop's next request.
                    wait.file = through.get(&(tid, LOOP)).copied();
                    continue;
                };
                (wake.current.tid, wake.current.tgid) = (Tid(waker), Tgid(waker));
                if waker == TIMER {
                    wake.context = WakeContext::Hrtimer;
                } else {
                    wake.syscall = syscall(SENDTO, [6, 0, 0, 0, 0, 0]);
                    let pair = (process(waker), process(tid));
                    wake.file = through.get(&pair).copied();
                }
            }
        });
        self
    }

    /// The end of a connection that a thread wakes another through.
    pub fn end_of(&self, waker: u32, woken: u32) -> FileId {
        self.through[&(waker, woken)]
    }

    /// Makes threads the threads of the loop's process.
    pub fn in_loop_process(self, tids: &[u32]) -> Self {
        self.in_process(LOOP, tids)
    }

    /// Makes threads the threads of one process.
    pub fn in_process(mut self, tgid: u32, tids: &[u32]) -> Self {
        edit(&mut self.recording, |waits| {
            for wait in waits.iter_mut() {
                if tids.contains(&wait.tid.0) {
                    wait.tgid = Tgid(tgid);
                }
                if let Some(wake) = &mut wait.wake
                    && tids.contains(&wake.current.tid.0)
                {
                    wake.current.tgid = Tgid(tgid);
                }
            }
        });
        for event in &mut self.recording.thread_events {
            if tids.contains(&event.tid.0) {
                event.tgid = Tgid(tgid);
            }
        }
        for exit in &mut self.recording.exits {
            if tids.contains(&exit.tid.0) {
                exit.tgid = Tgid(tgid);
            }
        }
        self
    }

    /// What the time of A's first wait is blamed on, in ticks.
    pub fn blame(self) -> BTreeMap<String, u64> {
        self.blame_of_wait(0)
    }

    /// What the time of another wait of A's is blamed on.
    pub fn blame_of_wait(mut self, n: usize) -> BTreeMap<String, u64> {
        self.recording.sort();
        let timeline = Timeline::build(&self.recording);
        let blame = Blame::new(&self.recording, &timeline, ChainLimits::default());
        let waits = self.recording.waits.iter().enumerate();
        let mut of_a = waits.filter(|(_, wait)| wait.tid == Tid(A));
        let (index, _) = of_a.nth(n).expect("a wait");
        let mut ticks = BTreeMap::new();
        for part in blame.walker().parts(WaitIndex(index as u32)) {
            let tid = |index| timeline.thread(index).expect("a thread").tid;
            let word = match part.kind {
                BlameKind::Work(thread) => format!("work {}", tid(thread)),
                BlameKind::CpuQueue { thread, .. } => format!("cpu_queue {}", tid(thread)),
                BlameKind::External(external) => external.name().to_owned(),
                BlameKind::Unattributed(reason) => reason.name().to_owned(),
            };
            *ticks.entry(word).or_default() += part.time.0 / TICK;
        }
        ticks
    }
}

/// The process whose sockets a thread uses: the loop's threads are numbered from it on.
fn process(tid: u32) -> u32 {
    if (LOOP..U).contains(&tid) { LOOP } else { tid }
}

pub fn ticks(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected.iter().map(|&(word, n)| (word.to_owned(), n)).collect()
}

/// A waits for the loop, and the loop for U, from tick 3 to 18; B comes in between.
fn behind_server() -> Scene {
    Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, B, B, U])
        .thread(U, RECVFROM, "...#####.........#######", &[LOOP])
        .thread(B, RECVFROM, "######..########..######", &[LOOP, LOOP])
}

#[test]
fn the_time_before_an_answer_is_the_servers_that_was_asked() {
    let expected = ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]);
    assert_eq!(behind_server().blame(), expected);
}

#[test]
fn where_no_end_is_known_what_was_asked_for_the_client_counts() {
    let expected = ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]);
    assert_eq!(behind_server().forget_roles().blame(), expected);
}

/// U's answer comes as the loop is about to sleep, after it has passed V's on to B: the loop never was blocked, but it
/// began another slice.
#[test]
fn what_comes_just_before_the_loop_sleeps_begins_a_slice() {
    let blame = |last: u32, life_of_u: &str| {
        let mut scene = Scene::new(24)
            .thread(A, RECVFROM, "##...................###", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##............##.r####", &[A, V, last])
            .thread(B, RECVFROM, "##...............#######", &[LOOP])
            .thread(V, RECVFROM, "################________", &[])
            .thread(U, RECVFROM, life_of_u, &[LOOP]);
        edit(&mut scene.recording, |waits| {
            let last = waits.iter_mut().rfind(|wait| wait.tid == Tid(LOOP)).expect("a poll");
            last.off = last.wake.as_ref().expect("a wake").at;
        });
        scene.blame()
    };
    let expected = ticks(&[("work 20", 2), ("cpu_queue 20", 1), ("work 30", 16)]);
    assert_eq!(blame(U, "...################....."), expected);
    // Another request of B's: V's answer before it was not A's.
    let expected = ticks(&[("work 20", 1), ("cpu_queue 20", 1), ("event_loop", 17)]);
    assert_eq!(blame(B, "________________________"), expected);
}

/// A's request comes while the loop is awake for B, and the loop asks V for the one and U for the other.
fn behind_two_servers(life_of_u: &str) -> Scene {
    Scene::new(24)
        .thread(A, RECVFROM, "###.................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..####..........########", &[B, V])
        .thread(B, RECVFROM, "##................######", &[LOOP])
        .thread(V, RECVFROM, "....#############_______", &[LOOP])
        .thread(U, RECVFROM, life_of_u, &[LOOP])
}

#[test]
fn of_two_servers_that_answer_at_once_either_may_have_been_asked() {
    let expected = ticks(&[("work 20", 4), ("event_loop", 13)]);
    assert_eq!(behind_two_servers(".....############_______").blame(), expected);
    // U is not done before A has its answer, or was not asked in that slice.
    let expected = ticks(&[("work 20", 5), ("work 50", 12)]);
    assert_eq!(behind_two_servers(".....###################").blame(), expected);
    assert_eq!(behind_two_servers("############____________").blame(), expected);
}

#[test]
fn who_may_have_waited_for_a_timer_did_not_surely_wait_for_a_server() {
    let blame = |timeout: u64| {
        let mut scene = behind_two_servers("________________________");
        edit(&mut scene.recording, |waits| {
            let polls = waits.iter_mut().filter(|wait| wait.tid == Tid(LOOP)).skip(1);
            for poll in polls {
                poll.syscall = syscall(EPOLL_WAIT, [5, 0, 1, timeout, 0, 0]);
            }
        });
        scene.blame()
    };
    // The poll that V's answer ends begins at tick 6, and A is answered at 20: each is a millisecond.
    assert_eq!(blame(12), ticks(&[("work 20", 4), ("event_loop", 13)]));
    assert_eq!(blame(100), ticks(&[("work 20", 5), ("work 50", 12)]));
}

/// A's request begins the slice, and another client's comes in it: the loop asks V for the one and U for the other.
#[test]
fn what_else_is_asked_in_the_slice_of_a_request_may_be_for_another() {
    let blame = |life_of_u: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..####..........########", &[A, V])
            .thread(V, RECVFROM, "....#############_______", &[LOOP])
            .thread(U, RECVFROM, life_of_u, &[LOOP])
            .blame()
    };
    assert_eq!(blame(".....############......."), ticks(&[("work 20", 4), ("event_loop", 14)]));
    // U is not done before A has its answer.
    assert_eq!(blame(".....###################"), ticks(&[("work 20", 6), ("work 50", 12)]));
}

/// The loop's timer, or a client on another machine, makes it ask V. A's request comes while the loop is awake
/// for that, and it asks U for it. Both servers answer at once.
#[test]
fn a_server_that_the_loop_asked_on_its_own_is_not_waited_for() {
    let scene = |life_of_u: &str, context: WakeContext| {
        let mut scene = Scene::new(24)
            .thread(A, RECVFROM, "###.................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..####..........########", &[TIMER, V])
            .thread(V, RECVFROM, "....#############_______", &[LOOP])
            .thread(U, RECVFROM, life_of_u, &[LOOP]);
        edit(&mut scene.recording, |waits| {
            let first = waits.iter_mut().find(|wait| wait.tid == Tid(LOOP)).expect("a poll");
            first.wake.as_mut().expect("a wake").context = context;
        });
        scene.blame()
    };
    for context in [WakeContext::Hrtimer, WakeContext::Hardirq(24)] {
        let expected = ticks(&[("work 20", 4), ("event_loop", 13)]);
        assert_eq!(scene(".....############_______", context), expected);
        // Nobody else got done: whatever it was asked for, A's answer came with V's.
        let expected = ticks(&[("work 20", 5), ("work 50", 12)]);
        assert_eq!(scene(".....###################", context), expected);
    }
}

/// The slice in which the loop asks both was begun by A, but by what A had asked before.
#[test]
fn an_earlier_request_of_the_same_client_proves_nothing() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##......##..........####", &[LOOP, LOOP])
        .thread(LOOP, EPOLL_WAIT, ".############...########", &[A, V])
        .thread(V, RECVFROM, "...........######_______", &[LOOP])
        .thread(U, RECVFROM, "............######______", &[LOOP]);
    assert_eq!(scene.blame_of_wait(1), ticks(&[("work 20", 4), ("event_loop", 6)]));
}

/// A's request comes while the loop is awake for B, for whom it asks V; A has its answer from a timer.
#[test]
fn what_was_asked_before_a_timer_may_have_been_for_another() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "###.................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..####....###...########", &[B, V, TIMER])
        .thread(B, RECVFROM, "##..........############", &[LOOP])
        .thread(V, RECVFROM, "....#######_____________", &[LOOP]);
    let expected = ticks(&[("work 20", 7), ("timer", 3), ("event_loop", 7)]);
    assert_eq!(scene.blame(), expected);
}

/// B's request comes while the loop works for A, and the loop answers it in that slice. Where nothing
/// tells which end asks, the answer looks like an ask for A's sake.
#[test]
fn an_answer_to_another_client_in_the_same_slice_is_no_ask() {
    let scene = |loop_wakers: &[u32], life_of_b: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..####..........########", loop_wakers)
            .thread(B, RECVFROM, life_of_b, &[LOOP, LOOP])
            .thread(V, RECVFROM, "########################", &[])
            .forget_roles()
    };
    let expected = ticks(&[("work 20", 4), ("event_loop", 14)]);
    // B's next request begins the slice in which A is answered.
    assert_eq!(scene(&[A, B], "####.############.######").blame(), expected);
    // Another client's does.
    assert_eq!(scene(&[A, V], "####.###################").blame(), expected);
}

/// The loop is late with an answer to B: B waits for it since before the slice that A began. Another
/// answer, which came in a slice that B had begun, tells that B is a client.
#[test]
fn a_late_answer_to_another_client_is_no_ask() {
    let blame = |life_of_b: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "####................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, ".##.###.........########", &[B, A, B])
            .thread(B, RECVFROM, life_of_b, &[LOOP, LOOP])
            .forget_roles()
            .blame()
    };
    // B had its first answer at 2, or has its second one at 17.
    let expected = ticks(&[("work 20", 4), ("event_loop", 12)]);
    assert_eq!(blame("#.#...##################"), expected);
    assert_eq!(blame("##....##########.#######"), expected);
    // Nothing says so: it was asked at 6, and it answers at 16.
    assert_eq!(blame("##....##################"), ticks(&[("work 20", 6), ("work 40", 10)]));
}

/// U is asked through connections that live for one request each. It is busy when the loop asks for A,
/// so that the ask wakes nobody; and nobody has looked at the connection before it was gone.
#[test]
fn a_server_is_known_by_its_other_connections() {
    const GONE: FileId = FileId { device: 8, inode: 99, kind: FileKind::Socket };
    let blame = |does_u_ask_too: bool| {
        let mut scene = Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "#.##....#....#....######", &[A, B, B, U])
            .thread(U, RECVFROM, ".#######################", &[LOOP])
            .thread(B, RECVFROM, "######..########..######", &[LOOP, LOOP]);
        let asking = scene.through[&(B, LOOP)];
        edit(&mut scene.recording, |waits| {
            let in_loop = waits.iter_mut().filter(|wait| wait.tid == Tid(LOOP));
            for (n, wait) in in_loop.enumerate() {
                let wake = wait.wake.as_mut().expect("woken");
                match n {
                    3 => wake.file = Some(GONE),
                    1 if does_u_ask_too => {
                        (wake.current.tid, wake.current.tgid) = (Tid(U), Tgid(U));
                        wake.file = Some(asking);
                    }
                    _ => {}
                }
            }
        });
        scene.blame()
    };
    assert_eq!(blame(false), ticks(&[("work 20", 2), ("work 30", 16)]));
    // Each asks the other now and then: this may have been a request.
    assert_eq!(blame(true), ticks(&[("work 20", 2), ("event_loop", 16)]));
}

/// The loop asks U for one client at a time, through connections that live for one request each. It
/// had asked for A's first request (at 2), and asks for A's second when U is done with B's (at 13).
#[test]
fn what_was_asked_for_an_earlier_request_of_the_client_is_over() {
    let mut scene = Scene::new(24)
        .thread(A, RECVFROM, "####................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "#.#.##......##....######", &[A, A, U, U])
        .thread(U, RECVFROM, "..##########.###########", &[LOOP, LOOP]);
    edit(&mut scene.recording, |waits| {
        let in_loop = waits.iter_mut().filter(|wait| wait.tid == Tid(LOOP));
        for (wait, inode) in in_loop.skip(2).zip(98..) {
            let wake = wait.wake.as_mut().expect("woken");
            wake.file = Some(FileId { device: 8, inode, kind: FileKind::Socket });
        }
    });
    assert_eq!(scene.blame(), ticks(&[("work 20", 3), ("work 30", 13)]));
}

#[test]
fn an_answer_that_came_while_the_loop_was_awake_is_the_servers_all_the_same() {
    // The last event that the loop slept for is B's; U answered after it.
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, B, B, B])
        .thread(U, RECVFROM, "...#####.........##...##", &[LOOP])
        .thread(B, RECVFROM, "######..########..######", &[LOOP, LOOP]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]));
}

/// A waits for another request's turn on a connection; U is asked for somebody else in the slice in which A's request
/// came, at 3. U's answers come at 8 and 16, while the loop is awake because of B.
#[test]
fn an_answer_that_the_loop_read_before_it_slept_is_not_waited_for() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##...###...#####.#####", &[A, B, B, B])
        .thread(U, RECVFROM, "...#####.....####.....##", &[LOOP, LOOP, LOOP])
        .thread(B, RECVFROM, "########.#####.#########", &[LOOP, LOOP]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 1), ("event_loop", 17)]));
}

/// The loop asks U in A's slice, at 5, once more at 12, and V at 11. U's last answer begins the slice at 18; V gets done
/// in it.
fn behind_a_connection(life_of_u: &str) -> BTreeMap<String, u64> {
    Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..####....###.....######", &[A, U, U])
        .thread(U, RECVFROM, life_of_u, &[LOOP, LOOP, LOOP])
        .thread(V, RECVFROM, "...........########..###", &[LOOP, LOOP])
        .blame()
}

#[test]
fn what_a_server_is_asked_as_its_answer_comes_may_be_for_whose_request_queued() {
    // U had been idle: it was asked for A.
    let idle_before = behind_a_connection(".....######.#######.####");
    assert_eq!(idle_before, ticks(&[("work 20", 7), ("work 30", 11)]));
    // Its answer to somebody else came in A's slice, at 3.
    let busy_before = behind_a_connection("####.######.#######.####");
    assert_eq!(busy_before, ticks(&[("work 20", 2), ("event_loop", 16)]));
}

/// Two threads share the loop. One asks U for A at 3, and works on until the end; U answers at 8, and waits for its next
/// request, which that thread sends at 16. The other answers A in a slice that B has begun, at 12.
#[test]
fn who_gives_a_server_its_next_request_has_nothing_to_do_with_its_answer_before() {
    let other = LOOP + 1;
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[other])
        .thread(LOOP, EPOLL_WAIT, "..######################", &[A])
        .thread(other, EPOLL_WAIT, "............############", &[B])
        .thread(U, RECVFROM, "...#####........########", &[LOOP, LOOP])
        .thread(B, RECVFROM, "############............", &[])
        .in_loop_process(&[LOOP, other]);
    let expected = [("work 20", 1), ("work 30", 5), ("event_loop", 4), ("work 21", 8)];
    assert_eq!(scene.blame(), ticks(&expected));
}

/// The same, but all threads of the loop slept at once after U was done: its answer was read, and A waits for
/// something else.
#[test]
fn an_answer_is_read_once_all_threads_of_a_loop_have_slept_at_once() {
    let other = LOOP + 1;
    let blame = |life_of_the_first: &str| {
        let scene = Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[other])
            .thread(LOOP, EPOLL_WAIT, life_of_the_first, &[A, B])
            .thread(other, EPOLL_WAIT, "............############", &[B])
            .thread(U, RECVFROM, "...#####................", &[LOOP])
            .thread(B, RECVFROM, "############............", &[])
            .in_loop_process(&[LOOP, other]);
        scene.blame()
    };
    let expected = ticks(&[("event_loop", 10), ("work 21", 8)]);
    assert_eq!(blame("..########.......#######"), expected);
    // Awake all the time, it may read U's answer whenever it likes.
    let expected = ticks(&[("work 20", 1), ("work 30", 5), ("event_loop", 4), ("work 21", 8)]);
    assert_eq!(blame("..######################"), expected);
}

/// The loop asks U for A at 3, and V for B at 9. It is awake from 17 on because V answered, and answers
/// A at 20.
fn beside_another_server(life_of_u: &str) -> BTreeMap<String, u64> {
    Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....##.......####..#", &[A, B, V, B])
        .thread(U, RECVFROM, life_of_u, &[LOOP, TIMER])
        .thread(V, RECVFROM, ".........#####..########", &[LOOP])
        .thread(B, RECVFROM, "########.........#######", &[LOOP])
        .blame()
}

#[test]
fn the_server_that_another_client_waits_for_is_not_waited_for() {
    // U gets done at 19, while the loop is awake.
    let expected = ticks(&[("work 20", 4), ("work 30", 5), ("timer", 9)]);
    assert_eq!(beside_another_server("...#####.........##....."), expected);
    // The loop is the quicker of the two: U gets back to waiting just after A has its answer.
    assert_eq!(beside_another_server("...#####.........####..."), expected);
}

/// U answers while the loop is awake, and loses its CPU before it is back at waiting.
#[test]
fn a_server_that_lost_its_cpu_has_answered_all_the_same() {
    let expected = ticks(&[("work 20", 4), ("work 30", 5), ("timer", 9)]);
    assert_eq!(beside_another_server("...#####.........##rrr#."), expected);
    // It worked on for longer than an answer takes.
    assert_eq!(beside_another_server("...#####.........##rr##.").get("work 30"), Some(&5));
}

/// B's request begins the slice in which the loop asks V and, for whomever, U. V's answer begins the slice in
/// which A is answered.
fn after_anothers_answer(life_of_v: &str, life_of_u: &str) -> BTreeMap<String, u64> {
    Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....##........######", &[A, B, V])
        .thread(B, RECVFROM, "########.............###", &[LOOP])
        .thread(V, RECVFROM, life_of_v, &[LOOP])
        .thread(U, RECVFROM, life_of_u, &[LOOP])
        .blame()
}

#[test]
fn the_answer_to_another_client_hides_who_else_answered() {
    let nobodys = ticks(&[("work 20", 2), ("event_loop", 16)]);
    let of_v = ticks(&[("work 20", 3), ("work 50", 9), ("event_loop", 6)]);
    let v = ".........##########.....";
    assert_eq!(after_anothers_answer(v, ".........###########...."), nobodys);
    // U got done before the loop woke, or after it had answered.
    assert_eq!(after_anothers_answer(v, ".........#######........"), of_v);
    assert_eq!(after_anothers_answer(v, ".........###############"), of_v);
    // V was busy when it was asked.
    let busy = "########################";
    assert_eq!(after_anothers_answer(busy, ".........###########...."), nobodys);
    let of_v = ticks(&[("work 20", 4), ("work 50", 14)]);
    assert_eq!(after_anothers_answer(busy, ".........###############"), of_v);
}

/// U is still awake when the loop asks it for A, in the slice that its answer before began (6): nobody sees that.
/// V gets done at 19, just as A gets its answer.
#[test]
fn what_was_asked_unseen_with_no_other_request_was_asked_for_who_waited() {
    let blame = |life_of_loop: &str, wakers: &[u32], life_of_v: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, life_of_loop, wakers)
            .thread(B, RECVFROM, "########################", &[])
            .thread(V, RECVFROM, life_of_v, &[LOOP])
            .thread(U, CLOCK_NANOSLEEP, "#######.........###.....", &[TIMER])
            .blame()
    };
    let expected = ticks(&[("work 20", 5), ("work 30", 5), ("timer", 8)]);
    let alone = blame("..#...##..........######", &[A, U, U], ".......############.....");
    assert_eq!(alone, expected);
    // B's request came meanwhile. U slept in what no request ends, and may have been asked for B.
    let beside = blame("..#...##..#.......######", &[A, U, B, U], "..........#########.....");
    assert_eq!(beside, ticks(&[("work 20", 2), ("event_loop", 16)]));
}

/// The loop has answers of U's now and then, and U is busy: what it is asked wakes nobody.
fn beside_a_busy_server(life_of_u: &str, last_waker: u32) -> BTreeMap<String, u64> {
    Scene::new(24)
        .thread(A, RECVFROM, "####................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..#..###..........######", &[U, A, last_waker])
        .thread(V, RECVFROM, "########################", &[])
        .thread(U, CLOCK_NANOSLEEP, life_of_u, &[TIMER])
        .blame()
}

#[test]
fn who_had_a_cpu_while_the_loop_was_awake_may_have_answered() {
    // The loop sleeps until V answers at 18, and U sends something at 19.
    let nobodys = ticks(&[("work 20", 2), ("event_loop", 14)]);
    assert_eq!(beside_a_busy_server("###................#....", V), nobodys);
    // U did nothing while the loop was awake.
    let of_v = ticks(&[("work 20", 5), ("work 50", 10), ("event_loop", 1)]);
    assert_eq!(beside_a_busy_server("###............##.......", V), of_v);
}

#[test]
fn a_timer_of_the_loop_is_not_sure_where_a_server_may_have_answered() {
    let nobodys = ticks(&[("work 20", 2), ("event_loop", 14)]);
    assert_eq!(beside_a_busy_server("###................#....", TIMER), nobodys);
    let of_timer = ticks(&[("work 20", 5), ("timer", 11)]);
    assert_eq!(beside_a_busy_server("###............##.......", TIMER), of_timer);
}

/// Requests wait for the one connection to each server: the loop asks V anew as V's answer comes, nobody knows for whom.
#[test]
fn what_was_asked_as_anothers_answer_came_may_be_for_anybody() {
    let blame = |life_of_u: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##..#.#.........######", &[A, U, V, V])
            .thread(V, RECVFROM, "######..##########......", &[LOOP])
            .thread(U, CLOCK_NANOSLEEP, life_of_u, &[TIMER])
            .blame()
    };
    let nobodys = ticks(&[("work 20", 2), ("event_loop", 16)]);
    assert_eq!(blame("#######............#...."), nobodys);
    let of_v = blame("#######.................");
    assert_eq!(of_v.get("work 50"), Some(&12), "{of_v:?}");
}

/// The loop asks U for A, and then V with what U said. U had a CPU as V answered.
#[test]
fn what_was_asked_with_an_answer_for_the_waiter_is_for_that_one() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....##........######", &[A, U, V])
        .thread(U, RECVFROM, "...#####...........##...", &[LOOP, TIMER])
        .thread(V, RECVFROM, ".........#########......", &[LOOP]);
    let expected = ticks(&[("work 20", 4), ("work 30", 5), ("work 50", 9)]);
    assert_eq!(scene.blame(), expected);
}

/// A pooler sends A's query through a connection to U as U's answer to another query comes. Who gets done
/// beside that was not waited for.
#[test]
fn who_else_gets_done_does_not_hide_whose_connection_was_waited_for() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "###.................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "##.#..#...##.....#######", &[A, B, U, U])
        .thread(B, RECVFROM, "########################", &[])
        .thread(V, RECVFROM, "......######............", &[LOOP])
        .thread(U, RECVFROM, ".#########..#####.......", &[LOOP, LOOP]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 5), ("work 30", 12)]));
}

/// The same, where V was busy when it was asked: the ask woke nobody.
#[test]
fn the_busy_server_that_another_client_waits_for_is_not_waited_for() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....##.......####..#", &[A, B, V, B])
        .thread(U, RECVFROM, "...#####.........##.....", &[LOOP, TIMER])
        .thread(V, RECVFROM, "########################", &[])
        .thread(B, RECVFROM, "########.........#######", &[LOOP]);
    let expected = ticks(&[("work 20", 4), ("work 30", 5), ("timer", 9)]);
    assert_eq!(scene.blame(), expected);
}

#[test]
fn a_server_that_had_no_part_in_an_answer_is_not_waited_for() {
    let behind_v = [("work 20", 5), ("work 50", 6), ("timer", 2)];
    // U got done long before the loop answered, or only after it.
    for (life_of_u, of_u) in [
        ("...#####................", [("work 30", 5), ("timer", 2)]),
        ("...#####.........#######", [("work 30", 5), ("timer", 2)]),
    ] {
        let expected = ticks(&behind_v).into_iter().chain(ticks(&of_u)).collect();
        assert_eq!(beside_another_server(life_of_u), expected);
    }
}

/// A is woken at 2 and has a CPU at 6; until then it can't have asked for anything. V is asked for B at 4, and U has a
/// CPU as the loop answers.
#[test]
fn what_was_asked_before_the_client_came_to_a_cpu_was_not_asked_for_it() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "..rrrr#.............####", &[TIMER, LOOP])
        .thread(LOOP, EPOLL_WAIT, ".#.#####..........######", &[U, B, V])
        .thread(B, RECVFROM, "###...............######", &[LOOP])
        .thread(V, RECVFROM, "....##############______", &[LOOP])
        .thread(U, CLOCK_NANOSLEEP, "#######............#....", &[TIMER]);
    assert_eq!(scene.blame_of_wait(1), ticks(&[("work 20", 2), ("event_loop", 11)]));
}

/// Nobody sees what another thread of the loop's is set to work by; it asks a server at 5.
const OTHER_THREAD: u32 = LOOP + 1;
const UNSEEN_SLICE: &str = "__######................";

#[test]
fn who_was_asked_for_nobody_knows_whom_may_have_been_asked_for_the_client() {
    // A's request comes while the loop is awake for B and asks V.
    let blame = |life_of_u: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "###.................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..####............######", &[B, B])
            .thread(OTHER_THREAD, FUTEX, UNSEEN_SLICE, &[])
            .thread(B, RECVFROM, "##................######", &[LOOP])
            .thread(V, RECVFROM, "....###############.....", &[LOOP])
            .thread(U, RECVFROM, life_of_u, &[OTHER_THREAD])
            .in_loop_process(&[LOOP, OTHER_THREAD])
            .blame()
    };
    let either = blame(".....##############.....");
    assert_eq!(either, ticks(&[("work 20", 2), ("event_loop", 15)]));
    // U is at work until the end.
    let of_v = blame(".....###################");
    assert_eq!(of_v.get("work 50"), Some(&14), "{of_v:?}");
}

#[test]
fn the_answer_to_what_was_asked_for_nobody_knows_whom_hides_who_else_answered() {
    let blame = |life_of_u: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "###.................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, ".#.#..............######", &[U, A, V])
            .thread(OTHER_THREAD, FUTEX, UNSEEN_SLICE, &[])
            .thread(V, RECVFROM, ".....#############......", &[OTHER_THREAD])
            .thread(U, CLOCK_NANOSLEEP, life_of_u, &[TIMER])
            .in_loop_process(&[LOOP, OTHER_THREAD])
            .blame()
    };
    let either = blame("####...............#....");
    assert_eq!(either, ticks(&[("work 20", 2), ("event_loop", 15)]));
    let of_v = blame("####....................");
    assert_eq!(of_v.get("work 50"), Some(&13), "{of_v:?}");
}

#[test]
fn what_another_client_did_is_nobodys_fault() {
    // Nobody was asked for anything: why the loop answers now is not known.
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, B, B, B])
        .thread(B, RECVFROM, "######..########..######", &[LOOP, LOOP]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 2), ("event_loop", 16)]));
}

/// The loop has A's request, and sleeps until B sends: A waits for a job that B brings, or for B to give
/// back what both want.
#[test]
fn who_sends_what_lets_a_loop_that_slept_go_on_was_waited_for() {
    let dots = |n: usize| ".".repeat(n);
    let scene = |loop_life: &str, loop_wakers: &[u32]| {
        Scene::new(210)
            .thread(A, RECVFROM, &format!("##{}####", dots(204)), &[LOOP])
            .thread(LOOP, EPOLL_WAIT, loop_life, loop_wakers)
            .thread(B, CLOCK_NANOSLEEP, &format!("#{}#######", dots(202)), &[TIMER])
            .blame()
    };
    let slept = format!("..#{}######", dots(201));
    // One tick of the loop's work as A asks, and some before it answers.
    let expected = ticks(&[("timer", 201), ("work 20", 2), ("work 40", 1)]);
    assert_eq!(scene(&slept, &[A, B]), expected);
    // It was awake for a tenth of the time: whatever let it go on may have come then.
    let awake = format!("..#{}##########{}##########{}######", dots(60), dots(60), dots(61));
    let answered = scene(&awake, &[A, B, B, B]);
    assert_eq!(answered.get("timer"), None, "{answered:?}");
    assert!(answered.contains_key("event_loop"), "{answered:?}");
    // A's request came while it was awake for B: it went to sleep with that taken.
    assert_eq!(scene(&slept, &[B, B]), expected);
    // It asks a server now and then, whose answer may have come while it was awake for B.
    let with_server = Scene::new(210)
        .thread(A, RECVFROM, &format!("##{}####", dots(204)), &[LOOP])
        .thread(LOOP, EPOLL_WAIT, &slept, &[A, B])
        .thread(B, CLOCK_NANOSLEEP, &format!("#{}#######", dots(202)), &[TIMER])
        .thread(U, RECVFROM, &format!("#{}##", dots(207)), &[LOOP])
        .blame();
    assert_eq!(with_server.get("timer"), None, "{with_server:?}");
    // It slept when A asked, and nobody saw it get the request.
    let unseen = scene(&format!("{}######", dots(204)), &[B]);
    assert_eq!(unseen.get("timer"), None, "{unseen:?}");
}

/// Of what the loop slept for from tick 64 until it answered nothing is left.
#[test]
fn what_came_to_a_loop_before_records_of_it_were_lost_was_not_waited_for() {
    let dots = |n: usize| ".".repeat(n);
    let life_of_loop = format!("..#{}#{}######", dots(60), dots(140));
    let scene = |waker| {
        Scene::new(210).thread(A, RECVFROM, &format!("##{}####", dots(204)), &[LOOP]).thread(
            LOOP,
            EPOLL_WAIT,
            &life_of_loop,
            &[A, waker, TIMER],
        )
    };
    let lose_last = |mut scene: Scene| {
        edit(&mut scene.recording, |waits| {
            let last = waits.iter().filter(|wait| wait.tid == Tid(LOOP)).map(|wait| wait.off).max();
            waits.retain(|wait| wait.tid != Tid(LOOP) || Some(wait.off) != last);
        });
        scene.blame()
    };
    let life_of_b = format!("#{}#######", dots(62));
    let by_client = scene(B).thread(B, CLOCK_NANOSLEEP, &life_of_b, &[TIMER]);
    assert_eq!(lose_last(by_client), ticks(&[("lost", 204)]));
    let life_of_u = format!("..{}######", dots(60));
    let by_server = scene(U).thread(U, CLOCK_NANOSLEEP, &life_of_u, &[TIMER]);
    assert_eq!(lose_last(by_server), ticks(&[("lost", 204)]));
}

/// A pooler has one connection to U. U works for another client from tick 1 to 10, and only then is A's query
/// sent to it, in the slice that its answer began.
#[test]
fn who_waits_for_a_connection_that_another_request_has_waits_for_what_that_one_asked() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "###.................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "##.#......##.....#######", &[A, U, U])
        .thread(U, RECVFROM, ".#########..#####.......", &[LOOP, LOOP]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 5), ("work 30", 12)]));
}

/// The same, but U had nothing to do: B had the connection, and lets go of it at tick 10. Nothing shows since
/// when, and that it was the connection which A waited for.
#[test]
fn what_another_client_gives_back_is_not_known_for_what_was_waited_for() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "###.................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "##.#......##.....#######", &[A, B, U])
        .thread(U, RECVFROM, "............#####.......", &[LOOP])
        .thread(B, CLOCK_NANOSLEEP, "#.........##############", &[TIMER]);
    let expected = ticks(&[("work 20", 5), ("work 30", 5), ("event_loop", 7)]);
    assert_eq!(scene.blame(), expected);
}

/// A pooler keeps its connection to U for B, which asks it, at 152 if `loop_life` has 149 ticks; U's answer comes eight
/// later, and only then is it asked for A. What happens from 3 to then is given.
fn behind_a_transaction(
    loop_life: &str,
    loop_wakers: &[u32],
    life_of_u: &str,
    (life_of_b, b_wakers): (&str, &[u32]),
) -> BTreeMap<String, u64> {
    let length = loop_life.len() + 16;
    let loop_life = format!("..#{loop_life}#.......#.....########");
    let life_of_u = format!("...{life_of_u}.#######.#####........");
    Scene::new(length + 9)
        .thread(A, RECVFROM, &format!("##{}#######", ".".repeat(length)), &[LOOP])
        .thread(LOOP, EPOLL_WAIT, &loop_life, loop_wakers)
        .thread(U, RECVFROM, &life_of_u, &[LOOP, LOOP, LOOP])
        .thread(B, CLOCK_NANOSLEEP, life_of_b, b_wakers)
        .blame()
}

#[test]
fn who_keeps_a_connection_between_its_requests_is_waited_for() {
    let dots = |n: usize| ".".repeat(n);
    let sleeps = format!("#{}#######################", dots(150));
    let nothing = dots(149);
    let blame = behind_a_transaction(&nothing, &[A, B, U, U], &nothing, (&sleeps, &[TIMER]));
    let expected = [("timer", 149), ("work 40", 1), ("work 20", 3), ("work 30", 12)];
    assert_eq!(blame, ticks(&expected));
    // B had asked something at 153 already, and slept after the answer, which came at 163.
    let asked_before = format!("{}#{}#{}", dots(150), dots(9), dots(271));
    let worked_before = format!("{}#########{}", dots(151), dots(272));
    let slept_twice = format!("#{}#{}#######################", dots(151), dots(280));
    let twice = behind_a_transaction(
        &asked_before,
        &[A, B, U, B, U, U],
        &worked_before,
        (&slept_twice, &[TIMER, TIMER]),
    );
    let expected = [("timer", 420), ("work 40", 3), ("work 20", 4), ("work 30", 21)];
    assert_eq!(twice, ticks(&expected));
}

/// U answers at once, while the pooler is awake for B: B's query and A's in one slice.
#[test]
fn a_quick_server_that_is_kept_for_another_client_answers_both_in_one_slice() {
    let dots = |n: usize| ".".repeat(n);
    let sleeps = format!("#{}#######################", dots(350));
    let blame = |life_of_u: &str, timeout_ms: i64| {
        let scene = Scene::new(374)
            .thread(A, RECVFROM, &format!("##{}##################", dots(354)), &[LOOP])
            .thread(LOOP, EPOLL_WAIT, &format!("..#{}######################", dots(349)), &[A, B])
            .thread(U, RECVFROM, life_of_u, &[LOOP, LOOP])
            .thread(B, CLOCK_NANOSLEEP, &sleeps, &[TIMER]);
        blame_with_timeout(scene, timeout_ms)
    };
    let quick = format!("{}##{}", dots(353), dots(19));
    assert_eq!(blame(&quick, -1), ticks(&[("timer", 349), ("work 40", 1), ("work 20", 4)]));
    let is_unknown = |blame: BTreeMap<String, u64>| {
        assert_eq!(blame.get("work 40"), None, "{blame:?}");
        assert!(blame.contains_key("event_loop") || blame.get("timer") == Some(&350), "{blame:?}");
    };
    // A timeout of the loop's was due as well.
    is_unknown(blame(&quick, 350));
    // U had something to do before, or is not done yet, or was asked as A had its answer already.
    is_unknown(blame(&format!("{}###{}##{}", dots(100), dots(250), dots(19)), -1));
    is_unknown(blame(&format!("{}{}", dots(353), "#".repeat(21)), -1));
    is_unknown(blame(&format!("{}##{}", dots(358), dots(14)), -1));
}

/// The same, but U's answer to A's query comes as the pooler sleeps again.
#[test]
fn a_server_that_is_asked_twice_in_one_slice_was_kept_for_whom_it_was_asked_first() {
    let dots = |n: usize| ".".repeat(n);
    let sleeps = format!("#{}#######################", dots(350));
    let blame = |life_of_u: &str, wakers: &[u32]| {
        Scene::new(374)
            .thread(A, RECVFROM, &format!("##{}#############", dots(359)), &[LOOP])
            .thread(
                LOOP,
                EPOLL_WAIT,
                &format!("..#{}####....##############", dots(349)),
                &[A, B, U],
            )
            .thread(U, RECVFROM, life_of_u, wakers)
            .thread(B, CLOCK_NANOSLEEP, &sleeps, &[TIMER])
            .blame()
    };
    let twice = blame(&format!("{}#.#####{}", dots(353), dots(14)), &[LOOP, LOOP]);
    let expected = [("timer", 349), ("work 40", 1), ("work 20", 4), ("work 30", 5)];
    assert_eq!(twice, ticks(&expected));
    // Asked once, it may have been asked for B alone.
    let once = blame(&format!("{}#####{}", dots(355), dots(14)), &[LOOP]);
    assert_eq!(once.get("work 40"), None, "{once:?}");
    assert!(once.contains_key("event_loop"), "{once:?}");
}

#[test]
fn what_else_sets_a_pooler_to_work_may_have_been_waited_for() {
    let dots = |n: usize| ".".repeat(n);
    let sleeps = format!("#{}#######################", dots(150));
    let nothing = dots(149);
    // A timer of the loop's: what A waited for before may have been that.
    let ticked = format!("{}#{}", dots(77), dots(71));
    let wakers = [A, TIMER, B, U, U];
    let blame = behind_a_transaction(&ticked, &wakers, &nothing, (&sleeps, &[TIMER]));
    assert_eq!(blame.get("event_loop"), Some(&78), "{blame:?}");
    assert_eq!(blame.get("timer"), Some(&71), "{blame:?}");
    // U was at work for somebody in between.
    let worked = format!("{}##########{}", dots(97), dots(42));
    let blame = behind_a_transaction(&nothing, &[A, B, U, U], &worked, (&sleeps, &[TIMER]));
    assert_eq!(blame.get("timer"), None, "{blame:?}");
    assert!(blame.contains_key("event_loop"), "{blame:?}");
    // It took the loop a tenth of the time to serve others: anything may have come meanwhile.
    let busy = format!("{}###############{}", dots(77), dots(57));
    let blame = behind_a_transaction(&busy, &[A, B, B, U, U], &nothing, (&sleeps, &[TIMER]));
    assert_eq!(blame.get("timer"), None, "{blame:?}");
    assert!(blame.contains_key("event_loop"), "{blame:?}");
}

/// A timer strikes while U works for B: A may have waited for that, and its query for U only then.
#[test]
fn a_request_that_a_timer_had_sent_on_was_not_kept_waiting_before() {
    let dots = |n: usize| ".".repeat(n);
    let scene = Scene::new(174)
        .thread(A, RECVFROM, &format!("##{}#######", dots(165)), &[LOOP])
        .thread(
            LOOP,
            EPOLL_WAIT,
            &format!("..#{}#...#...#.....########", dots(149)),
            &[A, B, TIMER, U, U],
        )
        .thread(U, RECVFROM, &format!("{}#######.#####........", dots(153)), &[LOOP, LOOP])
        .thread(B, CLOCK_NANOSLEEP, &format!("#{}#######################", dots(150)), &[TIMER]);
    let blame = scene.blame();
    assert_eq!(blame.get("timer"), None, "{blame:?}");
    assert!(blame.contains_key("event_loop"), "{blame:?}");
}

#[test]
fn what_the_loop_asked_for_another_client_is_not_waited_for() {
    // U was asked in B's slice, and has not answered yet when A gets its answer in another of B's.
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, B, B, B])
        .thread(U, RECVFROM, "........################", &[LOOP])
        .thread(B, RECVFROM, "######..########..######", &[LOOP, LOOP]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 2), ("event_loop", 16)]));
}

#[test]
fn a_timer_of_the_loop_that_the_answer_comes_out_of_was_waited_for() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, B, B, TIMER])
        .thread(B, RECVFROM, "######..########..######", &[LOOP, LOOP]);
    // [9, 18): the slice of B's last request is the loop's own work.
    assert_eq!(scene.blame(), ticks(&[("work 20", 3), ("timer", 15)]));
}

/// Has the loop's last poll have this timeout.
fn blame_with_timeout(mut scene: Scene, timeout_ms: i64) -> BTreeMap<String, u64> {
    edit(&mut scene.recording, |waits| {
        let last = waits.iter_mut().rfind(|wait| wait.tid == Tid(LOOP));
        let call = syscall(EPOLL_WAIT, [5, 0, 1, timeout_ms as u64, 0, 0]);
        last.expect("a wait").syscall = call;
    });
    scene.blame()
}

#[test]
fn a_timer_that_was_due_while_the_loop_was_awake_was_waited_for() {
    // The loop's last poll was to last until 20 ticks; B woke it at 18, and it answers at 20.
    let blame = |timeout_ms: i64| {
        let scene = Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, B, B, B])
            .thread(B, RECVFROM, "######..########..######", &[LOOP, LOOP]);
        blame_with_timeout(scene, timeout_ms)
    };
    assert_eq!(blame(6), ticks(&[("work 20", 2), ("timer", 16)]));
    assert_eq!(blame(60), ticks(&[("work 20", 2), ("event_loop", 16)]));
    assert_eq!(blame(-1), ticks(&[("work 20", 2), ("event_loop", 16)]));
}

/// The loop asks V for B at 9. V's answer comes at 18, when A's timer is due: the loop answers A at 20.
#[test]
fn an_answer_to_another_client_does_not_hide_a_timer_that_was_due() {
    let blame = |timeout_ms: i64| {
        let scene = Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##....#.........######", &[A, B, V])
            .thread(V, RECVFROM, ".........###############", &[LOOP])
            .thread(B, RECVFROM, "########################", &[]);
        blame_with_timeout(scene, timeout_ms)
    };
    assert_eq!(blame(11), ticks(&[("work 20", 2), ("timer", 16)]));
    assert_eq!(blame(-1), ticks(&[("work 20", 3), ("work 50", 9), ("event_loop", 6)]));
}

/// The same, where V was busy when it was asked: it may have been asked for either.
#[test]
fn who_was_asked_unseen_may_have_been_asked_for_another_than_who_has_a_timer() {
    let blame = |timeout_ms: i64| {
        let scene = Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##....#.........######", &[A, B, V])
            .thread(V, RECVFROM, "########################", &[])
            .thread(B, RECVFROM, "########################", &[]);
        blame_with_timeout(scene, timeout_ms)
    };
    assert_eq!(blame(11), ticks(&[("work 20", 2), ("event_loop", 16)]));
    assert_eq!(blame(-1), ticks(&[("work 20", 4), ("work 50", 14)]));
}

/// The loop answers at 20, and its last poll began at 14. Where a poll counts whole milliseconds, the
/// timer may have been due up to two of them before the timeout.
#[test]
fn a_timeout_in_nanoseconds_is_not_rounded() {
    const PPOLL: u32 = 271;
    const EPOLL_PWAIT2: u32 = 441;
    let blame = |call, timeout_us: u64| {
        let mut scene = Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, B, B, B])
            .thread(B, RECVFROM, "######..########..######", &[LOOP, LOOP]);
        edit(&mut scene.recording, |waits| {
            let last = waits.iter_mut().rfind(|wait| wait.tid == Tid(LOOP)).expect("a wait");
            if call == EPOLL_WAIT {
                last.syscall = syscall(call, [5, 0, 1, timeout_us / 1_000, 0, 0]);
            } else {
                last.syscall = syscall(call, [5, 2, 0, 0, 0, 0]);
                last.timeout = Some(Nanos(timeout_us * 1_000));
            }
        });
        scene.blame()
    };
    let was_due = ticks(&[("work 20", 2), ("timer", 16)]);
    let was_not_due = ticks(&[("work 20", 2), ("event_loop", 16)]);
    assert_eq!(blame(EPOLL_WAIT, 8_000), was_due);
    for call in [PPOLL, EPOLL_PWAIT2] {
        // The call began a little before the thread left its CPU.
        assert_eq!(blame(call, 6_020), was_due, "{call}");
        assert_eq!(blame(call, 7_000), was_not_due, "{call}");
        assert_eq!(blame(call, 8_000), was_not_due, "{call}");
    }
}

#[test]
fn a_timer_of_the_loop_in_between_was_not_waited_for() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, TIMER, TIMER, U])
        .thread(U, RECVFROM, "...#####.........#######", &[LOOP]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]));
}

#[test]
fn the_loops_work_between_two_questions_is_its_own() {
    // It asks at 3, is answered at 8, computes until 13, asks again, and is answered at 18.
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....######....######", &[A, U, U])
        .thread(U, RECVFROM, "...#####.....###########", &[LOOP, LOOP]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 8), ("work 30", 10)]));
}

#[test]
fn a_server_that_was_awake_when_it_was_asked_has_the_time_since_its_answer_before() {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....##........######", &[A, U, U])
        .thread(U, RECVFROM, "########################", &[]);
    // Both times, the loop asked before it went back to sleep.
    assert_eq!(scene.blame(), ticks(&[("work 20", 6), ("work 30", 12)]));
}

/// The last frames of threads that wait in the pools of Go's and tokio's runtimes.
const PARKED: [&[&str]; 2] = [
    &["app runtime.futex", "app runtime.stopm"],
    &[
        "app std::sys::pal::unix::futex::futex_wait",
        "app tokio::runtime::scheduler::multi_thread::park::park_condvar",
    ],
];

#[test]
fn one_thread_asks_and_another_gets_the_answer() {
    // 20 asks and goes to sleep in its runtime's pool; 21 polls, gets the answer and hands it on.
    let (asks, polls) = (LOOP, LOOP + 1);
    for parked in PARKED {
        let mut scene = Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[asks])
            .thread(asks, FUTEX, "..####............r#####", &[polls, polls])
            .thread(polls, EPOLL_WAIT, "..##....#....#...#######", &[A, B, B, U])
            .thread(U, RECVFROM, "...#####.......#########", &[asks])
            .thread(B, RECVFROM, "######..########..######", &[polls, polls]);
        let parked = user(&mut scene.recording, LOOP, parked);
        edit(&mut scene.recording, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(asks)) {
                wait.user_stack = parked;
            }
        });
        let blame = scene.in_loop_process(&[asks, polls]).blame();
        // 20 is queued for a tick, and works for one before it answers and for three before it asks.
        let expected =
            [("cpu_queue 20", 1), ("work 20", 2), ("work 21", 1), ("work 30", 7), ("timer", 7)];
        assert_eq!(blame, ticks(&expected));
    }
}

/// A thread of the loop's own process wakes it from time to time (a ticker). U's answer for A comes while
/// the loop is awake for that: what the ticker did meanwhile says nothing.
#[test]
fn what_a_ticker_of_the_loops_process_did_is_not_waited_for() {
    let ticker = LOOP + 1;
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##............########", &[A, ticker])
        .thread(ticker, CLOCK_NANOSLEEP, "#...............##......", &[TIMER, TIMER])
        .thread(U, RECVFROM, "...###############......", &[LOOP, TIMER])
        .in_loop_process(&[LOOP, ticker]);
    assert_eq!(scene.blame(), ticks(&[("work 20", 5), ("work 30", 13)]));
}

/// The loop asks U for A until 10, and then hands a thread of a pool a job for A (at 11). That thread is
/// busy throughout, before that with what others asked for.
#[test]
fn a_pool_thread_has_only_the_time_since_it_could_be_handed_the_job() {
    let pool = LOOP + 1;
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##......##....########", &[A, U, pool])
        .thread(pool, FUTEX, "######..################", &[V])
        .thread(V, RECVFROM, "########################", &[])
        .thread(U, RECVFROM, "...#######..############", &[LOOP, LOOP])
        .in_loop_process(&[LOOP, pool]);
    let expected = [("work 20", 7), ("work 21", 4), ("work 30", 7)];
    assert_eq!(scene.blame(), ticks(&expected));
}

/// The pool is full: its thread is busy with another's job when A asks, and does A's after it.
#[test]
fn a_full_pool_is_waited_for() {
    let pool = LOOP + 1;
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##............########", &[A, pool])
        .thread(pool, FUTEX, "########################", &[])
        .in_loop_process(&[LOOP, pool]);
    // [2, 4): the loop works on A's request itself.
    assert_eq!(scene.blame(), ticks(&[("work 20", 6), ("work 21", 12)]));
}

/// Both threads of the pool are at jobs of others. A helper of the runtime (of Node's engine, say), which the loop
/// wakes meanwhile, does not do A's job instead if it does next to nothing.
#[test]
fn a_pool_is_full_whatever_little_a_helper_of_the_runtime_does() {
    let (one, other, helper) = (LOOP + 1, LOOP + 2, LOOP + 3);
    let blame = |at_work: usize, life_of_other: String| {
        Scene::new(130)
            .thread(A, RECVFROM, &format!("###{}{}", ".".repeat(115), "#".repeat(12)), &[LOOP])
            .thread(
                LOOP,
                EPOLL_WAIT,
                &format!(".#.##{}{}", ".".repeat(111), "#".repeat(14)),
                &[other, A, one],
            )
            .thread(one, FUTEX, &"#".repeat(130), &[])
            .thread(other, FUTEX, &life_of_other, &[LOOP])
            .thread(
                helper,
                FUTEX,
                &format!("....{}{}", "#".repeat(at_work), ".".repeat(126 - at_work)),
                &[LOOP],
            )
            .in_loop_process(&[LOOP, one, other, helper])
            .blame()
    };
    let busy = || "#".repeat(130);
    assert_eq!(blame(2, busy()), ticks(&[("work 20", 4), ("work 21", 111)]));
    let unknown = ticks(&[("event_loop", 113), ("work 20", 2)]);
    assert_eq!(blame(20, busy()), unknown);
    // It may have done A's job in its own time.
    let free = format!("###..{}", "#".repeat(125));
    assert_eq!(blame(2, free), unknown);
    // Preemptions are no ends of jobs, however many there are.
    let preempted = "#r".repeat(65);
    assert_eq!(blame(2, preempted), ticks(&[("work 20", 4), ("work 21", 111)]));
}

/// A had a thread of the pool asked before, which has somebody else's job since, or A's next one. Another thread of
/// the pool, busy throughout, gets done while the loop is awake for the first one's result.
#[test]
fn of_two_threads_of_a_pool_that_get_done_at_once_either_may_have_done_the_job() {
    let (one, other) = (LOOP + 1, LOOP + 2);
    let blame = |call: u32, life_of_other: &str, wakers_of_other: &[u32]| {
        Scene::new(24)
            .thread(A, RECVFROM, "###...###...........####", &[LOOP, LOOP])
            .thread(LOOP, EPOLL_WAIT, ".#.##.#..##.......######", &[other, A, one, A, one])
            .thread(one, FUTEX, "....##############......", &[LOOP])
            .thread(other, call, life_of_other, wakers_of_other)
            .in_loop_process(&[LOOP, one, other])
            .blame_of_wait(1)
    };
    let nobodys = ticks(&[("event_loop", 9), ("work 20", 2)]);
    assert_eq!(blame(FUTEX, "###################.....", &[]), nobodys);
    // It has lost its CPU since it put its result down, or has waited for a lock.
    assert_eq!(blame(FUTEX, "###############rrrrr####", &[]), nobodys);
    assert_eq!(blame(FUTEX, "##................rrr###", &[one]), nobodys);
    // The other one has been done for long, or has just got what its job needs, and no CPU yet.
    let ones = ticks(&[("work 20", 2), ("work 21", 9)]);
    assert_eq!(blame(FUTEX, "##......................", &[]), ones);
    assert_eq!(blame(RECVFROM, "##................rrr###", &[V]), ones);
}

/// One thread of a pool gets A's job, and another one somebody else's right after: each asks a server. The first one has
/// its answer, and the loop A's, as the other still waits for its own.
#[test]
fn what_a_thread_of_a_pool_still_waits_for_was_not_waited_for() {
    let (one, other) = (LOOP + 1, LOOP + 2);
    let blame = |life_of_other: &str, wakers_of_other: &[u32]| {
        let mut scene = Scene::new(24)
            .thread(A, RECVFROM, "##..............########", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..##.........#####......", &[A, B])
            .thread(B, RECVFROM, "#############...########", &[LOOP])
            .thread(one, RECVFROM, "...##.........###.......", &[LOOP, U])
            .thread(other, RECVFROM, life_of_other, wakers_of_other)
            .thread(U, RECVFROM, "....##########..........", &[one])
            .thread(V, RECVFROM, ".....#############......", &[other])
            .in_loop_process(&[LOOP, one, other]);
        let idle = user(&mut scene.recording, LOOP, &["libjvm.so CompileQueue::get"]);
        edit(&mut scene.recording, |waits| {
            let is_by_loop = |wait: &Wait| wait.wake.is_none_or(|it| it.current.tgid == Tgid(LOOP));
            let of_pool = |wait: &&mut Wait| [Tid(one), Tid(other)].contains(&wait.tid);
            for wait in waits.iter_mut().filter(of_pool).filter(|wait| is_by_loop(wait)) {
                (wait.user_stack, wait.syscall) = (idle, syscall(FUTEX, [0x10, 0, 0, 0, 0, 0]));
            }
        });
        scene.blame()
    };
    let expected = ticks(&[("event_loop", 11), ("work 20", 3)]);
    assert_eq!(blame("....##............####..", &[one, V]), expected);
    // The other one waits for its next job: whoever gets V's answer, the loop may have had it.
    let expected = ticks(&[("work 20", 4), ("work 21", 1), ("work 22", 1), ("work 50", 8)]);
    assert_eq!(blame("....##..................", &[one]), expected);
}

/// A has sent two requests at once. As the loop answers the first one, before A has a CPU, it asks U for the second; and
/// then V, for somebody whose request came meanwhile.
#[test]
fn what_the_loop_asks_as_it_answers_may_be_for_the_next_request_of_the_same_client() {
    let blame = |answers: u32, life_of_u: &str, life_of_v: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "#....r#.............####", &[LOOP, LOOP])
            .thread(LOOP, EPOLL_WAIT, "....####..........######", &[U, answers])
            .thread(U, RECVFROM, life_of_u, &[LOOP])
            .thread(V, RECVFROM, life_of_v, &[LOOP])
            .blame_of_wait(1)
    };
    let (done, at_work) = ("####.#############......", "####.###################");
    let unknown = ticks(&[("event_loop", 11), ("work 20", 2)]);
    assert_eq!(blame(U, done, ".......############....."), unknown);
    assert_eq!(blame(V, "####.##############.....", ".......###########......"), unknown);
    // Only one of them gets done.
    let of_u = ticks(&[("work 20", 2), ("work 30", 11)]);
    assert_eq!(blame(U, done, ".......#################"), of_u);
    let of_v = ticks(&[("work 20", 2), ("work 50", 11)]);
    assert_eq!(blame(V, at_work, ".......###########......"), of_v);
}

/// A is answered upon an event of a device. The loop has asked V in a slice that A's request had begun; or in B's, in
/// which A's request came.
#[test]
fn what_comes_from_outside_may_be_what_was_waited_for() {
    let blame = |life_of_a: &str, client: u32, life_of_v: &str| {
        let mut scene = Scene::new(24)
            .thread(A, RECVFROM, life_of_a, &[LOOP])
            .thread(LOOP, EPOLL_WAIT, "..####..........########", &[client, TIMER])
            .thread(B, RECVFROM, "########################", &[])
            .thread(V, RECVFROM, life_of_v, &[LOOP]);
        edit(&mut scene.recording, |waits| {
            let second = waits.iter_mut().filter(|wait| wait.tid == Tid(LOOP)).nth(1);
            second.and_then(|wait| wait.wake.as_mut()).expect("a wake").context =
                WakeContext::Hardirq(24);
        });
        scene.blame()
    };
    let (at_work, done) = ("....####################", "....#############_______");
    let (came_first, came_later) = ("##..................####", "###.................####");
    for life_of_v in [at_work, done] {
        let nobodys = ticks(&[("work 20", 4), ("event_loop", 13)]);
        assert_eq!(blame(came_later, B, life_of_v), nobodys);
        let of_v = ticks(&[("work 20", 6), ("work 50", 12)]);
        assert_eq!(blame(came_first, A, life_of_v), of_v);
    }
}

/// The slice in which the loop asked V was begun by A, but with an earlier request, which it has had the answer to. U,
/// which the loop has asked unseen, gets done in the slice in which A is answered.
#[test]
fn what_was_asked_upon_an_answered_request_was_not_asked_for_the_next() {
    let blame = |life_of_u: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "###.###.............####", &[LOOP, LOOP])
            .thread(LOOP, EPOLL_WAIT, ".#.##..##........######.", &[U, A, A, V])
            .thread(V, RECVFROM, "...##############.......", &[LOOP])
            .thread(U, RECVFROM, life_of_u, &[])
            .blame_of_wait(1)
    };
    assert_eq!(blame("###################....."), ticks(&[("event_loop", 10), ("work 20", 3)]));
    // It was V's connection that A's request had waited for.
    assert_eq!(blame("##......................"), ticks(&[("work 20", 3), ("work 50", 10)]));
}

/// All threads of a pool are busy with others' jobs when A asks; the first that gets done does A's job after it.
#[test]
fn where_all_threads_of_a_pool_are_busy_the_first_that_gets_done_is_waited_for() {
    let (one, other) = (LOOP + 1, LOOP + 2);
    let blame = |life_of_other: &str| {
        Scene::new(24)
            .thread(A, RECVFROM, "###.................####", &[LOOP])
            .thread(LOOP, EPOLL_WAIT, ".#.###..........########", &[other, A, one])
            .thread(one, FUTEX, "########################", &[])
            .thread(other, FUTEX, life_of_other, &[LOOP])
            .in_loop_process(&[LOOP, one, other])
            .blame()
    };
    let expected = ticks(&[("work 20", 7), ("work 21", 10)]);
    assert_eq!(blame("########################"), expected);
    // The other one waited for a job meanwhile, and may have got A's.
    let expected = ticks(&[("event_loop", 13), ("work 20", 4)]);
    assert_eq!(blame("########..##############"), expected);
}

/// The loop asks U for A, and U waits for B, a client of another loop of the same process. That one has
/// its work from the first loop, which waits for it by then: before, nobody was waited for.
#[test]
fn a_loop_that_one_of_its_waiters_wakes_was_not_at_work_for_it_before() {
    let other = LOOP + 1;
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##.....##.......######", &[A, V, U])
        .thread(other, EPOLL_WAIT, "#####.....####..........", &[LOOP])
        .thread(U, FUTEX, "######........##########", &[B])
        .thread(B, RECVFROM, "######.......###........", &[other])
        // It does not answer once more.
        .thread(V, CLOCK_NANOSLEEP, "############............", &[])
        .in_loop_process(&[LOOP, other]);
    let expected =
        [("event_loop", 4), ("work 20", 4), ("work 21", 3), ("work 30", 6), ("work 40", 1)];
    assert_eq!(scene.blame(), ticks(&expected));
}

#[test]
fn who_holds_a_lock_holds_it_while_it_polls() {
    // The loop is idle in a transaction of B's: A waits for its lock, not for an answer.
    let mut scene = Scene::new(24)
        .thread(A, EPOLL_WAIT, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##..............######", &[B, B])
        .thread(B, RECVFROM, "########..........######", &[]);
    let stack = user(&mut scene.recording, A, &["postgres LockAcquireExtended"]);
    edit(&mut scene.recording, |waits| {
        let wait = waits.iter_mut().find(|wait| wait.tid == Tid(A)).expect("a wait");
        wait.user_stack = stack;
    });
    assert_eq!(scene.blame(), ticks(&[("timer", 10), ("work 20", 4), ("work 40", 4)]));
}

#[test]
fn a_poll_of_one_file_is_a_question_and_no_loop() {
    let life = "..##..............######";
    let blame = |call| {
        Scene::new(24)
            .thread(A, RECVFROM, "##..................####", &[LOOP])
            .thread(LOOP, call, life, &[A, B])
            .thread(B, RECVFROM, "########################", &[])
            .blame()
    };
    assert_eq!(blame(POLL), ticks(&[("work 20", 4), ("work 40", 14)]));
    assert_eq!(blame(EPOLL_WAIT), ticks(&[("work 20", 2), ("event_loop", 16)]));
}

/// B hands a job to a thread of a pool. While that one is at it, it gets A's.
#[test]
fn who_has_a_job_of_its_own_done_did_not_hand_over_the_next() {
    let pool = LOOP + 1;
    let blame = |life_of_b: &str| {
        let mut scene = Scene::new(24)
            .thread(A, FUTEX, "##..................####", &[pool])
            .thread(pool, FUTEX, "........################", &[B])
            .thread(B, FUTEX, life_of_b, &[pool])
            .in_loop_process(&[A, pool, B]);
        let idle = user(&mut scene.recording, LOOP, &["libjvm.so CompileQueue::get"]);
        edit(&mut scene.recording, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(pool)) {
                wait.user_stack = idle;
            }
        });
        scene.blame()
    };
    assert_eq!(blame("#########...############"), ticks(&[("event_loop", 6), ("work 21", 12)]));
    // B never waits for its job: it may have been A's.
    assert_eq!(blame("########################"), ticks(&[("work 21", 12), ("work 40", 6)]));
}

#[test]
fn what_a_kernel_worker_did_before_its_work_came_belongs_to_others() {
    // A waits for a worker's fourth job, which B queued at 14; the jobs before were others'.
    let mut scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[60])
        .thread(60, RECVFROM, "...##..###...#...#######", &[U, U, U, B])
        .thread(B, RECVFROM, "####################....", &[])
        .thread(U, RECVFROM, "########################", &[]);
    let idle = kernel(&mut scene.recording, &["schedule", "worker_thread", "kthread"]);
    edit(&mut scene.recording, |waits| {
        for wait in waits.iter_mut() {
            wait.file = Some(file(FileKind::Socket, A_TO_LOOP)).filter(|_| wait.tid == Tid(A));
            if wait.tid == Tid(60) {
                (wait.kind, wait.kernel_stack) = (ThreadKind::Kernel, idle);
                (wait.syscall, wait.user_stack) = (None, StackRef::NotTaken);
            }
        }
    });
    assert_eq!(scene.blame(), ticks(&[("work 60", 3), ("work 40", 15)]));
}

/// The end of a child of the loop's begins the slice in which A is answered. For whom it made that is not known.
#[test]
fn the_child_of_a_loop_is_not_known_for_the_work_of_a_client() {
    let mut scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##..............######", &[A, B])
        .thread(B, RECVFROM, "########################", &[]);
    let exits = ["complete_signal", "__send_signal_locked", "do_notify_parent", "exit_notify"];
    let exits = kernel(&mut scene.recording, &exits);
    edit(&mut scene.recording, |waits| {
        let last = waits.iter_mut().rfind(|wait| wait.tid == Tid(LOOP)).expect("a poll");
        let wake = last.wake.as_mut().expect("woken");
        (wake.syscall, wake.file, wake.kernel_stack) = (None, None, exits);
    });
    for event in scene.recording.thread_events.iter_mut().filter(|event| event.tid == Tid(B)) {
        event.parent = Tgid(LOOP);
    }
    assert_eq!(scene.blame(), ticks(&[("work 20", 2), ("event_loop", 16)]));
}
