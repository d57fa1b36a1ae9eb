//! What a copy of a user stack is unwound with: the code that its process had mapped.

use std::{fs::File, iter, rc::Rc, sync::Arc};

use offwake_unwind::{
    CodeBacking, CodeMapping, FileContent, ModuleFiles, Registers, StackCopy, UnwindEnd,
    UnwoundFrame, UnwoundStack,
};

use super::{
    FoundFrame, Symbols,
    identify::open,
    maps::{Backing, Mapping},
    modules::{Content, Modules, is_unchanged},
    process::{Moment, Process},
    pythons::WithPython,
};
use crate::{
    decode::{CopyPurpose, UserStackCopy},
    recording::{AddressKind, AddressSpace, ModuleId, StackEnd},
    unwinder_process::{UnwindRequest, UnwinderClient, is_same_code},
};

/// Mappings as the unwinder wants them.
pub(super) fn code(mappings: &[Mapping]) -> Rc<[CodeMapping]> {
    let of = |&Mapping { start, end, offset, ref backing }: &Mapping| CodeMapping {
        start,
        end,
        offset,
        backing: match backing {
            Backing::Module(module) => CodeBacking::File(*module),
            Backing::Memory(_) => CodeBacking::Memory,
        },
    };
    mappings.iter().map(of).collect()
}

impl ModuleFiles for Modules {
    fn content(&self, module: ModuleId) -> Option<FileContent> {
        match &self.get(module)?.content {
            Content::Missing => None,
            Content::Image(image) => Some(FileContent::Image(Arc::clone(image))),
            // What is in it now must be what ran.
            Content::Held { file, identity, .. } => {
                let opened: File = open(file)?;
                is_unchanged(file, *identity).then_some(FileContent::File(opened))
            }
        }
    }
}

impl Symbols {
    /// Has copies of user stacks unwound. None for each where that failed, which is counted.
    pub fn unwind(
        &mut self,
        unwinder: &mut UnwinderClient,
        copies: &[UserStackCopy],
    ) -> Vec<Option<UnwoundStack>> {
        for copy in copies {
            self.know(copy.tgid, self.moment(copy), &[copy.ip]);
        }
        let asked: Vec<UnwindRequest> = copies.iter().map(|copy| self.asked(copy)).collect();
        let mut unwound = unwinder.unwind(&asked, &self.modules, &mut self.shortfalls);
        // A library may have been loaded since the mappings were read.
        let mut asked_again = Vec::new();
        for (index, (copy, unwound)) in iter::zip(copies, &unwound).enumerate() {
            let Some(UnwoundStack { end: UnwindEnd::NotCode { address }, .. }) = *unwound else {
                continue;
            };
            self.refresh(copy.tgid, self.moment(copy), &[address]);
            let anew = self.asked(copy);
            // They may have been read for another one of these.
            if !is_same_code(&anew.code, &asked[index].code) {
                asked_again.push((index, anew));
            }
        }
        let (indices, asked): (Vec<usize>, Vec<UnwindRequest>) = asked_again.into_iter().unzip();
        let again = unwinder.unwind(&asked, &self.modules, &mut self.shortfalls);
        for (index, again) in iter::zip(indices, again) {
            unwound[index] = again;
        }
        unwound
    }

    fn asked<'a>(&self, copy: &UserStackCopy<'a>) -> UnwindRequest<'a> {
        let &UserStackCopy { tgid, ip, sp, fp, bytes, missing, .. } = copy;
        let process = self.processes.get(&tgid);
        let code = process.and_then(|process| process.code(self.moment(copy))).unwrap_or_default();
        UnwindRequest {
            code,
            copy: StackCopy { registers: Registers { ip, sp, fp }, bytes, missing },
        }
    }

    fn moment(&self, copy: &UserStackCopy) -> Moment {
        let is_told = self.code_epochs.is_some();
        Moment { taken: copy.copied, code_epoch: is_told.then_some(copy.code_epoch) }
    }

    /// The thread woke before its stack could be read.
    pub fn observe_woken(&mut self, copy: &UserStackCopy) {
        let space = AddressSpace::Process(copy.tgid);
        self.add_stack(copy.id, space, self.moment(copy), iter::empty(), StackEnd::WaitOver);
    }

    /// Nobody could unwind it: of its frames the leaf is known.
    pub fn observe_not_unwound(&mut self, copy: &UserStackCopy) {
        let space = AddressSpace::Process(copy.tgid);
        let leaf = FoundFrame::At(copy.ip, AddressKind::Instruction);
        let end = StackEnd::NotUnwound;
        self.add_stack(copy.id, space, self.moment(copy), iter::once(leaf), end);
        if copy.purpose == CopyPurpose::Sample {
            self.passing.push((space, copy.id));
        }
    }

    /// Whether code of this process was unmapped since this was asked last: what its return addresses
    /// stood for is not certain any more.
    pub fn take_lost_code(&mut self, copy: &UserStackCopy) -> bool {
        self.processes.get_mut(&copy.tgid).is_some_and(Process::take_lost_code)
    }

    /// Whether Python runs in a stack that was unwound.
    #[must_use]
    pub fn runs_python(&self, copy: &UserStackCopy, unwound: &UnwoundStack) -> bool {
        self.pythons.evaluates(copy.tgid, unwound)
    }

    /// A stack was unwound: its frames are looked up as [`Self::observe_stack`] does.
    pub fn observe_unwound(&mut self, copy: &UserStackCopy, unwound: &UnwoundStack) {
        let space = AddressSpace::Process(copy.tgid);
        let native = |frame: &UnwoundFrame| FoundFrame::At(frame.address, frame.kind);
        let merged = self.pythons.merge(copy.tgid, copy.tid, unwound, copy.python.as_ref());
        let frames: Vec<FoundFrame> = match merged {
            None => unwound.frames.iter().map(native).collect(),
            Some(merged) => merged
                .into_iter()
                .filter_map(|frame| match frame {
                    WithPython::Native(index) => unwound.frames.get(index).map(native),
                    WithPython::Python(function) => Some(FoundFrame::Python(function)),
                    WithPython::Said(text) => Some(FoundFrame::Said(text)),
                })
                .collect(),
        };
        let end = match unwound.end {
            UnwindEnd::EntryPoint => StackEnd::EntryPoint,
            UnwindEnd::CopyTooShort => StackEnd::CopyTooShort,
            UnwindEnd::PageMissing => StackEnd::PageMissing,
            UnwindEnd::NoUnwindInfo { .. } => StackEnd::NoUnwindInfo,
            UnwindEnd::NotCode { .. } => StackEnd::NotCode,
            UnwindEnd::Broken { .. } => StackEnd::Broken,
            UnwindEnd::OtherStack => StackEnd::OtherStack,
            UnwindEnd::LostRegister { .. } => StackEnd::LostRegister,
            UnwindEnd::OtherMachine { .. } => StackEnd::OtherMachine,
            UnwindEnd::TooDeep => StackEnd::TooDeep,
        };
        self.add_stack(copy.id, space, self.moment(copy), frames.into_iter(), end);
        if copy.purpose == CopyPurpose::Sample {
            self.passing.push((space, copy.id));
        }
    }
}
