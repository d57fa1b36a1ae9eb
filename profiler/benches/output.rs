//! From the last record to the output: what `profile` does when its window has closed, timed part by
//! part on a recording. One run, one line of JSON: `cargo bench --bench output -- RECORDING`.
//!
//! ```text
//!  while it is recorded                      | after that
//!  slices, one after another → recording     | sort → timeline → blame and report → .svg, .json
//! ```

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use offwake_analysis::{
    blame::{Blame, ChainLimits},
    filter::Filter,
    formats,
    report::{self, Report, flame::View},
    timeline::Timeline,
};
use offwake_recording::stream::{Assembly, Slices};
use rustix::time::{ClockId, clock_gettime};

fn main() -> ExitCode {
    // `cargo bench` adds its own.
    let path = env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let measured = path.map(|path| measure(&path));
    match measured {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("usage: output RECORDING");
            ExitCode::from(2)
        }
    }
}

fn measure(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let file = File::open(path)?;
    let mut slices = Slices::new(&file, usize::MAX)?;
    let mut assembly = Assembly::default();
    let (mut decode, mut add) = (0, 0);
    loop {
        let begun = Instant::now();
        let slice = slices.next_whole()?;
        decode += begun.elapsed().as_nanos();
        let Some(slice) = slice else { break };
        let begun = Instant::now();
        assembly.add(slice);
        add += begun.elapsed().as_nanos();
    }
    let mut parts = Parts { newest: Instant::now(), cpu: cpu_ns(), line: String::new() };
    let recording = assembly.finish(slices.damage().clone());
    parts.end("sort");
    let timeline = Timeline::build(&recording);
    parts.end("timeline");
    let blame = Blame::new(&recording, &timeline, ChainLimits::default());
    parts.end("prepare");
    let report = Report::new(&blame, &Filter::default());
    parts.end("report");
    let mut written = Counted(0);
    report::svg::write(&report, &View::default(), &mut written)?;
    parts.end("svg");
    formats::json::write(&report, &mut written)?;
    parts.end("json");
    println!(
        "{{\"waits\":{},\"decode_ns\":{decode},\"add_ns\":{add},{}\"entries\":{},\"written\":{},\"peak_kib\":{}}}",
        recording.waits.len(),
        parts.line,
        report.waits.len(),
        written.0,
        peak_kib(),
    );
    Ok(())
}

/// What took how long.
struct Parts {
    newest: Instant,
    cpu: i64,
    line: String,
}

impl Parts {
    fn end(&mut self, name: &str) {
        let (ns, cpu) = (self.newest.elapsed().as_nanos(), cpu_ns());
        self.line.push_str(&format!("\"{name}_ns\":{ns},\"{name}_cpu_ns\":{},", cpu - self.cpu));
        (self.newest, self.cpu) = (Instant::now(), cpu);
    }
}

/// CPU time of all threads.
fn cpu_ns() -> i64 {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    cpu.tv_sec * 1_000_000_000 + cpu.tv_nsec
}

/// Bytes that nobody reads.
struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    value.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
