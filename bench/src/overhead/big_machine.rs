//! A machine that we do not have: what the measured figures come to on 256 CPUs with 7 million
//! switches a second.

use std::thread::available_parallelism;

use profiler_ebpf::record::WaitRecord;

use super::{
    full_speed::FullSpeed,
    growth::Growth,
    per_switch::{PerSwitch, ProgramSet},
    setup::OverheadSetup,
};
use crate::process::megabytes;
use xtask::markdown_table::MarkdownTable;

const CPUS: f64 = 256.0;
const SWITCHES: f64 = 7e6;

/// What the kernel puts before each entry of a ring; entries begin at multiples of it.
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/bpf.h#L1497>
const RING_HEADER: usize = 8;

/// What all rings together get by default (`--ring-size`), and how often they are emptied.
const RINGS: f64 = 128.0 * 1024.0 * 1024.0;
const DRAIN_SECONDS: f64 = 0.01;

/// By calculation. Every switch counts as a wait with its record, which is the most that there can
/// be: a switch that leaves a thread runnable has a smaller one.
pub fn table(
    setup: &OverheadSetup,
    per_switch: &PerSwitch,
    full_speed: &FullSpeed,
    growth: &Growth,
) -> Option<String> {
    let ns = per_switch.ns(ProgramSet::Offwake(setup.default_mode()))?.median;
    let maps = growth.maps()?;
    let entry = RING_HEADER + size_of::<WaitRecord>().next_multiple_of(RING_HEADER);
    let ring_bytes = SWITCHES * entry as f64;
    let mut table = MarkdownTable::new(["what", "how", "comes to"]);
    let mut row = |what: &str, how: String, comes_to: String| {
        table.push_row([what.to_owned(), how, comes_to]);
    };
    row(
        "BPF programs",
        format!("7 M/s × {ns:.0} ns / 256 CPUs"),
        format!("{:.2} % of each CPU", 100.0 * SWITCHES * ns / (CPUS * 1e9)),
    );
    row(
        "bytes through the rings",
        format!("7 M/s × {entry} bytes"),
        format!("{:.2} GB/s", ring_bytes / 1e9),
    );
    row(
        "user half",
        format!("7 M/s × {:.0} ns a wait", full_speed.own_ns_per_wait()),
        format!("{:.1} cores", SWITCHES * full_speed.own_ns_per_wait() / 1e9),
    );
    row(
        "the recording",
        format!("7 M/s × {:.1} bytes a wait", full_speed.bytes_per_wait()),
        format!("{:.0} MB/s", SWITCHES * full_speed.bytes_per_wait() / 1e6),
    );
    row(
        "rings",
        "128 MiB over all CPUs, the default".to_owned(),
        format!(
            "full after {:.0} ms, emptied every {:.0} ms",
            1e3 * RINGS / ring_bytes,
            1e3 * DRAIN_SECONDS
        ),
    );
    // One CPU's share of those that every CPU has its own of.
    let per_cpu = maps.per_cpu as f64 / available_parallelism().map_or(1.0, |n| n.get() as f64);
    row(
        "maps without rings",
        format!("{:.1} MB, and {:.1} kB for each CPU", megabytes(maps.others), per_cpu / 1e3),
        format!("{:.1} MB", megabytes(maps.others) + CPUS * per_cpu / 1e6),
    );
    row(
        "in the kernel, for each thread",
        format!("{} bytes × 100,000 threads", maps.each_thread),
        format!("{:.1} MB", megabytes(maps.each_thread) * 1e5),
    );
    Some(table.markdown())
}
