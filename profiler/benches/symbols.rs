//! What naming frames takes: addresses spread evenly over the code that processes have mapped. One
//! run, one line of JSON: `cargo bench --bench symbols -- 20000 PID…`.

use std::{
    collections::BTreeMap,
    env, fs,
    process::ExitCode,
    time::{Duration, Instant},
};

use offwake::{
    parser::{Parser, ParserRole},
    stacks::StackProcessor,
    symbols,
    unwinder_process::UnwinderClient,
};
use offwake_recording::{
    AddressSpace,
    units::{StackId, Tgid, Timestamp},
};
use offwake_unwind::Method;

/// Frames of a stack.
const DEPTH: usize = 16;
/// Headers of files are read aside; this is time enough.
const HEADERS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    // `cargo bench` adds its own.
    let mut arguments = env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let frames = arguments.next().and_then(|argument| argument.parse().ok());
    let processes: Vec<Tgid> =
        arguments.filter_map(|argument| argument.parse().ok()).map(Tgid).collect();
    let (Some(frames), false) = (frames, processes.is_empty()) else {
        eprintln!("usage: symbols FRAMES PID…");
        return ExitCode::from(2);
    };
    measure(frames, &processes);
    ExitCode::SUCCESS
}

fn measure(frames: usize, processes: &[Tgid]) {
    // Nothing is unwound, so that the process for it is never started.
    let unwinder = UnwinderClient::new(Method::default(), Parser::new(ParserRole::Stacks));
    let mut stacks = StackProcessor::new(unwinder, 0);
    let mut ids = (1..).map(StackId);
    let mut asked = 0;
    let begun = Instant::now();
    for &process in processes {
        stacks.observe_process(process);
        let space = AddressSpace::Process(process);
        let addresses = addresses(process, frames / processes.len());
        asked += addresses.len();
        for (stack, id) in addresses.chunks(DEPTH).zip(ids.by_ref()) {
            stacks.add_walked_stack(id, space, Timestamp(u64::MAX), stack);
        }
    }
    let observed = begun.elapsed();
    std::thread::sleep(HEADERS);
    let before = memory("VmRSS");
    let begun = Instant::now();
    let mut parser = Parser::in_thread(symbols::serve);
    let (new, names, diagnostics) = stacks.finish().resolve(&mut parser, &mut |_done, _all| {});
    let named = begun.elapsed();
    println!(
        "{{\"asked\":{asked},\"frames\":{},\"named\":{},\"modules\":{},\"observe_ns\":{},\
         \"name_ns\":{},\"before_kib\":{before},\"peak_kib\":{},\"shortfalls\":{diagnostics:?}}}",
        new.frames.len(),
        names.len(),
        new.modules.len(),
        observed.as_nanos(),
        named.as_nanos(),
        memory("VmHWM"),
    );
}

/// So many addresses, evenly over all code that a process has mapped from files, in an order in which
/// neighbours are of different files.
fn addresses(process: Tgid, count: usize) -> Vec<u64> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.0)).unwrap_or_default();
    let code: Vec<(u64, u64)> = maps.lines().filter_map(code).collect();
    let size: u64 = code.iter().map(|(start, end)| end - start).sum();
    let step = (size / count.max(1) as u64).max(1);
    let mut by_number = BTreeMap::new();
    for &(start, end) in &code {
        for (address, n) in (start..end).step_by(usize::try_from(step).unwrap_or(1)).zip(0_u64..) {
            by_number.insert((n, start), address);
        }
    }
    by_number.into_values().collect()
}

/// A line of `/proc/PID/maps`, if it is code of a file.
fn code(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()?.contains('x');
    let is_file = fields.nth(3)?.starts_with('/');
    let number = |hex| u64::from_str_radix(hex, 16).ok();
    (is_code && is_file).then_some((number(start)?, number(end)?))
}

/// A line of `/proc/self/status`, in KiB.
fn memory(line: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    value.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
