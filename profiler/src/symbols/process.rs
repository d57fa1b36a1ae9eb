//! What a process had mapped, and when.

use std::{fs::File, os::unix::fs::FileExt, rc::Rc};

use super::{
    Shortfalls, count,
    maps::{self, Backing, Line, Mapping},
    modules::{Modules, mount_namespace},
    perf_map::{PerfMapId, PerfMaps},
    python::MappedAt,
    pythons::Candidate,
    unwinding,
};
use crate::{
    units::{Nanos, Tgid, Timestamp},
    unwind::Code,
};

/// Mappings older than this are read again when a new stack comes, in case that a library was
/// unloaded and another one took its place. Reading takes some 0.1 to 1 ms.
const STALE: Nanos = Nanos(100_000_000);
/// The shortest time until the next reading after one that brought nothing new; doubled each time, up
/// to 128 times: broken walks give addresses in no mapping for ever.
const RETRY: Nanos = Nanos(10_000_000);
/// Programs of one process that are remembered.
const MAX_PROGRAMS: usize = 8;

type Mappings = Rc<[Mapping]>;

/// One program that a process ran, from one exec to the next.
///
/// ```text
///   fork/first sight     exec                     exit
///  ----|------------------|------------------------|-----> time
///      [ program 0 .......)[ program 1 ............)
/// ```
#[derive(Clone)]
pub(super) struct Program {
    from: Timestamp,
    until: Option<Timestamp>,
    read_at: Timestamp,
    mappings: Mappings,
    /// Code was unmapped, or something else came into its place, and nobody was told.
    lost_code: bool,
    /// Files that may be a CPython.
    pythons: Vec<Candidate>,
    /// The same for the unwinder.
    code: Rc<[Code]>,
    /// As they were at the reading before, if they were any different.
    before: Option<Mappings>,
    fruitless: u32,
    perf_map: Option<PerfMapId>,
}

impl Program {
    fn new(from: Timestamp) -> Self {
        Self {
            from,
            until: None,
            read_at: Timestamp(0),
            mappings: Rc::new([]),
            lost_code: false,
            pythons: Vec::new(),
            code: Rc::new([]),
            before: None,
            fruitless: 0,
            perf_map: None,
        }
    }

    fn pause(&self) -> Nanos {
        match self.fruitless {
            0 => Nanos(0),
            fruitless => Nanos(RETRY.0 << (fruitless - 1).min(7)),
        }
    }

    fn covers(&self, at: Timestamp) -> bool {
        self.from <= at && self.until.is_none_or(|until| at < until)
    }
}

/// What is at an address.
pub(super) enum Found {
    /// Nothing executable.
    Nothing,
    /// One thing before, and another after the stack was taken.
    Conflict,
    /// This.
    Mapping(Mapping),
}

/// A process.
#[derive(Default)]
pub(super) struct Process {
    programs: Vec<Program>,
}

impl Process {
    pub(super) fn is_alive(&self) -> bool {
        self.programs.last().is_some_and(|program| program.until.is_none())
    }

    /// Whether it is known which program it ran at `at`.
    pub(super) fn is_known_at(&self, at: Timestamp) -> bool {
        self.programs.iter().any(|program| program.covers(at))
    }

    /// It exists from `from` on; a process that had the number before is over.
    pub(super) fn begin(&mut self, from: Timestamp) {
        let from = self.programs.last().and_then(|program| program.until).unwrap_or(from);
        self.push(Program::new(from));
    }

    /// It exists from `at` on, as a copy.
    pub(super) fn begin_as_copy(&mut self, original: Program, at: Timestamp) {
        self.end(at);
        // Its perf map is named by its own number.
        self.push(Program { from: at, until: None, perf_map: None, fruitless: 0, ..original });
    }

    /// Another program from `at` on. Whether its mappings have to be read.
    pub(super) fn exec(&mut self, at: Timestamp) -> bool {
        if let Some(program) = self.programs.last_mut()
            && program.until.is_none()
            && program.read_at > at
        {
            // They were read after the exec, so they are the new program's.
            program.from = at;
            program.before = None;
            return false;
        }
        self.end(at);
        self.push(Program::new(at));
        true
    }

    pub(super) fn end(&mut self, at: Timestamp) {
        if let Some(program) = self.programs.last_mut() {
            program.until.get_or_insert(at);
        }
    }

    fn push(&mut self, program: Program) {
        if self.programs.len() == MAX_PROGRAMS {
            self.programs.remove(0);
        }
        self.programs.push(program);
    }

    /// The program that it ran at `at`.
    pub(super) fn at(&self, at: Timestamp) -> Option<Program> {
        self.programs.iter().rev().find(|program| program.covers(at)).cloned()
    }

    /// Whether the mappings are worth another reading, for a stack with these addresses.
    pub(super) fn wants_reading(&self, taken: Timestamp, addresses: &[u64]) -> bool {
        let Some(program) = self.programs.last() else { return false };
        // What is read later than the stack was taken does not get better by reading it once more.
        if program.until.is_some() || !program.covers(taken) || program.read_at >= taken {
            return false;
        }
        let unknown =
            |&address: &u64| address > 0xffff && lookup(&program.mappings, address).is_none();
        taken.since(program.read_at) > STALE
            || addresses.iter().any(unknown) && now().since(program.read_at) >= program.pause()
    }

    /// Reads the mappings of the program that runs now. False if the process is gone.
    pub(super) fn read(
        &mut self,
        tgid: Tgid,
        modules: &mut Modules,
        shortfalls: &mut Shortfalls,
    ) -> bool {
        let Some(program) = self.programs.last_mut() else { return false };
        // The clock first: whatever is mapped after it is not certain to be among the lines.
        let read_at = now();
        let Ok((lines, more)) = maps::read(tgid) else { return false };
        // A kernel thread never has any, a zombie no longer.
        if lines.is_empty() {
            return !is_zombie(tgid);
        }
        if more {
            count(shortfalls, "symbols_mappings_over_limit");
        }
        let mounts = mount_namespace(tgid);
        let mut mappings = Vec::with_capacity(lines.len());
        let mut pythons = Vec::new();
        for line in lines {
            // The kernel's own mappings have brackets, files a leading slash; `//anon`,
            // `/dev/zero`, `/memfd:` and `/SYSV` are memory that has a file only inside the kernel.
            let memory = ["//anon", "/dev/zero", "/memfd:", "/SYSV", "/anon_hugepage"]
                .iter()
                .any(|prefix| line.name.starts_with(prefix));
            let backing = if line.name == "[vdso]" {
                modules.of_vdso(tgid, &line).map(Backing::Module)
            } else if line.name.starts_with('/') && !memory {
                modules.of_file(tgid, mounts, &line).map(Backing::Module)
            } else if line.name == "[vsyscall]" {
                modules.missing(&line.name).map(Backing::Module)
            } else if line.name.starts_with("/memfd:") && starts_as_elf(tgid, &line) {
                modules.of_file(tgid, mounts, &line).map(Backing::Module)
            } else {
                let name = if line.name.is_empty() { "[anon]" } else { &line.name };
                modules.missing(name).map(Backing::Memory)
            };
            if let Some(backing) = backing {
                let (start, end, offset) = (line.start, line.end, line.offset);
                if let Backing::Module(module) = backing
                    && Candidate::is_named(&line.name)
                {
                    let mapped = MappedAt { start, offset };
                    pythons.push(Candidate { module, mapped, path: line.name.clone() });
                }
                mappings.push(Mapping { start, end, offset, backing });
            }
        }
        if *program.mappings == *mappings {
            program.fruitless += 1;
        } else {
            program.fruitless = 0;
            program.lost_code |= lacks_any(&program.mappings, &mappings);
            program.code = unwinding::code(&mappings);
            let before = std::mem::replace(&mut program.mappings, mappings.into());
            program.before = (!before.is_empty()).then_some(before);
        }
        program.pythons = pythons;
        program.read_at = read_at;
        true
    }

    /// Whether code of the program that runs now was unmapped since this was asked last.
    pub(super) fn take_lost_code(&mut self) -> bool {
        self.programs.last_mut().is_some_and(|program| std::mem::take(&mut program.lost_code))
    }

    /// Files that may be a CPython, of the program that runs now.
    pub(super) fn pythons(&self) -> &[Candidate] {
        self.programs.last().map_or(&[], |program| &program.pythons)
    }

    /// The code that was mapped when a stack was taken, as far as is known.
    pub(super) fn code(&self, taken: Timestamp) -> Option<Rc<[Code]>> {
        let program = self.programs.iter().rev().find(|program| program.covers(taken))?;
        Some(Rc::clone(&program.code))
    }

    /// What was at `address` when a stack was taken.
    pub(super) fn find(&self, taken: Timestamp, address: u64) -> Found {
        let Some(program) = self.programs.iter().rev().find(|program| program.covers(taken)) else {
            return Found::Nothing;
        };
        let now = lookup(&program.mappings, address);
        let before = program.before.as_ref().and_then(|mappings| lookup(mappings, address));
        match (before, now) {
            (None, None) => Found::Nothing,
            (Some(one), None) | (None, Some(one)) => Found::Mapping(one.clone()),
            (Some(before), Some(now)) => {
                let same = before.backing == now.backing
                    && before.start.wrapping_sub(before.offset)
                        == now.start.wrapping_sub(now.offset);
                if same { Found::Mapping(now.clone()) } else { Found::Conflict }
            }
        }
    }

    /// The perf map that names the code in memory of the program that ran at `taken`, opened at the
    /// first such address: held, it can still be read when the process is gone.
    pub(super) fn perf_map(
        &mut self,
        taken: Timestamp,
        tgid: Tgid,
        perf_maps: &mut PerfMaps,
    ) -> Option<PerfMapId> {
        let program = self.programs.iter_mut().rev().find(|program| program.covers(taken))?;
        let id = match program.perf_map {
            Some(id) => id,
            None => *program.perf_map.insert(perf_maps.add()?),
        };
        match program.until {
            None => perf_maps.open(id, tgid),
            // It is only told apart by that from the memory of others.
            Some(_) => perf_maps.end(id),
        }
        Some(id)
    }

    /// Lets go of the perf maps of programs that ended without one.
    pub(super) fn end_perf_maps(&self, perf_maps: &mut PerfMaps) {
        let ended = self.programs.iter().filter(|program| program.until.is_some());
        ended.filter_map(|program| program.perf_map).for_each(|id| perf_maps.end(id));
    }

    /// Opens the perf map of a process that still lives, if there was none before.
    pub(super) fn last_chance(&mut self, tgid: Tgid, perf_maps: &mut PerfMaps) {
        if let Some(Program { until: None, perf_map: Some(id), .. }) = self.programs.last() {
            perf_maps.open_now(*id, tgid);
        }
    }
}

/// Whether there was code before that is not where it was. What was made at run time comes and goes, and
/// no frame's name depends on its mapping.
fn lacks_any(before: &[Mapping], now: &[Mapping]) -> bool {
    let is_file = |mapping: &&Mapping| matches!(mapping.backing, Backing::Module(_));
    before.iter().filter(is_file).any(|mapping| !now.contains(mapping))
}

fn lookup(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    mappings[..after].last().filter(|mapping| address < mapping.end)
}

/// Programs are run from a memfd, and JITs map one twice: only the former begin as ELF files do.
fn starts_as_elf(tgid: Tgid, line: &Line) -> bool {
    // The code segment begins behind the header: the file itself has it.
    let link = format!("/proc/{tgid}/map_files/{:x}-{:x}", line.start, line.end);
    let mut magic = [0; 4];
    File::open(link)
        .is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF")
}

fn is_zombie(tgid: Tgid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{tgid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_none_or(|state| state.trim_start().starts_with(['Z', 'X']))
}

/// `CLOCK_MONOTONIC`, as the records have it.
pub(super) fn now() -> Timestamp {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Timestamp(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}
