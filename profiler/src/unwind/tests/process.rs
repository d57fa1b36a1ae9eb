//! What a process has mapped.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::FileExt,
    sync::Arc,
};

use super::*;

/// A process of this machine.
pub struct Process {
    pub code: Vec<Code>,
    memory: File,
    files: Vec<Source>,
    /// First addresses and those behind the last of what can be read.
    readable: Vec<(u64, u64)>,
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
        let mut this = Self { code: vec![], memory, files: vec![], readable: vec![] };
        let mut by_name = HashMap::new();
        for line in fs::read_to_string(format!("/proc/{process}/maps")).unwrap().lines() {
            let mut fields = line.split_whitespace();
            let (start, end) = fields.next().unwrap().split_once('-').unwrap();
            let (start, end) = (hex(start), hex(end));
            let permissions = fields.next().unwrap();
            let offset = hex(fields.next().unwrap());
            let name = fields.nth(2).unwrap_or_default();
            if permissions.starts_with('r') {
                this.readable.push((start, end));
            }
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

    /// The stack from an address on, as far as it goes.
    pub fn stack(&self, sp: u64) -> Vec<u8> {
        let &(_, end) =
            self.readable.iter().find(|&&(start, end)| start <= sp && sp < end).unwrap();
        self.bytes(sp, end)
    }

    pub fn unwind(&self, method: Method, registers: Registers, bytes: &[u8]) -> Unwound {
        let copy = StackCopy { registers, bytes };
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
