//! Telling the kernel half how much detail to record.

use aya::{
    Ebpf, Pod,
    maps::{Array, MapData, MapError},
};
use profiler_ebpf::detail::Detail;

use super::KernelError;

const NAME: &str = "DETAIL";

/// [`Detail`] as aya writes it: the wrapper can be [`Pod`].
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodDetail(Detail);

// SAFETY: `Detail` is `repr(C)`, holds integers alone and has no padding (asserted where it is defined).
unsafe impl Pod for PodDetail {}

/// Tells the kernel half how much detail to record; any thread may.
pub struct DetailControl(Array<MapData, PodDetail>);

impl DetailControl {
    /// Takes the map out of the loaded kernel half.
    pub(super) fn from_ebpf(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let map = ebpf.take_map(NAME).ok_or(KernelError::Missing(NAME))?;
        Ok(Self(Array::try_from(map).map_err(failed)?))
    }

    /// Has this much detail recorded from now on.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set(&mut self, detail: Detail) -> Result<(), KernelError> {
        self.0.set(0, PodDetail(detail), 0).map_err(failed)
    }
}

fn failed(source: MapError) -> KernelError {
    KernelError::Map { map: NAME, source }
}
