//! Which program each process ran, as an engineer would call it.

use std::collections::HashMap;

use indexmap::IndexSet;
use offwake_recording::{
    ProcessInfo, Recording, ThreadKind,
    units::{CgroupId, Nanos, Tgid, Tid, Timestamp},
};

use crate::{
    container_labels::ContainerLabels,
    frames::base_name,
    text,
    timeline::{NamedThread, Thread, ThreadIndex, Timeline},
};

use super::executions::{Executions, ProgramNumber};

/// Programs that run a script, which says more than their own name. A version may follow.
const INTERPRETERS: &[&str] = &[
    "python", "node", "nodejs", "ruby", "perl", "php", "bash", "sh", "dash", "zsh", "deno", "bun",
];

/// Options of interpreters whose next argument is not the script.
const OPTIONS_WITH_VALUE: &[&str] = &[
    "-W",
    "-X",
    "-r",
    "--require",
    "-I",
    "-cp",
    "-classpath",
    "--class-path",
    "-p",
    "--module-path",
];

/// The most characters of a process title.
const MAX_TITLE: usize = 48;

/// A title that was read so long after the window's end says nothing of the window any more.
const MAX_TITLE_AGE: Nanos = Nanos(1_000_000_000);

/// Identifies a program within one [`Programs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProgramId(u32);

impl ProgramId {
    /// Returns its number among all programs.
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

/// What several processes have in common that run the same thing in the same place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Program {
    /// The name of the program: `postgres`, `python3`.
    pub(super) name: String,
    /// What it runs, if it is an interpreter: `web2.py`.
    pub(super) script: Option<String>,
    /// The label of its container.
    pub(super) container: Option<String>,
    /// Whether it is the kernel itself.
    pub(super) kind: ProgramKind,
}

/// Whose code a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ProgramKind {
    User,
    Kernel,
}

/// The programs of a recording's threads.
pub(super) struct Programs<'a> {
    timeline: &'a Timeline,
    /// What is known of a process while it ran a program.
    infos: HashMap<(Tgid, ProgramId), &'a ProcessInfo>,
    /// What processes that slept were when the window had closed.
    at_end: HashMap<Tgid, &'a ProcessInfo>,
    /// For each thread the programs that it ran under its names, or the one that it ran if it has none.
    by_thread: Vec<Box<[ProgramId]>>,
    /// How many threads each process had.
    thread_counts: HashMap<Tgid, u32>,
    programs: IndexSet<Program>,
}

impl<'a> Programs<'a> {
    pub(super) fn new(recording: &'a Recording, timeline: &'a Timeline) -> Self {
        let executions = Executions::find(recording);
        // Sorted by time: the last reading counts, as titles change.
        let mut infos: HashMap<(Tgid, ProgramNumber), &ProcessInfo> = HashMap::new();
        let mut at_end = HashMap::new();
        for info in &recording.processes {
            let number = executions.program_number(info.tgid, info.at);
            let is_known = infos.contains_key(&(info.tgid, number));
            // What it is then says nothing of the waits before.
            if is_known && info.at >= recording.meta.window.end {
                at_end.insert(info.tgid, info);
                continue;
            }
            let known = infos.entry((info.tgid, number)).or_insert(info);
            // Who is about to end, or is becoming another program, says nothing any more.
            if !info.arguments.is_empty() || known.arguments.is_empty() {
                *known = info;
            }
        }
        let soon = recording.meta.window.end.0.saturating_add(MAX_TITLE_AGE.0);
        at_end.retain(|_, info: &mut &ProcessInfo| info.at.0 <= soon);
        let mut thread_counts: HashMap<Tgid, u32> = HashMap::new();
        let mut leaders: HashMap<Tgid, Vec<&Thread>> = HashMap::new();
        for thread in &timeline.threads {
            *thread_counts.entry(thread.tgid).or_default() += 1;
            if thread.tid == Tid(thread.tgid.0) {
                leaders.entry(thread.tgid).or_default().push(thread);
            }
        }
        let containers = ContainerLabels::new(recording);
        let mut programs = IndexSet::new();
        let mut infos_by_program = HashMap::new();
        let mut by_process: HashMap<(Tgid, ProgramNumber, Option<CgroupId>), ProgramId> =
            HashMap::new();
        let mut identify = |thread: &Thread, number: ProgramNumber| {
            let program = match thread.kind {
                ThreadKind::Kernel => kernel_program(thread),
                ThreadKind::User | ThreadKind::User32 => {
                    let end = executions.end_of_program(thread.tgid, number);
                    let leaders = leaders.get(&thread.tgid).map_or(&[][..], Vec::as_slice);
                    let leader = find_leader(leaders, end).unwrap_or(thread);
                    let comm = end.and_then(|end| leader.comm_at(just_before(end)));
                    let comm = comm.unwrap_or_else(|| Thread::last_comm(leader));
                    let container = containers.for_thread(thread).map(str::to_owned);
                    user_program(infos.get(&(thread.tgid, number)).copied(), comm, container)
                }
            };
            let (index, _) = programs.insert_full(program);
            let id = ProgramId(u32::try_from(index).unwrap_or(u32::MAX));
            if let Some(&info) = infos.get(&(thread.tgid, number)) {
                infos_by_program.insert((thread.tgid, id), info);
            }
            id
        };
        let by_thread = (timeline.threads.iter())
            .map(|thread| {
                let name_ends = (thread.names.iter().skip(1))
                    .map(|next| just_before(next.since))
                    .chain([thread.until]);
                name_ends
                    .map(|end| match thread.kind {
                        ThreadKind::Kernel => identify(thread, 0),
                        ThreadKind::User | ThreadKind::User32 => {
                            let number = executions.program_number(thread.tgid, end);
                            let key = (thread.tgid, number, thread.cgroup);
                            *by_process.entry(key).or_insert_with(|| identify(thread, number))
                        }
                    })
                    .collect()
            })
            .collect();
        Self { timeline, infos: infos_by_program, at_end, by_thread, thread_counts, programs }
    }

    /// Returns the program that a thread ran under a name.
    pub(super) fn program_under_name(&self, named: NamedThread) -> ProgramId {
        let names = self.by_thread.get(named.thread.0 as usize);
        let program = names.and_then(|programs| programs.get(named.name? as usize).copied());
        program.unwrap_or_else(|| self.program_of_thread(named.thread))
    }

    /// Returns the program that a thread ran last.
    pub(super) fn program_of_thread(&self, thread: ThreadIndex) -> ProgramId {
        let programs = self.by_thread.get(thread.0 as usize);
        programs.and_then(|programs| programs.last().copied()).unwrap_or(ProgramId(u32::MAX))
    }

    /// Returns a program by its id.
    pub(super) fn program(&self, id: ProgramId) -> Option<&Program> {
        self.programs.get_index(id.0 as usize)
    }

    /// Names what the target ran last if it is one process: `python3 web2.py`, `cc1plus heavy.cc`.
    pub(super) fn name_only_process(&self) -> Option<String> {
        let mut targets = (self.timeline.threads.iter().zip(0..))
            .filter(|(thread, _)| thread.in_target && thread.kind != ThreadKind::Kernel);
        let (first, n) = targets.next()?;
        let (mut last, process) = (ThreadIndex(n), first.tgid);
        for (thread, n) in targets {
            if thread.tgid != process {
                return None;
            }
            if thread.tid == Tid(process.0) {
                last = ThreadIndex(n);
            }
        }
        let id = self.program_of_thread(last);
        let program = self.program(id)?;
        let script = program.script.clone().or_else(|| self.subject(process, id));
        let words = [Some(text::terminal(&program.name)), script.map(|name| text::terminal(&name))];
        Some(words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }

    /// Returns the title that a process gave itself while it ran a program, without that program's
    /// name: `"UPDATE waiting"`. PostgreSQL's backends and nginx's workers have one.
    pub(super) fn title(&self, process: Tgid, program: ProgramId) -> Option<String> {
        title_of(self.infos.get(&(process, program))?)
    }

    /// Returns the title that a process had at the window's end, or the last one that it was seen with.
    pub(super) fn title_at_end(&self, process: Tgid, program: ProgramId) -> Option<String> {
        title_of(self.info_at_end(process, program)?)
    }

    /// Returns when the title was read that a process had at the window's end.
    pub(super) fn read_at(&self, process: Tgid, program: ProgramId) -> Option<Timestamp> {
        self.info_at_end(process, program).map(|info| info.at)
    }

    fn info_at_end(&self, process: Tgid, program: ProgramId) -> Option<&'a ProcessInfo> {
        let known = self.infos.get(&(process, program)).copied()?;
        // It may have become another program since.
        let at_end = self.at_end.get(&process).filter(|info| info.executable == known.executable);
        Some(at_end.copied().unwrap_or(known))
    }

    /// Returns the file that a process ran a program on, if its command line names one: `heavy.cc` of
    /// a compiler.
    pub(super) fn subject(&self, process: Tgid, program: ProgramId) -> Option<String> {
        let info = self.infos.get(&(process, program))?;
        let argument = info.arguments.iter().skip(1).find(|argument| is_file_name(argument))?;
        Some(text::cut_chars(base_name(argument), MAX_TITLE))
    }

    /// Returns what tells a thread from the others of its process: its name, or its number. Nothing
    /// for a process with one thread.
    pub(super) fn thread_in_words(&self, thread: ThreadIndex) -> Option<String> {
        let life = self.timeline.thread(thread)?;
        if let Some(name) = self.own_thread_name(thread) {
            return Some(name.to_owned());
        }
        let is_alone = self.thread_counts.get(&life.tgid).is_none_or(|count| *count < 2);
        match (is_alone, life.tid == Tid(life.tgid.0)) {
            (true, _) => None,
            (false, true) => Some("main thread".to_owned()),
            (false, false) => Some(format!("thread {}", life.tid)),
        }
    }

    /// Returns the thread's own name, if it tells more than that of its process.
    pub(super) fn own_thread_name(&self, thread: ThreadIndex) -> Option<&str> {
        let life = self.timeline.thread(thread)?;
        let name = &*life.names.last()?.comm;
        let program = self.program(self.program_of_thread(thread))?;
        (life.tid != Tid(life.tgid.0) && name != program.name).then_some(name)
    }
}

/// Returns the title that a process gave itself, without its program's name.
fn title_of(info: &ProcessInfo) -> Option<String> {
    let [title] = info.arguments.as_slice() else { return None };
    let title = title.trim_end_matches([' ', '\0']);
    let (_, rest) = title.split_once(": ")?;
    // PostgreSQL says user, database and client first, and last what the session does.
    let rest = rest.rsplit_once([']', ')']).map_or(rest, |(_, activity)| activity).trim();
    (!rest.is_empty() && !title.starts_with('/')).then(|| text::cut_chars(rest, MAX_TITLE))
}

/// Workers of the kernel that differ in their CPU alone are one program: `kworker/0:1-events`.
fn kernel_program(thread: &Thread) -> Program {
    let comm = Thread::last_comm(thread);
    let name = comm.split(['/', ':']).next().unwrap_or(comm);
    let name = if matches!(name, "kworker" | "ksoftirqd" | "migration" | "cpuhp" | "idle_inject") {
        name
    } else {
        comm
    };
    Program { name: name.to_owned(), script: None, container: None, kind: ProgramKind::Kernel }
}

/// Finds the first thread of a process as it was when a program of the process ended; none if no end is
/// known: the last one.
fn find_leader<'t>(leaders: &[&'t Thread], end: Option<Timestamp>) -> Option<&'t Thread> {
    let before = |leader: &&&Thread| end.is_none_or(|end| leader.from < end);
    leaders.iter().rev().find(before).copied()
}

fn just_before(at: Timestamp) -> Timestamp {
    Timestamp(at.0.saturating_sub(1))
}

fn user_program(info: Option<&ProcessInfo>, comm: &str, container: Option<String>) -> Program {
    let base = |path: &str| base_name(path).to_owned();
    let arguments = info.map_or([].as_slice(), |info| info.arguments.as_slice());
    let executable = (info.and_then(|info| info.executable.as_deref()))
        .map(|path| base(path.trim_end_matches(" (deleted)")));
    // A program in memory without a name.
    let executable = executable.filter(|file| !file.starts_with("memfd:"));
    // A process that gives itself a title writes it there: `redis-server *:6379`.
    let called = arguments.first().and_then(|first| first.split([' ', ':']).next()).map(base);
    // `python3` rather than the `python3.11` that the link leads to.
    let called = called.filter(|called| {
        let is_executable = executable.as_ref().is_some_and(|file| file.starts_with(&**called));
        !called.is_empty() && (is_executable || called == comm)
    });
    let name = called.or(executable).unwrap_or_else(|| comm.to_owned());
    let script = script(&name, arguments);
    Program { name, script, container, kind: ProgramKind::User }
}

/// Returns whether an argument looks like the name of a file: no option, and with an extension.
fn is_file_name(argument: &str) -> bool {
    let extension = argument.rsplit_once('.').map(|(_, extension)| extension);
    !argument.starts_with('-')
        && !argument.contains(['=', ' ', ':'])
        && extension.is_some_and(|extension| {
            (1..=6).contains(&extension.len())
                && extension.starts_with(|c: char| c.is_ascii_alphabetic())
                && extension.bytes().all(|c| c.is_ascii_alphanumeric())
        })
}

/// Finds what an interpreter runs: its first argument that is no option.
fn script(program: &str, arguments: &[String]) -> Option<String> {
    let plain = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let base = |path: &str| base_name(path).to_owned();
    let mut rest = arguments.iter().skip(1);
    if plain == "java" {
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "-jar" => return rest.next().map(|jar| base(jar)),
                option if OPTIONS_WITH_VALUE.contains(&option) => _ = rest.next(),
                option if option.starts_with('-') => {}
                class => return Some(class.rsplit('.').next().unwrap_or(class).to_owned()),
            }
        }
        return None;
    }
    if !INTERPRETERS.contains(&plain) {
        return None;
    }
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-m" => return rest.next().map(|module| format!("-m {module}")),
            "-c" | "-e" => return None,
            option if OPTIONS_WITH_VALUE.contains(&option) => _ = rest.next(),
            option if option.starts_with('-') => {}
            // A digit is some option's value.
            number if number.bytes().all(|c| c.is_ascii_digit()) => return None,
            script => return Some(base(script)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{is_file_name, script};

    fn script_of(line: &str) -> Option<String> {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        script(arguments[0].rsplit('/').next().unwrap(), &arguments)
    }

    #[test]
    fn files_are_told_from_options_and_addresses() {
        for file in ["heavy.cc", "/srv/shop/orders.sqlite", "nginx.conf"] {
            assert!(is_file_name(file), "{file}");
        }
        for other in ["-quiet", "x86_64-linux-gnu", "127.0.0.1", "127.0.0.1:80", "a=b.c", "1.5"] {
            assert!(!is_file_name(other), "{other}");
        }
    }

    #[test]
    fn interpreters_are_known_by_their_scripts() {
        for (line, script) in [
            ("python3 /srv/web2.py --port 80", Some("web2.py")),
            ("/usr/bin/python3.11 -X dev -u worker.py", Some("worker.py")),
            ("python3 -m http.server 80", Some("-m http.server")),
            ("python3 -c pass", None),
            ("node --max-old-space-size=64 app.js", Some("app.js")),
            ("java -Xmx64m -cp a:b com.example.Main x", Some("Main")),
            ("java -jar /srv/shop.jar", Some("shop.jar")),
            ("bash deploy.sh", Some("deploy.sh")),
            ("postgres -D data", None),
            ("make all", None),
        ] {
            assert_eq!(script_of(line).as_deref(), script, "{line}");
        }
    }
}
