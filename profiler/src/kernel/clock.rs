//! The sampling clock: an event of each CPU. A CPU that goes takes its event along, and so does one that the machine
//! turns off to sleep; when it comes back, nothing strikes on it before there is a new one.

use std::collections::BTreeMap;

use aya::{
    Ebpf,
    maps::{MapData, MapError, PerCpuArray},
    programs::{
        PerfEvent, ProgramError,
        perf_event::{
            PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent,
        },
    },
    util::online_cpus,
};

use super::{Kernel, KernelError};

const PROGRAM: &str = "clock";
const CLOCK_TICKS: &str = "CLOCK_TICKS";

/// The clock of every CPU.
pub(super) struct Clock {
    hz: u32,
    events: BTreeMap<u32, Event>,
    strikes: PerCpuArray<MapData, u64>,
}

/// The clock of one.
struct Event {
    link: PerfEventLinkId,
    /// How often it had struck when it was looked at.
    struck: u64,
}

impl Clock {
    /// Starts it on every CPU that is there.
    pub(super) fn start(ebpf: &mut Ebpf, hz: u32) -> Result<Self, KernelError> {
        let map = ebpf.take_map(CLOCK_TICKS).ok_or(KernelError::Missing(CLOCK_TICKS))?;
        let strikes = PerCpuArray::try_from(map).map_err(uncounted)?;
        let program = program(ebpf)?;
        program.load().map_err(failed("load"))?;
        let mut events = BTreeMap::new();
        for cpu in online()? {
            let link = attach(program, cpu, hz).map_err(failed("attach"))?;
            events.insert(cpu, Event { link, struck: 0 });
        }
        Ok(Self { hz, events, strikes })
    }

    /// Starts it anew where it has not struck since the last time that this was called. A CPU may go
    /// at any moment: what fails now is tried again then.
    fn keep(&mut self, ebpf: &mut Ebpf) -> Result<(), KernelError> {
        let strikes = self.strikes.get(&0, 0).map_err(uncounted)?;
        let program = program(ebpf)?;
        let online = online()?;
        let mut before = std::mem::take(&mut self.events);
        for cpu in online {
            let struck = strikes.get(cpu as usize).copied().unwrap_or(0);
            let event = match before.remove(&cpu) {
                Some(event) if event.struck != struck => Some(event.link),
                silent => {
                    log::debug!("the clock of CPU {cpu} does not strike");
                    if let Some(event) = silent {
                        end(program, event);
                    }
                    attach(program, cpu, self.hz).ok()
                }
            };
            if let Some(link) = event {
                self.events.insert(cpu, Event { link, struck });
            }
        }
        for event in before.into_values() {
            end(program, event);
        }
        Ok(())
    }
}

impl Kernel {
    /// Has the sampling clock strike on CPUs that have come, or come back, since the last time that this was called.
    /// Between two times it is to strike at least once on each.
    ///
    /// # Errors
    ///
    /// If the kernel does not say what there is.
    pub fn keep_clock(&mut self) -> Result<(), KernelError> {
        match &mut self.clock {
            Some(clock) => clock.keep(&mut self.ebpf),
            None => Ok(()),
        }
    }
}

fn program(ebpf: &mut Ebpf) -> Result<&mut PerfEvent, KernelError> {
    let program = ebpf.program_mut(PROGRAM).ok_or(KernelError::Missing(PROGRAM))?;
    program.try_into().map_err(failed("use"))
}

fn attach(program: &mut PerfEvent, cpu: u32, hz: u32) -> Result<PerfEventLinkId, ProgramError> {
    program.attach(
        PerfEventConfig::Software(SoftwareEvent::CpuClock),
        PerfEventScope::AllProcessesOneCpu { cpu },
        SamplePolicy::Frequency(u64::from(hz)),
        false,
    )
}

fn end(program: &mut PerfEvent, event: Event) {
    if let Err(error) = program.detach(event.link) {
        log::debug!("a clock that does not strike can't be taken away: {error}");
    }
}

fn online() -> Result<Vec<u32>, KernelError> {
    online_cpus()
        .map_err(|(_, source)| KernelError::Cpus { path: "/sys/devices/system/cpu/online", source })
}

fn failed(action: &'static str) -> impl Fn(ProgramError) -> KernelError {
    move |source| KernelError::Program { action, program: PROGRAM, source }
}

fn uncounted(source: MapError) -> KernelError {
    KernelError::Map { map: CLOCK_TICKS, source }
}
