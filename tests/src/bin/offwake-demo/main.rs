//! A small service to look at: three processes, real sockets, one lock, one disk.
//!
//! ```text
//!  gateway process              worker process                  store process
//!  client-N --TCP--> gateway-N --Unix--> worker-N --TCP--> store-N: computes, sleeps, fsyncs
//!                                         |  all workers share one lock; every fifth job keeps
//!                                         |  it while it waits for the store
//! ```
//!
//! Started without arguments it is the gateway and starts the other two. It prints one line,
//! `gateway=PID worker=PID store=PID`, once all are connected, and runs until its standard input
//! ends or it is told to stop by a signal. The other two die with it.

mod gateway;
mod process;
mod store;
mod wire;
mod worker;

use std::{env, process::ExitCode};

use anyhow::{Context as _, bail};

/// Clients, and so connections and threads of each kind. Nothing here grows beyond it.
const CLIENTS: usize = 4;

fn main() -> ExitCode {
    let done = serve(&env::args().skip(1).collect::<Vec<_>>());
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("offwake-demo: {error:#}");
    ExitCode::FAILURE
}

fn serve(arguments: &[String]) -> anyhow::Result<()> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => gateway::serve(),
        ["worker", parent, socket, store] => {
            process::die_with(parent)?;
            worker::serve(socket, store.parse().context("not an address of a store")?)
        }
        ["store", parent] => {
            process::die_with(parent)?;
            store::serve()
        }
        _ => bail!("it takes no arguments: it is stopped by the end of its standard input"),
    }
}
