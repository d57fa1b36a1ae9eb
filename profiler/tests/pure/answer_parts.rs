//! Answers of which a first part came from their sender, and the rest when TCP sent what it had held back.

use std::collections::BTreeMap;

use offwake_recording::{
    FileId, OpenFile, PeerProcess, ReadyFile, WakeContext,
    units::{Tgid, Tid},
};

use crate::{
    draw::edit,
    event_loops::{A, B, LOOP, Scene, TIMER, U, V, ticks},
    fixtures::{EPOLL_WAIT, RECVFROM, packet_over},
};

const NET_RX: WakeContext = WakeContext::Softirq(3);

/// Lets a timer of TCP's end the loop's wait of this number, through a socket.
fn let_timer_deliver(mut scene: Scene, n: usize, (file, server): (FileId, u32)) -> Scene {
    if let Some(OpenFile::Socket(socket)) = scene.recording.files.files.get_mut(&file) {
        socket.peers = vec![PeerProcess { tgid: Tgid(server), comm: "server".to_owned() }];
    }
    let timer =
        ["__irq_exit_rcu", "sysvec_apic_timer_interrupt", "asm_sysvec_apic_timer_interrupt"];
    let stack = packet_over(&mut scene.recording, &timer);
    edit(&mut scene.recording, |waits| {
        let wait = waits.iter_mut().filter(|wait| wait.tid == Tid(LOOP)).nth(n).expect("a wait");
        let wake = wait.wake.as_mut().expect("woken");
        (wake.context, wake.kernel_stack) = (NET_RX, stack);
        wake.ready = Some(ReadyFile { descriptor: 5, file });
    });
    scene
}

/// A waits for the loop, and the loop for U, which sleeps from tick 5 to 9, sends the first part at 10
/// and the rest before it waits again at 12. TCP holds the rest back until tick 19. B comes in between,
/// and the loop asks V for it.
fn blame(through: impl Fn(&Scene) -> (FileId, u32)) -> BTreeMap<String, u64> {
    let scene = Scene::new(24)
        .thread(A, RECVFROM, "##..................####", &[LOOP])
        .thread(LOOP, EPOLL_WAIT, "..##......#....##..#####", &[A, U, B, TIMER])
        .thread(U, RECVFROM, "...##....###..........##", &[LOOP, TIMER, LOOP])
        .thread(V, RECVFROM, "................##......", &[LOOP])
        .thread(B, RECVFROM, "###############.........", &[]);
    let through = through(&scene);
    let_timer_deliver(scene, 3, through).blame()
}

#[test]
fn what_tcp_holds_back_of_an_answer_is_the_servers_until_it_has_sent_it() {
    let expected = ticks(&[("work 20", 2), ("work 30", 5), ("timer", 4), ("tcp_timer", 7)]);
    assert_eq!(blame(|scene| (scene.end_of(LOOP, U), U)), expected);
}

/// V was asked through that connection for B: what came through it says nothing about A.
#[test]
fn what_tcp_held_back_of_an_answer_to_another_is_none_of_the_waiters() {
    let blamed = blame(|scene| (scene.end_of(LOOP, V), V));
    assert!(!blamed.contains_key("work 30") && !blamed.contains_key("work 50"), "{blamed:?}");
}
