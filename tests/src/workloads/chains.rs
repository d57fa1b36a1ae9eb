//! A asks B, who asks C, and so on; each computes for a known time before it asks the next one, and
//! for as long before it answers.
//!
//! ```text
//! a   -+-- waits for b ---------------------------------------+--
//! b    | computes |-- waits for c ---------------+ computes   |
//! c    .          | computes |-- ... --+ computes |            .
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    condvar::Queue,
    lines::{self, Lines},
    stage::{Role, Stage, allowed_cpus, bind},
};

/// What A computes before each request.
const PAUSE: Duration = Duration::from_millis(1);

/// What the others compute for each request, each half of it before they ask on, in µs.
const WORK_US: [u64; 6] = [2_000, 4_000, 3_000, 1_500, 2_000, 3_000];

/// The roles in the order in which they ask each other, and the names of their threads.
const PLAYERS: [(&str, &str); 7] = [
    ("a", "ow-a"),
    ("b", "ow-b"),
    ("c", "ow-c"),
    ("d", "ow-d"),
    ("e", "ow-e"),
    ("f", "ow-f"),
    ("g", "ow-g"),
];

/// What requests and replies consist of.
const MESSAGE: &[u8; 8] = b"message.";

/// Between one who asks and one who answers.
enum Link {
    Condvars { requests: Arc<Queue>, replies: Arc<Queue> },
    Lines(Lines),
}

impl Link {
    fn ask(&self) {
        match self {
            Self::Condvars { requests, .. } => requests.put(),
            Self::Lines(lines) => lines.client.write(MESSAGE),
        }
    }

    #[inline(never)]
    fn waits_for_reply(&self) {
        match self {
            Self::Condvars { replies, .. } => replies.drain(),
            Self::Lines(lines) => {
                lines.client.read();
            }
        }
    }

    #[inline(never)]
    fn waits_for_request(&self) {
        match self {
            Self::Condvars { requests, .. } => requests.drain(),
            Self::Lines(lines) => {
                lines.server.read();
            }
        }
    }

    fn answer(&self) {
        match self {
            Self::Condvars { replies, .. } => replies.put(),
            Self::Lines(lines) => lines.server.write(MESSAGE),
        }
    }
}

/// A and three others: threads of one process.
pub(super) fn over_condvars(stage: &Stage) -> Result<()> {
    in_threads(stage, 3, None)
}

/// A and five others, all on one CPU: whoever is woken takes it from its waker, which then waits for it.
pub(super) fn over_condvars_on_one_cpu(stage: &Stage) -> Result<()> {
    let cpu = *allowed_cpus()?.first().context("no CPU is allowed")?;
    in_threads(stage, 5, Some(cpu))
}

fn in_threads(stage: &Stage, hops: usize, cpu: Option<usize>) -> Result<()> {
    let condvars = || Ok(Link::Condvars { requests: Queue::empty(), replies: Queue::empty() });
    let play = Play::cast(stage, hops, condvars)?;
    for place in 0..play.roles.len() {
        let play = Arc::clone(&play);
        stage.thread(move || {
            assert!(cpu.is_none_or(|cpu| bind(0, cpu).is_ok()), "cannot be bound");
            play.part(place);
        })?;
    }
    stage.play(|| ())
}

/// A and six others: processes, as in all that follow.
pub(super) fn over_pipes(stage: &Stage) -> Result<()> {
    in_processes(stage, 6, lines::pipes)
}

/// A and three others.
pub(super) fn over_unix_sockets(stage: &Stage) -> Result<()> {
    in_processes(stage, 3, lines::unix_sockets)
}

/// A and six others.
pub(super) fn over_loopback_tcp(stage: &Stage) -> Result<()> {
    in_processes(stage, 6, lines::loopback_tcp)
}

fn in_processes(stage: &Stage, hops: usize, lines: fn() -> Result<Lines>) -> Result<()> {
    let play = Play::cast(stage, hops, || Ok(Link::Lines(lines()?)))?;
    for place in 0..play.roles.len() {
        stage.process(|| play.part(place))?;
    }
    stage.play(|| ())
}

/// The roles, and how they are linked: the asker of a link has the link's index.
struct Play {
    roles: Vec<(&'static Role, &'static str)>,
    links: Vec<Link>,
    stopped: &'static AtomicU32,
    /// Not 0 once the last request is on its way: it is not answered.
    ended: &'static AtomicU32,
}

impl Play {
    fn cast(stage: &Stage, hops: usize, link: impl Fn() -> Result<Link>) -> Result<Arc<Self>> {
        let players = PLAYERS.iter().take(hops + 1);
        let roles = players.map(|&(name, comm)| Ok((stage.role(name)?, comm)));
        Ok(Arc::new(Self {
            roles: roles.collect::<Result<_>>()?,
            links: (0..hops).map(|_| link()).collect::<Result<_>>()?,
            stopped: stage.stopped(),
            ended: stage.word()?,
        }))
    }

    fn part(&self, place: usize) {
        let (role, comm) = self.roles[place];
        role.claim(comm);
        match place.checked_sub(1) {
            None => self.asks(role, &self.links[0]),
            Some(before) => {
                let half = Duration::from_micros(WORK_US[before] / 2);
                self.answers(role, half, &self.links[before], self.links.get(place));
            }
        }
    }

    fn asks(&self, role: &Role, link: &Link) {
        while self.stopped.load(SeqCst) == 0 {
            role.computes(PAUSE);
            link.ask();
            role.waits(|| link.waits_for_reply());
        }
        self.ended.store(1, SeqCst);
        link.ask();
    }

    fn answers(&self, role: &Role, half: Duration, asked: &Link, next: Option<&Link>) {
        loop {
            asked.waits_for_request();
            if self.ended.load(SeqCst) != 0 {
                break;
            }
            role.computes(half);
            if let Some(next) = next {
                next.ask();
                role.waits(|| next.waits_for_reply());
            }
            role.computes(half);
            asked.answer();
        }
        if let Some(next) = next {
            next.ask();
        }
    }
}
