//! Reading the counters of what was lost.

use aya::{
    Ebpf, Pod,
    maps::{MapData, MapError, PerCpuArray},
};
use offwake_recording::{LossTotals, units::Timestamp};
use profiler_ebpf::loss::{Loss, LossCounters};

use super::{KernelError, program_timer::ProgramInfo};

const NAME: &str = "LOSSES";

/// Every kind of loss with the name of its counter.
const NAMES: &[(Loss, &str)] = &[
    (Loss::RingFullWait, "ring_full_wait"),
    (Loss::RingFullPreemption, "ring_full_preemption"),
    (Loss::RingFullThread, "ring_full_thread"),
    (Loss::RingFullExit, "ring_full_exit"),
    (Loss::RingFullSample, "ring_full_sample"),
    (Loss::RingFullStack, "ring_full_stack"),
    (Loss::UserStackFailed, "user_stack_failed"),
    (Loss::KernelStackFailed, "kernel_stack_failed"),
    (Loss::KernelStackUnsettled, "kernel_stack_unsettled"),
    (Loss::ProgramSkipped, "program_skipped"),
    (Loss::StackIdCollision, "stack_id_collision"),
    (Loss::StorageFailed, "storage_failed"),
    (Loss::StandInFull, "stand_in_full"),
    (Loss::TargetsFull, "targets_full"),
    (Loss::SwitchInUnmatched, "switch_in_unmatched"),
    (Loss::SwitchInMissed, "switch_in_missed"),
    (Loss::WakeUnmatched, "wake_unmatched"),
    (Loss::TimeBackwards, "time_backwards"),
    (Loss::SwitchOutMissed, "switch_out_missed"),
    (Loss::ThreadsFull, "threads_full"),
    (Loss::RingFullCopy, "ring_full_copy"),
    (Loss::RingFullMarker, "ring_full_marker"),
    (Loss::MarkerUnreadable, "marker_unreadable"),
    (Loss::MarkerOverRate, "marker_over_rate"),
    (Loss::RingFullTags, "ring_full_tags"),
    (Loss::TagsBeingWritten, "tags_being_written"),
    (Loss::TagsRefused, "tags_refused"),
    (Loss::LabelsCut, "labels_cut"),
    (Loss::RingFullFileLock, "ring_full_file_lock"),
    (Loss::FileLockOverRate, "file_lock_over_rate"),
];

/// [`LossCounters`] as aya reads it: the wrapper can be [`Pod`].
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodCounters(LossCounters);

// SAFETY: `LossCounters` is `repr(C)` and holds `u64`s alone.
unsafe impl Pod for PodCounters {}

/// Reads what was lost; any thread may.
pub struct LossReader {
    counters: PerCpuArray<MapData, PodCounters>,
    programs: Vec<ProgramInfo>,
}

impl LossReader {
    /// Takes the counters out of the loaded kernel half.
    pub(super) fn from_ebpf(ebpf: &mut Ebpf) -> Result<Self, KernelError> {
        let map = ebpf.take_map(NAME).ok_or(KernelError::Missing(NAME))?;
        let counters = PerCpuArray::try_from(map).map_err(failed)?;
        let programs = ebpf.programs().filter_map(|(_, program)| ProgramInfo::new(program));
        Ok(Self { counters, programs: programs.collect() })
    }

    /// Adds up the counters of all CPUs.
    ///
    /// # Errors
    ///
    /// If the kernel does not hand them out.
    pub fn read(&self) -> Result<LossTotals, KernelError> {
        let per_cpu = self.counters.get(&0, 0).map_err(failed)?;
        let mut totals = LossTotals::default();
        for &(loss, name) in NAMES {
            let mut count: u64 = per_cpu.iter().map(|cpu| cpu.0.counts[loss as usize]).sum();
            if matches!(loss, Loss::ProgramSkipped) {
                count += self.skipped_runs();
            }
            if count == 0 {
                continue;
            }
            totals.counters.insert(name.to_owned(), count);
            match loss {
                Loss::RingFullWait
                | Loss::RingFullPreemption
                | Loss::RingFullThread
                | Loss::RingFullExit
                | Loss::RingFullSample
                | Loss::RingFullMarker
                | Loss::RingFullFileLock => totals.records += count,
                Loss::RingFullStack
                | Loss::UserStackFailed
                | Loss::KernelStackFailed
                | Loss::RingFullCopy => totals.stacks += count,
                // These cost neither a record nor a stack of those that were asked for; the report
                // lists them by name.
                Loss::KernelStackUnsettled
                | Loss::ProgramSkipped
                | Loss::StackIdCollision
                | Loss::StorageFailed
                | Loss::StandInFull
                | Loss::TargetsFull
                | Loss::SwitchInUnmatched
                | Loss::SwitchInMissed
                | Loss::WakeUnmatched
                | Loss::TimeBackwards
                | Loss::SwitchOutMissed
                | Loss::ThreadsFull
                | Loss::MarkerUnreadable
                | Loss::MarkerOverRate
                | Loss::RingFullTags
                | Loss::TagsBeingWritten
                | Loss::TagsRefused
                | Loss::LabelsCut
                | Loss::FileLockOverRate => {}
            }
        }
        let full = || per_cpu.iter().filter(|cpu| cpu.0.ring_full_first_ns != 0);
        totals.ring_full = full()
            .map(|cpu| cpu.0.ring_full_first_ns)
            .min()
            .zip(full().map(|cpu| cpu.0.ring_full_last_ns).max())
            .map(|(first, last)| (Timestamp(first), Timestamp(last)));
        Ok(totals)
    }

    /// How often the kernel did not run a program because it was running on that CPU already
    /// (`recursion_misses` in the program's fdinfo, 5.12 and later).
    fn skipped_runs(&self) -> u64 {
        self.programs.iter().filter_map(|program| program.number("recursion_misses")).sum()
    }
}

fn failed(source: MapError) -> KernelError {
    KernelError::Map { map: NAME, source }
}

#[cfg(test)]
mod tests {
    use profiler_ebpf::loss::LOSS_KINDS;

    use super::NAMES;

    #[test]
    fn every_loss_has_a_name() {
        assert_eq!(NAMES.len(), LOSS_KINDS);
        for (index, (loss, _)) in NAMES.iter().enumerate() {
            assert_eq!(*loss as usize, index);
        }
    }
}
