//! Where a function's code leaves it: each return, and each jump to another function that returns in
//! its place.
//!
//! The kernel can report the return of a function by itself, and puts an address of its own in place
//! of the return address for that. Then stacks end at that function, and a C++ exception that
//! passes it ends the program. So each instruction that returns is followed instead, and a function
//! is refused if that can't be told of one of its jumps:
//!
//! | instruction | leaves the function |
//! |---|---|
//! | `ret` | yes |
//! | `jmp` within the function and its parts, any conditional jump within them | no |
//! | `jmp` to the first instruction of a function, or to a stub of the linker's | yes |
//! | `jmp` by a table of places within the function | no |
//! | `jmp` by a pointer that is in no table, where the return address is on top of the stack by the unwind data | yes |
//! | another jump through a register or memory, or to anywhere else | unknown |

use std::{collections::BTreeSet, ops::Range};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// Bytes of one function at most.
pub(super) const MAX_SIZE: u64 = 1 << 20;
/// A table is read a few instructions before the jump by it.
const TABLE_DISTANCE: usize = 6;

/// A stretch of a function's code.
pub(super) struct Part<'data> {
    pub address: u64,
    pub code: &'data [u8],
}

impl Part<'_> {
    fn range(&self) -> Range<u64> {
        self.address..self.address.saturating_add(self.code.len() as u64)
    }
}

/// The addresses of the instructions that leave the function whose parts these are, its own first
/// instruction in the first. None if they can't be told. `is_function` says of an address whether a
/// function begins there, `is_flat` whether the return address is on top of the stack there, and
/// `read_word` what the file has there.
pub(super) fn find_returns(
    parts: &[Part<'_>],
    is_function: impl Fn(u64) -> bool,
    is_flat: impl Fn(u64) -> bool,
    read_word: impl Fn(u64) -> Option<u64>,
) -> Option<BTreeSet<u64>> {
    let begin = parts.first()?.address;
    let is_inside = |address: u64| parts.iter().any(|part| part.range().contains(&address));
    let (mut boundaries, mut targets, mut returns) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for part in parts {
        let mut before: Vec<Instruction> = Vec::new();
        for instruction in Decoder::with_ip(64, part.code, part.address, DecoderOptions::NONE) {
            if instruction.is_invalid() {
                return None;
            }
            boundaries.insert(instruction.ip());
            match instruction.flow_control() {
                FlowControl::Return => {
                    returns.insert(instruction.ip());
                }
                FlowControl::UnconditionalBranch => {
                    let target = instruction.near_branch64();
                    // To its own beginning: it leaves, and is called anew.
                    if target == begin || (!is_inside(target) && is_function(target)) {
                        returns.insert(instruction.ip());
                    } else if is_inside(target) {
                        targets.insert(target);
                    } else {
                        return None;
                    }
                }
                FlowControl::ConditionalBranch => {
                    let target = instruction.near_branch64();
                    if target == begin || !is_inside(target) {
                        return None;
                    }
                    targets.insert(target);
                }
                FlowControl::IndirectBranch => {
                    let leaves = match find_way(&instruction, &before)? {
                        Way::Distances => false,
                        // A program may have a table of functions, too.
                        Way::Addresses(table) => {
                            let first = read_word(table)?;
                            if !is_inside(first) && !is_function(first) {
                                return None;
                            }
                            !is_inside(first)
                        }
                        Way::Pointer => true,
                    };
                    if leaves && !is_flat(instruction.ip()) {
                        return None;
                    }
                    if leaves {
                        returns.insert(instruction.ip());
                    }
                }
                // A system call goes on behind itself.
                FlowControl::Exception | FlowControl::Interrupt | FlowControl::XbeginXabortXend => {
                }
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
            }
            before.push(instruction);
        }
    }
    // Where a jump leads into the middle of an instruction, what was decoded is not the code: a
    // breakpoint there would break it.
    targets.is_subset(&boundaries).then_some(returns)
}

/// What a jump goes by.
enum Way {
    /// A table of distances, which only compilers make, and only of places within a function.
    Distances,
    /// A table of addresses, which is here.
    Addresses(u64),
    /// An address that is in no table.
    Pointer,
}

/// What a jump goes by: `jmp *TABLE(,%rax,8)`, or `jmp *%rax` behind the same as a `mov`, or
/// behind `movslq (%rdx,%rax,4),%rax` and `add %rdx,%rax`. None if that can't be told.
fn find_way(jump: &Instruction, before: &[Instruction]) -> Option<Way> {
    let by_memory = |it: &Instruction| match (it.memory_base(), it.memory_index()) {
        (_, Register::None) => Some(Way::Pointer),
        (Register::None, _) if it.memory_index_scale() == 8 => {
            Some(Way::Addresses(it.memory_displacement64()))
        }
        _ => None,
    };
    if jump.op0_kind() == OpKind::Memory {
        return by_memory(jump);
    }
    let target = jump.op0_register();
    let recent = || before.iter().rev().take(TABLE_DISTANCE);
    let is_write = |it: &&Instruction| {
        let is_read_alone =
            matches!(it.mnemonic(), Mnemonic::Test | Mnemonic::Cmp | Mnemonic::Push);
        let is_target =
            it.op0_kind() == OpKind::Register && it.op0_register().full_register() == target;
        is_target && !is_read_alone
    };
    let Some(last) = recent().find(is_write) else {
        let is_untouched = !before.iter().any(|it| is_write(&it));
        return (is_untouched && ARGUMENTS.contains(&target)).then_some(Way::Pointer);
    };
    match last.mnemonic() {
        Mnemonic::Mov if last.op1_kind() == OpKind::Memory => by_memory(last),
        // An argument of the function, which it has been handed.
        Mnemonic::Mov if last.op1_kind() == OpKind::Register => {
            ARGUMENTS.contains(&last.op1_register()).then_some(Way::Pointer)
        }
        Mnemonic::Add => {
            let mut reads = recent().filter(|it| it.code() == Code::Movsxd_r64_rm32);
            let of_distances =
                |it: &Instruction| it.op1_kind() == OpKind::Memory && it.memory_index_scale() == 4;
            reads.any(of_distances).then_some(Way::Distances)
        }
        _ => None,
    }
}

/// The registers that functions get arguments in.
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 0x1000;
    /// A function that others have.
    const OTHER: u64 = 0x2000;
    /// A table of places in the function, and one of functions.
    const TABLE: u64 = 0x4000;
    const FUNCTIONS: u64 = 0x5000;

    /// The returns of a function of one part, counted from its beginning.
    fn returns(code: &[u8]) -> Option<Vec<u64>> {
        returns_of(&[Part { address: BEGIN, code }])
    }

    fn returns_of(parts: &[Part<'_>]) -> Option<Vec<u64>> {
        returns_where(parts, 0)
    }

    /// The same of a function with its return address on top of the stack until an address.
    fn returns_where(parts: &[Part<'_>], flat_until: u64) -> Option<Vec<u64>> {
        let read_word = |address| match address {
            TABLE => Some(BEGIN),
            FUNCTIONS => Some(OTHER),
            _ => None,
        };
        let is_function = |address| address == OTHER;
        let found = find_returns(parts, is_function, |address| address < flat_until, read_word)?;
        Some(found.into_iter().map(|address| address - BEGIN).collect())
    }

    #[test]
    fn each_return_leaves() {
        // test edi,edi; je +3; xor eax,eax; ret; push rbx; pop rbx; ret
        let code = [0x85, 0xff, 0x74, 0x03, 0x31, 0xc0, 0xc3, 0x53, 0x5b, 0xc3];
        assert_eq!(returns(&code), Some(vec![6, 9]));
    }

    #[test]
    fn a_jump_leaves_if_a_function_begins_there() {
        let jump = |to: u64| {
            let distance = to.wrapping_sub(BEGIN + 5) as u32;
            let mut code = vec![0xe9];
            code.extend(distance.to_le_bytes());
            code
        };
        assert_eq!(returns(&jump(OTHER)), Some(vec![0]));
        assert_eq!(returns(&jump(OTHER + 1)), None);
        // To itself: it is called anew.
        assert_eq!(returns(&jump(BEGIN)), Some(vec![0]));
        // A condition may not hold, and then it does not leave.
        let distance = (OTHER - BEGIN - 6) as u32;
        let conditional = [&[0x0f, 0x84][..], &distance.to_le_bytes()].concat();
        assert_eq!(returns(&conditional), None);
    }

    #[test]
    fn a_part_elsewhere_belongs_to_the_function() {
        // je to the part; ret. The part: jmp back to the ret.
        let cold = 0x3000;
        let distance = (cold - BEGIN - 6) as u32;
        let hot = [&[0x0f, 0x84][..], &distance.to_le_bytes(), &[0xc3]].concat();
        let back = (BEGIN + 6).wrapping_sub(cold + 5) as u32;
        let part = [&[0xe9][..], &back.to_le_bytes()].concat();
        let hot = Part { address: BEGIN, code: &hot };
        assert_eq!(returns_of(&[hot, Part { address: cold, code: &part }]), Some(vec![6]));
    }

    #[test]
    fn a_jump_through_a_register_is_known_only_behind_a_table() {
        // movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax; ret
        let table = [0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0, 0xc3];
        assert_eq!(returns(&table), Some(vec![9]));
        // notrack jmp *0x4000(,%rdi,8); ret
        let of_addresses = [0x3e, 0xff, 0x24, 0xfd, 0x00, 0x40, 0, 0, 0xc3];
        assert_eq!(returns(&of_addresses), Some(vec![8]));
        // mov 0x4000(,%rdi,8),%rax; jmp *%rax; ret
        let read_first = [0x48, 0x8b, 0x04, 0xfd, 0x00, 0x40, 0, 0, 0xff, 0xe0, 0xc3];
        assert_eq!(returns(&read_first), Some(vec![10]));
        // The same by a table of functions.
        assert_eq!(returns(&[0x3e, 0xff, 0x24, 0xfd, 0x00, 0x50, 0, 0, 0xc3]), None);
        // jmp *%rax; jmp *0x18(%rax): what was called last returns in this one's place, or not.
        assert_eq!(returns(&[0xff, 0xe0]), None);
        assert_eq!(returns(&[0xff, 0x60, 0x18]), None);
        // mov (%rdi),%rax; jmp *%rax: a method of an object.
        assert_eq!(returns(&[0x48, 0x8b, 0x07, 0xff, 0xe0]), None);
    }

    #[test]
    fn a_jump_by_a_pointer_leaves_where_the_return_address_is_on_top_of_the_stack() {
        let flat = |code: &[u8]| returns_where(&[Part { address: BEGIN, code }], u64::MAX);
        // mov (%rdi),%rax; jmp *%rax
        assert_eq!(flat(&[0x48, 0x8b, 0x07, 0xff, 0xe0]), Some(vec![3]));
        // The same with test %rax,%rax in between.
        assert_eq!(flat(&[0x48, 0x8b, 0x07, 0x48, 0x85, 0xc0, 0xff, 0xe0]), Some(vec![6]));
        // jmp *0x18(%rax)
        assert_eq!(flat(&[0xff, 0x60, 0x18]), Some(vec![0]));
        // mov %rdi,%rax; jmp *%rax
        assert_eq!(flat(&[0x48, 0x89, 0xf8, 0xff, 0xe0]), Some(vec![3]));
        // mov %esi,%edi; jmp *%rdx
        assert_eq!(flat(&[0x89, 0xf7, 0xff, 0xe2]), Some(vec![2]));
        // By a table of functions.
        assert_eq!(flat(&[0x3e, 0xff, 0x24, 0xfd, 0x00, 0x50, 0, 0]), Some(vec![0]));
        // By one that is known at run time alone, by a sum, and by what nobody tells.
        assert_eq!(flat(&[0xff, 0x24, 0xc1]), None);
        assert_eq!(flat(&[0x48, 0x01, 0xd0, 0xff, 0xe0]), None);
        assert_eq!(flat(&[0xff, 0xe0]), None);
        // A table of places within the function does not leave it.
        let table = [0x3e, 0xff, 0x24, 0xfd, 0x00, 0x40, 0, 0, 0xc3];
        assert_eq!(flat(&table), Some(vec![8]));
    }

    #[test]
    fn what_is_no_code_is_refused() {
        assert_eq!(returns(&[0x06, 0xc3]), None);
        // A jump into the middle of the instruction behind it.
        assert_eq!(returns(&[0x74, 0x01, 0xb8, 0, 0, 0, 0, 0xc3]), None);
        assert_eq!(returns_of(&[]), None);
    }
}
