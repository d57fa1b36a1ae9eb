//! Attaching the program that makes markers of functions and probes.
//!
//! All of them are plain breakpoints; the cookie says which it is. Nothing is attached to returns of
//! functions by itself (`crates/unwind/src/elf/function_returns.rs` says why).
//!
//! aya attaches such programs too, but knows no counters: a program with one looks at it, and does not
//! get to its probe while it is 0.

use std::{
    ffi::CString,
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    str::FromStr,
};

use aya::{
    Pod,
    maps::{Array, MapError},
    programs::UProbe,
};
use aya_obj::generated::{
    bpf_attach_type::BPF_PERF_EVENT, bpf_cmd::BPF_LINK_CREATE, perf_event_attr,
};
use offwake_unwind::elf::probe_points::PointKind;
use profiler_ebpf::marker::{self, TEXT_LEN, marker_kind, probe_cookie};

use super::{Kernel, KernelError, sampling_clock::online_cpu_list};
use crate::marker_probes::MarkerProbe;

const PROGRAM: &str = "marker_probe";
/// The map of their texts, which has as many entries as there are places.
pub(super) const TEXTS: &str = "MARKER_PROBES";
/// What the kernel says of such events.
const EVENT_SOURCE: &str = "/sys/bus/event_source/devices/uprobe";

/// [`marker::MarkerProbe`] is plain bytes; the wrapper is what lets aya know.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodMarkerProbe(marker::MarkerProbe);

// SAFETY: `MarkerProbe` is `repr(C)`, holds integers alone and has no padding (asserted where it is defined).
unsafe impl Pod for PodMarkerProbe {}

/// Attaches to every place. The links are what keeps them attached.
pub(super) fn attach(
    kernel: &mut Kernel,
    probes: &[MarkerProbe],
) -> Result<Vec<OwnedFd>, KernelError> {
    let Some(first) = probes.first() else { return Ok(Vec::new()) };
    fill_texts(kernel, probes)?;
    let failed = |action| move |source| KernelError::Program { action, program: PROGRAM, source };
    let program = kernel.ebpf.program_mut(PROGRAM).ok_or(KernelError::Missing(PROGRAM))?;
    let program: &mut UProbe = program.try_into().map_err(failed("use"))?;
    program.load().map_err(failed("load"))?;
    let program = program.fd().map_err(failed("use"))?.as_fd();
    let refused = |probe: &MarkerProbe| {
        let words = probe.words.clone();
        move |error| KernelError::Probe { words, error }
    };
    let events = EventSource::read().map_err(refused(first))?;
    let cpu = online_cpu_list()?.first().copied().unwrap_or(0);
    // What ends a range comes first: else a range that begins in between would never end.
    let mut links = Vec::new();
    for (probe, cookie) in order(probes) {
        let event = events.open(probe, cpu).map_err(refused(probe))?;
        links.push(link(program, event.as_fd(), cookie).map_err(refused(probe))?);
    }
    Ok(links)
}

/// What is attached to each place, and in which order.
fn order(probes: &[MarkerProbe]) -> impl Iterator<Item = (&MarkerProbe, u64)> {
    let kinds = [
        (PointKind::End, marker_kind::END),
        (PointKind::Begin, marker_kind::BEGIN),
        (PointKind::Instant, marker_kind::INSTANT),
    ];
    kinds.into_iter().flat_map(move |(wanted, kind)| {
        let of_kind = (0..).zip(probes).filter(move |(_, probe)| probe.point.kind == wanted);
        of_kind.map(move |(index, probe)| (probe, probe_cookie(index, kind)))
    })
}

fn fill_texts(kernel: &mut Kernel, probes: &[MarkerProbe]) -> Result<(), KernelError> {
    let failed = |source: MapError| KernelError::Map { map: TEXTS, source };
    let map = kernel.map_mut(TEXTS)?;
    let mut texts: Array<_, PodMarkerProbe> = Array::try_from(map).map_err(failed)?;
    for (index, probe) in (0..).zip(probes) {
        let mut text = [0; TEXT_LEN];
        let kept = probe.text.len().min(TEXT_LEN - 1);
        text[..kept].copy_from_slice(&probe.text.as_bytes()[..kept]);
        let text_len = kept as u32 + 1;
        let entry = PodMarkerProbe(marker::MarkerProbe { text, text_len, unused: 0 });
        texts.set(index, entry, 0).map_err(failed)?;
    }
    Ok(())
}

/// What the kernel calls its events at instructions of programs, and where their options are.
struct EventSource {
    kind: u32,
    /// The lowest bit of the counter's offset.
    counter_bit: u32,
}

impl EventSource {
    fn read() -> io::Result<Self> {
        Ok(Self {
            kind: read_number("type", "")?,
            counter_bit: read_number("format/ref_ctr_offset", "config:")?,
        })
    }

    /// Makes an event of all processes.
    fn open(&self, probe: &MarkerProbe, cpu: u32) -> io::Result<OwnedFd> {
        // By the descriptor, so that it is the very file in which the place was found.
        let path = format!("/proc/self/fd/{}", probe.file.as_raw_fd());
        let path = CString::new(path).map_err(io::Error::other)?;
        let counter = probe.point.semaphore.unwrap_or(0);
        let counter = u32::try_from(counter).map_err(io::Error::other)?;
        // SAFETY: zeroes are a value of it: integers alone.
        let mut attributes: perf_event_attr = unsafe { std::mem::zeroed() };
        attributes.size = size_of::<perf_event_attr>() as u32;
        attributes.type_ = self.kind;
        attributes.config = u64::from(counter) << self.counter_bit;
        attributes.__bindgen_anon_3.config1 = path.as_ptr() as u64;
        attributes.__bindgen_anon_4.config2 = probe.point.offset;
        const EVERY_PROCESS: libc::pid_t = -1;
        const NO_GROUP: libc::c_int = -1;
        // The program runs on all CPUs, whichever the event is of.
        // SAFETY: the kernel reads `attributes`, and the path that they lead to; both are there until
        // the call returns.
        let event = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                EVERY_PROCESS,
                cpu,
                NO_GROUP,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        owned(event)
    }
}

/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/perf_event.h>
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Reads a number: `config:32-63` has 32 behind `config:`.
fn read_number<T: FromStr>(file: &str, before: &str) -> io::Result<T> {
    let path = format!("{EVENT_SOURCE}/{file}");
    let because = |what: &dyn std::fmt::Display| {
        io::Error::other(format!(
            "this kernel has no uprobes as offwake uses them ({path}: {what})"
        ))
    };
    let text = fs::read_to_string(&path).map_err(|error| because(&error))?;
    let number = text.trim().strip_prefix(before).and_then(|text| text.split('-').next());
    number.and_then(|text| text.parse().ok()).ok_or_else(|| because(&text.trim()))
}

/// The part of `union bpf_attr` that this command reads
/// ([`bpf.h`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h#L1758)).
#[repr(C)]
struct LinkRequest {
    program: i32,
    event: i32,
    kind: u32,
    flags: u32,
    cookie: u64,
}

/// Has the program run at an event.
fn link(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let mut request = LinkRequest {
        program: program.as_raw_fd(),
        event: event.as_raw_fd(),
        kind: BPF_PERF_EVENT as u32,
        flags: 0,
        cookie,
    };
    // SAFETY: the kernel reads `request`, which is there until the call returns.
    let link = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_CREATE as libc::c_int,
            &raw mut request,
            size_of::<LinkRequest>(),
        )
    };
    owned(link)
}

/// The descriptor that a system call returned, or its error.
fn owned(returned: libc::c_long) -> io::Result<OwnedFd> {
    match libc::c_int::try_from(returned) {
        // SAFETY: the kernel has just made it, for nobody else.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
