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

mod function_owner;
mod module_owner;
mod rules;
mod short_name;
mod symbol_name;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use offwake_recording::{Frame, FrameId, ModuleId, StackRef, StackTable, units::StackId};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::blame::cause::{self, Cause};

use module_owner::ModuleKind;

use super::frames::{base_name, frame_texts, with_source};

/// The owner of a frame's code. Earlier variants tell the program's author more than later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Whose")]
pub enum CodeOwner {
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
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
    pub whose: CodeOwner,
}

impl Label {
    /// Returns whether the function's name says where its source is, as an interpreter's does.
    pub(crate) fn has_source(&self) -> bool {
        self.function.ends_with(')') && self.function.contains(" (")
    }

    /// Returns the label without the line of its source, by which frames of one function differ.
    pub(crate) fn without_line(mut self) -> Self {
        if self.has_source()
            && let Some((rest, line)) = self.function.trim_end_matches(')').rsplit_once(':')
            && line.bytes().all(|digit| digit.is_ascii_digit())
        {
            self.function = format!("{rest})").into();
        }
        self
    }

    /// Returns whether the function has a name, and belongs to the program or to a library that its
    /// author chose.
    pub(crate) fn is_own_or_library(&self) -> bool {
        self.whose <= CodeOwner::Library && self.is_named()
    }

    /// Returns whether the function is one of an engine's that runs scripts.
    pub(crate) fn is_of_engine(&self) -> bool {
        self.whose == CodeOwner::Runtime && function_owner::is_of_engine(&self.function)
    }

    /// Returns whether the function has a name: `file+0x1234` is none.
    pub(crate) fn is_named(&self) -> bool {
        let file_and_offset = |module: &Arc<str>| {
            self.function.strip_prefix(&**module).is_some_and(|rest| rest.starts_with("+0x"))
        };
        !self.module.as_ref().is_some_and(file_and_offset)
    }
}

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

fn optional_text<S: Serializer>(text: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(to)
}

/// What a frame offers as labels, in whatever stack it is.
enum FrameCandidates {
    /// One for each function that was inlined into another, the innermost first.
    Labels(Vec<Label>),
    /// The frames towards the root are of a task that this thread has left.
    TaskSwitch,
}

/// Finds the labels of stacks. Each frame and each stack is examined once.
pub(crate) struct LabelFinder<'a> {
    stacks: &'a StackTable,
    modules: HashMap<ModuleId, KnownModule>,
    candidates: HashMap<FrameId, FrameCandidates>,
    user_labels: HashMap<StackId, Option<Label>>,
    kernel_labels: HashMap<StackId, Option<Label>>,
    kernel_functions: HashMap<&'a str, Label>,
}

/// A module that was classified.
struct KnownModule {
    kind: ModuleKind,
    name: Arc<str>,
}

impl<'a> LabelFinder<'a> {
    pub(crate) fn new(stacks: &'a StackTable) -> Self {
        Self {
            stacks,
            modules: HashMap::new(),
            candidates: HashMap::new(),
            user_labels: HashMap::new(),
            kernel_labels: HashMap::new(),
            kernel_functions: HashMap::new(),
        }
    }

    /// The stacks that are labelled.
    pub(crate) fn stacks(&self) -> &'a StackTable {
        self.stacks
    }

    /// Returns the label of a wait; none if nothing in its stack has a name. It is the kernel's
    /// frame if the user stack has nothing but the C library, and always for [`Cause::Other`], of
    /// which only that frame tells anything.
    pub(crate) fn wait_label(
        &mut self,
        cause: Cause,
        user: StackRef,
        kernel: StackRef,
    ) -> Option<Label> {
        let in_user = self.user_label(user);
        match &in_user {
            Some(label) if label.whose != CodeOwner::Libc && cause != Cause::Other => in_user,
            _ => self.kernel_label(kernel).or(in_user),
        }
    }

    /// Returns the label of what a thread did when it was sampled, when it woke another, or when it
    /// left its CPU. The kernel half of the last two tells no more than that, so that only a kernel
    /// thread is labelled by its kernel half.
    pub(crate) fn activity_label(&mut self, user: StackRef, kernel: StackRef) -> Option<Label> {
        match user {
            StackRef::NotTaken => self.kernel_label(kernel),
            StackRef::Failed | StackRef::Id(_) => self.user_label(user),
        }
    }

    fn kernel_label(&mut self, kernel: StackRef) -> Option<Label> {
        let StackRef::Id(id) = kernel else { return None };
        let stacks = self.stacks;
        let find = || {
            let names = || cause::kernel_frames(stacks, kernel);
            let function =
                names().find(|name| !function_owner::is_waking(name)).or_else(|| names().next());
            let function = function?;
            let label = self.kernel_functions.entry(function).or_insert_with(|| Label {
                function: function.into(),
                module: None,
                whose: CodeOwner::Kernel,
            });
            Some(label.clone())
        };
        self.kernel_labels.entry(id).or_insert_with(find).clone()
    }

    fn user_label(&mut self, user: StackRef) -> Option<Label> {
        let StackRef::Id(id) = user else { return None };
        if let Some(known) = self.user_labels.get(&id) {
            return known.clone();
        }
        let label = self.find_user_label(id);
        self.user_labels.insert(id, label.clone());
        label
    }

    /// Returns what each frame of a user stack offers as a label, leaf first.
    pub(crate) fn user_labels_of(&mut self, stack: StackId) -> Vec<Label> {
        let mut labels = Vec::new();
        self.visit_user_labels(stack, |label| {
            labels.push(label.clone());
            ControlFlow::Continue(())
        });
        labels
    }

    /// Finds the deepest of the frames with the owner that tells most.
    fn find_user_label(&mut self, stack: StackId) -> Option<Label> {
        let mut best: Option<Label> = None;
        self.visit_user_labels(stack, |label| {
            if best.as_ref().is_none_or(|best| label.whose < best.whose) {
                best = Some(label.clone());
            }
            match label.whose {
                CodeOwner::Program => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        best
    }

    /// Calls `visit` with what the frames of a user stack offer, leaf first, until it breaks off.
    fn visit_user_labels(
        &mut self,
        stack: StackId,
        mut visit: impl FnMut(&Label) -> ControlFlow<()>,
    ) {
        let stacks = self.stacks;
        for id in stacks.stacks.get(&stack).into_iter().flat_map(|stack| &stack.frames) {
            let Some(frame) = stacks.frames.get(id) else { continue };
            let known = &mut self.modules;
            match self
                .candidates
                .entry(*id)
                .or_insert_with(|| find_candidates(stacks, frame, known))
            {
                FrameCandidates::TaskSwitch => break,
                FrameCandidates::Labels(labels) => {
                    if labels.iter().try_for_each(&mut visit).is_break() {
                        break;
                    }
                }
            }
        }
    }
}

/// Returns what a frame offers.
fn find_candidates(
    stacks: &StackTable,
    frame: &Frame,
    known: &mut HashMap<ModuleId, KnownModule>,
) -> FrameCandidates {
    let Some((id, module)) = frame.module.zip(stacks.module_of(frame)) else {
        // What lies nowhere most likely is no code.
        return FrameCandidates::Labels(Vec::new());
    };
    let file = known.entry(id).or_insert_with(|| KnownModule {
        kind: module_owner::classify_module(&module.path),
        name: base_name(&module.path).into(),
    });
    let label = |whose, function| Label { function, module: Some(file.name.clone()), whose };
    let mut labels = Vec::with_capacity(frame.functions.len());
    for function in &frame.functions {
        labels.push(match file.kind {
            // A script's functions are known by where they are, others by their names.
            ModuleKind::Memory => {
                label(function_owner::owner_in_memory(function), with_source(function).into())
            }
            ModuleKind::File(_) if function_owner::is_task_switch(&function.name) => {
                return FrameCandidates::TaskSwitch;
            }
            ModuleKind::File(whose) => {
                let whose = whose.max(function_owner::owner_in_file(&function.name));
                label(whose, function.name.as_str().into())
            }
        });
    }
    if labels.is_empty()
        && file.kind == ModuleKind::File(CodeOwner::Program)
        && let Some(name) = frame_texts(stacks, frame).pop()
    {
        labels.push(label(CodeOwner::Program, name.into()));
    }
    FrameCandidates::Labels(labels)
}
