//! Lists the children of which any could end a wait, where nobody knows which one should.

use std::collections::BTreeSet;

use offwake_recording::{PeerProcess, units::Tgid};

use crate::timeline::ThreadIndex;

use super::{chain_words::ChainTeller, write::FindingWriter};

/// The most children that are named.
const MAX_NAMED: usize = 3;

impl ChainTeller<'_> {
    /// Lists the children that threads wait for, if each of them waits for any of the same ones:
    /// `the end of any of these would end it: tar 61, gzip 62`.
    pub(super) fn list_children(
        &self,
        threads: impl Iterator<Item = ThreadIndex>,
        writer: &FindingWriter<'_>,
    ) -> Option<String> {
        let mut children = threads.map(|thread| self.graph.awaited_children(thread));
        let first: BTreeSet<Tgid> = children.next()?;
        if first.len() < 2 || children.any(|others| others != first) {
            return None;
        }
        let name = |&tgid: &Tgid| {
            let process = PeerProcess { tgid, comm: String::new() };
            format!("{} {tgid}", writer.words.process_name(&process))
        };
        let names: Vec<String> = first.iter().take(MAX_NAMED).map(name).collect();
        let more = match first.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("the end of any of these would end it: {}{more}", names.join(", ")))
    }
}
