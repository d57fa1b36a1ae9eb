//! What comes to an event loop through `ksoftirqd`: it says as much about the loop's clients as what their
//! threads send themselves.

use offwake_recording::{
    OpenFile, PeerProcess, ReadyFile, WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::{edit, live},
    event_loops::{A, B, LOOP, Scene, TIMER, U, ticks},
    fixtures::{EPOLL_WAIT, RECVFROM, packet_over},
};

const NET_RX: WakeContext = WakeContext::Softirq(3);
const SOFTIRQD: u32 = 60;

/// Lets `ksoftirqd` deliver what `sender` sends to the loop.
fn deliver(mut scene: Scene, sender: u32, life_of_softirqd: &str) -> Scene {
    let own = scene.end_of(LOOP, sender);
    if let Some(OpenFile::Socket(end)) = scene.recording.files.files.get_mut(&own) {
        end.peers = vec![PeerProcess { tgid: Tgid(sender), comm: "peer".to_owned() }];
    }
    let stack =
        packet_over(&mut scene.recording, &["run_ksoftirqd", "smpboot_thread_fn", "kthread"]);
    edit(&mut scene.recording, |waits| {
        for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(LOOP)) {
            let Some(wake) = wait.wake.as_mut().filter(|wake| wake.current.tid == Tid(sender))
            else {
                continue;
            };
            (wake.context, wake.kernel_stack) = (NET_RX, stack);
            (wake.current.tid, wake.current.tgid) = (Tid(SOFTIRQD), Tgid(SOFTIRQD));
            (wake.syscall, wake.file) = (None, None);
            wake.ready = Some(ReadyFile { descriptor: 6, file: own });
        }
    });
    live(&mut scene.recording, SOFTIRQD, life_of_softirqd, sender);
    scene
}

/// A waits for the loop, and the loop for U, from tick 3 to 18. B's requests come in between.
fn behind_server() -> Scene {
    Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##....#....#....######", &[A, B, B, U])
        .thread(U, RECVFROM, "...#####.........#######", &[LOOP, TIMER])
        .thread(B, RECVFROM, "########.####.##########", &[LOOP, LOOP])
}

#[test]
fn another_clients_request_says_nothing_however_it_is_delivered() {
    let expected = ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]);
    assert_eq!(behind_server().blame(), expected);
    let delivered = deliver(behind_server(), B, ".......##...##..........");
    assert_eq!(delivered.blame(), expected);
}

#[test]
fn a_server_is_waited_for_whose_answer_ksoftirqd_delivers() {
    let expected = ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]);
    let delivered = deliver(behind_server(), U, ".................###....");
    assert_eq!(delivered.blame(), expected);
}

/// The slice in which the loop asks U is A's, though `ksoftirqd` delivered A's request.
#[test]
fn a_slice_is_the_clients_whose_request_ksoftirqd_delivers() {
    let delivered = deliver(behind_server(), A, ".##.....................");
    let expected = ticks(&[("work 20", 3), ("work 30", 6), ("timer", 9)]);
    assert_eq!(delivered.blame(), expected);
}

/// A loop that asks nobody goes on with A's request when B sends something; but of what `ksoftirqd` delivers,
/// several things may have come at once.
#[test]
fn a_client_is_not_waited_for_whose_request_came_with_others() {
    let scene = || {
        Scene::new(400)
            .thread(A, RECVFROM, &format!("##{}####", ".".repeat(394)), &[LOOP])
            .thread(LOOP, EPOLL_WAIT, &format!("..#{}######", ".".repeat(391)), &[A, B])
            .thread(B, RECVFROM, &"#".repeat(400), &[])
    };
    assert!(scene().blame().contains_key("work 40"), "{:?}", scene().blame());
    let life = format!("{}#######", ".".repeat(393));
    let delivered = deliver(scene(), B, &life).blame();
    assert!(!delivered.contains_key("work 40"), "{delivered:?}");
    assert!(delivered.contains_key("event_loop"), "{delivered:?}");
}
