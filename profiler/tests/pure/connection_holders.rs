//! Waits at connections that never end: which of several processes that hold the other end has to answer, and
//! which of a server's threads.

use offwake_analysis::findings::Finding;
use offwake_recording::{
    FileId, FileKind, OpenFile, PeerProcess, Recording, SocketEnd, SocketRole, StackRef, Wait,
    units::{Tgid, Tid},
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{CONNECT, EPOLL_WAIT, FUTEX, RECVFROM, WAIT4, file, syscall, tcp},
    open_waits::{LENGTH, change, findings, in_process, mutex, sets, sleeps_in, waits_in},
};

const CLIENT: u32 = 7;
const ACCEPT: u32 = 43;
const SENDTO: u32 = 44;
/// The client's end of the connection, and the other one; another client's connection, at the server's end.
const FRONT: u64 = 7;
const BACK: u64 = 100;
const OTHER_BACK: u64 = 200;

fn socket(inode: u64) -> FileId {
    file(FileKind::Socket, inode)
}

fn end_of(r: &mut Recording, inode: u64) -> &mut SocketEnd {
    let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket(inode)) else { unreachable!() };
    end
}

/// A client that asked at the fifth tick, and waits for the answer since. These hold the other end.
fn client_of(holders: &[u32]) -> Recording {
    let mut r = recording(LENGTH);
    live(&mut r, CLIENT, &format!("#####{}", "_".repeat(LENGTH - 5)), 0);
    tcp(&mut r, FRONT, "127.0.0.1:4000", "127.0.0.1:5432");
    tcp(&mut r, BACK, "127.0.0.1:5432", "127.0.0.1:4000");
    tcp(&mut r, OTHER_BACK, "127.0.0.1:5432", "127.0.0.1:4001");
    for back in [BACK, OTHER_BACK] {
        end_of(&mut r, back).role = Some(SocketRole::Serving);
    }
    end_of(&mut r, FRONT).role = Some(SocketRole::Asking);
    end_of(&mut r, FRONT).peers = (holders.iter())
        .map(|&tgid| PeerProcess { tgid: Tgid(tgid), comm: format!("thread{tgid}") })
        .collect();
    let call = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
    change(&mut r, CLIENT, |wait| {
        sets(StackRef::NotTaken, call)(wait);
        wait.file = Some(socket(FRONT));
    });
    r
}

/// Changes one wait of a thread: the one with this number.
fn change_wait(r: &mut Recording, tid: u32, seq: u32, change: impl Fn(&mut Wait)) {
    let is_it = |wait: &&mut Wait| (wait.tid, wait.seq) == (Tid(tid), seq);
    edit(r, |waits| waits.iter_mut().filter(is_it).for_each(change));
}

/// A thread that waits until the client has asked, and waits again from the seventh tick to the end.
fn woken_once(r: &mut Recording, tid: u32) {
    live(r, tid, &format!("#...##{}", "_".repeat(LENGTH - 6)), CLIENT);
}

/// Has a thread's first wait be one for data from a socket.
fn reads_first(r: &mut Recording, tid: u32, inode: u64) {
    change_wait(r, tid, 1, |wait| at_socket(wait, RECVFROM, inode));
}

fn at_socket(wait: &mut Wait, call: u32, inode: u64) {
    (wait.user_stack, wait.kernel_stack) = (StackRef::NotTaken, StackRef::NotTaken);
    (wait.syscall, wait.file) = (syscall(call, [4, 0, 0, 0, 0, 0]), Some(socket(inode)));
}

/// A thread that read the client's request, and sleeps since.
fn serves(r: &mut Recording, tid: u32, function: &str) {
    woken_once(r, tid);
    sleeps_in(r, tid, function);
    reads_first(r, tid, BACK);
}

/// A thread that has slept all along.
fn sleeps(r: &mut Recording, tid: u32, function: &str) {
    live(r, tid, &format!("#{}", "_".repeat(LENGTH - 1)), 0);
    sleeps_in(r, tid, function);
}

fn has_parent(r: &mut Recording, process: u32, parent: u32) {
    for event in r.thread_events.iter_mut().filter(|event| event.tgid == Tgid(process)) {
        event.parent = Tgid(parent);
    }
}

/// The finding about the client.
fn found(r: &mut Recording) -> Finding {
    let list = findings(r);
    let is_its = |it: &&Finding| it.chain.first().and_then(|hop| hop.tid) == Some(Tid(CLIENT));
    list.iter().find(is_its).unwrap_or_else(|| panic!("{list:#?}")).clone()
}

fn tids(found: &Finding) -> Vec<u32> {
    found.chain.iter().filter_map(|hop| hop.tid).map(|tid| tid.0).collect()
}

/// Demands that nobody is named as the one who has to answer, and that all who may be are listed.
fn check_unknown(found: &Finding, names: &str) {
    check_unknown_for(
        found,
        &format!("who has to answer is not known: {names} hold the other end"),
    );
}

fn check_unknown_for(found: &Finding, unknown: &str) {
    assert_eq!(tids(found), [CLIENT], "{found:#?}");
    assert_eq!(found.cause.text, unknown);
    assert!(found.lines.iter().all(|line| !line.is_cause), "{found:#?}");
    assert!(found.lines.iter().any(|line| line.text == unknown), "{found:#?}");
}

#[test]
fn of_several_holders_it_is_the_one_that_read_the_request() {
    for (server, keeper) in [(60, 61), (61, 60)] {
        let mut r = client_of(&[60, 61]);
        serves(&mut r, server, "export");
        sleeps(&mut r, keeper, "rest");
        let found = found(&mut r);
        assert_eq!(tids(&found), [CLIENT, server], "{found:#?}");
        let cause = format!("thread{server} {server} has not answered: sleeps in export");
        assert_eq!(found.cause.text, cause);
        assert!(found.lines.last().unwrap().is_cause, "{found:#?}");
    }
}

/// At the end of one that listens for IPv6, the other one's address is written as one of IPv6.
#[test]
fn an_end_that_has_addresses_of_ipv6_is_the_same_connections() {
    for (client, is_known) in
        [("[::ffff:127.0.0.1]:4000", true), ("[::ffff:127.0.0.1]:4009", false)]
    {
        let mut r = client_of(&[60, 61]);
        serves(&mut r, 61, "export");
        sleeps(&mut r, 60, "rest");
        let end = end_of(&mut r, BACK);
        (end.local, end.remote) = ("[::ffff:127.0.0.1]:5432".to_owned(), client.to_owned());
        assert_eq!(tids(&found(&mut r)) == [CLIENT, 61], is_known);
    }
}

#[test]
fn of_several_holders_of_which_nothing_is_known_none_is_the_cause() {
    let mut r = client_of(&[60, 61]);
    sleeps(&mut r, 60, "export");
    sleeps(&mut r, 61, "rest");
    let it = found(&mut r);
    check_unknown(&it, "thread60 60, thread61 61");
    let told: Vec<_> = it.lines.iter().map(|line| (line.depth, &*line.text)).collect();
    let [.., (1, _), (2, first), (2, second)] = *told else { panic!("{told:#?}") };
    assert_eq!((first, second), ("thread60 60 sleeps", "thread61 61 sleeps"));
    // Many are counted.
    let mut r = client_of(&[60, 61, 62, 63, 64]);
    check_unknown(&found(&mut r), "thread60 60, thread61 61, thread62 62, 2 more");
    // Who read another connection's request has not read this one's.
    let mut r = client_of(&[60, 61]);
    serves(&mut r, 61, "export");
    reads_first(&mut r, 61, OTHER_BACK);
    sleeps(&mut r, 60, "rest");
    check_unknown(&found(&mut r), "thread60 60, thread61 61");
}

#[test]
fn a_holder_that_waits_for_the_end_of_another_one_only_keeps_the_connection_open() {
    let found = |parent: u32, child: u32, awaited: u32| {
        let mut r = client_of(&[60, 61]);
        sleeps(&mut r, parent, "rest");
        let call = syscall(WAIT4, [awaited.into(), 0, 0, 0, 0, 0]);
        change(&mut r, parent, sets(StackRef::NotTaken, call));
        sleeps(&mut r, child, "export");
        sleeps(&mut r, 62, "upload");
        has_parent(&mut r, child, parent);
        has_parent(&mut r, 62, parent);
        found(&mut r)
    };
    for (parent, child) in [(60, 61), (61, 60)] {
        let it = found(parent, child, child);
        assert_eq!(tids(&it), [CLIENT, child], "{it:#?}");
        assert!(it.cause.text.ends_with("has not answered: sleeps in export"), "{it:#?}");
        // It may serve the connection itself, and need what the other child does.
        check_unknown(&found(parent, child, 62), "thread60 60, thread61 61");
    }
}

/// A server reads who it is that comes, makes a process for it, and sleeps until it looks after that one.
#[test]
fn who_read_before_it_made_another_holder_may_have_left_the_connection_to_that_one() {
    for (born, is_known) in [(10, false), (0, true)] {
        let mut r = client_of(&[60, 61]);
        serves(&mut r, 60, "look_after_children");
        live(&mut r, 61, &format!("{}#{}", " ".repeat(born), "_".repeat(LENGTH - born - 1)), 60);
        sleeps_in(&mut r, 61, "export");
        has_parent(&mut r, 61, 60);
        let it = found(&mut r);
        match is_known {
            true => assert_eq!(tids(&it), [CLIENT, 60], "{it:#?}"),
            false => check_unknown(&it, "thread60 60, thread61 61"),
        }
    }
}

/// The client has sent a part of its request; who waits for the rest of it serves it.
#[test]
fn a_holder_that_waits_for_more_from_the_client_is_the_one_that_serves_it() {
    for (server, keeper) in [(60, 61), (61, 60)] {
        let mut r = client_of(&[60, 61]);
        sleeps(&mut r, keeper, "rest");
        live(&mut r, server, &format!("#{}", "_".repeat(LENGTH - 1)), 0);
        reads_first(&mut r, server, BACK);
        end_of(&mut r, BACK).peers =
            vec![PeerProcess { tgid: Tgid(CLIENT), comm: "thread7".to_owned() }];
        let it = found(&mut r);
        assert_eq!(tids(&it), [CLIENT, server], "{it:#?}");
    }
}

/// A server of one process: 60 accepts, 61 and 62 serve a connection each.
fn threads_of_server(asked: u32, other: u32) -> Recording {
    let mut r = client_of(&[60]);
    live(&mut r, 60, &format!("#{}", "_".repeat(LENGTH - 1)), 0);
    change(&mut r, 60, |wait| at_socket(wait, ACCEPT, 300));
    serves(&mut r, asked, "export");
    serves(&mut r, other, "rest");
    reads_first(&mut r, other, OTHER_BACK);
    r
}

#[test]
fn of_a_servers_threads_it_is_the_one_that_read_the_request() {
    for (asked, other) in [(61, 62), (62, 61)] {
        let mut r = threads_of_server(asked, other);
        in_process(&mut r, 60, &[60, 61, 62]);
        let it = found(&mut r);
        assert_eq!(tids(&it), [CLIENT, asked], "{it:#?}");
        let cause = format!("thread60 60 [thread{asked}] has not answered: sleeps in export");
        assert_eq!(it.cause.text, cause);
        // The chain goes on with what that one waits for.
        mutex(&mut r, asked, 60, "book");
        change(&mut r, asked, |wait| wait.kernel_stack = StackRef::NotTaken);
        reads_first(&mut r, asked, BACK);
        in_process(&mut r, 60, &[60, 61, 62]);
        let it = found(&mut r);
        assert_eq!(tids(&it), [CLIENT, asked, 60], "{it:#?}");
    }
}

#[test]
fn of_several_holders_with_threads_it_is_the_thread_that_read_the_request() {
    for (asked, other) in [(61, 62), (62, 61)] {
        let mut r = threads_of_server(asked, other);
        end_of(&mut r, FRONT)
            .peers
            .push(PeerProcess { tgid: Tgid(50), comm: "thread50".to_owned() });
        sleeps(&mut r, 50, "rest");
        in_process(&mut r, 60, &[60, 61, 62]);
        assert_eq!(tids(&found(&mut r)), [CLIENT, asked]);
    }
}

/// Whatever a thread does that may have handed the request over to another one: only the process is named.
#[test]
fn a_thread_that_may_have_handed_the_request_over_is_not_named() {
    let found = |change: &dyn Fn(&mut Recording)| {
        let mut r = threads_of_server(61, 62);
        change(&mut r);
        in_process(&mut r, 60, &[60, 61, 62, 63]);
        found(&mut r)
    };
    let is_named = |it: &Finding| tids(it) != [CLIENT];
    assert!(is_named(&found(&|_| ())));
    let again = |call: u32, inode: u64| {
        found(&|r| change_wait(r, 61, 2, |wait| at_socket(wait, call, inode)))
    };
    for (it, why) in [
        (again(RECVFROM, BACK), "it waits for the client's next request"),
        (again(RECVFROM, OTHER_BACK), "it waits for another client's"),
        (again(ACCEPT, 300), "it waits for the next client"),
        (
            found(&|r| {
                waits_in(r, 61, "pthread_cond_wait", "next_job", 0x189);
                change(r, 61, |wait| wait.kernel_stack = StackRef::NotTaken);
                reads_first(r, 61, BACK);
            }),
            "it waits for a job",
        ),
    ] {
        assert!(!is_named(&it), "{why}: {it:#?}");
        assert_eq!(it.cause.text, "thread60 60 has not answered", "{why}");
    }
    // It has had another request since, or a job of another thread.
    let since = |call: u32, inode: u64| {
        found(&|r| {
            let life = format!("#...#....##{}", "_".repeat(LENGTH - 11));
            r.waits.retain(|_, waiter| waiter.tid != Tid(61));
            r.thread_events.retain(|event| event.tid != Tid(61));
            live(r, 61, &life, CLIENT);
            sleeps_in(r, 61, "export");
            reads_first(r, 61, BACK);
            change_wait(r, 61, 2, |wait| match call {
                FUTEX => {
                    wait.syscall = syscall(FUTEX, [9, 0x189, 0, 0, 0, 0]);
                    (wait.user_stack, wait.kernel_stack) = (StackRef::NotTaken, StackRef::NotTaken);
                }
                _ => at_socket(wait, call, inode),
            });
        })
    };
    assert!(is_named(&since(RECVFROM, BACK)), "it is the same connection's");
    for call in [RECVFROM, FUTEX] {
        assert!(!is_named(&since(call, OTHER_BACK)), "{call}");
    }
}

/// Has a thread answer the client at the third tick, where that had waited for it. The client has asked again since.
fn answers_before(r: &mut Recording, tid: u32) {
    r.waits.retain(|_, waiter| waiter.tid != Tid(CLIENT));
    r.thread_events.retain(|event| event.tid != Tid(CLIENT));
    live(r, CLIENT, &format!("#..##{}", "_".repeat(LENGTH - 5)), tid);
    change(r, CLIENT, |wait| {
        at_socket(wait, RECVFROM, FRONT);
        if let Some(wake) = &mut wait.wake {
            wake.syscall = syscall(SENDTO, [4, 0, 0, 0, 0, 0]);
            wake.file = Some(socket(BACK));
        }
    });
}

/// A worker of a pool answers one client, and takes another one's request from a queue without a wait.
#[test]
fn a_thread_that_was_only_seen_to_send_may_have_begun_with_something_else() {
    let found = |reads: u64| {
        let mut r = threads_of_server(61, 62);
        reads_first(&mut r, 61, reads);
        answers_before(&mut r, 61);
        in_process(&mut r, 60, &[60, 61, 62]);
        edit(&mut r, |waits| {
            let wakes = waits.iter_mut().filter_map(|wait| wait.wake.as_mut());
            wakes.filter(|it| it.current.tid == Tid(61)).for_each(|it| it.current.tgid = Tgid(60));
        });
        found(&mut r)
    };
    assert_eq!(tids(&found(BACK)), [CLIENT, 61]);
    assert_eq!(tids(&found(OTHER_BACK)), [CLIENT]);
}

/// Has a thread's first wait be one of a loop for all its connections, ended by what the client sent.
fn polls_first(r: &mut Recording, tid: u32) {
    change_wait(r, tid, 1, |wait| {
        at_socket(wait, EPOLL_WAIT, 0);
        wait.file = Some(file(FileKind::Anonymous, 1));
        if let Some(wake) = &mut wait.wake {
            wake.syscall = syscall(SENDTO, [3, 0, 0, 0, 0, 0]);
            wake.file = Some(socket(FRONT));
        }
    });
}

/// A worker has read what the client asked first. A loop of the server got what it asked next, and gave that to whom
/// nobody knows.
#[test]
fn who_read_an_earlier_request_is_not_named_where_a_loop_got_the_next_one() {
    for (is_next, named) in [(true, [CLIENT].as_slice()), (false, &[CLIENT, 61])] {
        let mut r = threads_of_server(61, 62);
        if is_next {
            live(
                &mut r,
                63,
                &format!("#...{}#{}", ".".repeat(10), "_".repeat(LENGTH - 15)),
                CLIENT,
            );
            change(&mut r, 63, |wait| at_socket(wait, EPOLL_WAIT, 0));
            change(&mut r, 63, |wait| wait.file = Some(file(FileKind::Anonymous, 1)));
            polls_first(&mut r, 63);
        }
        in_process(&mut r, 60, &[60, 61, 62, 63]);
        assert_eq!(tids(&found(&mut r)), named);
    }
}

/// A loop of one thread is stuck with what the client sent. The other process has inherited the connection.
#[test]
fn a_loop_of_a_single_thread_has_whatever_came_to_it() {
    for (server, keeper) in [(60, 61), (61, 60)] {
        let mut r = client_of(&[60, 61]);
        woken_once(&mut r, server);
        sleeps_in(&mut r, server, "export");
        polls_first(&mut r, server);
        sleeps(&mut r, keeper, "rest");
        let it = found(&mut r);
        assert_eq!(tids(&it), [CLIENT, server], "{it:#?}");
        // It went back into its loop: it may have passed the request on.
        change_wait(&mut r, server, 2, |wait| at_socket(wait, EPOLL_WAIT, 0));
        check_unknown(&found(&mut r), "thread60 60, thread61 61");
    }
}

/// The acceptor makes a thread for each connection. What came through it was there when that first looked.
#[test]
fn of_a_servers_threads_it_is_the_one_that_was_made_for_the_connection() {
    for (asked, other) in [(61, 62), (62, 61)] {
        let mut r = client_of(&[60]);
        live(&mut r, 60, &format!("#.#..#{}", "_".repeat(LENGTH - 6)), CLIENT);
        change(&mut r, 60, |wait| at_socket(wait, ACCEPT, 300));
        edit(&mut r, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(60)) {
                let front = if wait.seq == 2 { FRONT } else { FRONT + 1 };
                if let Some(wake) = &mut wait.wake {
                    wake.syscall = syscall(CONNECT, [3, 0, 0, 0, 0, 0]);
                    wake.file = Some(socket(front));
                }
            }
        });
        for (tid, born, function) in [(other, 2, "rest"), (asked, 5, "export")] {
            let life = format!("{}r#{}", " ".repeat(born), "_".repeat(LENGTH - born - 2));
            live(&mut r, tid, &life, 60);
            sleeps_in(&mut r, tid, function);
            // Its birth is no sleep.
            change_wait(&mut r, tid, 1, |wait| {
                (wait.syscall, wait.user_stack) = (None, StackRef::NotTaken);
                wait.kernel_stack = StackRef::NotTaken;
            });
        }
        in_process(&mut r, 60, &[60, 61, 62]);
        let it = found(&mut r);
        assert_eq!(tids(&it), [CLIENT, asked], "{it:#?}");
        assert!(it.cause.text.ends_with("sleeps in export"), "{it:#?}");
    }
}

/// Unix sockets have no addresses that tell which the other end is. An answer from one of them to the other does.
#[test]
fn the_other_end_of_a_unix_socket_is_where_an_answer_came_from() {
    for (server, keeper) in [(60, 61), (61, 60)] {
        for is_answered in [true, false] {
            let mut r = client_of(&[60, 61]);
            serves(&mut r, server, "export");
            sleeps(&mut r, keeper, "rest");
            if is_answered {
                answers_before(&mut r, server);
            }
            for inode in [FRONT, BACK] {
                let end = end_of(&mut r, inode);
                end.protocol = "unix".to_owned();
                (end.local, end.remote) = (String::new(), String::new());
            }
            let it = found(&mut r);
            match is_answered {
                true => assert_eq!(tids(&it), [CLIENT, server], "{it:#?}"),
                false => check_unknown(&it, "thread60 60, thread61 61"),
            }
        }
    }
}

/// Any of those that listen may accept a connection, and any that holds the other end may read from it.
#[test]
fn what_nobody_is_known_to_have_to_do_is_said() {
    for (call, unknown) in [
        (CONNECT, "who has to accept it is not known: thread60 60, thread61 61 listen"),
        (SENDTO, "who has to read is not known: thread60 60, thread61 61 hold the other end"),
    ] {
        let mut r = client_of(&[60, 61]);
        change(&mut r, CLIENT, |wait| wait.syscall = syscall(call, [3, 0, 0, 0, 0, 0]));
        sleeps(&mut r, 60, "export");
        sleeps(&mut r, 61, "rest");
        check_unknown_for(&found(&mut r), unknown);
    }
}
