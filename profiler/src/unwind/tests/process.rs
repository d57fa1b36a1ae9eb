//! What a process has mapped.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    sync::Arc,
};

use super::*;

const PAGE: usize = 4096;
const MAX_STACK: usize = 4 << 20;

/// A process of this machine.
pub struct Process {
    pub code: Vec<Code>,
    memory: File,
    files: Vec<Source>,
}

enum Source {
    Path(String),
    Image(Arc<[u8]>),
}

impl Files for Process {
    fn content(&self, module: ModuleId) -> Option<Content> {
        match &self.files[module.0 as usize] {
            Source::Path(path) => File::open(path).ok().map(Content::File),
            Source::Image(image) => Some(Content::Image(Arc::clone(image))),
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
            let file = source.map_or(CodeFile::Memory, |source| {
                let id = *by_name.entry(name.to_owned()).or_insert(this.files.len());
                if id == this.files.len() {
                    this.files.push(source);
                }
                CodeFile::File(ModuleId(id as u32))
            });
            this.code.push(Code { start, end, offset, file });
        }
        this
    }

    /// What lies between two addresses.
    pub fn bytes(&self, start: u64, end: u64) -> Vec<u8> {
        let mut bytes = vec![0; (end - start) as usize];
        self.memory.read_exact_at(&mut bytes, start).unwrap();
        bytes
    }

    /// The stack from an address on, as far as it goes and a little more: what lies behind it can be
    /// gone from one moment to the next.
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

    pub fn unwind(&self, method: Method, registers: Registers, bytes: &[u8]) -> Unwound {
        let copy = StackCopy { registers, bytes, missing: MissingPages::default() };
        let mut unwinder = Unwinder::new(method);
        let cold = unwinder.unwind(&self.code, self, &copy);
        check(&cold, &self.code, &copy);
        assert_eq!(unwinder.unwind(&self.code, self, &copy), cold, "once more, from what is kept");
        assert_eq!(unwinder.shortfalls(), Shortfalls::new());
        cold
    }
}

pub fn hex(number: &str) -> u64 {
    u64::from_str_radix(number.trim_start_matches("0x"), 16).unwrap()
}
