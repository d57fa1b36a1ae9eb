//! `--otlp`: spans to a collector, a good one and all the others.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    sync::mpsc::{self, Receiver, Sender},
    thread,
};

use serde_json::Value;

/// A request: its head, and its body.
struct Post {
    head: String,
    body: Value,
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A collector that gives the same answer to every request, and none at all if that is empty.
fn collector(answer: &str) -> (SocketAddr, Receiver<Post>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, posts) = mpsc::channel();
    let answer = answer.to_owned();
    // It ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (sender, answer) = (sender.clone(), answer.clone());
            thread::spawn(move || serve(stream, &answer, &sender));
        }
    });
    (address, posts)
}

fn serve(stream: TcpStream, answer: &str, posts: &Sender<Post>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.expect("a length").parse().expect("a number")];
        reader.read_exact(&mut body)?;
        let body = serde_json::from_slice(&body).expect("JSON");
        // Nobody may be listening any more.
        let _ = posts.send(Post { head, body });
        stream.write_all(answer.as_bytes())?;
    }
}

const PROXIES: [&str; 6] =
    ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

fn report_command(arguments: &[&str]) -> Command {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pipe.offwake");
    let mut command = Command::new(env!("CARGO_BIN_EXE_offwake"));
    command.arg("report").arg(recording).args(["--span-min", "0"]).args(arguments);
    for proxy in PROXIES {
        command.env_remove(proxy);
    }
    command
}

fn report(arguments: &[&str]) -> Output {
    report_command(arguments).output().expect("offwake")
}

fn spans_of(posts: &[Post]) -> Vec<&Value> {
    (posts.iter())
        .flat_map(|post| post.body["resourceSpans"].as_array().expect("processes"))
        .flat_map(|process| process["scopeSpans"][0]["spans"].as_array().expect("spans"))
        .collect()
}

/// Sends to a collector that answers like this; it must fail in one line, with the file written.
fn refused(answer: &str) -> String {
    let (address, _posts) = collector(answer);
    refused_by(&address.to_string(), &[])
}

fn refused_by(address: &str, more: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    let url = format!("http://{address}");
    let arguments = ["-o", file.to_str().unwrap(), "--otlp", &url];
    let output = report(&[&arguments[..], more].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("offwake: cannot send spans to http://127.0.0.1:"), "{stderr}");
    assert!(file.exists(), "the other outputs come first");
    stderr
}

#[test]
fn a_collector_gets_every_span_in_batches() {
    let (address, posts) = collector(&answer("200 OK", "{}"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.spans.json");
    let url = format!("http://{address}");
    let arguments = ["-o", file.to_str().unwrap(), "--otlp", &url, "--otlp-batch", "100"];
    let output = report(&arguments);
    assert!(output.status.success(), "{output:?}");
    let posts: Vec<Post> = posts.try_iter().collect();
    for post in &posts {
        assert!(post.head.starts_with("post /v1/traces http/1.1\r\n"), "{}", post.head);
        assert!(post.head.contains("content-type: application/json\r\n"), "{}", post.head);
    }
    let id = |span: &Value, key: &str| span[key].as_str().expect("an id").to_owned();
    let sent: BTreeSet<_> = spans_of(&posts).into_iter().map(|span| id(span, "spanId")).collect();
    assert_eq!(sent.len(), spans_of(&posts).len());
    let written: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let written = written["spans"].as_array().expect("spans").iter();
    let written: BTreeSet<_> = written.map(|span| id(span, "span_id")).collect();
    assert_eq!(sent, written);
    assert_eq!(posts.len(), written.len().div_ceil(100));
    assert!(posts.len() > 1, "{} spans make one batch", written.len());
    let said = String::from_utf8(output.stdout).unwrap();
    let last = format!("sent {} spans to {url}/v1/traces", written.len());
    assert_eq!(said.lines().last(), Some(&*last));
}

/// Proxies of the environment are for other machines: what one of them calls localhost is itself.
#[test]
fn spans_for_this_machine_go_through_no_proxy() {
    let (address, posts) = collector(&answer("200 OK", "{}"));
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let proxy_url = format!("http://{}", proxy.local_addr().unwrap());
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}", address.port());
        let mut command = report_command(&["--otlp", &url, "--otlp-timeout", "10s"]);
        for variable in PROXIES {
            command.env(variable, &proxy_url);
        }
        let output = command.output().expect("offwake");
        assert!(output.status.success(), "{host}: {output:?}");
        assert!(posts.try_iter().count() > 0, "{host}: the collector got nothing");
        let asked = proxy.accept().map_err(|error| error.kind());
        assert!(matches!(asked, Err(io::ErrorKind::WouldBlock)), "{host}: the proxy was asked");
    }
}

#[test]
fn a_collector_that_refuses_is_quoted() {
    let body = "no room\u{1b}[2J\nsecond";
    let said = refused(&answer("500 Internal Server Error", body));
    assert!(
        said.contains("(0 were sent): it answered 500 Internal Server Error: no room [2J"),
        "{said}"
    );
    assert!(!said.contains("second"), "{said}");
    let said = refused(&answer("404 Not Found", ""));
    assert!(said.trim_end().ends_with("it answered 404 Not Found"), "{said}");
    // It is not followed elsewhere.
    let said = refused("HTTP/1.1 302 Found\r\nlocation: http://x/\r\ncontent-length: 0\r\n\r\n");
    assert!(said.contains("it answered 302 Found"), "{said}");
}

#[test]
fn spans_that_a_collector_rejects_are_told() {
    // 64-bit numbers are text in OTLP, and some write numbers.
    for rejected in ["\"3\"", "3"] {
        let partial = format!(r#"{{"rejectedSpans":{rejected},"errorMessage":"too \u001bbig"}}"#);
        let said = refused(&answer("200 OK", &format!(r#"{{"partialSuccess":{partial}}}"#)));
        assert!(said.contains("it rejected 3 spans: too  big"), "{said}");
    }
}

#[test]
fn a_collector_that_says_nothing_sensible_has_taken_all() {
    let none = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
    let empty = answer("200 OK", r#"{"partialSuccess":{}}"#);
    for answer in [answer("202 Accepted", "ok"), none, empty] {
        let (address, _posts) = collector(&answer);
        let output = report(&["--otlp", &format!("http://{address}")]);
        assert!(output.status.success(), "{answer}: {output:?}");
    }
}

#[test]
fn nobody_at_home_is_an_error_and_so_is_silence() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = refused_by(&free.to_string(), &[]);
    assert!(said.to_lowercase().contains("connection refused"), "{said}");
    let (address, _posts) = collector("");
    let said = refused_by(&address.to_string(), &["--otlp-timeout", "100ms"]);
    assert!(said.contains("timeout"), "{said}");
    let said = refused("SSH-2.0-OpenSSH\r\n");
    assert!(said.contains("protocol") || said.contains("http"), "{said}");
}

#[test]
fn an_address_that_is_none_is_wrong_usage() {
    for (url, word) in
        [("https://x:4318", "https is not spoken"), ("localhost:4318", "not a collector")]
    {
        let output = report(&["--otlp", url]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(word), "{stderr}");
    }
}
