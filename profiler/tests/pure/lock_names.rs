//! Locks that only the functions of a stack tell, and what they are called: of databases,
//! interpreters, and of the kernel's own kind.

use offwake_analysis::{
    filter::Filter,
    findings::{Finding, FindingKind},
};
use offwake_recording::{
    AwaitedFileLock, OpenFile, PeerProcess, Recording, SocketRole, WakeContext, units::Tgid,
};

use crate::{
    draw::{edit, live, recording, ticks},
    fixtures::{CLOCK_NANOSLEEP, FUTEX, POLL, RECVFROM, kernel, syscall, tcp, user},
    golden::report as build_report,
};

const PREAD: u32 = 17;
const LOCK_PI: u64 = 0x86;
const WAIT: u64 = 0x80;

fn findings(r: &mut Recording) -> Vec<Finding> {
    r.sort();
    build_report(r, &Filter::default()).findings.list
}

/// What is said of thread 7, which sleeps in short steps in this stack.
fn sleeps_in_steps(frames: &[&str]) -> Finding {
    let mut r = recording(100);
    live(&mut r, 7, &format!("{}#", format!("#{}r", ".".repeat(30)).repeat(3)), 0);
    let stack = user(&mut r, 7, frames);
    let nap = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |waits| {
        for wait in waits {
            wait.syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
            (wait.user_stack, wait.kernel_stack) = (stack, nap);
            wait.wake.as_mut().unwrap().context = WakeContext::Hrtimer;
        }
    });
    let list = findings(&mut r);
    list.into_iter().find(|found| found.kind != FindingKind::OnCpu).expect("a finding")
}

#[test]
fn sqlite_that_sleeps_in_steps_waits_for_a_lock_of_the_database() {
    let libc = ["libc.so.6 clock_nanosleep", "libc.so.6 usleep"];
    let with = |rest: &[&'static str]| [&libc[..], rest].concat();
    for frames in [
        // A distribution's library has the names of its interface only.
        with(&["libsqlite3.so.0.8.6 +1000", "libsqlite3.so.0.8.6 +2000"]),
        // With all of its names, in the library or in the program.
        with(&["libsqlite3.so.0 unixSleep", "libsqlite3.so.0 sqliteDefaultBusyCallback"]),
        with(&["app unixSleep", "app sqliteDefaultBusyCallback"]),
    ] {
        let file = if frames.contains(&"app unixSleep") { "app" } else { "libsqlite3.so.0.8.6" };
        let step = format!("{file} sqlite3_step");
        let frames = [&frames[..], &[&step, "app save_order", "app main"]].concat();
        let found = sleeps_in_steps(&frames);
        assert_eq!(found.kind, FindingKind::Wait, "{found:#?}");
        assert_eq!((found.count, found.still_waiting), (3, false));
        let said = "thread7 7 waits for a lock of the SQLite database in ";
        assert!(found.text.starts_with(said), "{found:#?}");
        let last = found.lines.last().unwrap();
        assert_eq!(last.text, "who holds the lock is not known", "{found:#?}");
    }
}

#[test]
fn who_sleeps_on_purpose_beside_sqlite_sleeps() {
    let libc = ["libc.so.6 clock_nanosleep", "libc.so.6 usleep"];
    for frames in [
        // By the library's own function for that.
        &["libsqlite3.so.0 +1000", "libsqlite3.so.0 sqlite3_sleep", "app pace", "app main"][..],
        &["libsqlite3.so.0 unixSleep", "libsqlite3.so.0 sqlite3_sleep", "app pace", "app main"],
        // In a function of the program's that a statement calls.
        &["app on_row", "libsqlite3.so.0 +1000", "libsqlite3.so.0 sqlite3_exec", "app main"],
        // In another library.
        &["libother.so.0 +1000", "libother.so.0 sqlite3_step", "app pace", "app main"],
        &["app pace", "app main"],
    ] {
        let found = sleeps_in_steps(&[&libc[..], frames].concat());
        assert_eq!(found.kind, FindingKind::Sleep, "{found:#?}");
        assert!(found.text.contains("sleeps") && !found.text.contains("SQLite"), "{found:#?}");
    }
}

#[test]
fn who_reads_the_file_of_a_sqlite_database_waits_for_no_lock() {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r#", ".".repeat(97)), 0);
    let frames =
        ["libc.so.6 pread64", "libsqlite3.so.0 +1000", "libsqlite3.so.0 sqlite3_step", "app main"];
    let stack = user(&mut r, 7, &frames);
    let reads = kernel(&mut r, &["io_schedule", "folio_wait_bit_common", "filemap_read"]);
    edit(&mut r, |waits| {
        waits[0].syscall = syscall(PREAD, [3, 0, 0, 0, 0, 0]);
        (waits[0].user_stack, waits[0].kernel_stack) = (stack, reads);
        waits[0].wake.as_mut().unwrap().context = WakeContext::Softirq(4);
    });
    let found = findings(&mut r).remove(0);
    assert!(found.text.contains("waits for the disk"), "{found:#?}");
}

/// Thread 7 waits with a timeout, in this stack, for its fellow 8, which waits for a request of its
/// client meanwhile. Returns the findings that are waits.
fn waits_for_a_session(frames: &[&str]) -> Vec<Finding> {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r##", ".".repeat(96)), 8);
    live(&mut r, 8, &format!("#{}r###", ".".repeat(95)), 60);
    live(&mut r, 60, &"#".repeat(100), 0);
    let stack = user(&mut r, 7, frames);
    let serves = user(&mut r, 7, &["libc.so.6 recv", "mariadbd vio_read", "mariadbd main"]);
    let futex = kernel(&mut r, &["schedule", "futex_do_wait", "futex_wait", "do_futex"]);
    let socket = tcp(&mut r, 5, "127.0.0.1:3306", "127.0.0.1:4000");
    let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket) else { unreachable!() };
    end.role = Some(SocketRole::Serving);
    edit(&mut r, |waits| {
        for wait in waits {
            match wait.tid.0 {
                7 => {
                    wait.syscall = syscall(FUTEX, [0x1000, 0x189, 0, 0, 0, 0]);
                    (wait.user_stack, wait.kernel_stack) = (stack, futex);
                }
                _ => {
                    wait.syscall = syscall(RECVFROM, [3, 0, 0, 0, 0, 0]);
                    (wait.user_stack, wait.file) = (serves, Some(socket));
                }
            }
            wait.tgid = Tgid(7);
            let waker = &mut wait.wake.as_mut().unwrap().current;
            if waker.tid.0 == 8 {
                waker.tgid = Tgid(7);
            }
        }
    });
    for event in r.thread_events.iter_mut().filter(|event| event.tid.0 == 8) {
        event.tgid = Tgid(7);
    }
    let mut list = findings(&mut r);
    // All else is a matter of single ticks.
    list.retain(|found| found.kind == FindingKind::Wait && found.ns > ticks(50));
    list
}

#[test]
fn a_session_that_waits_for_a_row_waits_for_whoever_has_it_idle_or_not() {
    let libc = ["libc.so.6 __futex_abstimed_wait_common64", "libc.so.6 pthread_cond_timedwait"];
    let inner = ["mariadbd +1000", "mariadbd +2000", "mariadbd +3000"];
    let update = "mariadbd handler::ha_update_row(unsigned char const*, unsigned char const*)";
    let statement = ["mariadbd mysql_update(THD*)", "mariadbd main"];
    let stack = [&libc[..], &inner, &[update], &statement].concat();
    let found = waits_for_a_session(&stack);
    assert_eq!(found.len(), 1, "{found:#?}");
    let said = &found[0].text;
    assert!(said.contains("waits for a row lock (InnoDB) of another thread"), "{found:#?}");
    assert!(found[0].chain.iter().any(|hop| hop.what == "waits for its client"), "{found:#?}");
    // A pool's thread waits in the same way for its next connection, and is idle.
    let pool = [&libc[..], &inner, &["mariadbd worker_main", "mariadbd main"]].concat();
    assert_eq!(waits_for_a_session(&pool), []);
    // A named function in between does something else for the storage engine.
    let other = [&libc[..], &["mariadbd flush_pages()"], &[update], &statement].concat();
    assert_eq!(waits_for_a_session(&other), []);
    // Another kind of lock is known by its own function.
    let definition = [&libc[..], &["mariadbd MDL_wait::timed_wait(MDL_context_owner*)"]].concat();
    let found = waits_for_a_session(&definition);
    assert!(found[0].text.contains("waits for a metadata lock (MDL) of"), "{found:#?}");
}

#[test]
fn a_lock_with_priority_inheritance_is_one_whatever_its_functions_are_called() {
    for (op, said) in [(LOCK_PI, "waits for a lock of thread8"), (WAIT, "waits for thread8")] {
        let mut r = recording(100);
        live(&mut r, 7, &format!("#{}r#", ".".repeat(97)), 8);
        live(&mut r, 8, &"#".repeat(100), 0);
        let stack = user(&mut r, 7, &["librt.so +1000", "app control", "app main"]);
        edit(&mut r, |waits| {
            waits[0].syscall = syscall(FUTEX, [0x1000, op, 0, 0, 0, 0]);
            waits[0].user_stack = stack;
        });
        let found = findings(&mut r);
        assert!(found.iter().any(|found| found.text.contains(said)), "{found:#?}");
    }
}

/// What thread 7 sleeps for at the end.
#[derive(Clone, Copy)]
enum LastSleep {
    ForLock,
    OfItsOwn,
}

/// Thread 7 asks SQLite for a lock, process 60 sleeps meanwhile, and the kernel's list says at the end that process
/// `waiter` has a database open that this one has locked.
fn asks_for_a_held_database(waiter: u32, last_sleep: LastSleep) -> Finding {
    let mut r = recording(100);
    let life = format!("{}#{}", format!("#{}r", ".".repeat(30)).repeat(2), "_".repeat(35));
    live(&mut r, 7, &life, 0);
    live(&mut r, 60, &format!("#{}", "_".repeat(99)), 0);
    let library = ["libsqlite3.so.0 +1000", "libsqlite3.so.0 sqlite3_step"];
    let asks = ["libc.so.6 clock_nanosleep", library[0], library[1], "app save_order", "app main"];
    let asks = user(&mut r, 7, &asks);
    let naps = user(&mut r, 7, &["libc.so.6 clock_nanosleep", "app main"]);
    let has = user(&mut r, 60, &["libc.so.6 clock_nanosleep", "app fetch_prices", "app main"]);
    let nap = kernel(&mut r, &["schedule", "do_nanosleep", "hrtimer_nanosleep"]);
    edit(&mut r, |waits| {
        for wait in waits {
            wait.syscall = syscall(CLOCK_NANOSLEEP, [0; 6]);
            wait.user_stack = match (wait.tid.0, last_sleep, wait.wake) {
                (7, LastSleep::OfItsOwn, None) => naps,
                (7, ..) => asks,
                _ => has,
            };
            wait.kernel_stack = nap;
            if let Some(wake) = &mut wait.wake {
                wake.context = WakeContext::Hrtimer;
            }
        }
    });
    r.file_locks.push(AwaitedFileLock {
        device: 8,
        inode: 5,
        waiter: Some(Tgid(waiter)),
        holder: Some(PeerProcess { tgid: Tgid(60), comm: "thread60".to_owned() }),
    });
    let list = findings(&mut r);
    list.into_iter().find(|found| found.kind == FindingKind::Wait).expect("a wait")
}

#[test]
fn who_has_the_lock_of_a_sqlite_database_is_named_if_the_kernels_list_says_so() {
    let found = asks_for_a_held_database(7, LastSleep::ForLock);
    let last = found.lines.last().unwrap();
    assert_eq!(last.text, "thread60 60 holds it: sleeps", "{found:#?}");
    assert_eq!(last.function.as_deref(), Some("fetch_prices"));
    assert!(found.text.ends_with("holds it: sleeps in fetch_prices"), "{found:#?}");
    // Who asks for it is not the cause; who holds it at the end may not have had it all the time.
    assert!(found.lines.iter().all(|line| !line.is_cause), "{found:#?}");
    // Of another process's locks it says nothing.
    let found = asks_for_a_held_database(8, LastSleep::ForLock);
    assert_eq!(found.lines.last().unwrap().text, "who holds the lock is not known", "{found:#?}");
    assert!(found.lines.iter().all(|line| !line.is_cause), "{found:#?}");
}

#[test]
fn who_has_the_lock_is_named_also_if_nobody_asks_for_it_just_at_the_end() {
    let found = asks_for_a_held_database(7, LastSleep::OfItsOwn);
    assert!(found.text.ends_with("holds it: sleeps in fetch_prices"), "{found:#?}");
    assert!(found.lines.iter().all(|line| !line.is_cause), "{found:#?}");
    let found = asks_for_a_held_database(8, LastSleep::OfItsOwn);
    assert_eq!(found.lines.last().unwrap().text, "who holds the lock is not known", "{found:#?}");
}

/// What is said of thread 7, which waits in this stack for 8, which works.
fn waits_for_another(call: u32, frames: &[&str]) -> String {
    let mut r = recording(100);
    live(&mut r, 7, &format!("#{}r#", ".".repeat(97)), 8);
    live(&mut r, 8, &"#".repeat(100), 0);
    let stack = user(&mut r, 7, frames);
    edit(&mut r, |waits| {
        waits[0].syscall = syscall(call, [0x1000, u64::from(call == POLL), 0, 0, 0, 0]);
        waits[0].user_stack = stack;
    });
    let list = findings(&mut r);
    let found = list.iter().find(|found| found.kind == FindingKind::Wait && found.ns > ticks(50));
    found.expect("a wait").lines[0].text.clone()
}

#[test]
fn rubys_locks_are_known_by_what_its_library_exports() {
    let ruby = |callee: &'static str, rest: &[&'static str]| {
        let (one, two) = ("libruby-3.1.so.3.1 +1000", "libruby-3.1.so.3.1 +2000");
        [&[callee, one, two], rest, &["libruby-3.1.so.3.1 rb_vm_exec", "ruby main"]].concat()
    };
    let wait = "libc.so.6 ___pthread_cond_wait";
    let (lock, gvl) = ("waits for a lock of thread8", "waits for the interpreter's lock (GVL) of");
    for (call, callee, rest, said) in [
        (POLL, "libc.so.6 __ppoll", &["libruby-3.1.so.3.1 rb_mutex_synchronize"][..], lock),
        (FUTEX, wait, &["libruby-3.1.so.3.1 rb_mutex_lock"], lock),
        (FUTEX, wait, &["libruby-3.1.so.3.1 rb_threadptr_execute_interrupts"], gvl),
        // It may wait for the lock, or for something that it does without it.
        (FUTEX, wait, &["libruby-3.1.so.3.1 rb_nogvl"], "waits for thread8"),
        (POLL, "libc.so.6 __poll", &["libruby-3.1.so.3.1 rb_nogvl"], "waits for thread8"),
        // The block that is run with the mutex waits for something of its own.
        (
            FUTEX,
            wait,
            &["libruby-3.1.so.3.1 rb_yield", "libruby-3.1.so.3.1 rb_mutex_synchronize"],
            "waits for thread8",
        ),
    ] {
        let told = waits_for_another(call, &ruby(callee, rest));
        assert!(told.contains(said), "{rest:?}: {told}");
    }
}

#[test]
fn a_mutex_of_rust_is_a_lock_however_its_method_is_called() {
    for (name, said) in [
        ("std::sys::sync::mutex::futex::Mutex::lock_contended", "waits for a lock of thread8"),
        ("std::sys::sync::condvar::futex::Condvar::wait", "waits for thread8"),
    ] {
        let told =
            waits_for_another(FUTEX, &["libc.so.6 syscall", &format!("app {name}"), "app main"]);
        assert!(told.contains(said), "{name}: {told}");
    }
}
