//! Processes of this machine, unwound from their own memory. The profiler's tests include this file
//! too.

use std::{
    arch::asm,
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    ptr,
    sync::Arc,
};

use offwake_recording::{AddressKind, ModuleId, loss::Diagnostics};
use offwake_unwind::{
    CodeBacking, CodeMapping, FileContent, MAX_FRAMES, Method, MissingPages, ModuleFiles,
    Registers, StackCopy, Unwinder, UnwoundFrame, UnwoundStack, find_mapping,
};

const PAGE: usize = 4096;
const MAX_STACK: usize = 4 << 20;

/// A process of this machine.
pub struct Process {
    pub code: Vec<CodeMapping>,
    memory: File,
    files: Vec<Source>,
}

enum Source {
    Path(String),
    Image(Arc<[u8]>),
}

impl ModuleFiles for Process {
    fn content(&self, module: ModuleId) -> Option<FileContent> {
        match &self.files[module.0 as usize] {
            Source::Path(path) => File::open(path).ok().map(FileContent::File),
            Source::Image(image) => Some(FileContent::Image(Arc::clone(image))),
        }
    }
}

impl Process {
    /// By its number, or `self`.
    pub fn new(process: &str) -> Self {
        let memory = File::open(format!("/proc/{process}/mem")).unwrap();
        let mut this = Self { code: vec![], memory, files: vec![] };
        let mut by_name = HashMap::new();
        for line in fs::read_to_string(format!("/proc/{process}/maps")).unwrap().lines() {
            let mut fields = line.split_whitespace();
            let (start, end) = fields.next().unwrap().split_once('-').unwrap();
            let (start, end) = (hex(start), hex(end));
            let permissions = fields.next().unwrap();
            let offset = hex(fields.next().unwrap());
            let name = fields.nth(2).unwrap_or_default();
            if !permissions.contains('x') || name == "[vsyscall]" {
                continue;
            }
            let source = match name {
                "[vdso]" => Some(Source::Image(this.bytes(start, end).into())),
                path if path.starts_with('/') => Some(Source::Path(path.to_owned())),
                _ => None,
            };
            let backing = source.map_or(CodeBacking::Memory, |source| {
                let id = *by_name.entry(name.to_owned()).or_insert(this.files.len());
                if id == this.files.len() {
                    this.files.push(source);
                }
                CodeBacking::File(ModuleId(id as u32))
            });
            this.code.push(CodeMapping { start, end, offset, backing });
        }
        this
    }

    /// What lies between two addresses.
    pub fn bytes(&self, start: u64, end: u64) -> Vec<u8> {
        let mut bytes = vec![0; (end - start) as usize];
        self.memory.read_exact_at(&mut bytes, start).unwrap();
        bytes
    }

    /// The stack from an address on, as far as it goes and a little more: what lies behind it can
    /// be gone from one moment to the next.
    pub fn stack(&self, sp: u64) -> Vec<u8> {
        let mut stack = Vec::new();
        let mut page = [0; PAGE];
        while stack.len() < MAX_STACK {
            let at = sp + stack.len() as u64;
            let page = &mut page[at as usize % PAGE..];
            if self.memory.read_exact_at(page, at).is_err() {
                break;
            }
            stack.extend_from_slice(page);
        }
        stack
    }

    pub fn unwind(&self, method: Method, registers: Registers, bytes: &[u8]) -> UnwoundStack {
        let copy = StackCopy { registers, red_zone: &[], bytes, missing: MissingPages::default() };
        let mut unwinder = Unwinder::new(method);
        let cold = unwinder.unwind(&self.code, self, &copy);
        check(&cold, &self.code, &copy);
        assert_eq!(unwinder.unwind(&self.code, self, &copy), cold, "once more, from what is kept");
        assert_eq!(unwinder.diagnostics(), &Diagnostics::new());
        cold
    }
}

pub fn hex(number: &str) -> u64 {
    u64::from_str_radix(number.trim_start_matches("0x"), 16).unwrap()
}

/// Checks what holds of every unwound stack, whatever it was unwound from.
pub fn check(unwound: &UnwoundStack, code: &[CodeMapping], copy: &StackCopy) {
    let frames = &unwound.frames;
    assert!((1..=MAX_FRAMES).contains(&frames.len()));
    let (address, kind) = (copy.registers.ip, AddressKind::Instruction);
    assert_eq!(frames[0], UnwoundFrame { address, kind, stack_offset: None });
    for frame in &frames[1..] {
        assert!(find_mapping(code, frame.address - frame.kind.before()).is_some(), "{frame:x?}");
    }
    let mut above = 0;
    for frame in frames {
        let Some(at) = frame.stack_offset else { continue };
        assert!(at as usize >= above && at % 8 == 0, "{at} after {above}");
        above = at as usize + 8;
        let word = copy.bytes[at as usize..].first_chunk().unwrap();
        assert_eq!(u64::from_le_bytes(*word), frame.address);
    }
}

/// A stack of this process.
pub struct OwnStack {
    pub process: Process,
    pub registers: Registers,
    /// The stack from the stack pointer on.
    pub bytes: Vec<u8>,
    /// The addresses that the C library finds, leaf first: the first one is another instruction of
    /// the same function.
    pub truth: Vec<u64>,
}

/// The stack of whoever calls this.
#[inline(never)]
fn capture() -> OwnStack {
    let (ip, sp, fp);
    // SAFETY: registers are read and nothing else is done.
    unsafe {
        asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) ip, out(reg) sp, out(reg) fp,
             options(nostack, preserves_flags));
    }
    let process = Process::new("self");
    let bytes = process.stack(sp);
    let mut truth = vec![ptr::null_mut(); 256];
    // SAFETY: it writes as many addresses as it is told to, at most.
    let count = unsafe { libc::backtrace(truth.as_mut_ptr(), 256) };
    truth.truncate(usize::try_from(count).unwrap());
    let truth = truth.into_iter().map(|address| address as u64).collect();
    OwnStack { process, registers: Registers { ip, sp, fp }, bytes, truth }
}

impl OwnStack {
    pub fn unwind(&self, method: Method) -> UnwoundStack {
        self.process.unwind(method, self.registers, &self.bytes)
    }
}

/// The stack of so many functions more than its caller's.
#[inline(never)]
pub fn capture_deep(depth: u32) -> OwnStack {
    // Not the same at each depth, and no tail call.
    let room = std::hint::black_box([depth; 50]);
    let own = if depth == 0 { capture() } else { capture_deep(depth - 1) };
    std::hint::black_box(room);
    own
}
