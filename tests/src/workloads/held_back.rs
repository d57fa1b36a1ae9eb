//! A server that answers in two pieces, over TCP on this machine.
//!
//! ```text
//! server   │recv│ send 1st, send 2nd │recv ………………………………………………………………………│
//! TCP                    └ held back: the 1st is not acknowledged yet    └▶ sent
//! client   │recv ……… 1st│recv ……………………………………………… 40 ms ………………………………………………… 2nd│
//!                       └ acknowledged later, by the timer ──────────▶┘
//! ```
//!
//! That is Nagle's algorithm (RFC 896) at one end and the delayed acknowledgement (RFC 1122) at the
//! other. With `TCP_NODELAY` the server's second piece goes out at once. The client waits in `recvfrom`,
//! or for the same socket in `epoll_wait`.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::Result;

use super::{polls, stage::Stage};

/// What the server computes for an answer.
const WORK: Duration = Duration::from_millis(2);

/// What the client waits in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitsIn {
    Recv,
    Epoll,
}

/// When the second piece is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecondPiece {
    AtOnce,
    WhenTheFirstIsAcknowledged,
}

/// TCP holds the second piece back.
pub(super) fn until_a_timer(stage: &Stage) -> Result<()> {
    answer_in_pieces(stage, SecondPiece::WhenTheFirstIsAcknowledged, WaitsIn::Recv)
}

/// The second piece is sent at once.
pub(super) fn not_at_all(stage: &Stage) -> Result<()> {
    answer_in_pieces(stage, SecondPiece::AtOnce, WaitsIn::Recv)
}

/// TCP holds the second piece back, and the client waits for it in `epoll_wait`.
pub(super) fn until_a_timer_in_epoll(stage: &Stage) -> Result<()> {
    answer_in_pieces(stage, SecondPiece::WhenTheFirstIsAcknowledged, WaitsIn::Epoll)
}

/// The second piece is sent at once, and the client waits for it in `epoll_wait`.
pub(super) fn not_at_all_in_epoll(stage: &Stage) -> Result<()> {
    answer_in_pieces(stage, SecondPiece::AtOnce, WaitsIn::Epoll)
}

fn answer_in_pieces(stage: &Stage, second: SecondPiece, waits_in: WaitsIn) -> Result<()> {
    let (client, server) = (stage.role("client")?, stage.role("server")?);
    let stopped = stage.stopped();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    stage.process(|| {
        server.claim("ow-server");
        let Ok((mut connection, _)) = listener.accept() else { return };
        let no_delay = second == SecondPiece::AtOnce;
        assert!(connection.set_nodelay(no_delay).is_ok(), "cannot set TCP_NODELAY");
        let mut request = [0];
        while connection.read_exact(&mut request).is_ok() {
            server.computes(WORK);
            let sent = connection.write_all(b"1").and_then(|()| connection.write_all(b"2"));
            if sent.is_err() {
                break;
            }
        }
    })?;
    stage.process(|| {
        client.claim("ow-client");
        let Ok(mut connection) = TcpStream::connect(address) else { return };
        let Ok(epoll) = polls::epoll_on(&connection) else { return };
        while stopped.load(SeqCst) == 0 {
            let answered = client.waits(|| {
                connection.write_all(b"?")?;
                for byte in &mut [[0]; 2] {
                    if waits_in == WaitsIn::Epoll {
                        polls::waits_in_epoll(epoll.as_raw_fd());
                    }
                    connection.read_exact(byte)?;
                }
                std::io::Result::Ok(())
            });
            assert!(answered.is_ok(), "no answer: {answered:?}");
        }
    })?;
    stage.play(|| ())
}
