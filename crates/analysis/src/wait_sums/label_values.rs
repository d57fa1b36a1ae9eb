//! The values of a label by which waits are told apart.

use std::sync::Arc;

use indexmap::IndexSet;
use offwake_recording::Recording;

use crate::{tags::ThreadTags, timeline::WaitIndex};

/// A label's value in each wait.
pub(super) struct LabelValues {
    name: Arc<str>,
    values: IndexSet<String>,
    /// By the wait's index: 0 without the label, else the number of the value, from 1.
    by_wait: Vec<u32>,
}

impl LabelValues {
    /// Finds them in all waits of a recording.
    pub(super) fn find(recording: &Recording, name: &Arc<str>) -> Self {
        let tags = ThreadTags::new(recording);
        let mut values = IndexSet::new();
        let waits = &recording.waits;
        let by_wait = waits.rows().iter().map(|row| {
            let value =
                (tags.find(waits.waiter(row).tid, row.off)).and_then(|set| tags.label(set, name));
            let Some(value) = value else { return 0 };
            let number = match values.get_index_of(value) {
                Some(known) => known,
                None => values.insert_full(value.to_owned()).0,
            };
            u32::try_from(number + 1).unwrap_or(0)
        });
        let by_wait = by_wait.collect();
        Self { name: Arc::clone(name), values, by_wait }
    }

    /// The number of a wait's value.
    pub(super) fn number(&self, wait: WaitIndex) -> u32 {
        self.by_wait.get(wait.0 as usize).copied().unwrap_or(0)
    }

    /// The label's name and its value; none without the label.
    pub(super) fn label(&self, number: u32) -> Option<(String, String)> {
        let value = self.values.get_index(number.checked_sub(1)? as usize)?;
        Some((self.name.to_string(), value.clone()))
    }
}
