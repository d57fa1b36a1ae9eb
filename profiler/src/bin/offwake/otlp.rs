//! Spans to a collector, by OTLP over HTTP
//! (<https://github.com/open-telemetry/opentelemetry-proto/blob/v1.9.0/docs/specification.md#otlphttp>).

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use anyhow::{Context as _, bail};
use offwake_analysis::spans::otlp::Exporter;
use serde::Deserialize;
use ureq::{Agent, Proxy, http::Uri};

/// Time for a name's look-up and the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a response that are read.
const MAX_RESPONSE_BYTES: u64 = 64 << 10;
/// Characters of a response that are shown.
const MAX_SHOWN_CHARS: usize = 200;

/// Where spans are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    url: String,
    location: Location,
}

/// Where a collector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    /// On this machine: `localhost`, `127.0.0.1`. A proxy elsewhere would send to its own.
    Loopback,
    /// Anywhere else.
    Elsewhere,
}

impl Location {
    fn from_host(host: &str) -> Self {
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_loopback = match address {
            Ok(address) => address.to_canonical().is_loopback(),
            // RFC 6761: names below localhost are loopback addresses.
            Err(_name) => {
                let name = host.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || name.ends_with(".localhost")
            }
        };
        if is_loopback { Self::Loopback } else { Self::Elsewhere }
    }
}

/// How spans are sent.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Where spans are sent to.
    pub collector: Collector,
    /// Spans in one request.
    pub batch: usize,
    /// Time for one request, its response included.
    pub timeout: Duration,
}

/// Text that is no collector's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotACollector {
    /// There is no TLS here.
    #[error("{0}: https is not spoken here: send to a collector on this machine by http")]
    Https(String),
    /// Anything else.
    #[error("{0:?} is not a collector's address like http://localhost:4318")]
    Other(String),
}

impl FromStr for Collector {
    type Err = NotACollector;

    fn from_str(text: &str) -> Result<Self, NotACollector> {
        let other = || NotACollector::Other(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| other())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(NotACollector::Https(text.to_owned())),
            _ => return Err(other()),
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(other)?;
        if uri.query().is_some() {
            return Err(other());
        }
        let url = match uri.path() {
            "/" => format!("{}/v1/traces", text.trim_end_matches('/')),
            _ => text.to_owned(),
        };
        Ok(Self { url, location: Location::from_host(host) })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// `ExportTraceServiceResponse`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TraceResponse {
    partial_success: Option<PartialSuccess>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    rejected_spans: Count,
    error_message: String,
}

/// A 64-bit number in JSON: text, or a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u64),
    Text(String),
}

impl Default for Count {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Count {
    fn get(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Text(text) => text.parse().unwrap_or(0),
        }
    }
}

impl Delivery {
    /// Sends all spans; returns how many those were. The first batch that the collector does not
    /// take as a whole is the last.
    pub fn send(&self, exporter: &Exporter<'_>) -> anyhow::Result<usize> {
        let proxy = match self.collector.location {
            Location::Loopback => None,
            Location::Elsewhere => Proxy::try_from_env(),
        };
        let agent: Agent = Agent::config_builder()
            .proxy(proxy)
            .timeout_connect(Some(CONNECT_TIMEOUT.min(self.timeout)))
            .timeout_global(Some(self.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("offwake/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let mut sent = 0;
        for (spans, request) in exporter.batches(self.batch) {
            let body = serde_json::to_vec(&request).context("cannot encode spans")?;
            let to = &self.collector;
            to.post(&agent, &body)
                .with_context(|| format!("cannot send spans to {to} ({sent} were sent)"))?;
            sent += spans.len();
        }
        Ok(sent)
    }
}

impl Collector {
    fn post(&self, agent: &Agent, body: &[u8]) -> anyhow::Result<()> {
        let mut response =
            agent.post(&self.url).header("content-type", "application/json").send(body)?;
        let read = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec();
        let status = response.status();
        let answer = read.as_deref().unwrap_or_default();
        if !status.is_success() {
            let text = String::from_utf8_lossy(answer);
            let first: String =
                text.lines().next().unwrap_or_default().chars().take(MAX_SHOWN_CHARS).collect();
            bail!("it answered {status}{}{first}", if first.is_empty() { "" } else { ": " });
        }
        // A collector that says nothing has taken everything.
        let partial =
            serde_json::from_slice::<TraceResponse>(answer).unwrap_or_default().partial_success;
        if let Some(partial) = partial.filter(|partial| partial.rejected_spans.get() > 0) {
            let why: String = partial.error_message.chars().take(MAX_SHOWN_CHARS).collect();
            bail!("it rejected {} spans: {why}", partial.rejected_spans.get());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Collector, Location, NotACollector};

    #[test]
    fn only_collectors_on_this_machine_are_loopback() {
        let hosts = ["localhost", "LocalHost.", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]"];
        for host in hosts {
            assert_eq!(Location::from_host(host), Location::Loopback, "{host}");
        }
        for host in ["tempo", "localhost.example.org", "notlocalhost", "10.0.0.1", "[fe80::1]"] {
            assert_eq!(Location::from_host(host), Location::Elsewhere, "{host}");
        }
    }

    #[test]
    fn the_path_is_the_one_of_traces_unless_another_is_given() {
        for (text, url) in [
            ("http://localhost:4318", "http://localhost:4318/v1/traces"),
            ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
            ("http://tempo/otlp/v1/traces", "http://tempo/otlp/v1/traces"),
        ] {
            assert_eq!(text.parse::<Collector>().map(|it| it.to_string()), Ok(url.to_owned()));
        }
        assert!(matches!("https://x:4318".parse::<Collector>(), Err(NotACollector::Https(_))));
        for text in ["", "localhost:4318", "ftp://x", "http://", "http:///v1", "/v1", "http://a b"]
        {
            assert!(matches!(text.parse::<Collector>(), Err(NotACollector::Other(_))), "{text}");
        }
    }
}
