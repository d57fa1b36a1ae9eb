//! Requests that lay in a socket while their server worked for others.

use arrow_array::{Array as _, Int64Array, RecordBatch};
use offwake_analysis::{
    analysis::{Analysis, AnalysisInput, AnalysisOptions},
    export::request_batches,
    requests::{CulpritShare, RequestClass, Requests},
};
use offwake_recording::{
    FileId, FileKind, OpenFile, ReadyFile, Recording, SocketEnd, SocketRole, WakeContext,
    units::{Nanos, Tid},
};

use crate::{
    draw::{edit, live, lose, recording, ticks},
    fixtures::{EPOLL_WAIT, RECVFROM, file, syscall},
    requests::{class_of, find},
};

/// The threads of one stretch of time: three clients and their server, and who sets the server to work, if it sleeps.
struct Scene {
    clients: [&'static str; 3],
    server: &'static str,
    /// Who ends each wait of the server's.
    woken_by: &'static [u32],
}

/// 7 asks alone, and 60 answers at once.
const ALONE: Scene = Scene {
    clients: [
        "##....##############", //
        "####################",
        "####################",
    ],
    server: "..####..............",
    woken_by: &[7],
};

/// 7 asks while 60 works for 8.
const QUEUED: Scene = Scene {
    clients: [
        "#####........#######", //
        "##.......###########",
        "####################",
    ],
    server: "..###########.......",
    woken_by: &[8],
};

/// 60 has read 7's request, and sleeps until its own timer strikes.
const KEPT: Scene = Scene {
    clients: [
        "#####............###", //
        "##.......###########",
        "####################",
    ],
    server: "..#######....####...",
    woken_by: &[8, 1],
};

/// 8 and 9 ask while 60 works for 7, and 60 answers both of them after it has worked for both.
const TOGETHER: Scene = Scene {
    clients: [
        "##......############", //
        "####.........#######",
        "#####........#######",
    ],
    server: "..############......",
    woken_by: &[7],
};

fn client_of(scenes: &[&Scene], n: usize) -> String {
    scenes.iter().map(|scene| scene.clients[n]).collect()
}

/// The socket of a client, or the server's end of it.
fn socket(r: &mut Recording, client: u32, role: SocketRole) -> FileId {
    let is_serving = role == SocketRole::Serving;
    let id = file(FileKind::Socket, u64::from(client) * 2 + u64::from(is_serving));
    let (own, servers) = (format!("127.0.0.1:{}", 40_000 + client), "127.0.0.1:80".to_owned());
    let (local, remote) = if is_serving { (servers, own) } else { (own, servers) };
    let (protocol, role) = ("tcp".to_owned(), Some(role));
    let socket = SocketEnd { protocol, local, remote, role, peers: Vec::new() };
    r.files.files.insert(id, OpenFile::Socket(socket));
    id
}

fn play(scenes: &[&Scene]) -> Recording {
    let mut r = recording(20 * scenes.len());
    for (tid, n) in [7, 8, 9].into_iter().zip(0..) {
        live(&mut r, tid, &client_of(scenes, n), 60);
    }
    let server: String = scenes.iter().map(|scene| scene.server).collect();
    live(&mut r, 60, &server, 7);
    let wakers: Vec<u32> = scenes.iter().flat_map(|scene| scene.woken_by).copied().collect();
    let ends = [7, 8, 9].map(|client| {
        (
            client,
            socket(&mut r, client, SocketRole::Asking),
            socket(&mut r, client, SocketRole::Serving),
        )
    });
    edit(&mut r, |waits| {
        for wait in waits {
            if let Some(&(_, asking, _)) =
                ends.iter().find(|&&(client, ..)| wait.tid == Tid(client))
            {
                wait.syscall = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
                wait.file = Some(asking);
                continue;
            }
            wait.syscall = syscall(EPOLL_WAIT, [4, 0, 0, 0, 0, 0]);
            wait.file = Some(file(FileKind::Anonymous, 1));
            let Some(wake) = &mut wait.wake else { continue };
            let Some(&waker) = wakers.get(wait.seq as usize - 1) else { continue };
            (wake.current.tid, wake.current.tgid.0) = (Tid(waker), waker);
            match ends.iter().find(|&&(client, ..)| client == waker) {
                Some(&(.., file)) => wake.ready = Some(ReadyFile { descriptor: 5, file }),
                None => wake.context = WakeContext::Hrtimer,
            }
        }
    });
    r
}

/// 300 requests, of which one in ten is in the other scene.
fn play_now_and_then(scene: &Scene) -> Requests {
    let scenes: Vec<&Scene> = (0..300).map(|n| if n % 10 == 9 { scene } else { &ALONE }).collect();
    find(&mut play(&scenes))
}

fn queued(class: &RequestClass) -> Vec<&CulpritShare> {
    let all = class.bands.iter().flat_map(|band| &band.culprits);
    all.filter(|one| one.queued_behind.is_some()).collect()
}

#[test]
fn what_a_server_did_for_others_is_what_a_request_was_queued_behind() {
    let requests = play_now_and_then(&QUEUED);
    let class = class_of(&requests, "thread60");
    assert_eq!((class.count, class.latency.max_ns), (330, ticks(8)));
    let slow = class.slow.as_ref().expect("enough of them");
    let first = slow.excess.first().expect("something makes the difference");
    assert_eq!(first.culprit.text, "queued behind other requests");
    let meanwhile: Vec<&str> =
        first.culprit.meanwhile.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(meanwhile, ["thread60 60 runs on a CPU"]);
    // Half of the slow ones' time is the server's own part of them.
    assert_eq!((first.without.max_ns, class.service.max_ns), (ticks(7), ticks(7)));
    assert_eq!(first.culprit.queued_behind.as_deref(), Some("tcp 127.0.0.1:80"));
    // 30 of the 33 slow ones waited for 4 ticks, and worked on for 4.
    assert_eq!(first.excess_ns.0 / 1_000, ticks(4).0 * 30 / 33 / 1_000);
}

#[test]
fn where_records_of_the_server_are_lost_nothing_tells_of_a_queue() {
    let scenes: Vec<&Scene> = (0..300).map(|n| if n % 10 == 9 { &KEPT } else { &ALONE }).collect();
    let mut recording = play(&scenes);
    // That 60 slept while it had 7's request: the second one of two waits, after one for each scene before.
    for (n, before) in (9..300).step_by(10).zip(0..) {
        lose(&mut recording, 60, n + before + 2);
    }
    let requests = find(&mut recording);
    assert!(requests.classes.iter().all(|class| queued(class).is_empty()));
}

#[test]
fn who_has_read_a_request_and_sleeps_has_no_queue() {
    let requests = play_now_and_then(&KEPT);
    let class = class_of(&requests, "thread60");
    assert_eq!(class.latency.max_ns, ticks(12));
    assert_eq!(queued(class), Vec::<&CulpritShare>::new());
}

#[test]
fn answers_that_are_sent_together_were_worked_on_together() {
    let requests = play_now_and_then(&TOGETHER);
    let class = class_of(&requests, "thread60");
    assert_eq!(class.latency.max_ns, ticks(9));
    // Only the work for 7 is known not to be for 8 or 9: 4 ticks, and 3.
    let all = queued(class);
    let ns = |one: &&CulpritShare| one.mean_ns;
    assert!(all.iter().all(|one| one.mean_ns <= ticks(4)), "{:?}", all.iter().map(ns).max());
    assert!(!all.is_empty());
}

#[test]
fn a_band_has_the_waits_of_its_requests_alone() {
    let scenes: Vec<&Scene> =
        (0..300).map(|n| if n % 10 == 9 { &QUEUED } else { &ALONE }).collect();
    let mut recording = play(&scenes);
    recording.sort();
    let input = AnalysisInput::new(recording);
    let mut analysis = Analysis::new(&input, AnalysisOptions::default());
    analysis.restrict_to_band("p90".parse().expect("a band"));
    let report = analysis.report();
    assert_eq!(report.filter.band.as_deref(), Some("p90–100"));
    // 330 requests: the slowest 33 are the 30 that were queued, 8 ticks each, and 3 of 8's, 7 ticks each.
    let blocked: Nanos = report.threads.iter().map(|thread| thread.ledger.blocked_ns).sum();
    let shown = blocked - report.filter.left_out_ns;
    assert_eq!(shown, ticks(30 * 8 + 3 * 7));
    // Of the fast half, nobody was queued.
    let mut analysis = Analysis::new(&input, AnalysisOptions::default());
    analysis.restrict_to_band("p50".parse().expect("a band"));
    let report = analysis.report();
    assert!(report.waits.iter().all(|wait| wait.longest_ns <= ticks(4)));
}

#[test]
fn a_table_has_each_request() {
    let scenes: Vec<&Scene> =
        (0..300).map(|n| if n % 10 == 9 { &QUEUED } else { &ALONE }).collect();
    let mut recording = play(&scenes);
    recording.sort();
    let input = AnalysisInput::new(recording);
    let analysis = Analysis::new(&input, AnalysisOptions::default());
    let rows: Vec<RecordBatch> = (request_batches(analysis.requests(), analysis.blame())
        .into_iter())
    .map(|batch| batch.expect("equally long columns"))
    .collect();
    let sum = |name: &str| -> i64 {
        let columns = rows.iter().filter_map(|batch| batch.column_by_name(name));
        let columns = columns.filter_map(|column| column.as_any().downcast_ref::<Int64Array>());
        columns.map(|column| column.values().iter().sum::<i64>()).sum()
    };
    let ms = 1_000_000;
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 330);
    assert_eq!(sum("queued_ns"), 30 * 4 * ms);
    assert_eq!(sum("latency_ns"), (270 * 4 + 30 * 7 + 30 * 8) * ms);
    // Without what it was queued behind: 60 works for 7 ticks on the one, and for 4 on the other.
    assert_eq!(sum("service_ns"), (270 * 4 + 30 * 7 + 30 * 4) * ms);
}
