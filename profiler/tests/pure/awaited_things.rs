//! Findings name the very thing that was waited on, if it is known and one.

use offwake_analysis::{filter::Filter, findings::Finding};
use offwake_recording::{
    FileId, FileKind, OpenFile, PeerProcess, Recording, SocketRole, WakeContext, units::Tgid,
};

use crate::{
    draw::{edit, live, recording},
    fixtures::{FUTEX, POLL, READ, RECVFROM, file, kernel, syscall, tcp, user},
    golden::report as build_report,
};

/// Thread 7 waits for 60 in `ask`, so many times, 30 ticks each, in this call.
fn asks(times: usize, call: u32, frames: &[&str]) -> Recording {
    let mut r = recording(32 * times + 4);
    live(&mut r, 7, &format!("{}####", format!("#{}r", ".".repeat(30)).repeat(times)), 60);
    live(&mut r, 60, &"#".repeat(32 * times + 4), 0);
    let stack = user(&mut r, 7, frames);
    edit(&mut r, |waits| {
        for wait in waits {
            wait.syscall = syscall(call, [3, 0, 0, 0, 0, 0]);
            wait.user_stack = stack;
        }
    });
    r
}

fn on_files(mut r: Recording, files: &[FileId]) -> Recording {
    edit(&mut r, |waits| {
        for (wait, &file) in waits.iter_mut().zip(files) {
            wait.file = Some(file);
        }
    });
    r
}

fn only_finding(mut r: Recording) -> Finding {
    r.sort();
    let list = build_report(&r, &Filter::default()).findings.list;
    list.into_iter().find(|finding| finding.count > 0).expect("a finding about waits")
}

const ASK: &[&str] = &["libc.so.6 recv", "app ask", "app main"];

fn sockets(r: &mut Recording, remotes: &[&str]) -> Vec<FileId> {
    let add = |(remote, inode): (&&str, u64)| {
        let file = tcp(r, inode, "10.0.0.1:4000", remote);
        if let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&file) {
            end.role = Some(SocketRole::Asking);
        }
        file
    };
    remotes.iter().zip(5..).map(add).collect()
}

fn finding_on_sockets(remotes: &[&str], times: usize) -> Finding {
    let mut r = asks(times, RECVFROM, ASK);
    let files = sockets(&mut r, remotes);
    only_finding(on_files(r, &files))
}

#[test]
fn a_connection_is_named_behind_the_function() {
    let finding = finding_on_sockets(&["10.0.0.2:5432"], 1);
    assert_eq!(finding.chain[0].waited_on.as_deref(), Some("tcp 10.0.0.2:5432"));
    assert_eq!(finding.lines[0].addition.as_deref(), Some("on tcp 10.0.0.2:5432"));
    assert!(finding.text.contains(" in ask, on tcp 10.0.0.2:5432: "), "{}", finding.text);
    // Two connections to one server are one thing to wait on.
    let twice = finding_on_sockets(&["10.0.0.2:5432", "10.0.0.2:5432"], 2);
    assert_eq!(twice.lines[0].addition.as_deref(), Some("on tcp 10.0.0.2:5432"));
}

#[test]
fn what_differs_or_is_mostly_not_known_is_not_named_or_with_its_part() {
    let two = finding_on_sockets(&["10.0.0.2:5432", "10.0.0.3:5432"], 2);
    assert_eq!((&two.chain[0].waited_on, &two.lines[0].addition), (&None, &None));
    let half = finding_on_sockets(&["10.0.0.2:5432"], 2);
    assert_eq!(half.lines[0].addition.as_deref(), Some("on tcp 10.0.0.2:5432 (50% of it)"));
    let little = finding_on_sockets(&["10.0.0.2:5432"], 20);
    assert_eq!((&little.chain[0].waited_on, &little.lines[0].addition), (&None, &None));
}

#[test]
fn a_fifo_is_named_by_its_path_and_a_pipe_has_none() {
    let what = |name: &str| {
        let mut r = asks(1, READ, &["libc.so.6 read", "app take_job", "app main"]);
        let pipe = file(FileKind::Pipe, 9);
        r.files.files.insert(pipe, OpenFile::Named(name.to_owned()));
        let finding = only_finding(on_files(r, &[pipe]));
        assert!(finding.lines[0].addition.is_none(), "{finding:#?}");
        finding.chain[0].what.clone()
    };
    assert_eq!(what("/run/jobs"), "waits for thread60 at the FIFO /run/jobs");
    assert_eq!(what("pipe:[9]"), "waits for thread60 at a pipe");
    // Whoever made it may have called it anything.
    assert_eq!(what("/run/a\u{1b}[2J"), "waits for thread60 at the FIFO /run/a\\x1b[2J");
}

#[test]
fn a_name_server_that_does_not_answer_is_named_by_its_address() {
    let said = |peers: Vec<PeerProcess>| {
        let frames = ["libc.so.6 poll", "libc.so.6 __res_context_send", "app find_host"];
        let mut r = asks(1, POLL, &frames);
        let polls = kernel(&mut r, &["schedule", "do_sys_poll"]);
        let socket = tcp(&mut r, 5, "127.0.0.1:4000", "127.0.0.53:53");
        if let Some(OpenFile::Socket(end)) = r.files.files.get_mut(&socket) {
            (end.protocol, end.peers) = ("udp".to_owned(), peers);
        }
        let mut r = on_files(r, &[socket]);
        edit(&mut r, |waits| {
            // One descriptor, and a second's patience.
            waits[0].syscall = syscall(POLL, [0x1000, 1, 1000, 0, 0, 0]);
            waits[0].kernel_stack = polls;
            waits[0].polled_fd = Some(3);
            waits[0].wake.as_mut().unwrap().context = WakeContext::Hrtimer;
        });
        only_finding(r).text
    };
    let local = PeerProcess { tgid: Tgid(812), comm: "resolved".to_owned() };
    let remote = said(Vec::new());
    let answer = "gets no answer from the name server 127.0.0.53:53 (DNS) in find_host";
    assert!(remote.ends_with(answer), "{remote}");
    let local = said(vec![local]);
    assert!(local.ends_with(&format!("{answer}, served by resolved 812")), "{local}");
}

#[test]
fn a_wait_for_another_thread_says_through_which_function_of_the_library() {
    let addition = |callee: &str| {
        let callee = format!("app {callee}");
        let finding = only_finding(asks(
            1,
            FUTEX,
            &["libc.so.6 futex_wait", &callee, "app Pool::acquire", "app main"],
        ));
        assert_eq!(finding.chain[0].function.as_deref(), Some("Pool::acquire"), "{finding:#?}");
        finding.lines[0].addition.clone()
    };
    let through = addition("std::sync::mpsc::Receiver::recv");
    assert_eq!(through.as_deref(), Some("through std::sync::mpsc::Receiver::recv"));
    // What a runtime does inside says nothing to who wrote the program.
    assert_eq!(addition("__rust_wait"), None);
}
