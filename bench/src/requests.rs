//! What it takes to find requests, and what each one's time was spent on.

use serde::Deserialize;

use crate::blame;

/// Waits for each request, in `profiler/benches/blame.rs`: four requests in five waits.
const WAITS_PER_REQUEST: f64 = 1.25;

/// What `profiler/benches/blame.rs` prints.
#[derive(Deserialize)]
struct Run {
    requests: u64,
    /// From the records to blame.
    blame_ns: u64,
    requests_ns: u64,
    peak_kib: u64,
}

/// Runs each size on one thread, the quicker of two runs, up to ten to the power of `up_to` requests.
///
/// # Errors
///
/// When the benchmark can't be built or run.
pub fn measure(up_to: u32) -> anyhow::Result<()> {
    blame::compile()?;
    println!(
        "\n{:>9} {:>12} {:>12} {:>10} {:>10}",
        "requests", "ns a request", "blame, ns", "all, s", "peak, MiB"
    );
    for power in 4..=up_to {
        let waits = (10_f64.powf(f64::from(power)) * WAITS_PER_REQUEST) as u64;
        let (one, other) = (run(waits)?, run(waits)?);
        let Run { requests, blame_ns, requests_ns, peak_kib } =
            if one.requests_ns <= other.requests_ns { one } else { other };
        let each = |ns: u64| ns as f64 / requests as f64;
        println!(
            "{requests:>9} {:>12.0} {:>12.0} {:>10.2} {:>10}",
            each(requests_ns),
            each(blame_ns),
            (blame_ns + requests_ns) as f64 / 1e9,
            peak_kib / 1024
        );
    }
    println!(
        "\n`blame`: from the records to blame, for each request; `all`: both; memory is that of all of it."
    );
    Ok(())
}

fn run(waits: u64) -> anyhow::Result<Run> {
    blame::run_with(&[&waits.to_string(), "requests"], 1)
}
