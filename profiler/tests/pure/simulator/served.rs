//! Machines on which clients wait for an event loop, or for a pool of workers.

use proptest::prelude::*;

use super::{
    Errand, Migration, Op, Outside, ProcessId, Scenario, ThreadPlan, UsedUpQuota,
    machine::MOST_THREADS, program::UPSTREAMS,
};

fn thread(process: usize, cpu: usize, program: Vec<Op>) -> ThreadPlan {
    ThreadPlan { process: ProcessId(process), cpu, program, repeats: true }
}

fn pause() -> impl Strategy<Value = Vec<Op>> {
    let sleep = prop_oneof![Just(Outside::Timer), Just(Outside::Network)];
    (1..20_u64, sleep, prop_oneof![1..10_u64, 10..90_u64])
        .prop_map(|(work, outside, time)| vec![Op::Compute(work), Op::Await(outside, time)])
}

fn errand() -> impl Strategy<Value = Errand> {
    prop_oneof![
        2 => Just(Errand::Alone),
        3 => (0..UPSTREAMS).prop_map(Errand::Upstream),
        1 => (1..60_u64).prop_map(Errand::Timer),
    ]
}

/// A client that asks for one kind of thing, over and over, through one connection.
fn client() -> impl Strategy<Value = Vec<Op>> {
    (errand(), pause())
        .prop_map(|(errand, pause)| [vec![Op::Ask(errand), Op::AwaitAnswer], pause].concat())
}

fn machine(
    threads: impl Strategy<Value = Vec<Vec<Op>>>,
    process_of: fn(usize) -> usize,
) -> impl Strategy<Value = Scenario> {
    let chances = prop::collection::vec(any::<u8>(), 1..64);
    // What was asked before anybody looked is not seen.
    (1..4_usize, threads, 20..60_u64, chances, 100..700_u64).prop_map(
        move |(cpus, programs, slice, chances, length)| {
            let threads = programs.into_iter().enumerate();
            Scenario {
                cpus,
                threads: threads.map(|(n, program)| thread(process_of(n), n, program)).collect(),
                children: Vec::new(),
                slice,
                chances,
                migration: Migration::On,
                attached: 0,
                window: (0, length),
                quotas: Vec::new(),
                has_pool: false,
            }
        },
    )
}

/// The same whose clients have it ask nobody.
pub fn loops_of_their_own() -> impl Strategy<Value = Scenario> {
    let errand = prop_oneof![2 => Just(Errand::Alone), 1 => (1..60_u64).prop_map(Errand::Timer)];
    let server = |n: usize| vec![Op::TakeAsk(n), Op::Reply(n)];
    let client = (errand, pause())
        .prop_map(|(errand, pause)| [vec![Op::Ask(errand), Op::AwaitAnswer], pause].concat());
    let clients = prop::collection::vec(client, 2..6);
    let threads = clients
        .prop_map(move |clients| [vec![vec![Op::Serve], server(0), server(1)], clients].concat());
    machine(threads, |n| n)
}

/// The first thread is the loop, the next ones are its servers, all others its clients.
pub fn loops() -> impl Strategy<Value = Scenario> {
    let server = |n: usize| {
        pause().prop_map(move |pause| [vec![Op::TakeAsk(n)], pause, vec![Op::Reply(n)]].concat())
    };
    let clients = prop::collection::vec(client(), 2..6);
    let threads = (server(0), server(1), clients)
        .prop_map(|(one, other, clients)| [vec![vec![Op::Serve], one, other], clients].concat());
    machine(threads, |n| n)
}

/// A client that sends up to three requests before it reads the answers.
fn pipelining_client() -> impl Strategy<Value = Vec<Op>> {
    (prop::collection::vec(errand(), 1..4), pause()).prop_map(|(errands, pause)| {
        let asks = errands.iter().map(|&errand| Op::Ask(errand));
        let answers = errands.iter().map(|_| Op::AwaitAnswer);
        asks.clone().chain(answers).chain(pause).collect()
    })
}

/// A loop of one to three threads that share its epoll, with one or two threads in each of its servers, each with
/// a connection of its own. Requests share the first connection to each server, or queue for one. The quotas of
/// the servers may be used up now and then, and a client may send several requests at once.
pub fn shared_loops() -> impl Strategy<Value = Scenario> {
    let server = |connection: usize| {
        pause().prop_map(move |pause| {
            [vec![Op::TakeAsk(connection)], pause, vec![Op::Reply(connection)]].concat()
        })
    };
    let servers = [server(0), server(1), server(2), server(3)];
    let clients = prop::collection::vec(prop_oneof![client(), pipelining_client()], 2..6);
    let used_up =
        (1..=UPSTREAMS, 0..600_u64, 1..60_u64).prop_map(|(process, used_up, refilled_after)| {
            UsedUpQuota { process: ProcessId(process), used_up, refilled_after }
        });
    let quotas = prop_oneof![Just(Vec::new()), prop::collection::vec(used_up, 1..12)];
    let sizes = (1..4_usize, 1..=2_usize, any::<bool>());
    let machine = machine(Just(Vec::new()), |n| n);
    (machine, sizes, servers, clients, quotas).prop_map(
        |(mut machine, (loops, threads, has_pool), servers, clients, quotas)| {
            // Nobody answers through a second connection where all share the first.
            let servers = &servers[..if has_pool { UPSTREAMS * threads } else { UPSTREAMS }];
            let loops = (0..loops).map(|_| (0, vec![Op::Serve]));
            let servers = servers.iter().enumerate().map(|(n, it)| (1 + n % UPSTREAMS, it.clone()));
            let clients = clients.into_iter().enumerate().map(|(n, it)| (1 + UPSTREAMS + n, it));
            let plans = loops.chain(servers).chain(clients).take(MOST_THREADS).enumerate();
            machine.threads = plans.map(|(cpu, (process, it))| thread(process, cpu, it)).collect();
            Scenario { quotas, has_pool, ..machine }
        },
    )
}

/// The first threads are the workers, all others their clients.
pub fn pools() -> impl Strategy<Value = Scenario> {
    let worker = pause().prop_map(|pause| [vec![Op::TakeJob], pause, vec![Op::FinishJob]].concat());
    let client = pause().prop_map(|pause| [vec![Op::Submit, Op::AwaitAnswer], pause].concat());
    let threads = (prop::collection::vec(worker, 1..4), prop::collection::vec(client, 2..6))
        .prop_map(|(workers, clients)| [workers, clients].concat());
    machine(threads, |_| 0)
}
