//! Memory whose pages are read once: what runtimes keep lies close together, and each question to the
//! process that reads takes as long as many reads.

use std::{cell::RefCell, collections::HashMap};

use crate::{reader_process::PAGE, symbols::python::memory::Memory};

/// The most pages that are read: 16 MiB.
const MAX_PAGES: usize = 4_096;

type Page = Option<Box<[u8; PAGE]>>;

/// What other memory has, page by page, as it was when it was first asked for.
pub(super) struct Pages<'m, M> {
    memory: &'m M,
    known: RefCell<HashMap<u64, Page>>,
}

impl<'m, M: Memory> Pages<'m, M> {
    pub(super) fn new(memory: &'m M) -> Self {
        Self { memory, known: RefCell::default() }
    }

    /// Copies what there is of a page from `within` on; returns how many bytes that are.
    fn copy(&self, page: u64, within: usize, into: &mut [u8]) -> Option<usize> {
        let mut known = self.known.borrow_mut();
        if !known.contains_key(&page) {
            if known.len() >= MAX_PAGES {
                return None;
            }
            let mut bytes = Box::new([0; PAGE]);
            let read = self.memory.read(page.checked_mul(PAGE as u64)?, bytes.as_mut_slice());
            known.insert(page, read.map(|()| bytes));
        }
        let bytes = known.get(&page)?.as_ref()?.get(within..)?;
        let length = bytes.len().min(into.len());
        into.get_mut(..length)?.copy_from_slice(bytes.get(..length)?);
        Some(length)
    }
}

impl<M: Memory> Memory for Pages<'_, M> {
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let (mut at, mut rest) = (address, into);
        while !rest.is_empty() {
            let within = usize::try_from(at % PAGE as u64).ok()?;
            let copied = self.copy(at / PAGE as u64, within, rest)?;
            at = at.checked_add(copied as u64)?;
            rest = rest.get_mut(copied..)?;
        }
        Some(())
    }
}
