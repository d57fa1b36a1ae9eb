//! Engines that answer, and engines that do worse.

use std::{
    io::{Read as _, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    thread::JoinHandle,
    time::Duration,
};

use super::{A, B, id};
use crate::containers::{
    Container, ContainerQuery, ContainerRole, ContainerState, Host, docker_api,
};

/// What an engine does with one connection after it has read the request.
type Answer = fn(UnixStream);

struct Engine {
    directory: tempfile::TempDir,
    thread: JoinHandle<Vec<u8>>,
}

impl Engine {
    fn answering(answer: Answer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("docker.sock")).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).unwrap();
            request.truncate(length);
            answer(stream);
            request
        });
        Self { directory, thread }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("docker.sock")
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Cut from what Docker 20.10 answered.
const LIST: &str = r#"[{"Id":"4f1c0b5a9d3e7f2846b0c8d1e5a37f904f1c0b5a9d3e7f2846b0c8d1e5a37f90","Names":["/db/web","/web"],
"Image":"nginx:1","ImageID":"sha256:af9b","Command":"/bin/sleep 1000","Created":1795326579,"Ports":[],"Labels":{},
"State":"running","Status":"Up Less than a second","HostConfig":{"NetworkMode":"none"},"Mounts":[]},
{"Id":"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff","Names":null,"Image":"","State":"exited"},
{"Id":"short","Names":["/x"],"State":"running"}]"#;

fn answer_list(mut stream: UnixStream) {
    let length = LIST.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let _refused = stream.write_all((head + LIST).as_bytes());
}

/// As engines send what is long.
fn answer_list_in_chunks(mut stream: UnixStream) {
    stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    for chunk in LIST.as_bytes().chunks(100) {
        write!(stream, "{:x}\r\n", chunk.len()).unwrap();
        stream.write_all(chunk).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
}

fn expected() -> Vec<Container> {
    let mut web = super::container(A, Some("web"), ContainerState::Running);
    web.names.image = Some("nginx:1".to_owned());
    vec![web, super::container(B, None, ContainerState::Stopped(Some("exited".to_owned())))]
}

#[test]
fn an_engine_is_asked_for_all_its_containers() {
    for answer in [answer_list as Answer, answer_list_in_chunks] {
        let engine = Engine::answering(answer);
        assert_eq!(docker_api::list(&engine.socket(), &[own_user()]), Ok(expected()));
        let request = String::from_utf8(engine.thread.join().unwrap()).unwrap();
        assert!(request.starts_with("GET /containers/json?all=1 HTTP/1.1\r\n"), "{request}");
    }
}

#[test]
fn an_engine_of_somebody_else_is_not_asked() {
    let engine = Engine::answering(answer_list);
    let error = docker_api::list(&engine.socket(), &[own_user() + 1]).unwrap_err();
    assert!(error.contains("another user"), "{error}");
    assert!(engine.thread.join().is_ok_and(|request| request.is_empty()));
}

#[test]
fn the_labels_of_a_kubelet_say_the_pod() {
    let list = format!(
        r#"[{{"Id":"{A}","Names":["/k8s_POD_cart_shop_1_0"],"State":"running","Labels":{{
        "io.kubernetes.docker.type":"podsandbox","io.kubernetes.pod.name":"cart",
        "io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.uid":"1"}}}}]"#
    );
    let [pause] = docker_api::parse(list.as_bytes()).unwrap().try_into().unwrap();
    assert_eq!((pause.role, pause.pod_uid.as_deref()), (ContainerRole::Sandbox, Some("1")));
    assert_eq!(pause.names.pod.unwrap().to_string(), "shop/cart");
}

#[test]
fn what_an_engine_should_not_answer_is_an_error() {
    let answers: [(Answer, &str); 7] = [
        (drop, ""),
        (|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap(), ""),
        (
            |mut stream| stream.write_all(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n").unwrap(),
            "500",
        ),
        (
            |mut stream| {
                stream.write_all(b"HTTP/1.1 302 x\r\nLocation: http://a/\r\n\r\n").unwrap()
            },
            "",
        ),
        (
            |mut stream| {
                stream.write_all(b"HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\n{}").unwrap()
            },
            "",
        ),
        // More than anybody wants to have.
        (
            |mut stream| {
                let _refused = stream.write_all(b"HTTP/1.1 200 x\r\n\r\n");
                let megabyte = vec![b' '; 1 << 20];
                while stream.write_all(&megabyte).is_ok() {}
            },
            "large",
        ),
        (
            |mut stream| {
                while stream.write_all(&[b'x'; 4096]).is_ok() {}
            },
            "",
        ),
    ];
    for (number, (answer, word)) in answers.into_iter().enumerate() {
        let engine = Engine::answering(answer);
        let error = docker_api::list(&engine.socket(), &[own_user()]).unwrap_err();
        assert!(error.contains(word), "{number}: {error}");
        engine.thread.join().unwrap();
    }
}

#[test]
fn nobody_is_waited_for_who_does_not_answer() {
    let soon = Duration::from_millis(100);
    // Answers when the client has gone.
    let silent = Engine::answering(|mut stream| {
        let _ended = stream.read(&mut [0; 16]);
    });
    let error = docker_api::list_within(&silent.socket(), &[own_user()], soon).unwrap_err();
    assert!(error.contains("timeout"), "{error}");
    silent.thread.join().unwrap();

    // Each byte comes in time, and all of them never.
    let drip = Engine::answering(|mut stream| {
        let tick = Duration::from_millis(10);
        stream.set_read_timeout(Some(tick)).unwrap();
        while stream.write_all(b"x").is_ok() {
            let _later = stream.read(&mut [0; 1]);
        }
    });
    docker_api::list_within(&drip.socket(), &[own_user()], soon).unwrap_err();
    drip.thread.join().unwrap();

    // Nobody accepts, and the queue is full.
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&socket).unwrap();
    docker_api::list_within(&socket, &[own_user()], soon).unwrap_err();

    // No socket at all.
    std::fs::write(directory.path().join("file"), "").unwrap();
    for path in ["file", "none", "."] {
        docker_api::list_within(&directory.path().join(path), &[own_user()], soon).unwrap_err();
    }
}

#[test]
fn an_engine_that_does_not_answer_is_named_beside_what_is_known_without_it() {
    let machine = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(machine.path().join("run")).unwrap();
    drop(UnixListener::bind(machine.path().join("run/docker.sock")).unwrap());
    let cgroups = machine.path().join("sys/fs/cgroup/unified/system.slice");
    std::fs::create_dir_all(cgroups.join(format!("docker-{A}.scope"))).unwrap();
    let host = Host::below(machine.path());
    host.find(&ContainerQuery::Container(id(A).short().to_owned())).unwrap();
    let error = host.find(&ContainerQuery::Container("web".to_owned())).unwrap_err().to_string();
    assert!(
        error.starts_with("there is no container web; there are: 4f1c0b5a9d3e; no answer from "),
        "{error}"
    );
    assert!(error.contains("docker.sock") && error.lines().count() == 1, "{error}");
}
