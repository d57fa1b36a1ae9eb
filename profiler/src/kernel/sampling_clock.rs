//! The sampling clock: a perf event on each CPU. A CPU that goes offline takes its event along, and
//! so does one that the machine turns off to sleep; when it comes back, it needs a new event.

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

/// What runs when the clock ticks.
pub(super) const PROGRAM: &str = "clock";
const CLOCK_TICKS: &str = "CLOCK_TICKS";

/// The clocks of all CPUs.
pub(super) struct SamplingClock {
    hz: u32,
    events: BTreeMap<u32, CpuClock>,
    ticks: PerCpuArray<MapData, u64>,
}

/// The clock of one CPU.
struct CpuClock {
    link: PerfEventLinkId,
    /// How often it had ticked at the last check.
    ticks: u64,
}

impl SamplingClock {
    /// Starts the clock on every CPU that is online. Its program is loaded.
    pub(super) fn start(ebpf: &mut Ebpf, hz: u32) -> Result<Self, KernelError> {
        let map = ebpf.take_map(CLOCK_TICKS).ok_or(KernelError::Missing(CLOCK_TICKS))?;
        let ticks = PerCpuArray::try_from(map).map_err(map_error)?;
        let program = program(ebpf)?;
        let mut events = BTreeMap::new();
        for cpu in online_cpu_list()? {
            let link = attach(program, cpu, hz).map_err(failed("attach"))?;
            events.insert(cpu, CpuClock { link, ticks: 0 });
        }
        Ok(Self { hz, events, ticks })
    }

    /// Starts the clock anew where it has not ticked since the last call. A CPU may go offline at
    /// any moment: what fails now is tried again with the next call.
    fn restart_silent(&mut self, ebpf: &mut Ebpf) -> Result<(), KernelError> {
        let ticks = self.ticks.get(&0, 0).map_err(map_error)?;
        let program = program(ebpf)?;
        let online = online_cpu_list()?;
        let mut before = std::mem::take(&mut self.events);
        for cpu in online {
            let now = ticks.get(cpu as usize).copied().unwrap_or(0);
            let event = match before.remove(&cpu) {
                Some(event) if event.ticks != now => Some(event.link),
                silent => {
                    log::debug!("the clock of CPU {cpu} does not strike");
                    if let Some(event) = silent {
                        detach(program, event);
                    }
                    attach(program, cpu, self.hz).ok()
                }
            };
            if let Some(link) = event {
                self.events.insert(cpu, CpuClock { link, ticks: now });
            }
        }
        for event in before.into_values() {
            detach(program, event);
        }
        Ok(())
    }
}

impl Kernel {
    /// Starts the sampling clock on CPUs that have come, or come back, since the last call. Call it
    /// seldom enough that the clock ticks at least once on each CPU in between.
    ///
    /// # Errors
    ///
    /// If the kernel does not say what there is.
    pub fn restart_silent_clocks(&mut self) -> Result<(), KernelError> {
        match &mut self.clock {
            Some(clock) => clock.restart_silent(&mut self.ebpf),
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

fn detach(program: &mut PerfEvent, event: CpuClock) {
    if let Err(error) = program.detach(event.link) {
        log::debug!("a clock that does not strike can't be taken away: {error}");
    }
}

pub(super) fn online_cpu_list() -> Result<Vec<u32>, KernelError> {
    online_cpus()
        .map_err(|(_, source)| KernelError::Cpus { path: "/sys/devices/system/cpu/online", source })
}

fn failed(action: &'static str) -> impl Fn(ProgramError) -> KernelError {
    move |source| KernelError::Program { action, program: PROGRAM, source }
}

fn map_error(source: MapError) -> KernelError {
    KernelError::Map { map: CLOCK_TICKS, source }
}
