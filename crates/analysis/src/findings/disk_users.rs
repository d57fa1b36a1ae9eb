//! Who else waited for disks meanwhile. The kernel does not say for whose request a disk made others
//! wait, but who kept it busy waits for it as well.

use std::cmp::Reverse;

use indexmap::IndexMap;
use offwake_recording::units::Nanos;

use crate::{
    blame::{Blame, cause::Cause},
    timeline::WaitIndex,
};

use super::{
    describe::program_name,
    meaning::{KernelWait, Meanings},
    model::FindingLine,
    programs::{ProgramId, ProgramKind, Programs},
};

/// The most programs named.
const MAX_NAMED: usize = 2;
/// Who waited for less than this is not named.
const MIN_TIME: Nanos = Nanos(100_000_000);

/// The time that each program waited for disks, or for the kernel to write back what it wrote.
pub(super) struct DiskUsers(IndexMap<ProgramId, Nanos>);

/// Adds up the disk waits of all programs, the target's and others.
pub(super) fn find(
    blame: &Blame<'_>,
    programs: &Programs<'_>,
    meanings: &mut Meanings<'_>,
) -> DiskUsers {
    let timeline = blame.timeline();
    let mut users: IndexMap<ProgramId, Nanos> = IndexMap::new();
    for n in 0..u32::try_from(blame.recording().waits.len()).unwrap_or(u32::MAX) {
        let wait = WaitIndex(n);
        let (stack, _) = blame.wait_and_waker_stacks(wait);
        let is_disk = blame.cause(wait) == Cause::Disk
            || meanings.kernel_wait(stack) == Some(KernelWait::Writeback);
        let Some(place) = timeline.blocked_interval(wait).filter(|_| is_disk) else { continue };
        let program = programs.program_of_thread(place.thread);
        *users.entry(program).or_default() += place.to.since(place.from);
    }
    DiskUsers(users)
}

/// Returns the line that names who else waited most for disks.
pub(super) fn line(
    users: &DiskUsers,
    own: ProgramId,
    programs: &Programs<'_>,
) -> Option<FindingLine> {
    let mut others: Vec<_> = (users.0.iter())
        .filter(|&(&program, &time)| program != own && time >= MIN_TIME)
        .filter_map(|(&program, &time)| Some((programs.program(program)?, time)))
        .filter(|(program, _)| program.kind == ProgramKind::User)
        .collect();
    others.sort_by_key(|&(_, time)| Reverse(time));
    let named: Vec<String> = (others.iter().take(MAX_NAMED))
        .map(|(program, time)| format!("{} ({time})", program_name(program)))
        .collect();
    (!named.is_empty()).then(|| {
        FindingLine::without_function(
            format!("meanwhile others waited for disks too: {}", named.join(", ")),
            0.0,
            false,
        )
    })
}
