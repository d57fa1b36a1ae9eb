//! Four pairs of client and server that talk over TCP on the loopback, all on one CPU: a packet of
//! one pair may be left over to whoever sends next, or to `ksoftirqd`.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use anyhow::Result;

use super::{
    lines::loopback_tcp,
    raw,
    stage::{Stage, pin_to_last_cpu},
};

/// The clients and their servers, and the names of their threads.
const PAIRS: [(&str, &str, &str, &str); 4] = [
    ("client-1", "ow-client-1", "server-1", "ow-server-1"),
    ("client-2", "ow-client-2", "server-2", "ow-server-2"),
    ("client-3", "ow-client-3", "server-3", "ow-server-3"),
    ("client-4", "ow-client-4", "server-4", "ow-server-4"),
];

/// How long a client sleeps after each burst: the profiler has to get a CPU as well.
const PAUSE: Duration = Duration::from_millis(1);

/// How many requests make a burst.
const BURST: usize = 8;

const END: &[u8; 8] = b"theend!!";

pub(super) fn run(stage: &Stage) -> Result<()> {
    pin_to_last_cpu()?;
    let stopped = stage.stopped();
    let mut cast = Vec::new();
    for (client, clients_comm, server, servers_comm) in PAIRS {
        let (client, server) = (stage.role(client)?, stage.role(server)?);
        cast.push((client, clients_comm, server, servers_comm));
    }
    let lines = PAIRS.iter().map(|_| loopback_tcp()).collect::<Result<Vec<_>>>()?;
    for ((client, clients_comm, server, servers_comm), lines) in cast.into_iter().zip(&lines) {
        stage.process(|| {
            server.claim(servers_comm);
            while lines.server.read().is_some_and(|request| &request != END) {
                lines.server.write(b"reply..!");
            }
        })?;
        stage.process(|| {
            client.claim(clients_comm);
            while stopped.load(SeqCst) == 0 {
                for _ in 0..BURST {
                    lines.client.write(b"request!");
                    lines.client.read();
                }
                raw::nanosleep(PAUSE);
            }
            lines.client.write(END);
        })?;
    }
    stage.play(|| ())
}
