//! Who has the other end of the connections that threads waited on, where no thread ended the waits.
//! A process of this machine has a name, one of another machine an address.

use std::{cmp::Reverse, collections::BTreeMap};

use offwake_recording::{
    PeerProcess,
    units::{Nanos, Tgid},
};

use crate::text;

use super::{
    model::{Finding, FindingLine},
    root::WaitRoot,
    write::FindingWriter,
};

/// Who had the other end for at least this part of the time is named.
const MAIN_PEER: f64 = 0.8;
/// An address is that of the other end if this part of the time was on connections with it.
const MAIN_ADDRESS: f64 = 0.8;

/// Names in a finding the process at the other end: TCP held data back that this one had sent, or the
/// acknowledgement that it owed.
pub(super) fn name_in(finding: &mut Finding, root: &WaitRoot, writer: &FindingWriter<'_>) {
    let mut times: BTreeMap<Tgid, (Nanos, &PeerProcess)> = BTreeMap::new();
    for (&file, &time) in &root.files {
        let socket = writer.words.recording.files.socket(file);
        // Several processes have the other end after a fork: any of them may be the one.
        if let Some([peer]) = socket.map(|socket| socket.peers.as_slice()) {
            times.entry(peer.tgid).or_insert((Nanos(0), peer)).0 += time;
        }
    }
    let most = times.into_values().min_by_key(|&(time, _)| Reverse(time));
    let is_main = |time: Nanos| time.0 as f64 >= root.node.time.0 as f64 * MAIN_PEER;
    let Some((_, peer)) = most.filter(|&(time, _)| is_main(time)) else { return };
    let name = format!("{} {}", writer.words.process_name(peer), peer.tgid);
    add_line(finding, format!("{name} has the other end of the connection"));
}

/// Names in a finding the address that packets were waited from: with its port, if all connections had
/// the same.
pub(super) fn name_address_in(finding: &mut Finding, root: &WaitRoot, writer: &FindingWriter<'_>) {
    let files = &writer.words.recording.files;
    let remotes: Vec<(&str, Nanos)> = (root.files.iter())
        .filter_map(|(&file, &time)| Some((files.socket(file)?.remote.as_str(), time)))
        .filter(|(remote, _)| !remote.is_empty())
        .collect();
    let host =
        |remote: &'_ str| remote.rsplit_once(':').map_or(remote, |(host, _)| host).to_owned();
    let with_port = find_main(remotes.iter().map(|&(remote, time)| (remote.to_owned(), time)));
    let main =
        with_port.or_else(|| find_main(remotes.iter().map(|&(remote, time)| (host(remote), time))));
    if let Some(address) = main {
        add_line(
            finding,
            format!("the other end of the connection is {}", text::terminal(&address)),
        );
    }
}

/// Returns the address of nearly all the time.
fn find_main(addresses: impl Iterator<Item = (String, Nanos)>) -> Option<String> {
    let mut times: BTreeMap<String, Nanos> = BTreeMap::new();
    for (address, time) in addresses {
        *times.entry(address).or_default() += time;
    }
    let all: Nanos = times.values().copied().sum();
    let (address, most) = times.into_iter().min_by_key(|&(_, time)| Reverse(time))?;
    (most.0 as f64 >= all.0 as f64 * MAIN_ADDRESS).then_some(address)
}

fn add_line(finding: &mut Finding, text: String) {
    finding.cause.text = format!("{}; {text}", finding.cause.text);
    finding.text = format!("{}; {text}", finding.text);
    finding.lines.push(FindingLine::without_function(text, 0.0, false));
}
