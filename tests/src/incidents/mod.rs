//! The incident lab: trouble with real software, whose true cause is known because the lab brings it
//! about and measures it itself.
//!
//! ```text
//! Incident:  sets a Trouble up in a Scene, and waits until it is really going on
//! run:       has offwake profile the trouble, proves the trouble meanwhile, and gives a Verdict
//! criteria:  what the verdict is made of
//! ```
//!
//! The programs that play in the incidents are in `tests/incidents`.

mod backends;
mod computing;
mod containers;
pub mod criteria;
mod databases;
mod host;
mod locks;
mod parties;
mod postgres;
mod remote;
mod run;
mod scene;
mod services;
mod told;
mod trouble;

use anyhow::{Context, Result};

pub use parties::{Others, Parties, Party};
pub use run::{FIRST_CARD, Keep, Measure, Options, check_trouble, run};
pub use scene::Scene;
pub use trouble::{ClientLog, KnownMiss, Trouble};

/// Trouble of one kind.
#[derive(Clone, Copy)]
pub struct Incident {
    /// The name on the command line.
    pub name: &'static str,
    /// What is wrong, in one line.
    pub about: &'static str,
    /// Brings it about, and waits until it is going on.
    pub start: fn(&Scene) -> Result<Trouble>,
}

/// All of them.
pub const INCIDENTS: &[Incident] = &[
    Incident {
        name: "postgres-row-lock",
        about: "an UPDATE waits for a row that a session holds whose client calls a slow service",
        start: postgres::start_row_lock,
    },
    Incident {
        name: "postgres-clients",
        about: "the same with ten clients, seen from the whole server",
        start: postgres::start_clients,
    },
    Incident {
        name: "mixed-host",
        about: "the same with one client, seen from the whole machine beside servers that are idle",
        start: postgres::start_mixed_host,
    },
    Incident {
        name: "redis-queue",
        about: "a worker waits at a list of redis (BLPOP) for what a slow importer appends",
        start: services::start_redis_queue,
    },
    Incident {
        name: "redis-slow-script",
        about: "a GET waits for a slow Lua script of somebody else",
        start: services::start_redis,
    },
    Incident {
        name: "nginx-slow-upstream",
        about: "nginx waits for an application that computes for each request",
        start: services::start_nginx,
    },
    Incident {
        name: "java-lock",
        about: "Java threads want a monitor whose holder sleeps",
        start: locks::start_java,
    },
    Incident {
        name: "go-mutex",
        about: "goroutines want a sync.Mutex that one holds while it writes and syncs a file",
        start: locks::start_goroutines,
    },
    Incident {
        name: "go-mutex-threads",
        about: "the same, each locked to a thread of its own, and the holder sleeps in between",
        start: locks::start_go_threads,
    },
    Incident {
        name: "delayed-ack",
        about: "an answer in two writes, the second of which TCP holds back until a delayed ACK",
        start: services::start_delayed_ack,
    },
    Incident {
        name: "full-executor",
        about: "requests queue for a ThreadPoolExecutor whose jobs ask a slow backend",
        start: services::start_executor,
    },
    Incident {
        name: "gil",
        about: "a Python thread that serves waits for the interpreter's lock of one that computes",
        start: computing::start_gil,
    },
    Incident {
        name: "cpu-quota",
        about: "a worker is throttled by its cgroup's CPU quota",
        start: computing::start_quota,
    },
    Incident {
        name: "noisy-disk",
        about: "an fsync waits because dd writes to the same disk",
        start: host::start_noisy_disk,
    },
    Incident {
        name: "network-server",
        about: "a client waits for a server in another network namespace that computes",
        start: remote::start_network_server,
    },
    Incident {
        name: "containers",
        about: "a container waits for another one that computes",
        start: containers::start,
    },
    Incident {
        name: "fuse-hang",
        about: "a reader hangs since before the recording in a file system in user space",
        start: host::start_hung_fuse,
    },
    Incident {
        name: "fuse-hang-seen",
        about: "the same, beginning within the recording",
        start: host::start_hanging_fuse,
    },
    Incident {
        name: "starved-pool",
        about: "five threads share one connection, which an export keeps while it uploads",
        start: locks::start_starved_pool,
    },
    Incident {
        name: "deadlock",
        about: "two threads want each other's mutex since before the recording",
        start: locks::start_deadlock,
    },
    Incident {
        name: "deadlock-seen",
        about: "the same, beginning within the recording",
        start: locks::start_deadlock_later,
    },
    Incident {
        name: "node-blocked-loop",
        about: "clients wait for a Node server that hashes passwords in its event loop",
        start: services::start_node,
    },
    Incident {
        name: "polling-client",
        about: "a script's curl polls, with timeouts, for the answer of a slow server",
        start: services::start_polling_client,
    },
    Incident {
        name: "silent-resolver",
        about: "name look-ups run into timeouts, for the name server never answers",
        start: remote::start_silent_resolver,
    },
    Incident {
        name: "slow-pipe",
        about: "a writer waits for a pipe whose reader is slow",
        start: host::start_slow_pipe,
    },
    Incident {
        name: "cpu-starvation",
        about: "a server hardly gets a CPU beside eight programs that compute",
        start: computing::start_starvation,
    },
    Incident {
        name: "slow-compiler",
        about: "make waits for the compiler of one slow file",
        start: computing::start_compiler,
    },
    Incident {
        name: "file-lock",
        about: "a program waits for a lock on a file whose holder uploads something",
        start: locks::start_file_lock,
    },
    Incident {
        name: "script-lock",
        about: "a script hangs at flock, for a lock whose taker has ended and left it to its parent",
        start: locks::start_script_lock,
    },
    Incident {
        name: "pooled-transaction",
        about: "a query waits in pgbouncer for the connection of a transaction that is idle",
        start: postgres::start_pooled,
    },
    Incident {
        name: "mariadb-row-lock",
        about: "an UPDATE waits for a row of MariaDB whose session waits for its client",
        start: databases::start_mariadb,
    },
    Incident {
        name: "sqlite-lock",
        about: "SQLite asks again and again for the lock of a database that an import holds",
        start: databases::start_sqlite,
    },
    Incident {
        name: "stopped-cache",
        about: "a client waits for redis, which somebody has stopped",
        start: backends::start_stopped_cache,
    },
    Incident {
        name: "php-fpm-pool",
        about: "requests queue for the one process of a PHP pool, which asks a slow service",
        start: backends::start_php_pool,
    },
];

/// The incident of this name.
///
/// # Errors
///
/// When there is none.
pub fn find(name: &str) -> Result<&'static Incident> {
    let known = || INCIDENTS.iter().map(|incident| incident.name).collect::<Vec<_>>().join(" ");
    (INCIDENTS.iter().find(|incident| incident.name == name))
        .with_context(|| format!("no incident {name}; there are: {}", known()))
}
