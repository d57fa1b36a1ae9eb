//! Labels: the one frame of a stack that tells the program's author most, which is the deepest one
//! of the program's own code.
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
mod rules;
mod short;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::blame::cause::{self, Cause};
use offwake_recording::{Frame, FrameId, Function, ModuleId, StackRef, StackTable, units::StackId};

use modules::Place;

use super::frames::{base_name, names_of, with_source};

/// The owner of a frame's code. Earlier variants tell the program's author more than later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// The program itself.
    Program,
    /// A library by somebody else, which tells what the program was doing.
    Library,
    /// What runs any program of its kind: a language's standard library, an interpreter, an
    /// executor, an event loop, an allocator.
    Runtime,
    /// The kernel.
    Kernel,
    /// The C library or the loader, which all programs share.
    Libc,
}

/// The frame that a stack is best known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Label {
    /// The function, as it was recorded; `file+0x1234` if it has no name.
    #[serde(serialize_with = "text")]
    #[schemars(with = "String")]
    pub function: Arc<str>,
    /// The file that it is in, without its folders, or the name of its memory (`[anon]`); none in
    /// the kernel.
    #[serde(serialize_with = "optional_text")]
    #[schemars(with = "Option<String>")]
    pub module: Option<Arc<str>>,
    /// The owner of the code, for which the frame was chosen.
    pub whose: Whose,
}

impl Label {
    /// Returns whether the function has a name, and belongs to the program or to a library that its
    /// author chose.
    pub(crate) fn is_place(&self) -> bool {
        let file_and_offset = |module: &Arc<str>| {
            self.function.strip_prefix(&**module).is_some_and(|rest| rest.starts_with("+0x"))
        };
        self.whose <= Whose::Library && !self.module.as_ref().is_some_and(file_and_offset)
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn optional_text<S: Serializer>(text: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(to)
}

/// What a frame offers as a label, in whatever stack it is.
enum Offer {
    Nothing,
    Frame(Label),
    /// The frames towards the root are of a task that this thread has left.
    Left,
}

/// Finds the labels of stacks. Each frame and each stack is examined once.
pub(crate) struct BestFit<'a> {
    stacks: &'a StackTable,
    modules: HashMap<ModuleId, Known>,
    offers: HashMap<FrameId, Offer>,
    of_user: HashMap<StackId, Option<Label>>,
    of_kernel: HashMap<StackId, Option<Label>>,
    kernel_functions: HashMap<&'a str, Label>,
}

/// A module that was classified.
struct Known {
    place: Place,
    name: Arc<str>,
}

impl<'a> BestFit<'a> {
    pub(crate) fn new(stacks: &'a StackTable) -> Self {
        Self {
            stacks,
            modules: HashMap::new(),
            offers: HashMap::new(),
            of_user: HashMap::new(),
            of_kernel: HashMap::new(),
            kernel_functions: HashMap::new(),
        }
    }

    /// Returns the label of a wait; none if nothing in its stack has a name. It is the kernel's
    /// frame if the user stack has nothing but the C library, and always for [`Cause::Other`], of
    /// which only that frame tells anything.
    pub(crate) fn of_wait(
        &mut self,
        cause: Cause,
        user: StackRef,
        kernel: StackRef,
    ) -> Option<Label> {
        let in_user = self.in_user(user);
        match &in_user {
            Some(label) if label.whose != Whose::Libc && cause != Cause::Other => in_user,
            _ => self.in_kernel(kernel).or(in_user),
        }
    }

    /// Returns the label of what a thread did when it was sampled, when it woke another, or when it
    /// left its CPU. The kernel half of the last two tells no more than that, so that only a kernel
    /// thread is labelled by its kernel half.
    pub(crate) fn of_deed(&mut self, user: StackRef, kernel: StackRef) -> Option<Label> {
        match user {
            StackRef::NotTaken => self.in_kernel(kernel),
            StackRef::Failed | StackRef::Id(_) => self.in_user(user),
        }
    }

    fn in_kernel(&mut self, kernel: StackRef) -> Option<Label> {
        let StackRef::Id(id) = kernel else { return None };
        let stacks = self.stacks;
        let find = || {
            let names = || cause::kernel_frames(stacks, kernel);
            let function = names().find(|name| !names::is_waking(name)).or_else(|| names().next());
            let function = function?;
            let label = self.kernel_functions.entry(function).or_insert_with(|| Label {
                function: function.into(),
                module: None,
                whose: Whose::Kernel,
            });
            Some(label.clone())
        };
        self.of_kernel.entry(id).or_insert_with(find).clone()
    }

    fn in_user(&mut self, user: StackRef) -> Option<Label> {
        let StackRef::Id(id) = user else { return None };
        if let Some(known) = self.of_user.get(&id) {
            return known.clone();
        }
        let label = self.deepest(id);
        self.of_user.insert(id, label.clone());
        label
    }

    /// Finds the deepest of the frames with the owner that tells most.
    fn deepest(&mut self, stack: StackId) -> Option<Label> {
        let stacks = self.stacks;
        let mut best: Option<Label> = None;
        for id in &stacks.stacks.get(&stack)?.frames {
            let Some(frame) = stacks.frames.get(id) else { continue };
            let known = &mut self.modules;
            match self.offers.entry(*id).or_insert_with(|| offer(stacks, frame, known)) {
                Offer::Nothing => {}
                Offer::Left => break,
                Offer::Frame(label) => {
                    if best.as_ref().is_none_or(|best| label.whose < best.whose) {
                        best = Some(label.clone());
                    }
                    if label.whose == Whose::Program {
                        break;
                    }
                }
            }
        }
        best
    }
}

/// Returns what a frame offers: of functions that were inlined into one another, the innermost of
/// those whose owner tells most.
fn offer(stacks: &StackTable, frame: &Frame, known: &mut HashMap<ModuleId, Known>) -> Offer {
    let Some((id, module)) = frame.module.zip(stacks.module_of(frame)) else {
        // What lies nowhere most likely is no code.
        return Offer::Nothing;
    };
    let file = known.entry(id).or_insert_with(|| Known {
        place: modules::place(&module.path),
        name: base_name(&module.path).into(),
    });
    let mut best: Option<(Whose, &Function)> = None;
    for function in &frame.functions {
        let whose = match file.place {
            Place::Memory => names::in_memory(function),
            Place::File(_) if names::is_switch(&function.name) => return Offer::Left,
            Place::File(whose) => whose.max(names::in_file(&function.name)),
        };
        if best.is_none_or(|(best, _)| whose < best) {
            best = Some((whose, function));
        }
    }
    let label = |whose, function| Label { function, module: Some(file.name.clone()), whose };
    match (best, file.place, names_of(stacks, frame).pop()) {
        // A script's functions are known by where they are, others by their names.
        (Some((whose, function)), Place::Memory, _) => {
            Offer::Frame(label(whose, with_source(function).into()))
        }
        (Some((whose, function)), ..) => Offer::Frame(label(whose, function.name.as_str().into())),
        (None, Place::File(Whose::Program), Some(name)) => {
            Offer::Frame(label(Whose::Program, name.into()))
        }
        (None, ..) => Offer::Nothing,
    }
}
