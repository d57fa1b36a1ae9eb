//! The sockets of a network namespace, by sock_diag(7).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP},
    inet,
    unix::{self, nlas::UnixDiagName},
};
use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};
use offwake_recording::{SocketEnd, SocketRole, units::Tgid};

use super::{across_namespaces::Addresses, net_namespaces};

/// Sockets that are kept of one protocol in one namespace.
const MAX_SOCKETS: usize = 1 << 20;
/// The kernel fills at most 32 KiB at a time (`netlink_dump()`), and tells when a message did not
/// fit.
const BUFFER: usize = 64 << 10;
/// The states of a socket: connected; its SYN not answered yet; its SYN-ACK not acknowledged yet; the
/// other end has nothing more to say; listening
/// ([`include/net/tcp_states.h`](https://github.com/torvalds/linux/blob/v6.12/include/net/tcp_states.h)).
const TCP_ESTABLISHED: u8 = 1;
const TCP_SYN_SENT: u8 = 2;
const TCP_SYN_RECV: u8 = 3;
const TCP_CLOSE_WAIT: u8 = 8;
const TCP_LISTEN: u8 = 10;

/// A protocol that sock_diag knows about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Protocol {
    Tcp,
    Udp,
    Unix,
}

impl Protocol {
    /// Finds a protocol by the kernel's name for it (`struct proto::name`); none for all others.
    pub(super) fn from_kernel(name: &str) -> Option<Self> {
        match name {
            "TCP" | "TCPv6" => Some(Self::Tcp),
            "UDP" | "UDPv6" => Some(Self::Udp),
            // `UNIX` up to Linux 5.14, with the type behind it since.
            _ if name == "UNIX" || name.starts_with("UNIX-") => Some(Self::Unix),
            _ => None,
        }
    }

    /// The kernel's module that answers queries about the protocol.
    pub(super) fn module(self) -> &'static str {
        match self {
            Self::Tcp => "tcp_diag",
            Self::Udp => "udp_diag",
            Self::Unix => "unix_diag",
        }
    }

    /// The counter of queries that failed.
    pub(super) fn failure_counter(self) -> &'static str {
        match self {
            Self::Tcp => "files_tcp_diag_failed",
            Self::Udp => "files_udp_diag_failed",
            Self::Unix => "files_unix_diag_failed",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Unix => "unix",
        }
    }
}

struct InetSocket {
    protocol: Protocol,
    /// As the kernel numbers it (`TCP_SYN_SENT`).
    state: u8,
    local: SocketAddr,
    remote: SocketAddr,
}

/// Where TCP sockets listen, and which of them.
#[derive(Default)]
struct ListeningAddresses {
    addresses: HashMap<SocketAddr, Match>,
    /// Ports that are listened on at every address of a family.
    ports_v4: HashMap<u16, Match>,
    ports_v6: HashMap<u16, Match>,
}

impl ListeningAddresses {
    fn add(&mut self, listener: &inet::InetResponse, local: SocketAddr) {
        let inode = u64::from(listener.header.inode);
        if !is_unspecified(local.ip()) {
            insert_match(&mut self.addresses, canonical(local), inode);
            return;
        }
        let v6_only =
            listener.nlas.iter().any(|nla| matches!(nla, inet::nlas::Nla::SkV6Only(true)));
        if local.is_ipv4() || !v6_only {
            insert_match(&mut self.ports_v4, local.port(), inode);
        }
        if local.is_ipv6() {
            insert_match(&mut self.ports_v6, local.port(), inode);
        }
    }

    fn contains(&self, address: SocketAddr) -> bool {
        self.get(address).is_some()
    }

    /// The socket that listens at an address.
    fn get(&self, address: SocketAddr) -> Option<Match> {
        let address = canonical(address);
        let ports = if address.is_ipv4() { &self.ports_v4 } else { &self.ports_v6 };
        self.addresses.get(&address).or_else(|| ports.get(&address.port())).copied()
    }
}

struct UnixSocket {
    name: String,
    peer: Option<u64>,
}

/// The socket that has an address: with more than one, nobody can say which it is.
#[derive(Clone, Copy)]
enum Match {
    One(u64),
    Several,
}

impl Match {
    fn only(self) -> Option<u64> {
        match self {
            Self::One(inode) => Some(inode),
            Self::Several => None,
        }
    }
}

fn insert_match<K: Eq + std::hash::Hash>(map: &mut HashMap<K, Match>, key: K, inode: u64) {
    map.entry(key).and_modify(|found| *found = Match::Several).or_insert(Match::One(inode));
}

/// The sockets of each protocol in a namespace. Each protocol has a kernel module of its own, which
/// may be missing while others are there.
pub(super) type SocketDumps = BTreeMap<Protocol, io::Result<Sockets>>;

/// The sockets of a protocol in a namespace.
#[derive(Default)]
pub(super) struct Sockets {
    inet: HashMap<u64, InetSocket>,
    connected: HashMap<(Protocol, SocketAddr, SocketAddr), Match>,
    /// Unconnected UDP sockets by the address they are bound to.
    bound: HashMap<SocketAddr, Match>,
    listening: ListeningAddresses,
    /// The TCP connections that are still to be accepted: the address of the end that nobody has yet,
    /// and that of the other.
    unaccepted: HashSet<(SocketAddr, SocketAddr)>,
    unix: HashMap<u64, UnixSocket>,
    /// The listening socket at which a Unix connection is still to be accepted, by the inode of the
    /// end that connected.
    unaccepted_unix: HashMap<u64, u64>,
    /// Whether there were more sockets than are kept.
    pub over_limit: bool,
}

impl Sockets {
    /// Queries every socket of these protocols in a namespace, which is reached through any of
    /// `processes`; none if it can't be.
    pub(super) fn dump(
        namespace: u64,
        processes: BTreeSet<Tgid>,
        protocols: BTreeSet<Protocol>,
    ) -> Option<SocketDumps> {
        net_namespaces::run_in(namespace, processes, move || Self::dump_here(protocols))
    }

    /// Queries the sockets of the namespace that this thread is in.
    pub(super) fn dump_here(protocols: BTreeSet<Protocol>) -> SocketDumps {
        Self::dump_with(protocols, Self::query)
    }

    /// Queries sockets with `query`, which sends one request and adds what it is answered.
    pub(super) fn dump_with(
        protocols: BTreeSet<Protocol>,
        query: impl Fn(&mut Self, Protocol, SockDiagMessage) -> io::Result<()>,
    ) -> SocketDumps {
        let dump = |protocol| {
            let mut sockets = Self::default();
            match protocol {
                Protocol::Unix => query(&mut sockets, protocol, unix_request())?,
                Protocol::Tcp | Protocol::Udp => {
                    query(&mut sockets, protocol, inet_request(protocol, AF_INET))?;
                    match query(&mut sockets, protocol, inet_request(protocol, AF_INET6)) {
                        // A kernel without IPv6 has no handler for it.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        result => result?,
                    }
                }
            }
            Ok(sockets)
        };
        protocols.into_iter().map(|protocol| (protocol, dump(protocol))).collect()
    }

    /// Sends a request and adds the sockets of its answer.
    pub(super) fn query(&mut self, protocol: Protocol, request: SockDiagMessage) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut message = NetlinkMessage::new(header, request.into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);

        // Each request has a socket of its own: an unfinished answer can't be taken for another's.
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        socket.send(&bytes, 0)?;
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            buffer.clear();
            socket.recv(&mut buffer, 0)?;
            let mut rest = buffer.as_slice();
            while !rest.is_empty() {
                let length = match NetlinkBuffer::new_checked(rest) {
                    Ok(packet) => packet.length() as usize,
                    Err(error) => return Err(io::Error::other(error.to_string())),
                };
                // A message that can't be read is one socket that is not found.
                if let Ok(message) = NetlinkMessage::<SockDiagMessage>::deserialize(rest) {
                    match message.payload {
                        // Where the protocol's own module is missing, that is said at the end.
                        NetlinkPayload::Done(done) if done.code < 0 => {
                            return Err(io::Error::from_raw_os_error(-done.code));
                        }
                        NetlinkPayload::Done(_) => return Ok(()),
                        NetlinkPayload::Error(error) => return Err(error.to_io()),
                        NetlinkPayload::InnerMessage(answer) => self.add(protocol, answer),
                        _ => {}
                    }
                }
                // Messages are aligned to 4 bytes.
                rest = rest.get(length.max(16).next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }

    fn add(&mut self, protocol: Protocol, answer: SockDiagMessage) {
        if self.inet.len() + self.unix.len() >= MAX_SOCKETS {
            self.over_limit = true;
            return;
        }
        match answer {
            SockDiagMessage::InetResponse(answer) => self.add_inet(protocol, &answer),
            SockDiagMessage::UnixResponse(answer) => self.add_unix(&answer),
            _ => {}
        }
    }

    fn add_inet(&mut self, protocol: Protocol, answer: &inet::InetResponse) {
        let inode = u64::from(answer.header.inode);
        let id = &answer.header.socket_id;
        let local = SocketAddr::new(id.source_address, id.source_port);
        let remote = SocketAddr::new(id.destination_address, id.destination_port);
        // No process holds this socket: it is still to be accepted, or lingers.
        if inode == 0 {
            // A connection stays in `TCP_SYN_RECV` while the queue of those to be accepted is full.
            let is_open =
                matches!(answer.header.state, TCP_ESTABLISHED | TCP_SYN_RECV | TCP_CLOSE_WAIT);
            let has_room = self.unaccepted.len() < MAX_SOCKETS;
            if protocol == Protocol::Tcp && is_open && !is_unset(remote) && has_room {
                self.unaccepted.insert((canonical(local), canonical(remote)));
            }
            return;
        }
        if protocol == Protocol::Tcp && answer.header.state == TCP_LISTEN {
            self.listening.add(answer, local);
        }
        let state = answer.header.state;
        self.inet.insert(inode, InetSocket { protocol, state, local, remote });
        let one = Match::One(inode);
        if !is_unset(remote) {
            let key = (protocol, canonical(local), canonical(remote));
            self.connected.entry(key).and_modify(|found| *found = Match::Several).or_insert(one);
        } else if protocol == Protocol::Udp && !is_unset(local) {
            let key = canonical(local);
            self.bound.entry(key).and_modify(|found| *found = Match::Several).or_insert(one);
        }
    }

    fn add_unix(&mut self, answer: &unix::UnixResponse) {
        let name = match answer.name() {
            Some(UnixDiagName::Pathname(path)) => path.to_string_lossy().into_owned(),
            Some(UnixDiagName::Abstract(name)) => format!("@{}", String::from_utf8_lossy(name)),
            None => String::new(),
        };
        // 0: the other end was not accepted yet.
        let peer = answer.peer().filter(|&peer| peer != 0).map(u64::from);
        let inode = u64::from(answer.header.inode);
        for nla in &answer.nlas {
            if let unix::nlas::Nla::PendingConnections(clients) = nla {
                let room = MAX_SOCKETS.saturating_sub(self.unaccepted_unix.len());
                let connected = clients.iter().filter(|&&client| client != 0).take(room);
                self.unaccepted_unix.extend(connected.map(|&client| (u64::from(client), inode)));
            }
        }
        self.unix.insert(inode, UnixSocket { name, peer });
    }

    /// A socket's end, and the inode number of the other end if that is on this machine. Of a
    /// connection that was not accepted yet, or whose SYN was not even answered, it is that of the
    /// socket which listens: whoever has that may accept it.
    pub(super) fn get(&self, protocol: Protocol, inode: u64) -> Option<(SocketEnd, Option<u64>)> {
        let (local, remote, role, peer) = if protocol == Protocol::Unix {
            let socket = self.unix.get(&inode)?;
            let inode = socket.peer.or_else(|| self.unaccepted_unix.get(&inode).copied());
            let peer = inode.and_then(|peer| self.unix.get(&peer));
            let remote = peer.map_or(String::new(), |peer| peer.name.clone());
            let role = role(!socket.name.is_empty(), !remote.is_empty());
            (socket.name.clone(), remote, role, inode)
        } else {
            let socket = self.inet.get(&inode).filter(|socket| socket.protocol == protocol)?;
            let peer = self.find_peer(socket);
            let role = self.tcp_role(socket, peer);
            (format_address(socket.local), format_address(socket.remote), role, peer)
        };
        let protocol = protocol.name().to_owned();
        Some((SocketEnd { protocol, local, remote, role, peers: Vec::new() }, peer))
    }

    /// The addresses of a TCP or UDP socket that is connected, and whose other end is not here; none
    /// of any other socket. What only listens where it is connected to may not be its other end:
    /// packets to this machine's own addresses are translated too.
    pub(super) fn lone_addresses(&self, protocol: Protocol, inode: u64) -> Option<Addresses> {
        let socket = self.inet.get(&inode).filter(|socket| socket.protocol == protocol)?;
        let (local, remote) = (canonical(socket.local), canonical(socket.remote));
        let is_here = self.connected.contains_key(&(protocol, remote, local))
            || protocol == Protocol::Tcp && self.unaccepted.contains(&(remote, local));
        let is_lone = !is_unset(socket.remote) && !is_here;
        is_lone.then_some(Addresses { protocol, local, remote })
    }

    /// The end of a connection that has these addresses, seen from here: its inode number, if a
    /// process has it.
    pub(super) fn find_end(&self, addresses: Addresses) -> Option<u64> {
        let Addresses { protocol, local, remote } = addresses;
        self.connected.get(&(protocol, local, remote))?.only()
    }

    /// The inode numbers of the TCP sockets that are connected, or are to be.
    pub(super) fn connected_tcp_inodes(&self) -> impl Iterator<Item = u64> + '_ {
        let is_open = |socket: &InetSocket| {
            socket.protocol == Protocol::Tcp
                && matches!(socket.state, TCP_ESTABLISHED | TCP_SYN_SENT | TCP_CLOSE_WAIT)
        };
        self.inet.iter().filter(move |(_, socket)| is_open(socket)).map(|(&inode, _)| inode)
    }

    /// The socket that serves whoever connects to an address: its inode number, if there is one
    /// alone. Of UDP, it is the one that is bound there.
    pub(super) fn find_listener(&self, protocol: Protocol, address: SocketAddr) -> Option<u64> {
        match protocol {
            Protocol::Tcp => self.listening.get(address)?.only(),
            Protocol::Udp => self.find_bound(address),
            Protocol::Unix => None,
        }
    }

    /// The only unconnected UDP socket that gets what is sent to an address.
    fn find_bound(&self, address: SocketAddr) -> Option<u64> {
        let any = [address.ip(), Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let mut found =
            any.iter().filter_map(|&ip| self.bound.get(&SocketAddr::new(ip, address.port())));
        match (found.next(), found.next()) {
            (Some(found), None) => found.only(),
            _ => None,
        }
    }

    fn tcp_role(&self, socket: &InetSocket, peer: Option<u64>) -> Option<SocketRole> {
        if socket.protocol != Protocol::Tcp {
            return None;
        }
        // What listens on another machine, or in another namespace, is not known here.
        let is_here = peer.is_some() || is_own(socket.remote, socket.local);
        let other = is_here && !is_unset(socket.remote) && self.listening.contains(socket.remote);
        role(self.listening.contains(socket.local), other)
    }

    fn find_peer(&self, socket: &InetSocket) -> Option<u64> {
        if is_unset(socket.remote) {
            return None;
        }
        let (local, remote) = (canonical(socket.local), canonical(socket.remote));
        match self.connected.get(&(socket.protocol, remote, local)) {
            Some(Match::One(inode)) => return Some(*inode),
            Some(Match::Several) => return None,
            None => {}
        }
        // While the queue of connections to be accepted is full, the kernel drops SYNs, and after a
        // while also forgets connections that their clients take for established.
        let has_no_other_end = matches!(socket.state, TCP_SYN_SENT | TCP_ESTABLISHED);
        let is_unanswered = has_no_other_end && is_own(remote, local);
        let is_unaccepted = is_unanswered || self.unaccepted.contains(&(remote, local));
        if socket.protocol == Protocol::Tcp && is_unaccepted {
            return self.listening.get(remote)?.only();
        }
        // A UDP server answers everybody from one unconnected socket. That it is on this machine is
        // certain for these addresses alone.
        if socket.protocol != Protocol::Udp || !is_own(remote, local) {
            return None;
        }
        self.find_bound(remote)
    }
}

fn inet_request(protocol: Protocol, family: u8) -> SockDiagMessage {
    let v6 = family == AF_INET6;
    SockDiagMessage::InetRequest(inet::InetRequest {
        family,
        protocol: if protocol == Protocol::Udp { IPPROTO_UDP } else { IPPROTO_TCP },
        extensions: inet::ExtensionFlags::empty(),
        states: inet::StateFlags::all(),
        socket_id: if v6 { inet::SocketId::new_v6() } else { inet::SocketId::new_v4() },
    })
}

fn unix_request() -> SockDiagMessage {
    SockDiagMessage::UnixRequest(unix::UnixRequest {
        // Datagram sockets are in TCP_CLOSE, which the crate has no name for.
        state_flags: unix::StateFlags::from_bits_retain(u32::MAX),
        inode: 0,
        show_flags: unix::ShowFlags::NAME | unix::ShowFlags::PEER | unix::ShowFlags::ICONS,
        cookie: [0xff; 8],
    })
}

/// One form for the addresses of both ends: an IPv6 socket may talk to an IPv4 one.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether an address is certainly one of this machine, the socket's own being `local`.
pub(super) fn is_own(address: SocketAddr, local: SocketAddr) -> bool {
    let (address, local) = (canonical(address).ip(), canonical(local).ip());
    address.is_loopback() || address == local
}

/// The role of a socket, by whether its own address and the other end's can be connected to. If
/// both can be, or neither, the role is not known.
fn role(own: bool, other: bool) -> Option<SocketRole> {
    match (own, other) {
        (true, false) => Some(SocketRole::Serving),
        (false, true) => Some(SocketRole::Asking),
        (true, true) | (false, false) => None,
    }
}

fn is_unset(address: SocketAddr) -> bool {
    address.port() == 0 && is_unspecified(address.ip())
}

fn is_unspecified(ip: IpAddr) -> bool {
    ip.to_canonical().is_unspecified()
}

fn format_address(address: SocketAddr) -> String {
    if is_unset(address) { String::new() } else { address.to_string() }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SOCKETS, Protocol, Sockets, UnixSocket, unix_request};

    #[test]
    fn sockets_beyond_their_number_are_left_out_and_that_is_known() {
        let mut sockets = Sockets::default();
        let insert = |sockets: &mut Sockets, inode: usize| {
            let socket = UnixSocket { name: String::new(), peer: None };
            sockets.unix.insert(inode as u64, socket);
        };
        (1..MAX_SOCKETS).for_each(|inode| insert(&mut sockets, inode));
        // It is no answer: nothing is added of it.
        sockets.add(Protocol::Unix, unix_request());
        assert!(!sockets.over_limit);
        insert(&mut sockets, MAX_SOCKETS);
        sockets.add(Protocol::Unix, unix_request());
        assert!(sockets.over_limit);
    }
}
