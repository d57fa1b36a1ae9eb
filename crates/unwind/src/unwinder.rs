//! Unwinds stacks, one frame after the other.

use gimli::UnwindContext;
use offwake_recording::{AddressKind, loss::Diagnostics};
use serde::{Deserialize, Serialize};

use crate::{
    frame_pointer,
    instructions::InstructionDecoder,
    location::CodeLocation,
    mapping::{CodeMapping, ModuleFiles, find_mapping},
    module_cache::ModuleCache,
    rule::UnwindRule,
    rule_cache::RuleCache,
    signal_trampoline,
    stack::{MAX_FRAMES, Stop, UnwindEnd, UnwoundFrame, UnwoundStack},
    stack_copy::StackCopy,
    state::{FoundBy, FrameState, NextFrame},
    step,
};

/// How stacks are unwound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// By unwind data and, where code has none, by its instructions, or by frame pointers if they
    /// can be frame pointers.
    #[default]
    Auto,
    /// By frame pointers alone, as `bpf_get_stack` does.
    FramePointers,
    /// By unwind data alone.
    Dwarf,
}

impl Method {
    /// The name that the command line has for the method.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::FramePointers => "fp",
            Self::Dwarf => "dwarf",
        }
    }
}

/// Unwinds the stacks of all processes.
pub struct Unwinder {
    method: Method,
    rules: RuleCache,
    modules: ModuleCache,
    context: UnwindContext<usize>,
    decoder: InstructionDecoder,
}

impl Unwinder {
    /// An unwinder that has read no module yet.
    #[must_use]
    pub fn new(method: Method) -> Self {
        Self {
            method,
            rules: RuleCache::new(),
            modules: ModuleCache::new(),
            context: UnwindContext::new(),
            decoder: InstructionDecoder::new(),
        }
    }

    /// Unwinds one stack. `code` is all that the process has of executable mappings, sorted by
    /// address.
    pub fn unwind(
        &mut self,
        code: &[CodeMapping],
        files: &impl ModuleFiles,
        copy: &StackCopy,
    ) -> UnwoundStack {
        self.decoder.begin_stack();
        let mut state = FrameState::from_registers(copy.registers);
        let kind = AddressKind::Instruction;
        let mut frames = vec![UnwoundFrame { address: state.ip, kind, stack_offset: None }];
        let mut frames_of_go = None;
        let end = loop {
            let (next, stack_offset) = match self.step(code, files, copy, &state) {
                Ok(step) => step,
                Err(end) => break end,
            };
            if next.found_by == FoundBy::TopOfGo {
                frames_of_go = Some(frames.len());
            }
            if find_mapping(code, next.lookup_address()).is_none() {
                break UnwindEnd::NotCode { address: next.ip };
            }
            if frames.len() == MAX_FRAMES {
                break UnwindEnd::TooDeep;
            }
            frames.push(UnwoundFrame { address: next.ip, kind: next.kind, stack_offset });
            state = next;
        };
        match frames_of_go {
            // The caller of Go's own frames, if there is any, can't be unwound.
            Some(frames_of_go) if end.is_for_lack_of_data() => {
                frames.truncate(frames_of_go);
                UnwoundStack { frames, end: UnwindEnd::EntryPoint }
            }
            _ => UnwoundStack { frames, end },
        }
    }

    /// The state of the caller, and where in the copy its address lies.
    fn step(
        &mut self,
        code: &[CodeMapping],
        files: &impl ModuleFiles,
        copy: &StackCopy,
        state: &FrameState,
    ) -> Result<NextFrame, UnwindEnd> {
        let address = state.ip;
        let Some(mapping) = find_mapping(code, state.lookup_address()) else {
            return Err(UnwindEnd::NotCode { address });
        };
        if self.method == Method::FramePointers {
            return frame_pointer::step(state, copy).map_err(|stop| stop.end(address));
        }
        let rule = self.rule(mapping, files, state);
        let stop = match &rule {
            UnwindRule::Frame(frame) => {
                return step::apply_rule(frame, state, copy).map_err(|stop| stop.end(address));
            }
            UnwindRule::TopOfGo(frame) => {
                let step = step::apply_rule(frame, state, copy).map_err(|stop| stop.end(address));
                return step
                    .map(|(next, at)| (FrameState { found_by: FoundBy::TopOfGo, ..next }, at));
            }
            UnwindRule::SignalTrampoline => {
                return signal_trampoline::step(state, copy).map_err(|stop| stop.end(address));
            }
            UnwindRule::EntryPoint => Stop::EntryPoint,
            UnwindRule::OtherStack => Stop::BeforeCopy,
            UnwindRule::Unreadable => Stop::Broken,
            UnwindRule::Decoded(decoded) => {
                let location = CodeLocation::in_mapping(mapping, state)
                    .ok_or(UnwindEnd::NoUnwindInfo { address })?;
                match self.decoder.step(decoded, (location, state), code, files, copy) {
                    Ok(step) => return Ok(step),
                    Err(stop @ (Stop::BehindCopy | Stop::PageMissing)) => stop,
                    Err(_) => match by_frame_pointer(code, copy, state) {
                        Ok(step) => return Ok(step),
                        Err(stop) => stop,
                    },
                }
            }
            UnwindRule::OtherMachine => Stop::OtherMachine,
            UnwindRule::Uncovered if self.method == Method::Auto => {
                match by_frame_pointer(code, copy, state) {
                    Ok(step) => return Ok(step),
                    Err(stop) => stop,
                }
            }
            UnwindRule::Uncovered => Stop::NoUnwindInfo,
        };
        Err(stop.end(address))
    }

    /// The rule for a frame in a mapping.
    fn rule(
        &mut self,
        mapping: &CodeMapping,
        files: &impl ModuleFiles,
        state: &FrameState,
    ) -> UnwindRule {
        let Some(location) = CodeLocation::in_mapping(mapping, state) else {
            return UnwindRule::Uncovered;
        };
        if let Some(rule) = self.rules.get(location) {
            return rule;
        }
        let mut rule = self.modules.rule(location, files, &mut self.context);
        if matches!(rule, UnwindRule::Uncovered)
            && state.kind == AddressKind::Return
            && signal_trampoline::is_at(files.content(location.module), location.ip_offset())
        {
            rule = UnwindRule::SignalTrampoline;
        }
        if matches!(rule, UnwindRule::Uncovered) && self.method == Method::Auto {
            rule = self.decoder.rule(location, files);
            if self.decoder.is_exhausted() {
                return rule;
            }
        }
        self.rules.insert(location, rule.clone());
        rule
    }

    /// Bytes of unwind data that are kept now.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.modules.memory() + self.rules.memory() + self.decoder.memory()
    }

    /// What could not be done.
    #[must_use]
    pub fn diagnostics(&self) -> &Diagnostics {
        self.modules.diagnostics()
    }
}

/// The frame that the frame pointer leads to, if it can be a frame pointer.
fn by_frame_pointer(
    code: &[CodeMapping],
    copy: &StackCopy,
    state: &FrameState,
) -> Result<NextFrame, Stop> {
    match frame_pointer::step(state, copy)? {
        // A register that holds anything at all can look like a frame pointer, but hardly with
        // code's address above where it points to.
        (next, _) if find_mapping(code, next.lookup_address()).is_none() => Err(Stop::NoUnwindInfo),
        step => Ok(step),
    }
}
