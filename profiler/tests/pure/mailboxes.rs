//! Whose time it is that passes before a thread answers which takes what several others ask for out of
//! one mailbox.
//!
//! As with event loops, A (7) asks the loop (20) for what the loop has to ask U (30) for, or a timer; B
//! (40) has nothing to do with it.

use std::collections::BTreeMap;

use offwake_recording::{FileKind, WakeContext, units::Tid};

use crate::{
    draw::edit,
    event_loops::{A, B, LOOP, Scene, TIMER, U, V, ticks},
    fixtures::{EPOLL_WAIT, FUTEX, READ, file, syscall, user},
};

const WRITE: u32 = 1;
const SIGTIMEDWAIT: u32 = 128;
const SIGQUEUEINFO: u32 = 129;
const WAIT_PRIVATE: u64 = 128;
const WAKE_PRIVATE: u64 = 129;

/// Where each thread waits for what others send to it.
#[derive(Clone, Copy, Debug)]
enum Mailboxes {
    /// On a condition variable of its own; all threads are in one process.
    Conditions,
    /// In a pipe of its own; each thread is a process.
    Pipes,
    /// The same, but the loop waits for its pipe in an epoll.
    Epoll,
    /// For signals; each thread is a process.
    Signals,
    /// On one semaphore that all share, in one process.
    OneSemaphore,
}

impl Mailboxes {
    /// Has each thread of a scene wait for its mailbox, and others wake it through that.
    fn put_into(self, mut scene: Scene) -> Scene {
        edit(&mut scene.recording, |waits| {
            for wait in waits.iter_mut() {
                let number = match self {
                    Self::OneSemaphore => 1,
                    Self::Conditions | Self::Pipes | Self::Epoll | Self::Signals => {
                        u64::from(wait.tid.0)
                    }
                };
                let address = number * 0x1000;
                let pipe = Some(file(FileKind::Pipe, number));
                let (own, wakers) = match self {
                    Self::Conditions | Self::OneSemaphore => (
                        syscall(FUTEX, [address, WAIT_PRIVATE, 0, 0, 0, 0]),
                        syscall(FUTEX, [address, WAKE_PRIVATE, 1, 0, 0, 0]),
                    ),
                    Self::Signals => (
                        syscall(SIGTIMEDWAIT, [0, 0, 0, 8, 0, 0]),
                        syscall(SIGQUEUEINFO, [number, 34, 0, 0, 0, 0]),
                    ),
                    Self::Epoll if wait.tid == Tid(LOOP) => (
                        syscall(EPOLL_WAIT, [5, 0, 1, u64::MAX, 0, 0]),
                        syscall(WRITE, [number + 100, 0, 16, 0, 0, 0]),
                    ),
                    Self::Pipes | Self::Epoll => {
                        wait.file = pipe;
                        (
                            syscall(READ, [number, 0, 16, 0, 0, 0]),
                            syscall(WRITE, [number + 100, 0, 16, 0, 0, 0]),
                        )
                    }
                };
                wait.syscall = own;
                if let Some(wake) = &mut wait.wake
                    && wake.context == WakeContext::Task
                {
                    wake.syscall = wakers;
                    wake.file = pipe.filter(|_| matches!(self, Self::Pipes | Self::Epoll));
                }
            }
        });
        match self {
            Self::Pipes | Self::Epoll | Self::Signals => scene,
            Self::Conditions | Self::OneSemaphore => scene.in_loop_process(&[A, LOOP, U, B]),
        }
    }

    fn blame(self, scene: Scene) -> BTreeMap<String, u64> {
        self.put_into(scene).blame()
    }
}

const SEPARATE: [Mailboxes; 4] =
    [Mailboxes::Conditions, Mailboxes::Pipes, Mailboxes::Epoll, Mailboxes::Signals];

/// B asks twice while A waits, at 8 and at 13, and has its answers a tick later.
const LIFE_OF_B: &str = "########.####.##########";
/// U is asked at 3, works until 8, and sleeps until 17.
const LIFE_OF_U: &str = "...#####.........#######";

fn behind_server(life_of_b: &str, loop_wakers: &[u32]) -> Scene {
    Scene::new(24)
        .thread(A, FUTEX, "##..................####", &[LOOP])
        .thread(LOOP, FUTEX, "..##....#....#....######", loop_wakers)
        .thread(U, FUTEX, LIFE_OF_U, &[LOOP])
        .thread(B, FUTEX, life_of_b, &[LOOP, LOOP])
}

#[test]
fn what_other_clients_put_into_a_mailbox_is_not_waited_for() {
    let expected = ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]);
    for mailboxes in SEPARATE {
        let scene = behind_server(LIFE_OF_B, &[A, B, B, U]);
        assert_eq!(mailboxes.blame(scene), expected, "{mailboxes:?}");
    }
}

/// B waits for no answer: nobody is woken when its messages come.
#[test]
fn messages_that_nobody_is_woken_for_are_not_waited_for() {
    let expected = ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]);
    for mailboxes in SEPARATE {
        let scene = behind_server("########################", &[A, B, B, U]);
        assert_eq!(mailboxes.blame(scene), expected, "{mailboxes:?}");
    }
}

/// Go's threads that are locked to a goroutine each: whichever thread of the runtime finds out that 20's
/// may go on wakes it, and has nothing to do with what it waited for. Here those are A, B and U.
#[test]
fn a_thread_that_its_runtime_lets_go_on_has_no_mailbox() {
    let mut scene = behind_server(LIFE_OF_B, &[A, B, B, U]);
    let frames = ["app runtime.futex", "app runtime.mPark", "app runtime.stoplockedm"];
    let parked = user(&mut scene.recording, LOOP, &frames);
    edit(&mut scene.recording, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(LOOP)) {
            wait.user_stack = parked;
        }
    });
    let expected = ticks(&[("timer", 3), ("work 20", 6), ("work 30", 1), ("work 40", 8)]);
    assert_eq!(Mailboxes::Conditions.blame(scene), expected);
}

/// U's answer comes while the loop is awake for B.
#[test]
fn an_answer_that_came_while_the_loop_was_awake_for_another_is_the_servers() {
    let expected = ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]);
    for mailboxes in SEPARATE {
        let scene = behind_server("########.####.####.#####", &[A, B, B, B]);
        assert_eq!(mailboxes.blame(scene), expected, "{mailboxes:?}");
    }
}

#[test]
fn where_nobody_was_asked_the_time_is_nobodys() {
    for mailboxes in SEPARATE {
        let scene = Scene::new(24)
            .thread(A, FUTEX, "##..................####", &[LOOP])
            .thread(LOOP, FUTEX, "..##....#....#....######", &[A, B, B, B])
            .thread(B, FUTEX, "########.####.####.#####", &[LOOP, LOOP, LOOP]);
        assert_eq!(
            mailboxes.blame(scene),
            ticks(&[("work 20", 2), ("event_loop", 16)]),
            "{mailboxes:?}"
        );
    }
}

#[test]
fn a_timer_that_the_loop_waits_for_beside_its_mailbox_is_waited_for() {
    for mailboxes in SEPARATE {
        let scene = Scene::new(24)
            .thread(A, FUTEX, "##..................####", &[LOOP])
            .thread(LOOP, FUTEX, "..##....#....#....######", &[A, B, B, TIMER])
            .thread(B, FUTEX, LIFE_OF_B, &[LOOP, LOOP]);
        assert_eq!(
            mailboxes.blame(scene),
            ticks(&[("work 20", 3), ("timer", 15)]),
            "{mailboxes:?}"
        );
    }
}

/// A takes what comes out of a pipeline, and asks for nothing: what the stage before it waits for is
/// waited for. Not so what B puts there that is answered to B alone.
#[test]
fn who_asks_for_nothing_waits_for_all_that_comes() {
    for mailboxes in SEPARATE {
        let blame = mailboxes.blame(behind_server("########################", &[U, B, B, U]));
        assert!(blame.contains_key("work 40"), "{blame:?}");
        let answered = mailboxes.blame(behind_server(LIFE_OF_B, &[U, B, B, U]));
        assert!(!answered.contains_key("work 40"), "{answered:?}");
    }
}

/// A pool's only thread: U prepares what A waits for, and has the pool do the rest, which B uses as well. Of what
/// U put there while the pool was awake for B nobody saw anything.
#[test]
fn what_comes_after_a_clients_answer_was_not_put_there_by_that_client() {
    for mailboxes in SEPARATE {
        let scene = Scene::new(24)
            .thread(A, FUTEX, "##..................####", &[LOOP])
            .thread(LOOP, FUTEX, "..##....#....#....######", &[U, B, B, B])
            .thread(U, FUTEX, "########################", &[])
            .thread(B, FUTEX, "########.####.####.#####", &[LOOP, LOOP, LOOP]);
        assert_eq!(
            mailboxes.blame(scene),
            ticks(&[("work 20", 2), ("event_loop", 16)]),
            "{mailboxes:?}"
        );
    }
}

/// All wait for one semaphore and post it: it is handed round, and nothing is asked for.
#[test]
fn a_semaphore_that_is_handed_round_is_no_mailbox() {
    let blame = Mailboxes::OneSemaphore.blame(behind_server(LIFE_OF_B, &[A, B, B, U]));
    assert!(blame.contains_key("work 40"), "{blame:?}");
    assert!(!blame.contains_key("event_loop"), "{blame:?}");
}

/// A conversation of two through one mailbox has no other client in it: U is asked while it is awake, and
/// has all of the time.
#[test]
fn a_mailbox_without_another_client_is_none() {
    for mailboxes in SEPARATE {
        let mut scene = Scene::new(24)
            .thread(A, FUTEX, "##..................####", &[LOOP])
            .thread(LOOP, FUTEX, "..##..............######", &[A, U])
            .thread(U, FUTEX, "########################", &[]);
        edit(&mut scene.recording, |waits| assert!(waits.iter().all(|wait| wait.tid != Tid(B))));
        assert_eq!(
            mailboxes.blame(scene),
            ticks(&[("work 20", 4), ("work 30", 14)]),
            "{mailboxes:?}"
        );
    }
}

/// The loop hands U three jobs for A, the second and the third as it gets the result of the one before: U
/// looks like a client that is answered at once.
#[test]
fn a_worker_that_gets_its_next_job_with_each_result_is_waited_for() {
    for mailboxes in SEPARATE {
        let scene = Scene::new(24)
            .thread(A, FUTEX, "##..................####", &[LOOP])
            .thread(LOOP, FUTEX, "..##....##...##...######", &[A, U, U, U])
            .thread(U, FUTEX, "...#####.####.##########", &[LOOP, LOOP, LOOP]);
        let blame = mailboxes.blame(scene);
        assert_eq!(blame, ticks(&[("work 20", 5), ("work 30", 13)]), "{mailboxes:?}");
    }
}

/// A asks anew while the loop is still awake for its last answer: U gets the ask in a slice that U's own
/// answer began, but after A had its answer.
#[test]
fn a_server_that_is_asked_just_after_its_answer_is_no_client() {
    for mailboxes in SEPARATE {
        let scene = Scene::new(24)
            .thread(A, FUTEX, "##......#......#......##", &[LOOP, LOOP, LOOP])
            .thread(LOOP, FUTEX, "..##...###..#.###..#.###", &[A, U, B, U, B, U])
            .thread(U, FUTEX, "...#####.######.########", &[LOOP, LOOP, LOOP])
            .thread(B, FUTEX, "############.######.####", &[LOOP, LOOP]);
        let blame = mailboxes.put_into(scene).blame_of_wait(2);
        assert_eq!(blame, ticks(&[("work 20", 1), ("work 30", 5)]), "{mailboxes:?}");
    }
}

/// U and V put their results into one mailbox, out of which they are passed on: U's to A, V's to B.
fn results_passed_on(life_of_b: &str) -> Scene {
    Scene::new(30)
        .thread(A, FUTEX, "##..................##...#####", &[LOOP, LOOP])
        .thread(LOOP, FUTEX, ".....#....#....#..##....######", &[V, V, V, U, U])
        .thread(U, FUTEX, "########.........#############", &[])
        .thread(V, FUTEX, "##############################", &[])
        .thread(B, FUTEX, life_of_b, &[LOOP, LOOP, LOOP])
}

#[test]
fn results_that_were_passed_on_to_others_were_not_waited_for() {
    let expected = ticks(&[("work 20", 2), ("work 30", 7), ("timer", 9)]);
    for mailboxes in SEPARATE {
        let scene = results_passed_on("#.....####.####.##############");
        assert_eq!(mailboxes.blame(scene), expected, "{mailboxes:?}");
    }
}

/// Nobody is woken when V's results come: it may take all of them to make what A gets.
#[test]
fn results_that_were_passed_on_to_nobody_else_were_waited_for() {
    let expected = ticks(&[("work 20", 5), ("work 30", 1), ("work 50", 11), ("timer", 1)]);
    for mailboxes in SEPARATE {
        let scene = results_passed_on("##############################");
        assert_eq!(mailboxes.blame(scene), expected, "{mailboxes:?}");
    }
}

/// U's result for A comes while V's is passed on to B: nothing shows from whom it was.
#[test]
fn a_result_that_came_while_another_was_passed_on_is_nobodys() {
    let expected = ticks(&[("work 20", 5), ("event_loop", 13)]);
    for mailboxes in SEPARATE {
        let scene = Scene::new(30)
            .thread(A, FUTEX, "##..................##..##..##", &[LOOP, LOOP, LOOP])
            .thread(LOOP, FUTEX, ".....#....#....######.###.####", &[V, V, V, U, U])
            .thread(U, FUTEX, "##############################", &[])
            .thread(V, FUTEX, "##############################", &[])
            .thread(B, FUTEX, "#.....####.####.##############", &[LOOP, LOOP, LOOP]);
        assert_eq!(mailboxes.blame(scene), expected, "{mailboxes:?}");
    }
}

/// Threads that hand one connection round, each for two ticks, in this order; all in one process, each
/// on a condition variable of its own. The stack says where thread `tid` waits.
fn handed_round(stack: impl Fn(u32) -> &'static str) -> Scene {
    const ORDER: [u32; 18] =
        [U, LOOP, B, U, LOOP, A, U, LOOP, B, U, LOOP, A, B, LOOP, U, B, LOOP, A];
    let mut scene = Scene::new(2 * ORDER.len());
    for tid in [A, LOOP, U, B] {
        let life: String = ORDER.iter().map(|&it| if it == tid { "##" } else { ".." }).collect();
        let turns = ORDER.windows(2).filter(|pair| pair[1] == tid);
        scene = scene.thread(tid, FUTEX, &life, &turns.map(|pair| pair[0]).collect::<Vec<_>>());
    }
    in_functions(Mailboxes::Conditions.put_into(scene), stack)
}

/// Has each thread of a process wait in a function.
fn in_functions(mut scene: Scene, function: impl Fn(u32) -> &'static str) -> Scene {
    let mut stacks = BTreeMap::new();
    for tid in [A, LOOP, U, B] {
        let function = function(tid);
        let frames = [format!("app {function}"), "app main".to_owned()];
        let frames = frames.each_ref().map(String::as_str);
        stacks.entry(function).or_insert_with(|| user(&mut scene.recording, LOOP, &frames));
    }
    edit(&mut scene.recording, |waits| {
        for wait in waits.iter_mut() {
            wait.user_stack = stacks[function(wait.tid.0)];
        }
    });
    scene
}

/// A pool's connection, for which each thread waits in `borrow`: A waits for all that had it meanwhile.
#[test]
fn what_threads_hand_round_from_one_place_of_the_program_is_no_message() {
    let blame = handed_round(|_| "borrow").blame_of_wait(1);
    assert_eq!(blame, ticks(&[("work 20", 4), ("work 30", 4), ("work 40", 2)]));
}

/// The same wakes among threads that wait in different functions: one may pass on what others make.
#[test]
fn what_is_passed_on_between_different_places_may_be_a_message() {
    let function = |tid| match tid {
        A => "get_a",
        B => "get_b",
        U => "take_job",
        _ => "take_result",
    };
    let blame = handed_round(function).blame_of_wait(1);
    assert!(blame.contains_key("event_loop"), "{blame:?}");
}

/// Clients that wait in the same function as the loop, a queue's `take`, wake the loop alone.
#[test]
fn clients_that_wait_in_the_same_place_as_the_loop_hand_nothing_round() {
    let scene = Mailboxes::Conditions.put_into(behind_server(LIFE_OF_B, &[A, B, B, U]));
    let blame = in_functions(scene, |_| "take").blame();
    assert_eq!(blame, ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]));
}

/// The word on which threads of a gang sleep until there is something to do.
const START: u64 = 0x9000;

/// A's request comes while the loop is awake, so that nobody sees it. The loop works on it in five phases,
/// which U and B do in turn: a garbage collector's threads, say.
fn behind_gang(start: u64, woken: u64) -> Scene {
    let scene = Scene::new(28)
        .thread(A, FUTEX, "##......................####", &[LOOP])
        .thread(LOOP, FUTEX, "###...#...#...#...#...######", &[U, B, U, B, U])
        .thread(U, FUTEX, "...###.....###.....###...###", &[LOOP; 4])
        .thread(B, FUTEX, ".......###.....###.......###", &[LOOP; 3]);
    let mut scene = Mailboxes::Conditions.put_into(scene);
    edit(&mut scene.recording, |waits| {
        let gang = waits.iter_mut().filter(|wait| [Tid(U), Tid(B)].contains(&wait.tid));
        for wait in gang {
            let address = if wait.tid == Tid(U) { START } else { start };
            wait.syscall = syscall(FUTEX, [address, WAIT_PRIVATE, 0, 0, 0, 0]);
            if let Some(wake) = &mut wait.wake {
                wake.syscall = syscall(FUTEX, [address, WAKE_PRIVATE, woken, 0, 0, 0]);
            }
        }
    });
    scene
}

/// Both sleep on one semaphore, and whichever takes a job is none that could be answered.
#[test]
fn threads_that_sleep_on_one_semaphore_work_for_who_wakes_them() {
    let blame = behind_gang(START, 1).blame();
    assert_eq!(blame, ticks(&[("work 20", 7), ("work 30", 9), ("work 40", 6)]));
}

/// Each on a semaphore of its own: they may be clients that ask again and again.
#[test]
fn threads_that_sleep_on_semaphores_of_their_own_may_be_clients() {
    let blame = behind_gang(START + 0x1000, 1).blame();
    assert!(blame.contains_key("event_loop"), "{blame:?}");
}

/// All are woken whenever anybody's answer is there: they may be clients, too.
#[test]
fn threads_that_are_all_woken_at_once_may_be_clients() {
    let blame = behind_gang(START, i32::MAX as u64).blame();
    assert!(blame.contains_key("event_loop"), "{blame:?}");
}
