//! What each wait and each way to sleep means, found before the waits are walked: a few thousand meanings
//! stand for millions of hops.

use std::collections::{BTreeSet, HashMap};

use offwake_recording::{FileId, SocketRole, units::Tgid};

use crate::{
    blame::{
        Blame, FrameEvidence, GroupId, HopDetail, HopGroups, SleepId, StackPairId, Stop,
        cause::{self, Cause, WaitedOn},
    },
    label::LabelFinder,
    timeline::{NamedThread, ThreadIndex, WaitIndex},
};

use super::{
    coroutines::find_coroutines,
    meaning::{Meanings, SharedMeaning},
    programs::{ProgramId, ProgramKind, Programs},
    stopped::StoppedProcesses,
};

/// Identifies a meaning within one [`WaitMeanings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct MeaningId(u32);

impl MeaningId {
    /// Nothing is known of a sleep.
    pub(super) const NONE: Self = Self(0);
}

/// The kernel's threads that deliver packets which their senders' CPUs had no time for.
const DELIVERS_PACKETS: &str = "ksoftirqd";

/// The meanings of a recording's waits, and the programs of its threads.
pub(crate) struct WaitMeanings<'a> {
    pub(super) blame: &'a Blame<'a>,
    pub(super) programs: Programs<'a>,
    pub(super) meanings: Meanings<'a>,
    /// By [`MeaningId`].
    list: Vec<Option<SharedMeaning>>,
    /// By the index of a wait's pattern.
    by_pattern: Vec<PatternMeaning>,
    /// By [`SleepId::index`].
    by_sleep: Vec<MeaningId>,
    /// Of all ways to sleep that mean the same the first, by [`SleepId::index`].
    representatives: Vec<SleepId>,
    /// Of all threads of a program the first, by [`ThreadIndex`].
    program_leaders: Vec<ThreadIndex>,
    kernel_waits: KernelWaits,
    pub(super) stopped: StoppedProcesses,
}

/// Whether findings are also about threads of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelWaits {
    LeftOut,
    /// The target has no others.
    Included,
}

/// What decides on the meaning of a wait.
type RootTraits =
    (Cause, StackPairId, Option<SocketRole>, FrameEvidence, Option<Stop>, Option<u32>);

impl<'a> WaitMeanings<'a> {
    pub(crate) fn new(blame: &'a Blame<'a>) -> Self {
        let (recording, timeline) = (blame.recording(), blame.timeline());
        let programs = Programs::new(recording, timeline);
        let labels = LabelFinder::new(&recording.stacks);
        let mut meanings = Meanings::new(blame.stacks(), blame.sleeps(), labels);
        meanings.coroutines = find_coroutines(blame, &mut meanings);
        let mut numbers = Numbers::default();
        let mut by_sleep = Vec::new();
        let mut representatives: Vec<SleepId> = Vec::new();
        let mut first_with: HashMap<MeaningId, SleepId> = HashMap::new();
        for sleep in blame.sleeps().ids() {
            let meaning = numbers.number(meanings.sleep(sleep));
            by_sleep.push(meaning);
            representatives.push(*first_with.entry(meaning).or_insert(sleep));
        }
        let by_pattern = number_patterns(blame, &mut meanings, &mut numbers);
        let leads_with_user_programs = timeline.threads.iter().zip(0..).any(|(thread, n)| {
            let program = programs.program(programs.program_of_thread(ThreadIndex(n)));
            thread.in_target && program.is_some_and(|known| known.kind == ProgramKind::User)
        });
        let kernel_waits = match leads_with_user_programs {
            true => KernelWaits::LeftOut,
            false => KernelWaits::Included,
        };
        let list = numbers.list;
        let mut first_of: HashMap<ProgramId, ThreadIndex> = HashMap::new();
        let program_leaders = (0..)
            .map(ThreadIndex)
            .take(timeline.threads.len())
            .map(|thread| *first_of.entry(programs.program_of_thread(thread)).or_insert(thread))
            .collect();
        Self {
            blame,
            programs,
            meanings,
            list,
            by_pattern,
            by_sleep,
            representatives,
            program_leaders,
            kernel_waits,
            stopped: StoppedProcesses::find(blame),
        }
    }

    /// Returns what hops have to tell.
    pub(crate) fn hop_detail(&self) -> HopDetail<'_> {
        HopDetail::Groups(self)
    }

    /// Returns what hops have to tell a reader who does not add up by groups.
    pub(crate) fn sleep_detail(&self) -> HopDetail<'_> {
        HopDetail::Sleeps(&self.representatives)
    }

    /// Returns whether findings leave the waits of a program out.
    pub(super) fn is_left_out(&self, program: ProgramId) -> bool {
        self.kernel_waits == KernelWaits::LeftOut
            && self.programs.program(program).is_none_or(|known| known.kind == ProgramKind::Kernel)
    }

    /// Returns whether a program only passes on what others have sent: a chain goes through it, and who
    /// waited waited for the sender.
    pub(super) fn is_messenger(&self, program: ProgramId) -> bool {
        self.programs.program(program).is_some_and(|known| {
            known.kind == ProgramKind::Kernel && known.name == DELIVERS_PACKETS
        })
    }

    /// Returns how the thread of a wait slept.
    pub(super) fn meaning_of_wait(&self, wait: WaitIndex) -> MeaningId {
        let row = self.blame.recording().waits.rows().get(wait.0 as usize);
        let pattern = row.and_then(|row| self.by_pattern.get(row.pattern.index()));
        pattern.map_or(MeaningId::NONE, |pattern| pattern.meaning)
    }

    /// Returns the file that a wait was on.
    pub(super) fn file_of_wait(&self, wait: WaitIndex) -> Option<FileId> {
        let row = self.blame.recording().waits.rows().get(wait.0 as usize)?;
        self.by_pattern.get(row.pattern.index())?.file
    }

    /// Returns what a way to sleep means.
    pub(super) fn meaning_of_sleep(&self, sleep: SleepId) -> MeaningId {
        self.by_sleep.get(sleep.index()).copied().unwrap_or(MeaningId::NONE)
    }

    /// Returns the process of a thread that slept like this if that is told apart from others of its
    /// program: it is not in the target, and waited for somebody to answer.
    ///
    /// Of the threads in a queue for a lock it does not matter who comes first. A service that another one
    /// asks is another matter, whatever both run; in the target, a finding is about both of them.
    pub(super) fn find_process_apart(&self, thread: ThreadIndex, slept: MeaningId) -> Option<Tgid> {
        let meaning = self.get(slept)?;
        let waits_for_answer = matches!(meaning.cause, Cause::Poll | Cause::Socket | Cause::Pipe)
            && meaning.lock().is_none();
        let thread = self.blame.timeline().thread(thread)?;
        (waits_for_answer && !thread.in_target).then_some(thread.tgid)
    }

    /// Returns a meaning; none for [`MeaningId::NONE`].
    pub(super) fn get(&self, id: MeaningId) -> Option<&SharedMeaning> {
        self.list.get(id.0 as usize)?.as_ref()
    }

    /// Returns whether a thread slept that is one coroutine's own.
    pub(super) fn is_of_own_coroutine(&self, id: MeaningId) -> bool {
        self.get(id).is_some_and(|slept| slept.evidence == FrameEvidence::OwnCoroutine)
    }

    /// Returns the stopped processes that have the other end of what a wait was on.
    pub(super) fn stopped_peers(&self, wait: WaitIndex) -> BTreeSet<Tgid> {
        if self.stopped.is_empty() {
            return BTreeSet::new();
        }
        let on = self.state_and_object(wait).and_then(|(_, on)| on);
        self.stopped.at_other_end(self.blame, on)
    }

    /// Returns the letter of a wait's state, and what it was on.
    pub(super) fn state_and_object(&self, wait: WaitIndex) -> Option<(char, Option<WaitedOn>)> {
        let whole = self.blame.recording().waits.get(wait.0 as usize)?;
        let on = cause::waited_on(&whole, self.blame.cause(wait));
        Some((whole.state.letter(), on))
    }
}

impl HopGroups for WaitMeanings<'_> {
    fn find_representative(&self, sleep: SleepId) -> SleepId {
        self.representatives.get(sleep.index()).copied().unwrap_or(SleepId::NONE)
    }

    fn find_program_leader(&self, thread: ThreadIndex) -> ThreadIndex {
        self.program_leaders.get(thread.0 as usize).copied().unwrap_or(thread)
    }

    fn group_of_waiter(&self, wait: WaitIndex, waiter: NamedThread) -> GroupId {
        let program = self.programs.program_under_name(waiter).number();
        let meaning = self.meaning_of_wait(wait);
        let process = self.find_process_apart(waiter.thread, meaning);
        GroupId { program, meaning: meaning.0, process }
    }

    fn has_ends_of_group(&self, wait: WaitIndex) -> bool {
        // The timer of a coroutine is the waiter's own.
        !self.is_of_own_coroutine(self.meaning_of_wait(wait))
    }

    fn group_of_hop(&self, thread: NamedThread, slept: SleepId) -> Option<GroupId> {
        let meaning = self.meaning_of_sleep(slept);
        (meaning != MeaningId::NONE).then(|| GroupId {
            program: self.programs.program_under_name(thread).number(),
            meaning: meaning.0,
            process: self.find_process_apart(thread.thread, meaning),
        })
    }
}

/// Gives each meaning a number.
struct Numbers {
    list: Vec<Option<SharedMeaning>>,
    known: HashMap<SharedMeaning, MeaningId>,
}

impl Default for Numbers {
    fn default() -> Self {
        // The first stands for `MeaningId::NONE`.
        Self { list: vec![None], known: HashMap::new() }
    }
}

impl Numbers {
    fn number(&mut self, meaning: Option<SharedMeaning>) -> MeaningId {
        let Some(meaning) = meaning else { return MeaningId::NONE };
        let Self { list, known } = self;
        *known.entry(meaning).or_insert_with_key(|meaning| {
            list.push(Some(meaning.clone()));
            MeaningId(u32::try_from(list.len() - 1).unwrap_or(0))
        })
    }
}

/// What the waits of one pattern mean.
#[derive(Clone, Copy)]
struct PatternMeaning {
    meaning: MeaningId,
    /// The file that they were on.
    file: Option<FileId>,
}

/// Returns what the waits of each pattern mean.
fn number_patterns(
    blame: &Blame<'_>,
    meanings: &mut Meanings<'_>,
    numbers: &mut Numbers,
) -> Vec<PatternMeaning> {
    let recording = blame.recording();
    let waits = &recording.waits;
    let mut by_pattern: Vec<Option<PatternMeaning>> = vec![None; waits.patterns().len()];
    let mut by_traits: HashMap<RootTraits, MeaningId, foldhash::fast::RandomState> =
        HashMap::default();
    for (row, n) in waits.rows().iter().zip(0..) {
        let Some(known @ None) = by_pattern.get_mut(row.pattern.index()) else { continue };
        let Some(wait) = waits.get(n as usize) else { continue };
        let index = WaitIndex(n);
        let cause = blame.cause(index);
        let (stack, _) = blame.wait_and_waker_stacks(index);
        let file = match cause::waited_on(&wait, cause) {
            Some(WaitedOn::File { file, .. }) => Some(file),
            _ => None,
        };
        let role = file.and_then(|file| recording.files.role(file));
        let evidence = blame.frame_evidence(index);
        let stop = blame.stop_of_wait(index);
        let filesystem = blame.filesystem_of_wait(index);
        let traits = (cause, stack, role, evidence, stop, filesystem);
        let meaning = *by_traits
            .entry(traits)
            .or_insert_with(|| numbers.number(Some(meanings.wait(blame, index, role))));
        *known = Some(PatternMeaning { meaning, file });
    }
    let unknown = PatternMeaning { meaning: MeaningId::NONE, file: None };
    by_pattern.into_iter().map(|pattern| pattern.unwrap_or(unknown)).collect()
}
