//! Whose a function is, by its name: of code that several share one file, and of what a JIT made.

use super::{
    Whose,
    read::{namespace, qualified},
};

/// What tells a function.
enum Names {
    /// Its whole name, or with `*` its beginning or its end.
    Like(&'static [&'static str]),
    /// The outermost namespace, or the crate.
    Namespaces(&'static [&'static str]),
    /// The Go package, or with `/` all those below it.
    GoPackages(&'static [&'static str]),
    /// The Java package, or those below it.
    JavaPackages(&'static [&'static str]),
}

struct Rule {
    whose: Whose,
    names: Names,
}

const fn rule(whose: Whose, names: Names) -> Rule {
    Rule { whose, names }
}

/// In files; the first that holds says whose it is, and if none does, it is the program's.
const IN_FILES: &[Rule] = &[
    // Rust's standard library, and C++'s, which both begin with `std::`.
    rule(
        Whose::Runtime,
        Names::Namespaces(&["std", "core", "alloc", "__rustc", "std_detect", "hashbrown"]),
    ),
    rule(Whose::Runtime, Names::Like(&["__rust_*", "__rustc*", "rust_begin_unwind", "rust_panic"])),
    rule(
        Whose::Runtime,
        Names::Namespaces(&["__gnu_cxx", "__cxxabiv1", "__gthread", "__sanitizer", "__tsan"]),
    ),
    rule(Whose::Runtime, Names::Like(&["__gthread_*", "__cxa_*", "__gxx_*", "_Unwind_*"])),
    // Rust's executors, channels and locks.
    rule(
        Whose::Runtime,
        Names::Namespaces(&[
            "tokio",
            "tokio_util",
            "tokio_stream",
            "mio",
            "futures",
            "futures_channel",
            "futures_core",
            "futures_executor",
            "futures_task",
            "futures_util",
            "async_std",
            "async_executor",
            "async_io",
            "async_task",
            "async_channel",
            "async_lock",
            "blocking",
            "polling",
            "smol",
            "rayon",
            "rayon_core",
            "crossbeam",
            "crossbeam_channel",
            "crossbeam_deque",
            "crossbeam_epoch",
            "crossbeam_utils",
            "parking_lot",
            "parking_lot_core",
            "lock_api",
            "once_cell",
            "flume",
        ]),
    ),
    // Rust's ways to make a syscall.
    rule(
        Whose::Libc,
        Names::Namespaces(&["libc", "rustix", "linux_raw_sys", "nix", "socket2", "syscalls"]),
    ),
    // Go: what a thread without a goroutine is in. It says less than its caller in the scheduler.
    // https://github.com/golang/go/blob/go1.22.0/src/runtime/lock_futex.go
    rule(
        Whose::Libc,
        Names::Like(&[
            "runtime.futex*",
            "runtime.note*",
            "runtime.mPark",
            "runtime.usleep*",
            "runtime.nanosleep*",
            "runtime.epollwait*",
            "runtime.netpoll",
            "runtime.systemstack*",
            "runtime/internal/syscall.*",
            "internal/runtime/syscall.*",
            "syscall.RawSyscall*",
            "syscall.Syscall*",
        ]),
    ),
    // Go: the scheduler and its pollers, locks, and the wrappers around syscalls.
    // https://pkg.go.dev/std
    rule(
        Whose::Runtime,
        Names::GoPackages(&[
            "runtime",
            "runtime/",
            "internal/",
            "sync",
            "sync/",
            "syscall",
            "reflect",
            "net",
            "os",
            "io",
            "bufio",
            "time",
            "context",
            "vendor/",
        ]),
    ),
    // Go: the rest of its library, which says what the program was at.
    rule(
        Whose::Library,
        Names::GoPackages(&[
            "archive/",
            "bytes",
            "compress/",
            "crypto/",
            "database/",
            "encoding/",
            "errors",
            "fmt",
            "go/",
            "hash/",
            "html/",
            "image/",
            "io/",
            "log",
            "log/",
            "maps",
            "math",
            "math/",
            "mime/",
            "net/",
            "os/",
            "path/",
            "regexp",
            "regexp/",
            "slices",
            "sort",
            "strconv",
            "strings",
            "text/",
            "unicode/",
        ]),
    ),
    // CPython, where a program embeds it.
    // https://docs.python.org/3/c-api/
    rule(
        Whose::Runtime,
        Names::Like(&[
            "_Py*",
            "Py_*",
            "PyEval_*",
            "PyObject_*",
            "PyThread*",
            "PyRun_*",
            "PyGILState_*",
            "PyVectorcall_*",
            "PyNumber_*",
            "PySequence_*",
            "PyMapping_*",
            "PyImport_*",
            "PyIter_*",
            "PyCFunction_*",
        ]),
    ),
    // V8 and Node, where a program embeds them, and libuv.
    rule(Whose::Runtime, Names::Namespaces(&["v8", "node"])),
    rule(Whose::Runtime, Names::Like(&["Builtins_*", "uv_*", "uv__*"])),
    // Other event loops.
    rule(Whose::Runtime, Names::Namespaces(&["asio"])),
    rule(
        Whose::Runtime,
        Names::Like(&[
            "boost::asio::*",
            "event_base_loop",
            "event_base_dispatch",
            "epoll_dispatch",
            "ev_run",
            "g_main_context_*",
            "g_main_loop_run",
        ]),
    ),
    // Allocators. MySQL has functions that begin with `mi_`.
    rule(
        Whose::Runtime,
        Names::Like(&[
            "malloc",
            "calloc",
            "realloc",
            "free",
            "cfree",
            "memalign",
            "aligned_alloc",
            "posix_memalign",
            "_int_malloc",
            "_int_free",
            "sysmalloc",
            "operator new*",
            "operator delete*",
            "je_*",
            "_rjem_*",
            "mi_malloc*",
            "mi_free*",
            "mi_heap_*",
            "_mi_*",
        ]),
    ),
    rule(
        Whose::Runtime,
        Names::Namespaces(&["tcmalloc", "tikv_jemallocator", "jemallocator", "mimalloc"]),
    ),
    // The C library, where it is linked statically: how threads begin, locks, and what makes the
    // syscalls that block. https://git.musl-libc.org/cgit/musl/tree/src/thread
    rule(
        Whose::Libc,
        Names::Like(&[
            "_start",
            "_start_c",
            "start_thread",
            "clone",
            "clone3",
            "__clone*",
            "__libc_*",
            "__GI_*",
            "pthread_*",
            "__pthread_*",
            "__lll_*",
            "__futex*",
            "futex_wait*",
            "futex_wake*",
            "__timedwait*",
            "__wait",
            "__wake",
            "__syscall*",
            "syscall",
            "memcpy",
            "memmove",
            "memset",
            "__mem*",
            "sem_wait",
            "sem_timedwait",
            "sem_post",
            "nanosleep",
            "clock_nanosleep",
            "__clock_nanosleep*",
            "usleep",
            "sleep",
            "poll",
            "ppoll",
            "select",
            "pselect",
            "epoll_wait",
            "epoll_pwait*",
            "read",
            "write",
            "readv",
            "writev",
            "pread",
            "pread64",
            "pwrite",
            "pwrite64",
            "recv",
            "recvfrom",
            "recvmsg",
            "send",
            "sendto",
            "sendmsg",
            "accept",
            "accept4",
            "connect",
            "fsync",
            "fdatasync",
            "wait4",
            "waitpid",
            "sched_yield",
        ]),
    ),
];

/// In memory: what JITs note in their perf maps. Python's and JavaScript's functions have their files
/// with them, so that these tell ([`python`], [`javascript`]).
const IN_MEMORY: &[Rule] = &[
    // https://github.com/openjdk/jdk/blob/jdk-21%2B35/src/hotspot/share/runtime/sharedRuntime.cpp
    rule(
        Whose::Runtime,
        Names::Like(&[
            "Interpreter",
            "call_stub",
            "StubRoutines*",
            "RuntimeStub*",
            "I2C/C2I adapters",
            "vtable chunks",
            "MethodHandlesAdapterBlob*",
            "Signature Handler*",
            "flush_icache_stub",
            "* stub",
            "*_stub",
            "*_blob",
            "*Blob",
        ]),
    ),
    rule(
        Whose::Runtime,
        Names::JavaPackages(&[
            "java", "javax", "jdk", "sun", "com.sun", "kotlin", "kotlinx", "scala",
        ]),
    ),
    // https://github.com/nodejs/node/blob/v20.20.0/deps/v8/src/logging/log.cc
    rule(
        Whose::Runtime,
        Names::Like(&[
            "Builtin:*",
            "Builtins_*",
            "BytecodeHandler:*",
            "Handler:*",
            "Stub:*",
            "RegExp:*",
            "Callback:*",
        ]),
    ),
];

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
pub(super) fn is_switch(name: &str) -> bool {
    is_like("runtime.mcall", name)
}

/// Kernel functions with which every wake is made, whatever it is for.
///
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/sched/core.c>, `try_to_wake_up`
const WAKING: &[&str] = &[
    "try_to_wake_up",
    "ttwu_*",
    "wake_up_q",
    "wake_up_process",
    "wake_up_state",
    "__wake_up*",
    "default_wake_function",
    "autoremove_wake_function",
    "woken_wake_function",
    "ep_autoremove_wake_function",
    "ep_poll_callback",
    "pollwake",
    "swake_up*",
    "complete",
    "complete_all",
    "complete_with_flags",
];

/// Whether a kernel function only says that its thread woke somebody.
pub(super) fn is_waking(name: &str) -> bool {
    WAKING.iter().any(|pattern| is_like(pattern, name))
}

/// Whose a function in a file is.
pub(super) fn in_file(name: &str) -> Whose {
    by(IN_FILES, name).unwrap_or(Whose::Program)
}

/// Whose a function is that is in no file.
pub(super) fn in_memory(name: &str) -> Whose {
    by_own_file(name).or_else(|| by(IN_MEMORY, name)).unwrap_or(Whose::Program)
}

/// Whether the name ends with the function's file.
pub(super) fn has_file(name: &str) -> bool {
    by_own_file(name).is_some()
}

fn by_own_file(name: &str) -> Option<Whose> {
    python(name).or_else(|| javascript(name))
}

fn by(rules: &[Rule], name: &str) -> Option<Whose> {
    let (namespace, qualified) = (namespace(name), qualified(name));
    let holds = |rule: &&Rule| match rule.names {
        Names::Like(patterns) => patterns.iter().any(|pattern| is_like(pattern, name)),
        Names::Namespaces(names) => namespace.is_some_and(|first| names.contains(&first)),
        Names::GoPackages(packages) => packages.iter().any(|package| is_in_go(package, name)),
        Names::JavaPackages(packages) => {
            packages.iter().any(|package| is_in_java(package, qualified))
        }
    };
    rules.iter().find(holds).map(|rule| rule.whose)
}

/// What a compiler or linker adds to a name does not count: `futex_wait.constprop.0`, `read@plt`.
fn is_like(pattern: &str, name: &str) -> bool {
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
fn is_in_go(package: &str, name: &str) -> bool {
    const OF_COMPILERS: &[&str] = &["part.", "isra.", "constprop.", "cold", "lto_priv.", "llvm."];
    let Some(rest) = name.strip_prefix(package) else { return false };
    package.ends_with('/')
        || rest.strip_prefix('.').is_some_and(|rest| {
            !OF_COMPILERS.iter().any(|of_compiler| rest.starts_with(of_compiler))
        })
}

/// `java` has `java.lang.Thread.run()`, `Ljava/lang/Thread;::run`, and with a module's name before it
/// `java.base/java.lang.Thread.run`.
fn is_in_java(package: &str, name: &str) -> bool {
    let is_in = |name: &str| {
        let mut letters = name.bytes();
        let same = |a: u8| letters.next().is_some_and(|b| a == b || (a == b'.' && b == b'/'));
        package.bytes().chain([b'.']).all(same)
    };
    is_in(name) || name.strip_prefix('L').is_some_and(is_in)
}

/// Of a function that Python's trampolines name: `py::wait:/usr/lib/python3.12/threading.py`.
///
/// <https://github.com/python/cpython/blob/v3.12.0/Objects/perf_trampoline.c>
fn python(name: &str) -> Option<Whose> {
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
    let (_, file) = name.strip_prefix("py::")?.split_once(':')?;
    if INSTALLED.iter().any(|part| file.contains(part)) {
        return Some(Whose::Library);
    }
    let standard = STANDARD.iter().find_map(|folder| {
        let (_, below) = file.split_once(folder)?;
        below.split_once('/')
    });
    let is_runtime = |file: &str| RUNTIME.iter().any(|path| file.starts_with(path));
    Some(match standard {
        Some((_, file)) if is_runtime(file) => Whose::Runtime,
        Some(_) => Whose::Library,
        // The part of the library that is inside the interpreter.
        None if file.starts_with("<frozen ") => Whose::Runtime,
        None => Whose::Program,
    })
}

/// Of a function that V8 names: `JS:*emit node:events:465:44`.
///
/// <https://nodejs.org/docs/latest-v20.x/api/cli.html#--perf-basic-prof>
fn javascript(name: &str) -> Option<Whose> {
    const KINDS: &[&str] = &["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
    const OF_NODE: &[&str] = &[" node:", " internal/", " native "];
    let function = KINDS.iter().find_map(|kind| name.strip_prefix(kind))?;
    Some(if OF_NODE.iter().any(|start| function.contains(start)) {
        Whose::Runtime
    } else if function.contains("/node_modules/") {
        Whose::Library
    } else {
        Whose::Program
    })
}
