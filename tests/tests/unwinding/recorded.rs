//! What offwake records of a program.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use offwake_recording::{Frame, Recording, Stack, StackEnd, StackRef, Wait, stream};
use offwake_tests::{
    offwake::{Offwake, Outcome},
    programs::Program,
};

/// More than any of these recordings takes.
const MEMORY: usize = 1 << 30;

/// How often each thread is roused: the first time its stack is new, later it is recognised.
const ROUSED: u32 = 4;

/// A recording of a program.
pub struct Recorded(pub Recording);

impl Recorded {
    /// Records while every thread of a program is roused and goes to sleep again. The last wait of
    /// each is one that still goes on.
    pub fn while_asleep(program: &Program, method: &str) -> Result<Self> {
        Self::during(program, &["--unwind", method], || {
            for _ in 0..ROUSED {
                program.wake_all()?;
            }
            Ok(())
        })
    }

    /// Records a program while something happens.
    pub fn during(
        program: &Program,
        arguments: &[&str],
        happens: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let pids: Vec<_> = program.pids()?.iter().map(u32::to_string).collect();
        let offwake = Offwake::record()?
            .args(["-p", &pids.join(","), "-o", "x.offwake"])
            .args(arguments)
            .start_recording()?;
        happens()?;
        Self::from_outcome(&offwake.interrupt()?)
    }

    /// Records for two seconds what goes on.
    pub fn for_a_while(arguments: &[&str]) -> Result<Self> {
        let offwake = Offwake::record()?.args(["-d", "2s", "-o", "x.offwake"]);
        Self::from_outcome(&offwake.args(arguments).run()?)
    }

    fn from_outcome(outcome: &Outcome) -> Result<Self> {
        ensure!(outcome.status.success(), "{outcome}");
        let bytes = fs::read(outcome.path("x.offwake"))?;
        let recording = stream::read(&bytes[..], MEMORY)?;
        ensure!(recording.loss.records == 0, "records were lost: {:?}", recording.loss);
        Ok(Self(recording))
    }

    /// A stack that a record refers to.
    pub fn stack(&self, stack: StackRef) -> Result<&Stack> {
        let StackRef::Id(id) = stack else { anyhow::bail!("no stack was taken: {stack:?}") };
        self.0.stacks.stacks.get(&id).with_context(|| format!("stack {id:?} did not arrive"))
    }

    /// The frames of a stack, leaf first.
    pub fn frames<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a Frame> {
        stack.frames.iter().filter_map(|id| self.0.stacks.frames.get(id))
    }

    /// The frames of a stack that a processor runs, without those of an interpreter.
    pub fn native_frames<'a>(&'a self, stack: &'a Stack) -> impl Iterator<Item = &'a Frame> {
        let is_native = |frame: &&Frame| {
            self.0.stacks.module_of(frame).is_none_or(|module| module.path != "[python]")
        };
        self.frames(stack).filter(is_native)
    }

    /// The functions of a stack, from its leaf to its root.
    pub fn functions<'a>(&'a self, stack: &'a Stack) -> Vec<&'a str> {
        self.frames(stack).flat_map(Frame::names).collect()
    }

    /// The newest wait of each thread.
    pub fn last_waits(&self) -> BTreeMap<u32, Wait> {
        self.0.waits.iter().map(|wait| (wait.tid.0, wait)).collect()
    }

    /// How many of these stacks end in each way; those that are not there are `None`.
    pub fn ends(
        &self,
        stacks: impl IntoIterator<Item = StackRef>,
    ) -> BTreeMap<Option<StackEnd>, u32> {
        let mut ends = BTreeMap::new();
        for stack in stacks {
            let end = self.stack(stack).ok().map(|stack| stack.end);
            *ends.entry(end).or_default() += 1;
        }
        ends
    }
}
