//! Recorded stacks beside those that gdb finds.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt, fs,
};

use anyhow::{Context as _, Result, ensure};
use offwake_recording::{Frame, StackEnd};
use offwake_tests::{
    gdb::{self, Backtrace},
    programs::Program,
};

use super::recorded::Recorded;

/// Threads wake up by themselves now and then: gdb then finds one somewhere else, and looks again.
const LOOKS: u32 = 5;

/// Where code is: what has the same file at another address has it at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// An offset in a file.
    File(String, u64),
    /// An address, of memory that is no file's.
    Memory(u64),
}

/// A thread, and what both say of it.
#[derive(Debug)]
pub struct Thread {
    tid: u32,
    /// What it calls itself.
    pub name: String,
    /// Recorded places and their functions, leaf first.
    recorded: Vec<(Place, String)>,
    functions: Vec<String>,
    /// Why there are no more of them.
    pub end: StackEnd,
    /// The frames that gdb finds.
    gdbs: Vec<(Place, String)>,
    gdb_gave_up: Option<String>,
}

impl Thread {
    /// It has gdb's frames, all of them, and ends where the thread began. Where gdb says that there
    /// ought to be more and that it can't find them, it may have more.
    pub fn is_whole(&self) -> bool {
        let gdbs_are_all = self.recorded.len() == self.gdbs.len();
        let gdbs_are_fewer = self.gdb_gave_up.is_some() && self.recorded.len() > self.gdbs.len();
        let pairs = self.recorded.iter().zip(&self.gdbs);
        self.end == StackEnd::EntryPoint
            && (gdbs_are_all || gdbs_are_fewer)
            && pairs.into_iter().all(|((recorded, _), (gdbs, _))| recorded == gdbs)
    }

    /// Whether the stack has gdb's first frames, and ends before gdb's does.
    pub fn is_the_beginning_of_gdbs(&self) -> bool {
        let pairs = self.recorded.iter().zip(&self.gdbs);
        self.recorded.len() <= self.gdbs.len()
            && pairs.into_iter().all(|((recorded, _), (gdbs, _))| recorded == gdbs)
    }

    /// Recorded functions, those of an interpreter included.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(String::as_str)
    }

    fn is_in_the_same_place(&self) -> bool {
        self.recorded.first().map(|(place, _)| place) == self.gdbs.first().map(|(place, _)| place)
    }
}

/// Frame by frame.
impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "thread {} ({}), leaf first; recorded, then gdb's", self.tid, self.name)?;
        for number in 0..self.recorded.len().max(self.gdbs.len()) {
            let (recorded, gdbs) = (self.recorded.get(number), self.gdbs.get(number));
            let differs = recorded.map(|(place, _)| place) != gdbs.map(|(place, _)| place);
            write!(f, "{} #{number:<3}", if differs { '!' } else { ' ' })?;
            for frame in [recorded, gdbs] {
                let text = frame.map_or_else(String::new, |(place, function)| {
                    format!("{place} {function:.40}")
                });
                write!(f, " {text:<72}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "recorded: {:?}; gdb: {:?}", self.end, self.gdb_gave_up)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, offset) => {
                write!(f, "{}+{offset:#x}", path.rsplit('/').next().unwrap_or(path))
            }
            Self::Memory(address) => write!(f, "{address:#x}"),
        }
    }
}

impl Place {
    fn recorded(frame: &Frame, recorded: &Recorded) -> Self {
        let module =
            recorded.0.stacks.module_of(frame).filter(|module| module.path.starts_with('/'));
        match module.zip(frame.module_offset) {
            Some((module, offset)) => Self::File(module.path.clone(), offset),
            None => Self::Memory(frame.address),
        }
    }

    /// Finds the mapping of an address in the lines of `/proc/PID/maps`: `proc_pid_maps(5)`.
    fn mapped(address: u64, maps: &str) -> Self {
        let file = maps.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let (start, end) = (hex(start)?, hex(end)?);
            let offset = hex(fields.nth(1)?)?;
            let path = line.get(line.find('/')?..)?;
            let inside = (start..end).contains(&address);
            inside.then(|| Self::File(path.to_owned(), address - start + offset))
        });
        file.unwrap_or(Self::Memory(address))
    }
}

fn evaluates_python(function: &str) -> bool {
    // A compiler may have split parts of it off.
    function.starts_with("_PyEval_EvalFrameDefault")
}

/// Whether an address is in an executable mapping, by the lines of `/proc/PID/maps`.
fn is_executable(address: u64, maps: &str) -> bool {
    maps.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let range = range.and_then(|(start, end)| Some(hex(start)?..hex(end)?));
        range.is_some_and(|range| range.contains(&address))
            && fields.next().is_some_and(|permissions| permissions.contains('x'))
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Has gdb look at a program that still sleeps where it was recorded.
///
/// # Errors
///
/// When a thread was not recorded, or gdb can't look.
pub fn compared(program: &Program, recorded: &Recorded) -> Result<Vec<Thread>> {
    let mut threads = BTreeMap::new();
    for _ in 0..LOOKS {
        for pid in program.pids()? {
            for (tid, gdbs) in gdb::backtraces(pid)? {
                let looked = Thread::new(pid, tid, gdbs, recorded)?;
                match threads.entry(tid) {
                    Entry::Vacant(entry) => drop(entry.insert(looked)),
                    Entry::Occupied(mut entry) if looked.is_in_the_same_place() => {
                        entry.insert(looked);
                    }
                    Entry::Occupied(_) => {}
                }
            }
        }
        if threads.values().all(Thread::is_in_the_same_place) {
            break;
        }
    }
    ensure!(!threads.is_empty(), "no thread was compared");
    Ok(threads.into_values().collect())
}

impl Thread {
    fn new(pid: u32, tid: u32, gdbs: Backtrace, recorded: &Recorded) -> Result<Self> {
        let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"))?.trim().to_owned();
        let wait = recorded.last_waits().remove(&tid);
        let wait = wait.with_context(|| format!("no wait of {tid} ({name}) was recorded"))?;
        let stack =
            recorded.stack(wait.user_stack).with_context(|| format!("{tid} ({name}): {wait:?}"))?;
        let own = recorded.native_frames(stack).map(|frame| {
            let names: Vec<_> = frame.names().collect();
            (Place::recorded(frame, recorded), names.join(" < "))
        });
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let mut gdbs = gdbs;
        // Where nobody says that a stack ends, it takes what is above for more of it.
        let is_no_code =
            |frame: &gdb::Frame| frame.function.is_none() && !is_executable(frame.address, &maps);
        while gdbs.frames.pop_if(|frame| is_no_code(frame)).is_some() {}
        let theirs = gdbs
            .frames
            .into_iter()
            .map(|frame| (Place::mapped(frame.address, &maps), frame.function.unwrap_or_default()));
        // Python's frames stand for those of the function that evaluates them.
        let has_python = recorded.frames(stack).count() > recorded.native_frames(stack).count();
        let stays = |(_, function): &(Place, String)| !has_python || !evaluates_python(function);
        Ok(Self {
            tid,
            name,
            recorded: own.filter(stays).collect(),
            functions: recorded.functions(stack).into_iter().map(str::to_owned).collect(),
            end: stack.end,
            gdb_gave_up: gdbs.gave_up,
            gdbs: theirs.filter(stays).collect(),
        })
    }
}
