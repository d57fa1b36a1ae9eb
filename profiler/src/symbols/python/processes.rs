//! The processes that run Python: whose threads the kernel half is to walk, and how what it
//! captured becomes part of a stack.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
    sync::{Mutex, PoisonError},
};

use object::ReadCache;
use offwake_recording::{
    Function, ModuleId,
    loss::{Diagnostics, count},
    units::{Nanos, Tgid, Tid, Timestamp},
};
use offwake_unwind::{UnwindEnd, UnwoundStack};
use profiler_ebpf::python::{PythonProcess, PythonThreadState};
use rustix::process::Resource;

use super::{
    code::{CodeNames, Named},
    image::{Image, NotFound},
    interpreter::{Captured, Interpreter, MappedAt, Part},
    memory::{CachedMemory, ProcessMemory},
    merge::{ChainEnd, Doubt, Merged, NativeEnd, NativeFrame, merge},
    own_storage,
    threads::{Tasks, ThreadState, thread_states},
    walk::walk,
};
use crate::{
    decode::PythonStack,
    reader_process,
    symbols::{
        address_spaces::{
            PythonCandidate,
            held_file::is_unchanged,
            modules::{ModuleContent, Modules},
        },
        clock::monotonic_now,
        name_limit::cut_name,
    },
};

/// Bytes of a file that a CPython is looked for in, at most. Debug builds have some 50 MiB.
const MAX_IMAGE: u64 = 512 << 20;
/// The module that Python frames lie in.
pub(crate) const MODULE: &str = "[python]";
/// The shortest time between two searches for the threads of a process.
const PAUSE: Nanos = Nanos(20_000_000);
/// Processes that are kept track of at most: each holds a descriptor, and all of them an eighth of
/// those that there may be.
const MAX_PROCESSES: u64 = 4_096;

/// The CPython of each process that runs one, for whoever reads its locks when the window closes.
static KNOWN: Mutex<BTreeMap<Tgid, Interpreter>> = Mutex::new(BTreeMap::new());

/// Returns the CPython that a process was found to run.
pub(crate) fn find_known_interpreter(tgid: Tgid) -> Option<Interpreter> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&tgid).cloned()
}

/// Whether a thread runs Python, for the kernel half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonThread {
    /// The thread.
    pub tid: Tid,
    /// Where the thread keeps its Python frames. None if it does not run Python any more.
    pub runs: Option<PythonThreadState>,
}

/// Whether a process runs Python in a way that lets its threads' states be found in the threads' own
/// storage, for the kernel half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonProgram {
    /// The process.
    pub tgid: Tgid,
    /// How they are found there. None if the process does not run Python any more.
    pub runs: Option<PythonProcess>,
}

/// A frame of a stack into which Python's were put.
pub(crate) enum MergedFrame {
    /// One of the native stack.
    Native(usize),
    /// One of Python's.
    Python(Function),
    /// A note that frames are missing.
    Note(&'static str),
}

struct Running {
    interpreter: Interpreter,
    memory: ProcessMemory,
    threads: HashMap<Tid, ThreadState>,
    threads_found_at: Timestamp,
    /// How threads that are not known yet find their states, once that has been found.
    in_own_storage: Option<PythonProcess>,
}

/// Every process that runs Python.
#[derive(Default)]
pub(crate) struct PythonProcesses {
    running: HashMap<Tgid, Option<Running>>,
    images: HashMap<ModuleId, Result<Rc<Image>, NotFound>>,
    names: CodeNames,
    changed_threads: Vec<PythonThread>,
    changed_programs: Vec<PythonProgram>,
}

impl PythonProcesses {
    /// A process's mappings were read, and these are the files that may be a CPython.
    pub(crate) fn observe(
        &mut self,
        tgid: Tgid,
        candidates: &[PythonCandidate],
        modules: &Modules,
        diagnostics: &mut Diagnostics,
    ) {
        if candidates.is_empty() || self.running.get(&tgid).is_some_and(Option::is_some) {
            return;
        }
        if self.running.len() as u64 >= process_limit() {
            return count(diagnostics, "python_processes_over_limit");
        }
        // Each process is counted once, however often it is observed.
        let mut passed_over = Diagnostics::new();
        let is_new = !self.running.contains_key(&tgid);
        let diagnostics = if is_new { diagnostics } else { &mut passed_over };
        let running = self.find(tgid, candidates, modules, diagnostics);
        if let Some(running) = &running {
            let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(tgid, running.interpreter.clone());
        }
        self.running.insert(tgid, running);
        self.find_threads(tgid);
    }

    fn find(
        &mut self,
        tgid: Tgid,
        candidates: &[PythonCandidate],
        modules: &Modules,
        diagnostics: &mut Diagnostics,
    ) -> Option<Running> {
        let memory = ProcessMemory::open(tgid).ok()?;
        let mut why = NotFound::NoPython;
        for candidate in candidates {
            let image = self
                .images
                .entry(candidate.module)
                .or_insert_with(|| read_image(modules, candidate).map(Rc::new));
            let mapped = MappedAt { start: candidate.start, offset: candidate.offset };
            let found = match image {
                Ok(image) => Interpreter::find(image, mapped, &memory.cache_pages()),
                Err(why) => Err(*why),
            };
            match found {
                Ok(interpreter) => {
                    let (threads, threads_found_at) = (HashMap::new(), Timestamp(0));
                    let in_own_storage = None;
                    return Some(Running {
                        interpreter,
                        memory,
                        threads,
                        threads_found_at,
                        in_own_storage,
                    });
                }
                Err(NotFound::NoPython) => {}
                Err(other) => why = other,
            }
        }
        count(
            diagnostics,
            match why {
                NotFound::NoPython => return None,
                NotFound::NoSymbols => "python_without_symbols",
                NotFound::NoVersion | NotFound::UnknownVersion(_) => "python_of_unknown_version",
                NotFound::FreeThreaded(_) => "python_without_global_lock",
                NotFound::BadLayout(_) => "python_of_unknown_layout",
                NotFound::Unreadable => "python_unreadable",
            },
        );
        None
    }

    /// Finds the threads of a process that run Python now.
    fn find_threads(&mut self, tgid: Tgid) {
        let Some(Some(running)) = self.running.get_mut(&tgid) else { return };
        let at = monotonic_now();
        if at.since(running.threads_found_at) < PAUSE {
            return;
        }
        running.threads_found_at = at;
        let layout = running.interpreter.layout();
        let memory = running.memory.cache_pages();
        let states = thread_states(&running.interpreter, &memory, &Tasks::read(tgid));
        if running.in_own_storage.is_none() {
            running.in_own_storage =
                own_storage::find(&running.interpreter, &memory, &states.threads);
            let runs = running.in_own_storage;
            self.changed_programs.extend(runs.map(|runs| PythonProgram { tgid, runs: Some(runs) }));
        }
        let mut now = HashMap::new();
        for thread in states.threads {
            let (state, identity) = (thread.state, thread.identity);
            now.insert(thread.tid, thread);
            self.changed_threads.push(PythonThread {
                tid: thread.tid,
                runs: Some(PythonThreadState { state, identity, layout }),
            });
        }
        let gone = running.threads.keys().filter(|tid| !now.contains_key(tid));
        self.changed_threads.extend(gone.map(|&tid| PythonThread { tid, runs: None }));
        running.threads = now;
    }

    /// A process ended, or became another program.
    pub(crate) fn end(&mut self, tgid: Tgid) {
        let Some(running) = self.running.remove(&tgid) else { return };
        self.names.forget(tgid);
        KNOWN.lock().unwrap_or_else(PoisonError::into_inner).remove(&tgid);
        if running.as_ref().is_some_and(|running| running.in_own_storage.is_some()) {
            self.changed_programs.push(PythonProgram { tgid, runs: None });
        }
        let threads = running.into_iter().flat_map(|running| running.threads.into_keys());
        self.changed_threads.extend(threads.map(|tid| PythonThread { tid, runs: None }));
    }

    /// Drains the processes that began or ceased to run Python, for the kernel half.
    pub(crate) fn drain_changed_programs(&mut self) -> Vec<PythonProgram> {
        std::mem::take(&mut self.changed_programs)
    }

    /// Drains the threads that began or ceased to run Python, for the kernel half.
    pub(crate) fn drain_changed_threads(&mut self) -> Vec<PythonThread> {
        std::mem::take(&mut self.changed_threads)
    }

    /// Whether a thread's stack has Python frames in it, `chain` being those that were walked.
    pub(crate) fn runs_python(
        &self,
        tgid: Tgid,
        unwound: &UnwoundStack,
        chain: Option<&PythonStack>,
    ) -> bool {
        let Some(Some(running)) = self.running.get(&tgid) else { return false };
        let interpreter = &running.interpreter;
        unwound.frames.iter().any(|frame| interpreter.evaluates_at(frame.address, frame.kind))
            || are_all_calls_missing(unwound, chain)
    }

    /// What Python runs in a thread that sleeps, if any is known to.
    pub(crate) fn walk(&self, tgid: Tgid, tid: Tid) -> Option<PythonStack> {
        let running = self.running.get(&tgid)?.as_ref()?;
        let layout = running.interpreter.layout();
        let (frames, end) =
            walk(&running.memory.cache_pages(), running.threads.get(&tid)?, &layout)?;
        Some(PythonStack { hash: 0, frames, is_cut: end == ChainEnd::CutShort })
    }

    /// Puts Python frames into a native stack, leaf first. None if there is nothing to put in.
    pub(crate) fn merge(
        &mut self,
        tgid: Tgid,
        tid: Tid,
        unwound: &UnwoundStack,
        chain: Option<&PythonStack>,
    ) -> Option<Vec<MergedFrame>> {
        let interpreter = &self.running.get(&tgid)?.as_ref()?.interpreter;
        let native: Vec<NativeFrame> = (unwound.frames.iter())
            .map(|frame| match interpreter.evaluates_at(frame.address, frame.kind) {
                true => NativeFrame::Evaluates,
                false => NativeFrame::Other,
            })
            .collect();
        if !native.contains(&NativeFrame::Evaluates) && !are_all_calls_missing(unwound, chain) {
            return None;
        }
        let Some(chain) = chain else {
            // The thread was not known: from the next time on it is walked.
            if !self.running.get(&tgid)?.as_ref()?.threads.contains_key(&tid) {
                self.find_threads(tgid);
            }
            let native = (0..unwound.frames.len()).map(MergedFrame::Native);
            return Some(native.chain([MergedFrame::Note(UNPLACED)]).collect());
        };
        let running = self.running.get(&tgid)?.as_ref()?;
        let native_end = find_native_end(unwound);
        let parts: Vec<Part> =
            chain.frames.iter().map(|frame| running.interpreter.part(frame)).collect();
        let chain_end = if chain.is_cut { ChainEnd::CutShort } else { ChainEnd::First };
        let merged = merge(&native, native_end, &parts, chain_end).into_iter();
        let memory = running.memory.cache_pages();
        memory.prefetch(chain.frames.iter().map(|frame| frame.code));
        let frames = merged.filter_map(|merged| match merged {
            Merged::Native(index) => Some(MergedFrame::Native(index)),
            Merged::Python(index) => {
                name(&mut self.names, tgid, running, &memory, chain.frames.get(index)?)
            }
            Merged::Doubt(Doubt::NativeMissing) => Some(MergedFrame::Note(NATIVE_MISSING)),
            Merged::Doubt(Doubt::PythonMissing) => Some(MergedFrame::Note(PYTHON_MISSING)),
            Merged::Doubt(Doubt::Unplaced) => Some(MergedFrame::Note(UNPLACED)),
        });
        Some(frames.collect())
    }
}

const NATIVE_MISSING: &str = "[native frames missing]";
const PYTHON_MISSING: &str = "[Python frames missing]";
const UNPLACED: &str = "[Python frames not known]";
const GONE: &str = "[Python function that is gone]";

fn find_native_end(unwound: &UnwoundStack) -> NativeEnd {
    match unwound.end {
        UnwindEnd::EntryPoint => NativeEnd::Entry,
        UnwindEnd::CopyTooShort | UnwindEnd::PageMissing | UnwindEnd::TooDeep => {
            NativeEnd::CutShort
        }
        // The leaf is where the thread was: whatever is missing is behind it.
        _ if unwound.frames.len() <= 1 => NativeEnd::CutShort,
        _ => NativeEnd::Doubtful,
    }
}

/// Whether a thread runs Python, and its native stack ends before the innermost call that evaluates
/// it: as in the hand-written assembler of a library that computes hashes.
fn are_all_calls_missing(unwound: &UnwoundStack, chain: Option<&PythonStack>) -> bool {
    find_native_end(unwound) == NativeEnd::CutShort
        && chain.is_some_and(|chain| !chain.frames.is_empty())
}

fn process_limit() -> u64 {
    let soft = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX_PROCESSES.min(soft / 8)
}

fn name(
    names: &mut CodeNames,
    tgid: Tgid,
    running: &Running,
    memory: &CachedMemory<'_>,
    frame: &Captured,
) -> Option<MergedFrame> {
    match names.name(tgid, &running.interpreter, memory, frame) {
        Named::Function(function) => Some(MergedFrame::Python(Function {
            name: cut_name(&function.name),
            file: Some(cut_name(&function.file).into()),
            line: function.line,
        })),
        Named::NotShown => None,
        Named::Unknown => Some(MergedFrame::Note(GONE)),
    }
}

fn read_image(modules: &Modules, candidate: &PythonCandidate) -> Result<Image, NotFound> {
    let Some(ModuleContent::Held { file, identity, .. }) =
        modules.get(candidate.module).map(|module| &module.content)
    else {
        return Err(NotFound::NoPython);
    };
    // A copy never makes anybody wait.
    let copy = reader_process::copy_file(file, MAX_IMAGE)
        .ok()
        .filter(|_| is_unchanged(file, *identity))
        .ok_or(NotFound::Unreadable)?;
    Image::read(&ReadCache::new(copy), &candidate.path)
}
