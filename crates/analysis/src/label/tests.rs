//! Stacks as programs have them, leaf first. Those of Rust, Go, Node, the JVM, and of CPython's own
//! functions were recorded; the others have the names that the sources linked in the rules give.

use std::sync::Arc;

use offwake_recording::{
    AddressKind, AddressSpace, Frame, FrameId, Function, Module, ModuleId, Stack, StackEnd,
    StackRef, StackTable, units::StackId,
};

use super::{
    CodeOwner,
    CodeOwner::{Kernel, Libc, Library, Program, Runtime},
    Label, LabelFinder,
};
use crate::blame::cause::Cause;

const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";

/// A stack of `path|inlined|function`, leaf first, without functions where they have no name; a function
/// can have its source with it: `function @file:line`.
fn stack(table: &mut StackTable, frames: &[&str]) -> StackRef {
    let frames = (frames.iter())
        .map(|text| {
            let mut parts = text.split('|');
            let path = parts.next().unwrap_or_default().to_owned();
            let module = ModuleId(table.modules.len() as u32);
            table.modules.insert(module, Module { path, build_id: None, segments: Vec::new() });
            let frame = Frame {
                address: 0x1000,
                kind: AddressKind::Return,
                module: Some(module),
                module_offset: Some(0x10),
                functions: parts.map(function).collect(),
            };
            let id = FrameId(table.frames.len() as u32);
            table.frames.insert(id, frame);
            id
        })
        .collect();
    let id = StackId(table.stacks.len() as u64);
    table.stacks.insert(id, Stack { space: AddressSpace::Kernel, frames, end: StackEnd::Unknown });
    StackRef::Id(id)
}

fn function(text: &str) -> Function {
    let Some((name, (file, line))) =
        text.split_once(" @").and_then(|(name, place)| Some((name, place.rsplit_once(':')?)))
    else {
        return Function::named(text);
    };
    Function { name: name.to_owned(), file: Some(file.into()), line: line.parse().ok() }
}

fn label(user: &[&str], kernel: &[&str]) -> Option<(String, CodeOwner)> {
    let mut table = StackTable::default();
    let (user, kernel) = (stack(&mut table, user), stack(&mut table, kernel));
    let label = LabelFinder::new(&table).wait_label(Cause::Futex, user, kernel)?;
    Some((label.function.to_string(), label.whose))
}

#[track_caller]
fn expect(user: &[&str], function: &str, whose: CodeOwner) {
    let kernel = ["[kernel]|schedule", "[kernel]|futex_do_wait"];
    assert_eq!(label(user, &kernel), Some((function.to_owned(), whose)), "{user:#?}");
}

/// The same, of frames in one file.
#[track_caller]
fn expect_in(file: &str, functions: &[&str], function: &str, whose: CodeOwner) {
    let frames: Vec<_> = functions.iter().map(|name| format!("{file}|{name}")).collect();
    expect(&frames.iter().map(String::as_str).collect::<Vec<_>>(), function, whose);
}

#[test]
fn rust_shows_who_called_the_standard_library() {
    let demo = "/srv/demo";
    let thread = [
        "/srv/demo|std::sys::backtrace::__rust_begin_short_backtrace",
        "/srv/demo|<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once\
         |std::panicking::catch_unwind::do_call|std::thread::lifecycle::spawn_unchecked::{{closure}}\
         |core::ops::function::FnOnce::call_once{{vtable.shim}}",
        "/srv/demo|<alloc::boxed::Box<dyn core::ops::function::FnOnce<(), Output = ()> + core::marker::Send> \
         as core::ops::function::FnOnce<()>>::call_once|<std::sys::thread::unix::Thread>::new::thread_start",
        "/usr/lib/x86_64-linux-gnu/libc.so.6|start_thread",
    ];
    let lock = [
        "/usr/lib/x86_64-linux-gnu/libc.so.6|syscall",
        "/srv/demo|<std::sys::sync::mutex::futex::Mutex>::lock|std::sync::poison::mutex::Mutex<T>::lock\
         |demo::take_lock|demo::main::{{closure}}",
    ];
    expect(&[&lock[..], &thread].concat(), "demo::take_lock", Program);
    expect_in(
        demo,
        &[
            "std::sync::poison::condvar::Condvar::wait_timeout",
            "<demo::Pool as core::iter::traits::iterator::Iterator>::next",
            "demo::main::{{closure}}",
        ],
        "<demo::Pool as core::iter::traits::iterator::Iterator>::next",
        Program,
    );
    expect_in(
        demo,
        &["std::rt::lang_start_internal::{closure#0}", "std::rt::lang_start_internal", "main"],
        "main",
        Program,
    );
    expect(&thread, "std::sys::backtrace::__rust_begin_short_backtrace", Runtime);
    // Between those of the runtime, it is the program that it calls back.
    expect_in(
        demo,
        &[
            "<i32 as demo::Weight>::weigh",
            "core::slice::sort::merge_sort",
            "alloc::slice::<impl [T]>::sort",
            "demo::main",
        ],
        "<i32 as demo::Weight>::weigh",
        Program,
    );
}

#[test]
fn tokio_shows_the_task_and_not_its_executor() {
    let worker = [
        "/srv/web|<tokio::runtime::task::harness::Harness<T,S>>::poll",
        "/srv/web|tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
        "/srv/web|tokio::runtime::scheduler::multi_thread::worker::run",
        "/srv/web|std::sys::pal::unix::thread::Thread::new::thread_start",
        "/usr/lib/libc.so.6|start_thread",
    ];
    let task = [
        "/usr/lib/libc.so.6|__send",
        "/srv/web|<std::net::tcp::TcpStream as std::io::Write>::write",
        "/srv/web|mio::net::tcp::stream::TcpStream::write",
        "/srv/web|<tokio::net::tcp::stream::TcpStream as tokio::io::async_write::AsyncWrite>::poll_write",
        "/srv/web|web::answer::{{closure}}",
        "/srv/web|<futures_util::future::future::map::Map<Fut,F> as core::future::future::Future>::poll",
    ];
    expect(&[&task[..], &worker].concat(), "web::answer::{{closure}}", Program);
    let parked = [
        "/usr/lib/libc.so.6|epoll_wait",
        "/srv/web|mio::poll::Poll::poll",
        "/srv/web|tokio::runtime::scheduler::multi_thread::park::Parker::park",
    ];
    expect(&[&parked[..], &worker].concat(), "mio::poll::Poll::poll", Runtime);
}

#[test]
fn c_and_cpp_show_who_called_the_library() {
    let server = "/opt/app/bin/server";
    expect_in(
        server,
        &[
            "std::condition_variable::wait(std::unique_lock<std::mutex>&)",
            "void std::condition_variable::wait<Queue::pop()::{lambda()#1}>(std::unique_lock<std::mutex>&, \
             Queue::pop()::{lambda()#1})",
            "Queue::pop()",
            "void std::__invoke_impl<void, (anonymous namespace)::run(int)::{lambda()#1}>(std::__invoke_other)",
            "std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::{lambda()#1}> > >::_M_run()",
        ],
        "Queue::pop()",
        Program,
    );
    // What it returns does not make it the standard library's.
    expect_in(
        server,
        &[
            "operator new(unsigned long)",
            "std::vector<int> app::sorted<int>(std::vector<int> const&)",
        ],
        "std::vector<int> app::sorted<int>(std::vector<int> const&)",
        Program,
    );
    expect_in(server, &["je_arena_ralloc", "realloc", "grow"], "grow", Program);
    expect(
        &[
            "/usr/lib/x86_64-linux-gnu/libc.so.6|__poll",
            "/usr/lib/x86_64-linux-gnu/libpq.so.5|pqSocketPoll",
            "/usr/lib/x86_64-linux-gnu/libpq.so.5|PQexec",
            "/opt/app/bin/server|load_orders",
            "/opt/app/bin/server|main",
        ],
        "load_orders",
        Program,
    );
    // glibc's `sync`, and a program's `sync` in two parts.
    expect_in(server, &["sync.part.0", "main"], "sync.part.0", Program);
    // Statically linked with musl.
    expect_in(
        server,
        &[
            "__syscall_cp_c",
            "__timedwait_cp",
            "pthread_cond_timedwait",
            "worker",
            "start",
            "__clone",
        ],
        "worker",
        Program,
    );
}

#[test]
fn a_thread_that_a_library_started_is_known_by_the_library() {
    expect(
        &[
            "/usr/lib/x86_64-linux-gnu/libc.so.6|pthread_cond_wait",
            "/usr/lib/x86_64-linux-gnu/libLLVM-15.so.1|llvm::ThreadPool::processTasks(llvm::ThreadPoolTaskGroup*)",
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30|execute_native_thread_routine",
            "/usr/lib/x86_64-linux-gnu/libc.so.6|start_thread",
        ],
        "llvm::ThreadPool::processTasks(llvm::ThreadPoolTaskGroup*)",
        Library,
    );
    expect(
        &[
            "/usr/lib/libc.so.6|epoll_wait",
            "/usr/lib/libuv.so.1|uv__io_poll",
            "/usr/lib/libuv.so.1|uv_run",
        ],
        "uv__io_poll",
        Runtime,
    );
    // An application's own library is no distribution's.
    expect(
        &[
            "/usr/lib/libc.so.6|read",
            "/opt/app/lib/librules.so|rules::load()",
            "/opt/app/bin/app|main",
        ],
        "rules::load()",
        Program,
    );
}

#[test]
fn go_shows_the_goroutine_unless_the_thread_has_left_it() {
    let server = "/srv/goprog";
    let syscall = [
        "runtime/internal/syscall.Syscall6",
        "syscall.Syscall",
        "syscall.read",
        "syscall.Read",
        "internal/poll.ignoringEINTRIO",
        "internal/poll.(*FD).Read",
        "os.(*File).read",
        "os.(*File).Read",
        "io.discard.ReadFrom",
        "io.(*discard).ReadFrom",
        "bufio.(*Reader).WriteTo",
        "io.copyBuffer",
        "io.Copy",
        "main.readFile",
        "main.main.func1",
        "runtime.goexit",
    ];
    expect_in(server, &syscall, "main.readFile", Program);
    let lost_its_p = ["runtime.futex", "runtime.notesleep", "runtime.mPark", "runtime.stopm"];
    let left = ["runtime.exitsyscall0", "runtime.mcall"];
    let elsewhere = [&lost_its_p[..], &left, &syscall[1..]].concat();
    expect_in(server, &elsewhere, "runtime.stopm", Runtime);
    let unlock = [
        "runtime.futex",
        "runtime.notewakeup",
        "runtime.startm",
        "runtime.wakep",
        "runtime.ready",
        "runtime.goready.func1",
        "runtime.systemstack",
        "runtime.readyWithTime",
        "runtime.semrelease1",
        "sync.runtime_Semrelease",
        "sync.(*Mutex).unlockSlow",
        "sync.(*Mutex).Unlock",
        "main.(*Server).handle",
        "main.(*Server).handle-fm",
        "net/http.HandlerFunc.ServeHTTP",
        "net/http.serverHandler.ServeHTTP",
        "net/http.(*conn).serve",
        "runtime.goexit",
    ];
    expect_in(server, &unlock, "main.(*Server).handle", Program);
    let answer = [
        "runtime/internal/syscall.Syscall6",
        "syscall.Syscall",
        "syscall.write",
        "internal/poll.(*FD).Write",
        "net.(*netFD).Write",
        "net.(*conn).Write",
        "net/http.checkConnErrorWriter.Write",
        "bufio.(*Writer).Flush",
        "net/http.(*response).finishRequest",
        "net/http.(*conn).serve",
        "runtime.goexit",
    ];
    expect_in(server, &answer, "net/http.checkConnErrorWriter.Write", Library);
    expect_in(
        server,
        &["runtime.usleep", "runtime.sysmon", "runtime.mstart1", "runtime.mstart"],
        "runtime.sysmon",
        Runtime,
    );
}

#[test]
fn python_shows_the_script_and_not_its_interpreter() {
    let interpreter = [
        "/usr/lib/x86_64-linux-gnu/libc.so.6|__new_sem_wait_slow64",
        "/usr/bin/python3.12|PyThread_acquire_lock_timed",
        "/usr/bin/python3.12|acquire_timed|lock_PyThread_acquire_lock",
        "/usr/bin/python3.12|method_vectorcall_VARARGS_KEYWORDS",
        "/usr/bin/python3.12|_PyEval_EvalFrameDefault",
    ];
    let standard = [
        "[anon]|py::Condition.wait:/usr/lib/python3.12/threading.py",
        "/usr/bin/python3.12|_PyEval_Vector",
        "[anon]|py::Queue.get:/usr/lib/python3.12/queue.py",
    ];
    let own = ["[anon]|py::worker:/srv/app/jobs.py", "/usr/bin/python3.12|_PyEval_Vector"];
    let thread = [
        "[anon]|py::Thread.run:/usr/lib/python3.12/threading.py",
        "[anon]|py::Thread._bootstrap:/usr/lib/python3.12/threading.py",
        "/usr/bin/python3.12|thread_run",
    ];
    let all = [&interpreter[..], &standard, &own, &thread].concat();
    expect(&all, "py::worker:/srv/app/jobs.py", Program);
    let pool = ["[anon]|py::_worker:/usr/lib/python3.12/concurrent/futures/thread.py"];
    let idle = [&interpreter[..], &standard, &pool, &thread].concat();
    expect(&idle, "PyThread_acquire_lock_timed", Runtime);
    // Without trampolines, the interpreter is all there is.
    expect(&interpreter, "PyThread_acquire_lock_timed", Runtime);
    expect(
        &[
            "/usr/lib/libssl.so.3|SSL_read",
            "/usr/lib/python3.12/lib-dynload/_ssl.cpython-312-x86_64-linux-gnu.so|_ssl__SSLSocket_read",
            "[anon]|py::SSLSocket.read:/usr/lib/python3.12/ssl.py",
            "[anon]|py::HTTPResponse.begin:/usr/lib/python3.12/http/client.py",
            "[anon]|py::Session.get:/srv/venv/lib/python3.12/site-packages/requests/sessions.py",
            "[anon]|py::fetch:/srv/app/fetch.py",
            "[anon]|py::<module>:<string>",
        ],
        "py::fetch:/srv/app/fetch.py",
        Program,
    );
}

#[test]
fn a_script_is_told_by_its_file_wherever_that_was_written_down() {
    let node = [
        "[anon]|emit @node:events:471",
        "[anon]|query @/srv/app/node_modules/pg/lib/client.js:540",
        "[anon]|orders @/srv/app/orders.js:10",
    ];
    expect(&node, "orders (orders.js:10)", Program);
    let python = [
        "[anon]|wait @/usr/lib/python3.12/threading.py:355",
        "[anon]|send @/srv/venv/lib/python3.12/site-packages/requests/sessions.py:703",
        "[anon]|fetch @/srv/app/fetch.py:7",
        "[anon]|_bootstrap @<frozen importlib._bootstrap>:1",
    ];
    expect(&python, "fetch (fetch.py:7)", Program);
    expect(&python[..2], "send (sessions.py:703)", Library);
    // The name of a function in a mapped file is enough.
    expect(&["/srv/app|handle @/src/app.c:12"], "handle", Program);
}

#[test]
fn node_shows_the_script_and_not_its_engine() {
    let node = "/usr/bin/node";
    let engine = [
        "/usr/lib/libc.so.6|___pthread_cond_signal",
        "/usr/bin/node|post|uv__threadpool_cleanup",
        "/usr/bin/node|node::Environment::Exit(node::ExitCode)",
        "/usr/bin/node|v8::internal::Builtin_HandleApiCall(int, unsigned long*, v8::internal::Isolate*)",
        "/usr/bin/node|Builtins_CEntry_Return1_ArgvOnStack_BuiltinExit",
    ];
    let own = ["[anon]|JS:^onReply /srv/app/t.js:2:150"];
    let events = [
        "[anon]|JS:^emit node:events:471:44",
        "[anon]|JS:^Readable.push node:internal/streams/readable:387:35",
        "/usr/bin/node|Builtins_JSEntry",
        "/usr/bin/node|uv__io_poll",
        "/usr/bin/node|uv_run",
    ];
    expect(&[&engine[..], &own, &events].concat(), "JS:^onReply /srv/app/t.js:2:150", Program);
    expect(
        &[
            "[anon]|LazyCompile:*readFileSync node:fs:441:22",
            "[anon]|LazyCompile:*query /srv/app/node_modules/pg/lib/client.js:540:8",
            "[anon]|LazyCompile:~orders /srv/app/orders.js:10:5",
        ],
        "LazyCompile:~orders /srv/app/orders.js:10:5",
        Program,
    );
    expect_in(
        node,
        &["uv__io_poll", "uv_run", "node::SpinEventLoopInternal(node::Environment*)", "main"],
        "uv__io_poll",
        Runtime,
    );
}

#[test]
fn the_jvm_shows_the_program_and_not_its_classes() {
    let wake = [
        "/usr/lib/libc.so.6|__GI___lll_lock_wake",
        "/usr/lib/jvm/java-17/lib/server/libjvm.so|CompileBroker::compile_method(methodHandle const&)",
        "[anon]|counter_overflow Runtime1 stub",
        "[anon]|boolean java.util.concurrent.locks.ReentrantLock$Sync.tryRelease(int)",
        "[anon]|java.lang.Object java.util.concurrent.LinkedBlockingQueue.poll(long, java.util.concurrent.TimeUnit)",
    ];
    let own = ["[anon]|java.util.List<Order> com.shop.Orders.next(long)"];
    let main = [
        "[anon]|Interpreter",
        "[anon]|StubRoutines (1)",
        "/usr/lib/jvm/java-17/lib/server/libjvm.so|JavaCalls::call_helper(JavaValue*)",
        "/usr/lib/jvm/java-17/lib/libjli.so|JavaMain",
    ];
    let all = [&wake[..], &own, &main].concat();
    expect(&all, "java.util.List<Order> com.shop.Orders.next(long)", Program);
    expect(
        &[&wake[..], &main].concat(),
        "CompileBroker::compile_method(methodHandle const&)",
        Runtime,
    );
    expect(
        &[
            "[anon]|Ljava/lang/Object;::wait",
            "[anon]|LShop;::await",
            "[anon]|Ljava/lang/Thread;::run",
        ],
        "LShop;::await",
        Program,
    );
}

#[test]
fn code_without_a_name_is_the_programs_only_in_its_own_file() {
    expect(&[&format!("{LIBC}|read"), "/srv/web", "/srv/web|main"], "web+0x10", Program);
    expect(&["[anon]", "/usr/lib/libpq.so.5", "/usr/bin/python3"], "futex_do_wait", Kernel);
}

#[test]
fn the_kernel_comes_before_libc_and_before_all_where_no_rule_knows_the_cause() {
    let libc = [&*format!("{LIBC}|__poll"), &*format!("{LIBC}|start_thread")];
    expect(&libc, "futex_do_wait", Kernel);
    assert_eq!(label(&libc, &[]), Some(("__poll".to_owned(), Libc)));
    assert_eq!(label(&[], &[]), None);
    let mut table = StackTable::default();
    let user = stack(&mut table, &["/srv/web|main"]);
    let kernel = stack(&mut table, &["[kernel]|schedule", "[kernel]|kernel_clone"]);
    let mut best_fit = LabelFinder::new(&table);
    let mut whose =
        |cause, kernel| best_fit.wait_label(cause, user, kernel).map(|label| label.whose);
    assert_eq!(whose(Cause::Other, kernel), Some(Kernel));
    assert_eq!(whose(Cause::Other, StackRef::Failed), Some(Program));
    assert_eq!(whose(Cause::Futex, kernel), Some(Program));
    assert_eq!(whose(Cause::Futex, StackRef::NotTaken), Some(Program));
}

#[test]
fn what_a_thread_did_is_not_known_by_how_it_woke_another() {
    let mut table = StackTable::default();
    let user = stack(&mut table, &["/usr/lib/libc.so.6|__send", "/srv/web|answer"]);
    let libc = stack(&mut table, &["/usr/lib/libc.so.6|__send"]);
    let kernel = stack(&mut table, &["[kernel]|try_to_wake_up", "[kernel]|sock_def_readable"]);
    let mut best_fit = LabelFinder::new(&table);
    let mut whose = |user| best_fit.activity_label(user, kernel).map(|label| label.whose);
    assert_eq!(whose(user), Some(Program));
    assert_eq!(whose(libc), Some(Libc));
    assert_eq!(whose(StackRef::Failed), None);
    assert_eq!(whose(StackRef::NotTaken), Some(Kernel));
}

#[test]
fn a_kernel_thread_is_known_by_what_it_did_and_not_by_its_wake() {
    let wake = [
        "[kernel]|try_to_wake_up",
        "[kernel]|__wake_up_common",
        "[kernel]|autoremove_wake_function",
    ];
    let shown = |kernel: &[&str]| label(&[], kernel);
    let with =
        [&wake[..], &["[kernel]|jbd2_journal_commit_transaction", "[kernel]|kthread"]].concat();
    assert_eq!(shown(&with), Some(("jbd2_journal_commit_transaction".to_owned(), Kernel)));
    assert_eq!(shown(&wake), Some(("try_to_wake_up".to_owned(), Kernel)));
}

#[test]
fn hostile_names_are_read_once_and_kept_whole() {
    let hostile = [
        "<".repeat(100_000),
        "(".repeat(100_000),
        "::".repeat(100_000),
        "<::>".repeat(50_000),
        " operator".repeat(20_000),
        format!("py::{}", ":".repeat(100_000)),
        "é<::é ".repeat(20_000),
        "\u{1b}[2J;\n\0".to_owned(),
    ];
    for name in hostile {
        let (label, _) = label(&[&format!("/srv/web|{name}")], &[]).expect("a label");
        assert_eq!(label, name);
        let label = Label { function: Arc::from(name), module: None, whose: Program };
        assert!(label.short_name(48).chars().count() <= 48);
    }
}

/// The wait of a C++ condition variable is inlined where it is called, and says nothing of what for.
#[test]
fn functions_that_were_inlined_are_labels_as_well_as_those_they_are_in() {
    let mut table = StackTable::default();
    let inlined = "/srv/app|wait<next_item()::<lambda()> >|next_item()";
    let StackRef::Id(id) = stack(&mut table, &[LIBC, inlined, "/srv/app|main"]) else {
        unreachable!()
    };
    let labels = LabelFinder::new(&table).user_labels_of(id);
    let names: Vec<&str> = labels.iter().map(|label| &*label.function).collect();
    assert_eq!(names, ["wait<next_item()::<lambda()> >", "next_item()", "main"]);
}
