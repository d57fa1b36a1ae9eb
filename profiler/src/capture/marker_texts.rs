//! The texts of markers, each kept once: a loop sets the same few over and over.

use std::{collections::HashSet, sync::Arc};

use offwake_recording::Marker;

/// Texts are all forgotten when there are so many: another copy is cheap.
const MAX_TEXTS: usize = 4_096;

/// The texts that came last.
#[derive(Debug, Default)]
pub(super) struct MarkerTexts(HashSet<Arc<str>>);

impl MarkerTexts {
    /// Has a marker share its texts with those that came before it.
    pub fn share_texts(&mut self, marker: Marker) -> Marker {
        Marker { track: self.share(marker.track), name: self.share(marker.name), ..marker }
    }

    fn share(&mut self, text: Arc<str>) -> Arc<str> {
        if let Some(known) = self.0.get(&text) {
            return Arc::clone(known);
        }
        if self.0.len() >= MAX_TEXTS {
            self.0.clear();
        }
        self.0.insert(Arc::clone(&text));
        text
    }
}
