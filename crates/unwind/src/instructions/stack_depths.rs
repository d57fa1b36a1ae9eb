//! What an instruction does to the stack pointer, and to the callee-saved registers.
//!
//! ```text
//!          | return address |  0
//!          | pushed         |  8 bytes below it
//! rsp -->  | room           |  its depth, in bytes below it
//! ```

use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::state::{RBP, RSP};

/// The callee-saved registers, with their DWARF numbers.
const CALLEE_SAVED: [(Register, usize); 6] = [
    (Register::RBX, 3),
    (Register::RBP, RBP),
    (Register::R12, 12),
    (Register::R13, 13),
    (Register::R14, 14),
    (Register::R15, 15),
];

/// What is in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegisterValue {
    /// What the caller had in it.
    Callers,
    /// An address on the stack: bytes below the return address.
    Below(i64),
    Unknown,
}

/// A callee-saved register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CalleeSaved {
    value: RegisterValue,
    /// Where the function saved the caller's value, in bytes below the return address.
    saved: Option<i64>,
}

/// Where the stack pointer and saved registers are, relative to the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackDepths {
    /// How far `rsp` is below the return address.
    sp: Option<i64>,
    registers: [CalleeSaved; CALLEE_SAVED.len()],
}

impl StackDepths {
    /// The depths where a function begins.
    pub(super) const BEGIN: Self = Self {
        sp: Some(0),
        registers: [CalleeSaved { value: RegisterValue::Callers, saved: None }; CALLEE_SAVED.len()],
    };

    /// The register that the return address is found by, and how many bytes it is above that.
    pub(super) fn return_address(&self) -> Option<(usize, i64)> {
        if let Some(sp) = self.sp {
            return Some((RSP, sp));
        }
        self.registers.iter().zip(CALLEE_SAVED).find_map(|(kept, (register, number))| {
            match kept.value {
                RegisterValue::Below(depth) if register == Register::RBP => Some((number, depth)),
                _ => None,
            }
        })
    }

    /// The registers that hold something other than the caller's value, each with where that value
    /// is saved, in bytes below the return address.
    pub(super) fn saved(&self) -> impl Iterator<Item = (usize, Option<i64>)> {
        let changed = self.registers.into_iter().zip(CALLEE_SAVED);
        changed
            .filter(|(kept, _)| kept.value != RegisterValue::Callers)
            .map(|(kept, (_, number))| (number, kept.saved))
    }

    /// Whether the stack pointer is above where the return address was.
    pub(super) fn has_no_return_address(&self) -> bool {
        self.sp.is_some_and(|sp| sp < 0)
    }

    /// How far `rsp` is below the return address, if that is known.
    pub(super) fn sp(&self) -> Option<i64> {
        self.sp
    }

    /// What holds on two paths to the same instruction. None if they don't agree on the stack
    /// pointer.
    pub(super) fn merge(self, other: Self) -> Option<Self> {
        let mut met = self;
        for (met, other) in met.registers.iter_mut().zip(other.registers) {
            if met.value != other.value {
                met.value = RegisterValue::Unknown;
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
        if !self.apply_stack_instruction(instruction) {
            self.apply_other(instruction, info);
        }
        // Anybody may overwrite what is below the stack pointer.
        for kept in &mut self.registers {
            if self.sp.is_some_and(|sp| kept.saved.is_some_and(|saved| saved > sp)) {
                kept.saved = None;
            }
        }
        self
    }

    /// Applies an instruction that the stack pointer or saved registers depend on. False for any
    /// other.
    fn apply_stack_instruction(&mut self, instruction: &Instruction) -> bool {
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
                self.sp = self.depth_in_register(Register::RBP);
                let from = self.sp;
                self.grow(-8);
                self.load(Register::RBP, from);
                true
            }
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => self.apply_move(instruction),
            Code::Lea_r64_m => {
                let address = self.depth_in_memory(instruction);
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

    /// Applies a move of 64 bits.
    fn apply_move(&mut self, instruction: &Instruction) -> bool {
        match (instruction.op0_kind(), instruction.op1_kind()) {
            (OpKind::Register, OpKind::Register) => {
                let from = self.depth_in_register(instruction.op1_register());
                self.set(instruction.op0_register(), from)
            }
            (OpKind::Memory, OpKind::Register) => {
                if let Some(at) = self.depth_in_memory(instruction) {
                    self.save(instruction.op1_register(), at);
                }
                true
            }
            (OpKind::Register, OpKind::Memory) if instruction.op0_register() != Register::RSP => {
                let from = self.depth_in_memory(instruction);
                self.load(instruction.op0_register(), from);
                true
            }
            _ => false,
        }
    }

    /// Applies any other instruction, which may write to registers.
    fn apply_other(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
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
                    if let Some(kept) = self.callee_saved(register) {
                        kept.value = RegisterValue::Unknown;
                    }
                }
            }
        }
    }

    fn callee_saved(&mut self, register: Register) -> Option<&mut CalleeSaved> {
        let index = CALLEE_SAVED.iter().position(|(kept, _)| *kept == register)?;
        self.registers.get_mut(index)
    }

    fn grow(&mut self, by: i64) {
        self.sp = self.sp.and_then(|sp| sp.checked_add(by));
    }

    /// How far below the return address a register points.
    fn depth_in_register(&mut self, register: Register) -> Option<i64> {
        if register == Register::RSP {
            return self.sp;
        }
        match self.callee_saved(register)?.value {
            RegisterValue::Below(depth) => Some(depth),
            RegisterValue::Callers | RegisterValue::Unknown => None,
        }
    }

    /// How far below the return address an operand in memory lies.
    fn depth_in_memory(&mut self, instruction: &Instruction) -> Option<i64> {
        let is_plain = instruction.memory_index() == Register::None
            && instruction.segment_prefix() == Register::None;
        let base = self.depth_in_register(instruction.memory_base()).filter(|_| is_plain)?;
        base.checked_sub(instruction.memory_displacement64().cast_signed())
    }

    /// Sets a register to an address on the stack, or to an unknown value.
    fn set(&mut self, register: Register, depth: Option<i64>) -> bool {
        if register == Register::RSP {
            self.sp = depth;
        } else if let Some(kept) = self.callee_saved(register) {
            kept.value = depth.map_or(RegisterValue::Unknown, RegisterValue::Below);
        }
        true
    }

    /// Records that a register is written to the stack.
    fn save(&mut self, register: Register, at: i64) {
        for (kept, (number, _)) in self.registers.iter_mut().zip(CALLEE_SAVED) {
            match (number == register, kept.value) {
                (true, RegisterValue::Callers) => kept.saved = Some(at),
                // The instruction overwrites what was saved there.
                _ if kept.saved == Some(at) => kept.saved = None,
                _ => {}
            }
        }
    }

    /// Records that a register is read from the stack, or from elsewhere.
    fn load(&mut self, register: Register, at: Option<i64>) {
        if let Some(kept) = self.callee_saved(register) {
            let is_own = at.is_some() && kept.saved == at;
            kept.value = if is_own { RegisterValue::Callers } else { RegisterValue::Unknown };
        }
    }
}
