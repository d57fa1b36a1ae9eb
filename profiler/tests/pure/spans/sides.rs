//! Who asks and who serves, where a socket tells.

use offwake_analysis::spans::{LeftOut, Spans};
use offwake_recording::{
    FileKind, OpenFile, PeerProcess, SocketEnd,
    units::{Tgid, Tid},
};

use super::{find, outline};
use crate::{
    draw::{edit, live, recording},
    fixtures::{READ, file, syscall, tcp},
};

/// 60 asks, 7 serves; the target is the server alone.
fn served(asker: SocketEnd, server: SocketEnd) -> Spans {
    let mut r = recording(16);
    live(&mut r, 60, "##......##......", 7);
    live(&mut r, 7, ".#######.#######", 60);
    for (tid, inode, socket) in [(60, 5, asker), (7, 6, server)] {
        let socket_file = file(FileKind::Socket, inode);
        r.files.files.insert(socket_file, OpenFile::Socket(socket));
        edit(&mut r, |waits| {
            for wait in waits.iter_mut().filter(|wait| wait.tid == Tid(tid)) {
                wait.syscall = syscall(READ, [4, 0, 0, 0, 0, 0]);
                wait.file = Some(socket_file);
            }
        });
    }
    find(&mut r)
}

#[test]
fn a_server_that_is_the_target_shows_what_it_was_asked() {
    let end = |protocol: &str, local: &str, remote: &str| SocketEnd {
        protocol: protocol.to_owned(),
        local: local.to_owned(),
        remote: remote.to_owned(),
        role: None,
        peers: vec![PeerProcess { tgid: Tgid(1), comm: "x".to_owned() }],
    };
    let bound = served(end("unix", "", "@server"), end("unix", "@server", ""));
    assert_eq!(
        outline(&bound),
        [
            "client 60 1..8: self 1, on 7",
            "  server 7 1..8: self 7, RequestedBy",
            "client 60 9..16: self 1, on 7, unfinished",
            "  server 7 9..16: self 7, unfinished, RequestedBy",
        ]
    );
    assert_eq!(bound.left_out, LeftOut { idle: 2, ..LeftOut::default() });
    // Nothing tells the ends of a pair apart: the wait of the target is shown.
    let pair = served(end("unix", "", ""), end("unix", "", ""));
    assert_eq!(
        outline(&pair),
        [
            "internal 7 0..1: self 0, on 60, EndedBy",
            "internal 60 0..1: self 1",
            "client 7 8..9: self 0, on 60",
            "  server 60 8..9: self 1, RequestedBy"
        ]
    );
}

#[test]
fn a_port_of_several_connections_is_the_servers() {
    let draw = |other: Option<&str>| {
        let mut r = recording(16);
        live(&mut r, 7, "##......########", 60);
        live(&mut r, 60, ".#######........", 7);
        let asking = tcp(&mut r, 5, "127.0.0.1:40000", "127.0.0.1:7000");
        let serving = tcp(&mut r, 6, "127.0.0.1:7000", "127.0.0.1:40000");
        if let Some(other) = other {
            tcp(&mut r, 7, "127.0.0.1:7000", other);
        }
        edit(&mut r, |waits| {
            for wait in waits {
                wait.syscall = syscall(READ, [4, 0, 0, 0, 0, 0]);
                wait.file = Some(if wait.tid == Tid(7) { serving } else { asking });
            }
        });
        find(&mut r).left_out.idle
    };
    assert_eq!(draw(None), 0);
    assert_eq!(draw(Some("127.0.0.1:40002")), 1);
    assert_eq!(draw(Some("")), 1);
}

#[test]
fn who_made_the_connection_asks_though_the_server_was_busy() {
    let draw = |remote: &str| {
        let mut r = recording(12);
        live(&mut r, 7, "##......####", 60);
        live(&mut r, 60, "############", 7);
        let socket = file(FileKind::Socket, 5);
        let end = SocketEnd {
            protocol: "unix".to_owned(),
            local: String::new(),
            remote: remote.to_owned(),
            role: None,
            peers: Vec::new(),
        };
        r.files.files.insert(socket, OpenFile::Socket(end));
        edit(&mut r, |waits| {
            waits[0].syscall = syscall(READ, [4, 0, 0, 0, 0, 0]);
            waits[0].file = Some(socket);
        });
        outline(&find(&mut r))
    };
    assert_eq!(
        draw("@server"),
        ["client 7 2..8: self 0, on 60", "  server 60 2..8: self 6, RequestedBy"]
    );
    assert_eq!(draw("")[0], "internal 7 2..8: self 0, on 60, EndedBy");
}
