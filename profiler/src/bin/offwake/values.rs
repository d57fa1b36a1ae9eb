//! The values that arguments take.

use std::{path::PathBuf, time::Duration};

use offwake::{
    capture::{OverheadLimit, Trigger, flight_recorder::Retention},
    containers::ContainerQuery,
    kernel,
};
use offwake_analysis::{
    formats::{self, OutputFormat, RecordingFile},
    requests::BandRange,
};
use offwake_recording::units::Nanos;

use crate::otlp::{Collector, NotACollector};

/// The longest time that a profile may be asked to take.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Letters of task states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct States(pub Vec<char>);

/// Two bands of requests that are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandPair(pub [BandRange; 2]);

/// Parses `p50,p99`.
pub fn parse_bands(text: &str) -> Result<BandPair, String> {
    let (one, other) =
        text.split_once(',').ok_or_else(|| format!("{text:?} is no pair of bands like p50,p99"))?;
    let band = |text: &str| text.parse::<BandRange>().map_err(|error| error.to_string());
    Ok(BandPair([band(one)?, band(other)?]))
}

/// Splits `500ms` into its number and its unit.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

fn parse_ns(text: &str, bare_unit: &str) -> Option<u128> {
    let (number, unit) = split_unit(text)?;
    let scale = match if unit.is_empty() { bare_unit } else { unit } {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return None,
    };
    Some(u128::from(number) * scale)
}

/// Parses a profile's length.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let ns = parse_ns(text, "s")
        .ok_or_else(|| format!("the duration {text:?} is not a time like 10, 10s, 500ms or 2m"))?;
    if ns == 0 {
        return Err("a duration of 0 records nothing".to_owned());
    }
    match u64::try_from(ns).map(Duration::from_nanos) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(format!("the duration {text:?} is longer than the limit of 168h")),
    }
}

/// Parses a container's name, or the beginning of its id.
pub fn parse_container(text: &str) -> Result<ContainerQuery, String> {
    ContainerQuery::parse(text)
        .ok_or_else(|| format!("{text:?} is no NAME, ID, pod/NAME or pod/NAME/CONTAINER"))
}

/// Parses a name that is not empty.
pub fn parse_name(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Parses a wait's length; a bare number is microseconds, as with bcc's `-m`.
pub fn parse_wait(text: &str) -> Result<Nanos, String> {
    parse_ns(text, "us")
        .and_then(|ns| u64::try_from(ns).ok())
        .map(Nanos)
        .ok_or_else(|| format!("{text:?} is not a time like 5ms, 1s or 100 (microseconds)"))
}

/// Parses a collector's address.
pub fn parse_collector(text: &str) -> Result<Collector, String> {
    text.parse().map_err(|error: NotACollector| error.to_string())
}

/// Parses a size in bytes.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let invalid = || format!("{text:?} is not a size like 65536, 64K, 8M or 2G");
    let (number, unit) = split_unit(text).ok_or_else(invalid)?;
    let scale: u64 = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return Err(invalid()),
    };
    let bytes = number.checked_mul(scale).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|bytes| *bytes > 0).ok_or_else(invalid)
}

/// Rounds a ring's size up to what it can be: a power of two, and a page at least.
pub fn round_ring_bytes(bytes: usize) -> u32 {
    const PAGE: usize = 4096;
    const LARGEST: usize = 1 << 30;
    let bytes = bytes.clamp(PAGE, LARGEST).next_power_of_two();
    u32::try_from(bytes).unwrap_or(1 << 30)
}

/// The size of each CPU's ring. Every CPU that is online has one, also those that offwake itself may
/// not run on.
pub fn default_ring_bytes() -> u32 {
    // Where this can't be read, loading the programs fails and says so.
    ring_bytes_for(kernel::count_online_cpus().unwrap_or(1))
}

/// 128 MiB are shared out over the CPUs: 8 MiB each hold a fifth of a second of the fastest
/// switching that was seen.
fn ring_bytes_for(cpus: usize) -> u32 {
    round_ring_bytes(((128 << 20) / cpus.max(1)).clamp(1 << 20, 8 << 20))
}

/// Parses how much a flight recorder retains: a time or a size, with its unit.
pub fn parse_keep(text: &str) -> Result<Retention, String> {
    let invalid = || format!("{text:?} is not a time like 30s or 2m, nor a size like 512M or 1GB");
    let (number, unit) = split_unit(text).ok_or_else(invalid)?;
    // A bare number could be either.
    if unit.is_empty() {
        return Err(invalid());
    }
    let decimal = match unit {
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => 0,
    };
    if decimal > 0 {
        let bytes = number.checked_mul(decimal).and_then(|bytes| usize::try_from(bytes).ok());
        return bytes.filter(|bytes| *bytes > 0).map(Retention::Bytes).ok_or_else(invalid);
    }
    if let Ok(bytes) = parse_bytes(text) {
        return Ok(Retention::Bytes(bytes));
    }
    let ns = parse_ns(text, "").ok_or_else(invalid)?;
    match u64::try_from(ns) {
        Ok(0) => Err("to keep 0 keeps nothing".to_owned()),
        Ok(ns) if Duration::from_nanos(ns) <= LONGEST => Ok(Retention::Time(Nanos(ns))),
        _ => Err(format!("{text:?} is longer than the limit of 168h")),
    }
}

/// Parses `wait>200ms` or `wait>200ms,comm=NAME`: a name may hold anything, commas too.
pub fn parse_trigger(text: &str) -> Result<Trigger, String> {
    /// `TASK_COMM_LEN`, the NUL at its end left out.
    const LONGEST_COMM: usize = 15;
    let invalid = || format!("{text:?} is not a trigger like wait>200ms or wait>1s,comm=nginx");
    let condition = text.strip_prefix("wait>").ok_or_else(invalid)?;
    let (length, comm) = match condition.split_once(',') {
        None => (condition, None),
        Some((length, rest)) => (length, Some(rest.strip_prefix("comm=").ok_or_else(invalid)?)),
    };
    if length.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("{text:?} has no unit: use ns, us, ms, s, m or h"));
    }
    let ns = parse_ns(length, "").and_then(|ns| u64::try_from(ns).ok()).ok_or_else(invalid)?;
    match comm {
        Some("") => Err(format!("{text:?} names no thread behind comm=")),
        Some(comm) if comm.len() > LONGEST_COMM => Err(format!(
            "the name in {text:?} is too long: the kernel keeps {LONGEST_COMM} bytes of a thread's name"
        )),
        comm => Ok(Trigger { longer_than: Nanos(ns), comm: comm.map(str::to_owned) }),
    }
}

/// The value of `--max-overhead`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OverheadArgument {
    /// Any amount.
    None,
    /// A share of the machine.
    Share(OverheadLimit),
}

impl From<OverheadArgument> for Option<OverheadLimit> {
    fn from(argument: OverheadArgument) -> Self {
        match argument {
            OverheadArgument::None => None,
            OverheadArgument::Share(limit) => Some(limit),
        }
    }
}

/// Parses what recording may cost.
pub fn parse_overhead(text: &str) -> Result<OverheadArgument, String> {
    if text == "none" {
        return Ok(OverheadArgument::None);
    }
    let number = text.strip_suffix('%').unwrap_or(text);
    let limit = number.parse().ok().and_then(OverheadLimit::from_percent);
    limit.map(OverheadArgument::Share).ok_or_else(|| {
        format!("the limit {text:?} is not a share of all CPUs like 10% or 0.5%, nor none; the least is 0.1%")
    })
}

/// Parses letters of task states, with commas or without.
pub fn parse_states(text: &str) -> Result<States, String> {
    const KNOWN: &str = "SDTtXZPI";
    let letters: Vec<char> = text.chars().filter(|c| *c != ',').collect();
    match letters.iter().find(|letter| !KNOWN.contains(**letter)) {
        None if !letters.is_empty() => Ok(States(letters)),
        _ => Err(format!("{text:?} is not made of state letters of ps: S, D, T, t, X, Z, P, I")),
    }
}

/// Parses a format's name.
pub fn parse_format(text: &str) -> Result<&'static dyn OutputFormat, String> {
    formats::from_name(text).map_err(|error| error.to_string())
}

/// Parses the name of an output, which tells its format, or `-`.
pub fn parse_output(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text != "-" {
        formats::from_path(&path).map_err(|error| error.to_string())?;
    }
    Ok(path)
}

/// Parses the name of a recording's file, or `-`.
pub fn parse_recording(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_recording =
        path.extension().is_some_and(|extension| extension == RecordingFile.extension());
    if text == "-" || is_recording {
        Ok(path)
    } else {
        Err(format!("{text:?} is not the name of a recording: use one that ends in .offwake"))
    }
}

/// Parses the name of a recording's file.
pub fn parse_file(text: &str) -> Result<PathBuf, String> {
    match text {
        "-" => Err("standard output is no file: name one that ends in .offwake".to_owned()),
        text => parse_recording(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        for (text, ms) in [("10", 10_000), ("10s", 10_000), ("500ms", 500), ("2m", 120_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "0ms", "-1", "1y", "ten", "1e3s", "s", "1.5s", "169h", "١٠s"] {
            parse_duration(text).unwrap_err();
        }
        parse_duration("99999999999999999999").unwrap_err();
    }

    #[test]
    fn rings_are_shared_out_over_all_cpus() {
        for (cpus, mebibytes) in [(0, 8), (1, 8), (16, 8), (32, 4), (128, 1), (1024, 1)] {
            assert_eq!(ring_bytes_for(cpus), mebibytes << 20, "{cpus} CPUs");
        }
        assert!(kernel::count_online_cpus().is_ok_and(|cpus| cpus > 0));
    }

    #[test]
    fn waits_are_microseconds_where_no_unit_says_otherwise() {
        assert_eq!(parse_wait("100"), Ok(Nanos(100_000)));
        assert_eq!(parse_wait("5ms"), Ok(Nanos(5_000_000)));
        parse_wait("x").unwrap_err();
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_bytes("64K"), Ok(65_536));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        for text in ["", "0", "K", "1T", "99999999999G"] {
            parse_bytes(text).unwrap_err();
        }
    }

    #[test]
    fn what_is_kept_is_a_time_or_a_size() {
        assert_eq!(parse_keep("30s"), Ok(Retention::Time(Nanos(30_000_000_000))));
        assert_eq!(parse_keep("2m"), Ok(Retention::Time(Nanos(120_000_000_000))));
        assert_eq!(parse_keep("2M"), Ok(Retention::Bytes(2 << 20)));
        assert_eq!(parse_keep("1GB"), Ok(Retention::Bytes(1_000_000_000)));
        assert_eq!(parse_keep("1G"), Ok(Retention::Bytes(1 << 30)));
        for text in ["", "30", "0s", "0G", "0GB", "-1s", "1.5s", "s", "30 s", "1TB", "169h", "١s"]
        {
            parse_keep(text).unwrap_err();
        }
        parse_keep("99999999999999999999GB").unwrap_err();
        parse_keep("99999999999999999GB").unwrap_err();
    }

    #[test]
    fn triggers_are_waits_longer_than_a_time() {
        let trigger = |ms: u64, comm: Option<&str>| {
            Ok(Trigger { longer_than: Nanos(ms * 1_000_000), comm: comm.map(str::to_owned) })
        };
        assert_eq!(parse_trigger("wait>200ms"), trigger(200, None));
        assert_eq!(parse_trigger("wait>1s,comm=nginx"), trigger(1_000, Some("nginx")));
        assert_eq!(parse_trigger("wait>1s,comm=a,b=c d"), trigger(1_000, Some("a,b=c d")));
        for text in [
            "",
            "wait",
            "wait>",
            "wait>200",
            "wait<1s",
            "wait>=1s",
            "wait>1s,",
            "wait>1s,comm=",
            "wait>1s,tid=7",
            "wait>xms",
            "wait>1s,comm=sixteen-bytes-xx",
            "run>1s",
        ] {
            parse_trigger(text).unwrap_err();
        }
    }

    #[test]
    fn what_recording_may_cost_is_a_share_of_all_cpus() {
        assert_eq!(parse_overhead("none"), Ok(OverheadArgument::None));
        let share = |percent| OverheadLimit::from_percent(percent).map(OverheadArgument::Share);
        for (text, percent) in [("10%", 10.0), ("3", 3.0), ("0.5%", 0.5), ("100%", 100.0)] {
            assert_eq!(parse_overhead(text).ok(), share(percent), "{text}");
        }
        for text in ["", "%", "0%", "0.01%", "-1", "101%", "NaN", "ten", "None"] {
            parse_overhead(text).unwrap_err();
        }
    }

    #[test]
    fn states_are_letters_of_ps() {
        assert_eq!(parse_states("S,D"), Ok(States(vec!['S', 'D'])));
        parse_states("Q").unwrap_err();
        parse_states("").unwrap_err();
    }

    #[test]
    fn outputs_name_their_format() {
        parse_output("x.json").unwrap();
        parse_output("-").unwrap();
        parse_output("x.docx").unwrap_err();
        parse_output("x.offwake").unwrap();
        parse_recording("x.offwake").unwrap();
        parse_recording("x.json").unwrap_err();
        parse_file("x.offwake").unwrap();
        parse_file("-").unwrap_err();
    }
}
