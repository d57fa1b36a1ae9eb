//! A small service with a fault: three processes, real sockets, one lock, one disk.
//!
//! ```text
//!  gateway process              worker process                  store process
//!  client-N --TCP--> gateway-N --Unix--> worker-N --TCP--> store-N: computes, sleeps, fsyncs
//!                                         |  all workers share one lock; every fifth job keeps
//!                                         |  it while the store reads its archive
//! ```
//!
//! The gateway starts the other two. It prints one line, `gateway=PID worker=PID store=PID`, once all
//! are connected. Each process ends with its parent.

use anyhow::{Context as _, bail};

use super::{gateway, process, store, worker};

/// Clients, and so connections and threads of each kind. Nothing here grows beyond it.
pub const CLIENTS: usize = 4;

/// Serves in a role until it is killed.
pub fn serve(role: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    let [role, parent, arguments @ ..] = &words[..] else {
        bail!("the demo service is started by `offwake demo`");
    };
    process::die_with(parent)?;
    match (*role, arguments) {
        ("gateway", []) => gateway::serve(),
        ("worker", [socket, store]) => {
            worker::serve(socket, store.parse().context("not an address of a store")?)
        }
        ("store", []) => store::serve(),
        _ => bail!("the demo service has no role {role}"),
    }
}
