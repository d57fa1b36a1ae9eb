//! Against a server of our own on the loopback interface.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::*;

/// What the server does with a request.
#[derive(Clone)]
enum Answer {
    Sends(Vec<u8>),
    Says(&'static str),
    SendsForEver,
    /// A byte, and no more until the client has gone.
    Stalls,
    RedirectsTo(String),
}

/// Answers every request alike; ends with the program.
struct Server {
    url: String,
    asked: Arc<AtomicU64>,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, paths) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let server = Self { url, asked: Arc::clone(&asked), paths: Arc::clone(&paths) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                asked.fetch_add(1, Ordering::Relaxed);
                paths.lock().unwrap().push(request(&stream));
                // The client may leave whenever it likes.
                let _left = respond(stream, &answer);
            }
        });
        server
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

/// The path that is asked for.
fn request(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.find(String::is_empty);
    first.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn respond(mut stream: TcpStream, answer: &Answer) -> io::Result<()> {
    match answer {
        Answer::Sends(bytes) => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
            stream.write_all(bytes)
        }
        Answer::Says(status) => {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
        }
        Answer::SendsForEver => {
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[0x7f; 4096])?;
            }
        }
        Answer::Stalls => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n!")?;
            io::copy(&mut stream, &mut io::sink()).map(drop)
        }
        Answer::RedirectsTo(url) => {
            write!(stream, "HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n")
        }
    }
}

const LIMITS: FetchLimits = FetchLimits {
    time: Duration::from_secs(20),
    time_in_all: Duration::from_secs(60),
    size: 64 << 20,
    size_in_all: 128 << 20,
};

fn client(urls: &str, directory: &Path, limits: FetchLimits) -> Debuginfod {
    Debuginfod::new(urls, directory.join("cache"), limits).unwrap()
}

/// An ELF file of our own, and its build id.
fn debug_file(directory: &Path) -> (Vec<u8>, BuildId) {
    let options = ["-Wl,--build-id=0xabcdef0123"];
    let file = crate::stacks::tests::compile(directory, "p", "int main(void) {}", &options);
    (fs::read(file).unwrap(), "abcdef0123".parse().unwrap())
}

fn another() -> BuildId {
    "abcdef0124".parse().unwrap()
}

#[test]
fn a_file_is_fetched_once_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, build_id) = debug_file(directory.path());
    let size = bytes.len() as u64;
    let server = Server::start(Answer::Sends(bytes.clone()));
    let fetching = client(&server.url, directory.path(), LIMITS);
    assert!(fetching.find(&build_id).is_some());
    assert_eq!(*server.paths.lock().unwrap(), ["/buildid/abcdef0123/debuginfo"]);
    let fetched = Fetched { files: 1, bytes: size, ..Fetched::default() };
    assert_eq!(fetching.fetched(), fetched);
    let kept = directory.path().join("cache/abcdef0123/debuginfo");
    assert_eq!(fs::read(kept).unwrap(), bytes);
    // Another run has it from there.
    let again = client(&server.url, directory.path(), LIMITS);
    assert!(again.find(&build_id).is_some());
    assert_eq!((again.fetched(), server.asked()), (Fetched::default(), 1));
}

#[test]
fn a_file_of_another_build_is_not_kept_and_its_server_not_asked_again() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, build_id) = debug_file(directory.path());
    let server = Server::start(Answer::Sends(bytes));
    let fetching = client(&server.url, directory.path(), LIMITS);
    assert!(fetching.find(&another()).is_none() && fetching.find(&build_id).is_none());
    assert_eq!((fetching.fetched().files, server.asked()), (0, 1));
    assert!(fetching.fetched().errors[0].contains("another file"), "{:?}", fetching.fetched());
    assert_eq!(fs::read_dir(directory.path().join("cache")).unwrap().count(), 0);
}

#[test]
fn a_kept_file_of_another_build_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, _) = debug_file(directory.path());
    let server = Server::start(Answer::Says("404 Not Found"));
    let fetching = client(&server.url, directory.path(), LIMITS);
    let folder = directory.path().join("cache/abcdef0124");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("debuginfo"), bytes).unwrap();
    assert!(fetching.find(&another()).is_none());
    assert_eq!(server.asked(), 1);
}

#[test]
fn a_server_that_does_not_have_it_leaves_the_turn_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, build_id) = debug_file(directory.path());
    let empty = Server::start(Answer::Says("404 Not Found"));
    let full = Server::start(Answer::Sends(bytes));
    let fetching = client(&format!("{} {}/", empty.url, full.url), directory.path(), LIMITS);
    assert!(fetching.find(&build_id).is_some());
    assert_eq!((empty.asked(), full.asked(), fetching.fetched().errors.len()), (1, 1, 0));
}

#[test]
fn what_nobody_has_is_asked_for_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(Answer::Says("404 Not Found"));
    let fetching = client(&server.url, directory.path(), LIMITS);
    assert!(fetching.find(&another()).is_none() && fetching.find(&another()).is_none());
    assert_eq!((server.asked(), fetching.fetched().unknown), (1, 1));
}

#[test]
fn a_body_without_an_end_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(Answer::SendsForEver);
    let limits = FetchLimits { size: 100_000, ..LIMITS };
    let fetching = client(&server.url, directory.path(), limits);
    assert!(fetching.find(&another()).is_none());
    let Fetched { bytes, errors, .. } = fetching.fetched();
    assert_eq!(bytes, 100_001);
    assert!(errors[0].contains("more than 100000 bytes"), "{errors:?}");
    assert_eq!(fs::read_dir(directory.path().join("cache")).unwrap().count(), 0);
}

#[test]
fn a_server_that_stalls_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(Answer::Stalls);
    let limits = FetchLimits { time: Duration::from_millis(300), ..LIMITS };
    let fetching = client(&server.url, directory.path(), limits);
    assert!(fetching.find(&another()).is_none());
    assert!(fetching.fetched().errors[0].contains("timeout"), "{:?}", fetching.fetched());
}

#[test]
fn all_files_together_have_a_limit_too() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, build_id) = debug_file(directory.path());
    let server = Server::start(Answer::Sends(bytes.clone()));
    let limits = FetchLimits { size_in_all: bytes.len() as u64, ..LIMITS };
    let fetching = client(&server.url, directory.path(), limits);
    assert!(fetching.find(&build_id).is_some() && fetching.find(&another()).is_none());
    assert_eq!(server.asked(), 1);
}

#[test]
fn redirections_are_followed_a_few_times_and_to_no_other_protocol() {
    let directory = tempfile::tempdir().unwrap();
    let (bytes, build_id) = debug_file(directory.path());
    let full = Server::start(Answer::Sends(bytes));
    let to = |url: String| Server::start(Answer::RedirectsTo(url));
    let forwarding = to(format!("{}/elsewhere", full.url));
    for url in ["file:///etc/passwd".to_owned(), "/round/and/round".to_owned()] {
        let fetching = client(&to(url).url, directory.path(), LIMITS);
        assert!(fetching.find(&build_id).is_none());
        assert_eq!(fetching.fetched().errors.len(), 1);
    }
    assert!(client(&forwarding.url, directory.path(), LIMITS).find(&build_id).is_some());
    assert_eq!(*full.paths.lock().unwrap(), ["/elsewhere"]);
}

#[test]
fn servers_of_other_kinds_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let new = |urls: &str| Debuginfod::new(urls, directory.path().to_owned(), LIMITS);
    assert!(matches!(new(" "), Err(NoServers::Unset)));
    assert!(matches!(new("http://a ftp://b"), Err(NoServers::Scheme(url)) if url == "ftp://b"));
    assert!(new("https://debuginfod.example.com http://localhost:8002").is_ok());
}
