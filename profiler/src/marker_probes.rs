//! Markers of programs that set none themselves: functions, and the probes that their authors have
//! put into them.
//!
//! ```text
//!  --marker PATH:FUNCTION             a range, from each call to its return
//!  --marker usdt:PROVIDER:NAME        an instant, or a range from NAME__start to NAME__done
//!  --marker usdt:PATH:PROVIDER:NAME   the same in one file
//! ```
//!
//! All of it is found before anything is attached (`find_points`). `kernel/marker_probes.rs` attaches, and
//! from then on these markers are like those of `faccessat2`.
//!
//! What can go wrong: a file may be anybody's, and what it says of itself leads the kernel to some place in
//! that same file, whose instruction is then reported. The kernel checks that it is one.

use std::{
    collections::HashSet,
    fmt, fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use offwake_recording::units::{Tgid, Tid};
use offwake_unwind::elf::probe_points::{ProbePoint, ProbeQuery, ProbeRefusal};
use profiler_ebpf::marker::MAX_PROBES;
use rustix::io::Errno;
use thiserror::Error;

use crate::{
    kernel::TargetFilter,
    parser::{Parser, ParserRole},
    reader_process,
};

/// What divides the names here.
const COLON: char = ':';
/// What a probe's name begins with.
const USDT: &str = "usdt:";
/// Files that are searched for a probe at most.
const MAX_FILES: usize = 16_384;
/// Names that an error lists at most.
const MAX_NAMES: usize = 12;

/// A function or a probe that is to be a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    /// The words of the command line.
    words: String,
    /// Where it is; none for what the processes in question have mapped.
    path: Option<PathBuf>,
    query: ProbeQuery,
}

/// Text that names neither a function nor a probe.
#[derive(Debug, Error)]
#[error("{0:?} is no PATH:FUNCTION, usdt:PROVIDER:NAME or usdt:PATH:PROVIDER:NAME")]
pub struct NotAProbe(String);

impl FromStr for ProbeRequest {
    type Err = NotAProbe;

    fn from_str(words: &str) -> Result<Self, NotAProbe> {
        Self::parse(words).ok_or_else(|| NotAProbe(words.to_owned()))
    }
}

impl ProbeRequest {
    fn parse(words: &str) -> Option<Self> {
        let (path, query) = match words.strip_prefix(USDT) {
            None => {
                let (path, function) = words.rsplit_once(COLON)?;
                (Some(path), ProbeQuery::Function(function.to_owned()))
            }
            Some(rest) => {
                let (before, name) = rest.rsplit_once(COLON)?;
                let (path, provider) = match before.rsplit_once(COLON) {
                    Some((path, provider)) => (Some(path), provider),
                    None => (None, before),
                };
                let (provider, name) = (provider.to_owned(), name.to_owned());
                (path, ProbeQuery::Usdt { provider, name })
            }
        };
        let is_name = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
        let are_names = match &query {
            ProbeQuery::Function(name) => is_name(name),
            ProbeQuery::Usdt { provider, name } => is_name(provider) && is_name(name),
        };
        let request = Self { words: words.to_owned(), path: path.map(PathBuf::from), query };
        (are_names && path.is_none_or(is_name)).then_some(request)
    }

    /// The marker's text: its track, a colon and its name. No colon is in a track.
    fn text(&self) -> String {
        match (&self.query, &self.path) {
            (ProbeQuery::Usdt { provider, name }, _) => format!("{provider}:{name}"),
            (ProbeQuery::Function(name), path) => {
                let file = path.as_deref().and_then(Path::file_name).unwrap_or_default();
                let track = file.to_string_lossy().replace(COLON, "_");
                let is_shown = |c: &char| !c.is_control();
                format!("{}:{name}", track.chars().filter(is_shown).collect::<String>())
            }
        }
    }
}

impl fmt::Display for ProbeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// Where the processes are that have what has no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Searched<'a> {
    /// They are the target, or its threads are theirs.
    Target(&'a TargetFilter),
    /// The target is a command that has not begun.
    Command,
}

/// A place where a marker is set.
#[derive(Clone, Debug)]
pub struct MarkerProbe {
    /// The request that it is of.
    pub words: String,
    /// The file, as a name alone.
    pub file: Arc<OwnedFd>,
    /// The place in the file.
    pub point: ProbePoint,
    /// Track and name.
    pub text: String,
}

/// Why a function or a probe can't be a marker.
#[derive(Debug, Error)]
pub enum MarkerProbeError {
    /// The file is not there, or can't be read.
    #[error("--marker {words}: cannot read {}: {error}", path.display())]
    File {
        /// The request.
        words: String,
        /// The file.
        path: PathBuf,
        /// Why.
        error: Errno,
    },
    /// The file has no such function or probe.
    #[error("--marker {words}: {}", describe(refusal, path))]
    Refused {
        /// The request.
        words: String,
        /// The file.
        path: PathBuf,
        /// Why.
        refusal: ProbeRefusal,
    },
    /// No process has a file with this probe.
    #[error(
        "--marker {words}: no file that {whose} mapped has this probe{}; name the file: usdt:PATH:PROVIDER:NAME",
        list(others)
    )]
    NowhereMapped {
        /// The request.
        words: String,
        /// Whose files were searched.
        whose: &'static str,
        /// Other probes of that provider.
        others: Vec<String>,
    },
    /// The command has not begun, so it has mapped nothing.
    #[error("--marker {words}: the command has not begun; name the file: usdt:PATH:PROVIDER:NAME")]
    NotBegun {
        /// The request.
        words: String,
    },
    /// There are too many places.
    #[error("--marker: {places} places are more than the {MAX_PROBES} that can be followed")]
    TooMany {
        /// How many.
        places: usize,
    },
}

fn describe(refusal: &ProbeRefusal, path: &Path) -> String {
    let path = path.display();
    match refusal {
        ProbeRefusal::NotElf => format!("{path} is no program or library"),
        ProbeRefusal::OtherMachine => format!("{path} is for another kind of machine"),
        ProbeRefusal::Stripped => format!("{path} has no symbols: it was stripped"),
        ProbeRefusal::NoProbes => format!("{path} has no USDT probes"),
        ProbeRefusal::NotFound => format!("{path} has nothing of that name"),
        ProbeRefusal::OtherProbes(others) => {
            format!("{path} has no such probe{}", list(others))
        }
        ProbeRefusal::OutsideCode => format!("{path} says of it a place outside of its code"),
        ProbeRefusal::TooMany => format!("{path} has it in too many places"),
        ProbeRefusal::UnknownReturns => {
            format!("{path}: it can't be told of all its jumps whether they return")
        }
        ProbeRefusal::Go => format!(
            "{path} is written in Go, whose functions change threads as they run: \
             only USDT probes that are instants can be followed there"
        ),
    }
}

/// Other probes' names, for who mistook one.
fn list(names: &[String]) -> String {
    match names.len() {
        0 => String::new(),
        few if few <= MAX_NAMES => format!("; others are {}", names.join(", ")),
        many => {
            let shown = names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>();
            format!("; others are {} and {} more", shown.join(", "), many - MAX_NAMES)
        }
    }
}

/// Finds where markers are to be set.
///
/// # Errors
///
/// Which request has no place, and why.
pub fn find_probes(
    requests: &[ProbeRequest],
    searched: Searched<'_>,
) -> Result<Vec<MarkerProbe>, MarkerProbeError> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    // A process without the rights that this one has, which can be given up.
    reader_process::use_process(Parser::new(ParserRole::Reader).start_early());
    let mut probes = Vec::new();
    for request in requests {
        match &request.path {
            Some(path) => find_in_file(request, path, &mut probes)?,
            None => find_in_processes(request, searched, &mut probes)?,
        }
    }
    let places = probes.len();
    if places > MAX_PROBES as usize {
        return Err(MarkerProbeError::TooMany { places });
    }
    Ok(probes)
}

fn find_in_file(
    request: &ProbeRequest,
    path: &Path,
    probes: &mut Vec<MarkerProbe>,
) -> Result<(), MarkerProbeError> {
    let words = || request.words.clone();
    let failed = |error| MarkerProbeError::File { words: words(), path: path.into(), error };
    // Who reads has another directory.
    let whole = std::path::absolute(path);
    let whole = whole.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let (file, _) = reader_process::open_path(&whole).map_err(failed)?;
    let points = match reader_process::find_probe_points(&file, &request.query) {
        Ok(points) => points,
        // A directory, or a device.
        Err(Errno::INVAL) => Err(ProbeRefusal::NotElf),
        Err(error) => return Err(failed(error)),
    };
    let refused =
        |refusal| MarkerProbeError::Refused { words: words(), path: path.into(), refusal };
    add(request, file, points.map_err(refused)?, probes);
    Ok(())
}

fn add(
    request: &ProbeRequest,
    file: OwnedFd,
    points: Vec<ProbePoint>,
    probes: &mut Vec<MarkerProbe>,
) {
    let file = Arc::new(file);
    probes.extend(points.into_iter().map(|point| MarkerProbe {
        words: request.words.clone(),
        file: Arc::clone(&file),
        point,
        text: request.text(),
    }));
}

/// Finds a probe in each file that some process has mapped.
fn find_in_processes(
    request: &ProbeRequest,
    searched: Searched<'_>,
    probes: &mut Vec<MarkerProbe>,
) -> Result<(), MarkerProbeError> {
    let (processes, whose) = match searched {
        Searched::Command => {
            return Err(MarkerProbeError::NotBegun { words: request.words.clone() });
        }
        Searched::Target(
            TargetFilter::Processes(processes) | TargetFilter::ProcessesAlone(processes),
        ) => (processes.clone(), "the target has"),
        Searched::Target(TargetFilter::Threads(threads)) => {
            (threads.iter().filter_map(|tid| process_of(*tid)).collect(), "the target has")
        }
        Searched::Target(_) => (list_processes(), "any process has"),
    };
    let mut seen = HashSet::new();
    let (mut is_found, mut others) = (false, Vec::new());
    for tgid in processes {
        let Ok(mappings) = reader_process::read_mappings(tgid) else { continue };
        for line in mappings.lines {
            let Some(identity) = line.file else { continue };
            if seen.len() >= MAX_FILES || !seen.insert(identity) {
                continue;
            }
            let Ok((file, _)) = reader_process::open_mapped(tgid, line.start, line.end) else {
                continue;
            };
            match reader_process::find_probe_points(&file, &request.query) {
                Ok(Ok(points)) => {
                    is_found = true;
                    add(request, file, points, probes);
                }
                Ok(Err(ProbeRefusal::OtherProbes(names))) => others = names,
                Ok(Err(refusal @ (ProbeRefusal::Go | ProbeRefusal::OutsideCode))) => {
                    let path = PathBuf::from(line.name);
                    return Err(MarkerProbeError::Refused {
                        words: request.words.clone(),
                        path,
                        refusal,
                    });
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
    match is_found {
        true => Ok(()),
        false => {
            Err(MarkerProbeError::NowhereMapped { words: request.words.clone(), whose, others })
        }
    }
}

/// The process of a thread.
fn process_of(tid: Tid) -> Option<Tgid> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok().map(Tgid)
}

fn list_processes() -> Vec<Tgid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Tgid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Option<(Option<String>, ProbeQuery, String)> {
        let request: ProbeRequest = words.parse().ok()?;
        let path = request.path.clone().map(|path| path.display().to_string());
        let text = request.text();
        Some((path, request.query, text))
    }

    fn usdt(provider: &str, name: &str) -> ProbeQuery {
        ProbeQuery::Usdt { provider: provider.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn the_last_colon_divides_a_path_from_a_function() {
        let function = |name: &str| ProbeQuery::Function(name.to_owned());
        let path = |path: &str| Some(path.to_owned());
        assert_eq!(
            parse("/bin/a:b:main"),
            Some((path("/bin/a:b"), function("main"), "a_b:main".to_owned()))
        );
        assert_eq!(
            parse("./usdt:main"),
            Some((path("./usdt"), function("main"), "usdt:main".to_owned()))
        );
    }

    #[test]
    fn a_probe_may_have_a_path() {
        let text = "shop:sold".to_owned();
        assert_eq!(parse("usdt:shop:sold"), Some((None, usdt("shop", "sold"), text.clone())));
        assert_eq!(
            parse("usdt:/bin/a:b:shop:sold"),
            Some((Some("/bin/a:b".to_owned()), usdt("shop", "sold"), text))
        );
    }

    #[test]
    fn what_lacks_a_part_is_neither() {
        for words in ["", "main", ":main", "/bin/a:", "usdt:", "usdt:a", "usdt::b", "usdt:a:"] {
            assert_eq!(parse(words), None, "{words}");
        }
        for words in ["usdt::shop:sold", "/bin/a:ma\nin", "usdt:a\x1b:b"] {
            assert_eq!(parse(words), None, "{words}");
        }
    }

    #[test]
    fn an_error_lists_a_few_of_the_other_probes() {
        let names: Vec<String> = (0..20).map(|n| format!("p{n}")).collect();
        assert_eq!(list(&[]), "");
        assert_eq!(list(&names[..2]), "; others are p0, p1");
        assert!(list(&names).ends_with("p11 and 8 more"));
    }
}
