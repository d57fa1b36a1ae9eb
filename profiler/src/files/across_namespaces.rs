//! Pairs the ends of connections between network namespaces of this machine: containers over a
//! bridge, pods.
//!
//! sock_diag tells of one namespace at a time. Both ends of a connection that threads wait on are
//! looked up, each in its own namespace, and here they meet:
//!
//! ```text
//! namespace 1   10.1.0.2:40000 → 10.1.0.3:80   --+
//!                                                +--> one connection
//! namespace 2   10.1.0.3:80 → 10.1.0.2:40000   --+
//! ```
//!
//! Ends whose addresses are translated on the way (NAT) match nobody's here:
//! [`super::other_namespaces`] finds those.

use std::{collections::HashMap, net::SocketAddr};

use offwake_recording::{FileId, SocketEnd, SocketRole, units::Tgid};

use super::sockets::Protocol;

/// The most ends that are kept until the other one comes.
const MAX_ENDS: usize = 65_536;

/// The two addresses of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Addresses {
    pub(super) protocol: Protocol,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

impl Addresses {
    /// The same connection, seen from its other end.
    pub(super) fn reversed(self) -> Self {
        Self { protocol: self.protocol, local: self.remote, remote: self.local }
    }
}

/// A TCP or UDP socket whose other end was not found in its own namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoneEnd {
    pub(super) file: FileId,
    /// The inode number of the socket's network namespace.
    pub(super) namespace: u64,
    /// A process of that namespace.
    pub(super) process: Tgid,
    pub(super) end: SocketEnd,
    /// The socket of its own namespace that waits for it, unless its addresses are translated: the one
    /// that listens where it connected to.
    pub(super) listener: Option<u64>,
}

/// The ends with the same addresses.
enum Ends {
    One(LoneEnd),
    /// Namespaces that don't see each other may use the same addresses: nobody can say which one it
    /// is.
    Several,
}

/// The ends whose other ends were not found yet.
#[derive(Default)]
pub(super) struct LoneEnds {
    ends: HashMap<Addresses, Ends>,
    /// Those that found no room. None makes room for another one: an end that was forgotten could have
    /// been that of [several](Ends::Several), and the one that is left would be believed.
    left_out: u64,
}

impl LoneEnds {
    /// Counts the ends that could not be kept until their other ends come.
    pub(super) fn count_left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds an end. Returns both ends of the connection if the other one is known, with what each
    /// tells of the other's role.
    pub(super) fn pair(&mut self, addresses: Addresses, one: LoneEnd) -> Option<[LoneEnd; 2]> {
        let of_other = addresses.reversed();
        let other = match self.ends.get(&of_other) {
            Some(Ends::One(other)) if other.namespace != one.namespace => Some(other.clone()),
            _ => None,
        };
        if self.ends.len() < MAX_ENDS || self.ends.contains_key(&addresses) {
            (self.ends.entry(addresses))
                .and_modify(|known| {
                    if !matches!(known, Ends::One(known) if known.namespace == one.namespace) {
                        *known = Ends::Several;
                    }
                })
                .or_insert_with(|| Ends::One(one.clone()));
        } else {
            self.left_out += 1;
        }
        if matches!(self.ends.get(&addresses), Some(Ends::Several)) {
            return None;
        }
        let other = other?;
        let (role, others_role) = (one.end.role, other.end.role);
        let with_role = |lone: LoneEnd, of_other: Option<SocketRole>| LoneEnd {
            end: SocketEnd { role: lone.end.role.or(of_other.map(opposite)), ..lone.end },
            ..lone
        };
        Some([with_role(one, others_role), with_role(other, role)])
    }
}

fn opposite(role: SocketRole) -> SocketRole {
    match role {
        SocketRole::Serving => SocketRole::Asking,
        SocketRole::Asking => SocketRole::Serving,
    }
}

#[cfg(test)]
mod tests {
    use offwake_recording::{FileId, FileKind, SocketEnd, SocketRole, units::Tgid};

    use super::{Addresses, LoneEnd, LoneEnds, MAX_ENDS, Protocol};

    fn end(inode: u64, namespace: u64, role: Option<SocketRole>) -> LoneEnd {
        let file = FileId { device: 9, inode, kind: FileKind::Socket };
        let (local, remote, peers) = (String::new(), String::new(), Vec::new());
        let end = SocketEnd { protocol: "tcp".to_owned(), local, remote, role, peers };
        LoneEnd { file, namespace, process: Tgid(1), end, listener: None }
    }

    fn addresses(local: &str, remote: &str) -> Addresses {
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        Addresses { protocol: Protocol::Tcp, local, remote }
    }

    const CLIENT: &str = "10.1.0.2:40000";
    const SERVER: &str = "10.1.0.3:80";

    #[test]
    fn the_ends_of_a_connection_find_each_other_and_learn_their_roles() {
        let mut ends = LoneEnds::default();
        assert_eq!(ends.pair(addresses(CLIENT, SERVER), end(1, 100, None)), None);
        let server = end(2, 200, Some(SocketRole::Serving));
        let [one, other] = ends.pair(addresses(SERVER, CLIENT), server).expect("a pair");
        assert_eq!((one.file.inode, one.end.role), (2, Some(SocketRole::Serving)));
        assert_eq!((other.file.inode, other.end.role), (1, Some(SocketRole::Asking)));
    }

    #[test]
    fn addresses_that_several_namespaces_use_pair_nobody() {
        let mut ends = LoneEnds::default();
        assert_eq!(ends.pair(addresses(CLIENT, SERVER), end(1, 100, None)), None);
        assert_eq!(ends.pair(addresses(CLIENT, SERVER), end(3, 300, None)), None);
        assert_eq!(ends.pair(addresses(SERVER, CLIENT), end(2, 200, None)), None);
        // Nor does one socket pair with another of its own namespace: those are found there.
        let mut ends = LoneEnds::default();
        assert_eq!(ends.pair(addresses(CLIENT, SERVER), end(1, 100, None)), None);
        assert_eq!(ends.pair(addresses(SERVER, CLIENT), end(2, 100, None)), None);
    }

    #[test]
    fn a_pair_of_addresses_that_is_used_again_pairs_again() {
        let mut ends = LoneEnds::default();
        assert_eq!(ends.pair(addresses(CLIENT, SERVER), end(1, 100, None)), None);
        assert!(ends.pair(addresses(SERVER, CLIENT), end(2, 200, None)).is_some());
        let [_, other] = ends.pair(addresses(CLIENT, SERVER), end(3, 100, None)).expect("a pair");
        assert_eq!(other.file.inode, 2);
    }

    /// None makes room for another one: of two with the same addresses, the one that is left would be believed.
    #[test]
    fn ends_beyond_their_number_are_left_out_and_counted() {
        let mut ends = LoneEnds::default();
        let address = |number: usize| {
            let (third, fourth) = (number / 250, number % 250);
            addresses(&format!("10.{}.{}.{fourth}:80", third / 250, third % 250), "10.9.9.9:9")
        };
        for number in 0..MAX_ENDS + 3 {
            assert_eq!(ends.pair(address(number), end(1, 100, None)), None);
        }
        assert_eq!((ends.ends.len(), ends.count_left_out()), (MAX_ENDS, 3));
        // Those that are there find their other ends.
        assert!(ends.pair(address(0).reversed(), end(2, 200, None)).is_some());
        assert!(ends.pair(address(MAX_ENDS).reversed(), end(2, 200, None)).is_none());
    }
}
