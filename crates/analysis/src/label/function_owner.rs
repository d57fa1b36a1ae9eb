//! Who owns a function, decided by its name: for files with code of several owners, and for code
//! that a JIT made.

use offwake_recording::Function;

use super::{
    CodeOwner,
    rules::{ENGINES, FunctionPattern, FunctionRule, IN_FILES, IN_MEMORY, WAKING},
    symbol_name::{namespace, qualified_name},
};

/// Goroutines that are switched away from: the frames towards the root are of the one that the thread
/// has left, while the ones towards the leaf look for another.
///
/// ```text
/// leaf                                          root
/// futex  findRunnable  park_m  mcall | chanrecv  main.worker  goexit
/// `------- what the thread is in ----' `-- parked: any thread may go on with it
/// ```
///
/// <https://github.com/golang/go/blob/go1.22.0/src/runtime/stubs.go>, `mcall`
pub(super) fn is_task_switch(name: &str) -> bool {
    matches_pattern("runtime.mcall", name)
}

/// Returns whether a kernel function tells only that its thread woke another.
pub(super) fn is_waking(name: &str) -> bool {
    WAKING.iter().any(|pattern| matches_pattern(pattern, name))
}

/// Returns the owner of a function in a file.
pub(super) fn owner_in_file(name: &str) -> CodeOwner {
    owner_by_rules(IN_FILES, name).unwrap_or(CodeOwner::Program)
}

/// Returns the owner of a function in memory that is mapped from no file.
pub(super) fn owner_in_memory(function: &Function) -> CodeOwner {
    let name = &function.name;
    (function.file.as_deref().map(script_owner))
        .or_else(|| owner_by_trailing_file(name))
        .or_else(|| owner_by_rules(IN_MEMORY, name))
        .unwrap_or(CodeOwner::Program)
}

/// Returns the owner of a file that an interpreter reads.
fn script_owner(file: &str) -> CodeOwner {
    javascript_file_owner(file).or_else(|| python_file_owner(file)).unwrap_or(CodeOwner::Program)
}

/// Returns whether a function's name ends with its file.
pub(super) fn ends_with_file(name: &str) -> bool {
    owner_by_trailing_file(name).is_some()
}

fn owner_by_trailing_file(name: &str) -> Option<CodeOwner> {
    python_owner(name).or_else(|| javascript_owner(name))
}

/// Returns whether a function is one of an engine's that runs scripts.
pub(super) fn is_of_engine(name: &str) -> bool {
    let parts = (namespace(name), qualified_name(name));
    ENGINES.iter().any(|names| matches_names(names, name, parts))
}

fn owner_by_rules(rules: &[FunctionRule], name: &str) -> Option<CodeOwner> {
    let parts = (namespace(name), qualified_name(name));
    rules.iter().find(|rule| matches_names(&rule.names, name, parts)).map(|rule| rule.whose)
}

fn matches_names(
    names: &FunctionPattern,
    name: &str,
    (namespace, qualified): (Option<&str>, &str),
) -> bool {
    match *names {
        FunctionPattern::Like(patterns) => {
            patterns.iter().any(|pattern| matches_pattern(pattern, name))
        }
        FunctionPattern::Namespaces(names) => namespace.is_some_and(|first| names.contains(&first)),
        FunctionPattern::GoPackages(packages) => {
            packages.iter().any(|package| is_in_go_package(package, name))
        }
        FunctionPattern::JavaPackages(packages) => {
            packages.iter().any(|package| is_in_java_package(package, qualified))
        }
    }
}

/// What a compiler or linker adds to a name does not count: `futex_wait.constprop.0`, `read@plt`.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    if let Some(beginning) = pattern.strip_suffix('*') {
        return name.starts_with(beginning);
    }
    if let Some(end) = pattern.strip_prefix('*') {
        return name.ends_with(end);
    }
    name.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '@']))
}

/// `sync` has `sync.(*Mutex).Lock`, and `net/` has `net/http.(*conn).serve`. A C function `sync`
/// of which GCC made a part (`sync.part.0`) is in no package.
///
/// <https://gcc.gnu.org/onlinedocs/gcc/Optimize-Options.html>
fn is_in_go_package(package: &str, name: &str) -> bool {
    const OF_COMPILERS: &[&str] = &["part.", "isra.", "constprop.", "cold", "lto_priv.", "llvm."];
    let Some(rest) = name.strip_prefix(package) else { return false };
    package.ends_with('/')
        || rest.strip_prefix('.').is_some_and(|rest| {
            !OF_COMPILERS.iter().any(|of_compiler| rest.starts_with(of_compiler))
        })
}

/// `java` has `java.lang.Thread.run()`, `Ljava/lang/Thread;::run`, and with a module's name before it
/// `java.base/java.lang.Thread.run`.
fn is_in_java_package(package: &str, name: &str) -> bool {
    let is_in = |name: &str| {
        let mut letters = name.bytes();
        let same = |a: u8| letters.next().is_some_and(|b| a == b || (a == b'.' && b == b'/'));
        package.bytes().chain([b'.']).all(same)
    };
    is_in(name) || name.strip_prefix('L').is_some_and(is_in)
}

/// Returns the owner of a function that Python's trampolines name:
/// `py::wait:/usr/lib/python3.12/threading.py`. Recordings of earlier versions have such names.
///
/// <https://github.com/python/cpython/blob/v3.12.0/Python/perf_trampoline.c>
fn python_owner(name: &str) -> Option<CodeOwner> {
    let (_, file) = name.strip_prefix("py::")?.split_once(':')?;
    Some(python_file_owner(file).unwrap_or(CodeOwner::Program))
}

/// Returns the owner of a Python file; none if it is the program's own.
fn python_file_owner(file: &str) -> Option<CodeOwner> {
    const STANDARD: &[&str] = &["/lib/python3", "/lib64/python3"];
    const INSTALLED: &[&str] = &["/site-packages/", "/dist-packages/"];
    /// Threads, locks, and what waits for many.
    const RUNTIME: &[&str] = &[
        "threading.py",
        "queue.py",
        "selectors.py",
        "socket.py",
        "socketserver.py",
        "ssl.py",
        "subprocess.py",
        "runpy.py",
        "asyncio/",
        "concurrent/futures/",
        "multiprocessing/",
    ];
    if INSTALLED.iter().any(|part| file.contains(part)) {
        return Some(CodeOwner::Library);
    }
    let standard = STANDARD.iter().find_map(|folder| {
        let (_, below) = file.split_once(folder)?;
        below.split_once('/')
    });
    let is_runtime = |file: &str| RUNTIME.iter().any(|path| file.starts_with(path));
    match standard {
        Some((_, file)) if is_runtime(file) => Some(CodeOwner::Runtime),
        Some(_) => Some(CodeOwner::Library),
        // The part of the library that is inside the interpreter.
        None => file.starts_with("<frozen ").then_some(CodeOwner::Runtime),
    }
}

/// Returns the owner of a function that V8 names: `JS:*emit node:events:465:44`. Recordings of
/// earlier versions have such names.
///
/// <https://nodejs.org/docs/latest-v20.x/api/cli.html#--perf-basic-prof>
fn javascript_owner(name: &str) -> Option<CodeOwner> {
    const KINDS: &[&str] = &["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
    const OF_NODE: &[&str] = &[" node:", " internal/", " native "];
    let function = KINDS.iter().find_map(|kind| name.strip_prefix(kind))?;
    Some(if OF_NODE.iter().any(|start| function.contains(start)) {
        CodeOwner::Runtime
    } else if function.contains("/node_modules/") {
        CodeOwner::Library
    } else {
        CodeOwner::Program
    })
}

/// Returns the owner of a JavaScript file; none if it is the program's own.
fn javascript_file_owner(file: &str) -> Option<CodeOwner> {
    if file.starts_with("node:") || file.starts_with("internal/") {
        return Some(CodeOwner::Runtime);
    }
    file.contains("/node_modules/").then_some(CodeOwner::Library)
}
