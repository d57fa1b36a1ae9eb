//! The scheduler's events as the kernel's own tracing has them: another witness of what threads did,
//! which shares no code with offwake.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;

use crate::intervals::Interval;

/// Where the kernel's tracing is found.
const TRACEFS: &str = "/sys/kernel/tracing";

/// For each CPU: more than a few seconds of these events take. What does not fit is counted by the
/// kernel, and is an error.
const BUFFER_KB: &str = "98304";

/// The events that are read.
const EVENTS: [&str; 4] =
    ["sched_switch", "sched_waking", "sched_wakeup_new", "sched_process_fork"];

/// The kernel's tracing of the scheduler, in buffers of its own. It ends when this is dropped.
pub struct RawEvents {
    instance: PathBuf,
}

/// What one tid did inside a window, by the kernel's own events. Times are ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawThread {
    /// Time on a CPU.
    pub on_cpu_ns: u64,
    /// Time in which it waited for one.
    pub runnable_ns: u64,
    /// Time in which it slept.
    pub blocked_ns: u64,
    /// Time in which it came to a CPU, it is not known when. Some kernels leave switches of a few
    /// processes of their own out of the trace; the one that was used in November 2026 left out every
    /// other switch from the idle task of one CPU.
    pub untraced_ns: u64,
    /// When it left a CPU to sleep.
    pub sleeps: Vec<u64>,
    /// When it left one to sleep, but had been woken meanwhile, and did not.
    pub sleepless: Vec<u64>,
    /// When it was created; none if it is older than the trace.
    pub born_ns: Option<u64>,
    /// When it ended; none if it was not seen to.
    pub died_ns: Option<u64>,
}

/// What was traced.
#[derive(Debug, Default)]
pub struct Traced {
    /// All threads that any event is of.
    pub threads: BTreeMap<u32, RawThread>,
    /// Who forked whom, threads as well as processes, in order.
    forks: Vec<(u32, u32)>,
}

impl Traced {
    /// A process and the threads and processes that it and these forked.
    #[must_use]
    pub fn descendants(&self, of: u32) -> BTreeSet<u32> {
        let mut all = BTreeSet::from([of]);
        for &(parent, child) in &self.forks {
            // A number may have been somebody else's before.
            if all.contains(&parent) {
                all.insert(child);
            } else if child != of {
                all.remove(&child);
            }
        }
        all
    }
}

/// What a thread does from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RawState {
    OnCpu,
    Runnable,
    Blocked,
    Dead,
    /// Not known, as an event is not in the trace.
    Untraced,
}

/// One line of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RawEvent {
    Switch { cpu: u32, prev: u32, prev_state: RawState, next: u32 },
    Waking { tid: u32 },
    Newborn { tid: u32 },
    Fork { parent: u32, child: u32 },
}

impl RawEvents {
    /// Starts to trace.
    ///
    /// # Errors
    ///
    /// When the kernel has no tracing, or refuses it.
    pub fn start() -> Result<Self> {
        mount_tracefs()?;
        let instance =
            Path::new(TRACEFS).join(format!("instances/offwake-test-{}", std::process::id()));
        fs::create_dir(&instance).with_context(|| format!("cannot make {}", instance.display()))?;
        let events = Self { instance };
        events.set("trace_clock", "mono")?;
        events.set("buffer_size_kb", BUFFER_KB)?;
        for event in EVENTS {
            events.set(&format!("events/sched/{event}/enable"), "1")?;
        }
        Ok(events)
    }

    /// Ends the tracing, and returns what each thread did inside a window of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    ///
    /// When events were lost, or can't be read.
    pub fn finish(self, window: Interval) -> Result<Traced> {
        self.set("tracing_on", "0")?;
        self.ensure_complete()?;
        let trace = File::open(self.instance.join("trace")).context("cannot read the trace")?;
        let mut threads = RawThreads::new(window);
        let mut forks = Vec::new();
        let parser = EventParser::new()?;
        for line in BufReader::with_capacity(1 << 20, trace).split(b'\n') {
            let line = line?;
            // Names of threads may hold anything.
            let line = String::from_utf8_lossy(&line);
            if line.starts_with('#') {
                continue;
            }
            let (at, event) = parser.parse(&line).with_context(|| format!("no event: {line}"))?;
            if let RawEvent::Fork { parent, child } = event {
                forks.push((parent, child));
            }
            threads.apply(at, &event);
        }
        Ok(Traced { threads: threads.finish(), forks })
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        fs::write(self.instance.join(file), value)
            .with_context(|| format!("cannot set {file} to {value}"))
    }

    /// Demands that no event was overwritten or dropped.
    fn ensure_complete(&self) -> Result<()> {
        for cpu in fs::read_dir(self.instance.join("per_cpu"))? {
            let stats = fs::read_to_string(cpu?.path().join("stats"))?;
            for line in stats.lines() {
                let Some((name, count)) = line.split_once(": ") else { continue };
                let is_loss = matches!(name, "overrun" | "commit overrun" | "dropped events");
                ensure!(!is_loss || count.trim() == "0", "the kernel lost events: {line}");
            }
        }
        Ok(())
    }
}

impl Drop for RawEvents {
    fn drop(&mut self) {
        // The kernel ends the events of an instance that is removed.
        drop(fs::remove_dir(&self.instance));
    }
}

/// Mounts tracefs, if it is not there. It stays: who mounts it first can't know who else uses it.
fn mount_tracefs() -> Result<()> {
    if Path::new(TRACEFS).join("instances").is_dir() {
        return Ok(());
    }
    let (kind, target) = (CString::new("tracefs")?, CString::new(TRACEFS)?);
    // SAFETY: the strings outlive the call; no data is passed.
    let result =
        unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    if result != 0 {
        bail!("cannot mount {TRACEFS}: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

/// Reads lines of a trace.
struct EventParser {
    stamp: Regex,
    switch: Regex,
    woken: Regex,
    fork: Regex,
}

impl EventParser {
    fn new() -> Result<Self> {
        Ok(Self {
            stamp: Regex::new(r" \[(\d+)\] \S+ +(\d+)\.(\d{6}): (sched_\w+): ")?,
            switch: Regex::new(
                r" prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> .* next_pid=(\d+) ",
            )?,
            woken: Regex::new(r" pid=(\d+) prio=-?\d+ target_cpu=\d+$")?,
            fork: Regex::new(r" pid=(\d+) child_comm=.* child_pid=(\d+)$")?,
        })
    }

    /// Returns when an event was, in ns, and what it says. The kernel writes whole microseconds.
    fn parse(&self, line: &str) -> Option<(u64, RawEvent)> {
        let stamp = self.stamp.captures(line)?;
        let number = |group: usize| stamp[group].parse::<u64>().ok();
        let at = number(2)? * 1_000_000_000 + number(3)? * 1_000;
        let event = match &stamp[4] {
            "sched_switch" => {
                let fields = self.switch.captures(line)?;
                RawEvent::Switch {
                    cpu: stamp[1].parse().ok()?,
                    prev: fields[1].parse().ok()?,
                    prev_state: state_after_switch(&fields[2]),
                    next: fields[3].parse().ok()?,
                }
            }
            "sched_process_fork" => {
                let fields = self.fork.captures(line)?;
                RawEvent::Fork { parent: fields[1].parse().ok()?, child: fields[2].parse().ok()? }
            }
            name => {
                let tid = self.woken.captures(line)?[1].parse().ok()?;
                match name {
                    "sched_waking" => RawEvent::Waking { tid },
                    "sched_wakeup_new" => RawEvent::Newborn { tid },
                    _ => return None,
                }
            }
        };
        Some((at, event))
    }
}

/// Returns what a thread does that left the CPU in this state: `R+` was preempted, `X` and `Z` have
/// ended.
fn state_after_switch(letters: &str) -> RawState {
    match letters.chars().next() {
        Some('R') => RawState::Runnable,
        Some('X' | 'Z') => RawState::Dead,
        _ => RawState::Blocked,
    }
}

/// A thread whose events are gone through.
#[derive(Default)]
struct RawLife {
    done: RawThread,
    /// What it does, and since when; none until its first event.
    now: Option<(RawState, u64)>,
}

struct RawThreads {
    window: Interval,
    /// The last switch on each CPU, and the thread that came.
    last_switches: BTreeMap<u32, (u64, u32)>,
    lives: BTreeMap<u32, RawLife>,
}

impl RawThreads {
    fn new(window: Interval) -> Self {
        Self { window, last_switches: BTreeMap::new(), lives: BTreeMap::new() }
    }

    /// ```text
    ///          waking      switch: next         switch: prev, S
    /// ----------+--------------+--------------------+---------------
    ///  blocked  |   runnable   |       on-CPU       |   blocked
    /// ```
    fn apply(&mut self, at: u64, event: &RawEvent) {
        match *event {
            RawEvent::Switch { cpu, prev, prev_state, next } => {
                let (last, came) = self.last_switches.get(&cpu).copied().unwrap_or_default();
                let now = |tid| self.lives.get(&tid).and_then(|life: &RawLife| life.now);
                let prev_now = now(prev);
                // Nobody traced that it left.
                if came != prev && now(came) == Some((RawState::OnCpu, last)) {
                    self.advance(last, came, RawState::OnCpu, RawState::Untraced);
                }
                match prev_now {
                    Some((RawState::OnCpu, _)) => {}
                    // It came after the last switch that was traced.
                    Some((_, since)) => {
                        self.advance(since.max(last), prev, RawState::OnCpu, RawState::Untraced);
                    }
                    None if last > 0 => {
                        self.advance(last, prev, RawState::Blocked, RawState::Untraced);
                    }
                    None => {}
                }
                self.advance(at, prev, RawState::OnCpu, prev_state);
                self.advance(at, next, RawState::Runnable, RawState::OnCpu);
                self.last_switches.insert(cpu, (at, next));
            }
            RawEvent::Waking { tid } => {
                let now = self.lives.get(&tid).and_then(|life| life.now);
                if now.is_none_or(|(state, _)| state == RawState::Blocked) {
                    self.advance(at, tid, RawState::Blocked, RawState::Runnable);
                }
            }
            // It did not exist before. From then on it waits for its creator to let it run.
            RawEvent::Fork { child, .. } => {
                self.advance(at, child, RawState::Dead, RawState::Runnable);
                let done = &mut self.lives.entry(child).or_default().done;
                (done.born_ns, done.died_ns) = (Some(at), None);
            }
            RawEvent::Newborn { tid } => {
                self.advance(at, tid, RawState::Dead, RawState::Runnable);
            }
        }
    }

    /// Ends what a thread did, `before` if this is its first event, and begins what it does now.
    fn advance(&mut self, at: u64, tid: u32, before: RawState, now: RawState) {
        let window = self.window;
        let life = self.lives.entry(tid).or_default();
        let (state, since) = life.now.unwrap_or((before, 0));
        let state = match (state, now) {
            // It was woken on its way off the CPU, and did not sleep: nobody needed to wake it.
            (RawState::Blocked, RawState::OnCpu) => {
                life.done.sleepless.push(since);
                RawState::Runnable
            }
            _ => state,
        };
        life.done.add(state, since, at, window);
        life.now = Some((now, at));
        if now == RawState::Dead {
            life.done.died_ns = Some(at);
        }
    }

    fn finish(mut self) -> BTreeMap<u32, RawThread> {
        let window = self.window;
        self.lives.remove(&0);
        (self.lives.into_iter())
            .map(|(tid, mut life)| {
                if let Some((state, since)) = life.now {
                    life.done.add(state, since, window.end_ns, window);
                }
                (tid, life.done)
            })
            .collect()
    }
}

impl RawThread {
    fn add(&mut self, state: RawState, from_ns: u64, to_ns: u64, window: Interval) {
        let ns = Interval::new(from_ns, to_ns).clipped(window).map_or(0, Interval::length_ns);
        match state {
            RawState::OnCpu => self.on_cpu_ns += ns,
            RawState::Runnable => self.runnable_ns += ns,
            RawState::Blocked => {
                self.blocked_ns += ns;
                if (window.start_ns..window.end_ns).contains(&from_ns) {
                    self.sleeps.push(from_ns);
                }
            }
            RawState::Untraced => self.untraced_ns += ns,
            RawState::Dead => {}
        }
    }

    /// How long it was seen to live inside the window.
    #[must_use]
    pub fn wall_ns(&self) -> u64 {
        self.on_cpu_ns + self.runnable_ns + self.blocked_ns + self.untraced_ns
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{EventParser, RawEvent, RawState, RawThread, RawThreads, Traced};
    use crate::intervals::Interval;

    #[test]
    fn lines_of_a_trace_are_read_whatever_threads_are_called() {
        let parser = EventParser::new().unwrap();
        let parse = |line: &str| parser.parse(line);
        assert_eq!(
            parse(
                "  a [001] b: -12 [001] d..2.  3600.000007: sched_switch: prev_comm=x prev_pid=9 \
                 prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=y next_pid=0 next_prio=120"
            ),
            Some((
                3_600_000_007_000,
                RawEvent::Switch { cpu: 1, prev: 12, prev_state: RawState::Blocked, next: 0 }
            ))
        );
        assert_eq!(
            parse("<idle>-0 [000] dNh4. 1.5: sched_waking: comm=x pid=7 prio=120 target_cpu=001"),
            None
        );
        assert_eq!(
            parse(
                "  <idle>-0     [000] dNh4.     1.500000: sched_waking: comm=x y pid=7 prio=-1 \
                 target_cpu=001"
            ),
            Some((1_500_000_000, RawEvent::Waking { tid: 7 }))
        );
        assert_eq!(
            parse(
                "  sh-7  [000] d..2.  1.500000: sched_process_fork: comm=x child_pid=1 pid=7 \
                 child_comm=y child_pid=2 child_pid=8"
            ),
            Some((1_500_000_000, RawEvent::Fork { parent: 7, child: 8 }))
        );
    }

    #[test]
    fn who_gets_the_number_of_a_descendant_that_has_ended_is_none() {
        let forks = vec![(1, 5), (5, 6), (6, 7), (2, 6), (6, 8), (7, 9)];
        let traced = Traced { forks, ..Traced::default() };
        assert_eq!(traced.descendants(5), BTreeSet::from([5, 7, 9]));
    }

    /// ```text
    ///        100     200      300      400       500      600
    /// window  |---------------------------------------------|
    /// 7     blocked   | runnable | on-CPU | blocked -------------
    /// 8     on-CPU ------------- | runnable, preempted | on-CPU --
    /// ```
    #[test]
    fn states_follow_from_the_events() {
        let mut threads = RawThreads::new(Interval::new(100, 600));
        threads.apply(200, &RawEvent::Waking { tid: 7 });
        let switch = |prev, prev_state, next| RawEvent::Switch { cpu: 0, prev, prev_state, next };
        threads.apply(300, &switch(8, RawState::Runnable, 7));
        threads.apply(400, &switch(7, RawState::Blocked, 0));
        threads.apply(500, &switch(0, RawState::Runnable, 8));
        let threads = threads.finish();
        let expected = RawThread {
            on_cpu_ns: 100,
            runnable_ns: 100,
            blocked_ns: 300,
            sleeps: vec![400],
            ..RawThread::default()
        };
        assert_eq!(threads[&7], expected);
        let expected = RawThread { on_cpu_ns: 300, runnable_ns: 200, ..RawThread::default() };
        assert_eq!(threads[&8], expected);
    }

    /// ```text
    ///       100 fork  150 woken  200 on-CPU  300 ends    400 another gets its number
    /// 7      | runnable          | on-CPU    |           | runnable …
    /// ```
    #[test]
    fn a_life_begins_with_the_fork_and_ends_with_the_last_switch() {
        let mut threads = RawThreads::new(Interval::new(0, 500));
        let fork = RawEvent::Fork { parent: 8, child: 7 };
        let switch = |prev, prev_state, next| RawEvent::Switch { cpu: 0, prev, prev_state, next };
        threads.apply(100, &fork);
        threads.apply(150, &RawEvent::Newborn { tid: 7 });
        threads.apply(200, &switch(8, RawState::Blocked, 7));
        threads.apply(300, &switch(7, RawState::Dead, 0));
        let first = &threads.lives[&7].done;
        assert_eq!((first.born_ns, first.died_ns), (Some(100), Some(300)));
        threads.apply(400, &fork);
        let seven = threads.finish().remove(&7).unwrap();
        assert_eq!((seven.runnable_ns, seven.on_cpu_ns), (100 + 100, 100));
        assert_eq!((seven.born_ns, seven.died_ns), (Some(400), None));
    }

    #[test]
    fn who_comes_back_without_a_wake_never_slept() {
        let lived = |events: &[(u64, RawEvent)]| {
            let mut threads = RawThreads::new(Interval::new(0, 1_000));
            events.iter().for_each(|(at, event)| threads.apply(*at, event));
            threads.finish().remove(&7).unwrap()
        };
        let switch = |prev, prev_state, next| RawEvent::Switch { cpu: 0, prev, prev_state, next };
        let comes = (100, switch(0, RawState::Runnable, 7));
        let woken = |at| (at, RawEvent::Waking { tid: 7 });
        let leaves = (300, switch(7, RawState::Blocked, 0));
        let returns = (500, switch(0, RawState::Runnable, 7));
        let early = lived(&[comes.clone(), woken(200), leaves.clone(), returns.clone()]);
        assert_eq!((early.runnable_ns, early.sleeps.len()), (100 + 200, 0));
        assert_eq!(early.sleepless, [300]);
        // The wake that found it running was for nothing: it slept, and was woken again.
        let anew = lived(&[comes, woken(200), leaves, woken(400), returns]);
        assert_eq!((anew.runnable_ns, anew.blocked_ns, anew.sleeps), (100 + 100, 100, vec![300]));
    }

    /// ```text
    ///       100    200          400
    /// CPU 0  | 8    | idle       | 7 leaves; nobody traced that it came
    /// 7     blocked | untraced   | blocked
    /// ```
    #[test]
    fn who_leaves_a_cpu_that_it_was_not_seen_to_come_to_came_after_the_last_switch() {
        let mut threads = RawThreads::new(Interval::new(0, 1_000));
        let switch = |prev, prev_state, next| RawEvent::Switch { cpu: 0, prev, prev_state, next };
        threads.apply(50, &switch(7, RawState::Blocked, 8));
        threads.apply(100, &RawEvent::Waking { tid: 7 });
        threads.apply(200, &switch(8, RawState::Blocked, 0));
        threads.apply(400, &switch(7, RawState::Blocked, 0));
        let seven = threads.finish().remove(&7).unwrap();
        assert_eq!((seven.on_cpu_ns, seven.untraced_ns), (50, 200));
        assert_eq!((seven.runnable_ns, seven.blocked_ns), (100, 50 + 600));
    }

    #[test]
    fn who_is_first_traced_as_it_leaves_a_cpu_came_after_the_last_switch_there() {
        let mut threads = RawThreads::new(Interval::new(0, 1_000));
        let switch = |prev, prev_state, next| RawEvent::Switch { cpu: 0, prev, prev_state, next };
        threads.apply(200, &switch(8, RawState::Blocked, 0));
        threads.apply(400, &switch(7, RawState::Blocked, 0));
        let seven = threads.finish().remove(&7).unwrap();
        assert_eq!((seven.on_cpu_ns, seven.untraced_ns, seven.blocked_ns), (0, 200, 200 + 600));
    }

    /// ```text
    ///       100      200          400
    /// CPU 0  | 7      | 8 leaves; nobody traced that it came
    /// 7      | untraced             | on-CPU
    /// ```
    #[test]
    fn who_was_not_seen_to_leave_a_cpu_did_before_the_next_that_leaves_it() {
        let mut threads = RawThreads::new(Interval::new(0, 1_000));
        let switch = |prev, prev_state, next| RawEvent::Switch { cpu: 0, prev, prev_state, next };
        threads.apply(100, &switch(9, RawState::Blocked, 7));
        threads.apply(200, &switch(8, RawState::Blocked, 9));
        threads.apply(400, &switch(9, RawState::Blocked, 7));
        let seven = threads.finish().remove(&7).unwrap();
        assert_eq!((seven.runnable_ns, seven.on_cpu_ns, seven.untraced_ns), (100, 600, 300));
    }
}
