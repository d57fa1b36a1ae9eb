//! What a process had mapped, and when.
//!
//! A stack is looked up in what was mapped in the [epoch](CodeEpoch) of the process's code in which
//! it was taken. Where the kernel reports no epochs, only what was mapped both before and after is
//! certain.
//!
//! ```text
//!         reading      stack taken       dlopen   reading
//!  ----------|--------------|---------------|--------|--------> time
//!  [ epoch 7                |               [ epoch 8
//!            <-- looked up -'
//! ```

use std::{iter, rc::Rc};

use offwake_recording::{
    loss::{Diagnostics, count},
    units::{Nanos, Tgid, Timestamp},
};
use offwake_unwind::CodeMapping;
use rustix::io::Errno;

use super::{
    MappedFile,
    mappings::{
        Backing, Mapping, MappingSnapshot, PythonCandidate, PythonCandidates, resolve_lines,
    },
    modules::Modules,
    perf_maps::{PerfMapId, PerfMaps},
};
use crate::{decode::CodeEpoch, reader_process, symbols::clock::monotonic_now};

/// Mappings older than this are read again when a new stack comes of which no epoch is known, in
/// case that a library was unloaded and another one took its place. Reading takes some 0.1 to 1 ms.
const STALE: Nanos = Nanos(100_000_000);
/// The shortest time until the next reading after one that brought nothing new; doubled each time,
/// up to 128 times: broken walks give addresses in no mapping for ever.
const RETRY: Nanos = Nanos(10_000_000);
/// Programs of one process that are remembered.
const MAX_PROGRAMS: usize = 8;

/// How often mappings are read at a time, as an epoch can end meanwhile.
const READINGS: usize = 4;

/// When a stack was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub taken: Timestamp,
    /// The epoch of the process's code, where the kernel reports epochs.
    pub code_epoch: Option<CodeEpoch>,
}

impl Moment {
    /// A moment of which no more is known than the time.
    pub(crate) fn at(taken: Timestamp) -> Self {
        Self { taken, code_epoch: None }
    }
}

/// A function that returns the epoch of a process's code now, if the kernel reports epochs.
pub type CodeEpochs = Box<dyn Fn(Tgid) -> Option<CodeEpoch> + Send>;

/// One program that a process ran, from one exec to the next.
///
/// ```text
///   fork/first sight     exec                     exit
///  ----|------------------|------------------------|-----> time
///      [ program 0 .......)[ program 1 ............)
/// ```
#[derive(Clone)]
pub(crate) struct Program {
    from: Timestamp,
    until: Option<Timestamp>,
    read_at: Timestamp,
    /// Whether the process was gone as its mappings were to be read. Its last stacks come after it,
    /// and would have it looked for once each.
    is_gone: bool,
    current: MappingSnapshot,
    /// The snapshot before the current one, if it was different.
    before: Option<MappingSnapshot>,
    /// Code may have been unmapped, and other code mapped in its place, since this was asked last.
    lost_code: bool,
    /// Files that may be a CPython.
    pythons: PythonCandidates,
    fruitless: u32,
    perf_map: Option<PerfMapId>,
}

impl Program {
    fn new(from: Timestamp) -> Self {
        Self {
            from,
            until: None,
            read_at: Timestamp(0),
            is_gone: false,
            current: MappingSnapshot::empty(),
            before: None,
            lost_code: false,
            pythons: PythonCandidates::default(),
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

    /// What was mapped in an epoch: all code that was run in it.
    fn snapshot_in(&self, epoch: CodeEpoch) -> Option<&MappingSnapshot> {
        let mut snapshots = iter::once(&self.current).chain(&self.before);
        snapshots.find(|snapshot| snapshot.code_epoch == Some(epoch))
    }

    /// Whether the current snapshot may have been mapped later than in the epoch of a stack.
    fn is_of_other_epoch(&self, epoch: Option<CodeEpoch>) -> bool {
        epoch.is_some() && self.current.code_epoch.is_some() && self.current.code_epoch != epoch
    }

    fn replace(&mut self, new: MappingSnapshot) {
        let old_epoch = self.current.code_epoch;
        self.lost_code |=
            old_epoch != new.code_epoch && old_epoch.is_some() || self.current.has_lost_code(&new);
        let before = std::mem::replace(&mut self.current, new);
        self.before = (!before.mappings.is_empty()).then_some(before);
    }
}

/// What is mapped at an address.
pub(crate) enum MappedCode {
    /// Nothing executable.
    Nothing,
    /// One thing before, and another after the stack was taken.
    Conflict,
    /// This mapping.
    Mapping(Mapping),
}

/// A process.
#[derive(Default)]
pub(crate) struct Process {
    programs: Vec<Program>,
}

impl Process {
    pub(crate) fn is_alive(&self) -> bool {
        self.programs.last().is_some_and(|program| program.until.is_none())
    }

    /// Whether nothing was read yet of the program that the process runs now.
    pub(crate) fn is_unread(&self) -> bool {
        let unread = |program: &Program| program.until.is_none() && program.read_at.0 == 0;
        self.programs.last().is_some_and(|program| unread(program) && !program.is_gone)
    }

    /// Whether it is known which program the process ran at `at`.
    pub(crate) fn is_known_at(&self, at: Timestamp) -> bool {
        self.programs.iter().any(|program| program.covers(at))
    }

    /// The process exists from `from` on. A process that had the number before is over.
    pub(crate) fn begin(&mut self, from: Timestamp) {
        let from = self.programs.last().and_then(|program| program.until).unwrap_or(from);
        self.push(Program::new(from));
    }

    /// The process exists from `at` on, as a copy of another one.
    pub(crate) fn begin_as_copy(&mut self, original: Program, at: Timestamp) {
        self.end(at);
        // The perf map of the child is named by its own number.
        let Program { current, before, .. } = original;
        // The child's code has epochs of its own.
        let inherited = |snapshot: MappingSnapshot| snapshot.in_epoch(None);
        self.push(Program {
            from: at,
            until: None,
            current: inherited(current),
            before: before.map(inherited),
            perf_map: None,
            fruitless: 0,
            is_gone: false,
            ..original
        });
    }

    /// The process runs another program from `at` on. Returns whether its mappings have to be read.
    pub(crate) fn exec(&mut self, at: Timestamp) -> bool {
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

    /// The process ended at `at`.
    pub(crate) fn end(&mut self, at: Timestamp) {
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

    /// The program that the process ran at `at`.
    pub(crate) fn at(&self, at: Timestamp) -> Option<Program> {
        self.programs.iter().rev().find(|program| program.covers(at)).cloned()
    }

    /// Whether the mappings are worth another reading, for a stack with these addresses.
    pub(crate) fn needs_reading(&self, moment: Moment, addresses: &[u64]) -> bool {
        let Moment { taken, code_epoch } = moment;
        let Some(program) = self.programs.last() else { return false };
        // A snapshot that is younger than the stack does not get better by reading once more.
        let is_over = program.until.is_some() || program.is_gone;
        if is_over || !program.covers(taken) || program.read_at >= taken {
            return false;
        }
        let is_stale = match code_epoch {
            Some(_) => program.current.code_epoch != code_epoch,
            None => taken.since(program.read_at) > STALE,
        };
        let unknown = |&address: &u64| address > 0xffff && program.current.find(address).is_none();
        is_stale
            || addresses.iter().any(unknown)
                && monotonic_now().since(program.read_at) >= program.pause()
    }

    /// Reads the mappings of the program that runs now. False if the process is gone.
    pub(crate) fn read_mappings(
        &mut self,
        tgid: Tgid,
        epochs: Option<&CodeEpochs>,
        modules: &mut Modules,
        diagnostics: &mut Diagnostics,
    ) -> bool {
        let Some(program) = self.programs.last_mut() else { return false };
        for _ in 0..READINGS {
            let code_epoch = epochs.and_then(|epochs| epochs(tgid));
            // The clock first: whatever is mapped after it is not certain to be among the lines.
            let read_at = monotonic_now();
            let read = match reader_process::read_mappings(tgid) {
                Ok(read) => read,
                Err(error) => {
                    program.is_gone = matches!(error, Errno::NOENT | Errno::SRCH);
                    return false;
                }
            };
            // A kernel thread never has any, a zombie no longer.
            if read.lines.is_empty() {
                return !is_zombie(tgid);
            }
            // They can be of either then.
            if code_epoch != epochs.and_then(|epochs| epochs(tgid)) {
                continue;
            }
            if read.more {
                count(diagnostics, "symbols_mappings_over_limit");
            }
            let (mappings, pythons) = resolve_lines(tgid, read, modules);
            if *program.current.mappings == *mappings && program.current.code_epoch == code_epoch {
                program.fruitless += 1;
            } else {
                let snapshot = MappingSnapshot::new(mappings, code_epoch);
                // Where there is no room for them, it is not looked again and again.
                program.fruitless = if snapshot.is_some() { 0 } else { program.fruitless + 1 };
                program.replace(snapshot.unwrap_or_else(|| {
                    count(diagnostics, "symbols_mappings_over_limit");
                    MappingSnapshot::empty().in_epoch(code_epoch)
                }));
            }
            program.pythons = PythonCandidates::new(pythons).unwrap_or_else(|| {
                count(diagnostics, "symbols_mappings_over_limit");
                PythonCandidates::default()
            });
            program.read_at = read_at;
            return true;
        }
        count(diagnostics, "symbols_mapping_conflicts");
        true
    }

    /// Whether code of the program that runs now was unmapped since this was called last.
    pub(crate) fn check_lost_code(&mut self) -> bool {
        self.programs.last_mut().is_some_and(|program| std::mem::take(&mut program.lost_code))
    }

    /// Files that may be a CPython, of the program that runs now.
    pub(crate) fn python_candidates(&self) -> &[PythonCandidate] {
        self.programs.last().map_or(&[], |program| program.pythons.files())
    }

    /// The files that the program which runs now has mapped as code.
    pub(crate) fn mapped_files(&self) -> Vec<MappedFile> {
        let program = self.programs.last().filter(|program| program.until.is_none());
        let mappings = program.iter().flat_map(|program| program.current.mappings.iter());
        let file = |mapping: &Mapping| match mapping.backing {
            Backing::Module(module) => {
                Some(MappedFile { module, start: mapping.start, offset: mapping.offset })
            }
            Backing::Memory(_) => None,
        };
        mappings.filter_map(file).collect()
    }

    /// The code that was mapped when a stack was taken, as far as is known.
    pub(crate) fn code(&self, moment: Moment) -> Option<Rc<[CodeMapping]>> {
        let Moment { taken, code_epoch } = moment;
        let program = self.programs.iter().rev().find(|program| program.covers(taken))?;
        if let Some(snapshot) = code_epoch.and_then(|epoch| program.snapshot_in(epoch)) {
            return Some(Rc::clone(&snapshot.code));
        }
        (!program.is_of_other_epoch(code_epoch)).then(|| Rc::clone(&program.current.code))
    }

    /// What was mapped at `address` when a stack was taken.
    pub(crate) fn find(&self, moment: Moment, address: u64) -> MappedCode {
        let Moment { taken, code_epoch } = moment;
        let Some(program) = self.programs.iter().rev().find(|program| program.covers(taken)) else {
            return MappedCode::Nothing;
        };
        if let Some(snapshot) = code_epoch.and_then(|epoch| program.snapshot_in(epoch)) {
            let found = snapshot.find(address).cloned();
            return found.map_or(MappedCode::Nothing, MappedCode::Mapping);
        }
        let now = program.current.find(address);
        let before = program.before.as_ref().and_then(|before| before.find(address));
        match (before, now) {
            (None, None) => MappedCode::Nothing,
            (Some(_), None) | (None, Some(_)) if program.is_of_other_epoch(code_epoch) => {
                MappedCode::Conflict
            }
            (Some(one), None) | (None, Some(one)) => MappedCode::Mapping(one.clone()),
            (Some(before), Some(now)) => {
                let same = before.backing == now.backing
                    && before.start.wrapping_sub(before.offset)
                        == now.start.wrapping_sub(now.offset);
                if same { MappedCode::Mapping(now.clone()) } else { MappedCode::Conflict }
            }
        }
    }

    /// The perf map that names the code in memory of the program that ran at `taken`, opened at the
    /// first such address: held, it can still be read when the process is gone.
    pub(crate) fn perf_map(
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
            // It only distinguishes this memory from that of other processes.
            Some(_) => perf_maps.end(id),
        }
        Some(id)
    }

    /// Drops the perf maps of programs that ended without a file.
    pub(crate) fn end_perf_maps(&self, perf_maps: &mut PerfMaps) {
        let ended = self.programs.iter().filter(|program| program.until.is_some());
        ended.filter_map(|program| program.perf_map).for_each(|id| perf_maps.end(id));
    }

    /// Opens the perf map of a process that still lives, unless it is open.
    pub(crate) fn open_perf_map(&mut self, tgid: Tgid, perf_maps: &mut PerfMaps) {
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
