//! User stacks: the copies that the kernel half sends, and the places that it is told of.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
};

use aya::{
    Pod,
    maps::{HashMap, MapData, RingBuf},
};
use profiler_ebpf::user_stack::Place;

use super::{Kernel, KernelError};
use crate::recording::decode::PlaceKey;

pub(super) const COPIES: &str = "COPIES";
pub(super) const PLACES: &str = "PLACES";

/// [`Place`] is plain integers; the wrapper is what lets aya know.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct KnownPlace(Place);

// SAFETY: `Place` is `repr(C)`, holds integers alone and has no padding (asserted where it is defined).
unsafe impl Pod for KnownPlace {}

/// The ring of copies, of all CPUs.
pub struct Copies(RingBuf<MapData>);

/// The places that the kernel half knows.
pub struct Places(HashMap<MapData, u64, KnownPlace>);

impl Kernel {
    /// Takes both out of the loaded kernel half.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub fn take_user_stacks(&mut self) -> Result<(Copies, Places), KernelError> {
        let copies = self.ebpf.take_map(COPIES).ok_or(KernelError::Missing(COPIES))?;
        let copies =
            RingBuf::try_from(copies).map_err(|source| KernelError::Map { map: COPIES, source })?;
        let places = self.ebpf.take_map(PLACES).ok_or(KernelError::Missing(PLACES))?;
        let places =
            HashMap::try_from(places).map_err(|source| KernelError::Map { map: PLACES, source })?;
        Ok((Copies(copies), Places(places)))
    }
}

impl Copies {
    /// The oldest copy that is there; none if there is none.
    pub fn next(&mut self) -> Option<impl std::ops::Deref<Target = [u8]> + '_> {
        self.0.next()
    }

    /// A descriptor that can be read from when there is a copy.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: it is the ring's own, which outlives the borrow.
        unsafe { BorrowedFd::borrow_raw(self.0.as_raw_fd()) }.try_clone_to_owned()
    }
}

impl Places {
    /// What is known of a place from now on. False if the kernel has no room for it.
    pub fn know(&mut self, key: PlaceKey, place: &Place) -> bool {
        self.0.insert(key.0, KnownPlace(*place), 0).is_ok()
    }

    /// Nothing is known of this place any more.
    pub fn forget(&mut self, key: PlaceKey) {
        let _absent = self.0.remove(&key.0);
    }
}
