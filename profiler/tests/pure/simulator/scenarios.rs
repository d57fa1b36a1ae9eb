//! Random machines with random programs.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    Migration, Op, Outside, ProcessId, Scenario, ThreadPlan, UsedUpQuota, machine::SURVEY,
};

/// Part of a program.
#[derive(Clone, Debug)]
enum Statement {
    Op(Op),
    Critical {
        lock: Mutex,
        inside: Vec<Statement>,
    },
    /// Makes a thread and lets it run.
    Spawn(usize),
    /// Asks the servers of a tier, and waits for an answer.
    Call(usize),
}

/// Channels that anybody sends to and receives from.
const CHANNELS: usize = 2;
/// Tiers of servers, each with a channel for requests and one for replies.
const TIERS: usize = 3;

fn tier_channels(tier: usize) -> (usize, usize) {
    (CHANNELS + 2 * tier, CHANNELS + 2 * tier + 1)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mutex {
    Private(usize),
    Shared(usize),
}

/// What ends by itself, or wakes others.
fn busy() -> impl Strategy<Value = Op> {
    let outside = prop_oneof![
        3 => Just(Outside::Timer),
        2 => Just(Outside::Disk),
        2 => Just(Outside::Network),
        1 => Just(Outside::Device),
        1 => Just(Outside::Interrupt),
        1 => Just(Outside::Unseen),
    ];
    prop_oneof![
        6 => (1..30_u64).prop_map(Op::Compute),
        3 => (outside, 1..40_u64).prop_map(|(outside, time)| Op::Await(outside, time)),
        4 => (0..CHANNELS).prop_map(Op::Send),
        2 => (0..2_usize).prop_map(Op::Broadcast),
    ]
}

/// What may wait for others for ever.
fn waiting() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..CHANNELS).prop_map(Op::Receive),
        1 => (0..2_usize).prop_map(Op::AwaitBroadcast),
        2 => Just(Op::Join),
    ]
}

fn statement() -> impl Strategy<Value = Statement> {
    let leaf = prop_oneof![
        8 => busy().prop_map(Statement::Op),
        2 => waiting().prop_map(Statement::Op),
        1 => (0..2_usize).prop_map(Statement::Spawn),
        1 => (0..TIERS).prop_map(Statement::Call),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let lock = prop_oneof![
            3 => Just(Mutex::Private(0)),
            1 => Just(Mutex::Private(1)),
            1 => Just(Mutex::Shared(0)),
        ];
        (lock, prop::collection::vec(inner, 0..3))
            .prop_map(|(lock, inside)| Statement::Critical { lock, inside })
    })
}

/// The steps of a program. Locks are taken in one order, so that nobody waits for ever.
fn steps(statements: &[Statement], held: &mut BTreeSet<Mutex>, into: &mut Vec<Op>) {
    for statement in statements {
        match statement {
            Statement::Op(op) => into.push(*op),
            Statement::Spawn(program) => into.extend([Op::Create(*program), Op::Start]),
            Statement::Call(tier) => {
                let (request, reply) = tier_channels(*tier);
                into.extend([Op::Send(request), Op::Receive(reply)]);
            }
            Statement::Critical { lock, inside } => {
                let is_new = held.last().is_none_or(|last| last < lock);
                held.extend(is_new.then_some(*lock));
                let (take, give) = match *lock {
                    Mutex::Private(n) => (Op::Lock(n), Op::Unlock(n)),
                    Mutex::Shared(n) => (Op::LockShared(n), Op::UnlockShared(n)),
                };
                into.extend(is_new.then_some(take));
                steps(inside, held, into);
                if is_new {
                    into.push(give);
                    held.remove(lock);
                }
            }
        }
    }
}

fn program(longest: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(statement(), 1..longest).prop_map(|statements| {
        let mut program = Vec::new();
        steps(&statements, &mut BTreeSet::new(), &mut program);
        program
    })
}

/// What a server does between a request and the answer is anybody's guess; most of them ask the tier
/// below.
fn server(tier: usize) -> impl Strategy<Value = Vec<Op>> {
    let asks = prop::bool::weighted(0.8);
    (program(3), asks, program(3)).prop_map(move |(before, asks, after)| {
        let (request, reply) = tier_channels(tier);
        let (down, up) = tier_channels(tier + 1);
        let call =
            if asks && tier + 1 < TIERS { vec![Op::Send(down), Op::Receive(up)] } else { vec![] };
        [vec![Op::Receive(request)], before, call, after, vec![Op::Send(reply)]].concat()
    })
}

fn client() -> impl Strategy<Value = Vec<Op>> {
    program(3).prop_map(|program| {
        let (request, reply) = tier_channels(0);
        [vec![Op::Send(request), Op::Receive(reply)], program].concat()
    })
}

fn thread(program: impl Strategy<Value = Vec<Op>>) -> impl Strategy<Value = ThreadPlan> {
    (0..2_usize, 0..3_usize, program, prop::bool::weighted(0.9)).prop_map(
        |(process, cpu, program, repeats)| ThreadPlan {
            process: ProcessId(process),
            cpu,
            program,
            repeats,
        },
    )
}

/// A client or two, a server for each tier, and others.
fn tiers() -> impl Strategy<Value = Vec<ThreadPlan>> {
    (
        prop::collection::vec(thread(client()), 1..3),
        [thread(server(0)), thread(server(1)), thread(server(2))],
        prop::collection::vec(thread(program(5)), 0..3),
    )
        .prop_map(|(clients, servers, others)| [clients, servers.to_vec(), others].concat())
}

/// In half of the runs, a process whose quota is used up now and then.
fn quotas() -> impl Strategy<Value = Vec<UsedUpQuota>> {
    let used_up = (0..2_usize, 0..400_u64, prop_oneof![1..8_u64, 1..60_u64]).prop_map(
        |(process, used_up, refilled_after)| UsedUpQuota {
            process: ProcessId(process),
            used_up,
            refilled_after,
        },
    );
    prop_oneof![Just(Vec::new()), prop::collection::vec(used_up, 1..24)]
}

/// A machine of one to three CPUs, with up to seven threads that make others.
pub fn scenario(migration: Migration) -> impl Strategy<Value = Scenario> {
    let threads = prop_oneof![prop::collection::vec(thread(program(7)), 1..7), tiers()];
    (
        1..4_usize,
        threads,
        prop::collection::vec(program(4), 1..3),
        5..40_u64,
        prop::collection::vec(any::<u8>(), 1..64),
        (0..60_u64, 0..2 * SURVEY, 20..500_u64, quotas()),
    )
        .prop_map(move |(cpus, threads, children, slice, chances, rest)| {
            let (attached, survey, length, quotas) = rest;
            let opens = attached + survey;
            let window = (opens, opens + length);
            Scenario {
                cpus,
                threads,
                children,
                slice,
                chances,
                migration,
                attached,
                window,
                quotas,
                has_pool: false,
            }
        })
}
