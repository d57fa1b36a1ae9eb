//! Frames for formats that have the source apart from the name: pprof, speedscope, the
//! Firefox Profiler.

use std::{collections::HashMap, sync::Arc};

use crate::{report::flame::Frame, text};

/// A frame's name and where it is in the source, sanitised.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SourceFrame {
    /// The name as folded stacks have it, without the source.
    pub(super) name: String,
    /// The file, if it is known.
    pub(super) file: Option<String>,
    /// The line in it, from 1.
    pub(super) line: Option<u32>,
}

impl SourceFrame {
    fn new(frame: &Frame) -> Self {
        let function = frame.function.as_deref();
        let name = function.map_or(&*frame.name, |function| function.name.as_str());
        Self {
            name: text::plain(&text::folded(name)),
            file: function.and_then(|function| function.file.as_deref()).map(text::plain),
            line: function.and_then(|function| function.line),
        }
    }

    /// Returns the file; empty if it is unknown.
    pub(super) fn file(&self) -> &str {
        self.file.as_deref().unwrap_or_default()
    }
}

/// Makes each frame once.
#[derive(Default)]
pub(super) struct SourceFrames {
    by_frame: HashMap<Frame, Arc<SourceFrame>>,
}

impl SourceFrames {
    /// Returns the frames of a path, in the same order.
    pub(super) fn path(&mut self, frames: &[Frame]) -> Vec<Arc<SourceFrame>> {
        frames.iter().map(|frame| self.get_or_insert(frame)).collect()
    }

    fn get_or_insert(&mut self, frame: &Frame) -> Arc<SourceFrame> {
        if let Some(known) = self.by_frame.get(frame) {
            return Arc::clone(known);
        }
        let name = Arc::new(SourceFrame::new(frame));
        self.by_frame.insert(frame.clone(), Arc::clone(&name));
        name
    }
}
