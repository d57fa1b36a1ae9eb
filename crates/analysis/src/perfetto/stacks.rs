//! Stacks: of threads that were on a CPU, that waited, and that woke others.

use std::{
    collections::{BTreeMap, HashMap},
    io,
};

use offwake_recording::{
    FrameId, Module, ModuleId, StackRef, StackTable,
    units::{Cpu, Tgid, Tid, Timestamp},
};

use crate::{blame::WakeSource, frames, text};

use super::{
    LimitedTrace,
    messages::{
        Callstack, Data, Frame, InternedBytes, InternedData, InternedString, Interval, Mapping,
        PerfSample, PerfSampleDefaults, Timebase, TracePacketDefaults, Tracepoint,
    },
    packets::{Packets, Sequence},
};

/// A stack, whose it was, and where and when it was taken.
struct StackSample {
    at: Timestamp,
    cpu: Cpu,
    tid: Tid,
    tgid: Tgid,
    user: StackRef,
    kernel: StackRef,
}

/// Writes stacks, and returns how many samples there was no room for.
pub(super) fn write(trace: LimitedTrace<'_>, packets: &mut Packets<'_>) -> io::Result<u64> {
    let recording = trace.blame.recording();
    let stacks = &recording.stacks;
    let hz = u64::from(recording.meta.sample_hz.max(1));
    let mut samples =
        StackWriter::begin(Sequence::Samples, "on-CPU", Interval::Frequency(hz), packets)?;
    let window = recording.meta.window;
    // The clock strikes from before the window on.
    let inside = |at| window.start <= at && at < window.end;
    let samples_inside = || recording.samples.iter().filter(|sample| inside(sample.at));
    let all = samples_inside().count();
    // Some of each stretch of time, as many of one thread as of another.
    let every_nth = all.div_ceil(trace.limits.samples.max(1)).max(1);
    for sample in samples_inside().step_by(every_nth) {
        let taken = StackSample {
            at: sample.at,
            cpu: sample.cpu,
            tid: sample.tid,
            tgid: sample.tgid,
            user: sample.user_stack,
            kernel: sample.kernel_stack,
        };
        samples.write(stacks, &taken, packets)?;
    }
    let every = Interval::Period(1);
    let mut waits = StackWriter::begin(Sequence::Waits, "off-CPU", every, packets)?;
    let mut wakes = StackWriter::begin(Sequence::Wakes, "wakes", every, packets)?;
    let mut woken = Vec::new();
    for (index, row, place) in trace.shown_waits() {
        let Some(wait) = recording.waits.get(index.0 as usize) else { continue };
        let waited = StackSample {
            at: place.from,
            cpu: row.off_cpu,
            tid: wait.tid,
            tgid: wait.tgid,
            user: wait.user_stack,
            kernel: wait.kernel_stack,
        };
        waits.write(stacks, &waited, packets)?;
        if let (WakeSource::Task(task), Some(wake)) = (trace.blame.wake_source(index), wait.wake) {
            let woke = StackSample {
                at: wake.at,
                cpu: wake.cpu,
                tid: task.tid,
                tgid: task.tgid,
                user: wake.user_stack,
                kernel: wake.kernel_stack,
            };
            woken.push(woke);
        }
    }
    // Waits are in the order of their beginnings.
    woken.sort_by_key(|woke| woke.at);
    woken.iter().try_for_each(|woke| wakes.write(stacks, woke, packets))?;
    Ok((all - all.div_ceil(every_nth)) as u64)
}

/// The mapping of frames that have none: Perfetto leaves out frames without a mapping.
const UNMAPPED_ADDRESS: u64 = 1;

/// Writes stacks, and keeps what its sequence has interned so far.
struct StackWriter {
    sequence: Sequence,
    names: HashMap<String, u64>,
    modules: BTreeMap<ModuleId, u64>,
    /// A frame is several with what was inlined into it.
    frames: HashMap<FrameId, Vec<u64>>,
    next_frame: u64,
    stacks: HashMap<(StackRef, StackRef), Option<u64>>,
    /// The number of stacks so far on each CPU.
    samples_by_cpu: BTreeMap<Cpu, u64>,
}

impl StackWriter {
    fn begin(
        sequence: Sequence,
        name: &str,
        interval: Interval,
        packets: &mut Packets<'_>,
    ) -> io::Result<Self> {
        let timebase = Timebase {
            name: Some(name.to_owned()),
            interval: Some(interval),
            // Perfetto wants something that was counted; the name says what it is.
            tracepoint: Some(Tracepoint { name: Some(format!("offwake:{name}")) }),
        };
        let defaults = TracePacketDefaults {
            perf_sample_defaults: Some(PerfSampleDefaults { timebase: Some(timebase) }),
        };
        packets.begin(sequence, defaults)?;
        Ok(Self {
            sequence,
            names: HashMap::new(),
            modules: BTreeMap::new(),
            frames: HashMap::new(),
            next_frame: 1,
            stacks: HashMap::new(),
            samples_by_cpu: BTreeMap::new(),
        })
    }

    /// Writes one sample; nothing if neither half of the stack is there.
    fn write(
        &mut self,
        table: &StackTable,
        taken: &StackSample,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let mut interned = InternedData::default();
        let Some(stack) = self.intern_stack(table, (taken.user, taken.kernel), &mut interned)
        else {
            return Ok(());
        };
        let count = self.samples_by_cpu.entry(taken.cpu).or_default();
        *count += 1;
        let sample = PerfSample {
            cpu: Some(u32::from(taken.cpu.0)),
            pid: Some(taken.tgid.0),
            tid: Some(taken.tid.0),
            timebase_count: Some(*count),
            callstack_iid: Some(stack),
        };
        packets.send_with(self.sequence, taken.at, Data::PerfSample(sample), Some(interned))
    }

    fn intern_stack(
        &mut self,
        table: &StackTable,
        halves: (StackRef, StackRef),
        interned: &mut InternedData,
    ) -> Option<u64> {
        if let Some(&known) = self.stacks.get(&halves) {
            return known;
        }
        let mut frame_ids = Vec::new();
        for half in [halves.0, halves.1] {
            let StackRef::Id(id) = half else { continue };
            let Some(stack) = table.stacks.get(&id) else { continue };
            for &frame in stack.frames.iter().rev() {
                frame_ids.extend_from_slice(self.intern_frame(table, frame, interned));
            }
        }
        let iid = (!frame_ids.is_empty()).then_some(self.stacks.len() as u64 + 1);
        self.stacks.insert(halves, iid);
        if iid.is_some() {
            interned.callstacks.push(Callstack { iid, frame_ids });
        }
        iid
    }

    fn intern_frame(
        &mut self,
        table: &StackTable,
        id: FrameId,
        interned: &mut InternedData,
    ) -> &[u64] {
        if !self.frames.contains_key(&id) {
            let frame = table.frames.get(&id);
            let names = frame.map_or_else(
                || vec![frames::UNKNOWN.to_owned()],
                |frame| frames::frame_texts(table, frame),
            );
            let module = frame.and_then(|frame| frame.module);
            let mapping =
                self.intern_mapping(module, module.and_then(|id| table.modules.get(&id)), interned);
            let rel_pc = frame.and_then(|frame| frame.module_offset);
            let mut iids = Vec::with_capacity(names.len());
            for name in names {
                let function = self.intern_name(&name, interned);
                interned.frames.push(Frame {
                    iid: Some(self.next_frame),
                    function_name_id: Some(function),
                    mapping_id: Some(mapping),
                    rel_pc,
                });
                iids.push(self.next_frame);
                self.next_frame += 1;
            }
            self.frames.insert(id, iids);
        }
        self.frames.get(&id).map_or(&[], Vec::as_slice)
    }

    fn intern_name(&mut self, name: &str, interned: &mut InternedData) -> u64 {
        let iid = self.names.len() as u64 + 1;
        let entry = self.names.entry(name.to_owned());
        *entry.or_insert_with(|| {
            interned.function_names.push(interned_string(iid, text::plain(name)));
            iid
        })
    }

    fn intern_mapping(
        &mut self,
        id: Option<ModuleId>,
        module: Option<&Module>,
        interned: &mut InternedData,
    ) -> u64 {
        let (Some(id), Some(module)) = (id, module) else {
            // Said whenever it is used: to say the same again does no harm.
            interned.mappings.push(Mapping { iid: Some(UNMAPPED_ADDRESS), ..Mapping::default() });
            return UNMAPPED_ADDRESS;
        };
        let iid = self.modules.len() as u64 + UNMAPPED_ADDRESS + 1;
        *self.modules.entry(id).or_insert_with(|| {
            interned.mapping_paths.push(interned_string(iid, text::plain(&module.path)));
            let build_id = module.build_id.as_ref().map(|build_id| {
                interned
                    .build_ids
                    .push(InternedBytes { iid: Some(iid), str: Some(build_id.bytes().to_vec()) });
                iid
            });
            interned.mappings.push(Mapping {
                iid: Some(iid),
                build_id,
                path_string_ids: vec![iid],
            });
            iid
        })
    }
}

fn interned_string(iid: u64, text: String) -> InternedString {
    InternedString { iid: Some(iid), str: Some(text) }
}
