//! Who has the other end of the connections that threads waited on, where no thread ended the waits.

use std::{cmp::Reverse, collections::BTreeMap};

use offwake_recording::{
    PeerProcess,
    units::{Nanos, Tgid},
};

use super::{
    model::{Finding, FindingLine},
    root::WaitRoot,
    write::FindingWriter,
};

/// Who had the other end for at least this part of the time is named.
const MAIN_PEER: f64 = 0.8;

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
    let text = format!("{name} has the other end of the connection");
    finding.cause.text = format!("{}; {text}", finding.cause.text);
    finding.text = format!("{}; {text}", finding.text);
    finding.lines.push(FindingLine::without_function(text, 0.0, false));
}
