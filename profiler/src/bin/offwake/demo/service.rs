//! A small service with a fault: three processes, real sockets, one lock, one disk.
//!
//! ```text
//!  gateway process              worker process                  store process
//!  client-N --TCP--> gateway-N --Unix--> worker-N --TCP--> store-N: computes, sleeps, fsyncs
//!                                         |  all workers share one lock; every fifth job keeps
//!                                         |  it while the store reads its archive
//! ```
//!
//! Started without a role it is the gateway and starts the other two. It prints one line,
//! `gateway=PID worker=PID store=PID`, once all are connected, and runs until a signal ends it or
//! its parent dies. The other two die with it.

use anyhow::{Context as _, bail};

use super::{gateway, process, store, worker};

/// Clients, and so connections and threads of each kind. Nothing here grows beyond it.
pub const CLIENTS: usize = 4;

/// Serves in a role until it is killed.
pub fn serve(role: &[String]) -> anyhow::Result<()> {
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => gateway::serve(),
        ["worker", parent, socket, store] => {
            process::die_with(parent)?;
            worker::serve(socket, store.parse().context("not an address of a store")?)
        }
        ["store", parent] => {
            process::die_with(parent)?;
            store::serve()
        }
        _ => bail!("the demo service has no such role"),
    }
}
