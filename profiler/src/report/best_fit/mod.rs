//! The one frame of a stack that means most to the program's owner: the deepest one of the
//! program's own code.
//!
//! ```text
//!                      leaf                                                            root
//! a Rust program       syscall   Mutex::lock   take_lock   main::{{closure}}   thread_start   clone
//! whose                libc      runtime       PROGRAM     program             runtime        libc
//! ```
//!
//! The idea is that of the tracing of Cats Effect, whose fibres show where the program called, not
//! where the runtime was:
//! <https://github.com/typelevel/cats-effect/blob/v3.5.0/core/shared/src/main/scala/cats/effect/tracing/Tracing.scala>

mod modules;
mod names;
mod read;
mod short;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use serde::{Serialize, Serializer};

use crate::{
    blame::cause::{self, Cause},
    recording::{Frame, FrameId, ModuleId, StackRef, StackTable},
};

use modules::Place;

use super::frames::{base_name, names_of};

/// Whose code a frame is of. What comes first says more to the program's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// The program's.
    Program,
    /// A library's that somebody else wrote: it says what the program was at.
    Library,
    /// That which runs any program of its kind: a language's standard library, an interpreter, an
    /// executor, an event loop, an allocator.
    Runtime,
    /// The kernel's.
    Kernel,
    /// The C library's or the loader's, which all programs share.
    Libc,
}

/// The frame that a stack is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Label {
    /// The function, as it was recorded; `file+0x1234` if it has no name.
    #[serde(serialize_with = "text")]
    pub function: Arc<str>,
    /// The file that it is in, without its folders, or the name of its memory (`[anon]`); none in
    /// the kernel.
    #[serde(serialize_with = "optional_text")]
    pub module: Option<Arc<str>>,
    /// Why it was chosen.
    pub whose: Whose,
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn optional_text<S: Serializer>(text: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(to)
}

/// What one frame offers, however many stacks it is in.
#[derive(Clone, Copy)]
enum Offer {
    Nothing,
    /// One of its functions, by its index.
    Function(Whose, usize),
    /// The program's code, but no name.
    Nameless,
    /// What comes after it, towards the root, is a task that this thread has left.
    Left,
}

/// Finds labels. Each frame is judged once, and each pair of stacks.
pub(crate) struct BestFit<'a> {
    stacks: &'a StackTable,
    places: HashMap<ModuleId, Place>,
    offers: HashMap<FrameId, Offer>,
    labels: HashMap<(StackRef, StackRef), Option<Label>>,
}

impl<'a> BestFit<'a> {
    pub(crate) fn new(stacks: &'a StackTable) -> Self {
        let (places, offers, labels) = Default::default();
        Self { stacks, places, offers, labels }
    }

    /// The label of a wait. [`Cause::Other`] shows the kernel's frame wherever there is one: it is
    /// there because no rule knows that frame.
    pub(crate) fn of_wait(
        &mut self,
        cause: Cause,
        user: StackRef,
        kernel: StackRef,
    ) -> Option<Label> {
        let in_kernel = (cause == Cause::Other).then(|| self.in_kernel(kernel)).flatten();
        in_kernel.or_else(|| self.of(user, kernel))
    }

    /// The label of a stack's two halves; none if nothing in it has a name.
    pub(super) fn of(&mut self, user: StackRef, kernel: StackRef) -> Option<Label> {
        if let Some(known) = self.labels.get(&(user, kernel)) {
            return known.clone();
        }
        let in_user = self.in_user(user);
        let label = match in_user {
            Some(Label { whose: Whose::Libc, .. }) | None => self.in_kernel(kernel).or(in_user),
            in_user => in_user,
        };
        self.labels.insert((user, kernel), label.clone());
        label
    }

    fn in_kernel(&self, kernel: StackRef) -> Option<Label> {
        let function = cause::kernel_frames(self.stacks, kernel)
            .find(|name| !names::is_waking(name))
            .or_else(|| cause::kernel_frames(self.stacks, kernel).next())?
            .into();
        Some(Label { function, module: None, whose: Whose::Kernel })
    }

    /// The deepest frame of those that say most.
    fn in_user(&mut self, user: StackRef) -> Option<Label> {
        let StackRef::Id(id) = user else { return None };
        let stacks = self.stacks;
        let mut best: Option<Label> = None;
        for id in &stacks.stacks.get(&id)?.frames {
            let Some(frame) = stacks.frames.get(id) else { continue };
            let offer = *self.offers.entry(*id).or_insert_with(|| {
                offer(frame, &mut |module| {
                    *self.places.entry(module).or_insert_with(|| place(stacks, module))
                })
            });
            let (whose, function) = match offer {
                Offer::Nothing => continue,
                Offer::Left => break,
                Offer::Function(whose, n) => (whose, frame.functions.get(n).cloned()),
                Offer::Nameless => (Whose::Program, names_of(stacks, frame).pop()),
            };
            if best.as_ref().is_some_and(|best| best.whose <= whose) {
                continue;
            }
            let Some(function) = function else { continue };
            let module = stacks.module_of(frame).map(|module| base_name(&module.path).into());
            best = Some(Label { function: function.into(), module, whose });
            if whose == Whose::Program {
                break;
            }
        }
        best
    }
}

fn place(stacks: &StackTable, module: ModuleId) -> Place {
    stacks.modules.get(&module).map_or(Place::Nowhere, |module| modules::place(&module.path))
}

/// What a frame offers: of the functions that were inlined into one another, the innermost one of
/// those that say most.
fn offer(frame: &Frame, place_of: &mut dyn FnMut(ModuleId) -> Place) -> Offer {
    let place = frame.module.map_or(Place::Nowhere, place_of);
    let mut best: Option<(Whose, usize)> = None;
    for (n, function) in frame.functions.iter().enumerate() {
        let whose = match place {
            Place::Nowhere => break,
            Place::Memory => names::in_memory(function),
            Place::File(_) if names::is_switch(function) => return Offer::Left,
            Place::File(whose) => whose.max(names::in_file(function)),
        };
        if best.is_none_or(|(best, _)| whose < best) {
            best = Some((whose, n));
        }
    }
    match (best, place) {
        (Some((whose, n)), _) => Offer::Function(whose, n),
        (None, Place::File(Whose::Program)) => Offer::Nameless,
        (None, _) => Offer::Nothing,
    }
}
