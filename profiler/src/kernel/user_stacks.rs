//! The maps of user stacks: the ring of copies that the kernel half sends, and the call sites whose
//! stacks it finds without a copy.

use aya::{
    Pod,
    maps::{Array, HashMap, MapData, RingBuf},
};
use offwake_recording::units::{Tgid, Tid};
use profiler_ebpf::{
    code_epoch,
    python::{PythonProcess, PythonThreadState},
    user_stack::CallSite,
};

use super::{Kernel, KernelError, tag_sources::TagSources};
use crate::{decode::CallSiteKey, decode::CodeEpoch};

pub(super) const STACK_COPIES: &str = "STACK_COPIES";
pub(super) const CALL_SITES: &str = "CALL_SITES";
const PYTHON: &str = "PYTHON_THREADS";
const PYTHON_PROCESSES: &str = "PYTHON_PROCESSES";
const EPOCHS: &str = "CODE_EPOCHS";
const GENERATION: &str = "CACHE_GENERATION";

/// [`CallSite`] is plain integers; the wrapper is what lets aya know.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodCallSite(CallSite);

// SAFETY: `CallSite` is `repr(C)`, holds integers alone and has no padding (asserted where it is defined).
unsafe impl Pod for PodCallSite {}

/// [`PythonThreadState`] is plain integers; the wrapper is what lets aya know.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodPythonThreadState(PythonThreadState);

// SAFETY: as above.
unsafe impl Pod for PodPythonThreadState {}

/// [`PythonProcess`] is plain integers; the wrapper is what lets aya know.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodPythonProcess(PythonProcess);

// SAFETY: as above.
unsafe impl Pod for PodPythonProcess {}

/// The ring of copies, of all CPUs.
pub struct StackCopies(RingBuf<MapData>);

/// The threads of which the kernel half walks the Python frames.
pub struct PythonThreads(HashMap<MapData, u32, PodPythonThreadState>);

/// The processes in which the kernel half finds the states of Python's threads by itself.
pub struct PythonProcesses(HashMap<MapData, u32, PodPythonProcess>);

/// The epochs of processes' code ([`profiler_ebpf::code_epoch`]).
pub struct CodeEpochs(Array<MapData, u64>);

/// The maps by which the halves exchange what they know of user stacks.
pub struct UserStackMaps {
    /// The copies that the kernel half sends.
    pub copies: StackCopies,
    /// The call sites that it knows.
    pub call_sites: CallSites,
    /// The generation of its register caches.
    pub generation: CacheGeneration,
    /// The threads whose Python frames it walks.
    pub python_threads: PythonThreads,
    /// The processes whose threads' states it finds by itself.
    pub python_processes: PythonProcesses,
    /// The processes whose threads' tags it reads.
    pub tag_sources: TagSources,
}

/// The generation of the register caches: what they know from an earlier one is not found.
pub struct CacheGeneration {
    map: Array<MapData, u64>,
    current: u64,
}

/// The call sites whose stacks the kernel half finds without a copy.
pub struct CallSites(HashMap<MapData, u64, PodCallSite>);

impl Kernel {
    /// Takes them out of the loaded kernel half.
    ///
    /// # Errors
    ///
    /// If one is missing.
    pub fn take_user_stacks(&mut self) -> Result<UserStackMaps, KernelError> {
        let copies = self.ebpf.take_map(STACK_COPIES).ok_or(KernelError::Missing(STACK_COPIES))?;
        let copies = RingBuf::try_from(copies)
            .map_err(|source| KernelError::Map { map: STACK_COPIES, source })?;
        let call_sites = self.ebpf.take_map(CALL_SITES).ok_or(KernelError::Missing(CALL_SITES))?;
        let call_sites = HashMap::try_from(call_sites)
            .map_err(|source| KernelError::Map { map: CALL_SITES, source })?;
        let generation = self.ebpf.take_map(GENERATION).ok_or(KernelError::Missing(GENERATION))?;
        let generation = Array::try_from(generation)
            .map_err(|source| KernelError::Map { map: GENERATION, source })?;
        let threads = self.ebpf.take_map(PYTHON).ok_or(KernelError::Missing(PYTHON))?;
        let threads = HashMap::try_from(threads)
            .map_err(|source| KernelError::Map { map: PYTHON, source })?;
        let processes =
            self.ebpf.take_map(PYTHON_PROCESSES).ok_or(KernelError::Missing(PYTHON_PROCESSES))?;
        let processes = HashMap::try_from(processes)
            .map_err(|source| KernelError::Map { map: PYTHON_PROCESSES, source })?;
        Ok(UserStackMaps {
            copies: StackCopies(copies),
            call_sites: CallSites(call_sites),
            generation: CacheGeneration { map: generation, current: 0 },
            python_threads: PythonThreads(threads),
            python_processes: PythonProcesses(processes),
            tag_sources: TagSources::from_ebpf(&mut self.ebpf)?,
        })
    }

    /// Takes the epochs of code out of the loaded kernel half.
    ///
    /// # Errors
    ///
    /// If they are missing.
    pub fn take_code_epochs(&mut self) -> Result<CodeEpochs, KernelError> {
        let epochs = self.ebpf.take_map(EPOCHS).ok_or(KernelError::Missing(EPOCHS))?;
        let epochs =
            Array::try_from(epochs).map_err(|source| KernelError::Map { map: EPOCHS, source })?;
        Ok(CodeEpochs(epochs))
    }
}

impl StackCopies {
    /// The oldest copy that is there; none if there is none.
    pub fn next_copy(&mut self) -> Option<impl std::ops::Deref<Target = [u8]> + '_> {
        self.0.next()
    }
}

impl CallSites {
    /// Sets the stacks of a call site. False if the kernel has no room for it.
    pub fn insert(&mut self, key: CallSiteKey, call_site: &CallSite) -> bool {
        self.0.insert(key.0, PodCallSite(*call_site), 0).is_ok()
    }

    /// Removes call sites: their stacks are copied again.
    pub fn remove(&mut self, keys: impl IntoIterator<Item = CallSiteKey>) {
        for key in keys {
            let _absent = self.0.remove(&key.0);
        }
    }
}

impl CacheGeneration {
    /// Begins the next generation.
    pub fn begin_next(&mut self) {
        self.current += 1;
        if let Err(error) = self.map.set(0, self.current, 0) {
            // The index is inside the array, which is all that the kernel could refuse.
            log::error!("stacks that are gone may still be found: {error}");
        }
    }
}

impl CodeEpochs {
    /// The current epoch of a process's code.
    #[must_use]
    pub fn current(&self, tgid: Tgid) -> Option<CodeEpoch> {
        let ended = self.0.get(&code_epoch::counter_index(tgid.0), 0).ok()?;
        Some(CodeEpoch(code_epoch::epoch_after(ended)))
    }
}

impl PythonThreads {
    /// Sets where a thread keeps its Python frames; none if it does not run Python any more. False if the
    /// kernel has no room for it.
    pub fn set(&mut self, tid: Tid, thread: Option<PythonThreadState>) -> bool {
        match thread {
            Some(thread) => self.0.insert(tid.0, PodPythonThreadState(thread), 0).is_ok(),
            None => {
                let _absent = self.0.remove(&tid.0);
                true
            }
        }
    }
}

impl PythonProcesses {
    /// Sets how threads of a process find their Python states; none if it does not run Python any
    /// more. False if the kernel has no room for it.
    pub fn set(&mut self, tgid: Tgid, process: Option<PythonProcess>) -> bool {
        match process {
            Some(process) => self.0.insert(tgid.0, PodPythonProcess(process), 0).is_ok(),
            None => {
                let _absent = self.0.remove(&tgid.0);
                true
            }
        }
    }
}
