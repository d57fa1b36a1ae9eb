//! Searches other network namespaces for the other ends of connections that no thread there was seen
//! to wait on. A server that is at work has no such wait.
//!
//! ```text
//! client's end    172.18.0.2:40000 → 10.96.0.1:80
//!   conntrack     leads to 172.18.0.3:8000 ← 172.18.0.2:40000      where any namespace translates it
//!   owner         the namespace that has 172.18.0.3
//!   its sockets   the one with these addresses, or the one that listens there
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use offwake_recording::{SocketEnd, SocketRole, units::Tgid};

use super::{
    AwaitedHolders, Files,
    across_namespaces::{Addresses, LoneEnd},
    conntrack::{self, Tracked},
    net_namespaces,
    sockets::{Sockets, is_own},
};

/// How often the addresses of one connection are translated at most: in the client's namespace, in the
/// host's, in the server's.
const MAX_TRANSLATIONS: usize = 3;
/// Exists in every namespace once the kernel has loaded its connection tracking.
const CONNTRACK: &str = "/proc/sys/net/netfilter/nf_conntrack_count";

/// Where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// To the address that it was connected to.
    Direct,
    /// To another one: these are the other end's addresses, as seen from there, and the namespace that
    /// translates them.
    Translated(Addresses, u64),
    /// Connection tracking could not be asked, or says different things in different namespaces.
    Unclear,
}

/// One address that is searched for in a namespace.
struct Search {
    /// Which of the ends it is for.
    end: usize,
    other: Addresses,
    /// Whether who listens there stands in for a socket that is closed.
    may_stand_in: bool,
}

/// What was found for an end.
#[derive(Default)]
struct Found {
    ends: BTreeSet<u64>,
    listeners: BTreeSet<u64>,
    is_listened: bool,
}

impl Files {
    /// Searches the namespaces with the addresses of the other ends, in so many of them.
    pub(super) fn search_other_namespaces(&mut self, namespaces: usize) {
        if self.unpaired.is_empty() {
            return;
        }
        let unpaired = std::mem::take(&mut self.unpaired);
        let away = unpaired.iter().filter(|(ends, _)| !is_own(ends.remote, ends.local));
        self.address_owners.refresh_for(away.map(|(ends, _)| ends.remote.ip()));
        let destinations = self.find_destinations(&unpaired);
        let translated = destinations.iter().filter_map(|destination| match destination {
            Destination::Translated(other, _) => Some(other.local.ip()),
            Destination::Direct | Destination::Unclear => None,
        });
        self.address_owners.refresh_for(translated.filter(|ip| !ip.is_loopback()));

        let mut by_namespace = BTreeMap::<u64, (Tgid, Vec<Search>)>::new();
        let mut searched = Vec::new();
        for ((addresses, lone), destination) in unpaired.into_iter().zip(destinations) {
            let searches = self.plan(searched.len(), addresses, &lone, destination);
            let new: BTreeSet<_> = (searches.iter().map(|&(namespace, ..)| namespace))
                .filter(|namespace| !by_namespace.contains_key(namespace))
                .collect();
            if !by_namespace.is_empty() && by_namespace.len() + new.len() > namespaces {
                self.add_unpaired(addresses, lone);
                continue;
            }
            for (namespace, tgid, search) in searches {
                by_namespace.entry(namespace).or_insert((tgid, Vec::new())).1.push(search);
            }
            let is_direct = destination == Destination::Direct;
            searched.push((lone, is_direct, Found::default()));
        }
        for (namespace, (tgid, searches)) in by_namespace {
            self.search_namespace(namespace, tgid, &searches, &mut searched);
        }
        for (lone, is_direct, found) in searched {
            if let Some(socket) = choose(lone, is_direct, &found) {
                self.await_holders(socket);
            }
        }
    }

    /// Returns where to search for the other end of a connection, and for what.
    fn plan(
        &self,
        end: usize,
        addresses: Addresses,
        lone: &LoneEnd,
        destination: Destination,
    ) -> Vec<(u64, Tgid, Search)> {
        let mut searches = Vec::new();
        if !is_own(addresses.remote, addresses.local) {
            let other = addresses.reversed();
            let owners = self.address_owners.namespaces_with(other.local.ip());
            let owners: Vec<_> = owners.filter(|&(owner, _)| owner != lone.namespace).collect();
            let may_stand_in = destination == Destination::Direct && owners.len() == 1;
            let search = |(owner, tgid)| (owner, tgid, Search { end, other, may_stand_in });
            searches.extend(owners.into_iter().map(search));
        }
        if let Destination::Translated(other, translator) = destination {
            let ip = other.local.ip();
            // A loopback address is that of the namespace which led the connection there.
            let owners: Vec<_> = if ip.is_loopback() {
                let process = self.process_in(translator, lone);
                process.map(|process| (translator, process)).into_iter().collect()
            } else {
                self.address_owners.namespaces_with(ip).collect()
            };
            let may_stand_in = owners.len() == 1;
            let search = |(owner, tgid)| (owner, tgid, Search { end, other, may_stand_in });
            searches.extend(owners.into_iter().map(search));
        }
        searches
    }

    fn search_namespace(
        &mut self,
        namespace: u64,
        tgid: Tgid,
        searches: &[Search],
        searched: &mut [(LoneEnd, bool, Found)],
    ) {
        let protocols = searches.iter().map(|search| search.other.protocol).collect();
        let Some(dumps) = Sockets::dump(namespace, [tgid].into(), protocols) else {
            self.address_owners.forget(namespace);
            return;
        };
        for &Search { end, other, may_stand_in } in searches {
            let dump = dumps.get(&other.protocol).and_then(|dump| dump.as_ref().ok());
            let (Some(sockets), Some((lone, _, found))) = (dump, searched.get_mut(end)) else {
                continue;
            };
            let is_other = |inode: &u64| *inode != lone.file.inode;
            let peer = sockets.find_end(other).filter(is_other);
            let listener = sockets.find_listener(other.protocol, other.local).filter(is_other);
            found.is_listened |= listener.is_some() && (may_stand_in || peer.is_some());
            found.ends.extend(peer);
            found.listeners.extend(listener.filter(|_| may_stand_in));
        }
    }

    /// Finds out where connections lead, by the connection tracking of every namespace that may
    /// translate their addresses.
    fn find_destinations(&self, unpaired: &[(Addresses, LoneEnd)]) -> Vec<Destination> {
        let mut destinations = vec![Destination::Direct; unpaired.len()];
        if !Path::new(CONNTRACK).exists() {
            return destinations;
        }
        // The ends that may be translated once more, as their packets look by then.
        let mut left: Vec<_> =
            unpaired.iter().enumerate().map(|(end, (addresses, _))| (end, *addresses)).collect();
        for _ in 0..MAX_TRANSLATIONS {
            let answers = self.ask_conntrack(unpaired, &left);
            left = left
                .into_iter()
                .zip(answers)
                .filter_map(|((end, packets), answers)| {
                    let answers = answers.into_iter();
                    let translations: Vec<_> = answers
                        .filter(|&(_, tracked)| {
                            tracked != Tracked::No
                                && tracked != Tracked::OtherEnd(packets.reversed())
                        })
                        .collect();
                    let &(namespace, first) = translations.first()?;
                    let Tracked::OtherEnd(other) = first else {
                        // Loopback addresses are hardly ever translated; name servers listen there.
                        if !packets.remote.ip().is_loopback() {
                            destinations[end] = Destination::Unclear;
                        }
                        return None;
                    };
                    if translations.iter().any(|&(_, tracked)| tracked != first) {
                        destinations[end] = Destination::Unclear;
                        return None;
                    }
                    destinations[end] = Destination::Translated(other, namespace);
                    Some((end, other.reversed()))
                })
                .collect();
        }
        destinations
    }

    /// Asks about each of these connections: in its own namespace, and, if it leaves that, in all that
    /// track connections.
    fn ask_conntrack(
        &self,
        unpaired: &[(Addresses, LoneEnd)],
        connections: &[(usize, Addresses)],
    ) -> Vec<Vec<(u64, Tracked)>> {
        let mut by_namespace = BTreeMap::<u64, (BTreeSet<Tgid>, Vec<usize>)>::new();
        for (turn, &(end, packets)) in connections.iter().enumerate() {
            let lone = &unpaired[end].1;
            let own = (lone.namespace, lone.process);
            let others =
                self.address_owners.tracking().filter(|_| !is_own(packets.remote, packets.local));
            for (namespace, process) in others.chain([own]) {
                let (processes, turns) = by_namespace.entry(namespace).or_default();
                processes.insert(process);
                if turns.last() != Some(&turn) {
                    turns.push(turn);
                }
            }
        }
        let mut answers = vec![Vec::new(); connections.len()];
        for (namespace, (processes, turns)) in by_namespace {
            let asked: Vec<_> = turns.iter().map(|&turn| connections[turn].1).collect();
            let query = move || conntrack::find_other_ends(&asked);
            let tracked = net_namespaces::run_with_conntrack_in(namespace, processes, query);
            let tracked = tracked.unwrap_or_else(|| vec![Tracked::Unknown; turns.len()]);
            for (turn, tracked) in turns.into_iter().zip(tracked) {
                answers[turn].push((namespace, tracked));
            }
        }
        answers
    }

    /// Returns a process in the namespace that translates a connection.
    fn process_in(&self, namespace: u64, lone: &LoneEnd) -> Option<Tgid> {
        if namespace == lone.namespace {
            return Some(lone.process);
        }
        let mut tracking = self.address_owners.tracking();
        tracking.find(|&(number, _)| number == namespace).map(|(_, process)| process)
    }
}

/// Chooses the other end among what was found. Several of them are none: namespaces that do not see
/// each other may use the same addresses.
fn choose(lone: LoneEnd, is_direct: bool, found: &Found) -> Option<AwaitedHolders> {
    if found.ends.len() > 1 || found.listeners.len() > 1 {
        return None;
    }
    let in_own_namespace = lone.listener.filter(|_| is_direct && found.ends.is_empty());
    let found_inodes = found.ends.iter().chain(&found.listeners).copied();
    let candidates: Vec<_> = in_own_namespace.into_iter().chain(found_inodes).collect();
    let role = lone.end.role.or(found.is_listened.then_some(SocketRole::Asking));
    (!candidates.is_empty()).then_some(AwaitedHolders {
        file: lone.file,
        end: SocketEnd { role, ..lone.end },
        candidates,
    })
}

#[cfg(test)]
mod tests {
    use offwake_recording::{FileId, FileKind, SocketEnd, SocketRole, units::Tgid};

    use super::{Found, LoneEnd, choose};

    /// The other ends that are believed, and the role that follows, of an end in whose own namespace
    /// the socket 9 listens where it connected to.
    fn chosen(
        is_direct: bool,
        ends: &[u64],
        listeners: &[u64],
    ) -> Option<(Vec<u64>, Option<SocketRole>)> {
        let file = FileId { device: 9, inode: 1, kind: FileKind::Socket };
        let (local, remote, peers) = (String::new(), String::new(), Vec::new());
        let end = SocketEnd { protocol: "tcp".to_owned(), local, remote, role: None, peers };
        let lone = LoneEnd { file, namespace: 100, process: Tgid(1), end, listener: Some(9) };
        let found = Found {
            ends: ends.iter().copied().collect(),
            listeners: listeners.iter().copied().collect(),
            is_listened: !listeners.is_empty(),
        };
        choose(lone, is_direct, &found).map(|chosen| (chosen.candidates, chosen.end.role))
    }

    #[test]
    fn one_other_end_is_believed_and_several_are_not() {
        assert_eq!(chosen(true, &[], &[]), Some((vec![9], None)));
        assert_eq!(chosen(false, &[5], &[6]), Some((vec![5, 6], Some(SocketRole::Asking))));
        assert_eq!(chosen(false, &[5, 7], &[6]), None);
        assert_eq!(chosen(false, &[], &[6, 8]), None);
    }

    #[test]
    fn who_listens_where_addresses_are_translated_is_not_the_other_end() {
        assert_eq!(chosen(false, &[], &[]), None);
        assert_eq!(chosen(false, &[], &[6]), Some((vec![6], Some(SocketRole::Asking))));
    }
}
