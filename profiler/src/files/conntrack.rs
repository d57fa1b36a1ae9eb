//! Finds out where a connection leads whose addresses are translated on the way (NAT): a published
//! port, a service's address, a proxy beside the program.
//!
//! The kernel's connection tracking has both directions of each connection:
//!
//! ```text
//! client's end      172.18.0.2:40000 → 10.96.0.1:80       original direction
//! server's end      172.18.0.3:8000 → 172.18.0.2:40000    reply direction
//! ```
//!
//! It is asked for one connection at a time (`IPCTNL_MSG_CT_GET`,
//! [`nf_conntrack_netlink.c`](https://github.com/torvalds/linux/blob/v6.12/net/netfilter/nf_conntrack_netlink.c)):
//! its table can have a quarter of a million.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use netlink_sys::{Socket, protocols::NETLINK_NETFILTER};

use super::{across_namespaces::Addresses, sockets::Protocol};

/// `NFNL_SUBSYS_CTNETLINK << 8`, and the messages of it.
const CTNETLINK: u16 = 1 << 8;
const CT_NEW: u16 = CTNETLINK;
const CT_GET: u16 = CTNETLINK | 1;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLA_F_NESTED: u16 = 1 << 15;
/// The attribute's type without its flags.
const NLA_TYPE_MASK: u16 = 0x3fff;

const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;

const HEADER: usize = 16;
/// `struct nfgenmsg`.
const FAMILY_HEADER: usize = 4;
/// An answer has two tuples of 100 bytes or so, and a few counters.
const BUFFER: usize = 8 << 10;

/// What connection tracking has on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracked {
    /// Nothing: packets that a namespace does not track are not translated there.
    No,
    /// Its other end has these addresses, as seen from there.
    OtherEnd(Addresses),
    /// It could not be asked.
    Unknown,
}

/// Whether the namespace that this thread is in tracks any connection. This loads no module: there
/// is no such file where the kernel has no connection tracking, or has not loaded it.
pub(super) fn is_tracking() -> bool {
    let count = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    count.is_ok_and(|count| count.trim() != "0")
}

/// Asks the namespace that this thread is in about connections.
pub(super) fn find_other_ends(ends: &[Addresses]) -> Vec<Tracked> {
    if !is_tracking() {
        return vec![Tracked::No; ends.len()];
    }
    ends.iter()
        .map(|&end| match query(end) {
            Ok(Some(other)) => Tracked::OtherEnd(other),
            Ok(None) => Tracked::No,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Tracked::No,
            Err(_) => Tracked::Unknown,
        })
        .collect()
}

/// Asks about one connection, with a socket of its own: no answer can be taken for another's.
fn query(end: Addresses) -> io::Result<Option<Addresses>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
    socket.send(&request(end), 0)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    // The kernel answers before the call returns that asks it.
    socket.recv(&mut buffer, libc::MSG_DONTWAIT)?;
    parse_answer(&buffer, end)
}

fn request(end: Addresses) -> Vec<u8> {
    let Addresses { protocol, local, remote } = end;
    let (family, ip) = match (local.ip(), remote.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let source = attribute(CTA_IP_V4_SRC, &source.octets());
            (libc::AF_INET, [source, attribute(CTA_IP_V4_DST, &destination.octets())].concat())
        }
        (source, destination) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let source = attribute(CTA_IP_V6_SRC, &octets(source));
            (libc::AF_INET6, [source, attribute(CTA_IP_V6_DST, &octets(destination))].concat())
        }
    };
    let number = if protocol == Protocol::Udp { libc::IPPROTO_UDP } else { libc::IPPROTO_TCP };
    let ports = [
        attribute(CTA_PROTO_NUM, &[u8::try_from(number).unwrap_or_default()]),
        attribute(CTA_PROTO_SRC_PORT, &local.port().to_be_bytes()),
        attribute(CTA_PROTO_DST_PORT, &remote.port().to_be_bytes()),
    ]
    .concat();
    let tuple = [
        attribute(CTA_TUPLE_IP | NLA_F_NESTED, &ip),
        attribute(CTA_TUPLE_PROTO | NLA_F_NESTED, &ports),
    ]
    .concat();
    // The kernel looks in both directions, whichever this is called.
    let tuple = attribute(CTA_TUPLE_ORIG | NLA_F_NESTED, &tuple);
    let length = u32::try_from(HEADER + FAMILY_HEADER + tuple.len()).unwrap_or_default();
    let mut bytes = Vec::with_capacity(length as usize);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(CT_GET.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port id.
    bytes.extend([0; 8]);
    bytes.extend([u8::try_from(family).unwrap_or_default(), 0, 0, 0]);
    bytes.extend(tuple);
    bytes
}

/// An attribute, with what aligns the next one to 4 bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or_default();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Reads the other direction of the connection that was asked about.
fn parse_answer(bytes: &[u8], end: Addresses) -> io::Result<Option<Addresses>> {
    let number = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    match number(4) {
        Some(NLMSG_ERROR) => {
            let code = bytes.get(HEADER..HEADER + 4).and_then(|code| code.try_into().ok());
            let code = code.map_or(0, i32::from_ne_bytes);
            Err(io::Error::from_raw_os_error(code.saturating_neg()))
        }
        Some(CT_NEW) => {
            let attributes = bytes.get(HEADER + FAMILY_HEADER..).unwrap_or_default();
            let tuple = |kind| parse_tuple(find_attribute(attributes, kind)?, end.protocol);
            let both = (tuple(CTA_TUPLE_ORIG), tuple(CTA_TUPLE_REPLY));
            Ok(match both {
                (Some(one), Some(other)) if one == end => Some(other),
                (Some(other), Some(one)) if one == end => Some(other),
                _ => None,
            })
        }
        _ => Ok(None),
    }
}

fn parse_tuple(tuple: &[u8], protocol: Protocol) -> Option<Addresses> {
    let (ip, ports) =
        (find_attribute(tuple, CTA_TUPLE_IP)?, find_attribute(tuple, CTA_TUPLE_PROTO)?);
    let address = |v4: u16, v6: u16| {
        let of_v4 = || <[u8; 4]>::try_from(find_attribute(ip, v4)?).ok();
        let of_v6 = || <[u8; 16]>::try_from(find_attribute(ip, v6)?).ok();
        of_v4()
            .map(|octets| IpAddr::V4(Ipv4Addr::from(octets)))
            .or_else(|| of_v6().map(|octets| Ipv6Addr::from(octets).to_canonical()))
    };
    let port = |kind| Some(u16::from_be_bytes(find_attribute(ports, kind)?.try_into().ok()?));
    Some(Addresses {
        protocol,
        local: SocketAddr::new(address(CTA_IP_V4_SRC, CTA_IP_V6_SRC)?, port(CTA_PROTO_SRC_PORT)?),
        remote: SocketAddr::new(address(CTA_IP_V4_DST, CTA_IP_V6_DST)?, port(CTA_PROTO_DST_PORT)?),
    })
}

/// The value of the first attribute of a kind.
fn find_attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let found = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & NLA_TYPE_MASK;
        let value = bytes.get(4..length)?;
        if found == kind {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{
        Addresses, CT_NEW, CTA_TUPLE_ORIG, CTA_TUPLE_REPLY, FAMILY_HEADER, HEADER, NLA_TYPE_MASK,
        NLMSG_ERROR, Protocol, attribute, parse_answer, request,
    };

    fn addresses(local: &str, remote: &str) -> Addresses {
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        Addresses { protocol: Protocol::Tcp, local, remote }
    }

    /// A message of the kernel's with the two directions of a connection.
    fn answer(original: Addresses, reply: Addresses) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + FAMILY_HEADER];
        bytes[4..6].copy_from_slice(&CT_NEW.to_ne_bytes());
        for (kind, of) in [(CTA_TUPLE_ORIG, original), (CTA_TUPLE_REPLY, reply)] {
            let request = request(of);
            let nested = &request[HEADER + FAMILY_HEADER + 4..];
            bytes.extend(attribute(kind | !NLA_TYPE_MASK & 0x8000, nested));
        }
        bytes
    }

    #[test]
    fn each_direction_of_a_connection_leads_to_the_other() {
        for (client, server) in [
            (
                addresses("172.18.0.2:40000", "10.96.0.1:80"),
                addresses("172.18.0.3:8000", "172.18.0.2:40000"),
            ),
            (addresses("[fd00::2]:40000", "[fd00::1]:80"), addresses("[fd00::3]:8", "[fd00::2]:4")),
        ] {
            let bytes = answer(client, server);
            assert_eq!(parse_answer(&bytes, client).unwrap(), Some(server));
            assert_eq!(parse_answer(&bytes, server).unwrap(), Some(client));
            // An answer about something else tells nothing, nor does half of one.
            assert_eq!(parse_answer(&bytes, addresses("1.2.3.4:5", "6.7.8.9:10")).unwrap(), None);
            for length in 0..bytes.len() {
                let half = parse_answer(&bytes[..length], client);
                assert_eq!(half.unwrap(), None, "{length} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn a_connection_that_is_not_tracked_is_not_found() {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        bytes.extend((-libc::ENOENT).to_ne_bytes());
        let error = parse_answer(&bytes, addresses("1.2.3.4:5", "6.7.8.9:10")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
