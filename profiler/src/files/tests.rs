use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream},
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use netlink_packet_sock_diag::{SockDiagMessage, constants::AF_INET, inet};
use offwake_recording::{
    FileId, FileKind, OpenFile, PeerProcess, SocketEnd, SocketRole,
    units::{Nanos, Tgid},
};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with},
};

use super::{
    Addresses, AwaitedHolders, Diagnostics, Files, LoneEnd, LookupState, MAX_FILES, MAX_WAITING,
    Protocol, QueuedSocket, Sockets, descriptor::identify, socket_holders::HolderScan,
};

fn own() -> Tgid {
    Tgid(std::process::id())
}

fn id(file: &impl AsFd) -> FileId {
    identify(file).unwrap()
}

fn number(file: &impl AsRawFd) -> u32 {
    u32::try_from(file.as_raw_fd()).unwrap()
}

fn own_name() -> String {
    fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned()
}

/// What is found out of one file of this process.
fn look_up<T: AsFd + AsRawFd>(file: &T) -> (Option<OpenFile>, Diagnostics) {
    let mut files = Files::new();
    files.observe(id(file), own(), number(file));
    let (found, diagnostics) = finish(files);
    (found.get(&id(file)).cloned(), diagnostics)
}

fn finish(files: Files) -> (BTreeMap<FileId, OpenFile>, Diagnostics) {
    let (new, diagnostics) = files.finish();
    (new.into_iter().collect(), diagnostics)
}

fn socket<T: AsFd + AsRawFd>(file: &T) -> SocketEnd {
    match look_up(file) {
        (Some(OpenFile::Socket(end)), _) => end,
        other => panic!("no socket: {other:?}"),
    }
}

/// Every child that another test of this process starts holds all our files between its fork and
/// its exec, truly: such holders go away.
fn assert_peers<T: AsFd + AsRawFd>(file: &T, expected: &[PeerProcess]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut peers = socket(file).peers;
        peers.sort_by_key(|peer| peer.tgid);
        if peers == expected || Instant::now() >= deadline {
            return assert_eq!(peers, expected);
        }
    }
}

/// A child that holds a socket as its standard input; killed and reaped when it is dropped.
struct Holder(Child);

impl Holder {
    fn start(end: impl Into<OwnedFd>) -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::from(end.into())).spawn().unwrap())
    }

    fn process(&self) -> PeerProcess {
        // Between fork and exec it has our name: spawn() returns after the exec.
        PeerProcess { tgid: Tgid(self.0.id()), comm: "sleep".to_owned() }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_protocol_whose_module_is_missing_takes_no_other_along() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (pair, _other) = UnixStream::pair().unwrap();
    let answers =
        Sockets::dump_with([Protocol::Tcp, Protocol::Unix].into(), |sockets, protocol, request| {
            match protocol {
                Protocol::Unix => Err(io::ErrorKind::NotFound.into()),
                Protocol::Tcp | Protocol::Udp => sockets.query(protocol, request),
            }
        });
    let queued = |file, protocol| QueuedSocket { file, tgid: own(), protocol };
    let mut files = Files::new();
    files.add_dumps(
        0,
        vec![queued(id(&client), Protocol::Tcp), queued(id(&pair), Protocol::Unix)],
        &answers,
    );
    let (found, diagnostics) = finish(files);
    let Some(OpenFile::Socket(end)) = found.get(&id(&client)) else { panic!("{found:?}") };
    assert_eq!(end.remote, listener.local_addr().unwrap().to_string());
    assert!(!found.contains_key(&id(&pair)));
    let expected = Diagnostics::from([("files_missed", 1), ("files_unix_diag_failed", 1)]);
    assert_eq!(diagnostics, expected);
}

/// The kernel says so where an answer ends, and not where it begins.
#[test]
fn an_answer_that_nobody_could_give_is_no_empty_one() {
    const NO_PROTOCOL: u8 = 253;
    let request = SockDiagMessage::InetRequest(inet::InetRequest {
        family: AF_INET,
        protocol: NO_PROTOCOL,
        extensions: inet::ExtensionFlags::empty(),
        states: inet::StateFlags::all(),
        socket_id: inet::SocketId::new_v4(),
    });
    let answer = Sockets::default().query(Protocol::Tcp, request);
    assert_eq!(answer.unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_socketpairs_peer_is_the_process_that_holds_it() {
    let (first, other) = UnixStream::pair().unwrap();
    let holder = Holder::start(other);
    let end = socket(&first);
    assert_eq!((end.protocol.as_str(), end.local.as_str(), end.remote.as_str()), ("unix", "", ""));
    assert_peers(&first, &[holder.process()]);
}

#[test]
fn a_peer_that_two_processes_hold_has_two_holders() {
    let (end, other) = UnixStream::pair().unwrap();
    let holder = Holder::start(other.try_clone().unwrap());
    let mut expected = [holder.process(), PeerProcess { tgid: own(), comm: own_name() }];
    expected.sort_by_key(|peer| peer.tgid);
    assert_peers(&end, &expected);
}

#[test]
fn unix_sockets_have_the_names_that_they_are_bound_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("listener");
    let listener = UnixListener::bind(&path).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    let name = path.to_str().unwrap();
    // Not accepted yet: whoever listens may do that.
    assert_eq!(socket(&client).remote, name);
    assert_peers(&client, &[PeerProcess { tgid: own(), comm: own_name() }]);
    let (server, _) = listener.accept().unwrap();
    let holder = Holder::start(server);
    let end = socket(&client);
    assert_eq!((end.local.as_str(), end.remote.as_str()), ("", name));
    assert_peers(&client, &[holder.process()]);
    let end = socket(&listener);
    assert_eq!((end.local.as_str(), end.remote.as_str()), (name, ""));
    assert_eq!(end.peers, []);
}

#[test]
fn abstract_names_and_datagrams_are_shown() {
    let name = format!("offwake-test-{}", own());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let server = UnixDatagram::bind_addr(&address).unwrap();
    let client = UnixDatagram::unbound().unwrap();
    client.connect_addr(&address).unwrap();
    let holder = Holder::start(server);
    let end = socket(&client);
    assert_eq!(end.remote, format!("@{name}"));
    assert_peers(&client, &[holder.process()]);
}

#[test]
fn loopback_tcp_leads_to_the_process_at_the_other_end() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap();
        let client = TcpStream::connect(port).unwrap();
        let (server, from) = listener.accept().unwrap();
        let holder = Holder::start(server);
        let end = socket(&client);
        assert_eq!(end.protocol, "tcp");
        assert_eq!((end.local, end.remote), (from.to_string(), port.to_string()));
        assert_peers(&client, &[holder.process()]);
        let end = socket(&listener);
        assert_eq!((end.local, end.remote.as_str()), (port.to_string(), ""));
        assert_eq!(end.peers, []);
    }
}

#[test]
fn a_connection_that_nobody_has_accepted_leads_to_the_process_that_listens() {
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let holder = Holder::start(listener);
        let end = socket(&client);
        assert_eq!((end.role, end.remote), (Some(SocketRole::Asking), format!("127.0.0.1:{port}")));
        assert_peers(&client, &[holder.process()]);
    }
}

#[test]
fn a_connection_that_finds_a_full_queue_leads_to_the_process_that_listens() {
    let listener = listen_with_room_for_one();
    let address = listener.local_addr().unwrap();
    let begin_to_connect = || {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let client = socket_with(family, kind, SocketFlags::NONBLOCK, None).unwrap();
        match connect(&client, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => client,
            Err(error) => panic!("cannot connect to {address}: {error}"),
        }
    };
    let clients: Vec<_> = (0..4).map(|_| begin_to_connect()).collect();
    let holder = Holder::start(listener);
    for client in &clients {
        assert_eq!(socket(client).role, Some(SocketRole::Asking));
        assert_peers(client, &[holder.process()]);
    }
}

/// Returns a socket that listens, and whose queue of connections to be accepted has room for one.
fn listen_with_room_for_one() -> TcpListener {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let listener = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&listener, 0).unwrap();
    listener.into()
}

#[test]
fn the_end_whose_address_is_listened_on_is_the_serving_one() {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let family = if address.starts_with("[::1]") { "::1" } else { "127.0.0.1" };
        let client = TcpStream::connect((family, port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(socket(&listener).role, Some(SocketRole::Serving), "{address}");
        assert_eq!(socket(&server).role, Some(SocketRole::Serving), "{address}");
        assert_eq!(socket(&client).role, Some(SocketRole::Asking), "{address}");
        // Nobody can tell any more which one it was that listened.
        let listening = id(&listener);
        drop(listener);
        wait_until_nobody_holds(listening);
        assert_eq!(socket(&server).role, None, "{address}");
        assert_eq!(socket(&client).role, None, "{address}");
    }
}

#[test]
fn the_end_that_has_a_name_is_the_serving_one() {
    let directory = tempfile::tempdir().unwrap();
    let [path, other] = ["server", "client"].map(|name| directory.path().join(name));
    let listener = UnixListener::bind(&path).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    let (server, _) = listener.accept().unwrap();
    assert_eq!(socket(&listener).role, Some(SocketRole::Serving));
    assert_eq!(socket(&server).role, Some(SocketRole::Serving));
    assert_eq!(socket(&client).role, Some(SocketRole::Asking));

    let (one, two) = UnixStream::pair().unwrap();
    assert_eq!((socket(&one).role, socket(&two).role), (None, None));
    // Both have one.
    let _server = UnixDatagram::bind(directory.path().join("datagrams")).unwrap();
    let client = UnixDatagram::bind(&other).unwrap();
    client.connect(directory.path().join("datagrams")).unwrap();
    assert_eq!(socket(&client).role, None);
}

#[test]
fn an_ipv6_server_and_an_ipv4_client_find_each_other() {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (server, _) = listener.accept().unwrap();
    let holder = Holder::start(server);
    assert_peers(&client, &[holder.process()]);
}

#[test]
fn udp_leads_to_the_one_socket_that_is_bound_there() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    let holder = Holder::start(server);
    let end = socket(&client);
    assert_eq!((end.protocol.as_str(), end.remote), ("udp", address.to_string()));
    assert_peers(&client, &[holder.process()]);
}

#[test]
fn udp_that_is_not_connected_has_no_peer() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let end = socket(&server);
    assert_eq!((end.local, end.remote.as_str()), (server.local_addr().unwrap().to_string(), ""));
    assert_eq!(end.peers, []);
}

#[test]
fn other_files_have_the_names_of_their_links() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    assert_eq!(look_up(file.as_file()).0, Some(OpenFile::Named(path)));
    let (reader, _writer) = std::io::pipe().unwrap();
    let name = format!("pipe:[{}]", id(&reader).inode);
    assert_eq!(look_up(&reader).0, Some(OpenFile::Named(name)));
    let null = fs::File::open("/dev/null").unwrap();
    assert_eq!(id(&null).kind, FileKind::Character);
    assert_eq!(look_up(&null).0, Some(OpenFile::Named("/dev/null".to_owned())));
}

#[test]
fn a_fifo_has_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let fifo = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let name = path.to_str().unwrap().to_owned();
    assert_eq!(look_up(&fifo).0, Some(OpenFile::Named(name)));
}

#[test]
fn anonymous_inodes_stay_without_a_name() {
    use std::os::fd::FromRawFd;
    // SAFETY: it takes no pointers.
    let number = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(number >= 0);
    // SAFETY: the descriptor is new, and nobody else's.
    let event = unsafe { OwnedFd::from_raw_fd(number) };
    assert_eq!(id(&event).kind, FileKind::Anonymous);
    assert_eq!(look_up(&event), (None, Diagnostics::new()));
}

#[test]
fn a_descriptor_that_stands_for_another_file_now_is_not_believed() {
    let (one, two) =
        (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let (socket, _other) = UnixStream::pair().unwrap();
    let mut files = Files::new();
    files.observe(id(one.as_file()), own(), number(two.as_file()));
    files.observe(id(&socket), own(), number(two.as_file()));
    assert_eq!(files.missed(), 2);
    // It is found all the same when another wait shows where it is.
    files.observe(id(one.as_file()), own(), number(one.as_file()));
    assert_eq!(files.missed(), 1);
    let (found, diagnostics) = files.finish();
    let name = OpenFile::Named(one.path().to_str().unwrap().to_owned());
    assert_eq!(found, [(id(one.as_file()), name)]);
    assert_eq!(diagnostics.get("files_missed"), Some(&1));
}

/// A child that another test is starting may have it until its exec.
fn wait_until_nobody_holds(file: FileId) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let mut scan = HolderScan::new([file.inode].into());
        assert!(scan.run_for(Duration::from_secs(30)) && Instant::now() < deadline);
        if scan.holders(file.inode).is_empty() {
            return;
        }
    }
}

#[test]
fn a_socket_that_is_closed_before_it_is_asked_about_is_counted() {
    let (socket, other) = UnixStream::pair().unwrap();
    let file = id(&socket);
    let mut files = Files::new();
    files.observe(file, own(), number(&socket));
    drop((socket, other));
    wait_until_nobody_holds(file);
    let (found, diagnostics) = files.finish();
    assert_eq!(found, []);
    assert_eq!(diagnostics.get("files_missed"), Some(&1));
}

/// Connects to a server, has `look` look at the connection, and gives up on it.
fn connect_for_a_while(server: &TcpListener, look: impl FnOnce()) -> (FileId, u32) {
    let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let (file, descriptor) = (id(&client), number(&client));
    look();
    drop(client);
    wait_until_nobody_holds(file);
    (file, descriptor)
}

#[test]
fn who_closes_a_connection_after_a_long_wait_has_the_next_ones_looked_at_meanwhile() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut files = Files::new();
    let (first, descriptor) = connect_for_a_while(&server, || {});
    files.observe_wait(first, own(), descriptor, Nanos(1_000_000_000));
    let (second, descriptor) =
        connect_for_a_while(&server, || poll_until(&mut files, |files| files.brief.has_seen()));
    files.observe_wait(second, own(), descriptor, Nanos(1_000_000_000));
    let (found, _) = finish(files);
    assert!(!found.contains_key(&first));
    let Some(OpenFile::Socket(end)) = found.get(&second) else { panic!("{found:?}") };
    assert_eq!(end.remote, server.local_addr().unwrap().to_string());
    assert_eq!(end.role, Some(SocketRole::Asking));
    assert_eq!(end.peers.iter().map(|peer| peer.tgid).collect::<Vec<_>>(), [own()]);
}

#[test]
fn who_closes_connections_soon_has_none_looked_at() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut files = Files::new();
    let (first, descriptor) = connect_for_a_while(&server, || {});
    files.observe_wait(first, own(), descriptor, Nanos(1_000_000));
    let look = || (0..3).for_each(|_| files.poll());
    connect_for_a_while(&server, look);
    assert!(!files.brief.has_seen());
}

fn poll_until(files: &mut Files, is_so: impl Fn(&Files) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so(files) {
        assert!(Instant::now() < deadline, "still not looked up");
        files.poll();
    }
}

fn is_idle(files: &Files) -> bool {
    files.queued.is_empty() && files.awaited.is_empty() && files.scan.is_none()
}

#[test]
fn polling_finds_what_finishing_would() {
    let (end, other) = UnixStream::pair().unwrap();
    let holder = Holder::start(other);
    let mut files = Files::new();
    files.observe(id(&end), own(), number(&end));
    poll_until(&mut files, is_idle);
    // What is gone after that has been seen.
    let process = holder.process();
    drop(holder);
    let (found, _) = finish(files);
    match found.get(&id(&end)) {
        Some(OpenFile::Socket(end)) => assert!(end.peers.contains(&process), "{end:?}"),
        other => panic!("no socket: {other:?}"),
    }
}

#[test]
fn a_file_is_handed_out_once_and_again_when_more_is_known_of_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (end, other) = UnixStream::pair().unwrap();
    let holder = Holder::start(other);
    let mut files = Files::new();
    files.observe(id(file.as_file()), own(), number(file.as_file()));
    files.observe(id(&end), own(), number(&end));
    let name = OpenFile::Named(file.path().to_str().unwrap().to_owned());
    // The socket has no addresses yet.
    assert_eq!(files.take_new(), [(id(file.as_file()), name)]);
    assert_eq!(files.take_new(), []);

    // Only the search for the holders is left to do.
    files.next_scan = Instant::now() + Duration::from_secs(1000);
    poll_until(&mut files, |files| files.queued.is_empty());
    match &files.take_new()[..] {
        [(file, OpenFile::Socket(found))] => {
            assert_eq!((*file, found.protocol.as_str()), (id(&end), "unix"));
            assert_eq!(found.peers, []);
        }
        other => panic!("{other:?}"),
    }
    files.next_scan = Instant::now();
    poll_until(&mut files, is_idle);
    match &files.take_new()[..] {
        [(file, OpenFile::Socket(found))] => {
            assert_eq!((*file, found.protocol.as_str()), (id(&end), "unix"));
            assert!(found.peers.contains(&holder.process()), "{found:?}");
        }
        other => panic!("{other:?}"),
    }

    // They stay known, without what they are.
    files.observe(id(file.as_file()), own(), number(file.as_file()));
    files.observe(id(&end), own(), number(&end));
    assert!(is_idle(&files));
    assert_eq!(files.finish(), (Vec::new(), Diagnostics::new()));
}

#[test]
fn a_socket_whose_peer_nobody_holds_any_more_is_handed_out_once() {
    let (end, other) = UnixStream::pair().unwrap();
    let peer = id(&other);
    let holder = Holder::start(other);
    let mut files = Files::new();
    files.observe(id(&end), own(), number(&end));
    files.next_scan = Instant::now() + Duration::from_secs(1000);
    poll_until(&mut files, |files| files.queued.is_empty());
    assert_eq!((files.take_new().len(), files.awaited.len()), (1, 1));
    drop(holder);
    wait_until_nobody_holds(peer);
    assert_eq!(files.finish(), (Vec::new(), Diagnostics::new()));
}

/// Enters a network namespace of its own, connects to itself over its loopback, prints the number
/// of the client's descriptor, and waits for its input to close.
const ISOLATED: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
int main(void) {
    if (unshare(CLONE_NEWNET)) return 1;
    struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (ioctl(listener, SIOCSIFFLAGS, &request)) return 2;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(4242) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1)) return 3;
    if (connect(client, (void *)&address, sizeof address)) return 4;
    if (accept(listener, 0, 0) < 0) return 5;
    printf("%d\n", client); fflush(stdout);
    while (getchar() != EOF) {}
}
"#;

#[test]
fn sockets_of_another_network_namespace_are_found() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN, only root can make a network namespace: sockets_of_another_…");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("i.c"), directory.path().join("isolated"));
    fs::write(&source, ISOLATED).unwrap();
    assert!(Command::new("cc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    let child =
        Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut holder = Holder(child);
    let mut line = String::new();
    BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let descriptor: u32 = line.trim().parse().unwrap();
    let tgid = Tgid(holder.0.id());
    let link = format!("/proc/{tgid}/fd/{descriptor}");
    let flags = rustix::fs::OFlags::PATH;
    let file = id(&rustix::fs::open(link, flags, rustix::fs::Mode::empty()).unwrap());

    let before = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let mut files = Files::new();
    files.observe(file, tgid, descriptor);
    let (found, diagnostics) = finish(files);
    match found.get(&file) {
        Some(OpenFile::Socket(end)) => {
            assert_eq!(end.remote, "127.0.0.1:4242");
            assert_eq!(end.peers, [PeerProcess { tgid, comm: "isolated".to_owned() }]);
        }
        other => panic!("no socket: {other:?} {diagnostics:?}"),
    }
    assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
}

#[test]
fn this_process_holds_both_ends() {
    let (end, _other) = UnixStream::pair().unwrap();
    assert_peers(&end, &[PeerProcess { tgid: own(), comm: own_name() }]);
}

#[test]
fn files_beyond_their_number_are_counted() {
    let mut files = Files::new();
    let wanted = |inode| FileId { inode, ..id(&fs::File::open("/proc/self/exe").unwrap()) };
    let one = wanted(0);
    for inode in 0..u64::try_from(MAX_FILES).unwrap() {
        // What still has to be asked for is not forgotten.
        files.states.insert(FileId { inode, ..one }, LookupState::Queued);
    }
    files.observe(FileId { inode: u64::MAX, ..one }, own(), 0);
    assert_eq!(files.states.len(), MAX_FILES);
    assert_eq!(files.diagnostics.get("files_over_limit"), Some(&1));
    // What is done makes room.
    files.states.insert(one, LookupState::Missed(3));
    files.observe(FileId { inode: u64::MAX, ..one }, own(), 0);
    assert_eq!(files.diagnostics.get("files_over_limit"), Some(&1));
}

/// A search through all descriptors may take minutes, in which thousands of connections a second are made.
#[test]
fn sockets_that_wait_for_a_search_are_bounded_and_counted() {
    let mut files = Files::new();
    let (local, remote) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:9".parse().unwrap());
    let addresses = Addresses { protocol: Protocol::Tcp, local, remote };
    let end = SocketEnd {
        protocol: "tcp".to_owned(),
        local: String::new(),
        remote: String::new(),
        role: None,
        peers: Vec::new(),
    };
    for inode in 0..u64::try_from(MAX_WAITING).unwrap() + 2 {
        let file = FileId { device: 9, inode, kind: FileKind::Socket };
        let end = end.clone();
        files.await_holders(AwaitedHolders { file, end: end.clone(), candidates: vec![inode] });
        let lone = LoneEnd { file, namespace: 1, process: own(), end, listener: None };
        files.add_unpaired(addresses, lone);
    }
    assert_eq!((files.awaited.len(), files.unpaired.len()), (MAX_WAITING, MAX_WAITING));
    assert_eq!(files.diagnostics.get("files_over_limit"), Some(&4));
}
