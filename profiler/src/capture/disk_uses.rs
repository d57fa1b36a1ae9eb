//! What processes read from disks and wrote to them within the window: the counts as it closed, without
//! those as it opened.

use offwake_recording::{DiskUse, LossTotals, loss::DISK_USES_UNREAD};

use crate::kernel::{DiskUses, KernelError};

/// Reads the counts. They are worth less than the rest of a recording: if the kernel does not hand them
/// out, the recording goes on without them.
pub(super) fn keep_readable(read: Result<DiskUses, KernelError>) -> Option<DiskUses> {
    read.inspect_err(|error| log::warn!("disk uses are not known: {error}")).ok()
}

/// Subtracts what was counted before the window. Counts that could not be read are noted in `loss`.
pub(super) fn subtract_earlier(
    before: Option<&DiskUses>,
    after: Option<&DiskUses>,
    loss: &mut LossTotals,
) -> Vec<DiskUse> {
    let (Some(before), Some(after)) = (before, after) else {
        loss.counters.insert(DISK_USES_UNREAD.to_owned(), 1);
        return Vec::new();
    };
    if after.evicted > 0 {
        loss.counters.insert("disk_users_evicted".to_owned(), after.evicted);
    }
    after.since(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_can_not_be_read_cost_only_themselves_and_it_is_counted() {
        let unread = keep_readable(Err(KernelError::Missing("DISK_USES")));
        assert!(unread.is_none());
        let mut uses = DiskUses::default();
        uses.evicted = 3;
        let read = keep_readable(Ok(uses));
        for (before, after) in [(&unread, &read), (&read, &unread), (&unread, &unread)] {
            let mut loss = LossTotals::default();
            assert_eq!(subtract_earlier(before.as_ref(), after.as_ref(), &mut loss), []);
            assert_eq!(
                loss.counters.into_iter().collect::<Vec<_>>(),
                [(DISK_USES_UNREAD.to_owned(), 1)]
            );
        }
        let mut loss = LossTotals::default();
        subtract_earlier(read.as_ref(), read.as_ref(), &mut loss);
        assert_eq!(loss.counters.into_keys().collect::<Vec<_>>(), ["disk_users_evicted"]);
    }
}
