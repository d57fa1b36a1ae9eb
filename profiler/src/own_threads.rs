//! offwake's own threads: all that there are, and what the death of each costs.
//!
//! A thread that dies of a mistake of ours ends the run at once, with all that was recorded before, if nothing
//! that it did can be done without. Any other costs what it alone brings, and that is said as the run
//! ends. Nothing else starts threads, so that this list is whole.

use std::{
    cell::Cell,
    env,
    ffi::OsString,
    io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::{Builder, JoinHandle, Scope, ScopedJoinHandle},
};

use offwake_recording::loss::{Diagnostics, OWN_THREADS_FAILED, PART_THREADS, PartThread};

/// Has a thread panic, for tests: `offwake-drain` as it begins, `offwake-drain:300` the three-hundredth
/// time that it has done what it does.
const INJECTION: &str = "OFFWAKE_TEST_PANIC";

/// A thread of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnThread {
    /// The first one. It waits for the end.
    Main,
    /// Loads some of the programs.
    Load,
    /// Empties the rings.
    Drain,
    /// Looks up what the drain asks for.
    LookUp,
    /// Makes slices.
    Store,
    /// Ends the recording.
    Finish,
    /// Has the recording's file written to its disk, in the process that writes it.
    Sync,
    /// Asks for the names of containers.
    ContainerNames,
    /// Watches whether the container that is followed starts again.
    Follow,
    /// Has build ids read.
    BuildIds,
    /// Has files searched for where programs say what their threads do.
    TagSymbols,
    /// Asks another network namespace for its sockets.
    NetNamespace,
    /// Finds who holds the locks that are waited for as the recording ends.
    LockOwners,
    /// Finds the files that are polled as the recording ends.
    PolledFiles,
    /// Writes snapshots into files.
    Write,
    /// Makes the figures of a live view.
    View,
    /// Looks names up for a live view.
    ViewNames,
    /// Records for a live view.
    Session,
    /// Writes to the terminal.
    Print,
}

/// What the death of a thread costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathCost {
    /// The rest of the run, which ends at once.
    Run,
    /// This, for the rest of the run.
    Part(&'static str),
}

impl OwnThread {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Main,
        Self::Load,
        Self::Drain,
        Self::LookUp,
        Self::Store,
        Self::Finish,
        Self::Sync,
        Self::ContainerNames,
        Self::Follow,
        Self::BuildIds,
        Self::TagSymbols,
        Self::NetNamespace,
        Self::LockOwners,
        Self::PolledFiles,
        Self::Write,
        Self::View,
        Self::ViewNames,
        Self::Session,
        Self::Print,
    ];

    /// The thread's name, by which the kernel knows it too (its first 15 bytes).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "offwake",
            Self::Load => "offwake-load",
            Self::Drain => "offwake-drain",
            Self::LookUp => "offwake-look-up",
            Self::Store => "offwake-store",
            Self::Finish => "offwake-finish",
            Self::Sync => "offwake-sync",
            Self::ContainerNames => "offwake-engines",
            Self::Follow => "offwake-follow",
            Self::BuildIds => "offwake-build-id",
            Self::TagSymbols => "offwake-labels",
            Self::NetNamespace => "offwake-sockets",
            Self::LockOwners => "offwake-owners",
            Self::PolledFiles => "offwake-polled",
            Self::Write => "offwake-write",
            Self::View => "offwake-view",
            Self::ViewNames => "offwake-names",
            Self::Session => "offwake-session",
            Self::Print => "offwake-print",
        }
    }

    /// What its death costs.
    #[must_use]
    pub fn death_cost(self) -> DeathCost {
        match self {
            Self::Main
            | Self::Load
            | Self::Drain
            | Self::LookUp
            | Self::Store
            | Self::Finish
            | Self::Follow
            | Self::Write
            | Self::View
            | Self::Session => DeathCost::Run,
            Self::Sync
            | Self::ContainerNames
            | Self::BuildIds
            | Self::TagSymbols
            | Self::NetNamespace
            | Self::LockOwners
            | Self::PolledFiles
            | Self::ViewNames
            | Self::Print => {
                DeathCost::Part(self.part().map_or("what it alone brings is missing", |it| it.cost))
            }
        }
    }

    /// What recordings know it by, if its death costs a part of one.
    fn part(self) -> Option<&'static PartThread> {
        PART_THREADS.iter().find(|part| part.name == self.name())
    }

    fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// Those that have died, as bits.
static DEAD: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CURRENT: Cell<OwnThread> = const { Cell::new(OwnThread::Main) };
    static PASSES: Cell<u64> = const { Cell::new(0) };
}

/// Notes the death of the thread in which it is dropped.
struct DeathWatch(OwnThread);

impl Drop for DeathWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            DEAD.fetch_or(self.0.bit(), Ordering::Relaxed);
        }
    }
}

/// Starts a thread.
///
/// # Errors
///
/// If the kernel refuses.
pub fn spawn<T: Send + 'static>(
    thread: OwnThread,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(thread.name().to_owned()).spawn(watched(thread, body))
}

/// Starts a thread that ends with a scope.
///
/// # Errors
///
/// If the kernel refuses.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    thread: OwnThread,
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(thread.name().to_owned()).spawn_scoped(scope, watched(thread, body))
}

fn watched<T>(thread: OwnThread, body: impl FnOnce() -> T) -> impl FnOnce() -> T {
    move || {
        let _watch = DeathWatch(thread);
        CURRENT.set(thread);
        panic_if_injected(thread, 0);
        body()
    }
}

/// Tells that the calling thread has done once more what it does again and again. This is where tests have it
/// panic.
pub fn pass() {
    PASSES.set(PASSES.get() + 1);
    panic_if_injected(CURRENT.get(), PASSES.get());
}

/// The calling thread; the first one if it is none of the others.
#[must_use]
pub fn current() -> OwnThread {
    CURRENT.get()
}

/// The name of this helper process; none in offwake itself.
static HELPER: OnceLock<&'static str> = OnceLock::new();

/// Notes which helper process this is.
pub(crate) fn set_helper(name: &'static str) {
    HELPER.get_or_init(|| name);
}

/// Tells that a helper process has got one more message. This is where tests have it panic.
pub(crate) fn pass_helper() {
    if let Some(name) = HELPER.get() {
        PASSES.set(PASSES.get() + 1);
        panic_if_wanted(name, PASSES.get());
    }
}

fn panic_if_injected(thread: OwnThread, pass: u64) {
    // The first thread of a helper process has that one's name.
    if HELPER.get().is_none() || thread != OwnThread::Main {
        panic_if_wanted(thread.name(), pass);
    }
}

/// # Panics
///
/// If a test wants it.
fn panic_if_wanted(name: &str, pass: u64) {
    static INJECTED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    let injected = INJECTED.get_or_init(|| {
        let wanted = env::var(INJECTION).ok()?;
        let (name, pass) = wanted.split_once(':').unwrap_or((&wanted, "0"));
        Some((name.to_owned(), pass.parse().ok()?))
    });
    let is_it = |(wanted, at): &(String, u64)| wanted == name && *at == pass;
    assert!(!injected.as_ref().is_some_and(is_it), "{INJECTION} wants it");
}

/// Describes what the deaths of threads have cost, if they have cost something short of the run.
#[must_use]
pub fn describe_deaths() -> Option<String> {
    let parts: Vec<String> = dead().filter_map(describe_death).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn describe_death(thread: OwnThread) -> Option<String> {
    match thread.death_cost() {
        DeathCost::Run => None,
        DeathCost::Part(cost) => {
            Some(format!("offwake's own thread {} failed: {cost}", thread.name()))
        }
    }
}

/// The threads that have died, as bits: a helper process tells them.
pub(crate) fn dead_bits() -> u64 {
    DEAD.load(Ordering::Relaxed)
}

/// Notes the deaths of a helper process's threads.
pub(crate) fn note_dead(bits: u64) {
    DEAD.fetch_or(bits, Ordering::Relaxed);
}

/// The environment that a helper process needs so that a test can have one of its threads panic.
pub(crate) fn injection() -> Option<(&'static str, OsString)> {
    env::var_os(INJECTION).map(|wanted| (INJECTION, wanted))
}

fn dead() -> impl Iterator<Item = OwnThread> {
    let dead = DEAD.load(Ordering::Relaxed);
    OwnThread::ALL.into_iter().filter(move |thread| dead & thread.bit() != 0)
}

/// Counts the threads that have died.
pub(crate) fn add_diagnostics(all: &mut Diagnostics) {
    let count = dead().count() as u64;
    if count > 0 {
        all.insert(OWN_THREADS_FAILED, count);
    }
    for part in dead().filter_map(OwnThread::part) {
        all.insert(part.counter, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_is_in_the_list() {
        for (index, thread) in OwnThread::ALL.into_iter().enumerate() {
            assert_eq!(thread as usize, index, "{thread:?}");
            let same = OwnThread::ALL.iter().filter(|other| other.name() == thread.name());
            assert_eq!(same.count(), 1, "{thread:?}");
        }
    }

    #[test]
    fn one_that_dies_is_noted_before_anybody_can_join_it_and_told_with_what_it_costs() {
        let died = spawn(OwnThread::LockOwners, || panic!("on purpose")).unwrap();
        died.join().unwrap_err();
        // No other test has this one panic: all of them share what is noted.
        spawn(OwnThread::PolledFiles, || ()).unwrap().join().unwrap();
        assert!(dead().any(|thread| thread == OwnThread::LockOwners));
        assert!(!dead().any(|thread| thread == OwnThread::PolledFiles));
        let told = "offwake's own thread offwake-owners failed: who held the locks at the end is not known";
        assert!(describe_deaths().unwrap().contains(told));
        let mut diagnostics = Diagnostics::new();
        add_diagnostics(&mut diagnostics);
        assert!(diagnostics[OWN_THREADS_FAILED] >= 1);
        assert_eq!(diagnostics["own_thread_owners_failed"], 1);
    }

    #[test]
    fn recordings_have_words_for_each_that_costs_a_part_and_for_no_other() {
        for thread in OwnThread::ALL {
            let is_part = matches!(thread.death_cost(), DeathCost::Part(_));
            assert_eq!(thread.part().is_some(), is_part, "{thread:?}");
        }
        assert!(
            PART_THREADS.iter().all(|part| {
                OwnThread::ALL.into_iter().any(|thread| thread.name() == part.name)
            })
        );
    }

    /// Where threads are started that are in no list: each with the reason.
    const OTHERS: [(&str, &str); 4] = [
        ("bin/offwake/demo/process.rs", "in the processes of the demo's service"),
        ("own_threads.rs", "starts those that are in the list"),
        ("parser/mod.rs", "a parser in a thread, for tests and benchmarks alone"),
        ("parser/sandbox.rs", "runs in a helper process, and ends it"),
    ];

    fn add_sources(directory: &Path, sources: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is_test = path.file_stem().unwrap() == "tests";
            if path.is_dir() && !is_test {
                add_sources(&path, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
                sources.push(path);
            }
        }
    }

    #[test]
    fn no_thread_is_started_that_is_not_in_the_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut sources = Vec::new();
        add_sources(&root, &mut sources);
        assert!(sources.len() > 100, "{sources:?}");
        for path in sources {
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
            for start in [
                "thread::spawn(",
                "Builder::new()\n        .name(",
                "thread::Builder",
                "scope.spawn(",
            ] {
                let is_known = OTHERS.iter().any(|(other, _reason)| *other == name);
                assert!(!text.contains(start) || is_known, "{name} starts a thread: {start}");
            }
        }
    }
}
