//! What a process had mapped, and when.
//!
//! A stack is looked up in what was mapped in the [epoch](CodeEpoch) of the process's code in which it
//! was taken. Where the kernel tells of none, what was mapped before and after it says what is certain.
//!
//! ```text
//!         reading      stack taken       dlopen   reading
//!  ----------|--------------|---------------|--------|--------> time
//!  [ epoch 7                |               [ epoch 8
//!            <-- looked up -'
//! ```

use std::{iter, rc::Rc};

use offwake_unwind::CodeMapping;

use super::{
    Shortfalls, count,
    mapped::{Reading, as_mappings},
    maps::{self, Mapping},
    modules::Modules,
    perf_map::{PerfMapId, PerfMaps},
    pythons::Candidate,
    unwinding,
};
use crate::{
    decode::CodeEpoch,
    units::{Nanos, Tgid, Timestamp},
};

/// Mappings older than this are read again when a new stack comes of which no epoch is known, in case
/// that a library was unloaded and another one took its place. Reading takes some 0.1 to 1 ms.
const STALE: Nanos = Nanos(100_000_000);
/// The shortest time until the next reading after one that brought nothing new; doubled each time, up
/// to 128 times: broken walks give addresses in no mapping for ever.
const RETRY: Nanos = Nanos(10_000_000);
/// Programs of one process that are remembered.
const MAX_PROGRAMS: usize = 8;

/// How often mappings are read at a time, as an epoch can end meanwhile.
const READINGS: usize = 4;

/// When a stack was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub taken: Timestamp,
    /// The epoch of the process's code, where the kernel tells of them.
    pub code_epoch: Option<CodeEpoch>,
}

impl Moment {
    /// One of which no more is known than the time.
    pub(super) fn at(taken: Timestamp) -> Self {
        Self { taken, code_epoch: None }
    }
}

/// What says in which epoch a process's code is now, where the kernel tells.
pub type CodeEpochs = Box<dyn Fn(Tgid) -> Option<CodeEpoch> + Send>;

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
    read: Reading,
    /// As it was at the reading before, if that was any different.
    before: Option<Reading>,
    /// Code may have been unmapped, and something else have come into its place, and nobody was told.
    lost_code: bool,
    /// Files that may be a CPython.
    pythons: Vec<Candidate>,
    fruitless: u32,
    perf_map: Option<PerfMapId>,
}

impl Program {
    fn new(from: Timestamp) -> Self {
        Self {
            from,
            until: None,
            read_at: Timestamp(0),
            read: Reading::nothing(),
            before: None,
            lost_code: false,
            pythons: Vec::new(),
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

    /// What was mapped in an epoch: all of it that was ever run.
    fn read_in(&self, epoch: CodeEpoch) -> Option<&Reading> {
        iter::once(&self.read).chain(&self.before).find(|read| read.code_epoch == Some(epoch))
    }

    /// Whether what was read may have been mapped later than in the epoch of a stack.
    fn is_of_other_epoch(&self, epoch: Option<CodeEpoch>) -> bool {
        epoch.is_some() && self.read.code_epoch.is_some() && self.read.code_epoch != epoch
    }

    fn replace(&mut self, read: Reading) {
        self.lost_code |= self.read.code_epoch != read.code_epoch && self.read.code_epoch.is_some()
            || self.read.lost_any(&read);
        let before = std::mem::replace(&mut self.read, read);
        self.before = (!before.mappings.is_empty()).then_some(before);
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
        let Program { read, before, .. } = original;
        // Its code has epochs of its own.
        let inherited = |read: Reading| Reading { code_epoch: None, ..read };
        self.push(Program {
            from: at,
            until: None,
            read: inherited(read),
            before: before.map(inherited),
            perf_map: None,
            fruitless: 0,
            ..original
        });
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
    pub(super) fn wants_reading(&self, moment: Moment, addresses: &[u64]) -> bool {
        let Moment { taken, code_epoch } = moment;
        let Some(program) = self.programs.last() else { return false };
        // What is read later than the stack was taken does not get better by reading it once more.
        if program.until.is_some() || !program.covers(taken) || program.read_at >= taken {
            return false;
        }
        let is_stale = match code_epoch {
            Some(_) => program.read.code_epoch != code_epoch,
            None => taken.since(program.read_at) > STALE,
        };
        let unknown = |&address: &u64| address > 0xffff && program.read.find(address).is_none();
        is_stale || addresses.iter().any(unknown) && now().since(program.read_at) >= program.pause()
    }

    /// Reads the mappings of the program that runs now. False if the process is gone.
    pub(super) fn read(
        &mut self,
        tgid: Tgid,
        epochs: Option<&CodeEpochs>,
        modules: &mut Modules,
        shortfalls: &mut Shortfalls,
    ) -> bool {
        let Some(program) = self.programs.last_mut() else { return false };
        for _ in 0..READINGS {
            let code_epoch = epochs.and_then(|epochs| epochs(tgid));
            // The clock first: whatever is mapped after it is not certain to be among the lines.
            let read_at = now();
            let Ok((lines, more)) = maps::read(tgid) else { return false };
            // A kernel thread never has any, a zombie no longer.
            if lines.is_empty() {
                return !is_zombie(tgid);
            }
            // They can be of either then.
            if code_epoch != epochs.and_then(|epochs| epochs(tgid)) {
                continue;
            }
            if more {
                count(shortfalls, "symbols_mappings_over_limit");
            }
            let (mappings, pythons) = as_mappings(tgid, lines, modules);
            if *program.read.mappings == *mappings && program.read.code_epoch == code_epoch {
                program.fruitless += 1;
            } else {
                program.fruitless = 0;
                let code = unwinding::code(&mappings);
                program.replace(Reading { mappings: mappings.into(), code, code_epoch });
            }
            program.pythons = pythons;
            program.read_at = read_at;
            return true;
        }
        count(shortfalls, "symbols_mapping_conflicts");
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
    pub(super) fn code(&self, moment: Moment) -> Option<Rc<[CodeMapping]>> {
        let Moment { taken, code_epoch } = moment;
        let program = self.programs.iter().rev().find(|program| program.covers(taken))?;
        if let Some(read) = code_epoch.and_then(|epoch| program.read_in(epoch)) {
            return Some(Rc::clone(&read.code));
        }
        (!program.is_of_other_epoch(code_epoch)).then(|| Rc::clone(&program.read.code))
    }

    /// What was at `address` when a stack was taken.
    pub(super) fn find(&self, moment: Moment, address: u64) -> Found {
        let Moment { taken, code_epoch } = moment;
        let Some(program) = self.programs.iter().rev().find(|program| program.covers(taken)) else {
            return Found::Nothing;
        };
        if let Some(read) = code_epoch.and_then(|epoch| program.read_in(epoch)) {
            return read
                .find(address)
                .map_or(Found::Nothing, |found| Found::Mapping(found.clone()));
        }
        let now = program.read.find(address);
        let before = program.before.as_ref().and_then(|before| before.find(address));
        match (before, now) {
            (None, None) => Found::Nothing,
            (Some(_), None) | (None, Some(_)) if program.is_of_other_epoch(code_epoch) => {
                Found::Conflict
            }
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
