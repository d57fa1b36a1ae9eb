//! Who holds a lock that threads ask for now and then, and sleep in between: no wake tells.
//!
//! ```text
//! booking.py waits for a lock of the SQLite database    each wait ends with a timer
//! └ import_prices.py holds it: sleeps in fetch_prices   by the kernel's list of locks, at the end
//! ```

use super::{
    chain_words::{ChainTeller, UNKNOWN_HOLDER},
    model::{Finding, FindingHop, FindingLine},
    root::WaitRoot,
    write::{FindingWriter, describe_hop, describe_hop_without_function, function_of_hop},
};

/// Names in a finding who held the lock at the end that its threads waited for, or says that nobody
/// knows.
pub(super) fn name_holder(
    finding: &mut Finding,
    root: &WaitRoot,
    teller: ChainTeller<'_>,
    writer: &mut FindingWriter<'_>,
) {
    let asking = || root.node.threads.keys().copied();
    let polling = asking().filter(|&thread| teller.graph.polls_for_lock(thread));
    // Who still asks for it at the end says more than who does something else by then.
    let chain = (polling.map(|thread| teller.graph.follow(thread)))
        .find(|it| !it.links.is_empty())
        .or_else(|| asking().find_map(|thread| teller.graph.follow_polled_lock(thread)));
    let (text, function) = match &chain {
        None => (UNKNOWN_HOLDER.to_owned(), None),
        Some(chain) => match (teller.hop(chain, 1, writer), chain.links.first()) {
            (Some(hop), _) => {
                let hop = FindingHop { what: format!("holds it: {}", hop.what), ..hop };
                finding.text = format!("{}: {}", finding.text, describe_hop(&hop));
                let words = (describe_hop_without_function(&hop), function_of_hop(&hop));
                finding.chain.push(hop);
                words
            }
            (None, Some(link)) => {
                let waiter = chain.threads.first().copied();
                let owner = waiter.map(|waiter| teller.owner(waiter, &link.owner, writer));
                let text = format!("held by {}", owner.unwrap_or_default());
                finding.text = format!("{}: {text}", finding.text);
                (text, None)
            }
            (None, None) => return,
        },
    };
    // Who asks is not the cause of its own wait. Nor is the holder marked as it: the list tells of the end
    // of the window, and another one may have had the lock before.
    finding.lines.iter_mut().for_each(|line| line.is_cause = false);
    finding.lines.push(FindingLine { function, ..FindingLine::without_function(text, 0.0, false) });
}
