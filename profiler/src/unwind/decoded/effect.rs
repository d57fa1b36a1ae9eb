//! What an instruction does to the stack pointer, and to the registers that a function has to leave as
//! they were.
//!
//! ```text
//!          | return address |  0
//!          | pushed         |  8 bytes below it
//! rsp -->  | room           |  its depth, in bytes below it
//! ```

use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::unwind::step::{RBP, RSP};

/// Those that a function leaves as they were, with their DWARF numbers.
const KEPT: [(Register, usize); 6] = [
    (Register::RBX, 3),
    (Register::RBP, RBP),
    (Register::R12, 12),
    (Register::R13, 13),
    (Register::R14, 14),
    (Register::R15, 15),
];

/// What is in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// What the caller had in it.
    Callers,
    /// An address on the stack: bytes below the return address.
    Below(i64),
    Unknown,
}

/// A register that a function has to leave as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    value: Value,
    /// Where what the caller had in it was put, in bytes below the return address.
    saved: Option<i64>,
}

/// Where things are, relative to the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depths {
    /// Of `rsp`.
    sp: Option<i64>,
    kept: [Kept; KEPT.len()],
}

impl Depths {
    /// Where a function begins.
    pub(super) const BEGIN: Self =
        Self { sp: Some(0), kept: [Kept { value: Value::Callers, saved: None }; KEPT.len()] };

    /// The register that the return address is found by, and how many bytes it is above that.
    pub(super) fn return_address(&self) -> Option<(usize, i64)> {
        if let Some(sp) = self.sp {
            return Some((RSP, sp));
        }
        self.kept.iter().zip(KEPT).find_map(|(kept, (register, number))| match kept.value {
            Value::Below(depth) if register == Register::RBP => Some((number, depth)),
            _ => None,
        })
    }

    /// Of the registers that have something else in them now, where the caller's value is, in bytes below
    /// the return address.
    pub(super) fn saved(&self) -> impl Iterator<Item = (usize, Option<i64>)> {
        let changed = self.kept.into_iter().zip(KEPT);
        changed
            .filter(|(kept, _)| kept.value != Value::Callers)
            .map(|(kept, (_, number))| (number, kept.saved))
    }

    /// Whether the stack pointer is above where the return address was.
    pub(super) fn has_no_return_address(&self) -> bool {
        self.sp.is_some_and(|sp| sp < 0)
    }

    /// Of `rsp`.
    pub(super) fn sp(&self) -> Option<i64> {
        self.sp
    }

    /// What is so on two ways to the same place. None if they don't agree on where the stack pointer is.
    pub(super) fn met(self, other: Self) -> Option<Self> {
        let mut met = self;
        for (met, other) in met.kept.iter_mut().zip(other.kept) {
            if met.value != other.value {
                met.value = Value::Unknown;
            }
            if met.saved != other.saved {
                met.saved = None;
            }
        }
        (self.sp == other.sp).then_some(met)
    }

    /// After an instruction that is no branch.
    pub(super) fn after(
        mut self,
        instruction: &Instruction,
        info: &mut InstructionInfoFactory,
    ) -> Self {
        if !self.is_about_the_stack(instruction) {
            self.write_whatever(instruction, info);
        }
        // What is below the stack pointer is anybody's.
        for kept in &mut self.kept {
            if self.sp.is_some_and(|sp| kept.saved.is_some_and(|saved| saved > sp)) {
                kept.saved = None;
            }
        }
        self
    }

    /// Does what is known of some instructions; false for any other.
    fn is_about_the_stack(&mut self, instruction: &Instruction) -> bool {
        let to = instruction.op0_register();
        match instruction.code() {
            Code::Push_r64 => {
                self.grow(8);
                if let Some(sp) = self.sp {
                    self.save(to, sp);
                }
                true
            }
            Code::Pop_r64 if to != Register::RSP => {
                let from = self.sp;
                self.grow(-8);
                self.load(to, from);
                true
            }
            Code::Pop_r64 => {
                self.sp = None;
                true
            }
            Code::Leaveq => {
                self.sp = self.of_register(Register::RBP);
                let from = self.sp;
                self.grow(-8);
                self.load(Register::RBP, from);
                true
            }
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => self.moves(instruction),
            Code::Lea_r64_m => {
                let address = self.of_memory(instruction);
                self.set(to, address)
            }
            Code::Add_rm64_imm8
            | Code::Add_rm64_imm32
            | Code::Sub_rm64_imm8
            | Code::Sub_rm64_imm32
                if instruction.op0_kind() == OpKind::Register && to == Register::RSP =>
            {
                let by = instruction.immediate(1).cast_signed();
                let is_sub = instruction.mnemonic() == Mnemonic::Sub;
                self.grow(if is_sub { by } else { by.saturating_neg() });
                true
            }
            _ => false,
        }
    }

    /// A move of 64 bits.
    fn moves(&mut self, instruction: &Instruction) -> bool {
        match (instruction.op0_kind(), instruction.op1_kind()) {
            (OpKind::Register, OpKind::Register) => {
                let from = self.of_register(instruction.op1_register());
                self.set(instruction.op0_register(), from)
            }
            (OpKind::Memory, OpKind::Register) => {
                if let Some(at) = self.of_memory(instruction) {
                    self.save(instruction.op1_register(), at);
                }
                true
            }
            (OpKind::Register, OpKind::Memory) if instruction.op0_register() != Register::RSP => {
                let from = self.of_memory(instruction);
                self.load(instruction.op0_register(), from);
                true
            }
            _ => false,
        }
    }

    /// Any instruction may write to registers.
    fn write_whatever(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        let is_stack = instruction.is_stack_instruction();
        if is_stack {
            match instruction.mnemonic() {
                Mnemonic::Enter => self.sp = None,
                _ => self.grow(-i64::from(instruction.stack_pointer_increment())),
            }
        }
        for used in info.info(instruction).used_registers() {
            let is_written = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            );
            match used.register().full_register() {
                _ if !is_written => {}
                Register::RSP if !is_stack => self.sp = None,
                register => {
                    if let Some(kept) = self.kept(register) {
                        kept.value = Value::Unknown;
                    }
                }
            }
        }
    }

    fn kept(&mut self, register: Register) -> Option<&mut Kept> {
        let index = KEPT.iter().position(|(kept, _)| *kept == register)?;
        self.kept.get_mut(index)
    }

    fn grow(&mut self, by: i64) {
        self.sp = self.sp.and_then(|sp| sp.checked_add(by));
    }

    /// How far below the return address a register points.
    fn of_register(&mut self, register: Register) -> Option<i64> {
        if register == Register::RSP {
            return self.sp;
        }
        match self.kept(register)?.value {
            Value::Below(depth) => Some(depth),
            Value::Callers | Value::Unknown => None,
        }
    }

    /// The same of an operand in memory.
    fn of_memory(&mut self, instruction: &Instruction) -> Option<i64> {
        let is_plain = instruction.memory_index() == Register::None
            && instruction.segment_prefix() == Register::None;
        let base = self.of_register(instruction.memory_base()).filter(|_| is_plain)?;
        base.checked_sub(instruction.memory_displacement64().cast_signed())
    }

    /// A register gets an address on the stack, or what is not known. False for those that nobody wants to
    /// know of.
    fn set(&mut self, register: Register, depth: Option<i64>) -> bool {
        if register == Register::RSP {
            self.sp = depth;
        } else if let Some(kept) = self.kept(register) {
            kept.value = depth.map_or(Value::Unknown, Value::Below);
        }
        true
    }

    /// A register is written to the stack.
    fn save(&mut self, register: Register, at: i64) {
        for (kept, (number, _)) in self.kept.iter_mut().zip(KEPT) {
            match (number == register, kept.value) {
                (true, Value::Callers) => kept.saved = Some(at),
                // Something else is there now.
                _ if kept.saved == Some(at) => kept.saved = None,
                _ => {}
            }
        }
    }

    /// A register is read from the stack, or from elsewhere.
    fn load(&mut self, register: Register, at: Option<i64>) {
        if let Some(kept) = self.kept(register) {
            let is_own = at.is_some() && kept.saved == at;
            kept.value = if is_own { Value::Callers } else { Value::Unknown };
        }
    }
}
