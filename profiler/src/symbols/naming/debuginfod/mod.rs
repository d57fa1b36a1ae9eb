//! Debug files from servers, by build id: <https://sourceware.org/elfutils/Debuginfod.html>.
//!
//! Only who asks for it gets it: names are looked up as root, and build ids tell what a machine
//! runs. Whatever a server sends is a stranger's: it is kept only if it is of the build that was
//! asked for.

mod cache;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use object::ReadCache;
use offwake_recording::BuildId;
use offwake_unwind::elf::build_id;
use ureq::{
    Agent,
    tls::{RootCerts, TlsConfig, TlsProvider},
};

use cache::Cache;

use crate::parser::end_deadline;

/// For a name's look-up and the connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Hops from the address that was asked for to the one that answers.
const MAX_REDIRECTS: u32 = 5;

/// How far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// For one file.
    pub time: Duration,
    /// For all of them.
    pub time_in_all: Duration,
    /// Bytes of one file.
    pub size: u64,
    /// Bytes of all of them.
    pub size_in_all: u64,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(60),
            time_in_all: Duration::from_secs(180),
            size: 1 << 30,
            size_in_all: 4 << 30,
        }
    }
}

/// Why no server can be asked.
#[derive(Debug, thiserror::Error)]
pub enum NoServers {
    /// None is named.
    #[error("DEBUGINFOD_URLS names no server")]
    Unset,
    /// One is of another kind.
    #[error("DEBUGINFOD_URLS: {0:?} is no http:// or https:// address")]
    Scheme(String),
    /// Nobody knows where to.
    #[error("DEBUGINFOD_CACHE_PATH, XDG_CACHE_HOME and HOME name no directory to keep files in")]
    NoCache,
    /// The directory can't be used.
    #[error("cannot keep debug files in {0}: {1}")]
    Cache(PathBuf, io::Error),
}

/// What came of asking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Files that were sent.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Files that no server has.
    pub unknown: u64,
    /// What went wrong, each once.
    pub errors: Vec<String>,
}

/// Servers that have debug files, and the directory that keeps what they sent.
#[derive(Debug)]
pub struct Debuginfod {
    servers: Vec<String>,
    cache: Cache,
    limits: FetchLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fetched: Fetched,
    spent: Duration,
    /// No server has these.
    unknown: HashSet<BuildId>,
    /// These are not asked again.
    failed: HashSet<String>,
}

/// Why one server sent nothing.
enum Refusal {
    /// The server does not have the file.
    Unknown,
    /// The server can't be reached, or sent a file of another build.
    Failed(String),
}

impl Debuginfod {
    /// The servers in `DEBUGINFOD_URLS`, and the cache that elfutils and gdb share with it.
    ///
    /// # Errors
    ///
    /// If no server is named, or there is no place for what they send.
    pub fn from_environment() -> Result<Self, NoServers> {
        let urls = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
        let directory =
            cache::directory(|name| std::env::var_os(name)).ok_or(NoServers::NoCache)?;
        Self::new(&urls, directory, FetchLimits::default())
    }

    fn new(urls: &str, directory: PathBuf, limits: FetchLimits) -> Result<Self, NoServers> {
        let servers: Vec<_> = urls.split_ascii_whitespace().map(str::to_owned).collect();
        if servers.is_empty() {
            return Err(NoServers::Unset);
        }
        let is_http = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if let Some(other) = servers.iter().find(|url| !is_http(url)) {
            return Err(NoServers::Scheme(other.clone()));
        }
        let cache = Cache::open(&directory).map_err(|e| NoServers::Cache(directory, e))?;
        Ok(Self { servers, cache, limits, state: Mutex::default() })
    }

    /// What came of it so far.
    #[must_use]
    pub fn fetched(&self) -> Fetched {
        self.state().fetched.clone()
    }

    /// The debug file of a build: from the cache, or from the first server that has it.
    pub(super) fn find(&self, build_id: &BuildId) -> Option<File> {
        if let Some(file) = self.cache.file(build_id).filter(|file| is_of(file, build_id)) {
            return Some(file);
        }
        let mut state = self.state();
        if state.unknown.contains(build_id) {
            return None;
        }
        for server in &self.servers {
            if state.failed.contains(server) || self.is_exhausted(&state) {
                continue;
            }
            let begun = Instant::now();
            let answer = self.fetch(server, build_id, &mut state);
            state.spent += begun.elapsed();
            match answer {
                Ok(file) => return Some(file),
                Err(Refusal::Unknown) => {}
                Err(Refusal::Failed(why)) => {
                    state.fetched.errors.push(format!("{server}: {why}"));
                    state.failed.insert(server.clone());
                }
            }
        }
        state.unknown.insert(build_id.clone());
        state.fetched.unknown += 1;
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_exhausted(&self, state: &State) -> bool {
        state.spent >= self.limits.time_in_all || state.fetched.bytes >= self.limits.size_in_all
    }

    fn fetch(&self, server: &str, build_id: &BuildId, state: &mut State) -> Result<File, Refusal> {
        let failed = |why: &dyn std::fmt::Display| Refusal::Failed(why.to_string());
        let url = format!("{}/buildid/{build_id}/debuginfo", server.trim_end_matches('/'));
        let time = self.limits.time.min(self.limits.time_in_all.saturating_sub(state.spent));
        let time = time.min(end_deadline::time_left().unwrap_or(Duration::MAX));
        let left = self.limits.size_in_all.saturating_sub(state.fetched.bytes);
        let most = self.limits.size.min(left);
        let mut response = agent(server, time).get(url).call().map_err(|error| failed(&error))?;
        match response.status().as_u16() {
            200 => {}
            404 => return Err(Refusal::Unknown),
            status => return Err(failed(&format_args!("it answered {status}"))),
        }
        let mut new = self.cache.new_file().map_err(|error| failed(&error))?;
        let body = response.body_mut().with_config().limit(u64::MAX).reader();
        let size = io::copy(&mut body.take(most.saturating_add(1)), new.as_file_mut());
        let size = size.map_err(|error| failed(&error))?;
        state.fetched.bytes += size;
        if size > most {
            return Err(failed(&format_args!("a file has more than {most} bytes")));
        }
        if !is_of(new.as_file(), build_id) {
            return Err(failed(&format_args!("it sent another file than that of {build_id}")));
        }
        let file = self.cache.keep(new, build_id).map_err(|error| failed(&error))?;
        state.fetched.files += 1;
        Ok(file)
    }
}

fn is_of(file: &File, build_id: &BuildId) -> bool {
    build_id::from_file(&ReadCache::new(file)).as_ref() == Some(build_id)
}

fn agent(server: &str, time: Duration) -> Agent {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
    Agent::config_builder()
        .tls_config(tls.build())
        // Who asks by TLS is not sent to where anybody can listen.
        .https_only(server.starts_with("https://"))
        .timeout_connect(Some(CONNECT.min(time)))
        .timeout_global(Some(time))
        .http_status_as_error(false)
        .max_redirects(MAX_REDIRECTS)
        .user_agent(concat!("offwake/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}
