//! Names threads: who waited, or did something.

use std::collections::{BTreeMap, BTreeSet};

use offwake_recording::{
    PeerProcess,
    units::{Nanos, Tgid},
};

use crate::{
    text,
    timeline::{Thread, ThreadIndex},
};

use super::{
    describe::Words,
    model::FindingHop,
    programs::{Program, ProgramId, ProgramKind},
    tree::main_threads,
};

/// The most characters of a function's name.
const MAX_FUNCTION: usize = 48;
/// The most names or patterns of threads that are shown.
const MAX_THREAD_NAMES: usize = 2;

/// Stands behind names of threads that are not those of all.
const AND_OTHERS: &str = ", …";

/// How the threads of two nodes belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    SameProcess,
    OtherProcess,
}

impl Words<'_> {
    /// Describes threads of one program; `what` says what they did.
    pub(super) fn hop(
        &self,
        program: ProgramId,
        threads: &BTreeSet<ThreadIndex>,
        function: Option<String>,
        what: String,
        ns: Nanos,
    ) -> FindingHop {
        let known = self.programs.program(program);
        let processes: BTreeSet<Tgid> = (threads.iter())
            .filter_map(|&thread| Some(self.timeline.thread(thread)?.tgid))
            .collect();
        let pid = processes.first().copied().filter(|_| processes.len() == 1);
        let only_thread = threads.first().copied().filter(|_| threads.len() == 1);
        FindingHop {
            program: known.map_or_else(String::new, |known| known.name.clone()),
            script: (known.and_then(|known| known.script.clone()))
                .or_else(|| self.programs.subject(pid?, program)),
            pid,
            title: pid.and_then(|pid| self.programs.title(pid, program)),
            thread_name: match only_thread {
                Some(thread) => self.programs.thread_in_words(thread),
                None => self.common_thread_names(threads),
            },
            container: known.and_then(|known| known.container.clone()),
            processes: processes.len() as u64,
            threads: threads.len() as u64,
            function,
            what,
            ns,
            tid: None,
            sleep: None,
            waited_on: None,
            library_function: None,
            blocked_loop: None,
            addition: None,
        }
    }

    /// Describes threads of one program by what they did at the window's end, with the title that their process had
    /// then.
    pub(super) fn hop_at_end(
        &self,
        program: ProgramId,
        threads: &BTreeSet<ThreadIndex>,
        function: Option<String>,
        what: String,
        ns: Nanos,
    ) -> FindingHop {
        let hop = self.hop(program, threads, function, what, ns);
        let title = hop.pid.and_then(|pid| self.programs.title_at_end(pid, program));
        FindingHop { title, ..hop }
    }

    /// Describes threads of one program by how much of the time `ns` each of them took. Those are named that took
    /// most of it; where these are too many to be named, all of them are counted.
    pub(super) fn counted_hop(
        &self,
        program: ProgramId,
        times: &BTreeMap<ThreadIndex, Nanos>,
        function: Option<String>,
        what: String,
        ns: Nanos,
    ) -> FindingHop {
        let hop = self.hop(program, &main_threads(times), function, what, ns);
        if hop.threads < 2 {
            return hop;
        }
        let process_of = |thread| self.timeline.thread(thread).map(|life| life.tgid);
        let all: BTreeSet<ThreadIndex> = (times.iter())
            .filter(|&(_, &time)| time > Nanos(0))
            .map(|(&thread, _)| thread)
            .filter(|&thread| hop.pid.is_none() || process_of(thread) == hop.pid)
            .collect();
        if all.len() as u64 == hop.threads {
            return hop;
        }
        let processes: BTreeSet<Tgid> = all.iter().copied().filter_map(process_of).collect();
        FindingHop {
            processes: processes.len() as u64,
            threads: all.len() as u64,
            thread_name: match (self.common_thread_names(&all), &hop.thread_name) {
                (Some(names), _) => Some(names),
                (None, Some(most)) => Some(format!("{most}{AND_OTHERS}")),
                (None, None) => None,
            },
            ..hop
        }
    }

    /// Names a thread for others of its process: `thread ledger`, `the main thread`, `thread worker
    /// (TID 812)` where several have that name.
    pub(super) fn thread_of_process(&self, thread: ThreadIndex) -> String {
        let Some(life) = self.timeline.thread(thread) else { return "another thread".to_owned() };
        let name = self.programs.own_thread_name(thread);
        let is_namesake = |(other, n): (&Thread, u32)| {
            let other_index = ThreadIndex(n);
            other.tgid == life.tgid
                && other_index != thread
                && self.programs.own_thread_name(other_index) == name
        };
        match name {
            Some(name) if self.timeline.threads.iter().zip(0..).any(is_namesake) => {
                format!("thread {} (TID {})", text::terminal(name), life.tid)
            }
            Some(name) => format!("thread {}", text::terminal(name)),
            None if life.tid.0 == life.tgid.0 => "the main thread".to_owned(),
            None => format!("thread {}", life.tid),
        }
    }

    /// Names threads of a pool by what their names have in common: `order-*`.
    fn common_thread_names(&self, threads: &BTreeSet<ThreadIndex>) -> Option<String> {
        let names = (threads.iter())
            .map(|&thread| self.programs.own_thread_name(thread))
            .collect::<Option<BTreeSet<&str>>>()?;
        let names: BTreeSet<String> = match names.len() {
            0..=MAX_THREAD_NAMES => names.into_iter().map(str::to_owned).collect(),
            _ => names.into_iter().map(replace_numbers).collect(),
        };
        (!names.is_empty() && names.len() <= MAX_THREAD_NAMES)
            .then(|| names.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Names a process by its program, or by the name that was found with it.
    pub(super) fn process_name(&self, process: &PeerProcess) -> String {
        let thread = (self.timeline.threads.iter().zip(0..))
            .find(|(thread, _)| thread.tgid == process.tgid)
            .map(|(_, n)| ThreadIndex(n));
        thread
            .and_then(|thread| self.programs.program(self.programs.program_of_thread(thread)))
            .map_or_else(|| text::terminal(&process.comm), program_name)
    }

    /// Returns whether the threads of two nodes share a process.
    pub(super) fn relation(
        &self,
        one: &BTreeSet<ThreadIndex>,
        other: &BTreeSet<ThreadIndex>,
    ) -> Relation {
        let processes = |threads: &BTreeSet<ThreadIndex>| -> BTreeSet<Tgid> {
            threads.iter().filter_map(|&thread| Some(self.timeline.thread(thread)?.tgid)).collect()
        };
        let (one, other) = (processes(one), processes(other));
        match one.len() == 1 && one == other {
            true => Relation::SameProcess,
            false => Relation::OtherProcess,
        }
    }
}

/// Returns whether a list of names has one for each thread.
fn names_all(names: &str, threads: u64) -> bool {
    !names.contains('*')
        && !names.ends_with(AND_OTHERS)
        && names.split(", ").count() as u64 == threads
}

/// `order-12` → `order-*`
fn replace_numbers(name: &str) -> String {
    let mut pattern = String::new();
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if pattern.ends_with('*') => {}
            true => pattern.push('*'),
            false => pattern.push(c),
        }
    }
    pattern
}

/// `python3 web2.py`, `postgres in shop-db`
pub(super) fn program_name(program: &Program) -> String {
    let mut name = text::terminal(&program.name);
    if let Some(script) = &program.script {
        name = format!("{name} {}", text::terminal(script));
    }
    if let Some(container) = &program.container {
        name = format!("{name} in {}", text::terminal(container));
    }
    if program.kind == ProgramKind::Kernel {
        name = format!("{name} (kernel)");
    }
    name
}

/// `3.20 s`, `12.3 s over 8 threads`: a time that is longer than the window has to be explained where it stands.
pub(crate) fn time_of_threads(time: Nanos, threads: u64, window: Nanos) -> String {
    match over_threads(time, threads, window) {
        Some(over) => format!("{time} {over}"),
        None => time.to_string(),
    }
}

/// Says of a time that is longer than the window how many threads it is added up over: `over 8 threads`.
pub(crate) fn over_threads(time: Nanos, threads: u64, window: Nanos) -> Option<String> {
    (threads > 1 && time > window).then(|| format!("over {threads} threads"))
}

/// Says of a time further down a chain how many threads' waits it is added up over, if it is longer than the window:
/// `in waits of 8 threads`. Those who were waited for may be fewer.
pub(crate) fn in_waits_of_threads(time: Nanos, threads: u64, window: Nanos) -> Option<String> {
    (threads > 1 && time > window).then(|| format!("in waits of {threads} threads"))
}

/// `postgres 21753 "UPDATE waiting"`, `python3 21745 cron_tx.py`, `postgres ×30`
pub(super) fn who(hop: &FindingHop) -> String {
    let mut words = vec![text::terminal(&hop.program)];
    match hop.pid {
        Some(pid) => words.push(pid.to_string()),
        None => words.push(format!("×{}", hop.processes)),
    }
    words.extend(hop.script.as_ref().map(|script| text::terminal(script)));
    words.extend(hop.title.as_ref().map(|title| format!("\"{}\"", text::terminal(title))));
    match (&hop.thread_name, hop.pid.is_some() && hop.threads > 1) {
        (Some(name), true) if names_all(name, hop.threads) => {
            words.push(format!("[{}]", text::terminal(name)));
        }
        (Some(name), true) => {
            words.push(format!("[{} threads: {}]", hop.threads, text::terminal(name)));
        }
        (Some(name), false) => words.push(format!("[{}]", text::terminal(name))),
        (None, true) => words.push(format!("[{} threads]", hop.threads)),
        (None, false) => {}
    }
    words.extend(hop.container.as_ref().map(|name| format!("in {}", text::terminal(name))));
    words.join(" ")
}

/// Names threads by what tells them best from others, for where there is no room for all of [`who`]: `checkout.py`,
/// `bank [to-savings]`, `postgres`. Some of a program's threads are told from its others by what their names have in
/// common, which stands first, as what stands last is cut: `store-* of shop`.
pub(super) fn short_who(hop: &FindingHop) -> String {
    let program = text::terminal(hop.script.as_ref().unwrap_or(&hop.program));
    match &hop.thread_name {
        Some(name) if names_all(name, hop.threads) => {
            format!("{program} [{}]", text::terminal(name))
        }
        // The main thread has no name of its own, so that these are not all of the program's.
        Some(name) => format!("{} of {program}", text::terminal(name)),
        None => program,
    }
}

/// Returns a function's name as lines have it.
pub(super) fn function_name(name: &str) -> String {
    text::cut_chars(&text::terminal(name), MAX_FUNCTION)
}
