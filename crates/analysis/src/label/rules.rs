//! The tables: which functions are not the program's, by name.

use super::CodeOwner;

/// A pattern that functions match.
pub(super) enum FunctionPattern {
    /// The whole name, or with `*` its beginning or its end.
    Like(&'static [&'static str]),
    /// The outermost namespace, or the crate.
    Namespaces(&'static [&'static str]),
    /// The Go package, or with `/` all those below it.
    GoPackages(&'static [&'static str]),
    /// The Java package, or those below it.
    JavaPackages(&'static [&'static str]),
}

pub(super) struct FunctionRule {
    pub(super) whose: CodeOwner,
    pub(super) names: FunctionPattern,
}

const fn rule(whose: CodeOwner, names: FunctionPattern) -> FunctionRule {
    FunctionRule { whose, names }
}

/// The rules for functions in files: the first that matches decides the owner; if none does, it is
/// the program.
pub(super) const IN_FILES: &[FunctionRule] = &[
    // Rust's standard library, and C++'s, which both begin with `std::`.
    rule(
        CodeOwner::Runtime,
        FunctionPattern::Namespaces(&[
            "std",
            "core",
            "alloc",
            "__rustc",
            "std_detect",
            "hashbrown",
        ]),
    ),
    rule(
        CodeOwner::Runtime,
        FunctionPattern::Like(&["__rust_*", "__rustc*", "rust_begin_unwind", "rust_panic"]),
    ),
    rule(
        CodeOwner::Runtime,
        FunctionPattern::Namespaces(&[
            "__gnu_cxx",
            "__cxxabiv1",
            "__gthread",
            "__sanitizer",
            "__tsan",
        ]),
    ),
    rule(
        CodeOwner::Runtime,
        FunctionPattern::Like(&["__gthread_*", "__cxa_*", "__gxx_*", "_Unwind_*"]),
    ),
    // Rust's executors, channels and locks.
    rule(
        CodeOwner::Runtime,
        FunctionPattern::Namespaces(&[
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
        CodeOwner::Libc,
        FunctionPattern::Namespaces(&[
            "libc",
            "rustix",
            "linux_raw_sys",
            "nix",
            "socket2",
            "syscalls",
        ]),
    ),
    // Go: what a thread without a goroutine is in. It says less than its caller in the scheduler.
    // https://github.com/golang/go/blob/go1.22.0/src/runtime/lock_futex.go
    rule(
        CodeOwner::Libc,
        FunctionPattern::Like(&[
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
        CodeOwner::Runtime,
        FunctionPattern::GoPackages(&[
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
        CodeOwner::Library,
        FunctionPattern::GoPackages(&[
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
        CodeOwner::Runtime,
        FunctionPattern::Like(&[
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
    rule(CodeOwner::Runtime, FunctionPattern::Namespaces(&["v8", "node"])),
    rule(CodeOwner::Runtime, FunctionPattern::Like(&["Builtins_*", "uv_*", "uv__*"])),
    // Other event loops.
    rule(CodeOwner::Runtime, FunctionPattern::Namespaces(&["asio"])),
    rule(
        CodeOwner::Runtime,
        FunctionPattern::Like(&[
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
        CodeOwner::Runtime,
        FunctionPattern::Like(&[
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
        CodeOwner::Runtime,
        FunctionPattern::Namespaces(&["tcmalloc", "tikv_jemallocator", "jemallocator", "mimalloc"]),
    ),
    // The C library, where it is linked statically: how threads begin, locks, and what makes the
    // syscalls that block. https://git.musl-libc.org/cgit/musl/tree/src/thread
    rule(
        CodeOwner::Libc,
        FunctionPattern::Like(&[
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

/// The rules for functions in memory, which JITs name in their perf maps. Python's and JavaScript's
/// functions are decided by their files before.
pub(super) const IN_MEMORY: &[FunctionRule] = &[
    // https://github.com/openjdk/jdk/blob/jdk-21%2B35/src/hotspot/share/runtime/sharedRuntime.cpp
    rule(
        CodeOwner::Runtime,
        FunctionPattern::Like(&[
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
        CodeOwner::Runtime,
        FunctionPattern::JavaPackages(&[
            "java", "javax", "jdk", "sun", "com.sun", "kotlin", "kotlinx", "scala",
        ]),
    ),
    // https://github.com/nodejs/node/blob/v20.20.0/deps/v8/src/logging/log.cc
    rule(
        CodeOwner::Runtime,
        FunctionPattern::Like(&[
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

/// Functions of the engines that run scripts: V8's. What an engine calls and is not its own, the
/// script asked for.
pub(super) const ENGINES: &[FunctionPattern] =
    &[FunctionPattern::Namespaces(&["v8"]), FunctionPattern::Like(&["Builtins_*"])];

/// Kernel functions with which every wake is made, whatever it is for.
///
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/sched/core.c>, `try_to_wake_up`
pub(super) const WAKING: &[&str] = &[
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
