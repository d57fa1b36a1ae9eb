//! The processes that run Python: whose threads the kernel half is to walk, and how what it captured
//! becomes part of a stack.

use std::{collections::HashMap, rc::Rc};

use object::ReadCache;
use offwake_unwind::{UnwindEnd, UnwoundStack};
use profiler_ebpf::python::PythonThreadState;
use rustix::process::Resource;

use super::{
    Shortfalls, count,
    identify::open,
    modules::{Content, Modules, is_unchanged},
    process,
    python::{
        Captured, ChainEnd, CodeNames, Doubt, Image, Interpreter, MappedAt, Merged, Named,
        NativeEnd, NativeFrame, NotFound, Part, ProcessMemory, Tasks, ThreadState, merge,
        thread_states, walk,
    },
};
use crate::{
    decode::PythonStack,
    recording::{Function, ModuleId},
    units::{Nanos, Tgid, Tid, Timestamp},
};

/// What Python frames lie in.
pub(super) const MODULE: &str = "[python]";
/// The shortest time between two looks at a process's threads.
const PAUSE: Nanos = Nanos(20_000_000);
/// Processes that are kept track of at most: each holds a descriptor, and all of them an eighth of those
/// that there may be.
const MAX_PROCESSES: u64 = 4_096;

/// A mapped file that may be, or hold, a CPython: its name says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub module: ModuleId,
    pub mapped: MappedAt,
    pub path: String,
}

impl Candidate {
    /// Whether a file's name is one of Python's.
    pub(super) fn is_named(path: &str) -> bool {
        path.rsplit('/').next().is_some_and(|name| name.contains("python"))
    }
}

/// What the kernel half is to be told of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonThread {
    /// The thread.
    pub tid: Tid,
    /// Where it keeps its Python frames; none if it is gone.
    pub runs: Option<PythonThreadState>,
}

/// A frame of a stack into which Python's were put.
pub(super) enum WithPython {
    /// One of the native stack.
    Native(usize),
    /// One of Python's.
    Python(Function),
    /// What says that frames are missing.
    Said(&'static str),
}

struct Running {
    interpreter: Interpreter,
    memory: ProcessMemory,
    threads: HashMap<Tid, ThreadState>,
    looked_at: Timestamp,
}

/// Every process that runs Python.
#[derive(Default)]
pub(super) struct Pythons {
    running: HashMap<Tgid, Option<Running>>,
    images: HashMap<ModuleId, Result<Rc<Image>, NotFound>>,
    names: CodeNames,
    news: Vec<PythonThread>,
}

impl Pythons {
    /// A process's mappings were read, and these are the files that may be a CPython.
    pub(super) fn observe(
        &mut self,
        tgid: Tgid,
        candidates: &[Candidate],
        modules: &Modules,
        shortfalls: &mut Shortfalls,
    ) {
        if candidates.is_empty() || self.running.get(&tgid).is_some_and(Option::is_some) {
            return;
        }
        if self.running.len() as u64 >= room() {
            return count(shortfalls, "python_processes_over_limit");
        }
        // Each process is counted once, however often it is looked at.
        let mut passed_over = Shortfalls::new();
        let is_new = !self.running.contains_key(&tgid);
        let shortfalls = if is_new { shortfalls } else { &mut passed_over };
        let running = self.find(tgid, candidates, modules, shortfalls);
        self.running.insert(tgid, running);
        self.look(tgid);
    }

    fn find(
        &mut self,
        tgid: Tgid,
        candidates: &[Candidate],
        modules: &Modules,
        shortfalls: &mut Shortfalls,
    ) -> Option<Running> {
        let memory = ProcessMemory::open(tgid).ok()?;
        let mut why = NotFound::NoPython;
        for candidate in candidates {
            let image = self
                .images
                .entry(candidate.module)
                .or_insert_with(|| image(modules, candidate).map(Rc::new));
            let found = match image {
                Ok(image) => Interpreter::find(image, candidate.mapped, &memory),
                Err(why) => Err(*why),
            };
            match found {
                Ok(interpreter) => {
                    let (threads, looked_at) = (HashMap::new(), Timestamp(0));
                    return Some(Running { interpreter, memory, threads, looked_at });
                }
                Err(NotFound::NoPython) => {}
                Err(other) => why = other,
            }
        }
        count(
            shortfalls,
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
    fn look(&mut self, tgid: Tgid) {
        let Some(Some(running)) = self.running.get_mut(&tgid) else { return };
        let at = process::now();
        if at.since(running.looked_at) < PAUSE {
            return;
        }
        running.looked_at = at;
        let layout = running.interpreter.layout();
        let states = thread_states(&running.interpreter, &running.memory, &Tasks::read(tgid));
        let mut now = HashMap::new();
        for thread in states.threads {
            let (state, identity) = (thread.state, thread.identity);
            now.insert(thread.tid, thread);
            self.news.push(PythonThread {
                tid: thread.tid,
                runs: Some(PythonThreadState { state, identity, layout }),
            });
        }
        let gone = running.threads.keys().filter(|tid| !now.contains_key(tid));
        self.news.extend(gone.map(|&tid| PythonThread { tid, runs: None }));
        running.threads = now;
    }

    /// A process ended, or became another program.
    pub(super) fn end(&mut self, tgid: Tgid) {
        let Some(running) = self.running.remove(&tgid) else { return };
        self.names.forget(tgid);
        let threads = running.into_iter().flat_map(|running| running.threads.into_keys());
        self.news.extend(threads.map(|tid| PythonThread { tid, runs: None }));
    }

    /// What the kernel half is to be told since this was called last.
    pub(super) fn take_news(&mut self) -> Vec<PythonThread> {
        std::mem::take(&mut self.news)
    }

    /// Whether a thread runs Python in this stack.
    pub(super) fn evaluates(&self, tgid: Tgid, unwound: &UnwoundStack) -> bool {
        let Some(Some(running)) = self.running.get(&tgid) else { return false };
        let interpreter = &running.interpreter;
        unwound.frames.iter().any(|frame| interpreter.evaluates_at(frame.address, frame.kind))
    }

    /// What Python runs in a thread that sleeps, if any is known to.
    pub(super) fn walk(&self, tgid: Tgid, tid: Tid) -> Option<PythonStack> {
        let running = self.running.get(&tgid)?.as_ref()?;
        let layout = running.interpreter.layout();
        let (frames, end) = walk(&running.memory, running.threads.get(&tid)?, &layout)?;
        Some(PythonStack { hash: 0, frames, is_cut: end == ChainEnd::CutShort })
    }

    /// Puts Python frames into a native stack, leaf first. None if there is nothing to put in.
    pub(super) fn merge(
        &mut self,
        tgid: Tgid,
        tid: Tid,
        unwound: &UnwoundStack,
        chain: Option<&PythonStack>,
    ) -> Option<Vec<WithPython>> {
        let interpreter = &self.running.get(&tgid)?.as_ref()?.interpreter;
        let native: Vec<NativeFrame> = (unwound.frames.iter())
            .map(|frame| match interpreter.evaluates_at(frame.address, frame.kind) {
                true => NativeFrame::Evaluates,
                false => NativeFrame::Other,
            })
            .collect();
        if !native.contains(&NativeFrame::Evaluates) {
            return None;
        }
        let Some(chain) = chain else {
            // A thread that nobody knew of: the next time it is walked.
            if !self.running.get(&tgid)?.as_ref()?.threads.contains_key(&tid) {
                self.look(tgid);
            }
            let native = (0..unwound.frames.len()).map(WithPython::Native);
            return Some(native.chain([WithPython::Said(UNPLACED)]).collect());
        };
        let running = self.running.get(&tgid)?.as_ref()?;
        let native_end = match unwound.end {
            UnwindEnd::EntryPoint => NativeEnd::Entry,
            UnwindEnd::CopyTooShort | UnwindEnd::PageMissing | UnwindEnd::TooDeep => {
                NativeEnd::CutShort
            }
            _ => NativeEnd::Doubtful,
        };
        let parts: Vec<Part> =
            chain.frames.iter().map(|frame| running.interpreter.part(frame)).collect();
        let chain_end = if chain.is_cut { ChainEnd::CutShort } else { ChainEnd::First };
        let merged = merge(&native, native_end, &parts, chain_end).into_iter();
        let frames = merged.filter_map(|merged| match merged {
            Merged::Native(index) => Some(WithPython::Native(index)),
            Merged::Python(index) => name(&mut self.names, tgid, running, chain.frames.get(index)?),
            Merged::Doubt(Doubt::NativeMissing) => Some(WithPython::Said(NATIVE_MISSING)),
            Merged::Doubt(Doubt::PythonMissing) => Some(WithPython::Said(PYTHON_MISSING)),
            Merged::Doubt(Doubt::Unplaced) => Some(WithPython::Said(UNPLACED)),
        });
        Some(frames.collect())
    }
}

const NATIVE_MISSING: &str = "[native frames missing]";
const PYTHON_MISSING: &str = "[Python frames missing]";
const UNPLACED: &str = "[Python frames not known]";
const GONE: &str = "[Python function that is gone]";

fn room() -> u64 {
    let soft = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    MAX_PROCESSES.min(soft / 8)
}

fn name(
    names: &mut CodeNames,
    tgid: Tgid,
    running: &Running,
    frame: &Captured,
) -> Option<WithPython> {
    match names.name(tgid, &running.interpreter, &running.memory, frame) {
        Named::Function(function) => Some(WithPython::Python(Function {
            name: super::cut(&function.name),
            file: Some(super::cut(&function.file).into()),
            line: function.line,
        })),
        Named::NotShown => None,
        Named::Unknown => Some(WithPython::Said(GONE)),
    }
}

fn image(modules: &Modules, candidate: &Candidate) -> Result<Image, NotFound> {
    let Some(Content::Held { file, identity, .. }) =
        modules.get(candidate.module).map(|module| &module.content)
    else {
        return Err(NotFound::NoPython);
    };
    let opened =
        open(file).filter(|_| is_unchanged(file, *identity)).ok_or(NotFound::Unreadable)?;
    Image::of(&ReadCache::new(opened), &candidate.path)
}
